/* Differences of stored bytes: where the first is, and what they are in values. */
#include "pack/check/verify_build.h"

#include "base/layout.h"
#include "base/num.h"
#include "kernels/op/word_bits.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first element with a bit in the byte that differs. */
static uint64_t first_element(const struct tp_op_out *out, const struct tp_difference *d)
{
    uint64_t first = UINT64_MAX;
    for (unsigned bit = 0; bit < 8; bit++)
        if ((d->ours ^ d->theirs) >> bit & 1)
            first = tp_min_u64(first, tp_bits_element(out->word_bits, d->first_offset * 8 + bit,
                                                      tp_element_bits(out->element)));
    return first;
}

/* Which element of a packed output the first difference is in. */
static void place_of(const struct tp_unit *unit, uint32_t i, const struct tp_difference *d,
                     char *text, size_t size)
{
    struct tp_layout layout;
    uint64_t at[TP_DIMS];
    const struct tp_op_out *out = &unit->form->op.out[i];
    text[0] = '\0';
    if (!out->layout || tp_op_whole_layout(&unit->form->op, i, unit->form->box, &layout, NULL))
        return;
    tp_layout_coord(&layout, first_element(out, d), at);
    uint64_t n = at[TP_DIM_N] * out->per_n, k = at[TP_DIM_K] * out->per_k;
    tp_op_unfold(&unit->form->op, i, unit->form->box.n, &at[TP_DIM_E], &n);
    int used = snprintf(text, size, ", element e=%llu n=%llu", (unsigned long long)at[TP_DIM_E],
                        (unsigned long long)n);
    if (used > 0 && (size_t)used < size && out->per_k)
        snprintf(text + used, size - (size_t)used, " k=%llu", (unsigned long long)k);
}

static void place_in_plain(const struct tp_output *output, uint64_t byte, char *text, size_t size)
{
    uint64_t i = byte * 8 / tp_dtype_bits(output->dtype);
    uint64_t k = output->rank ? output->shape[output->rank - 1] : 1;
    uint64_t n = output->rank > 1 ? output->shape[output->rank - 2] : 1;
    snprintf(text, size, ", element e=%llu n=%llu k=%llu", (unsigned long long)(i / k / n),
             (unsigned long long)(i / k % n), (unsigned long long)(i % k));
}

static enum tp_code report_output(const struct tp_comparison *c, size_t o)
{
    const struct tp_output *output = &c->plan->outputs[o];
    const struct tp_difference *d = &c->sink.differences[o];
    const struct tp_tensor *tensor = c->sink.tensors[o];
    const struct tp_unit *unit =
        output->unit == UINT32_MAX ? NULL : &c->plan->units[output->unit];
    char place[120] = "";
    uint32_t i = 0;
    if (unit && (d->bytes || !tensor))
        c->report->units[output->unit].differs = true;
    if (!d->bytes)
        return TP_OK;
    while (unit && unit->form->format && unit->output[i] != o)
        i++;
    if (unit && unit->form->format)
        place_of(unit, i, d, place, sizeof place);
    else
        place_in_plain(output, d->first_offset, place, sizeof place);
    return tp_verify_problem(c->report, c->stored->ckpt->files[tensor->file].name,
                             output->name, c->err,
                             "%llu of its %llu bytes are not those that the source gives, "
                             "the first at byte %llu: 0x%02x instead of 0x%02x%s",
                             (unsigned long long)d->bytes, (unsigned long long)output->bytes,
                             (unsigned long long)d->first_offset, d->theirs, d->ours, place);
}

static int by_prefix(const void *x, const void *y, void *weights)
{
    const struct tp_weight *items = weights;
    const struct tp_weight *a = &items[*(const uint32_t *)x], *b = &items[*(const uint32_t *)y];
    return tp_prefix_order(a->name, a->form->separator, b->name, b->form->separator);
}

/* The stored packed weights by name; sorted when the first is looked for. */
struct stored {
    const struct tp_weights *weights;
    uint32_t *by_prefix;
    size_t packed;
};

static enum tp_code sort_stored(struct stored *stored, struct tp_err *err)
{
    const struct tp_weights *weights = stored->weights;
    if (stored->by_prefix)
        return TP_OK;
    stored->by_prefix = tp_os_zalloc(weights->count + 1, sizeof *stored->by_prefix, err);
    if (!stored->by_prefix)
        return TP_E_MEMORY;
    for (uint32_t w = 0; w < weights->count; w++)
        if (weights->items[w].form->format)
            stored->by_prefix[stored->packed++] = w;
    qsort_r(stored->by_prefix, stored->packed, sizeof *stored->by_prefix, by_prefix,
            weights->items);
    return TP_OK;
}

static uint32_t find_stored(const struct stored *stored, const struct tp_unit *unit)
{
    size_t low = 0, high = stored->packed;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tp_weight *weight = &stored->weights->items[stored->by_prefix[middle]];
        int order = tp_prefix_order(weight->name, weight->form->separator, unit->name,
                                    unit->form->separator);
        if (order == 0)
            return stored->by_prefix[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return UINT32_MAX;
}

/* The figures on the way were of the bytes as they should be. Of a unit that is
 * stored otherwise they are taken again, from what is stored. */
static enum tp_code measure_stored(const struct tp_comparison *c, struct stored *stored, size_t u)
{
    enum tp_code code = sort_stored(stored, c->err);
    uint32_t w = code ? UINT32_MAX : find_stored(stored, &c->plan->units[u]);
    if (w == UINT32_MAX)
        return code;
    const struct tp_weight *weight = &c->stored->weights->items[w];
    struct tp_unit_form form = {.box = weight->form->box, .rank = weight->form->rank,
                                .views_per_expert = 1, .view_rows = {weight->form->box.n},
                                .repeats = true};
    struct tp_unit unit = {.name = weight->name, .form = &form,
                           .views = &(struct tp_view){.weight = w, .step = 1}};
    if (memcmp(&weight->form->box, &c->plan->units[u].form->box, sizeof weight->form->box) != 0)
        return TP_OK;
    return tp_compare_units(c->source, &c->plan->units[u], c->stored, &unit, c->options->jobs,
                            c->options->stop, &c->report->units[u].distance, c->err);
}

enum tp_code tp_verify_differences(const struct tp_comparison *c)
{
    struct stored stored = {.weights = c->stored->weights};
    enum tp_code code = TP_OK;
    for (size_t o = 0; o < c->plan->output_count && code == TP_OK; o++)
        code = report_output(c, o);
    for (size_t u = 0; u < c->plan->unit_count && code == TP_OK; u++)
        if (c->report->units[u].differs)
            code = measure_stored(c, &stored, u);
    free(stored.by_prefix);
    return code;
}
