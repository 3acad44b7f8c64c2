/* Distances of one box: its bytes are decoded as its reader does it. */
#include "pack/check/box_distances.h"

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/distance.h"
#include "pack/run/packed_io.h"

#include <math.h>
#include <string.h>

void tp_box_buffers_free(struct tp_box_buffers *buffers)
{
    tp_value_reader_free(&buffers->reader);
    tp_buffer_free(&buffers->source);
    tp_buffer_free(&buffers->decoded);
    tp_buffer_free(&buffers->scratch);
    tp_buffer_free(&buffers->plain);
    tp_buffer_free(&buffers->importance);
    tp_buffer_free(&buffers->cut);
    tp_moments_free(&buffers->moments);
}

static bool in_hands(const struct tp_observed *seen)
{
    return seen->dtype != TP_DTYPE_NONE && seen->values;
}

/* The source's values of a box as fp32: those the run had in its hands, or read again. */
static enum tp_code source_values(const struct tp_plan *plan, const struct tp_side *source,
                                  const struct tp_observed *seen, struct tp_box_buffers *buffers,
                                  struct tp_err *err)
{
    const struct tp_unit *unit = &plan->units[seen->unit];
    struct tp_box box = seen->box;
    uint64_t per_expert = box.size.n * box.size.k, experts = box.size.e;
    enum tp_code code =
        tp_buffer_reserve(&buffers->source, experts * per_expert * sizeof(float), err);
    if (code)
        return code;
    if (in_hands(seen)) {
        tp_widen(seen->dtype, seen->values, experts * per_expert, buffers->source.data);
        return TP_OK;
    }
    box.size.e = 1;
    for (uint64_t e = 0; e < experts && code == TP_OK; e++, box.e++)
        code = tp_read_values(source, unit, &box, (float *)buffers->source.data + e * per_expert,
                              &buffers->reader, err);
    return code;
}

static enum tp_code decode(const struct tp_op *op, const struct tp_observed *seen,
                           void *const out[], struct tp_box_buffers *buffers,
                           struct tp_err *err)
{
    struct tp_args args = {.box = seen->box.size, .dtype = TP_F32, .global = 1};
    uint64_t count = args.box.e * args.box.n * args.box.k;
    enum tp_code code = tp_buffer_reserve(&buffers->decoded, count * sizeof(float), err);
    if (code || (code = tp_buffer_reserve(&buffers->scratch, tp_encode_scratch(op, args.box), err)))
        return code;
    for (uint32_t i = 0; i < op->outs; i++)
        args.in[i] = out[i];
    args.out[0] = buffers->decoded.data;
    args.scratch = buffers->scratch.data;
    tp_decode_find(op, TP_F32)(op, &args);
    return tp_args_check(&args, err);
}

/* Room in `buffer` for each output of a box (NULL for layout words). */
static enum tp_code take_outputs(const struct tp_op *op, struct tp_box3 size,
                                 struct tp_buffer *buffer, void *out[TP_MAX_OUT],
                                 struct tp_err *err)
{
    uint64_t total = 0, bytes[TP_MAX_OUT];
    enum tp_code code = TP_OK;
    for (uint32_t i = 0; i < op->outs && code == TP_OK; i++) {
        code = tp_op_bytes(op, i, size, &bytes[i], err);
        total += tp_round_up(bytes[i], 64);
    }
    if (code || (code = tp_buffer_reserve(buffer, total + 64, err)))
        return code;
    total = 0;
    for (uint32_t i = 0; i < op->outs; i++) {
        out[i] = op->out[i].role == TP_ROLE_WORDS ? NULL : (uint8_t *)buffer->data + total;
        total += tp_round_up(bytes[i], 64);
    }
    return TP_OK;
}

/* Encodes the source's values, and decodes that. The values are those that the run encodes,
 * so that fp32 copies of them give the same scales. */
static enum tp_code encode_and_decode(const struct tp_op *op, const struct tp_observed *seen,
                                      const float *importance, const struct tp_feedback *fed,
                                      struct tp_box_buffers *buffers, struct tp_err *err)
{
    struct tp_args args = {.box = seen->box.size, .dtype = TP_F32, .in = {buffers->source.data},
                           .fed = fed};
    enum tp_code code = take_outputs(op, args.box, &buffers->plain, args.out, err);
    if (code || (code = tp_buffer_reserve(&buffers->scratch, tp_encode_scratch(op, args.box), err)))
        return code;
    args.global = seen->global;
    args.importance = importance;
    args.scratch = buffers->scratch.data;
    tp_encode_find(op, TP_F32)(op, &args);
    code = tp_args_check(&args, err);
    return code ? code : decode(op, seen, args.out, buffers, err);
}

/* As if there had been no search. */
static enum tp_code decode_unsearched(const struct tp_unit *unit, const struct tp_observed *seen,
                                      struct tp_box_buffers *buffers, struct tp_err *err)
{
    struct tp_op op = unit->form->op;
    op.search = TP_SEARCH_NONE;
    return encode_and_decode(&op, seen, NULL, NULL, buffers, err);
}

/* Rows times the square roots of the importance of their columns. */
static void weigh(const struct tp_box3 size, const float *importance, float *values)
{
    for (uint64_t e = 0; e < size.e; e++)
        for (uint64_t n = 0; n < size.n; n++)
            for (uint64_t k = 0; k < size.k; k++)
                values[(e * size.n + n) * size.k + k] *= sqrtf(importance[e * size.k + k]);
}

/* Of what stands in `decoded` to what stands in `source`. */
static void measure(const struct tp_observed *seen, struct tp_box_buffers *buffers,
                    struct tp_distance *distance)
{
    const struct tp_box3 *size = &seen->box.size;
    tp_distance_of(TP_F32, buffers->source.data, buffers->decoded.data,
                   size->e * size->n * size->k, size->k, distance);
}

/* What a searched box would be without the search; and all with importance. */
static enum tp_code measure_search(const struct tp_plan *plan, const struct tp_observed *seen,
                                   struct tp_box_buffers *buffers,
                                   struct tp_box_distances *distances, struct tp_err *err)
{
    const struct tp_unit *unit = &plan->units[seen->unit];
    const float *importance;
    enum tp_code code = decode_unsearched(unit, seen, buffers, err);
    if (code)
        return code;
    measure(seen, buffers, &distances->none);
    code = tp_box_importance(plan, unit, &seen->box, &buffers->importance, &importance, err);
    if (code || !importance)
        return code;
    weigh(seen->box.size, importance, buffers->source.data);
    weigh(seen->box.size, importance, buffers->decoded.data);
    measure(seen, buffers, &distances->weighted_none);
    if ((code = decode(&unit->form->op, seen, seen->out, buffers, err)))
        return code;
    weigh(seen->box.size, importance, buffers->decoded.data);
    measure(seen, buffers, &distances->weighted_stored);
    return TP_OK;
}

enum tp_code tp_box_distances_of(const struct tp_plan *plan, const struct tp_side *source,
                                 const struct tp_observed *seen, bool search,
                                 struct tp_box_buffers *buffers,
                                 struct tp_box_distances *distances, struct tp_err *err)
{
    const struct tp_op *op = &plan->units[seen->unit].form->op;
    const struct tp_box3 *size = &seen->box.size;
    enum tp_code code = TP_OK;
    if (in_hands(seen) && !search) { /* no fp32 copy of the source is needed */
        if ((code = decode(op, seen, seen->out, buffers, err)) == TP_OK)
            tp_distance_of(seen->dtype, seen->values, buffers->decoded.data,
                           size->e * size->n * size->k, size->k, &distances->stored);
        return code;
    }
    if ((code = source_values(plan, source, seen, buffers, err)) ||
        (code = decode(op, seen, seen->out, buffers, err)))
        return code;
    measure(seen, buffers, &distances->stored);
    return search ? measure_search(plan, seen, buffers, distances, err) : TP_OK;
}

uint64_t tp_box_distances_bytes(const struct tp_plan *plan, const struct tp_observed *seen,
                                const struct tp_box *part, bool search)
{
    enum { OUTPUTS = sizeof(uint16_t), SOME = 64 << 10 };
    const struct tp_unit *unit = &plan->units[seen->unit];
    const struct tp_box3 *size = &part->size;
    const uint64_t values = size->e * size->n * size->k;
    uint64_t bytes = values * (sizeof(float) + OUTPUTS) + SOME + /* decoded, and cut */
                     tp_encode_scratch(&unit->form->op, *size);
    if (!in_hands(seen) || search)
        bytes += values * sizeof(float);
    if (!in_hands(seen))
        bytes += tp_read_values_bytes(plan->weights, unit, part);
    if (search)
        bytes += values * OUTPUTS + size->e * size->k * sizeof(float);
    return bytes;
}

/* The global scale of the values in `source`, were they a whole weight. */
static enum tp_code global_of(const struct tp_unit *unit, const struct tp_box3 *size,
                              const struct tp_box_buffers *buffers, float *global,
                              struct tp_err *err)
{
    struct tp_value_stats stats;
    tp_value_stats(TP_F32, buffers->source.data, size->e * size->n * size->k, &stats);
    return tp_codec_global_of(&unit->form->op, unit->form->dtype, stats.amax, global, err);
}

/* Whether the box is all that its global scale is of. */
static bool is_whole_set(const struct tp_plan *plan, const struct tp_unit *unit,
                         const struct tp_box *box)
{
    return box->size.n == unit->form->box.n && box->size.k == unit->form->box.k &&
           plan->groups[unit->stats + box->e].unit_count == 1;
}

enum tp_code tp_box_trial(const struct tp_plan *plan, const struct tp_side *source, uint32_t u,
                          const struct tp_box *box, const float *weights,
                          struct tp_box_buffers *buffers, struct tp_box_distances *distances,
                          struct tp_err *err)
{
    const struct tp_unit *unit = &plan->units[u];
    struct tp_observed seen = {.unit = u, .box = *box, .dtype = TP_DTYPE_NONE};
    const float *importance;
    const struct tp_feedback *fed;
    enum tp_code code = source_values(plan, source, &seen, buffers, err);
    if (code ||
        (code = tp_box_importance(plan, unit, box, &buffers->importance, &importance, err)) ||
        (code = tp_box_moments(plan, unit, box, importance, &buffers->moments, &fed, err)))
        return code;
    struct tp_err none = {0};
    if (global_of(unit, &box->size, buffers, &seen.global, &none)) {
        if (is_whole_set(plan, unit, box))
            *err = none;
        return err->code; /* else the rest of the set has larger values, as far as is known here */
    }
    if ((code = encode_and_decode(&unit->form->op, &seen, importance, fed, buffers, err)))
        return code;
    measure(&seen, buffers, &distances->stored);
    if (!weights)
        return TP_OK;
    weigh(box->size, weights, buffers->source.data);
    weigh(box->size, weights, buffers->decoded.data);
    measure(&seen, buffers, &distances->weighted_stored);
    return TP_OK;
}

enum tp_code tp_box_rows(const struct tp_unit *unit, const struct tp_observed *seen,
                         const struct tp_box *part, struct tp_box_buffers *buffers,
                         void *out[TP_MAX_OUT], struct tp_observed *rows, struct tp_err *err)
{
    const struct tp_box *box = &seen->box;
    struct tp_box inside = *part; /* counted from the begin of the box */
    inside.e -= box->e;
    inside.n -= box->n;
    inside.k -= box->k;
    *rows = *seen;
    rows->box = *part;
    rows->out = out;
    if (seen->values)
        rows->values = (const uint8_t *)seen->values +
                       (inside.e * box->size.n + inside.n) * box->size.k *
                           (tp_dtype_bits(seen->dtype) / 8);
    enum tp_code code = take_outputs(&unit->form->op, part->size, &buffers->cut, out, err);
    return code ? code : tp_packed_cut(&unit->form->op, box->size, &inside, seen->out, out, err);
}
