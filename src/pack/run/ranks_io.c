/* Boxes on their way to the ranks and back. A box may touch several slices; what it
 * shares with each is a box of its own, because slices end at borders of tiles.
 */
#include "pack/run/ranks_io.h"

#include "base/num.h"
#include "pack/os/buffer.h"
#include "pack/run/compute.h"
#include "pack/run/packed_io.h"

#include <string.h>

static bool same_box(const struct tp_box *a, const struct tp_box *b)
{
    return a->n == b->n && a->k == b->k && a->size.n == b->size.n && a->size.k == b->size.k;
}

/* Where `shared` lies inside `box`, for tp_packed_cut(). */
static struct tp_box inside(const struct tp_box *shared, const struct tp_box *box)
{
    return (struct tp_box){0, shared->n - box->n, shared->k - box->k, shared->size};
}

/* Room for the outputs of a box, one after the other in one buffer. */
static enum tp_code room(const struct tp_op *op, struct tp_box3 size, struct tp_buffer *buffer,
                         void *to[TP_MAX_OUT], struct tp_err *err)
{
    uint64_t at[TP_MAX_OUT], total = 0;
    for (uint32_t i = 0; i < op->outs; i++) {
        uint64_t bytes;
        enum tp_code code = tp_op_bytes(op, i, size, &bytes, err);
        if (code)
            return code;
        at[i] = total;
        total += tp_round_up(bytes, 64);
    }
    enum tp_code code = tp_buffer_room(buffer, tp_max_u64(total, 64), err);
    for (uint32_t i = 0; i < op->outs && code == TP_OK; i++)
        to[i] = (uint8_t *)buffer->data + at[i];
    return code;
}

/* ---- scatter ------------------------------------------------------------- */

/* File f and output o of the whole in the plan of `to`. */
static uint32_t file_of(const struct tp_scatter *scatter, uint32_t f, unsigned r)
{
    return scatter->only == TP_ALL_RANKS ? f * scatter->ranks->count + r : f;
}

static uint32_t output_of(const struct tp_scatter *scatter, uint32_t o, unsigned r)
{
    const struct tp_ranks *ranks = scatter->ranks;
    uint32_t a = ranks->output[o * ranks->count + r];
    if (scatter->only == TP_ALL_RANKS)
        return a;
    uint32_t f = ranks->all.outputs[a].file;
    return a - ranks->all.files[f].first_output +
           ranks->plans[r].files[f / ranks->count].first_output;
}

static bool leaves_out(const struct tp_scatter *scatter, unsigned r)
{
    return scatter->only != TP_ALL_RANKS && scatter->only != r;
}

static enum tp_code write_all(struct tp_sink *base, uint32_t file, uint32_t output,
                              uint64_t offset, const void *data, uint64_t size,
                              struct tp_err *err)
{
    const struct tp_scatter *scatter = (const struct tp_scatter *)base;
    const struct tp_ranks *ranks = scatter->ranks;
    enum tp_code code = TP_OK;
    for (unsigned r = 0; r < ranks->count && code == TP_OK; r++) {
        uint32_t f = file_of(scatter, file, r);
        if (leaves_out(scatter, r))
            continue;
        if (output == TP_SINK_HEADER) { /* each its own, when that of the whole begins */
            code = offset ? TP_OK : tp_sink_header(scatter->to, f, &ranks->plans[r].files[file],
                                                   err);
            continue;
        }
        uint32_t o = output_of(scatter, output, r);
        const struct tp_output *own =
            &ranks->all.outputs[ranks->output[output * ranks->count + r]];
        if (!own->constant)
            code = scatter->to->write(scatter->to, f, o, offset, data, size, err);
        else if (offset == 0) /* the same */
            code = tp_sink_constant(scatter->to, f, o, own, err);
    }
    return code;
}

/* The unit as it is in one rank, with that form: enough of it for tp_packed_write(). */
static struct tp_unit rank_unit(const struct tp_scatter *scatter, const struct tp_unit *unit,
                                const struct tp_cut *cut, unsigned r, struct tp_unit_form *form)
{
    struct tp_unit own = *unit;
    *form = *unit->form;
    form->box = tp_cut_box(cut, unit->form->box);
    own.form = form;
    own.file = file_of(scatter, unit->file, r);
    for (uint32_t i = 0; i < unit->form->op.outs; i++)
        if (unit->output[i] != UINT32_MAX)
            own.output[i] = output_of(scatter, unit->output[i], r);
    return own;
}

static enum tp_code take_box(struct tp_sink *base, const struct tp_unit *unit,
                             const struct tp_box *box, void *const from[], struct tp_err *err)
{
    const struct tp_scatter *scatter = (const struct tp_scatter *)base;
    const struct tp_ranks *ranks = scatter->ranks;
    const struct tp_cut *cut = &ranks->cuts[unit - ranks->run.units];
    struct tp_buffer buffer = {0};
    enum tp_code code = TP_OK;
    for (unsigned r = 0; r < ranks->count && code == TP_OK; r++) {
        struct tp_unit_form form;
        struct tp_unit own = rank_unit(scatter, unit, cut, r, &form);
        if (leaves_out(scatter, r))
            continue;
        for (uint32_t p = 0; p < tp_cut_slices(cut) && code == TP_OK; p++) {
            struct tp_slice slice = tp_cut_slice(cut, unit->form->box, ranks->count, r, p);
            struct tp_box shared, in_rank;
            void *part[TP_MAX_OUT];
            if (!tp_slice_common(&slice, box, &shared, &in_rank))
                continue;
            memcpy(part, from, sizeof part);
            if (!same_box(&shared, box)) {
                struct tp_box at = inside(&shared, box);
                if ((code = room(&unit->form->op, shared.size, &buffer, part, err)) == TP_OK)
                    code = tp_packed_cut(&unit->form->op, box->size, &at, from, part, err);
            }
            bool first = in_rank.e == 0 && in_rank.n == 0 && in_rank.k == 0;
            if (code == TP_OK)
                code = tp_packed_write(&own, &in_rank, first, part, NULL, scatter->to, err);
        }
    }
    tp_buffer_free(&buffer);
    return code;
}

void tp_scatter_open(struct tp_scatter *scatter, const struct tp_ranks *ranks, unsigned only,
                     struct tp_sink *to)
{
    *scatter = (struct tp_scatter){.sink = {.write = write_all, .take = take_box},
                                   .ranks = ranks, .only = only, .to = to};
}

/* ---- gather -------------------------------------------------------------- */

enum tp_code tp_gather_read(const struct tp_gather *gather, const struct tp_weight *weight,
                            const struct tp_box *cover, void *const to[], struct tp_err *err)
{
    size_t w = (size_t)(weight - gather->whole->items);
    const struct tp_cut *cut = &gather->cuts[w];
    struct tp_buffer buffer = {0};
    enum tp_code code = TP_OK;
    for (unsigned r = 0; r < gather->count && code == TP_OK; r++)
        for (uint32_t p = 0; p < tp_cut_slices(cut) && code == TP_OK; p++) {
            const struct tp_weight *own =
                &gather->weights[r].items[gather->sources[w * gather->count + r]];
            struct tp_slice slice = tp_cut_slice(cut, weight->form->box, gather->count, r, p);
            struct tp_box shared, in_rank;
            void *part[TP_MAX_OUT];
            if (!tp_slice_common(&slice, cover, &shared, &in_rank))
                continue;
            bool all = same_box(&shared, cover);
            memcpy(part, to, sizeof part);
            if (!all)
                code = room(&weight->form->op, shared.size, &buffer, part, err);
            if (code == TP_OK &&
                (code = tp_packed_read_into(&gather->ckpts[r], own, &in_rank, NULL, NULL, part,
                                            err)) == TP_OK && !all) {
                struct tp_box at = inside(&shared, cover);
                code = tp_packed_paste(&weight->form->op, cover->size, &at, part, to, err);
            }
        }
    tp_buffer_free(&buffer);
    return code;
}
