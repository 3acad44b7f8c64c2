/* Rows of a box from wherever they lie in packed weights; see gather_rows.h. Element by element,
 * but for rows that lie in order. Invariant: every row of the box is of exactly one view.
 */
#include "pack/run/gather_rows.h"

#include "base/num.h"
#include "kernels/op/word_bits.h"
#include "pack/os/buffer.h"
#include "pack/plan/cut/box.h"
#include "pack/run/packed_io.h"

#include <string.h>

/* Outputs that no row has a share of stay as they are. */
static bool has_rows(const struct tp_op_out *out)
{
    return out->layout && out->per_n != 0;
}

void tp_dense_op(const struct tp_op *op, struct tp_dense_op *dense)
{
    dense->op = *op;
    dense->op.segments = 1;
    for (uint32_t i = 0; i < op->outs; i++) {
        struct tp_op_out *out = &dense->op.out[i];
        out->word_bits = NULL;
        if (!has_rows(out))
            continue;
        dense->layout[i] = tp_layout_rows(out->per_n, out->per_k);
        out->layout = &dense->layout[i];
        out->place = tp_place_of(out->layout);
    }
}

struct tp_share tp_rows_share(const struct tp_box *box, const struct tp_row_run *run)
{
    uint64_t end = box->n + box->size.n;
    uint64_t skipped = box->n > run->to ? tp_ceil_div(box->n - run->to, run->pitch) : 0;
    uint64_t last = end > run->to ? tp_ceil_div(end - run->to, run->pitch) : 0;
    last = tp_min_u64(last, run->count);
    struct tp_share share = {.step = run->step, .pitch = run->pitch,
                             .count = last > skipped ? last - skipped : 0};
    share.first = run->first + skipped * run->step;
    share.to = run->to + skipped * run->pitch - box->n;
    return share;
}

/* One output on both sides. */
struct plane {
    const struct tp_op_out *out;
    struct tp_layout layout;
    uint8_t *data;
};

static void copy_element(const struct plane *from, uint64_t at, const struct plane *to,
                         uint64_t place)
{
    unsigned bits = tp_element_bits(from->out->element);
    if (bits <= 8)
        tp_bits_store(NULL, to->data, place, bits,
                      tp_bits_load(from->out->word_bits, from->data, at, bits));
    else
        memcpy(to->data + place * (bits / 8), from->data + at * (bits / 8), bits / 8);
}

/* Bytes of a row that lies in order, or 0. */
static uint64_t straight(const struct plane *from, uint64_t count)
{
    const struct tp_layout_dim *k = &from->layout.dim[TP_DIM_K];
    uint64_t bits = count * tp_element_bits(from->out->element);
    bool whole = from->layout.dim[TP_DIM_N].modes == 1 &&
                 from->layout.dim[TP_DIM_N].stride[0] % 2 == 0;
    return k->modes == 1 && k->stride[0] == 1 && !from->out->word_bits && whole && bits % 8 == 0
               ? bits / 8
               : 0;
}

static void copy_rows(const struct plane *from, const struct plane *to,
                      const struct tp_share *share, const struct tp_box *cover,
                      const struct tp_box *box)
{
    uint64_t per_n = from->out->per_n, per_k = from->out->per_k ? from->out->per_k : box->size.k;
    unsigned bits = tp_element_bits(from->out->element);
    uint64_t count = tp_ceil_div(box->size.k, per_k);
    uint64_t k0 = from->out->per_k ? (box->k - cover->k) / per_k : 0;
    uint64_t bytes = k0 == 0 ? straight(from, count) : 0;
    for (uint64_t j = 0; j < share->count; j += share->step > 1 ? 1 : per_n) {
        uint64_t n = (share->first + j * share->step - cover->n) / per_n;
        uint64_t at = tp_layout_at(&from->layout, 0, n, 0);
        uint64_t place = tp_layout_at(&to->layout, 0, (share->to + j * share->pitch) / per_n, 0);
        if (bytes)
            memcpy(to->data + place * bits / 8, from->data + at * bits / 8, bytes);
        for (uint64_t k = 0; k < count && !bytes; k++)
            copy_element(from, at + tp_layout_dim_at(&from->layout.dim[TP_DIM_K], k0 + k), to,
                         place + k);
    }
}

static enum tp_code copy_output(const struct tp_op *op, const struct tp_op *dense, uint32_t i,
                                const struct tp_share *share, const struct tp_box *cover,
                                const struct tp_box *box, void *from, void *to,
                                struct tp_err *err)
{
    struct plane source = {.out = &op->out[i], .data = from};
    struct plane target = {.out = &dense->out[i], .data = to};
    uint64_t bytes;
    enum tp_code code;
    if (op->out[i].role == TP_ROLE_WORDS)
        return TP_OK;
    if (!has_rows(&op->out[i])) { /* one for all rows */
        if ((code = tp_op_bytes(dense, i, box->size, &bytes, err)) == TP_OK)
            memcpy(to, from, bytes);
        return code;
    }
    if ((code = tp_op_layout(op, i, cover->size, &source.layout, err)) ||
        (code = tp_op_layout(dense, i, box->size, &target.layout, err)))
        return code;
    copy_rows(&source, &target, share, cover, box);
    return TP_OK;
}

static enum tp_code gather_view(const struct tp_plan *plan, const struct tp_view *view,
                                const struct tp_box *box, const struct tp_share *share,
                                const struct tp_op *dense, struct tp_buffer buffers[TP_MAX_OUT],
                                void *const to[], struct tp_err *err)
{
    const struct tp_weight *weight = &plan->weights->items[view->weight];
    const struct tp_op *op = &weight->form->op;
    struct tp_box cover = {.e = view->expert};
    uint64_t rows = (share->count - 1) * share->step + 1;
    enum tp_code code =
        tp_weight_cover(weight, share->first, rows, box->k, box->size.k, &cover, err);
    if (code || (code = tp_packed_read(plan->ckpt, weight, &cover, buffers, err)))
        return code;
    for (uint32_t i = 0; i < op->outs && code == TP_OK; i++)
        code = copy_output(op, dense, i, share, &cover, box, buffers[i].data, to[i], err);
    return code;
}

enum tp_code tp_rows_gather_share(const struct tp_plan *plan, const struct tp_view *view,
                                  const struct tp_box *box, const struct tp_share *share,
                                  const struct tp_op *dense, void *const to[], struct tp_err *err)
{
    struct tp_buffer buffers[TP_MAX_OUT] = {{0}};
    struct tp_share alone = *share;
    alone.to = 0;
    alone.pitch = 1;
    enum tp_code code = gather_view(plan, view, box, &alone, dense, buffers, to, err);
    for (int i = 0; i < TP_MAX_OUT; i++)
        tp_buffer_free(&buffers[i]);
    return code;
}

enum tp_code tp_rows_gather(const struct tp_plan *plan, const struct tp_unit *unit,
                            const struct tp_box *box, const struct tp_op *dense,
                            void *const to[], struct tp_err *err)
{
    struct tp_buffer buffers[TP_MAX_OUT] = {{0}};
    enum tp_code code = TP_OK;
    for (uint64_t r = 0; r < tp_unit_runs(unit) && code == TP_OK; r++) {
        struct tp_row_run run = tp_unit_run(unit, box->e, r);
        struct tp_share share = tp_rows_share(box, &run);
        struct tp_view view = tp_unit_view(unit, box->e, run.view);
        if (share.count)
            code = gather_view(plan, &view, box, &share, dense, buffers, to, err);
    }
    for (int i = 0; i < TP_MAX_OUT; i++)
        tp_buffer_free(&buffers[i]);
    return code;
}
