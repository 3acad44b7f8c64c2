/* Devices and slots: what asks the CUDA runtime for memory, streams and devices, but for
 * cuda_copy.cu.
 *
 * The runtime is linked statically and looks for the driver on the first call, so
 * that the binary starts on machines without one. Invariant: a slot that could not
 * be opened whole leaves nothing behind.
 */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_fail.cuh"

#include "base/num.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_row_functions.h"

#include <stdio.h>
#include <stdlib.h>

struct tp_cuda_slot {
    int device;
    cudaStream_t stream;
    cudaEvent_t done;
    uint8_t *host_in, *host_out, *in, *out, *values; /* values: of REQUANT */
    uint64_t in_bytes, out_bytes, values_bytes;
    uint32_t *flags, *host_flags;
    float *importance; /* grows with the boxes that need it */
    uint64_t importance_bytes;
    void *moments; /* what is fed back with: that of one input */
    uint64_t moments_bytes;
    struct tp_feedback fed; /* the numbers that lie there */
};

static enum tp_code fail_cuda(struct tp_err *err, cudaError_t error, const char *what)
{
    enum tp_code code = tp_cuda_fail(err, error, what);
    tp_err_hint(err, "check the GPU with nvidia-smi, or use --device cpu; a rerun goes on from "
                     "what is written");
    return code;
}

/* ---- devices ------------------------------------------------------------- */

static bool is_usable(int device)
{
    int major = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 8;
}

/* The runtime calls a driver that is not there an old one, too. */
static const char *why_not(cudaError_t error)
{
    int version = 0;
    if (error != cudaErrorInsufficientDriver)
        return cudaGetErrorString(error);
    return cudaDriverGetVersion(&version) == cudaSuccess && version
               ? "the NVIDIA driver is older than the CUDA of this build"
               : "no NVIDIA driver is installed";
}

/* Number of devices, or 0 and the reason. */
static int count_devices(const char **why)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        *why = why_not(error);
        cudaGetLastError();
        return 0;
    }
    for (int i = 0; i < count; i++)
        if (is_usable(i)) {
            *why = "";
            return count;
        }
    *why = count > 0 ? "no GPU of compute capability 8.0 or later" : "no GPU";
    return 0;
}

extern "C" int tp_cuda_count(void)
{
    const char *why;
    return tp_isa_enabled(TP_ISA_CUDA) ? count_devices(&why) : 0;
}

extern "C" const char *tp_cuda_why_none(void)
{
    const char *why;
    if (!tp_isa_enabled(TP_ISA_CUDA))
        return "TILEPACK_DISABLE takes CUDA away";
    count_devices(&why);
    return why;
}

extern "C" enum tp_code tp_cuda_query(int device, struct tp_cuda_device *info,
                                      struct tp_err *err)
{
    struct cudaDeviceProp p;
    size_t free_bytes = 0, total = 0;
    int before = 0;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return fail_cuda(err, error, "cannot ask for the properties of the GPU");
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", p.name);
    info->major = p.major;
    info->minor = p.minor;
    info->multiprocessors = p.multiProcessorCount;
    info->l2_bytes = (uint64_t)p.l2CacheSize;
    cudaGetDevice(&before);
    error = cudaSetDevice(device);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&free_bytes, &total);
    cudaSetDevice(before);
    if (error != cudaSuccess)
        return fail_cuda(err, error, "cannot ask for the memory of the GPU");
    info->memory_free = free_bytes;
    return TP_OK;
}

/* ---- slots --------------------------------------------------------------- */

static cudaError_t open_memory(struct tp_cuda_slot *l)
{
    cudaError_t error = cudaHostAlloc((void **)&l->host_in, l->in_bytes, cudaHostAllocDefault);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&l->host_out, l->out_bytes, cudaHostAllocDefault);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&l->host_flags, 64, cudaHostAllocDefault);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&l->in, l->in_bytes);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&l->out, l->out_bytes);
    if (error == cudaSuccess && l->values_bytes > 0)
        error = cudaMalloc((void **)&l->values, l->values_bytes);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&l->flags, 64);
    return error;
}

extern "C" void tp_cuda_close(struct tp_cuda_slot *l)
{
    if (l == NULL)
        return;
    cudaSetDevice(l->device);
    if (l->stream != NULL)
        cudaStreamSynchronize(l->stream);
    cudaFree(l->in);
    cudaFree(l->out);
    cudaFree(l->values);
    cudaFree(l->flags);
    cudaFree(l->moments);
    cudaFree(l->importance);
    cudaFreeHost(l->host_in);
    cudaFreeHost(l->host_out);
    cudaFreeHost(l->host_flags);
    if (l->done != NULL)
        cudaEventDestroy(l->done);
    if (l->stream != NULL)
        cudaStreamDestroy(l->stream);
    cudaGetLastError();
    free(l);
}

extern "C" enum tp_code tp_cuda_open(int device, uint64_t input_bytes, uint64_t output_bytes,
                                     uint64_t scratch_bytes, struct tp_cuda_slot **slot,
                                     bool *no_memory, struct tp_err *err)
{
    struct tp_cuda_slot *l = (struct tp_cuda_slot *)calloc(1, sizeof *l);
    cudaError_t error;
    *slot = NULL;
    *no_memory = l == NULL;
    if (l == NULL)
        return tp_fail(err, TP_E_MEMORY, "out of memory");
    l->device = device;
    l->in_bytes = tp_max_u64(input_bytes, 64);
    l->out_bytes = tp_max_u64(output_bytes, 64);
    l->values_bytes = scratch_bytes;
    error = cudaSetDevice(device);
    if (error == cudaSuccess && !is_usable(device))
        error = cudaErrorNoKernelImageForDevice;
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&l->done,
                                         cudaEventBlockingSync | cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = open_memory(l);
    if (error != cudaSuccess) {
        *no_memory = error == cudaErrorMemoryAllocation;
        tp_cuda_close(l);
        return fail_cuda(err, error, "cannot set up the GPU");
    }
    *slot = l;
    return TP_OK;
}

extern "C" void *tp_cuda_input(struct tp_cuda_slot *slot) { return slot->host_in; }

extern "C" void *tp_cuda_output(struct tp_cuda_slot *slot) { return slot->host_out; }

/* ---- one call ------------------------------------------------------------ */

/* The device address of `bytes` at `host`, which must lie in the pinned buffer. */
static enum tp_code to_device(const void *host, uint64_t bytes, const uint8_t *pinned,
                              uint8_t *device, uint64_t size, void **address, struct tp_err *err)
{
    uint64_t at = (uint64_t)((const uint8_t *)host - pinned);
    if ((const uint8_t *)host < pinned || at > size || bytes > size - at)
        return tp_fail(err, TP_E_MEMORY, "a buffer lies outside its slot");
    *address = device + at;
    return TP_OK;
}

static enum tp_code upload(struct tp_cuda_slot *l, const void *host, uint64_t bytes,
                           const void **address, struct tp_err *err)
{
    void *device = NULL;
    cudaError_t error;
    enum tp_code code = to_device(host, bytes, l->host_in, l->in, l->in_bytes, &device, err);
    if (code != TP_OK)
        return code;
    *address = device;
    error = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, l->stream);
    return error == cudaSuccess ? TP_OK : fail_cuda(err, error, "cannot copy to the GPU");
}

static cudaError_t reserve_importance(struct tp_cuda_slot *l, uint64_t bytes)
{
    if (bytes <= l->importance_bytes)
        return cudaSuccess;
    cudaFree(l->importance);
    l->importance = NULL;
    l->importance_bytes = 0;
    cudaError_t error = cudaMalloc((void **)&l->importance, bytes);
    if (error == cudaSuccess)
        l->importance_bytes = bytes;
    return error;
}

/* The importance of the box's columns, from any host memory. */
static enum tp_code upload_importance(struct tp_cuda_slot *l, struct tp_args *device,
                                      struct tp_err *err)
{
    const uint64_t bytes = device->box.e * device->box.k * sizeof(float);
    if (device->importance == NULL)
        return TP_OK;
    cudaError_t error = reserve_importance(l, bytes);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(l->importance, device->importance, bytes, cudaMemcpyHostToDevice,
                                l->stream);
    device->importance = l->importance;
    return error == cudaSuccess ? TP_OK : fail_cuda(err, error, "cannot copy to the GPU");
}

/* What errors are fed back with, unless it is there already. */
static enum tp_code upload_moments(struct tp_cuda_slot *l, struct tp_args *device,
                                   struct tp_err *err)
{
    const struct tp_feedback *fed = device->fed;
    cudaError_t error = cudaSuccess;
    if (fed == NULL)
        return TP_OK;
    device->fed = &l->fed;
    if (l->fed.serial == fed->serial)
        return TP_OK;
    const uint64_t bytes = tp_feedback_size(device->box.k, fed->rank);
    l->fed.serial = 0;
    if (bytes > l->moments_bytes) {
        cudaFree(l->moments);
        l->moments = NULL;
        l->moments_bytes = 0;
        if ((error = cudaMalloc(&l->moments, bytes)) == cudaSuccess)
            l->moments_bytes = bytes;
    }
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(l->moments, fed->g, bytes, cudaMemcpyHostToDevice, l->stream);
    if (error != cudaSuccess)
        return fail_cuda(err, error, "cannot copy to the GPU");
    l->fed = tp_feedback_at(l->moments, device->box.k, fed->rank, fed->serial);
    return TP_OK;
}

static enum tp_code upload_all(struct tp_cuda_slot *l, const struct tp_cuda_call *call,
                               struct tp_args *device, struct tp_err *err)
{
    const struct tp_args *args = &call->args;
    if (call->kind == TP_CUDA_ENCODE)
        return upload(l, args->in[0], tp_value_bytes(args->box, args->dtype), &device->in[0], err);
    for (uint32_t i = 0; i < call->from->outs; i++) {
        uint64_t bytes;
        enum tp_code code = tp_op_bytes(call->from, i, args->box, &bytes, err);
        device->in[i] = NULL;
        if (code == TP_OK && bytes > 0 && args->in[i] != NULL)
            code = upload(l, args->in[i], bytes, &device->in[i], err);
        if (code != TP_OK)
            return code;
    }
    return TP_OK;
}

/* Visits every output: sets its device address, or copies it back. */
static enum tp_code outputs(struct tp_cuda_slot *l, const struct tp_cuda_call *call,
                            struct tp_args *device, bool download, struct tp_err *err)
{
    const struct tp_args *args = &call->args;
    const bool decode = call->kind == TP_CUDA_DECODE;
    for (uint32_t i = 0; i < (decode ? 1 : call->to->outs); i++) {
        uint64_t bytes = tp_value_bytes(args->box, args->dtype);
        enum tp_code code = decode ? TP_OK : tp_op_bytes(call->to, i, args->box, &bytes, err);
        cudaError_t error = cudaSuccess;
        if (!download)
            device->out[i] = NULL;
        const bool plans = !decode && call->to->out[i].role == TP_ROLE_WORDS;
        if (code == TP_OK && (bytes == 0 || args->out[i] == NULL || plans))
            continue;
        if (code == TP_OK && !download)
            code = to_device(args->out[i], bytes, l->host_out, l->out, l->out_bytes,
                             &device->out[i], err);
        if (code != TP_OK)
            return code;
        if (download)
            error = cudaMemcpyAsync(args->out[i], device->out[i], bytes, cudaMemcpyDeviceToHost,
                                    l->stream);
        if (error != cudaSuccess)
            return fail_cuda(err, error, "cannot copy from the GPU");
    }
    return TP_OK;
}

static enum tp_code no_row(struct tp_err *err)
{
    return tp_fail(err, TP_E_UNSUPPORTED, "CUDA is disabled");
}

/* Errors are fed back behind any of the rows that search. */
static tp_encode_fn encode_of(const struct tp_op *op, enum tp_dtype dtype)
{
    const bool feeds = tp_op_feeds(op) && tp_isa_enabled(TP_ISA_CUDA) && tp_device_can(op);
    return feeds ? tp_cuda_encode_fed : tp_cuda_encode_find(op, dtype);
}

static enum tp_code requantize(struct tp_cuda_slot *l, const struct tp_cuda_call *call,
                               struct tp_args *device, struct tp_err *err)
{
    tp_decode_fn decode = tp_cuda_decode_find(call->from, call->via);
    tp_encode_fn encode = encode_of(call->to, call->via);
    struct tp_args values = *device;
    if (decode == NULL || encode == NULL)
        return no_row(err);
    if (tp_value_bytes(device->box, call->via) > l->values_bytes)
        return tp_fail(err, TP_E_MEMORY, "the slot's scratch is too small");
    values.dtype = device->dtype = call->via;
    values.out[0] = l->values;
    decode(call->from, &values);
    device->flags |= values.flags;
    device->in[0] = l->values;
    encode(call->to, device);
    return TP_OK;
}

static enum tp_code enqueue(struct tp_cuda_slot *l, const struct tp_cuda_call *call,
                            struct tp_args *device, struct tp_err *err)
{
    if (call->kind == TP_CUDA_REQUANT)
        return requantize(l, call, device, err);
    if (call->kind == TP_CUDA_ENCODE) {
        tp_encode_fn encode = encode_of(call->to, device->dtype);
        if (encode == NULL)
            return no_row(err);
        encode(call->to, device);
    } else if (call->kind == TP_CUDA_REPACK) {
        tp_repack_fn repack = tp_cuda_repack_find(call->from, call->to);
        if (repack == NULL)
            return no_row(err);
        repack(call->from, call->to, device);
    } else {
        tp_decode_fn decode = tp_cuda_decode_find(call->from, device->dtype);
        if (decode == NULL)
            return no_row(err);
        decode(call->from, device);
    }
    return TP_OK;
}

static enum tp_code wait_for(struct tp_cuda_slot *l, struct tp_err *err)
{
    cudaError_t error = cudaMemcpyAsync(l->host_flags, l->flags, sizeof *l->flags,
                                        cudaMemcpyDeviceToHost, l->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(l->done, l->stream);
    if (error == cudaSuccess)
        error = cudaEventSynchronize(l->done);
    return error == cudaSuccess ? TP_OK : fail_cuda(err, error, "the GPU failed");
}

extern "C" enum tp_code tp_cuda_run(struct tp_cuda_slot *slot, struct tp_cuda_call *call,
                                    struct tp_err *err)
{
    struct tp_args device = call->args;
    enum tp_code code;
    cudaError_t error = cudaSetDevice(slot->device);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(slot->flags, 0, sizeof *slot->flags, slot->stream);
    if (error != cudaSuccess)
        return fail_cuda(err, error, "the GPU failed");
    device.stream = slot->stream;
    device.device_flags = slot->flags;
    code = upload_all(slot, call, &device, err);
    if (code == TP_OK)
        code = upload_importance(slot, &device, err);
    if (code == TP_OK)
        code = upload_moments(slot, &device, err);
    if (code == TP_OK)
        code = outputs(slot, call, &device, false, err);
    if (code == TP_OK)
        code = enqueue(slot, call, &device, err);
    if (code == TP_OK)
        code = tp_args_check(&device, err);
    if (code == TP_OK && (error = cudaGetLastError()) != cudaSuccess)
        code = fail_cuda(err, error, "cannot start a kernel");
    if (code == TP_OK)
        code = outputs(slot, call, &device, true, err);
    if (code == TP_OK)
        code = wait_for(slot, err);
    else
        cudaStreamSynchronize(slot->stream); /* nothing may write the buffers later */
    if (code == TP_OK)
        call->args.flags |= *slot->host_flags;
    return code;
}
