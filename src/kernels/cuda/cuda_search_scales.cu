/* The scale search of int4 for the error of code * scale, where scales alone are made: groups of
 * 32, 64 or 128 along K, bf16 or F16, stored in any layout. Codes are made by cuda_place.cu then.
 *
 * A thread holds 8 values of a group, whose neighbours hold the others. Invariant: scales equal
 * those of tp_encode_ref.
 */
#include "kernels/cuda/cuda_any.cuh"

enum { SCALES_THREADS = 256, SCALES_VALUES = 8 };

struct scales_args {
    struct any_codec codec;
    struct any_plane scale;
    struct dev_search how;
    const uint8_t *in;
    uint32_t *flags;
    uint64_t n, k, columns, groups; /* columns: groups of a row; groups: of the whole weight */
};

/* The thread's values as integers with root weights. */
struct scales_ints {
    float x[SCALES_VALUES], root[SCALES_VALUES];
    float unit; /* of x, positive */
};

template <int DT, int LANES>
static __device__ __forceinline__ bool flips(const dev_raw8<DT> &r)
{
    float positive = 0, negative = 0;
    dev_search_ends<DT>(r, &positive, &negative);
    return dev_search_flips<LANES>(positive, negative);
}

template <int DT, bool WEIGHTED, int LANES>
static __device__ __forceinline__ scales_ints ints_of(const scales_args &a, const dev_raw8<DT> &r,
                                                      uint32_t amax, bool flip, const float *h)
{
    scales_ints ints;
    ints.unit = dev_search_unit(amax);
    const float unit = flip ? -ints.unit : ints.unit;
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < SCALES_VALUES; i++) {
        const float rounded = dev_search_rounded(dev_value<DT>(r, i), unit);
        sum += WEIGHTED ? dev_square(rounded) : 0;
        ints.x[i] = __fadd_rn(rounded, -DEV_ROUND);
        ints.root[i] = 1.0f;
    }
    if (WEIGHTED && a.how.weights == TP_IMPORTANCE_MAGNITUDE) {
        dev_roots_of_magnitude<SCALES_VALUES, LANES>(
            ints.x, sum, dev_search_int(__uint_as_float(amax), ints.unit), ints.root);
    } else if (WEIGHTED) {
        float w[SCALES_VALUES] = {};
        if (h != NULL)
            dev_load_importance(h, w);
        dev_roots_of_file<SCALES_VALUES, LANES>(w, ints.root);
    }
    return ints;
}

/* The square of root weight times distance from the nearest of -8 .. 7 steps. The code is found
 * in 0 .. 1, where the addition itself ends it; it is wrong only where two are as near. */
template <bool WEIGHTED>
static __device__ __forceinline__ uint64_t square_of(float x, float root, float step,
                                                     float per_step15)
{
    const float at = __saturatef(__fmaf_rn(x, per_step15, 8.0f / 15.0f));
    const float code = __fadd_rn(__fmaf_rn(at, 15.0f, DEV_ROUND), -(DEV_ROUND + 8.0f));
    const float d = fabsf(__fmaf_rn(-step, code, x));
    const uint32_t integer = (uint32_t)(WEIGHTED ? __fmul_rn(d, root) : d);
    return (uint64_t)integer * integer;
}

template <bool WEIGHTED, int LANES>
static __device__ __forceinline__ uint64_t error_of(const scales_ints &ints, float step)
{
    const float per_step15 = __fdiv_rn(1.0f / 15.0f, step);
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < SCALES_VALUES; i++)
        sum += square_of<WEIGHTED>(ints.x[i], ints.root[i], step, per_step15);
#pragma unroll
    for (int d = LANES / 2; d; d >>= 1)
        sum += __shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)sum, d);
    return sum;
}

/* Candidates as bits: lane i of a group has those of i, i + LANES, and so on. */
template <int LANES> struct scales_candidates {
    uint32_t bits[TP_SEARCH_INT4 / LANES];
};

template <int LANES>
static __device__ __forceinline__ scales_candidates<LANES>
candidates_of(const scales_args &a, uint32_t amax)
{
    scales_candidates<LANES> c;
#pragma unroll
    for (int i = 0; i < TP_SEARCH_INT4 / LANES; i++)
        c.bits[i] = tp_search_int4_scale(amax, a.codec.f16, a.how.is_signed,
                                         (int)(threadIdx.x % LANES) + i * LANES);
    return c;
}

/* The bits of the best scale of a live group. */
template <bool WEIGHTED, int LANES>
static __device__ __forceinline__ uint32_t best_of(const scales_args &a, const scales_ints &ints,
                                                   const scales_candidates<LANES> &c)
{
    const int first = (int)(threadIdx.x % 32 / LANES * LANES);
    uint64_t min_value = UINT64_MAX;
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < TP_SEARCH_INT4; i++) {
        const uint32_t bits = __shfl_sync(0xFFFFFFFFu, c.bits[i / LANES], first + i % LANES);
        const float scale = scale_value(TP_CODEC_INT4, a.codec.f16, bits);
        const uint64_t error =
            error_of<WEIGHTED, LANES>(ints, dev_search_int(scale, ints.unit));
        best = error < min_value ? bits : best;
        min_value = min(error, min_value);
    }
    return best;
}

static __device__ __forceinline__ bool is_live(const scales_args &a, uint32_t amax)
{
    return tp_search_live(amax) && (!a.codec.f16 || tp_search_f16_live(amax));
}

template <int DT, bool WEIGHTED, int LANES>
static __global__ __launch_bounds__(SCALES_THREADS) void
search_scales(const __grid_constant__ struct scales_args a)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const uint32_t lane = threadIdx.x % LANES;
    const uint64_t group =
        (uint64_t)blockIdx.x * (SCALES_THREADS / LANES) + threadIdx.x / LANES;
    const bool inside = group < a.groups;
    const uint64_t row = group / a.columns, column = group - row * a.columns;
    const dev_raw8<DT> r =
        inside ? dev_load_raw8<DT>(a.in + (group * LANES + lane) * SCALES_VALUES * bytes)
               : dev_zero_raw8<DT>();
    const uint32_t amax = dev_max_lanes<LANES>(dev_amax_bits<DT>(dev_amax8<DT>(0, r)));
    const bool live = is_live(a, amax);
    /* Others go along with a magnitude that does no harm. */
    const uint32_t safe = live ? amax : 0x3F800000u;
    const float *h = NULL;
    if (WEIGHTED && a.how.weights == TP_IMPORTANCE_FILE && inside)
        h = a.how.importance + row / a.n * a.k + (column * LANES + lane) * SCALES_VALUES;
    const bool flip = a.how.is_signed && flips<DT, LANES>(r);
    const scales_ints ints = ints_of<DT, WEIGHTED, LANES>(a, r, safe, flip, h);
    const uint32_t best =
        best_of<WEIGHTED, LANES>(a, ints, candidates_of<LANES>(a, safe)) | (flip ? 0x8000u : 0);
    const any_scale s = scale_of(a.codec, amax);
    if (!inside || lane != 0)
        return;
    dev_flag_bad(a.flags, s.bad);
    store_scale(a.scale, TP_CODEC_INT4,
                at_of(a.scale, row / a.n, row % a.n, column * LANES * SCALES_VALUES),
                live ? best : s.bits);
}

template <int DT, int LANES> static void launch_groups(const scales_args &a, cudaStream_t stream)
{
    const uint32_t grid = (uint32_t)dev_ceil(a.groups, SCALES_THREADS / LANES);
    if (a.how.weights != TP_IMPORTANCE_NONE)
        search_scales<DT, true, LANES><<<grid, SCALES_THREADS, 0, stream>>>(a);
    else
        search_scales<DT, false, LANES><<<grid, SCALES_THREADS, 0, stream>>>(a);
}

template <int DT> static void launch(const scales_args &a, uint64_t size, cudaStream_t stream)
{
    if (size == 32)
        launch_groups<DT, 4>(a, stream);
    else if (size == 64)
        launch_groups<DT, 8>(a, stream);
    else
        launch_groups<DT, 16>(a, stream);
}

bool tp_cuda_search_scales(const struct tp_op *op, struct tp_args *args,
                           const struct any_plane &scale)
{
    const struct tp_box3 box = args->box;
    const uint64_t size = op->block_k;
    struct scales_args a;
    memset(&a, 0, sizeof a);
    if ((size != 32 && size != 64 && size != 128) || op->block_n != 1 || box.k % size != 0 ||
        scale.per_n != 1 || scale.per_k != size ||
        dev_ceil(box.e * box.n * (box.k / size), SCALES_THREADS / 16) > 0x7FFFFFFFu)
        return false;
    a.codec = tp_cuda_any_codec(op, args);
    a.scale = scale;
    a.how = dev_search_of(op, args);
    a.in = (const uint8_t *)args->in[0];
    a.flags = args->device_flags;
    a.n = box.n;
    a.k = box.k;
    a.columns = box.k / size;
    a.groups = box.e * box.n * a.columns;
    if (a.groups != 0)
        DEV_BY_DTYPE(args->dtype, launch, a, size, (cudaStream_t)args->stream);
    return true;
}
