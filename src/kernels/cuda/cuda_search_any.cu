/* The scale search on the device, whatever the layouts, codec and shape: what the fast
 * searches fall back to. The counterpart of search*.c.
 *
 * One warp for each block (each row, for W4A8). Integers and root weights are computed anew
 * for every candidate, in 64 bits, so that blocks may have any size and nothing is kept.
 * Invariant: bytes equal ref.c.
 */
#include "kernels/cuda/cuda_any.cuh"

/* Consecutive values of a row, all of one block. */
struct any_run {
    uint64_t first, count;
    const float *importance; /* of their columns */
};

/* What struct tp_search_ints has, but for the integers themselves. */
struct any_ints {
    float factor;
    int e;
    bool flip;
    uint32_t weights; /* enum tp_importance; NONE: every root is 1 */
    int64_t mean;     /* MAGNITUDE */
    float max;        /* the largest weight */
};

struct any_values {
    int32_t of[16];
};

static __device__ uint64_t sum_lanes(uint64_t v)
{
    for (int d = 16; d; d >>= 1)
        v += __shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)v, d);
    return v;
}

static __device__ uint64_t max_lanes(uint64_t v)
{
    for (int d = 16; d; d >>= 1)
        v = max(v, (uint64_t)__shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)v, d));
    return v;
}

static __device__ float run_value(const any_args &a, const any_run &run, uint64_t i)
{
    return load_value(a.in, a.dtype, run.first + i);
}

static __device__ uint32_t run_amax(const any_args &a, const any_run &run, uint32_t lane)
{
    uint32_t amax = 0;
    for (uint64_t i = lane; i < run.count; i += 32)
        amax = max(amax, tp_abs_bits(run_value(a, run, i)));
    return dev_max_lanes<32>(amax);
}

static __device__ int32_t int_at(const any_args &a, const any_run &run, const any_ints &ints,
                                 uint64_t i)
{
    int32_t x = tp_search_int(__fmul_rn(run_value(a, run, i), ints.factor), ints.e);
    return ints.flip ? -x : x;
}

static __device__ int32_t root_at(const any_run &run, const any_ints &ints, uint64_t i, int64_t x)
{
    if (ints.weights == TP_IMPORTANCE_MAGNITUDE)
        return tp_search_root(__fdiv_rn((float)(x * x + ints.mean), ints.max));
    if (ints.weights == TP_IMPORTANCE_FILE)
        return tp_search_root(__fdiv_rn(run.importance[i], ints.max));
    return 1;
}

/* The numbers that all roots of the run depend on. */
static __device__ void weigh(const any_args &a, const any_run &run, any_ints &ints, uint32_t lane)
{
    uint64_t sum = 0, largest = 0;
    uint32_t max_value = 0;
    ints.weights = a.how.weights;
    for (uint64_t i = lane; i < run.count && ints.weights == TP_IMPORTANCE_MAGNITUDE; i += 32) {
        const int64_t x = int_at(a, run, ints, i);
        sum += (uint64_t)(x * x);
        largest = max(largest, (uint64_t)(x * x));
    }
    for (uint64_t i = lane; i < run.count && ints.weights == TP_IMPORTANCE_FILE; i += 32)
        max_value = max(max_value, tp_abs_bits(run.importance[i]));
    max_value = dev_max_lanes<32>(max_value);
    ints.mean = (int64_t)(sum_lanes(sum) / run.count);
    ints.max = __uint_as_float(max_value);
    if (ints.weights == TP_IMPORTANCE_MAGNITUDE)
        ints.max = (float)max((int64_t)max_lanes(largest) + ints.mean, (int64_t)1);
    else if (max_value < TP_SEARCH_MIN)
        ints.weights = TP_IMPORTANCE_NONE;
}

static __device__ bool run_flips(const any_args &a, const any_run &run, uint32_t lane)
{
    uint32_t max_value[2] = {0, 0};
    for (uint64_t i = lane; i < run.count && a.how.is_signed; i += 32) {
        const uint32_t bits = tp_f32_bits(run_value(a, run, i)), m = bits & 0x7FFFFFFFu;
        if (bits >> 31)
            max_value[1] = max(max_value[1], m);
        else
            max_value[0] = max(max_value[0], m);
    }
    return dev_max_lanes<32>(max_value[0]) > dev_max_lanes<32>(max_value[1]);
}

static __device__ any_ints take(const any_args &a, const any_run &run, float factor, int e,
                                uint32_t lane)
{
    any_ints ints;
    ints.factor = factor;
    ints.e = e;
    ints.flip = a.how.is_signed && run_flips(a, run, lane);
    weigh(a, run, ints, lane);
    return ints;
}

static __device__ uint64_t error_of(const any_args &a, const any_run &run, const any_ints &ints,
                                    const any_values &v, uint32_t lane)
{
    uint64_t sum = 0;
    for (uint64_t i = lane; i < run.count; i += 32) {
        const int32_t x = int_at(a, run, ints, i);
        int32_t min_value = INT32_MAX;
#pragma unroll
        for (int q = 0; q < 16; q++)
            min_value = min(min_value, abs(x - v.of[q]));
        const int64_t d = (int64_t)min_value * root_at(run, ints, i, x);
        sum += (uint64_t)(d * d);
    }
    return sum_lanes(sum);
}

/* ---- candidates of one block ----------------------------------------------- */

struct any_best {
    uint64_t error;
    uint32_t scale;
};

static __device__ void offer(any_best &best, uint64_t error, uint32_t scale)
{
    if (error < best.error) {
        best.error = error;
        best.scale = scale;
    }
}

static __device__ any_values int4_values(int32_t step)
{
    any_values v;
    for (int q = -8; q < 8; q++)
        v.of[q + 8] = q * step;
    return v;
}

static __device__ any_values e2m1_values(int32_t step)
{
    any_values v;
    for (int c = 0; c < 8; c++) {
        const int32_t twice = c < 5 ? c : c == 5 ? 6 : c == 6 ? 8 : 12;
        v.of[c] = twice * step;
        v.of[8 + c] = -twice * step;
    }
    return v;
}

static __device__ uint32_t search_int4(const any_args &a, const any_run &run, uint32_t amax,
                                       uint32_t lane)
{
    const any_ints ints = take(a, run, 1.0f, tp_search_exponent(amax), lane);
    any_best best = {UINT64_MAX, 0};
    for (int i = 0; i < TP_SEARCH_INT4; i++) {
        const uint16_t scale = tp_search_int4_scale(amax, a.f16, a.how.is_signed, i);
        const any_values v = int4_values(tp_search_int4_step(scale, a.f16, ints.e));
        offer(best, error_of(a, run, ints, v, lane), scale);
    }
    return ints.flip ? best.scale | 0x8000u : best.scale;
}

static __device__ uint32_t search_nvfp4(const any_args &a, const any_run &run, uint32_t amax,
                                        uint32_t plain, uint32_t lane)
{
    const float factor = a.rule == TP_NVFP4_CT ? a.global : __fdiv_rn(1.0f, a.global);
    const float max = __fmul_rn(tp_bits_f32(amax), factor);
    any_best best = {UINT64_MAX, plain};
    if (!tp_search_nvfp4_live(amax, max))
        return plain;
    const any_ints ints = take(a, run, factor, tp_search_exponent(tp_f32_bits(max)), lane);
    for (int i = 0; i < TP_SEARCH_NVFP4; i++) {
        const int t = tp_search_nvfp4_byte((uint8_t)plain, i);
        if (t < 1 || t > TP_E4M3_MAX)
            continue;
        const any_values v = e2m1_values(tp_search_nvfp4_step((uint8_t)t, ints.e));
        offer(best, error_of(a, run, ints, v, lane), (uint32_t)t);
    }
    return best.scale;
}

static __device__ uint32_t search_mxfp4(const any_args &a, const any_run &run, uint32_t amax,
                                        uint32_t plain, uint32_t lane)
{
    const any_ints ints = take(a, run, 1.0f, tp_search_exponent(amax), lane);
    any_best best = {UINT64_MAX, plain};
    for (int i = 0; i < TP_SEARCH_MXFP4; i++) {
        const uint8_t b = tp_search_mxfp4_byte(amax, (uint8_t)plain, i);
        const any_values v = e2m1_values(tp_search_mxfp4_step(b, ints.e));
        offer(best, error_of(a, run, ints, v, lane), b);
    }
    return best.scale;
}

/* scale_of(), searched. */
static __device__ any_scale search_scale(const any_args &a, const any_run &run, uint32_t amax,
                                         uint32_t lane)
{
    any_scale s = scale_of(a, amax);
    if (!tp_search_live(amax) || (a.f16 && !tp_search_f16_live(amax)))
        return s;
    if (a.codec == TP_CODEC_INT4) {
        s.bits = search_int4(a, run, amax, lane);
        s.fp8.factor = scale_value(a.codec, a.f16, s.bits);
    } else if (a.codec == TP_CODEC_NVFP4) {
        s.bits = search_nvfp4(a, run, amax, s.bits, lane);
        s.fp8.factor = dev_nvfp4_factor(a.rule, s.bits, a.global);
    } else {
        s.bits = search_mxfp4(a, run, amax, s.bits, lane);
        s.fp8.factor = tp_e8m0_reciprocal((uint8_t)s.bits);
    }
    return s;
}

static __device__ any_run run_of(const any_args &a, const any_block &b)
{
    any_run run;
    run.first = block_index(a, b, 0);
    run.count = b.columns;
    run.importance =
        a.how.weights == TP_IMPORTANCE_FILE ? a.how.importance + b.e * a.box.k + b.k0 : NULL;
    return run;
}

static __global__ __launch_bounds__(ANY_THREADS) void
search_blocks(const __grid_constant__ struct any_args a)
{
    const uint64_t blocks = any_blocks(a);
    const uint32_t lane = threadIdx.x % 32;
    uint64_t w = ((uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x) / 32;
    if (a.side.global.data != NULL && blockIdx.x == 0 && threadIdx.x == 0)
        store_global(a.side.global, a.global);
    for (; w < blocks; w += (uint64_t)gridDim.x * ANY_THREADS / 32) {
        const any_block b = any_block_of(a, w);
        const any_scale s = search_scale(a, run_of(a, b), any_amax(a, b, lane), lane);
        if (lane == 0)
            dev_flag_bad(a.flags, s.bad);
        const bool zero = encode_codes(a, b, s, lane);
        if (a.half == 0)
            encode_scales(a, b, s.bits, zero, lane);
    }
}

/* ---- W4A8: a row ------------------------------------------------------------ */

struct any_row {
    any_block b;     /* its first group */
    uint64_t groups;
    uint32_t amax;   /* of group `top` */
    uint64_t top;
};

static __device__ any_block group_of(const any_args &a, const any_row &row, uint64_t j)
{
    any_block b = row.b;
    b.k0 = j * a.block_k;
    b.columns = min(a.block_k, a.box.k - b.k0);
    return b;
}

static __device__ any_row row_of(const any_args &a, uint64_t w, uint32_t lane)
{
    any_row row;
    row.groups = dev_ceil(a.box.k, a.block_k);
    row.b = any_block_of(a, w * row.groups);
    row.amax = 0;
    row.top = 0;
    for (uint64_t j = 0; j < row.groups; j++) {
        const uint32_t amax = any_amax(a, group_of(a, row, j), lane);
        if (amax > row.amax) {
            row.amax = amax;
            row.top = j;
        }
    }
    return row;
}

static __device__ any_values w4a8_values(uint8_t t, int e)
{
    any_values v;
    for (int q = -8; q < 8; q++) {
        const int32_t multiple = tp_search_w4a8_multiple(t, q < 0 ? -q : q, e);
        v.of[q + 8] = q < 0 ? -multiple : multiple;
    }
    return v;
}

/* A group's best scale with channel scale c: its error, and t as `scale`, 0 if it is dead. */
struct any_fit {
    any_best best;
    any_ints ints;
};

static __device__ any_fit fit_group(const any_args &a, const any_row &row, const dev_top &c,
                                    uint64_t j, uint32_t lane)
{
    const any_block b = group_of(a, row, j);
    const any_run run = run_of(a, b);
    const uint32_t amax = run_amax(a, run, lane);
    const float max = __fmul_rn(tp_bits_f32(amax), c.reciprocal);
    uint8_t t = tp_search_w4a8_group(max, a.how.is_signed);
    int count = TP_SEARCH_GROUPS;
    any_fit fit;
    fit.best.error = UINT64_MAX;
    fit.best.scale = 0;
    if (!tp_search_live(amax) || t == 0)
        return fit;
    fit.ints = take(a, run, c.reciprocal, tp_search_exponent(tp_f32_bits(max)), lane);
    if (j == row.top && !c.min) {
        t = TP_SEARCH_TOP_G;
        count = 1;
    }
    for (int i = 0; i < count && t - i > 0; i++) {
        const any_values v = w4a8_values((uint8_t)(t - i), fit.ints.e);
        offer(fit.best, error_of(a, run, fit.ints, v, lane), (uint32_t)(t - i));
    }
    return fit;
}

/* The error of the row, for comparison with that of other channel scales. */
static __device__ double cost_of(const any_args &a, const any_row &row, const dev_top &c,
                                 uint32_t lane)
{
    int max_value = -126;
    uint64_t total = 0;
    for (uint64_t j = 0; j < row.groups; j++) {
        const uint32_t amax = any_amax(a, group_of(a, row, j), lane);
        const float largest = __fmul_rn(tp_bits_f32(amax), c.reciprocal);
        if (tp_search_live(amax) && tp_search_w4a8_group(largest, a.how.is_signed) > 0)
            max_value = max(max_value, tp_search_exponent(tp_f32_bits(largest)));
    }
    for (uint64_t j = 0; j < row.groups; j++) {
        const any_fit fit = fit_group(a, row, c, j, lane);
        if (fit.best.scale != 0 && 2 * (max_value - fit.ints.e) < 64)
            total += fit.best.error >> 2 * (max_value - fit.ints.e);
    }
    return dev_row_cost(total, c, max_value);
}

static __device__ dev_top search_top(const any_args &a, const any_row &row, uint32_t lane)
{
    dev_top best = dev_top_of(row.amax, a.how.is_signed, a.how.top_rule, 0);
    double min = cost_of(a, row, best, lane);
    for (int r = 1; r < TP_SEARCH_TOPS; r++) {
        const dev_top c = dev_top_of(row.amax, a.how.is_signed, a.how.top_rule, r);
        const double cost = c.min ? min : cost_of(a, row, c, lane);
        if (cost < min) {
            min = cost;
            best = c;
        }
    }
    return best;
}

/* The nearest value's code; of two the one next to zero. */
static __device__ uint8_t nearest(int32_t x, const any_values &v)
{
    int best = 0;
    int32_t min = abs(x);
    for (int m = 1; m <= 8; m++) {
        const int q = x < 0 ? -m : m;
        const int32_t d = q > 7 ? INT32_MAX : abs(x - v.of[q + 8]);
        if (d < min) {
            min = d;
            best = q;
        }
    }
    return (uint8_t)(best + 8);
}

/* Codes of a group; true when all of them are zero. */
static __device__ bool store_group(const any_args &a, const any_block &b, const any_fit &fit,
                                   uint32_t lane)
{
    const any_run run = run_of(a, b);
    any_values v;
    bool zero = true;
    if (fit.best.scale != 0)
        v = w4a8_values((uint8_t)fit.best.scale, fit.ints.e);
    for (uint64_t i = lane; i < b.columns; i += 32) {
        uint8_t code = 8;
        if (fit.best.scale != 0)
            code = nearest(int_at(a, run, fit.ints, i), v);
        zero = zero && code == 8;
        store_code(a.side.codes, a.table, a.half, at_of(a.side.codes, b.e, b.n0, b.k0 + i), code);
    }
    return __all_sync(0xFFFFFFFFu, zero);
}

static __device__ void search_row(const any_args &a, const any_row &row, uint32_t lane)
{
    const dev_top c = search_top(a, row, lane);
    for (uint64_t j = 0; j < row.groups; j++) {
        const any_block b = group_of(a, row, j);
        const any_fit fit = fit_group(a, row, c, j, lane);
        uint32_t bits = c.scale;
        if (fit.best.scale != 0)
            bits = dev_top_group(c, fit.best.scale, fit.ints.flip);
        const bool zero = store_group(a, b, fit, lane);
        if (a.half == 0)
            encode_scales(a, b, bits, zero, lane);
    }
}

static __device__ void row_by_rule(const any_args &a, const any_row &row, uint32_t lane)
{
    for (uint64_t j = 0; j < row.groups; j++) {
        const any_block b = group_of(a, row, j);
        const any_scale s = scale_of(a, any_amax(a, b, lane));
        if (lane == 0)
            dev_flag_bad(a.flags, s.bad);
        const bool zero = encode_codes(a, b, s, lane);
        if (a.half == 0)
            encode_scales(a, b, s.bits, zero, lane);
    }
}

static __global__ __launch_bounds__(ANY_THREADS) void
search_rows(const __grid_constant__ struct any_args a)
{
    const uint64_t rows = a.box.e * a.box.n;
    const uint32_t lane = threadIdx.x % 32;
    uint64_t w = ((uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x) / 32;
    for (; w < rows; w += (uint64_t)gridDim.x * ANY_THREADS / 32) {
        const any_row row = row_of(a, w, lane);
        if (tp_search_live(row.amax))
            search_row(a, row, lane);
        else
            row_by_rule(a, row, lane);
    }
}

extern "C" void tp_cuda_search_any(const struct tp_op *op, struct tp_args *args)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    const bool rows = tp_op_search(op) == TP_SEARCH_W4A8;
    struct any_args a = tp_cuda_any_args(op, args, args->out);
    if (args->flags & TP_FAILED)
        return;
    tp_cuda_any_fill(op, a, stream);
    for (a.half = 0; a.half < halves_of(a.side.codes); a.half++)
        if (rows)
            search_rows<<<grid_for(a.box.e * a.box.n * 32), ANY_THREADS, 0, stream>>>(a);
        else
            search_blocks<<<grid_for(any_blocks(a) * 32), ANY_THREADS, 0, stream>>>(a);
    tp_cuda_any_finish(a, stream);
}
