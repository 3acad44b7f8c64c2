/* From stored tensors to operands. The bytes go to the device as they lie in the file; only
 * block scales that a format stores otherwise than the kernel reads them are laid out anew.
 */
#include "pack/prove/prove_weight.h"

#include "base/num.h"
#include "kernels/op/scalar.h"
#include "pack/os/buffer.h"
#include "pack/os/os.h"
#include "pack/run/packed_io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, BAND = 64 /* rows of W that are transposed together */ };

/* Codes row by row, and a scale for blocks of 128 by 128, whatever it is stored as. */
static bool is_fp8_block(const struct tp_op *op)
{
    int codes = tp_op_find(op, TP_ROLE_CODES), scale = tp_op_find(op, TP_ROLE_SCALE);
    return op->codec == TP_CODEC_FP8 && op->block_n == BLOCK && op->block_k == BLOCK &&
           codes >= 0 && scale >= 0 && op->out[codes].place == TP_PLACE_ROW &&
           op->out[scale].per_k == BLOCK;
}

uint32_t tp_prove_kind(const struct tp_weight *weight)
{
    const struct tp_format *format = weight->form->format;
    if (format && strcmp(format->name, "w4a8-cutlass") == 0)
        return weight->form->rank == 3 ? TILEPACK_PROVE_W4A8_GROUPED : TILEPACK_PROVE_W4A8_DENSE;
    return format && is_fp8_block(&weight->form->op) ? TILEPACK_PROVE_FP8_BLOCK : 0;
}

/* One expert at a time. */
struct loader {
    const struct tp_checkpoint *ckpt;
    const struct tp_weight *weight;
    const struct tp_prove_truth *truth;
    struct tp_prove_reference *reference;
    struct tp_prove_weight *w;
    uint64_t e, n, k; /* of the box */
    uint64_t expert;
    struct tp_buffer stored[TP_MAX_OUT];
    struct tp_buffer scales; /* fp32, as the kernel reads them */
    float *band;             /* BAND rows of W */
    uint16_t *columns;       /* bf16, [k][n] */
};

static void loader_close(struct loader *l)
{
    for (int i = 0; i < TP_MAX_OUT; i++)
        tp_buffer_free(&l->stored[i]);
    tp_buffer_free(&l->scales);
    free(l->band);
    free(l->columns);
}

static float scale_at(const struct tp_op_out *out, const uint8_t *data, uint64_t at)
{
    uint16_t half;
    float value;
    if (out->element == TP_ELEM_E8M0)
        return tp_e8m0_value(data[at]);
    if (out->element == TP_ELEM_BF16) {
        memcpy(&half, data + 2 * at, sizeof half);
        return tp_bf16_to_f32(half);
    }
    memcpy(&value, data + 4 * at, sizeof value);
    return value;
}

/* Scales of one expert: [ceil(n / 128)][ceil(k / 128)]. */
static enum tp_code block_scales(struct loader *l, const struct tp_op_out *out, uint32_t i,
                                 struct tp_err *err)
{
    uint64_t rows = tp_ceil_div(l->n, BLOCK), columns = tp_ceil_div(l->k, BLOCK);
    struct tp_layout layout;
    enum tp_code code = tp_op_layout(&l->weight->form->op, i, (struct tp_box3){1, l->n, l->k},
                                     &layout, err);
    if (code || (code = tp_buffer_reserve(&l->scales, rows * columns * sizeof(float), err)))
        return code;
    float *to = l->scales.data;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            to[r * columns + c] = scale_at(out, l->stored[i].data,
                                           tp_layout_at(&layout, 0, r * BLOCK / out->per_n, c));
    return TP_OK;
}

/* Bytes of this expert to their place in the operand, which the first expert allocates. */
static enum tp_code put(struct loader *l, void **operand, uint64_t *operand_bytes,
                        const void *data, uint64_t bytes, struct tp_err *err)
{
    const struct tp_prover *prover = l->w->prover;
    char message[512] = "";
    if (!*operand) {
        *operand_bytes = bytes * l->e;
        if (!(*operand = tp_prover_alloc(prover, *operand_bytes, err)))
            return TP_E_MEMORY;
    }
    return tp_prover_check(prover->plugin->upload((char *)*operand + l->expert * bytes, data,
                                                  bytes, message, sizeof message), message, err);
}

static enum tp_code put_output(struct loader *l, uint32_t i, struct tp_err *err)
{
    const struct tp_op *op = &l->weight->form->op;
    const struct tp_op_out *out = &op->out[i];
    struct tp_prove_weight *w = l->w;
    uint64_t bytes;
    enum tp_code code = tp_op_bytes(op, i, (struct tp_box3){1, l->n, l->k}, &bytes, err);
    if (code)
        return code;
    switch (out->role) {
    case TP_ROLE_CODES:
        return put(l, &w->codes, &w->codes_bytes, l->stored[i].data, bytes, err);
    case TP_ROLE_GROUP8:
        return put(l, &w->groups, &w->groups_bytes, l->stored[i].data, bytes, err);
    case TP_ROLE_CHANNEL:
        return put(l, &w->scales, &w->scales_bytes, l->stored[i].data, bytes, err);
    case TP_ROLE_SCALE:
        if ((code = block_scales(l, out, i, err)))
            return code;
        bytes = tp_ceil_div(l->n, BLOCK) * tp_ceil_div(l->k, BLOCK) * sizeof(float);
        return put(l, &w->scales, &w->scales_bytes, l->scales.data, bytes, err);
    default:
        return TP_OK;
    }
}

static enum tp_code put_expert(struct loader *l, struct tp_err *err)
{
    struct tp_box box = {.e = l->expert, .size = {1, l->n, l->k}};
    enum tp_code code = tp_packed_read(l->ckpt, l->weight, &box, l->stored, err);
    for (uint32_t i = 0; i < l->weight->form->op.outs && code == TP_OK; i++)
        code = put_output(l, i, err);
    return code;
}

/* Rows [n - count + 1, n] of W, which the band holds, become columns. */
static void transpose(struct loader *l, uint64_t n, uint64_t count)
{
    uint64_t first = n + 1 - count;
    for (uint64_t k = 0; k < l->k; k++)
        for (uint64_t i = 0; i < count; i++)
            l->columns[k * l->n + first + i] = tp_f32_to_bf16(l->band[i * l->k + k]);
}

static enum tp_code take_row(void *arg, uint64_t n, const double *values, uint64_t count,
                             struct tp_err *err)
{
    struct loader *l = arg;
    float *row = l->band + n % BAND * l->k;
    for (uint64_t k = 0; k < count; k++) {
        row[k] = (float)values[k];
        if (!isfinite(values[k]))
            return tp_refuse(err, TP_E_INPUT,
                             "'tilepack verify' says whether the file is whole; a weight that was "
                             "converted with --nonfinite keep has no right result",
                             "element (%llu,%llu,%llu) is no number: %g",
                             (unsigned long long)l->expert, (unsigned long long)n,
                             (unsigned long long)k, values[k]);
    }
    tp_prove_reference_add(l->reference, l->expert, n, values);
    if (n % BAND == BAND - 1 || n == l->n - 1)
        transpose(l, n, n % BAND + 1);
    return TP_OK;
}

static enum tp_code expect(struct loader *l, struct tp_err *err)
{
    struct tp_region all = {l->expert, 0, l->n, 0, l->k};
    uint64_t bytes;
    tp_prove_reference_enter(l->reference, l->expert);
    enum tp_code code = tp_inspect_values(l->truth->ckpt, &l->truth->subject, &all,
                                          take_row, l, err);
    return code ? code
                : put(l, &l->w->expected, &bytes, l->columns, l->n * l->k * sizeof(uint16_t), err);
}

enum tp_code tp_prove_weight_open(const struct tp_checkpoint *ckpt,
                                  const struct tp_weights *weights, size_t number,
                                  const struct tp_prove_truth *truth,
                                  const struct tp_prover *prover,
                                  struct tp_prove_reference *reference,
                                  struct tp_prove_weight *w, struct tp_err *err)
{
    const struct tp_weight *weight = &weights->items[number];
    struct tp_box3 box = weight->form->box;
    struct loader l = {.ckpt = ckpt, .weight = weight, .truth = truth, .reference = reference,
                       .w = w, .e = box.e, .n = box.n, .k = box.k};
    *w = (struct tp_prove_weight){.prover = prover};
    l.band = tp_os_alloc((size_t)(BAND * box.k) * sizeof(float), err);
    l.columns = tp_os_alloc((size_t)(box.n * box.k) * sizeof(uint16_t), err);
    enum tp_code code = l.band && l.columns ? TP_OK : TP_E_MEMORY;
    for (; l.expert < box.e && code == TP_OK; l.expert++)
        if ((code = put_expert(&l, err)) == TP_OK)
            code = expect(&l, err);
    loader_close(&l);
    if (code) {
        tp_prove_weight_close(w);
        tp_err_tensor(err, weight->name);
    }
    return code;
}

void tp_prove_weight_close(struct tp_prove_weight *w)
{
    if (!w->prover)
        return;
    w->prover->plugin->release(w->codes);
    w->prover->plugin->release(w->groups);
    w->prover->plugin->release(w->scales);
    w->prover->plugin->release(w->expected);
    *w = (struct tp_prove_weight){0};
}
