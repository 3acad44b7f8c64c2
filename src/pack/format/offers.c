/* What loads where, the best first, from the facts of the format files alone. */
#include "pack/format/offers.h"

#include "base/similar.h"
#include "pack/os/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Bits for each weight of a 4096 x 4096 matrix, scales and all else included. */
static double bits_of(const struct tp_format *format)
{
    struct tp_box3 box = {1, 4096, 4096};
    double bits = 0;
    struct tp_op op;
    tp_format_op(format, &(struct tp_settings){{0}}, &op);
    for (uint32_t i = 0; i < op.outs; i++) {
        uint64_t shape[TP_MAX_RANK];
        uint32_t rank;
        struct tp_err err = {0};
        double size = tp_dtype_bits(format->out[i].dtype);
        if (tp_format_shape(format, i, box, 2, shape, &rank, &err))
            return 0;
        for (uint32_t d = 0; d < rank; d++)
            size *= (double)shape[d];
        bits += size;
    }
    return bits / (4096.0 * 4096.0);
}

/* True when an engine loads it: a row of "serve" names one. */
static bool has_loader(const struct tp_format *format)
{
    for (uint32_t i = 0; i < format->serves; i++)
        if (format->serve[i].engine != TP_ENGINE_KERNELS)
            return true;
    return false;
}

static int order(double a, double b) { return (a > b) - (a < b); }

static int better(const void *left, const void *right)
{
    const struct tp_offer *a = left, *b = right;
    bool own_a = a->serve->engine == TP_ENGINE_KERNELS;
    bool own_b = b->serve->engine == TP_ENGINE_KERNELS;
    int by = own_a - own_b;
    if (!by)
        by = (int)a->serve->speed - (int)b->serve->speed;
    if (!by)
        by = order(round(b->format->snr_db), round(a->format->snr_db));
    if (!by)
        by = order(a->bits, b->bits);
    if (!by)
        by = strcmp(a->format->name, b->format->name);
    return by ? by : (int)(a->serve - b->serve);
}

/* The row is served there, and of the rows of its engine it is the fastest one there. */
static bool wanted(const struct tp_format *format, uint32_t i, unsigned sm, enum tp_engine engine)
{
    const struct tp_serve *row = &format->serve[i];
    if ((engine != TP_ENGINE_COUNT && row->engine != engine) || !tp_serve_on(row, sm))
        return false;
    for (uint32_t j = 0; j < format->serves && sm; j++) {
        const struct tp_serve *other = &format->serve[j];
        if (other->engine == row->engine && other->speed < row->speed && tp_serve_on(other, sm))
            return false;
    }
    return true;
}

enum tp_code tp_offers(unsigned sm, enum tp_engine engine, struct tp_offer **offers,
                       size_t *count, struct tp_err *err)
{
    size_t formats;
    const struct tp_format *const *all = tp_formats(&formats);
    *count = 0;
    *offers = tp_os_zalloc(formats * TP_MAX_SERVES, sizeof **offers, err);
    if (!*offers)
        return TP_E_MEMORY;
    for (size_t f = 0; f < formats; f++)
        for (uint32_t i = 0; i < all[f]->serves && !all[f]->input_only; i++)
            if (wanted(all[f], i, sm, engine))
                (*offers)[(*count)++] =
                    (struct tp_offer){all[f], &all[f]->serve[i], bits_of(all[f])};
    qsort(*offers, *count, sizeof **offers, better);
    return TP_OK;
}

/* " (vLLM, SGLang)": the engines of the rows, each once. */
static size_t add_engines(const struct tp_format *format, char *text, size_t size)
{
    size_t used = 0;
    for (int e = 0; e < TP_ENGINE_KERNELS; e++)
        for (uint32_t i = 0; i < format->serves; i++)
            if (format->serve[i].engine == (enum tp_engine)e && used < size) {
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : " (",
                                         tp_engine_title((enum tp_engine)e));
                break;
            }
    if (used && used < size)
        used += (size_t)snprintf(text + used, size - used, ")");
    return used;
}

const char *tp_format_nearest(const char *typed, bool written)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    struct tp_nearest nearest = {.typed = typed};
    for (size_t i = 0; i < count; i++)
        if (!written || !formats[i]->input_only)
            tp_nearest_try(&nearest, formats[i]->name);
    return nearest.name;
}

size_t tp_format_candidates(const char *typed, const struct tp_format **one, char *text,
                            size_t size)
{
    size_t count, found = 0, used = 0;
    const struct tp_format *const *all = tp_formats(&count);
    *text = '\0';
    for (int loads = 1; loads >= 0; loads--)
        for (size_t f = 0; f < count; f++) {
            if (all[f]->input_only || has_loader(all[f]) != loads ||
                strncasecmp(all[f]->name, typed, strlen(typed)) != 0)
                continue;
            if (!found++)
                *one = all[f];
            if (used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%s",
                                         found > 1 ? ", " : "", all[f]->name);
            if (used < size)
                used += add_engines(all[f], text + used, size - used);
        }
    return found;
}
