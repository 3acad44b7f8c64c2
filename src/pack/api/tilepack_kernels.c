/* The C library: quantize, decode and repack in memory. Thin: checks what a caller may
 * get wrong, then calls the kernels, on the host or on a device.
 */
#include "pack/api/tilepack_handles.h"

#include "kernels/op/codec.h"
#include "kernels/cuda/cuda.h"
#include "pack/os/buffer.h"
#include "pack/source/weight_complete.h"
#include "pack/source/source_words.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN UINT64_C(64)

/* ---- what all calls check ------------------------------------------------ */

static enum tp_dtype dtype_of(enum tilepack_dtype dtype)
{
    switch (dtype) {
    case TILEPACK_F32:
        return TP_F32;
    case TILEPACK_BF16:
        return TP_BF16;
    case TILEPACK_F16:
        return TP_F16;
    }
    return TP_DTYPE_NONE;
}

static bool has_global(const tilepack_weight *weight)
{
    return tp_op_find(&weight->op, TP_ROLE_GLOBAL) >= 0;
}

/* A call has one global scale. */
static enum tp_code check_experts(const tilepack_weight *weight, const char *verb,
                                  struct tp_err *err)
{
    return !has_global(weight) || weight->box.e == 1
               ? TP_OK
               : tp_fail(err, TP_E_UNSUPPORTED,
                         "%s has one global scale for each expert: %s one at a time (E=1)",
                         weight->format->name, verb);
}

static enum tp_code no_values(struct tp_err *err)
{
    return tp_fail(err, TP_E_USAGE, "the values are not given");
}

static enum tp_code check_quantize(const tilepack_weight *weight, enum tp_dtype dtype,
                                   const void *values, struct tp_err *err)
{
    if (dtype == TP_DTYPE_NONE)
        return tp_fail(err, TP_E_USAGE, "the dtype of the values is none of F32, BF16 and F16");
    if (!values)
        return no_values(err);
    if (weight->format->input_only)
        return tp_fail(err, TP_E_USAGE, "%s is only read, never written", weight->format->name);
    return check_experts(weight, "quantize", err);
}

static enum tp_code check_decode(const tilepack_weight *weight, enum tp_dtype dtype,
                                 const void *values, struct tp_err *err)
{
    if (dtype != TP_F32 && dtype != TP_BF16)
        return tp_fail(err, TP_E_USAGE, "values are decoded to F32 or BF16");
    return values ? check_experts(weight, "decode", err) : no_values(err);
}

static enum tp_code check_repack(const tilepack_weight *from, const tilepack_weight *to,
                                 struct tp_err *err)
{
    if (memcmp(&from->box, &to->box, sizeof from->box) != 0)
        return tp_fail(err, TP_E_USAGE, "the two weights differ in size");
    if (tilepack_can_repack(from, to))
        return check_experts(from, "take over", err);
    return tp_refuse(err, TP_E_UNSUPPORTED, "decode it and quantize the values",
                     "codes of %s cannot be taken over into %s", from->format->name,
                     to->format->name);
}

/* A tensor of a packed input that decoding can do without: a global scale only where the
 * weight knows it. */
static bool may_miss(const tilepack_weight *weight, uint32_t i)
{
    return weight->op.out[i].role == TP_ROLE_WORDS || weight->format->out[i].optional ||
           (weight->op.out[i].role == TP_ROLE_GLOBAL && weight->global > 0);
}

static enum tp_code check_inputs(const tilepack_weight *weight, const void *const tensors[],
                                 struct tp_err *err)
{
    if (!tensors)
        return tp_fail(err, TP_E_USAGE, "the list of tensors is not given");
    for (uint32_t i = 0; i < weight->op.outs; i++)
        if (!tensors[i] && !may_miss(weight, i))
            return tp_fail(err, TP_E_USAGE, "tensor %u (%s) is not given", i,
                           weight->format->out[i].suffix);
    return TP_OK;
}

static enum tp_code check_outputs(const tilepack_weight *weight, void *const tensors[],
                                  struct tp_err *err)
{
    if (!tensors)
        return tp_fail(err, TP_E_USAGE, "the list of tensors is not given");
    for (uint32_t i = 0; i < weight->op.outs; i++)
        if (!tensors[i] && weight->op.out[i].role != TP_ROLE_WORDS)
            return tp_fail(err, TP_E_USAGE, "tensor %u (%s) is not given", i,
                           weight->format->out[i].suffix);
    return TP_OK;
}

/* ---- on the host --------------------------------------------------------- */

static bool is_aligned(const void *p) { return (uintptr_t)p % ALIGN == 0; }

/* Memory of one call: copies of what is not aligned, and scratch. */
struct call {
    struct tp_args args;
    struct tp_buffer in[TP_MAX_OUT], out[TP_MAX_OUT], scratch;
    void *to[TP_MAX_OUT]; /* where out[i] belongs when it had to be copied */
    uint64_t bytes[TP_MAX_OUT];
    struct tp_err err;
};

static enum tp_code take_input(struct call *call, uint32_t i, const void *data, uint64_t bytes)
{
    call->args.in[i] = data;
    if (!data || is_aligned(data))
        return TP_OK;
    if (tp_buffer_reserve(&call->in[i], bytes, &call->err) == TP_OK)
        call->args.in[i] = memcpy(call->in[i].data, data, bytes);
    return call->err.code;
}

static enum tp_code take_output(struct call *call, uint32_t i, void *data, uint64_t bytes)
{
    call->args.out[i] = data;
    if (is_aligned(data))
        return TP_OK;
    if (tp_buffer_reserve(&call->out[i], bytes, &call->err) == TP_OK) {
        call->args.out[i] = call->out[i].data;
        call->to[i] = data;
        call->bytes[i] = bytes;
    }
    return call->err.code;
}

static enum tp_code take_scratch(struct call *call, const struct tp_op *op)
{
    enum tp_code code =
        tp_buffer_reserve(&call->scratch, tp_encode_scratch(op, call->args.box), &call->err);
    call->args.scratch = call->scratch.data;
    return code;
}

static enum tp_code take_inputs(struct call *call, const tilepack_weight *weight,
                                const void *const tensors[])
{
    enum tp_code code = check_inputs(weight, tensors, &call->err);
    for (uint32_t i = 0; i < weight->op.outs && code == TP_OK; i++)
        if (weight->op.out[i].role != TP_ROLE_WORDS)
            code = take_input(call, i, tensors[i], weight->out[i].bytes);
    call->args.global = weight->global;
    if (code || (code = tp_source_codes_check(&weight->op, weight->box, call->args.in,
                                              &call->err)))
        return code;
    return tp_source_order_check(&weight->op, weight->box, call->args.in, &call->err);
}

static enum tp_code take_outputs(struct call *call, const tilepack_weight *weight,
                                 void *const tensors[])
{
    enum tp_code code = check_outputs(weight, tensors, &call->err);
    for (uint32_t i = 0; i < weight->op.outs && code == TP_OK; i++)
        if (weight->op.out[i].role != TP_ROLE_WORDS)
            code = take_output(call, i, tensors[i], weight->out[i].bytes);
    return code;
}

/* Constants, and what was made in copies. */
static void give_outputs(struct call *call, const tilepack_weight *weight, void *const tensors[])
{
    for (uint32_t i = 0; i < TP_MAX_OUT; i++)
        if (call->to[i])
            memcpy(call->to[i], call->args.out[i], call->bytes[i]);
    for (uint32_t i = 0; weight && i < weight->op.outs; i++)
        if (weight->format->out[i].word_count && tensors[i])
            tp_format_constant(weight->format, i, weight->box, 0, tensors[i],
                               weight->out[i].bytes, &call->err);
}

static int end_call(struct call *call, char *message, size_t size)
{
    for (int i = 0; i < TP_MAX_OUT; i++) {
        tp_buffer_free(&call->in[i]);
        tp_buffer_free(&call->out[i]);
    }
    tp_buffer_free(&call->scratch);
    return tp_handle_report(&call->err, message, size);
}

/* The global scale of a weight with this largest magnitude, or of one that has none. */
static enum tp_code take_global(const tilepack_weight *weight, struct tp_args *args, float amax,
                                struct tp_err *err)
{
    args->global = 1.0f;
    return has_global(weight)
               ? tp_codec_global_of(&weight->op, args->dtype, amax, &args->global, err)
               : TP_OK;
}

static enum tp_code find_global(struct call *call, const tilepack_weight *weight)
{
    struct tp_value_stats stats = {0};
    if (has_global(weight))
        tp_value_stats(call->args.dtype, call->args.in[0], weight->box.n * weight->box.k, &stats);
    return take_global(weight, &call->args, stats.amax, &call->err);
}

int tilepack_quantize(const tilepack_weight *weight, enum tilepack_dtype type, const void *values,
                      void *const tensors[], int *nonfinite, char *message, size_t size)
{
    enum tp_dtype dtype = dtype_of(type);
    struct call call = {.args = {.box = weight->box, .dtype = dtype}};
    if (check_quantize(weight, dtype, values, &call.err) == TP_OK &&
        take_input(&call, 0, values, tp_value_bytes(weight->box, dtype)) == TP_OK &&
        take_outputs(&call, weight, tensors) == TP_OK &&
        take_scratch(&call, &weight->op) == TP_OK && find_global(&call, weight) == TP_OK) {
        tp_encode_find(&weight->op, dtype)(&weight->op, &call.args);
        tp_args_check(&call.args, &call.err);
        give_outputs(&call, weight, tensors);
        if (nonfinite)
            *nonfinite = (call.args.flags & TP_SAW_NONFINITE) != 0;
    }
    return end_call(&call, message, size);
}

int tilepack_decode(const tilepack_weight *weight, const void *const tensors[],
                    enum tilepack_dtype type, void *values, char *message, size_t size)
{
    enum tp_dtype dtype = dtype_of(type);
    struct call call = {.args = {.box = weight->box, .dtype = dtype}};
    if (check_decode(weight, dtype, values, &call.err) == TP_OK &&
        take_inputs(&call, weight, tensors) == TP_OK &&
        tp_source_scale_luts_check(&weight->op, weight->box, call.args.in, &call.err) == TP_OK &&
        take_output(&call, 0, values, tp_value_bytes(weight->box, dtype)) == TP_OK &&
        take_scratch(&call, &weight->op) == TP_OK) {
        tp_decode_find(&weight->op, dtype)(&weight->op, &call.args);
        tp_args_check(&call.args, &call.err);
        give_outputs(&call, NULL, NULL);
    }
    return end_call(&call, message, size);
}

/* Scales that are none are not taken over. Negative ones are, of a file that says so. */
static enum tp_code check_scales(struct call *call, const tilepack_weight *from,
                                 const tilepack_weight *to)
{
    struct tp_err err = {0};
    tp_err_hint(&err, "negative ones of a file whose descriptor has them are taken over: describe "
                      "it by tilepack_packed_weight()");
    enum tp_code code = tp_source_scales_check(&from->op, from->negative_scales, from->box,
                                               call->args.in, &err);
    if (code)
        call->err = err;
    if (code ||
        (code = tp_source_scale_luts_check(&from->op, from->box, call->args.in, &call->err)))
        return code;
    return tp_source_scales_fit(&from->op, &to->op, false, from->box, call->args.in, &call->err);
}

int tilepack_repack(const tilepack_weight *from, const void *const from_tensors[],
                    const tilepack_weight *to, void *const to_tensors[], char *message,
                    size_t size)
{
    struct call call = {.args = {.box = from->box}};
    if (check_repack(from, to, &call.err) == TP_OK &&
        take_inputs(&call, from, from_tensors) == TP_OK &&
        check_scales(&call, from, to) == TP_OK &&
        take_outputs(&call, to, to_tensors) == TP_OK && take_scratch(&call, &to->op) == TP_OK) {
        tp_repack_find(&from->op, &to->op)(&from->op, &to->op, &call.args);
        tp_args_check(&call.args, &call.err);
        give_outputs(&call, to, to_tensors);
    }
    return end_call(&call, message, size);
}

/* ---- on a device --------------------------------------------------------- */

int tilepack_cuda_devices(void) { return tp_cuda_count(); }

static enum tp_code check_aligned(const void *const pointers[], uint32_t count,
                                  struct tp_err *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (!is_aligned(pointers[i]))
            return tp_fail(err, TP_E_USAGE, "device pointer %u is not a multiple of 64", i);
    return TP_OK;
}

/* A GPU has no kernels for some formats. */
static enum tp_code check_kernels(const tilepack_weight *weight, struct tp_err *err)
{
    return tp_device_can(&weight->op)
               ? TP_OK
               : tp_fail(err, TP_E_UNSUPPORTED, "%s is worked on the host only",
                         weight->format->name);
}

/* The device is there, the pointers may be used; *before is the current device. */
static enum tp_code enter(const struct tp_args *args, int device, int *before,
                          struct tp_err *err)
{
    if (err->code || check_aligned(args->in, TP_MAX_OUT, err) ||
        check_aligned((const void *const *)args->out, TP_MAX_OUT, err))
        return err->code;
    int count = tp_cuda_count();
    if (count == 0)
        return tp_fail(err, TP_E_MEMORY, "no GPU to work on: %s", tp_cuda_why_none());
    if (device < 0 || device >= count)
        return tp_fail(err, TP_E_USAGE, "there is no GPU %d; there are %d", device, count);
    return tp_cuda_enter(device, before, err);
}

int tilepack_quantize_cuda(const tilepack_weight *weight, enum tilepack_dtype type,
                           const void *values, void *const tensors[], float amax,
                           uint32_t *device_flags, int device, void *stream, char *message,
                           size_t size)
{
    enum tp_dtype dtype = dtype_of(type);
    struct tp_err err = {0};
    struct tp_args args = {.box = weight->box, .dtype = dtype, .in = {values}, .stream = stream,
                           .device_flags = device_flags};
    int before = -1;
    if (check_quantize(weight, dtype, values, &err) == TP_OK &&
        check_kernels(weight, &err) == TP_OK && check_outputs(weight, tensors, &err) == TP_OK)
        take_global(weight, &args, amax, &err);
    for (uint32_t i = 0; i < weight->op.outs && err.code == TP_OK; i++)
        args.out[i] = weight->op.out[i].role == TP_ROLE_WORDS ? NULL : tensors[i];
    if (enter(&args, device, &before, &err) == TP_OK) {
        tp_cuda_encode_find(&weight->op, dtype)(&weight->op, &args);
        tp_args_check(&args, &err);
        tp_cuda_leave(before, &err);
    }
    return tp_handle_report(&err, message, size);
}

int tilepack_decode_cuda(const tilepack_weight *weight, const void *const tensors[],
                         enum tilepack_dtype type, void *values, int device, void *stream,
                         char *message, size_t size)
{
    enum tp_dtype dtype = dtype_of(type);
    struct tp_err err = {0};
    struct tp_args args = {.box = weight->box, .dtype = dtype, .out = {values}, .stream = stream,
                           .global = weight->global};
    int before = -1;
    if (check_decode(weight, dtype, values, &err) == TP_OK &&
        check_inputs(weight, tensors, &err) == TP_OK &&
        (tp_op_needs(&weight->op) & TP_NEED_REFERENCE))
        tp_fail(&err, TP_E_UNSUPPORTED, "zero points and act-order are decoded on the host only");
    if (err.code == TP_OK)
        check_kernels(weight, &err);
    for (uint32_t i = 0; i < weight->op.outs && err.code == TP_OK; i++)
        args.in[i] = weight->op.out[i].role == TP_ROLE_WORDS ? NULL : tensors[i];
    if (enter(&args, device, &before, &err) == TP_OK) {
        tp_cuda_decode_find(&weight->op, dtype)(&weight->op, &args);
        tp_args_check(&args, &err);
        tp_cuda_leave(before, &err);
    }
    return tp_handle_report(&err, message, size);
}

int tilepack_repack_cuda(const tilepack_weight *from, const void *const from_tensors[],
                         const tilepack_weight *to, void *const to_tensors[], int device,
                         void *stream, char *message, size_t size)
{
    struct tp_err err = {0};
    struct tp_args args = {.box = from->box, .stream = stream, .global = from->global};
    int before = -1;
    if (check_repack(from, to, &err) == TP_OK && check_kernels(from, &err) == TP_OK &&
        check_kernels(to, &err) == TP_OK && check_inputs(from, from_tensors, &err) == TP_OK)
        check_outputs(to, to_tensors, &err);
    for (uint32_t i = 0; i < from->op.outs && err.code == TP_OK; i++)
        args.in[i] = from->op.out[i].role == TP_ROLE_WORDS ? NULL : from_tensors[i];
    for (uint32_t i = 0; i < to->op.outs && err.code == TP_OK; i++)
        args.out[i] = to->op.out[i].role == TP_ROLE_WORDS ? NULL : to_tensors[i];
    if (enter(&args, device, &before, &err) == TP_OK) {
        tp_cuda_repack_find(&from->op, &to->op)(&from->op, &to->op, &args);
        tp_args_check(&args, &err);
        tp_cuda_leave(before, &err);
    }
    return tp_handle_report(&err, message, size);
}
