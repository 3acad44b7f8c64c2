/* Every operation on the device, whatever its layouts, codec and shape: what the
 * fast kernels fall back to. The counterpart of ref.c.
 *
 * Offsets are evaluated from the numeric layouts, which travel as a kernel
 * argument. One warp per block of the codec; one thread per element elsewhere.
 * Half-byte codes are stored in two launches, one for each half of the bytes, so
 * that no byte has two writers at a time. W4A8 group scales wait for their row's
 * channel scale in the place of the packed ones. Searches of scales are in
 * cuda_search_any.cu. Invariant: bytes equal ref.c.
 */
#include "kernels/cuda/cuda_any.cuh"

static __device__ void store_value(uint8_t *out, uint32_t dtype, uint64_t i, float v)
{
    if (dtype == TP_F32)
        ((float *)out)[i] = tp_canonical(v);
    else
        ((uint16_t *)out)[i] = tp_f32_to_bf16(v);
}

static __device__ uint8_t load_code(const any_side &s, uint64_t at)
{
    if (s.codes.element == TP_ELEM_INT4)
        return s.to_code[s.codes.data[at / 2] >> (at & 1 ? 4 : 0) & 15];
    if (s.codes.element == TP_ELEM_E2M1)
        return s.codes.data[at / 2] >> (at & 1 ? 4 : 0) & 15;
    if (s.codes.element == TP_ELEM_INT8)
        return (uint8_t)((s.codes.data[at] + s.codes.zero_point) & (2 * s.codes.zero_point - 1));
    return s.codes.data[at];
}

static __device__ uint32_t load_scale(const any_plane &p, uint32_t codec, uint64_t at)
{
    float value;
    switch (p.element) {
    case TP_ELEM_BF16:
        if (any_is_int(codec) && !p.f16)
            return ((const uint16_t *)p.data)[at];
        value = tp_bf16_to_f32(((const uint16_t *)p.data)[at]);
        break;
    case TP_ELEM_F16:
        if (any_is_int(codec) && p.f16)
            return ((const uint16_t *)p.data)[at];
        value = tp_f16_to_f32(((const uint16_t *)p.data)[at]);
        break;
    case TP_ELEM_F32:
        value = ((const float *)p.data)[at];
        break;
    case TP_ELEM_E8M0:
        value = tp_e8m0_value(p.data[at]);
        break;
    default:
        return p.data[at];
    }
    if (any_is_int(codec))
        return p.f16 ? tp_f32_to_f16(value) : tp_f32_to_bf16(value);
    return codec == TP_CODEC_FP8 ? tp_f32_bits(value) : p.data[at];
}

/* ---- encode -------------------------------------------------------------- */

static __global__ __launch_bounds__(ANY_THREADS) void encode_any(const struct any_args a)
{
    const uint64_t blocks = any_blocks(a);
    const uint32_t lane = threadIdx.x % 32;
    uint64_t w = ((uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x) / 32;
    if (a.side.global.data != NULL && blockIdx.x == 0 && threadIdx.x == 0)
        store_global(a.side.global, a.global);
    for (; w < blocks; w += (uint64_t)gridDim.x * ANY_THREADS / 32) {
        const any_block b = any_block_of(a, w);
        const struct any_scale s = scale_of(a, any_amax(a, b, lane));
        if (lane == 0)
            dev_flag_bad(a.flags, s.bad);
        bool zero = encode_codes(a, b, s, lane);
        if (a.half == 0)
            encode_scales(a, b, s.bits, zero, lane);
    }
}

/* ---- repack and decode: `from` is a.side of the second argument ------------ */

struct any_pair {
    struct any_args to;
    struct any_side from;
    bool inverts; /* the global scale, as tp_repack_inverts() says */
};

/* The global scale as it is taken over: tp_repack_global(). */
static __device__ float taken_global(const any_pair &a)
{
    const float global = load_global(a.from.global, a.to.global);
    return a.inverts ? __fdiv_rn(1.0f, global) : global;
}

static __device__ uint32_t source_scale(const any_args &a, const any_side &from, uint64_t e,
                                        uint64_t n, uint64_t k)
{
    if (a.codec == TP_CODEC_FP8 && from.scale.data == NULL)
        return tp_f32_bits(load_global(from.global, 1.0f));
    if (from.scale.data != NULL)
        return load_scale(from.scale, a.codec, at_of(from.scale, e, n, k));
    float group = -tp_e4m3_value(from.group8.data[8 * at_of(from.group8, e, n, k) + 7]);
    float channel = ((const float *)from.channel.data)[at_of(from.channel, e, n, 0)];
    const uint16_t scale = tp_f32_to_bf16(__fmul_rn(group, channel));
    return from.scale.f16 ? tp_f32_to_f16(tp_bf16_to_f32(scale)) : scale;
}

static __global__ __launch_bounds__(ANY_THREADS) void
repack_codes(const __grid_constant__ struct any_pair a)
{
    const uint64_t count = a.to.box.e * a.to.box.n * a.to.box.k;
    uint64_t i = (uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x;
    for (; i < count; i += (uint64_t)gridDim.x * ANY_THREADS) {
        uint64_t row = i / a.to.box.k, k = i - row * a.to.box.k;
        uint64_t e = row / a.to.box.n, n = row - e * a.to.box.n;
        store_code(a.to.side.codes, a.to.table, a.to.half, at_of(a.to.side.codes, e, n, k),
                   load_code(a.from, at_of(a.from.codes, e, n, k)));
    }
}

static __device__ bool source_zero(const any_pair &a, uint64_t e, uint64_t n, uint64_t k0,
                                   uint64_t k1)
{
    for (uint64_t k = k0; k < k1; k++)
        if (load_code(a.from, at_of(a.from.codes, e, n, k)) != 8)
            return false;
    return true;
}

static __global__ __launch_bounds__(ANY_THREADS) void
repack_scales(const __grid_constant__ struct any_pair a)
{
    const any_plane &g = a.to.side.group8, &s = a.to.side.scale;
    const any_plane &p = g.data != NULL ? g : s;
    const uint64_t rows = dev_ceil(a.to.box.n, p.per_n), columns = dev_ceil(a.to.box.k, p.per_k);
    uint64_t i = (uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x;
    if (a.to.side.global.data != NULL && i == 0)
        store_global(a.to.side.global, taken_global(a));
    for (; i < a.to.box.e * rows * columns; i += (uint64_t)gridDim.x * ANY_THREADS) {
        uint64_t row = i / columns, k = (i - row * columns) * p.per_k;
        uint64_t e = row / rows, n = (row - e * rows) * p.per_n;
        uint32_t bits = source_scale(a.to, a.from, e, n, k);
        if (g.data != NULL) {
            uint16_t *stash = (uint16_t *)(g.data + 8 * at_of(g, e, n, k));
            stash[0] = (uint16_t)bits;
            stash[1] = a.to.skip_zero &&
                       source_zero(a, e, n, k, min(k + g.per_k, a.to.box.k));
        } else {
            store_scale(s, a.to.codec, at_of(s, e, n, k), bits);
        }
    }
}

/* Of a weight that has no other scale. */
static __global__ void repack_global(const __grid_constant__ struct any_pair a)
{
    store_global(a.to.side.global, taken_global(a));
}

static __device__ float decoded(const any_args &a, uint64_t e, uint64_t n, uint64_t k)
{
    const any_side &f = a.side;
    uint8_t code = load_code(f, at_of(f.codes, e, n, k));
    float v, s;
    if (f.group8.data != NULL) {
        const uint8_t *packed = f.group8.data + 8 * at_of(f.group8, e, n, k);
        v = code < 8 ? tp_e4m3_value(packed[code])
                     : code > 8 ? -tp_e4m3_value(packed[16 - code]) : 0.0f;
        s = ((const float *)f.channel.data)[at_of(f.channel, e, n, 0)];
        return __fmul_rn(v, s);
    }
    if (a.per_tensor)
        s = load_global(f.global, a.global);
    else
        s = scale_value(a.codec, a.f16, load_scale(f.scale, a.codec, at_of(f.scale, e, n, k)));
    if (a.codec == TP_CODEC_NVFP4) {
        const float g = load_global(f.global, a.global);
        s = a.rule == TP_NVFP4_CT ? __fdiv_rn(s, g) : __fmul_rn(s, g);
    }
    if (any_is_int(a.codec))
        v = (float)((int)code - (int)f.codes.zero_point);
    else
        v = a.codec == TP_CODEC_FP8 || a.codec == TP_CODEC_MXFP8 ? tp_e4m3_value(code)
                                                                 : tp_e2m1_value(code);
    return __fmul_rn(v, s);
}

static __global__ __launch_bounds__(ANY_THREADS) void decode_any(const struct any_args a)
{
    const uint64_t count = a.box.e * a.box.n * a.box.k;
    uint64_t i = (uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x;
    for (; i < count; i += (uint64_t)gridDim.x * ANY_THREADS) {
        uint64_t row = i / a.box.k, e = row / a.box.n;
        store_value(a.values, a.dtype, i, decoded(a, e, row - e * a.box.n, i - row * a.box.k));
    }
}

/* ---- host ---------------------------------------------------------------- */

extern "C" void tp_cuda_encode_any(const struct tp_op *op, struct tp_args *args)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    if (tp_op_search(op) != TP_SEARCH_NONE) {
        tp_cuda_search_any(op, args);
        return;
    }
    struct any_args a = tp_cuda_any_args(op, args, args->out);
    if (args->flags & TP_FAILED)
        return;
    tp_cuda_any_fill(op, a, stream);
    for (a.half = 0; a.half < halves_of(a.side.codes); a.half++)
        encode_any<<<grid_for(any_blocks(a) * 32), ANY_THREADS, 0, stream>>>(a);
    tp_cuda_any_finish(a, stream);
}

static struct any_pair pair_of(const struct tp_op *from, const struct tp_op *to,
                               struct tp_args *args)
{
    struct any_pair a;
    a.to = tp_cuda_any_args(to, args, args->out);
    a.from = tp_cuda_any_side(from, args, (void *const *)args->in);
    a.inverts = tp_repack_inverts(from, to);
    a.from.scale.f16 = a.to.side.scale.f16; /* a scale is rounded once, to what the result has */
    return a;
}

/* Everything but the codes. */
static void repack_others(const struct any_pair &a, cudaStream_t stream)
{
    if (a.to.side.group8.data == NULL && a.to.side.scale.data == NULL) {
        if (a.to.side.global.data != NULL)
            repack_global<<<1, 1, 0, stream>>>(a);
        return;
    }
    repack_scales<<<grid_for(a.to.box.e * a.to.box.n * a.to.box.k / 32), ANY_THREADS, 0,
                    stream>>>(a);
    tp_cuda_any_finish(a.to, stream);
}

extern "C" void tp_cuda_repack_any(const struct tp_op *from, const struct tp_op *to,
                                   struct tp_args *args)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct any_pair a = pair_of(from, to, args);
    if (args->flags & TP_FAILED)
        return;
    tp_cuda_any_fill(to, a.to, stream);
    uint64_t count = a.to.box.e * a.to.box.n * a.to.box.k;
    for (a.to.half = 0; a.to.half < halves_of(a.to.side.codes); a.to.half++)
        repack_codes<<<grid_for(count), ANY_THREADS, 0, stream>>>(a);
    repack_others(a, stream);
}

extern "C" void tp_cuda_repack_any_scales(const struct tp_op *from, const struct tp_op *to,
                                          struct tp_args *args, bool global_only)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct any_pair a = pair_of(from, to, args);
    if (args->flags & TP_FAILED)
        return;
    a.to.side.codes.data = NULL;
    if (global_only)
        a.to.side.scale.data = NULL;
    tp_cuda_any_fill(to, a.to, stream);
    repack_others(a, stream);
}

extern "C" void tp_cuda_decode_any(const struct tp_op *op, struct tp_args *args)
{
    struct any_args a = tp_cuda_any_args(op, args, (void *const *)args->in);
    a.values = (uint8_t *)args->out[0];
    if (args->flags & TP_FAILED)
        return;
    decode_any<<<grid_for(a.box.e * a.box.n * a.box.k), ANY_THREADS, 0,
                 (cudaStream_t)args->stream>>>(a);
}
