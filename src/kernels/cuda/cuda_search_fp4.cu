/* e2m1 with blocks along K and row-major codes, with the scale search: NVFP4 in 1x16 blocks
 * among nine e4m3 scales, MXFP4 in 1x32 blocks between two exponents.
 *
 * As cuda_fp4.cu: a thread takes 16 values of a row. It holds their magnitudes as integers,
 * and for each candidate finds the nearest codes of all in packed form, from which integer
 * dot products make the error. Invariant: bytes equal tp_encode_ref, padding included.
 */
#include "kernels/cuda/cuda_fp4.cuh"
#include "kernels/cuda/cuda_search.cuh"

/* Constants that the compiler does not know. */
struct fp4_unknown {
    uint32_t four;  /* 4: a product with it is left to the unit that multiplies, since the one
                       that shifts, permutes and compares has most to do here */
    uint32_t twice; /* codes 0 .. 3 in half steps, kept in a register */
};

/* Magnitudes X of 16 values with root weights R. Sums of R^2 X c and R^2 c^2 over the nearest
 * codes c tell how much less a candidate's error is than the sum of (R X)^2. Without weights
 * R^2 is 1 and `square`, `high` are not used. */
struct fp4_ints {
    float x[UNIT];             /* X * 2^-100 */
    uint32_t low[UNIT / 2];    /* the low halves of R^2 X, two to a word */
    uint32_t high[UNIT / 4];   /* the high ones, four to a word */
    uint32_t square[UNIT / 4]; /* R^2, four to a word */
    struct fp4_unknown unknown;
};

#define TINY 7.8886091e-31f /* 2^-100 */

/* 16 magnitudes times factor, in the units of the block: DEV_ROUND added, so that the integers
 * are in the low bits. */
template <int DT>
static __device__ __forceinline__ void fp4_take(const dev_raw8<DT> (&r)[2], float factor,
                                                float unit, float (&x)[UNIT])
{
#pragma unroll
    for (int i = 0; i < UNIT; i++) {
        const float y = __fmul_rn(fabsf(dev_value<DT>(r[i / 8], i % 8)), factor);
        x[i] = dev_search_rounded(y, unit);
    }
}

static __device__ __forceinline__ uint32_t pair_of(float low, float high)
{
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x5410);
}

/* Byte `n` of four numbers to which DEV_ROUND was added. */
template <int N>
static __device__ __forceinline__ uint32_t bytes_of(const float *x)
{
    const uint32_t pick = 0x40u + 0x11u * N;
    const uint32_t a = __byte_perm(__float_as_uint(x[0]), __float_as_uint(x[1]), pick);
    return __byte_perm(a, __byte_perm(__float_as_uint(x[2]), __float_as_uint(x[3]), pick), 0x5410);
}

static __device__ __forceinline__ void fp4_pack(const float (&x)[UNIT], fp4_ints &ints)
{
#pragma unroll
    for (int i = 0; i < UNIT; i++)
        ints.x[i] = __fmaf_rn(x[i], TINY, -DEV_ROUND * TINY);
#pragma unroll
    for (int i = 0; i < UNIT / 2; i++)
        ints.low[i] = pair_of(x[2 * i], x[2 * i + 1]);
}

static __device__ __forceinline__ void fp4_pack_weighted(const float (&x)[UNIT],
                                                         const float (&root)[UNIT],
                                                         fp4_ints &ints)
{
    float square[UNIT], product[UNIT]; /* 225 at most, and less than 2^20 */
#pragma unroll
    for (int i = 0; i < UNIT; i++) {
        ints.x[i] = __fmul_rn(x[i], TINY);
        square[i] = __fmaf_rn(root[i], root[i], DEV_ROUND);
        product[i] = __fmaf_rn(__fmul_rn(root[i], root[i]), x[i], DEV_ROUND);
    }
#pragma unroll
    for (int i = 0; i < UNIT / 2; i++)
        ints.low[i] = pair_of(product[2 * i], product[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < UNIT; i += 4) {
        ints.high[i / 4] = bytes_of<2>(&product[i]) & 0x0F0F0F0Fu;
        ints.square[i / 4] = bytes_of<0>(&square[i]);
    }
}

/* The bits of two quotients as e2m1: see nearest4(). */
template <bool CAP>
static __device__ __forceinline__ uint32_t nearest2(const float *x, float per_step, uint32_t four)
{
    float q[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        q[i] = __fmul_rn(x[i], per_step);
        if (CAP)
            q[i] = fminf(q[i], __uint_as_float(0x01C00000u)); /* 12 */
    }
    return __byte_perm(__float_as_uint(q[0]), __float_as_uint(q[1]), 0x7632) * four +
           0x00800080u;
}

/* The codes nearest to four magnitudes, in the lowest nibbles. `per_step` is near 2^-27 over
 * the step, which is half of what code 1.0 is worth. x times that is the quotient q times
 * 2^-127, so that e2m1's steps, in halves, are the upper two bits of significands, and those
 * of numbers below 2 are subnormal: with half of such a step added, the bits from 22 on are
 * the code. A quotient that is not halfway between two codes is 2^-13 from there, relative, or
 * more, and one that is has two nearest codes. CAP: q may be 14 and above. */
template <bool CAP>
static __device__ __forceinline__ uint32_t nearest4(const float *x, float per_step, uint32_t four)
{
    const uint32_t bytes = __byte_perm(nearest2<CAP>(x, per_step, four),
                                       nearest2<CAP>(x + 2, per_step, four), 0x7351);
    return bytes + (bytes >> 12); /* codes 0, 2, 1, 3 */
}

/* The bytes of `low` and `high` that four nibbles below 8 say. */
static __device__ __forceinline__ uint32_t lookup4(uint32_t low, uint32_t high, uint32_t nibbles)
{
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(nibbles));
    return bytes;
}

/* How much less than the sum of (R X)^2 the error with this step is. */
template <bool WEIGHTED, bool CAP>
static __device__ __forceinline__ uint64_t fp4_gain(const fp4_ints &ints, float step)
{
    const float per_step = __fmul_rn(dev_reciprocal_near(step), 7.4505806e-9f); /* 2^-27 */
    uint32_t product = 0, high = 0, square = 0;
#pragma unroll
    for (int j = 0; j < UNIT / 4; j++) {
        const uint32_t codes = nearest4<CAP>(&ints.x[4 * j], per_step, ints.unknown.four);
        const uint32_t twice = lookup4(ints.unknown.twice, 0x0C080604u, codes);
        product = __dp2a_lo(ints.low[2 * j], twice, product);
        product = __dp2a_hi(ints.low[2 * j + 1], twice, product);
        if (WEIGHTED) {
            high = __dp4a(ints.high[j], twice, high);
            square = __dp4a(ints.square[j], lookup4(0x09040100u, 0x90402410u, codes), square);
        } else {
            square = __dp4a(twice, twice, square);
        }
    }
    if (WEIGHTED)
        product += high << 16;
    const uint32_t s = __float_as_uint(__fadd_rn(step, 8388608.0f)) & 0x7FFFFFu;
    const uint32_t rest = 2u * product - s * square; /* not negative */
    return WEIGHTED ? (uint64_t)s * rest : s * rest; /* without weights below 2^32 */
}

/* ---- NVFP4 ------------------------------------------------------------------- */

/* Steps of the scales around the rule's own, `plain`. PLAIN: all of plain - 2 .. plain + 6 are
 * normal numbers of e4m3, so that their bits follow each other. */
template <bool PLAIN> struct nv_steps {
    uint32_t plain, bits; /* of plain's step */
    float half;           /* half of the block's unit */

    __device__ __forceinline__ float of(int t) const
    {
        if (PLAIN)
            return __uint_as_float(bits + (uint32_t)(t - (int)plain) * 0x00100000u);
        return __fmul_rn(dev_e4m3_value((uint32_t)t & 0xFFu), half);
    }
};

/* The best candidate so far. */
struct nv_choice {
    uint64_t gain;
    uint32_t t;
};

/* Candidate plain + OFFSET, if it is a scale and better. A candidate at or below the rule's
 * own may clip; the next one does not: a sixth of the largest value is no more than half a
 * step of e4m3 above the rule's, or the rule's is the last. */
template <bool WEIGHTED, bool PLAIN, int OFFSET>
static __device__ __forceinline__ void nv_offer(const fp4_ints &ints,
                                                const nv_steps<PLAIN> &steps, nv_choice &best)
{
    const int t = (int)steps.plain + OFFSET;
    const uint64_t gain = fp4_gain<WEIGHTED, OFFSET <= 0>(ints, steps.of(t));
    if ((PLAIN || (t >= 1 && t <= TP_E4M3_MAX)) && gain > best.gain) {
        best.gain = gain;
        best.t = (uint32_t)t;
    }
}

template <bool WEIGHTED, bool PLAIN>
static __device__ __forceinline__ uint32_t nv_best(const fp4_ints &ints, uint32_t plain,
                                                   float unit)
{
    const float half = __fmul_rn(unit, 0.5f);
    const nv_steps<PLAIN> steps = {
        plain, __float_as_uint(__fmul_rn(dev_e4m3_value(plain), half)), half};
    nv_choice best = {fp4_gain<WEIGHTED, true>(ints, steps.of((int)plain)), plain};
    nv_offer<WEIGHTED, PLAIN, -1>(ints, steps, best);
    nv_offer<WEIGHTED, PLAIN, 1>(ints, steps, best);
    nv_offer<WEIGHTED, PLAIN, -2>(ints, steps, best);
    nv_offer<WEIGHTED, PLAIN, 2>(ints, steps, best);
    nv_offer<WEIGHTED, PLAIN, 3>(ints, steps, best);
    nv_offer<WEIGHTED, PLAIN, 4>(ints, steps, best);
    nv_offer<WEIGHTED, PLAIN, 5>(ints, steps, best);
    nv_offer<WEIGHTED, PLAIN, 6>(ints, steps, best);
    return best.t;
}

struct fp4_search_args {
    struct fp4_args fp4;
    struct dev_search how;
    struct fp4_unknown unknown;
};

/* Root weights of the 16 values x of thread i, LANES of which share a block; `sum` of the
 * squares of x. */
template <int LANES>
static __device__ __forceinline__ void fp4_roots(const fp4_search_args &a, uint32_t i,
                                                 const float (&x)[UNIT], uint32_t sum,
                                                 float largest, float (&root)[UNIT])
{
    if (a.how.weights == TP_IMPORTANCE_MAGNITUDE) {
        dev_roots_of_magnitude<UNIT, LANES>(x, sum, largest, root);
        return;
    }
    const uint32_t block = min(i, a.fp4.count - 1) / LANES;
    const uint32_t row = dev_quotient(block, a.fp4.by_columns);
    const uint32_t column = (block - row * a.fp4.columns) * LANES + i % LANES;
    const uint64_t k = (uint64_t)a.fp4.columns * LANES * UNIT;
    const float *h = a.how.importance + dev_quotient(row, a.fp4.by_rows) * k + column * UNIT;
    float w[UNIT];
    dev_load_importance(h, w);
    dev_load_importance(h + 8, w + 8);
    dev_roots_of_file<UNIT, LANES>(w, root);
}

template <bool WEIGHTED, int LANES>
static __device__ __forceinline__ fp4_ints fp4_ints_of(const fp4_search_args &a, uint32_t i,
                                                       float (&x)[UNIT], float largest)
{
    fp4_ints ints;
    float root[UNIT];
    uint32_t sum = 0;
    ints.unknown = a.unknown;
    if (WEIGHTED) {
#pragma unroll
        for (int v = 0; v < UNIT; v++) {
            sum += dev_square(x[v]);
            x[v] = __fadd_rn(x[v], -DEV_ROUND);
        }
        fp4_roots<LANES>(a, i, x, sum, largest, root);
        fp4_pack_weighted(x, root, ints);
    } else {
        fp4_pack(x, ints);
    }
    return ints;
}

/* tp_search_nvfp4_live(): fp32's sixth of the bits 0x3BC00000 is just what e4m3 has as 0. */
static __device__ __forceinline__ bool nv_live(uint32_t amax, float largest)
{
    return tp_search_live(amax) && __float_as_uint(largest) - 0x3BC00001u < 0x09BFFFFFu;
}

/* The rule's own scale byte. */
template <int DT>
static __device__ __forceinline__ uint32_t nv_plain(const fp4_args &a, uint32_t amax)
{
    float factor;
    if (a.rule == TP_NVFP4_CT)
        return ct_scale<DT>(a, amax, &factor);
    return dev_nvfp4_scale(a.rule, amax, a.global, &factor);
}

/* The scale byte of a block. */
template <int DT, bool WEIGHTED>
static __device__ __forceinline__ uint32_t nv_search(const fp4_search_args &a, uint32_t i,
                                                     const dev_raw8<DT> (&r)[2], uint32_t amax)
{
    const float factor = a.fp4.rule == TP_NVFP4_CT ? a.fp4.global : a.fp4.reciprocal;
    const float largest = __fmul_rn(__uint_as_float(amax), factor);
    const float unit = dev_search_unit(__float_as_uint(largest));
    const bool live = nv_live(amax, largest);
    const uint32_t plain = nv_plain<DT>(a.fp4, amax);
    uint32_t best;
    float x[UNIT];
    fp4_take<DT>(r, factor, unit, x);
    const fp4_ints ints = fp4_ints_of<WEIGHTED, 1>(a, i, x, dev_search_int(largest, unit));
    if (__any_sync(0xFFFFFFFFu, live && plain - 10u > TP_E4M3_MAX - 16u))
        best = nv_best<WEIGHTED, false>(ints, plain, unit);
    else
        best = nv_best<WEIGHTED, true>(ints, plain, unit);
    return live ? best : plain;
}

template <int DT>
static __device__ __forceinline__ uint2 nv_searched_codes(const fp4_search_args &a,
                                                          dev_raw8<DT> (&r)[2], uint32_t amax,
                                                          uint32_t scale)
{
    const uint32_t rule = a.fp4.rule;
    float factor = rule == TP_NVFP4_CT ? ct_factor(a.fp4, scale)
                                       : dev_nvfp4_factor(rule, scale, a.fp4.global);
    const nv_block b = nv_block_of(rule, factor, amax, 1048576.0f);
    if (rule == TP_NVFP4_MODELOPT)
        plain_zeros<DT>(r);
    if (__any_sync(0xFFFFFFFFu, b.special)) {
        factor = dev_nvfp4_factor(rule, scale, a.fp4.global);
        return make_uint2(any_codes<DT>(r[0], factor, rule), any_codes<DT>(r[1], factor, rule));
    }
    return make_uint2(nv_codes<DT, true>(r[0], b, rule), nv_codes<DT, true>(r[1], b, rule));
}

/* ---- MXFP4 ------------------------------------------------------------------- */

static __device__ __forceinline__ uint64_t sum_pair(uint64_t v)
{
    return v + __shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)v, 1);
}

/* The scale byte of a block, two threads to one. The rule's is one of two candidates, of
 * which steps are 256 and 512, and keeps a tie. */
template <int DT, bool WEIGHTED>
static __device__ __forceinline__ uint32_t mx_search(const fp4_search_args &a, uint32_t i,
                                                     const dev_raw8<DT> (&r)[2], uint32_t amax)
{
    const float unit = dev_search_unit(amax);
    const uint32_t plain = dev_mxfp4_scale(a.fp4.rule, amax), floor = tp_mx_floor(amax, 2);
    float x[UNIT];
    fp4_take<DT>(r, 1.0f, unit, x);
    const fp4_ints ints =
        fp4_ints_of<WEIGHTED, 2>(a, i, x, dev_search_int(__uint_as_float(amax), unit));
    const uint64_t clipped = sum_pair(fp4_gain<WEIGHTED, true>(ints, 256.0f));
    const uint64_t whole = sum_pair(fp4_gain<WEIGHTED, false>(ints, 512.0f));
    if (!tp_search_live(amax))
        return plain;
    if (plain == floor)
        return whole > clipped ? floor + 1 : floor;
    return clipped > whole ? floor : floor + 1;
}

/* ---- the kernel ---------------------------------------------------------------- */

template <int DT, bool NV, bool WEIGHTED>
static __global__ __launch_bounds__(FP4_THREADS) void
search_fp4(const __grid_constant__ struct fp4_search_args a)
{
    const uint32_t i = blockIdx.x * FP4_THREADS + threadIdx.x;
    const bool inside = i < a.fp4.count;
    const uint8_t *in = a.fp4.in + (uint64_t)i * (UNIT * (TP_IS32(DT) ? 4 : 2));
    dev_raw8<DT> r[2];
    r[0] = inside ? dev_load_raw8<DT>(in) : dev_zero_raw8<DT>();
    r[1] = inside ? dev_load_raw8<DT>(in + 8 * (TP_IS32(DT) ? 4 : 2)) : dev_zero_raw8<DT>();
    uint32_t amax = dev_amax_bits<DT>(dev_amax8<DT>(dev_amax8<DT>(0, r[0]), r[1]));
    uint32_t scale;
    uint2 codes;
    dev_flag(a.fp4.flags, amax);
    if (NV) {
        scale = nv_search<DT, WEIGHTED>(a, i, r, amax);
        codes = nv_searched_codes<DT>(a, r, amax, scale);
    } else {
        amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 1));
        scale = mx_search<DT, WEIGHTED>(a, i, r, amax);
        const float factor = tp_e8m0_reciprocal((uint8_t)scale);
        codes = make_uint2(mx_codes<DT>(r[0], factor), mx_codes<DT>(r[1], factor));
    }
    if (a.fp4.global_out != NULL && i == 0)
        *a.fp4.global_out = a.fp4.global;
    if (!inside)
        return;
    ((uint2 *)a.fp4.codes)[i] = codes;
    const uint32_t block = NV ? i : i / 2;
    if (NV || i % 2 == 0)
        a.fp4.scale[a.fp4.tiles ? tile_at(a.fp4, block) : block] = (uint8_t)scale;
}

template <int DT>
static void launch(const struct fp4_search_args &a, bool nv, cudaStream_t stream)
{
    const uint32_t grid = (uint32_t)dev_ceil(a.fp4.count, FP4_THREADS);
    const bool weighted = a.how.weights != TP_IMPORTANCE_NONE;
    if (nv && weighted)
        search_fp4<DT, true, true><<<grid, FP4_THREADS, 0, stream>>>(a);
    else if (nv)
        search_fp4<DT, true, false><<<grid, FP4_THREADS, 0, stream>>>(a);
    else if (weighted)
        search_fp4<DT, false, true><<<grid, FP4_THREADS, 0, stream>>>(a);
    else
        search_fp4<DT, false, false><<<grid, FP4_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_fp4_search(const struct tp_op *op, struct tp_args *args)
{
    struct fp4_search_args a;
    a.how = dev_search_of(op, args);
    a.unknown.four = 4;
    a.unknown.twice = 0x03020100u;
    if (!fp4_begin(op, args, a.fp4))
        return;
    fp4_clear(a.fp4, args->box.e, (cudaStream_t)args->stream);
    DEV_BY_DTYPE(args->dtype, launch, a, op->codec == TP_CODEC_NVFP4, (cudaStream_t)args->stream);
}
