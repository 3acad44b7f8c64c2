/* Sizes of one call to a lane. Pure arithmetic on the operations; built with and
 * without CUDA. */
#include "kernels/cuda/cuda.h"

#include "base/num.h"

static enum tp_code add_bytes(uint64_t *sum, uint64_t bytes, struct tp_err *err)
{
    if (!tp_align_u64(&bytes, bytes, 64) || !tp_add_u64(sum, *sum, bytes))
        return tp_fail(err, TP_E_INPUT, "a weight is too large");
    return TP_OK;
}

static enum tp_code add_op(uint64_t *sum, const struct tp_op *op, struct tp_box3 box,
                           struct tp_err *err)
{
    for (uint32_t i = 0; i < op->outs; i++) {
        uint64_t bytes;
        enum tp_code code = tp_op_bytes(op, i, box, &bytes, err);
        if (code == TP_OK)
            code = add_bytes(sum, bytes, err);
        if (code != TP_OK)
            return code;
    }
    return TP_OK;
}

static enum tp_code add_values(uint64_t *sum, struct tp_box3 box, enum tp_dtype dtype,
                               struct tp_err *err)
{
    uint64_t bytes;
    if (!tp_mul_u64(&bytes, box.e, box.n) || !tp_mul_u64(&bytes, bytes, box.k) ||
        !tp_mul_u64(&bytes, bytes, tp_dtype_bits(dtype) / 8))
        return tp_fail(err, TP_E_INPUT, "a weight is too large");
    return add_bytes(sum, bytes, err);
}

enum tp_code tp_cuda_call_bytes(const struct tp_cuda_call *call, uint64_t *input,
                                uint64_t *output, uint64_t *scratch, struct tp_err *err)
{
    const struct tp_args *args = &call->args;
    enum tp_code code;
    *input = *output = *scratch = 0;
    if (call->kind == TP_CUDA_ENCODE)
        code = add_values(input, args->box, args->dtype, err);
    else
        code = add_op(input, call->from, args->box, err);
    if (code == TP_OK && call->kind == TP_CUDA_DECODE)
        code = add_values(output, args->box, args->dtype, err);
    else if (code == TP_OK)
        code = add_op(output, call->to, args->box, err);
    if (code == TP_OK && call->kind == TP_CUDA_REQUANT)
        code = add_values(scratch, args->box, call->via, err);
    return code;
}
