/* int4 in groups of 128 along K with the scale search for the error of code * scale:
 * row-major with bf16 scales (w4a8-ct).
 *
 * 8 threads share a group, 16 values each. Errors are summed in floats first, two candidates
 * at a time, which is exact to 2^-19: candidates whose scale is so small that clipping a few
 * large values costs more than the best so far are left out, and where the two best are too
 * near to each other the sums are made again in integers. Other shapes go to cuda_any.cu.
 * Invariant: bytes equal tp_encode_ref.
 */
#include "kernels/cuda/cuda_search_int4.cuh"

enum { BATCH = 2 /* candidates */ };

/* Distance of x from the nearest of -8 .. 7 steps, with its sign. x times 1/15 of `per_step`
 * is brought into 0 .. 1 by the addition itself, which is where the codes end. */
static __device__ __forceinline__ float distance(float x, float per_step15, float step)
{
    const float at = __saturatef(__fmaf_rn(x, per_step15, 8.0f / 15.0f));
    const float code = __fadd_rn(__fmaf_rn(at, 15.0f, DEV_ROUND), -(DEV_ROUND + 8.0f));
    return __fmaf_rn(-step, code, x);
}

static __device__ __forceinline__ float per_step15_of(float step)
{
    return __fmul_rn(dev_reciprocal_near(step), 1.0f / 15.0f);
}

template <bool WEIGHTED>
static __device__ __forceinline__ float near_error(const group_ints &ints, float step)
{
    const float per_step15 = per_step15_of(step);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++) {
        float d = distance(ints.x[i], per_step15, step);
        if (WEIGHTED)
            d = __fmul_rn(d, ints.root[i]);
        sum = __fmaf_rn(d, d, sum);
    }
    return sum;
}

/* The same exactly, of the whole group. */
template <bool WEIGHTED>
static __device__ __forceinline__ uint64_t exact_error(const group_ints &ints, float step)
{
    const float per_step15 = per_step15_of(step);
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++)
        sum += group_square<WEIGHTED>(distance(ints.x[i], per_step15, step), ints.root[i]);
    return group_sum(sum);
}

/* The steps of all candidates: each lane has those of lane % 8 and the one 8 further on. */
struct int4_steps {
    float low, high;
};

/* tp_search_int4_scale() in units of the group. The first candidate's division is a product
 * for 16-bit values: see scale_of() of cuda_int4.cu. */
template <int DT>
static __device__ __forceinline__ int4_steps steps_of(const int4_search_args &a, uint32_t amax,
                                                      float unit, uint32_t lane)
{
    const float max = __uint_as_float(amax);
    const int i = lane % GROUP_LANES;
    float low = __fmul_rn(max, a.shrink[i]), high = __fmul_rn(max, a.shrink[i + 8]);
    if (i == 0 && a.how.is_signed)
        low = __fmul_rn(max, 0.125f);
    else if (i == 0)
        low = TP_IS32(DT) ? __fdiv_rn(max, 7.5f) : __fmul_rn(max, 1.0f / 7.5f);
    dev_round_bf16(low, high);
    const int4_steps s = {__fmul_rn(low, unit), __fmul_rn(high, unit)};
    return s;
}

static __device__ __forceinline__ float step_of(const int4_steps &s, int i, uint32_t lane)
{
    return __shfl_sync(0xFFFFFFFFu, i < 8 ? s.low : s.high, (lane & 24) | (i & 7));
}

/* Sums of a batch over a group's lanes: each lane has that of candidate lane_candidate(). */
static __device__ __forceinline__ float sum_batch(const float (&error)[BATCH], uint32_t lane)
{
    const float mine = lane & 4 ? error[1] : error[0], other = lane & 4 ? error[0] : error[1];
    float sum = __fadd_rn(mine, __shfl_xor_sync(0xFFFFFFFFu, other, 4));
    sum = __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 2));
    return __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 1));
}

static __device__ __forceinline__ int lane_candidate(uint32_t lane) { return lane >> 2 & 1; }

/* The best of some candidates, and the error of the next. */
struct near_best {
    float error, next;
    int index;
};

static __device__ __forceinline__ near_best better(const near_best &a, const near_best &b)
{
    const bool first = a.error < b.error;
    near_best c;
    c.error = first ? a.error : b.error;
    c.index = first ? a.index : b.index;
    c.next = fminf(fminf(a.next, b.next), first ? b.error : a.error);
    return c;
}

static __device__ __forceinline__ near_best best_of_lanes(const near_best &best)
{
    near_best other;
    other.error = __shfl_xor_sync(0xFFFFFFFFu, best.error, 4);
    other.next = __shfl_xor_sync(0xFFFFFFFFu, best.next, 4);
    other.index = __shfl_xor_sync(0xFFFFFFFFu, best.index, 4);
    return better(best, other);
}

/* Whether a candidate might be better than the best so far. Smaller scales clip more. */
template <bool WEIGHTED>
static __device__ __forceinline__ bool is_open(const group_ints &ints, const near_best &best,
                                               float step)
{
    const float error = fminf(best.error, __shfl_xor_sync(0xFFFFFFFFu, best.error, 4));
    const float bound =
        clip_error<WEIGHTED>(ints, __fmul_rn(step, 7.0f), __fmul_rn(step, 8.0f));
    return bound < __fmul_rn(error, 1.00001f);
}

/* The candidate that is best by float sums, and whether that is certain. */
template <bool WEIGHTED>
static __device__ __forceinline__ int near_search(const group_ints &ints,
                                                  const int4_steps &steps, bool live,
                                                  uint32_t lane, bool &sure)
{
    near_best best = {3.0e38f, 3.0e38f, 0};
#pragma unroll 1
    for (int first = 0; first < TP_SEARCH_INT4; first += BATCH) {
        const float step[BATCH] = {step_of(steps, first, lane), step_of(steps, first + 1, lane)};
        if (first > 0) {
            const bool open = is_open<WEIGHTED>(ints, best, step[0]);
            if (!__any_sync(0xFFFFFFFFu, live && open))
                break;
        }
        const float error[BATCH] = {near_error<WEIGHTED>(ints, step[0]),
                                    near_error<WEIGHTED>(ints, step[1])};
        const near_best mine = {sum_batch(error, lane), 3.0e38f, first + lane_candidate(lane)};
        best = better(best, mine);
    }
    best = best_of_lanes(best);
    /* below 2^24 sums of integers are exact */
    sure = best.error < 16777216.0f ? best.error < best.next : best.error * 1.00001f < best.next;
    return best.index;
}

template <bool WEIGHTED>
static __device__ __forceinline__ int exact_search(const group_ints &ints,
                                                   const int4_steps &steps, uint32_t lane)
{
    uint64_t min = UINT64_MAX;
    int best = 0;
#pragma unroll 1
    for (int i = 0; i < TP_SEARCH_INT4; i++) {
        const uint64_t error = exact_error<WEIGHTED>(ints, step_of(steps, i, lane));
        if (error < min) {
            min = error;
            best = i;
        }
    }
    return best;
}

/* The scale of the lane's group, as bits, with the sign of a flipped one. */
template <int DT, bool WEIGHTED>
static __device__ __forceinline__ uint32_t search_scale(const int4_search_args &a,
                                                        const dev_raw8<DT> (&r)[2], uint32_t amax,
                                                        const float *h, uint32_t lane)
{
    const bool live = tp_search_live(amax);
    const bool flip = a.how.is_signed && group_flips<DT>(r);
    const group_ints ints =
        group_ints_of<DT, WEIGHTED>(a.how, r, 1.0f, amax, flip, h);
    const int4_steps steps = steps_of<DT>(a, amax, ints.unit, lane);
    bool sure;
    int best = near_search<WEIGHTED>(ints, steps, live, lane, sure);
    if (__any_sync(0xFFFFFFFFu, live && !sure))
        best = exact_search<WEIGHTED>(ints, steps, lane);
    const float step = __shfl_sync(0xFFFFFFFFu, best < 8 ? steps.low : steps.high,
                                   (lane & 24) | (best & 7));
    if (!live)
        return dev_int4_scale(amax);
    const float in_unit = __uint_as_float((254u << 23) - __float_as_uint(ints.unit)); /* 1 / unit */
    return __float_as_uint(__fmul_rn(step, in_unit)) >> 16 | (flip ? 0x8000u : 0);
}

/* A warp takes four groups. */
template <int DT, bool WEIGHTED>
static __global__ __launch_bounds__(INT4_THREADS) void
search_row(const __grid_constant__ struct int4_search_args a)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t group = (uint64_t)blockIdx.x * (INT4_THREADS / GROUP_LANES) +
                           threadIdx.x / GROUP_LANES;
    const bool inside = group < a.all_groups;
    dev_raw8<DT> r[2];
    uint32_t words[2];
    group_load<DT>(a.in, group, inside, r);
    const uint32_t amax = group_amax<DT>(r);
    const float *h = NULL;
    if (a.how.weights == TP_IMPORTANCE_FILE && inside) {
        const uint64_t row = group / a.groups;
        h = a.how.importance + row / a.n * a.k + (group - row * a.groups) * 128;
    }
    const uint32_t scale = search_scale<DT, WEIGHTED>(a, r, amax, h, lane);
    group_codes_by_rule<DT>(r, amax, scale, a.rule, words);
    dev_flag(a.flags, amax);
    if (!inside)
        return;
    group_store(a, group, words);
    if (lane % GROUP_LANES == 0)
        ((uint16_t *)a.scale)[group] = (uint16_t)scale;
}

template <int DT> static void launch(const struct tp_op *op, struct tp_args *args)
{
    const struct int4_search_args a = int4_search_args_of(op, args);
    const uint64_t grid = dev_ceil(a.all_groups, INT4_THREADS / GROUP_LANES);
    cudaStream_t stream = (cudaStream_t)args->stream;
    if (args->box.k % 128 != 0 || grid > 0x7FFFFFFFu)
        tp_cuda_encode_any(op, args);
    else if (a.how.weights != TP_IMPORTANCE_NONE)
        search_row<DT, true><<<(uint32_t)grid, INT4_THREADS, 0, stream>>>(a);
    else
        search_row<DT, false><<<(uint32_t)grid, INT4_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_int4_search(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch, op, args);
}
