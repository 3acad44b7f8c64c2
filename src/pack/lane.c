/* One box: read -> (decode) -> encode or take over -> write.
 *
 * The only place where files, layouts and kernels meet. A box of a packed tensor
 * is read and written run by run; in memory it is a small tensor of its own.
 */
#include "pack/lane.h"

#include "base/num.h"
#include "pack/os.h"

#include <stdlib.h>
#include <string.h>

static enum tp_code room(struct tp_buffer *buffer, uint64_t size, struct tp_err *err)
{
    if (size <= buffer->capacity)
        return TP_OK;
    free(buffer->data);
    buffer->capacity = 0;
    /* One allocation wide enough to align within would lose its start for free(). */
    if (posix_memalign(&buffer->data, 64, (size_t)tp_round_up(size, 64))) {
        buffer->data = NULL;
        return tp_fail(err, TP_E_MEMORY, "out of memory for a buffer of %llu bytes",
                       (unsigned long long)size);
    }
    buffer->capacity = (size_t)size;
    return TP_OK;
}

void tp_lane_close(struct tp_lane *lane)
{
    free(lane->values.data);
    free(lane->decoded.data);
    free(lane->scratch.data);
    for (int i = 0; i < TP_MAX_OUT; i++) {
        free(lane->source[i].data);
        free(lane->out[i].data);
    }
}

static const struct tp_weight *weight_of(const struct tp_lane *lane, const struct tp_part *part)
{
    return &lane->plan->weights->items[part->weight];
}

/* Rows of a plain part: one read when whole rows are wanted. */
static enum tp_code read_rows(struct tp_lane *lane, const struct tp_part *part, uint64_t row,
                              uint64_t rows, const struct tp_box *box, uint8_t *to)
{
    const struct tp_weight *weight = weight_of(lane, part);
    const struct tp_tensor *tensor = &lane->plan->ckpt->tensors[weight->tensor[0]];
    uint64_t width = tp_dtype_bits(tensor->dtype) / 8, columns = box->size.k;
    uint64_t pitch = weight->box.k * width;
    uint64_t at = tensor->offset + (part->expert * weight->box.n + row) * pitch + box->k * width;
    enum tp_code code = TP_OK;
    if (columns == weight->box.k)
        return tp_checkpoint_read(lane->plan->ckpt, tensor->file, to, rows * pitch, at, &lane->err);
    for (uint64_t r = 0; r < rows && code == TP_OK; r++)
        code = tp_checkpoint_read(lane->plan->ckpt, tensor->file, to + r * columns * width,
                                  columns * width, at + r * pitch, &lane->err);
    return code;
}

static enum tp_code read_plain(struct tp_lane *lane, const struct tp_unit *unit,
                               const struct tp_box *box)
{
    uint64_t width = tp_dtype_bits(unit->dtype) / 8, row_bytes = box->size.k * width;
    enum tp_code code = room(&lane->values, box->size.e * box->size.n * row_bytes, &lane->err);
    uint8_t *to = lane->values.data;
    for (uint64_t e = 0; e < box->size.e && code == TP_OK; e++)
        for (uint64_t n = 0, rows; n < box->size.n && code == TP_OK; n += rows) {
            uint64_t row;
            const struct tp_part *part = tp_unit_part(unit, box->e + e, box->n + n, &row, &rows);
            rows = tp_min_u64(rows, box->size.n - n);
            code = read_rows(lane, part, row, rows, box, to);
            to += rows * row_bytes;
        }
    return code;
}

struct transfer {
    struct tp_lane *lane;
    uint32_t file;
    uint32_t output;    /* of the plan, when writing */
    uint64_t offset;    /* of the tensor, when reading */
    unsigned bits;
    uint8_t *data;
};

static int read_run(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    struct transfer *t = arg;
    return (int)tp_checkpoint_read(t->lane->plan->ckpt, t->file, t->data + part * t->bits / 8,
                                   length * t->bits / 8, t->offset + whole * t->bits / 8,
                                   &t->lane->err);
}

static int write_run(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    struct transfer *t = arg;
    return (int)t->lane->sink->write(t->lane->sink, t->file, t->output, whole * t->bits / 8,
                                     t->data + part * t->bits / 8, length * t->bits / 8,
                                     &t->lane->err);
}

/* All outputs of a packed source, for the box `cover`. */
static enum tp_code read_packed(struct tp_lane *lane, const struct tp_weight *weight,
                                const struct tp_box *cover)
{
    for (uint32_t i = 0; i < weight->op.outs; i++) {
        struct tp_layout part, whole;
        uint64_t base = 0, bytes;
        if (weight->tensor[i] == TP_NO_TENSOR || weight->op.out[i].role == TP_ROLE_WORDS)
            continue;
        const struct tp_tensor *tensor = &lane->plan->ckpt->tensors[weight->tensor[i]];
        enum tp_code code = tp_op_bytes(&weight->op, i, cover->size, &bytes, &lane->err);
        if (code || (code = room(&lane->source[i], bytes, &lane->err)))
            return code;
        struct transfer t = {lane, tensor->file, 0, tensor->offset,
                             tp_element_bits(weight->op.out[i].element), lane->source[i].data};
        if (!weight->op.out[i].layout)
            code = (enum tp_code)read_run(&t, 0, 0, 1);
        else if ((code = tp_box_layouts(&weight->op, i, weight->box, cover, &part, &whole, &base,
                                        &lane->err)) == TP_OK)
            code = (enum tp_code)tp_layout_runs(&part, &whole, base, read_run, &t);
        if (code)
            return code;
    }
    return TP_OK;
}

static enum tp_code write_outputs(struct tp_lane *lane, const struct tp_unit *unit,
                                  const struct tp_box *box, bool first_box)
{
    for (uint32_t i = 0; i < unit->op.outs; i++) {
        const struct tp_op_out *out = &unit->op.out[i];
        struct transfer t = {lane, unit->file, unit->output[i], 0, tp_element_bits(out->element),
                             lane->out[i].data};
        struct tp_layout part, whole;
        uint64_t base;
        enum tp_code code = TP_OK;
        if (out->role == TP_ROLE_WORDS || (!out->layout && !first_box))
            continue;
        if (!out->layout)
            code = (enum tp_code)write_run(&t, 0, 0, 1);
        else if ((code = tp_box_layouts(&unit->op, i, unit->box, box, &part, &whole, &base,
                                        &lane->err)) == TP_OK)
            code = (enum tp_code)tp_layout_runs(&part, &whole, base, write_run, &t);
        if (code)
            return code;
    }
    return TP_OK;
}

/* Plain values to their rows of the output. */
static enum tp_code write_values(struct tp_lane *lane, const struct tp_unit *unit,
                                 const struct tp_box *box)
{
    uint64_t width = tp_dtype_bits(unit->dtype) / 8, row = box->size.k * width;
    const uint8_t *from = lane->values.data;
    bool whole_rows = box->size.k == unit->box.k;
    uint64_t rows = whole_rows ? box->size.n : 1;
    for (uint64_t n = 0; n < box->size.n; n += rows) {
        uint64_t at = ((box->e * unit->box.n + box->n + n) * unit->box.k + box->k) * width;
        enum tp_code code = lane->sink->write(lane->sink, unit->file, unit->output[0], at,
                                              from + n * row, rows * row, &lane->err);
        if (code)
            return code;
    }
    return TP_OK;
}

static enum tp_code room_for_outputs(struct tp_lane *lane, const struct tp_unit *unit,
                                     struct tp_box3 size, struct tp_args *args)
{
    enum tp_code code = TP_OK;
    for (uint32_t i = 0; i < unit->op.outs && code == TP_OK; i++) {
        uint64_t bytes;
        if (unit->op.out[i].role == TP_ROLE_WORDS)
            continue;
        if ((code = tp_op_bytes(&unit->op, i, size, &bytes, &lane->err)) == TP_OK)
            code = room(&lane->out[i], bytes, &lane->err);
        args->out[i] = lane->out[i].data;
    }
    if (code == TP_OK)
        code = room(&lane->scratch, tp_encode_scratch(&unit->op, size), &lane->err);
    args->scratch = lane->scratch.data;
    args->box = size;
    return code;
}

/* Cuts the box out of decoded values of a larger cover. */
static enum tp_code crop(struct tp_lane *lane, const struct tp_box *cover, const struct tp_box *want,
                         uint64_t width)
{
    uint64_t row = want->size.k * width;
    enum tp_code code = room(&lane->values, want->size.n * row, &lane->err);
    for (uint64_t n = 0; n < want->size.n && code == TP_OK; n++)
        memcpy((uint8_t *)lane->values.data + n * row,
               (uint8_t *)lane->decoded.data +
                   ((want->n - cover->n + n) * cover->size.k + want->k - cover->k) * width,
               row);
    return code;
}

static void sources_to(struct tp_lane *lane, const struct tp_weight *weight, struct tp_args *args)
{
    for (uint32_t i = 0; i < weight->op.outs; i++)
        args->in[i] = lane->source[i].data;
    args->global = weight->global;
}

/* The values of a box of a packed source, into lane->values. */
static enum tp_code decode_box(struct tp_lane *lane, const struct tp_unit *unit,
                               const struct tp_box *box)
{
    uint64_t row, rows, width = tp_dtype_bits(unit->dtype) / 8;
    const struct tp_part *part = tp_unit_part(unit, box->e, box->n, &row, &rows);
    const struct tp_weight *weight = weight_of(lane, part);
    struct tp_box cover = {.e = part->expert}, want = *box;
    want.n = row;
    enum tp_code code =
        tp_weight_cover(weight, row, box->size.n, box->k, box->size.k, &cover, &lane->err);
    if (code || (code = read_packed(lane, weight, &cover)))
        return code;
    uint64_t bytes = cover.size.n * cover.size.k * width;
    bool exact = memcmp(&cover.size, &want.size, sizeof cover.size) == 0;
    struct tp_buffer *to = exact ? &lane->values : &lane->decoded;
    struct tp_args args = {.box = cover.size, .dtype = unit->dtype};
    if ((code = room(to, bytes, &lane->err)) ||
        (code = room(&lane->scratch, tp_encode_scratch(&weight->op, cover.size), &lane->err)))
        return code;
    args.out[0] = to->data;
    args.scratch = lane->scratch.data;
    sources_to(lane, weight, &args);
    tp_decode_find(&weight->op, unit->dtype)(&weight->op, &args);
    return exact ? TP_OK : crop(lane, &cover, &want, width);
}

static enum tp_code take_over(struct tp_lane *lane, const struct tp_unit *unit,
                              const struct tp_box *box, struct tp_args *args)
{
    uint64_t row, rows;
    const struct tp_part *part = tp_unit_part(unit, box->e, box->n, &row, &rows);
    const struct tp_weight *weight = weight_of(lane, part);
    struct tp_box cover = *box;
    cover.e = part->expert;
    cover.n = row;
    enum tp_code code = read_packed(lane, weight, &cover);
    if (code || (code = room_for_outputs(lane, unit, box->size, args)))
        return code;
    sources_to(lane, weight, args);
    tp_repack_find(&weight->op, &unit->op)(&weight->op, &unit->op, args);
    return TP_OK;
}

/* The report of bad input: counts over the whole unit, not just this box. */
static enum tp_code refuse_nonfinite(struct tp_lane *lane, const struct tp_unit *unit)
{
    struct tp_grid grid;
    uint64_t count = 0, total = unit->box.e * unit->box.n * unit->box.k;
    uint64_t first[3] = {0};
    enum tp_code code = tp_unit_grid(lane->plan, unit, 1 << 20, 16 << 20, &grid, &lane->err);
    for (uint64_t i = 0; i < grid.count && code == TP_OK; i++) {
        struct tp_box box = tp_grid_box(unit, &grid, i);
        struct tp_value_stats stats;
        bool plain = !weight_of(lane, &unit->parts[0])->format;
        if ((code = plain ? read_plain(lane, unit, &box) : decode_box(lane, unit, &box)))
            break;
        tp_value_stats(unit->dtype, lane->values.data, box.size.e * box.size.n * box.size.k,
                       &stats);
        if (stats.nonfinite && !count) {
            first[0] = box.e + stats.first_nonfinite / (box.size.n * box.size.k);
            first[1] = box.n + stats.first_nonfinite / box.size.k % box.size.n;
            first[2] = box.k + stats.first_nonfinite % box.size.k;
        }
        count += stats.nonfinite;
    }
    if (code)
        return code;
    tp_err_tensor(&lane->err, unit->name);
    tp_err_hint(&lane->err, "--nonfinite keep converts it as the format's library would; "
                            "--exclude leaves it as it is");
    return tp_fail(&lane->err, TP_E_INPUT,
                   "%llu of %llu values are NaN or infinite, the first at e=%llu n=%llu k=%llu",
                   (unsigned long long)count, (unsigned long long)total,
                   (unsigned long long)first[0], (unsigned long long)first[1],
                   (unsigned long long)first[2]);
}

static enum tp_code encode_box(struct tp_lane *lane, const struct tp_unit *unit,
                               const struct tp_box *box, struct tp_args *args)
{
    bool plain = !weight_of(lane, &unit->parts[0])->format;
    enum tp_code code = plain ? read_plain(lane, unit, box) : decode_box(lane, unit, box);
    if (code || (code = room_for_outputs(lane, unit, box->size, args)))
        return code;
    args->dtype = unit->dtype;
    args->in[0] = lane->values.data;
    tp_encode_find(&unit->op, unit->dtype)(&unit->op, args);
    if ((args->flags & TP_SAW_NONFINITE) && !lane->options->keep_nonfinite)
        return refuse_nonfinite(lane, unit);
    return TP_OK;
}

enum tp_code tp_lane_box(struct tp_lane *lane, uint32_t u, const struct tp_grid *grid,
                         uint64_t index, float global)
{
    const struct tp_unit *unit = &lane->plan->units[u];
    struct tp_box box = tp_grid_box(unit, grid, index);
    struct tp_args args = {.box = box.size, .global = global};
    enum tp_code code;
    if (unit->kind == TP_UNIT_PLAIN) {
        if ((code = decode_box(lane, unit, &box)) == TP_OK)
            code = write_values(lane, unit, &box);
    } else {
        code = unit->kind == TP_UNIT_REPACK ? take_over(lane, unit, &box, &args)
                                            : encode_box(lane, unit, &box, &args);
        if (code == TP_OK)
            code = write_outputs(lane, unit, &box, index == 0);
    }
    if (code == TP_OK && lane->options->observe) {
        struct tp_observed seen = {u, index, box, unit->dtype, lane->values.data, args.out};
        if (unit->kind == TP_UNIT_REPACK)
            seen.dtype = TP_DTYPE_NONE;
        code = lane->options->observe(lane->options->observe_arg, &seen, &lane->err);
    }
    if (code)
        tp_err_tensor(&lane->err, unit->name);
    return code;
}

enum tp_code tp_lane_stats(struct tp_lane *lane, uint32_t u, const struct tp_grid *grid,
                           uint64_t index, float *amax)
{
    const struct tp_unit *unit = &lane->plan->units[u];
    struct tp_box box = tp_grid_box(unit, grid, index);
    struct tp_value_stats stats;
    bool plain = !weight_of(lane, &unit->parts[0])->format;
    enum tp_code code = plain ? read_plain(lane, unit, &box) : decode_box(lane, unit, &box);
    if (code)
        return code;
    tp_value_stats(unit->dtype, lane->values.data, box.size.e * box.size.n * box.size.k, &stats);
    *amax = stats.amax;
    return TP_OK;
}

enum tp_code tp_lane_copy(struct tp_lane *lane, uint32_t o, uint64_t offset, uint64_t size)
{
    const struct tp_output *output = &lane->plan->outputs[o];
    const struct tp_tensor *tensor = &lane->plan->ckpt->tensors[output->source];
    enum tp_code code = room(&lane->values, size, &lane->err);
    if (code == TP_OK &&
        (code = tp_checkpoint_read(lane->plan->ckpt, tensor->file, lane->values.data, size,
                                   tensor->offset + offset, &lane->err)) == TP_OK)
        code = lane->sink->write(lane->sink, output->file, o, offset, lane->values.data, size,
                                 &lane->err);
    if (code)
        tp_err_tensor(&lane->err, output->name);
    return code;
}
