/* int4 in groups along K from float weights: row-major with bf16 scales (w4a8-ct, and w4a16-ct
 * with groups of any size it has), and in one pass encoded, reordered and with packed scales
 * (w4a8-cutlass).
 *
 * 16 threads share a group of 128, 8 values each, and work on several groups at a time: each
 * computes the scale of one of them and hands it round. The row-major kernel needs
 * nothing but groups. In the reordered one a warp walks along two rows n and n + 8 of a tile of
 * 16, because their codes share 32-byte runs of the result; only the bf16 group
 * scales wait, in shared memory, for the row's channel scale. Invariant: bytes
 * equal tp_encode_ref.
 */
#include "kernels/cuda/cuda_groups.cuh"
#include "kernels/cuda/cuda_int4.cuh"

enum { W4A8_MAX_SHARED = 48 * 1024 };

/* Groups that 16 lanes work on at a time. */
template <int DT> struct int4_shape {
    static const int groups = TP_IS32(DT) ? 2 : 4;
};

/* The scale of one group, held by the lanes whose item it is. `max`: two bf16
 * numbers near 7 s, whose quotients still round to 7. */
struct int4_scale {
    uint32_t amax, bits, max;
    bool special; /* NaN or infinity, zero, or near the ends of the range */
    float high, low;
};

/* The scale before special cases. Multiplying by 1/7.5 gives the same bf16 scale as
 * dividing for every bf16 and f16 amax, not for every f32. */
template <int DT> static __device__ __forceinline__ int4_scale scale_of(uint32_t amax)
{
    const float a = __uint_as_float(amax);
    const float q = TP_IS32(DT) ? __fdiv_rn(a, 7.5f) : __fmul_rn(a, 1.0f / 7.5f);
    int4_scale s;
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(q));
    s.amax = amax;
    s.bits = pair & 0xFFFFu;
    s.special = s.bits - 0x1780u > 0x5000u; /* outside 2^-80..2^80 */
    const dev_divisor d = dev_divisor_of(__uint_as_float(pair & 0xFFFF0000u));
    s.high = d.high;
    s.low = d.low;
    float max = __fmul_rn(__uint_as_float(pair & 0xFFFF0000u), 7.0f);
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(s.max) : "f"(max));
    return s;
}

/* The scale's bits as stored; bit 16: all codes of the group are zero. */
static __device__ __forceinline__ uint32_t special_bits(const int4_scale &s)
{
    if (s.amax >= TP_F32_INF_BITS)
        return 0x10000u | (s.amax > TP_F32_INF_BITS ? TP_BF16_NAN : 0x7F80u);
    return s.bits ? s.bits : 0x13C00u;
}

/* Codes of the lane's values of each group, where no group of the warp is special. */
template <int DT, int GROUPS>
static __device__ __forceinline__ void ordinary_codes(const dev_raw8<DT> (&r)[GROUPS],
                                                      const int4_scale &s, uint32_t lane,
                                                      uint32_t (&word)[GROUPS])
{
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const float high = dev_of_item<GROUPS>(s.high, u, lane);
        const float low = dev_of_item<GROUPS>(s.low, u, lane);
        const uint32_t max = DT == TP_BF16 ? dev_of_item<GROUPS>(s.max, u, lane) : 0;
        word[u] = dev_int4_ordinary<DT>(r[u], high, low, max);
    }
}

/* The same for any scale (NaN and infinity, zeros, the ends of the range) and rule. */
template <int DT, int GROUPS>
static __device__ __forceinline__ void special_codes(const dev_raw8<DT> (&r)[GROUPS],
                                                     const int4_scale &s, uint32_t rule,
                                                     uint32_t lane, uint32_t (&word)[GROUPS])
{
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const uint32_t amax = dev_of_item<GROUPS>(s.amax, u, lane);
        const uint32_t bits = dev_of_item<GROUPS>(s.bits, u, lane);
        const float scale = __uint_as_float(bits << 16); /* drops bit 16 */
        word[u] = amax < TP_F32_INF_BITS ? dev_int4x8_by_rule<DT>(r[u], scale, rule) : 0x88888888u;
    }
}

/* Codes of the lane's values of each group; returns the bits of the scale of its own
 * group, and in bit 16 whether all codes of that group are zero. */
template <int DT, int GROUPS>
static __device__ __forceinline__ uint32_t encode_groups(const struct int4_args &a,
                                                         const dev_raw8<DT> (&r)[GROUPS],
                                                         uint32_t lane,
                                                         uint32_t (&word)[GROUPS])
{
    uint32_t amax[GROUPS];
#pragma unroll
    for (int u = 0; u < GROUPS; u++)
        amax[u] = dev_amax8<DT>(0, r[u]);
    int4_scale s = scale_of<DT>(dev_amax_items<DT, GROUPS>(amax, lane));
    if (a.rule == TP_INT4_QUOTIENT_BF16 || __any_sync(0xFFFFFFFFu, s.special)) {
        dev_flag(a.flags, s.amax);
        s.bits = special_bits(s);
        special_codes<DT, GROUPS>(r, s, a.rule, lane, word);
    } else {
        ordinary_codes<DT, GROUPS>(r, s, lane, word);
    }
    return s.bits;
}

/* A warp takes 2 x GROUPS consecutive groups, its half-warps in turn. */
template <int DT>
static __global__ __launch_bounds__(GROUPS_THREADS) void encode_row(const struct int4_args a)
{
    const int groups = int4_shape<DT>::groups;
    const uint32_t lane = threadIdx.x % 32;
    const dev_groups<DT, 16, groups> g = dev_load_groups<DT, 16, groups>(a.in, a.groups);
    uint32_t word[groups];
    const uint32_t bits = encode_groups<DT, groups>(a, g.r, lane, word);
#pragma unroll
    for (int u = 0; u < groups; u++)
        if (g.first + 2 * u < a.groups)
            ((uint32_t *)a.codes)[(g.first + 2 * u) * 16 + lane % 16] =
                dev_map_word(word[u], a.map);
    const uint64_t mine = g.first + 2 * dev_item<groups>(lane);
    if (lane % (16 / groups) == 0 && mine < a.groups)
        ((uint16_t *)a.scale)[mine] = (uint16_t)bits;
}

/* Eight codes of a group whose scale every lane has, after special_bits() where it is special. */
template <int DT>
static __device__ __forceinline__ uint32_t codes_of(const dev_raw8<DT> &r, const int4_scale &s,
                                                    bool special, uint32_t rule)
{
    if (!special)
        return dev_int4_ordinary<DT>(r, s.high, s.low, s.max);
    return s.amax < TP_F32_INF_BITS
               ? dev_int4x8_by_rule<DT>(r, __uint_as_float(s.bits << 16), rule)
               : 0x88888888u;
}

/* Groups of 8 x LANES values: as encode_row, but each of a group's lanes computes its scale. */
template <int DT, int LANES>
static __global__ __launch_bounds__(GROUPS_THREADS) void encode_sized(const struct int4_args a)
{
    const int items = int4_shape<DT>::groups;
    const uint32_t lane = threadIdx.x % 32;
    const dev_groups<DT, LANES, items> g = dev_load_groups<DT, LANES, items>(a.in, a.groups);
#pragma unroll
    for (int u = 0; u < items; u++) {
        const uint64_t group = g.first + u * g.apart;
        int4_scale s = scale_of<DT>(
            dev_max_lanes<LANES>(dev_amax_bits<DT>(dev_amax8<DT>(0, g.r[u]))));
        const bool special = s.special || a.rule == TP_INT4_QUOTIENT_BF16;
        if (special) {
            dev_flag(a.flags, s.amax);
            s.bits = special_bits(s);
        }
        const uint32_t word = codes_of<DT>(g.r[u], s, special, a.rule);
        if (group >= a.groups)
            continue;
        ((uint32_t *)a.codes)[group * LANES + lane % LANES] = dev_map_word(word, a.map);
        if (lane % LANES == 0)
            ((uint16_t *)a.scale)[group] = (uint16_t)s.bits;
    }
}

/* One group to a row of any multiple of 8 values. */
template <int DT, int ITEMS>
static __global__ __launch_bounds__(GROUPS_THREADS) void encode_channel(const struct int4_args a)
{
    dev_row<DT, ITEMS> row;
    row.in = a.in + blockIdx.x * a.k * (TP_IS32(DT) ? 4 : 2);
    row.eights = (uint32_t)(a.k / 8);
    uint32_t *codes = (uint32_t *)a.codes + (uint64_t)blockIdx.x * row.eights;
    const uint32_t amax = dev_row_amax(&row);
    int4_scale s = scale_of<DT>(amax);
    const bool special = s.special || a.rule == TP_INT4_QUOTIENT_BF16;
    if (special)
        s.bits = special_bits(s);
    if (threadIdx.x == 0) {
        dev_flag(a.flags, amax);
        ((uint16_t *)a.scale)[blockIdx.x] = (uint16_t)s.bits;
    }
    dev_row_each(row, [&](uint32_t i, const dev_raw8<DT> &r) {
        codes[i] = dev_map_word(codes_of<DT>(r, s, special, a.rule), a.map);
    });
}

/* Where a lane's word of a group goes inside the group's four k tiles. */
struct w4a8_place {
    uint32_t upper;  /* 1: this lane holds row n + 8 */
    uint32_t k_tile; /* 0..3 */
    uint32_t byte;   /* inside the 256-byte block */
};

static __device__ __forceinline__ w4a8_place w4a8_place_of(uint32_t lane, uint32_t row)
{
    w4a8_place p;
    uint32_t l = lane & 15;
    p.upper = lane >> 4;
    p.k_tile = l >> 2;
    /* word index: quarter of 16 (two bits), half of 32 */
    p.byte = row * 32 + ((((l & 1) * 2 + p.upper) * 2) + ((l >> 1) & 1)) * 4;
    return p;
}

/* Rows n and n + 8 exchange halves so that each lane holds one quarter of both. */
static __device__ __forceinline__ uint32_t w4a8_exchange(uint32_t word, uint32_t upper)
{
    uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, word, 16);
    return upper ? __byte_perm(other, word, 0x7632) : __byte_perm(word, other, 0x5410);
}

/* Channel scales and packed group scales of 16 rows. `scales`: [16][pitch], a bf16
 * scale and, in bit 16, "all codes are zero". */
static __device__ void finish_rows(const struct int4_args &a, const uint32_t *scales,
                                   uint32_t pitch, uint64_t e, uint32_t n0)
{
    __shared__ dev_channel channel[16];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t row = warp; row < 16; row += GROUPS_THREADS / 32) {
        uint32_t amax = 0;
        for (uint32_t g = lane; g < a.groups; g += 32) {
            uint32_t s = scales[row * pitch + g];
            if (!(a.skip_zero && s >> 16))
                amax = max(amax, s & 0x7FFFu);
        }
        amax = dev_max_lanes<32>(amax);
        if (lane == 0) {
            channel[row] = dev_channel_of(amax, a.channel_rule);
            a.channel[e * a.n + n0 + row] = dev_channel_value(channel[row]);
        }
    }
    __syncthreads();
    const uint32_t row = threadIdx.x % 16;
    for (uint32_t g = threadIdx.x / 16; g < a.groups; g += GROUPS_THREADS / 16)
        *(uint2 *)(a.scale + ((e * a.groups + g) * a.n + n0 + row) * 8) =
            dev_group8(scales[row * pitch + g], channel[row]);
}

/* The two rows of a warp, and how far it has come. */
struct w4a8_walk {
    const uint8_t *in; /* the lane's values of the next group */
    uint8_t *out;      /* the lane's place in the k tiles of the next group */
    uint32_t *scale;   /* the row's scales from there on */
    uint64_t pitch;    /* bytes of the k tiles of a group */
    uint32_t upper, lane;
};

/* GROUPS groups; ALL: there are so many, else `left`. ENCODE: the map is CUTLASS's,
 * from canonical codes. */
template <int DT, int GROUPS, bool ALL, bool ENCODE>
static __device__ __forceinline__ void encode_step(const struct int4_args &a, w4a8_walk &walk,
                                                   uint32_t left)
{
    const int bytes = 128 * (TP_IS32(DT) ? 4 : 2);
    const uint32_t mine = dev_item<GROUPS>(walk.lane);
    dev_raw8<DT> r[GROUPS];
    uint32_t word[GROUPS];
#pragma unroll
    for (int u = 0; u < GROUPS; u++)
        r[u] = ALL || u < left ? dev_load_raw8<DT>(walk.in + u * bytes) : dev_zero_raw8<DT>();
    walk.in += GROUPS * bytes;
    const uint32_t bits = encode_groups<DT, GROUPS>(a, r, walk.lane, word);
    if (walk.lane % (16 / GROUPS) == 0 && (ALL || mine < left))
        walk.scale[mine] = bits;
    walk.scale += GROUPS;
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        uint32_t w = ENCODE ? dev_encode_nibbles(word[u] ^ 0x88888888u)
                            : dev_map_word(word[u], a.map);
        w = w4a8_exchange(w, walk.upper);
        if (ALL || u < left)
            *(uint32_t *)walk.out = w;
        walk.out += walk.pitch;
    }
}

template <int DT, bool ENCODE>
static __global__ __launch_bounds__(GROUPS_THREADS, 4) void
encode_w4a8(const __grid_constant__ struct int4_args a)
{
    const int step = int4_shape<DT>::groups, bytes = TP_IS32(DT) ? 4 : 2;
    extern __shared__ uint32_t scales[];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint64_t e = blockIdx.x / a.tiles_n;
    const uint32_t nt = blockIdx.x - (uint32_t)e * a.tiles_n;
    const uint32_t pitch = (uint32_t)a.groups | 1, groups = (uint32_t)a.groups;
    const w4a8_place p = w4a8_place_of(lane, warp);
    const uint32_t row = warp + 8 * p.upper;
    const uint64_t first = (e * a.n + nt * 16 + row) * a.k + (lane & 15) * 8;
    w4a8_walk walk = {a.in + first * bytes,
                      a.codes + e * a.n * (a.k / 2) + (uint64_t)nt * 256 + p.byte +
                          p.k_tile * (16 * a.n),
                      scales + row * pitch, 64 * a.n, p.upper, lane};
    uint32_t g = 0;
    for (; g + step <= groups; g += step)
        encode_step<DT, step, true, ENCODE>(a, walk, 0);
    if (g < groups)
        encode_step<DT, step, false, ENCODE>(a, walk, groups - g);
    __syncthreads();
    finish_rows(a, scales, pitch, e, nt * 16);
}

template <int DT> static void launch_row(const struct tp_op *op, struct tp_args *args)
{
    struct int4_args a = int4_args_of(op, args);
    a.groups *= a.n * args->box.e;
    uint64_t grid = dev_ceil(a.groups, 2 * int4_shape<DT>::groups * (GROUPS_THREADS / 32));
    if (args->box.k % 128 != 0 || grid > 0x7FFFFFFFu)
        tp_cuda_encode_any(op, args);
    else
        encode_row<DT><<<(uint32_t)grid, GROUPS_THREADS, 0, (cudaStream_t)args->stream>>>(a);
}

template <int DT, int LANES>
static void launch_groups(const struct tp_op *op, struct tp_args *args)
{
    struct int4_args a = int4_args_of(op, args);
    a.groups = args->box.e * a.n * (a.k / (8 * LANES));
    uint64_t grid =
        dev_ceil(a.groups, int4_shape<DT>::groups * (32 / LANES) * (GROUPS_THREADS / 32));
    if (a.k % (8 * LANES) != 0 || grid > 0x7FFFFFFFu)
        tp_cuda_encode_any(op, args);
    else
        encode_sized<DT, LANES>
            <<<(uint32_t)grid, GROUPS_THREADS, 0, (cudaStream_t)args->stream>>>(a);
}

template <int DT, int ITEMS>
static void launch_channel(const struct tp_op *op, struct tp_args *args)
{
    const uint32_t rows = (uint32_t)(args->box.e * args->box.n);
    encode_channel<DT, ITEMS>
        <<<rows, GROUPS_THREADS, 0, (cudaStream_t)args->stream>>>(int4_args_of(op, args));
}

template <int DT> static void launch_sized(const struct tp_op *op, struct tp_args *args)
{
    if (op->block_k == 32)
        launch_groups<DT, 4>(op, args);
    else if (op->block_k == 64)
        launch_groups<DT, 8>(op, args);
    else if (!dev_row_fits(args->box))
        tp_cuda_encode_any(op, args);
    else
        DEV_BY_ROW(DT, args->box.k, launch_channel, op, args);
}

template <int DT> static void launch_w4a8(const struct tp_op *op, struct tp_args *args)
{
    struct int4_args a = int4_args_of(op, args);
    uint64_t grid = args->box.e * a.tiles_n, shared = 16 * (a.groups | 1) * sizeof(uint32_t);
    if (args->box.k % 128 != 0 || args->box.n % 16 != 0 || grid > 0x7FFFFFFFu ||
        shared > W4A8_MAX_SHARED - 512)
        tp_cuda_encode_any(op, args);
    else if (a.map.kind == 1 && a.map.before == 0x88888888u && a.map.after == 0)
        encode_w4a8<DT, true>
            <<<(uint32_t)grid, GROUPS_THREADS, shared, (cudaStream_t)args->stream>>>(a);
    else
        encode_w4a8<DT, false>
            <<<(uint32_t)grid, GROUPS_THREADS, shared, (cudaStream_t)args->stream>>>(a);
}

extern "C" void tp_cuda_int4_row(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch_row, op, args);
}

extern "C" void tp_cuda_int4_sized(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch_sized, op, args);
}

extern "C" void tp_cuda_int4_w4a8(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch_w4a8, op, args);
}
