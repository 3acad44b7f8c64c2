/* Who reads which format, from the rows of the engines' files alone. */
#include "pack/engine/engine.h"

#include "base/similar.h"
#include "base/suffix.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool tp_row_has(const struct tp_engine_row *row, const char *format)
{
    return tp_word_of(format, row->format, row->formats) >= 0;
}

bool tp_engine_reads(const struct tp_engine *engine, const char *format)
{
    for (size_t r = 0; r < engine->rows; r++)
        if (tp_row_has(&engine->row[r], format))
            return true;
    return false;
}

const struct tp_engine *tp_packaged_engine(const char *format)
{
    size_t count;
    const struct tp_engine *const *all = tp_engines(&count);
    for (size_t e = 0; e < count; e++)
        if (all[e]->package && tp_engine_reads(all[e], format))
            return all[e];
    return NULL;
}

/* The engines of those kinds that read it; behind `used` characters. */
static size_t add_readers(const struct tp_format *format, int first, int last, const char *before,
                          char *text, size_t size)
{
    size_t count, used = 0;
    const struct tp_engine *const *all = tp_engines(&count);
    for (int kind = first; kind <= last; kind++)
        for (size_t e = 0; e < count && used < size; e++)
            if (all[e]->kind == kind && tp_engine_reads(all[e], format->name))
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : before,
                                         all[e]->title);
    return used;
}

const char *tp_format_readers(const struct tp_format *format, char *text, size_t size)
{
    *text = '\0';
    if (!add_readers(format, TP_ENGINE_SERVER, TP_ENGINE_LIBRARY, "", text, size))
        add_readers(format, TP_ENGINE_KERNELS, TP_ENGINE_KERNELS, "callers of ", text, size);
    return text;
}

double tp_format_bits(const struct tp_format *format)
{
    struct tp_box3 box = {1, 4096, 4096};
    double bits = 0;
    struct tp_op op;
    tp_format_op(format, &(struct tp_settings){.choice = {0}}, &op);
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

static int better(const void *left, const void *right)
{
    const struct tp_offer *a = left, *b = right;
    int by = (a->engine->kind == TP_ENGINE_KERNELS) - (b->engine->kind == TP_ENGINE_KERNELS);
    if (!by)
        by = (a->bits > b->bits) - (a->bits < b->bits);
    if (!by)
        by = a->row->speed - b->row->speed;
    if (!by)
        by = strcmp(a->format->name, b->format->name);
    if (!by)
        by = strcmp(a->engine->name, b->engine->name);
    return by ? by : (a->row > b->row) - (a->row < b->row);
}

static bool is_for(const struct tp_engine_row *row, unsigned sm)
{
    return !sm || tp_sms_of(row->gpu, row->gpus, sm) >> TP_SM_OTHER & 1;
}

const struct tp_engine_row *tp_engine_best_row(const struct tp_engine *engine, const char *format,
                                          unsigned sm)
{
    const struct tp_engine_row *best = NULL;
    for (size_t i = 0; i < engine->rows; i++) {
        const struct tp_engine_row *row = &engine->row[i];
        if (tp_row_has(row, format) && is_for(row, sm) && (!best || row->speed < best->speed))
            best = row;
    }
    return best;
}

/* The row has the format there; with a capability it is the fastest of its engine. */
static bool wanted(const struct tp_engine *engine, size_t r, const char *format, unsigned sm)
{
    const struct tp_engine_row *row = &engine->row[r];
    return tp_row_has(row, format) &&
           (sm ? tp_engine_best_row(engine, format, sm) == row : is_for(row, sm));
}

enum tp_code tp_offers(unsigned sm, const struct tp_engine *engine, struct tp_offer **offers,
                       size_t *count, struct tp_err *err)
{
    size_t engines, most = 0;
    const struct tp_engine *const *all = tp_engines(&engines);
    for (size_t e = 0; e < engines; e++)
        for (size_t r = 0; r < all[e]->rows; r++)
            most += all[e]->row[r].formats;
    *count = 0;
    if (!(*offers = tp_os_zalloc(most + 1, sizeof **offers, err)))
        return TP_E_MEMORY;
    for (size_t e = 0; e < engines; e++)
        for (size_t r = 0; r < all[e]->rows && (!engine || engine == all[e]); r++) {
            const struct tp_engine_row *row = &all[e]->row[r];
            for (size_t f = 0; f < row->formats; f++) {
                const struct tp_format *format = tp_format_find(row->format[f]);
                if (format && !format->input_only && wanted(all[e], r, format->name, sm))
                    (*offers)[(*count)++] =
                        (struct tp_offer){format, all[e], row, tp_format_bits(format)};
            }
        }
    qsort(*offers, *count, sizeof **offers, better);
    return TP_OK;
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
            char readers[200] = "";
            size_t any = add_readers(all[f], TP_ENGINE_SERVER, TP_ENGINE_LIBRARY, "", readers,
                                     sizeof readers);
            if (all[f]->input_only || (any > 0) != loads ||
                strncasecmp(all[f]->name, typed, strlen(typed)) != 0)
                continue;
            if (!found++)
                *one = all[f];
            if (used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%s%s%s%s",
                                         found > 1 ? ", " : "", all[f]->name, any ? " (" : "",
                                         readers, any ? ")" : "");
        }
    return found;
}
