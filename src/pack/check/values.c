/* Values of a box, from any storage, and distances between values.
 *
 * A packed part is read with all it needs to be decoded alone, decoded by the same
 * kernels that a conversion uses, and cut to the box. Invariant: a distance depends
 * on the values and on the order of its boxes, never on threads.
 */
#include "pack/check/values.h"

#include "base/num.h"
#include "kernels/op/distance.h"
#include "kernels/op/kernel.h"
#include "pack/run/packed_io.h"
#include "pack/source/weight_complete.h"
#include "pack/run/plain_rows.h"

#include <math.h>
#include <string.h>

void tp_value_reader_free(struct tp_value_reader *reader)
{
    for (int i = 0; i < TP_MAX_OUT; i++)
        tp_buffer_free(&reader->source[i]);
    tp_buffer_free(&reader->decoded);
    tp_buffer_free(&reader->scratch);
}

/* Rows [row, row + rows) of one plain part. */
static enum tp_code read_plain(const struct tp_side *side, const struct tp_view *view,
                               const struct tp_box *box, uint64_t row, uint64_t rows, float *to,
                               struct tp_value_reader *reader, struct tp_err *err)
{
    const struct tp_weight *weight = &side->weights->items[view->weight];
    enum tp_dtype dtype = weight->form->dtype;
    uint64_t count = rows * box->size.k;
    reader->weight = NULL;
    enum tp_code code =
        tp_buffer_reserve(&reader->decoded, count * tp_dtype_bits(dtype) / 8, err);
    if (code == TP_OK &&
        (code = tp_plain_read(side->ckpt, weight, view->expert, row, rows, box->k, box->size.k,
                              reader->decoded.data, err)) == TP_OK)
        tp_widen(dtype, reader->decoded.data, count, to);
    return code;
}

/* A kernel multiplies by any of the eight scales of a group. */
static enum tp_code check_scale_luts(const struct tp_side *side, const struct tp_weight *weight,
                                     const struct tp_args *args, struct tp_err *err)
{
    enum tp_code code =
        side->strict ? tp_source_scale_luts_check(&weight->form->op, args->box, args->in, err)
                     : TP_OK;
    if (code)
        tp_weight_attribute_error(side->ckpt, weight, err);
    return code;
}

static enum tp_code decode(const struct tp_side *side, const struct tp_weight *weight,
                           const struct tp_box *cover, struct tp_value_reader *reader,
                           struct tp_err *err)
{
    struct tp_args args = {.box = cover->size, .dtype = TP_F32, .global = weight->global};
    enum tp_code code = tp_buffer_reserve(&reader->decoded,
                                          cover->size.n * cover->size.k * sizeof(float), err);
    if (code || (code = tp_buffer_reserve(&reader->scratch,
                                          tp_decode_scratch(&weight->form->op, cover->size), err)))
        return code;
    for (uint32_t i = 0; i < weight->form->op.outs; i++)
        args.in[i] = weight->tensor[i] == TP_NO_TENSOR ? NULL : reader->source[i].data;
    if ((code = check_scale_luts(side, weight, &args, err)))
        return code;
    args.out[0] = reader->decoded.data;
    args.scratch = reader->scratch.data;
    tp_decode_find(&weight->form->op, TP_F32)(&weight->form->op, &args);
    return tp_args_check(&args, err);
}

static bool same_box(const struct tp_box *a, const struct tp_box *b)
{
    return a->e == b->e && a->n == b->n && a->k == b->k && a->size.e == b->size.e &&
           a->size.n == b->size.n && a->size.k == b->size.k;
}

/* The values of `cover` are in reader->decoded, if it ends well. */
static enum tp_code read_cover(const struct tp_side *side, const struct tp_weight *weight,
                               const struct tp_box *cover, struct tp_value_reader *reader,
                               struct tp_err *err)
{
    if (reader->weight == weight && same_box(&reader->cover, cover))
        return TP_OK;
    reader->weight = NULL;
    enum tp_code code = tp_packed_read(side->ckpt, weight, cover, reader->source, err);
    if (code || (code = decode(side, weight, cover, reader, err)))
        return code;
    reader->weight = weight;
    reader->cover = *cover;
    return TP_OK;
}

static enum tp_code read_packed(const struct tp_side *side, const struct tp_view *view,
                                const struct tp_box *box, uint64_t row, uint64_t rows, float *to,
                                struct tp_value_reader *reader, struct tp_err *err)
{
    const struct tp_weight *weight = &side->weights->items[view->weight];
    struct tp_box cover = {.e = view->expert};
    enum tp_code code = tp_weight_cover(weight, row, rows, box->k, box->size.k, &cover, err);
    if (code || (code = read_cover(side, weight, &cover, reader, err)))
        return code;
    const float *from = reader->decoded.data;
    for (uint64_t n = 0; n < rows; n++)
        memcpy(to + n * box->size.k,
               from + (row - cover.n + n) * cover.size.k + box->k - cover.k,
               box->size.k * sizeof *to);
    return TP_OK;
}

/* What is read at once from row n of the box on: `rows` rows of the view's weight, from its row
 * `row` on. */
static struct tp_view view_of_rows(const struct tp_weights *weights, const struct tp_unit *unit,
                                   const struct tp_box *box, uint64_t n, uint64_t *row,
                                   uint64_t *rows)
{
    struct tp_view view = tp_unit_view_at(unit, box->e, box->n + n, row, rows);
    const struct tp_weight_form *source = weights->items[view.weight].form;
    uint64_t segment = tp_op_segment_rows(&source->op, source->box.n);
    *rows = tp_min_u64(tp_min_u64(*rows, segment - *row % segment), box->size.n - n);
    return view;
}

enum tp_code tp_read_values(const struct tp_side *side, const struct tp_unit *unit,
                            const struct tp_box *box, float *to, struct tp_value_reader *reader,
                            struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (uint64_t n = 0, row, rows; n < box->size.n && code == TP_OK; n += rows) {
        struct tp_view view = view_of_rows(side->weights, unit, box, n, &row, &rows);
        bool packed = side->weights->items[view.weight].form->format != NULL;
        code = (packed ? read_packed : read_plain)(side, &view, box, row, rows,
                                                   to + n * box->size.k, reader, err);
    }
    if (code)
        tp_err_tensor(err, unit->name);
    return code;
}

/* Of some rows: the packed bytes of all that is decoded with them, and their values. */
static uint64_t rows_bytes(const struct tp_weight *weight, const struct tp_box *box, uint64_t row,
                           uint64_t rows)
{
    struct tp_box cover = {.size = {1, rows, box->size.k}};
    if (!weight->form->format)
        return rows * box->size.k * sizeof(float);
    if (tp_weight_cover(weight, row, rows, box->k, box->size.k, &cover, NULL))
        return 0; /* nor can it be read */
    return cover.size.n * cover.size.k * (sizeof(float) + sizeof(uint16_t)) +
           tp_decode_scratch(&weight->form->op, cover.size);
}

uint64_t tp_read_values_bytes(const struct tp_weights *weights, const struct tp_unit *unit,
                              const struct tp_box *box)
{
    uint64_t max = 0;
    for (uint64_t n = 0, row, rows; n < box->size.n; n += rows) {
        struct tp_view view = view_of_rows(weights, unit, box, n, &row, &rows);
        max = tp_max_u64(max, rows_bytes(&weights->items[view.weight], box, row, rows));
    }
    return max;
}

/* A block with a NaN or an infinity: pair by pair, those pairs left out. */
static void add_pairs(const float *a, const float *b, uint64_t count, struct tp_distance *d)
{
    for (uint64_t i = 0; i < count; i++) {
        bool both_nan = isnan(a[i]) && isnan(b[i]);
        d->differing += a[i] != b[i] && !both_nan;
        if (!isfinite(a[i]) || !isfinite(b[i])) {
            d->nonfinite++;
            continue;
        }
        double x = a[i], difference = (double)b[i] - x;
        d->error += difference * difference;
        d->value += x * x;
        d->max_abs = fabs(difference) > d->max_abs ? fabs(difference) : d->max_abs;
    }
}

static void first_difference(const float *a, const float *b, uint64_t base, struct tp_distance *d)
{
    uint64_t i = 0;
    while (a[i] == b[i] || (isnan(a[i]) && isnan(b[i])))
        i++;
    d->first = base + i;
    d->first_a = a[i];
    d->first_b = b[i];
}

static void add_lanes(const struct tp_block_distance *lanes, struct tp_distance *block)
{
    for (int j = 0; j < TP_DISTANCE_LANES; j++) {
        block->error += lanes->error[j];
        block->value += lanes->value[j];
        block->max_abs = lanes->max[j] > block->max_abs ? lanes->max[j] : block->max_abs;
        block->differing += lanes->differing[j];
    }
}

/* The slow way, for a block that has no number in a sum, or the first pair that differs. */
static void look_closely(enum tp_dtype dtype, const void *a, const float *b, uint64_t count,
                         uint64_t at, bool is_first, struct tp_distance *block)
{
    float wide[TP_DISTANCE_BLOCK];
    tp_widen(dtype, a, count, wide);
    if (!isfinite(block->error) || !isfinite(block->value)) {
        *block = (struct tp_distance){0};
        add_pairs(wide, b, count, block);
    }
    if (is_first && block->differing)
        first_difference(wide, b, at, block);
}

void tp_distance_of(enum tp_dtype dtype, const void *a, const float *b, uint64_t count,
                    uint64_t columns, struct tp_distance *d)
{
    const uint64_t width = tp_dtype_bits(dtype) / 8;
    tp_distance_fn distance = tp_distance_find();
    uint64_t row = 0; /* runs of the rows before it are counted: while they are in the cache */
    *d = (struct tp_distance){0};
    for (uint64_t at = 0; at < count; at += TP_DISTANCE_BLOCK) {
        uint64_t size = tp_min_u64(TP_DISTANCE_BLOCK, count - at), rows = (at + size) / columns;
        const void *from = (const uint8_t *)a + at * width;
        struct tp_block_distance lanes;
        struct tp_distance block = {0};
        distance(dtype, from, b + at, size, &lanes);
        add_lanes(&lanes, &block);
        bool finite = isfinite(block.error) && isfinite(block.value);
        if (!finite || (block.differing && !d->differing))
            look_closely(dtype, from, b + at, size, at, !d->differing, &block);
        tp_count_runs(dtype, (const uint8_t *)a + row * columns * width, b + row * columns,
                      rows - row, columns, &block.runs, &block.lost_runs);
        row = rows;
        tp_distance_add(d, &block, 0);
    }
    d->count = count;
}

void tp_distance_add(struct tp_distance *sum, const struct tp_distance *next, uint64_t base)
{
    if (next->differing && !sum->differing) {
        sum->first = base + next->first;
        sum->first_a = next->first_a;
        sum->first_b = next->first_b;
    }
    sum->count += next->count;
    sum->differing += next->differing;
    sum->nonfinite += next->nonfinite;
    sum->error += next->error;
    sum->value += next->value;
    sum->runs += next->runs;
    sum->lost_runs += next->lost_runs;
    if (next->max_abs > sum->max_abs)
        sum->max_abs = next->max_abs;
}

double tp_distance_relative(const struct tp_distance *d)
{
    if (d->error == 0)
        return d->differing ? NAN : 0;
    return d->value > 0 ? sqrt(d->error / d->value) : INFINITY;
}

double tp_distance_sqnr(const struct tp_distance *d)
{
    if (d->error == 0)
        return d->differing ? NAN : INFINITY;
    return d->value > 0 ? 10 * log10(d->value / d->error) : -INFINITY;
}

double tp_distance_lost(const struct tp_distance *d)
{
    return d->runs ? (double)d->lost_runs / (double)d->runs : 0;
}

bool tp_distance_loses(const struct tp_distance *d)
{
    enum { MIN = 8 }; /* a sample of a weight may have a hundred runs */
    return d->lost_runs >= MIN && tp_distance_lost(d) > TP_LOST_LIMIT;
}
