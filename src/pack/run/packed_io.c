/* Boxes of tensors in files. A box is in memory a small tensor of its own; its
 * runs are the ranges that lie contiguously in the whole as well.
 */
#include "pack/run/packed_io.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/run/plain_rows.h"
#include "pack/source/source_words.h"
#include "pack/source/weight_complete.h"

#include <string.h>

enum { BATCH = 128 };

/* Short runs that follow each other closely, as the columns of a few rows that are stored along K,
 * are taken out of one reading. `near`: how many have done so. */
enum { WINDOW = 16384, SHORT = 1024, CLOSE = WINDOW / 8, NEAR = 4 };
struct window {
    uint64_t at, have, last;
    unsigned near;
    uint8_t bytes[WINDOW];
};

struct transfer {
    const struct tp_checkpoint *ckpt; /* reading */
    struct tp_invariants *invariants; /* reading: what is known of it, or NULL */
    struct tp_sink *sink;             /* writing */
    uint32_t file, output;
    uint64_t offset, bytes; /* of the tensor, when reading */
    struct window *window;
    const uint8_t *from; /* copying */
    unsigned bits;
    uint8_t *data;
    struct tp_err *err;
    struct tp_chunk *batch; /* writing: BATCH chunks that are handed over together */
    size_t batched;
};

static enum tp_code read_at(struct transfer *t, uint64_t at, uint64_t size, uint8_t *to)
{
    return tp_checkpoint_read(t->ckpt, t->file, to, size, t->offset + at, t->err);
}

static enum tp_code read_short(struct transfer *t, uint64_t at, uint64_t size, uint8_t *to)
{
    struct window *w = t->window;
    bool close = at > w->last && at - w->last <= CLOSE;
    w->near = close ? w->near + 1 : 0;
    w->last = at;
    if (w->near < NEAR || at + size > t->bytes)
        return read_at(t, at, size, to);
    if (at < w->at || at + size > w->at + w->have) {
        uint64_t have = tp_min_u64(WINDOW, t->bytes - at);
        w->have = 0;
        enum tp_code code = read_at(t, at, have, w->bytes);
        if (code)
            return code;
        w->at = at;
        w->have = have;
    }
    memcpy(to, w->bytes + (at - w->at), size);
    return TP_OK;
}

static int read_run(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    struct transfer *t = arg;
    uint64_t at = whole * t->bits / 8, size = length * t->bits / 8;
    uint8_t *to = t->data + part * t->bits / 8;
    enum tp_code code = (size < SHORT ? read_short : read_at)(t, at, size, to);
    if (code == TP_OK && t->invariants)
        code = tp_invariants_check(t->invariants, t->file, to, size, t->offset + at, t->err);
    return (int)code;
}

static enum tp_code hand_over(struct transfer *t)
{
    struct tp_sink *sink = t->sink;
    enum tp_code code = TP_OK;
    size_t count = t->batched;
    t->batched = 0;
    if (sink->write_many && count > 0)
        return sink->write_many(sink, t->file, t->output, t->batch, count, t->err);
    for (size_t i = 0; i < count && code == TP_OK; i++)
        code = sink->write(sink, t->file, t->output, t->batch[i].offset, t->batch[i].data,
                           t->batch[i].size, t->err);
    return code;
}

static int write_run(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    struct transfer *t = arg;
    t->batch[t->batched++] = (struct tp_chunk){whole * t->bits / 8, t->data + part * t->bits / 8,
                                               length * t->bits / 8};
    return t->batched < BATCH ? 0 : (int)hand_over(t);
}

/* All runs of output i, or the single element of an output without a layout. `kept` (or NULL) has
 * operations at sizes that were asked for before. */
static enum tp_code move(const struct tp_op *op, uint32_t i, struct tp_box3 whole_size,
                         const struct tp_box *box, struct tp_ops_at *kept, tp_run_visit visit,
                         struct transfer *t)
{
    struct tp_layout part, whole;
    uint64_t base;
    if (!op->out[i].layout)
        return (enum tp_code)visit(t, 0, 0, 1);
    if (kept) {
        const struct tp_op_at *a = tp_ops_at(kept, op, box->size, false, t->err);
        const struct tp_op_at *b = a ? tp_ops_at(kept, op, whole_size, true, t->err) : NULL;
        if (!b)
            return t->err->code;
        base = tp_box_base(op, i, whole_size, box, &b->layout[i]);
        return (enum tp_code)tp_layout_runs(&a->layout[i], &b->layout[i], base, visit, t);
    }
    enum tp_code code = tp_box_layouts(op, i, whole_size, box, &part, &whole, &base, t->err);
    return code ? code : (enum tp_code)tp_layout_runs(&part, &whole, base, visit, t);
}

/* Bytes that hold int4 say so themselves alone: 8-bit codes look alike in a header. */
static enum tp_code check_codes(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                struct tp_box3 size, void *const data[], struct tp_err *err)
{
    enum tp_code code =
        tp_source_codes_check(&weight->form->op, size, (const void *const *)data, err);
    if (code)
        tp_weight_attribute_error(ckpt, weight, err);
    return code;
}

/* The file may have changed since tp_weight_complete() looked at its act-order. */
static enum tp_code check_order(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                struct tp_box3 size, void *const data[], struct tp_err *err)
{
    int i = tp_op_find(&weight->form->op, TP_ROLE_ORDER);
    enum tp_code code =
        tp_source_order_check(&weight->form->op, size, (const void *const *)data, err);
    if (code == TP_OK)
        return TP_OK;
    const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[i]];
    tp_err_tensor(err, tensor->name);
    tp_err_path(err, ckpt->files[tensor->file].path);
    tp_err_hint(err, "run the command again when nobody writes the file, or get it again");
    return code;
}

enum tp_code tp_packed_read_into(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 const struct tp_box *cover, struct tp_ops_at *kept,
                                 struct tp_invariants *invariants, void *const to[],
                                 struct tp_err *err)
{
    enum tp_code code = TP_OK;
    struct window window; /* of which the first members alone are set: the bytes are many */
    for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++) {
        if (weight->tensor[i] == TP_NO_TENSOR || weight->form->op.out[i].role == TP_ROLE_WORDS)
            continue;
        const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[i]];
        window.at = window.have = window.last = window.near = 0;
        struct transfer t = {.ckpt = ckpt,
                             .invariants = invariants,
                             .file = tensor->file,
                             .offset = tensor->offset,
                             .bytes = tensor->bytes,
                             .window = &window,
                             .bits = tp_element_bits(weight->form->op.out[i].element),
                             .data = to[i],
                             .err = err};
        code = move(&weight->form->op, i, weight->form->box, cover, kept, read_run, &t);
    }
    if (code || (invariants && (code = tp_invariants_refuse(invariants, err))) ||
        (code = check_codes(ckpt, weight, cover->size, to, err)))
        return code;
    return check_order(ckpt, weight, cover->size, to, err);
}

enum tp_code tp_packed_read(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                            const struct tp_box *cover, struct tp_buffer to[TP_MAX_OUT],
                            struct tp_err *err)
{
    void *data[TP_MAX_OUT] = {0};
    for (uint32_t i = 0; i < weight->form->op.outs; i++) {
        uint64_t bytes;
        enum tp_code code = tp_op_bytes(&weight->form->op, i, cover->size, &bytes, err);
        if (code || (code = tp_buffer_reserve(&to[i], bytes, err)))
            return code;
        data[i] = to[i].data;
    }
    return tp_packed_read_into(ckpt, weight, cover, NULL, NULL, data, err);
}

static int copy_run(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    struct transfer *t = arg;
    memcpy(t->data + part * t->bits / 8, t->from + whole * t->bits / 8, length * t->bits / 8);
    return 0;
}

enum tp_code tp_packed_cut(const struct tp_op *op, struct tp_box3 size, const struct tp_box *box,
                           void *const from[], void *const to[], struct tp_err *err)
{
    struct tp_op part = *op; /* what is cut is a box, too: of one segment */
    enum tp_code code = TP_OK;
    part.segments = 1;
    for (uint32_t i = 0; i < op->outs && code == TP_OK; i++) {
        struct transfer t = {.bits = tp_element_bits(op->out[i].element), .from = from[i],
                             .data = to[i], .err = err};
        if (op->out[i].role != TP_ROLE_WORDS)
            code = move(&part, i, size, box, NULL, copy_run, &t);
    }
    return code;
}

enum tp_code tp_packed_write(const struct tp_unit *unit,
                             const struct tp_box *box, bool first_box, void *const from[],
                             struct tp_ops_at *kept, struct tp_sink *sink, struct tp_err *err)
{
    struct tp_chunk batch[BATCH];
    enum tp_code code = TP_OK;
    for (uint32_t i = 0; i < unit->form->op.outs && code == TP_OK; i++) {
        const struct tp_op_out *out = &unit->form->op.out[i];
        if (unit->output[i] == UINT32_MAX) /* of another tool, which leaves it out */
            continue;
        struct transfer t = {.sink = sink, .file = unit->file, .output = unit->output[i],
                             .bits = tp_element_bits(out->element), .data = from[i], .err = err,
                             .batch = batch};
        bool once = out->role == TP_ROLE_GLOBAL; /* one element for an expert */
        if (out->per_k == 0 && box->k != 0) /* of a row: its first chunk had it */
            continue;
        if (out->role != TP_ROLE_WORDS && (out->layout || first_box) &&
            (!once || (box->n == 0 && box->k == 0)))
            code = move(&unit->form->op, i, unit->form->box, box, kept, write_run, &t);
        if (code == TP_OK)
            code = hand_over(&t);
    }
    return code;
}

enum tp_code tp_values_read(const struct tp_plan *plan, const struct tp_unit *unit,
                            const struct tp_box *box, void *to, struct tp_err *err)
{
    uint64_t row_bytes = box->size.k * tp_dtype_bits(unit->form->dtype) / 8;
    uint8_t *at = to;
    enum tp_code code = TP_OK;
    for (uint64_t e = 0; e < box->size.e && code == TP_OK; e++)
        for (uint64_t n = 0, rows; n < box->size.n && code == TP_OK; n += rows) {
            uint64_t row;
            struct tp_view view = tp_unit_view_at(unit, box->e + e, box->n + n, &row, &rows);
            rows = tp_min_u64(rows, box->size.n - n);
            code = tp_plain_read(plan->ckpt, &plan->weights->items[view.weight], view.expert,
                                 row, rows, box->k, box->size.k, at, err);
            at += rows * row_bytes;
        }
    return code;
}

enum tp_code tp_values_write(const struct tp_unit *unit,
                             const struct tp_box *box, const void *from, struct tp_sink *sink,
                             struct tp_err *err)
{
    return tp_plain_write(unit, box, from, sink, err);
}

enum tp_code tp_box_importance(const struct tp_plan *plan, const struct tp_unit *unit,
                               const struct tp_box *box, struct tp_buffer *buffer,
                               const float **importance, struct tp_err *err)
{
    uint64_t k = box->size.k;
    *importance = NULL;
    if (unit->form->op.importance != TP_IMPORTANCE_FILE)
        return TP_OK;
    enum tp_code code = tp_buffer_reserve(buffer, box->size.e * k * sizeof(float), err);
    float *numbers = buffer->data;
    for (uint64_t e = 0; e < box->size.e && code == TP_OK; e++)
        code = tp_importance_read(plan->importance, unit->importance[box->e + e], unit->form->box.k,
                                  box->k, k, numbers + e * k, err);
    *importance = numbers;
    return code;
}

enum tp_code tp_box_moments(const struct tp_plan *plan, const struct tp_unit *unit,
                            const struct tp_box *box, const float *importance,
                            struct tp_moments *moments, const struct tp_feedback **fed,
                            struct tp_err *err)
{
    const uint64_t k = unit->form->box.k;
    *fed = NULL;
    if (!importance || !tp_op_feeds(&unit->form->op))
        return TP_OK;
    const struct tp_importance_ref of = unit->importance[box->e];
    *fed = &moments->fed;
    if (moments->fed.rank && memcmp(&of, &moments->of, sizeof of) == 0)
        return TP_OK;
    moments->fed.rank = 0;
    enum tp_code code = tp_buffer_reserve(&moments->read, k * of.rank * sizeof(float), err);
    if (code || (code = tp_buffer_reserve(&moments->state, tp_feedback_bytes(k, of.rank), err)) ||
        (code = tp_moments_read(plan->importance, of, k, moments->read.data, err)))
        return code;
    moments->of = of;
    tp_feedback_make(tp_feedback_column_find(), importance, moments->read.data, k, of.rank,
                     moments->state.data, &moments->fed);
    return TP_OK;
}

void tp_moments_free(struct tp_moments *moments)
{
    tp_buffer_free(&moments->read);
    tp_buffer_free(&moments->state);
}
