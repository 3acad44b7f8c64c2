/* int4 in groups of 128 along K with the scale search for the error of what the W4A8 kernel
 * computes: row-major with bf16 scales (w4a8-ct), and reordered with packed scales
 * (w4a8-cutlass).
 *
 * A thread block takes a row, 8 threads a group. The row's largest group fixes four channel
 * scales; with each, every group finds its best group scale, and the sums of their errors
 * decide. What is known of groups waits in shared memory. Errors are integers throughout.
 * Other shapes go to cuda_any.cu. Invariant: bytes equal tp_encode_ref.
 */
#include "kernels/cuda/cuda_search_int4.cuh"

enum { ROW_SHARED = 44 * 1024, GROUP_BYTES = 8 /* of shared memory */ };

/* What is known of a row, in shared memory: `amax` of each group, later its bf16 scale and in
 * bit 16 whether all its codes are zero; `t` of each group with each channel scale. */
struct row_state {
    uint32_t *amax;
    uint8_t *t; /* [groups][TP_SEARCH_TOPS]; 0: the group is dead */
    unsigned long long *total; /* [TP_SEARCH_TOPS]: errors */
};

struct row_top {
    uint32_t amax, group;
};

/* The first group of the largest amax; every warp looks for itself. */
static __device__ row_top find_top(const row_state &s, uint32_t groups, uint32_t lane)
{
    row_top top = {0, 0xFFFFFFFFu};
    for (uint32_t g = lane; g < groups; g += 32)
        if (top.group == 0xFFFFFFFFu || s.amax[g] > top.amax) {
            top.amax = s.amax[g];
            top.group = g;
        }
    for (int d = 16; d; d >>= 1) {
        const uint32_t amax = __shfl_xor_sync(0xFFFFFFFFu, top.amax, d);
        const uint32_t group = __shfl_xor_sync(0xFFFFFFFFu, top.group, d);
        if (amax > top.amax || (amax == top.amax && group < top.group)) {
            top.amax = amax;
            top.group = group;
        }
    }
    return top;
}

/* A group's largest magnitude in units of the channel scale, and the first candidate for its
 * group scale, 0 for a dead one. */
struct group_range {
    float largest;
    uint32_t t;
};

static __device__ __forceinline__ group_range range_of(uint32_t amax, const dev_top &c,
                                                       bool is_signed)
{
    group_range r;
    r.largest = __fmul_rn(__uint_as_float(amax), c.reciprocal);
    r.t = tp_search_live(amax) ? tp_search_w4a8_group(r.largest, is_signed) : 0;
    return r;
}

/* With each channel scale the largest exponent of the groups that are not dead, as in their
 * bits: four bytes. */
static __device__ uint32_t max_exponents(const int4_search_args &a, const row_state &s,
                                         const row_top &top, uint32_t lane)
{
    uint32_t all = 0;
#pragma unroll 1
    for (int i = 0; i < TP_SEARCH_TOPS; i++) {
        const dev_top c = dev_top_of(top.amax, a.how.is_signed, a.how.top_rule, i);
        uint32_t max_value = 1;
        for (uint32_t g = lane; g < a.groups; g += 32) {
            const group_range r = range_of(s.amax[g], c, a.how.is_signed);
            if (r.t != 0)
                max_value = max(max_value, __float_as_uint(r.largest) >> 23);
        }
        all |= dev_max_lanes<32>(max_value) << 8 * i;
    }
    return all;
}

static __device__ __forceinline__ uint32_t max_of(uint32_t all, int i)
{
    return all >> 8 * i & 0xFFu;
}

/* ---- one group ----------------------------------------------------------------- */

/* The multiples 1 .. 8 of group scale t as the kernel has them, in units of x. */
static __device__ __forceinline__ void multiples(uint32_t t, float unit, float (&of)[9])
{
    const float g = dev_e4m3_value(t);
    of[0] = 0;
#pragma unroll
    for (int m = 1; m <= 8; m++)
        of[m] = __fmul_rn(dev_e4m3_value(dev_e4m3_of(__fmul_rn(g, (float)m))), unit);
}

/* From x to the nearest of 0, seven multiples of either sign, and the eighth negative one. */
static __device__ __forceinline__ float distance(float x, const float (&of)[9])
{
    const float u = fabsf(x);
    float d = fminf(u, fabsf(__fadd_rn(x, of[8])));
#pragma unroll
    for (int m = 1; m < 8; m++)
        d = fminf(d, fabsf(__fsub_rn(u, of[m])));
    return d;
}

template <bool WEIGHTED>
static __device__ __forceinline__ uint64_t error_of(const group_ints &ints, const float (&of)[9])
{
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++)
        sum += group_square<WEIGHTED>(distance(ints.x[i], of), ints.root[i]);
    return group_sum(sum);
}

struct group_fit {
    uint64_t error;
    uint32_t t;
};

/* The best group scale from t downwards, or t alone. Where clipping large values alone costs
 * more than the best so far, smaller scales are no better. */
template <bool WEIGHTED>
static __device__ __forceinline__ group_fit fit_group(const group_ints &ints, uint32_t t,
                                                      bool alone)
{
    group_fit best = {UINT64_MAX, t};
#pragma unroll 1
    for (uint32_t i = 0; i < TP_SEARCH_GROUPS; i++) {
        float of[9];
        bool open = i == 0 || (!alone && t > i);
        multiples(t - i, ints.unit, of);
        if (i > 0)
            open = clip_error<WEIGHTED>(ints, of[7], of[8]) <
                       __fmul_rn((float)best.error, 1.00001f) && open;
        if (!__any_sync(0xFFFFFFFFu, open))
            break;
        const uint64_t error = error_of<WEIGHTED>(ints, of);
        if (open && error < best.error) {
            best.error = error;
            best.t = t - i;
        }
    }
    return best;
}

/* Codes of the nearest values; of two the one next to zero. */
static __device__ __forceinline__ uint32_t nearest8(const float *x, const float (&of)[9])
{
    uint32_t word = 0;
#pragma unroll
    for (int i = 7; i >= 0; i--) {
        const float twice = __fadd_rn(fabsf(x[i]), fabsf(x[i]));
        uint32_t m = 0;
#pragma unroll
        for (int j = 1; j < 8; j++)
            m += twice > __fadd_rn(of[j], of[j - 1]);
        m += x[i] < 0 && twice > __fadd_rn(of[8], of[7]);
        word = word * 16u + (x[i] < 0 ? 8 - m : 8 + m);
    }
    return word;
}

/* ---- one row -------------------------------------------------------------------- */

/* Where in the reordered codes a lane's word of a group goes, half by half: rows n and n + 8
 * of a tile of 16 share every word. See cuda_int4.cu. */
static __device__ __forceinline__ void store_tiled(const int4_search_args &a, uint64_t row,
                                                   uint32_t group, uint32_t place, uint32_t word)
{
    const uint64_t e = row / a.n, n = row - e * a.n;
    const uint32_t in_tile = (uint32_t)(n % 16), l = place;
    const uint32_t byte = in_tile % 8 * 32 + ((l & 1) * 4 + (l >> 1 & 1)) * 4 + in_tile / 8 * 2;
    uint8_t *p = a.codes + e * a.n * (a.k / 2) + n / 16 * 256 + (l >> 2) * (16 * a.n) +
                 group * (64 * a.n) + byte;
    *(uint16_t *)p = (uint16_t)word;
    *(uint16_t *)(p + 8) = (uint16_t)(word >> 16);
}

static __device__ __forceinline__ void store_codes(const int4_search_args &a, uint64_t row,
                                                   uint32_t group, const uint32_t (&words)[2])
{
    const uint32_t place = threadIdx.x % GROUP_LANES;
    if (a.tiled) {
        store_tiled(a, row, group, place, dev_map_word(words[0], a.map));
        store_tiled(a, row, group, place + 8, dev_map_word(words[1], a.map));
    } else {
        group_store(a, row * a.groups + group, words);
    }
}

/* Stores a group's codes and keeps its scale, and whether all codes are zero, in the place of
 * its amax. */
static __device__ __forceinline__ void store_group(const int4_search_args &a, const row_state &s,
                                                   uint64_t row, uint32_t group, uint32_t bits,
                                                   const uint32_t (&words)[2])
{
    const uint32_t other = (words[0] ^ 0x88888888u) | (words[1] ^ 0x88888888u);
    const bool zero = dev_max_lanes<GROUP_LANES>(other) == 0;
    __syncwarp(); /* all lanes have read amax */
    if (group >= a.groups)
        return;
    store_codes(a, row, group, words);
    if (threadIdx.x % GROUP_LANES == 0)
        s.amax[group] = bits | (zero ? 0x10000u : 0);
}

static __device__ __forceinline__ const float *importance_of(const int4_search_args &a,
                                                             uint64_t row, uint32_t group,
                                                             bool inside)
{
    if (a.how.weights != TP_IMPORTANCE_FILE || !inside)
        return NULL;
    return a.how.importance + row / a.n * a.k + group * 128;
}

/* The best group scale of every group with every channel scale, and sums of their errors. */
template <int DT, bool WEIGHTED>
static __device__ void fit_row(const int4_search_args &a, const row_state &s, uint64_t row,
                               const row_top &top, uint32_t max)
{
    const uint32_t groups = (uint32_t)a.groups, teams = blockDim.x / GROUP_LANES;
    for (uint32_t first = 0; first < groups; first += teams) {
        const uint32_t group = first + threadIdx.x / GROUP_LANES;
        const bool inside = group < groups;
        dev_raw8<DT> r[2];
        group_load<DT>(a.in, row * groups + group, inside, r);
        const uint32_t amax = inside ? s.amax[group] : 0;
        const bool flip = a.how.is_signed && group_flips<DT>(r);
#pragma unroll 1
        for (int i = 0; i < TP_SEARCH_TOPS; i++) {
            const dev_top c = dev_top_of(top.amax, a.how.is_signed, a.how.top_rule, i);
            if (i > 0 && c.min)
                continue;
            const group_range range = range_of(amax, c, a.how.is_signed);
            const bool alone = group == top.group && !c.min;
            const group_ints ints = group_ints_of<DT, WEIGHTED>(
                a.how, r, c.reciprocal, __float_as_uint(range.largest), flip,
                importance_of(a, row, group, inside));
            const group_fit fit = fit_group<WEIGHTED>(
                ints, alone && range.t ? TP_SEARCH_TOP_G : range.t, alone);
            const uint32_t shift = 2 * (max_of(max, i) - (__float_as_uint(range.largest) >> 23));
            if (threadIdx.x % GROUP_LANES == 0 && inside) {
                s.t[group * TP_SEARCH_TOPS + i] = (uint8_t)(range.t ? fit.t : 0);
                if (range.t && shift < 64)
                    atomicAdd(&s.total[i], (unsigned long long)(fit.error >> shift));
            }
        }
    }
}

/* Codes and scales with channel scale c, candidate i. */
template <int DT>
static __device__ void encode_row(const int4_search_args &a, const row_state &s, uint64_t row,
                                  const dev_top &c, int i)
{
    const uint32_t groups = (uint32_t)a.groups, teams = blockDim.x / GROUP_LANES;
    for (uint32_t first = 0; first < groups; first += teams) {
        const uint32_t group = first + threadIdx.x / GROUP_LANES;
        const bool inside = group < groups;
        dev_raw8<DT> r[2];
        uint32_t words[2] = {0x88888888u, 0x88888888u};
        group_load<DT>(a.in, row * groups + group, inside, r);
        const uint32_t amax = inside ? s.amax[group] : 0;
        const uint32_t t = inside ? s.t[group * TP_SEARCH_TOPS + i] : 0;
        const bool flip = a.how.is_signed && group_flips<DT>(r);
        if (t != 0) {
            const uint32_t largest =
                __float_as_uint(__fmul_rn(__uint_as_float(amax), c.reciprocal));
            const float unit = dev_search_unit(largest);
            float x[LANE_VALUES], of[9];
#pragma unroll
            for (int v = 0; v < LANE_VALUES; v++)
                x[v] = dev_search_int(__fmul_rn(group_value<DT>(r, v), c.reciprocal),
                                      flip ? -unit : unit);
            multiples(t, unit, of);
            words[0] = nearest8(x, of);
            words[1] = nearest8(x + 8, of);
        }
        store_group(a, s, row, group, t ? dev_top_group(c, t, flip) : c.scale, words);
    }
}

/* A row that is not searched. */
template <int DT>
static __device__ void encode_row_by_rule(const int4_search_args &a, const row_state &s,
                                          uint64_t row)
{
    const uint32_t groups = (uint32_t)a.groups, teams = blockDim.x / GROUP_LANES;
    for (uint32_t first = 0; first < groups; first += teams) {
        const uint32_t group = first + threadIdx.x / GROUP_LANES;
        dev_raw8<DT> r[2];
        uint32_t words[2];
        group_load<DT>(a.in, row * groups + group, group < groups, r);
        const uint32_t amax = group_amax<DT>(r), scale = dev_int4_scale(amax);
        dev_flag(a.flags, amax);
        group_codes_by_rule<DT>(r, amax, scale, a.rule, words);
        store_group(a, s, row, group, scale, words);
    }
}

template <int DT>
static __device__ void survey_row(const int4_search_args &a, const row_state &s, uint64_t row)
{
    const uint32_t groups = (uint32_t)a.groups, teams = blockDim.x / GROUP_LANES;
    for (uint32_t first = 0; first < groups; first += teams) {
        const uint32_t group = first + threadIdx.x / GROUP_LANES;
        dev_raw8<DT> r[2];
        group_load<DT>(a.in, row * groups + group, group < groups, r);
        const uint32_t amax = group_amax<DT>(r);
        if (threadIdx.x % GROUP_LANES == 0 && group < groups)
            s.amax[group] = amax;
    }
    if (threadIdx.x < TP_SEARCH_TOPS)
        s.total[threadIdx.x] = 0;
}

/* The channel scale of the least error, of those that the row has; its number in `best`. */
static __device__ dev_top best_top(const int4_search_args &a, const row_state &s,
                                   const row_top &top, uint32_t max, int &best)
{
    dev_top chosen;
    double min = 0;
    best = 0;
#pragma unroll 1
    for (int i = 0; i < TP_SEARCH_TOPS; i++) {
        const dev_top c = dev_top_of(top.amax, a.how.is_signed, a.how.top_rule, i);
        const double cost = dev_row_cost(s.total[i], c, (int)max_of(max, i) - 127);
        if (i == 0 || (!c.min && cost < min)) {
            min = cost;
            chosen = c;
            best = i;
        }
    }
    return chosen;
}

/* The scales that are stored for a row, from those that were kept. */
static __device__ void store_scales(const int4_search_args &a, const row_state &s, uint64_t row,
                                    uint32_t lane)
{
    const uint32_t groups = (uint32_t)a.groups;
    const uint64_t e = row / a.n, n = row - e * a.n;
    uint32_t amax = 0;
    if (!a.tiled) {
        for (uint32_t g = threadIdx.x; g < groups; g += blockDim.x)
            ((uint16_t *)a.scale)[row * groups + g] = (uint16_t)s.amax[g];
        return;
    }
    for (uint32_t g = lane; g < groups; g += 32)
        if (!(a.skip_zero && s.amax[g] >> 16))
            amax = max(amax, s.amax[g] & 0x7FFFu);
    const dev_channel c = dev_channel_of(dev_max_lanes<32>(amax), a.channel_rule);
    if (threadIdx.x == 0)
        a.channel[row] = dev_channel_value(c);
    for (uint32_t g = threadIdx.x; g < groups; g += blockDim.x)
        *(uint2 *)(a.scale + ((e * groups + g) * a.n + n) * 8) = dev_group8(s.amax[g], c);
}

template <int DT, bool WEIGHTED>
static __global__ __launch_bounds__(INT4_THREADS) void
search_rows(const __grid_constant__ struct int4_search_args a)
{
    extern __shared__ unsigned long long shared[];
    const uint64_t row = blockIdx.x;
    const uint32_t groups = (uint32_t)a.groups, lane = threadIdx.x % 32;
    row_state s;
    s.total = shared;
    s.amax = (uint32_t *)(shared + TP_SEARCH_TOPS);
    s.t = (uint8_t *)(s.amax + groups);
    survey_row<DT>(a, s, row);
    __syncthreads();
    const row_top top = find_top(s, groups, lane);
    if (tp_search_live(top.amax)) {
        const uint32_t max = max_exponents(a, s, top, lane);
        int best;
        fit_row<DT, WEIGHTED>(a, s, row, top, max);
        __syncthreads();
        const dev_top c = best_top(a, s, top, max, best);
        encode_row<DT>(a, s, row, c, best);
    } else {
        __syncthreads(); /* every warp has looked at all of amax */
        encode_row_by_rule<DT>(a, s, row);
    }
    __syncthreads();
    store_scales(a, s, row, lane);
}

/* Threads for a row of so many groups: whole warps, with few idle in the last round. */
static uint32_t threads_for(uint64_t groups)
{
    const uint64_t max = INT4_THREADS / GROUP_LANES, rounds = dev_ceil(groups, max);
    return (uint32_t)dev_up(dev_ceil(groups, rounds) * GROUP_LANES, 32);
}

template <int DT> static void launch(const struct tp_op *op, struct tp_args *args)
{
    const struct int4_search_args a = int4_search_args_of(op, args);
    const uint64_t shared = 8 * TP_SEARCH_TOPS + a.groups * GROUP_BYTES;
    const uint32_t threads = a.groups ? threads_for(a.groups) : 0;
    cudaStream_t stream = (cudaStream_t)args->stream;
    if (args->box.k % 128 != 0 || (a.tiled && a.n % 16 != 0) || a.rows > 0x7FFFFFFFu ||
        shared > ROW_SHARED)
        tp_cuda_encode_any(op, args);
    else if (a.how.weights != TP_IMPORTANCE_NONE)
        search_rows<DT, true><<<(uint32_t)a.rows, threads, shared, stream>>>(a);
    else
        search_rows<DT, false><<<(uint32_t)a.rows, threads, shared, stream>>>(a);
}

extern "C" void tp_cuda_w4a8_search(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch, op, args);
}

