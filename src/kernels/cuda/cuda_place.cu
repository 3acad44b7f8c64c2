/* Weights to codes and scales in any layout that has tables of bits (cuda_place.cuh): a tile is
 * quantized into shared memory in rows, and written in the order in which it is stored.
 *
 * A thread quantizes 16 values of a row at a time; the largest magnitude of a block comes from
 * lanes side by side, or (FP8 in blocks of 128x128) from a first reading of the tile. Blocks of
 * threads stay for many tiles. K in multiples of 16, blocks of one row and 16 to 128 columns;
 * other shapes go to cuda_any.cu. Invariant: bytes equal tp_encode_ref, padding included.
 */
#include "kernels/cuda/cuda_fp4.cuh"
#include "kernels/cuda/cuda_int4.cuh"
#include "kernels/cuda/cuda_int8.cuh"
#include "kernels/cuda/cuda_place.cuh"

enum {
    PLACE_UNITS = PLACE_SIDE * PLACE_SIDE / UNIT,
    PLACE_ROW_UNITS = PLACE_SIDE / UNIT,
    PLACE_CACHED = 16 << 20, /* bytes of weights that stay in a device's cache for a while */
};

/* Codecs whose scales may be those of whole rows. */
#define TAKES_GIVEN(codec) \
    ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_INT8 || (codec) == TP_CODEC_FP8)

#define IS_NIBBLES(codec) \
    ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_MXFP4 || (codec) == TP_CODEC_NVFP4)

struct place_encode {
    struct any_codec codec;
    struct place_plane codes, scale;
    struct place_grid grid;
    struct any_plane global;
    const uint8_t *in;
    uint32_t *flags;
    uint32_t n, k;
    uint32_t lanes;       /* that share a block: 1 to 8 */
    uint32_t scale_shift; /* from a scale's bits to the stored ones */
    uint32_t least;       /* of the bits of an fp32 scale: smaller ones are stored as this */
    bool square;          /* one scale to a tile */
    bool given;           /* scales of whole rows, which were found before */
    uint8_t element;      /* of those */
    dev_map map;
};

/* 16 values as loaded. */
template <int DT> struct place_unit {
    dev_raw8<DT> r[2];
};

/* Whether a unit of a tile lies within the weight; *row and *column: in the tile. */
static __device__ __forceinline__ bool unit_inside(const place_encode &a, const place_tile &t,
                                                   uint32_t unit, uint32_t *row, uint32_t *column)
{
    *row = unit / PLACE_ROW_UNITS;
    *column = unit % PLACE_ROW_UNITS * UNIT;
    return t.n * PLACE_SIDE + *row < a.n && t.k * PLACE_SIDE + *column < a.k;
}

template <int DT>
static __device__ __forceinline__ place_unit<DT> load_unit(const place_encode &a,
                                                           const place_tile &t, uint32_t unit)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    place_unit<DT> u;
    uint32_t row, column;
    if (unit_inside(a, t, unit, &row, &column)) {
        const uint64_t at = ((uint64_t)t.e * a.n + t.n * PLACE_SIDE + row) * a.k +
                            t.k * PLACE_SIDE + column;
        u.r[0] = dev_load_raw8<DT>(a.in + at * bytes);
        u.r[1] = dev_load_raw8<DT>(a.in + (at + 8) * bytes);
    } else {
        u.r[0] = u.r[1] = dev_zero_raw8<DT>();
    }
    return u;
}

/* Largest magnitude, as fp32 bits. */
template <int DT> static __device__ __forceinline__ uint32_t unit_amax(const place_unit<DT> &u)
{
    return dev_amax_bits<DT>(dev_amax8<DT>(dev_amax8<DT>(0, u.r[0]), u.r[1]));
}

/* Of the whole tile, in every thread. */
template <int DT>
static __device__ uint32_t tile_amax(const place_encode &a, const place_tile &t)
{
    __shared__ uint32_t most[PLACE_THREADS / 32];
    uint32_t amax = 0;
#pragma unroll
    for (uint32_t u = 0; u < PLACE_UNITS / PLACE_THREADS; u++)
        amax = max(amax, unit_amax<DT>(load_unit<DT>(a, t, u * PLACE_THREADS + threadIdx.x)));
    amax = dev_max_lanes<32>(amax);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = amax;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PLACE_THREADS / 32; i++)
        amax = max(amax, most[i]);
    return amax;
}

/* scale_of() of integers, and their codes, where no magnitude is NaN, infinite, zero or near the
 * ends of the range: without branches. 7.5 and 127.5 have so few bits that dev_divide() by them
 * is exact. */
struct place_quick {
    uint32_t bits, most; /* most: two bf16 numbers whose quotients round to 7 */
    float value;
    bool ordinary;
};

template <int CODEC>
static __device__ __forceinline__ place_quick quick_of(const any_codec &c, uint32_t amax)
{
    const float reach = CODEC == TP_CODEC_INT8 ? 127.5f : 7.5f, high = 1.0f / reach;
    const float low = (float)(1.0 / (double)reach - (double)high);
    const float scale = dev_divide(__uint_as_float(amax), high, low);
    place_quick q;
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(q.bits) : "f"(scale));
    q.value = __uint_as_float(q.bits & 0xFFFF0000u);
    q.bits &= 0xFFFFu;
    q.ordinary = amax - 0x1A000000u < 0x48000000u; /* 2^-75 to 2^69 */
    if (c.f16) {
        unsigned short half;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(scale));
        asm("cvt.f32.f16 %0, %1;" : "=f"(q.value) : "h"(half));
        q.bits = half;
        q.ordinary = q.ordinary && q.bits - 0x0400u < 0x7800u; /* normal numbers */
    }
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(q.most) : "f"(__fmul_rn(q.value, 7.0f)));
    return q;
}

/* Codes as codes_of() has them. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint4 quick_codes(const place_quick &q, const place_unit<DT> &u)
{
    if constexpr (CODEC == TP_CODEC_INT8) {
        const uint2 a = dev_int8x8<DT>(u.r[0], q.value, false, false);
        const uint2 b = dev_int8x8<DT>(u.r[1], q.value, false, false);
        return make_uint4(a.x, a.y, b.x, b.y);
    } else {
        const dev_divisor d = dev_divisor_of(q.value);
        return make_uint4(dev_int4_ordinary<DT>(u.r[0], d.high, d.low, q.most),
                          dev_int4_ordinary<DT>(u.r[1], d.high, d.low, q.most), 0, 0);
    }
}

/* Codes of 16 values: two words of nibbles. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint2 nibbles_of(const any_codec &c, const any_scale &s,
                                                   place_unit<DT> &u)
{
    if constexpr (CODEC == TP_CODEC_INT4)
        return s.amax >= TP_F32_INF_BITS
                   ? make_uint2(0x88888888u, 0x88888888u)
                   : make_uint2(dev_int4x8_by_rule<DT>(u.r[0], s.fp8.factor, c.rule),
                                dev_int4x8_by_rule<DT>(u.r[1], s.fp8.factor, c.rule));
    if (CODEC == TP_CODEC_MXFP4)
        return make_uint2(mx_codes<DT>(u.r[0], s.fp8.factor), mx_codes<DT>(u.r[1], s.fp8.factor));
    const nv_block b = nv_block_of(c.rule, s.fp8.factor, s.amax, 6.9f);
    if (b.special)
        return make_uint2(any_codes<DT>(u.r[0], s.fp8.factor, c.rule),
                          any_codes<DT>(u.r[1], s.fp8.factor, c.rule));
    if (c.rule == TP_NVFP4_MODELOPT)
        plain_zeros<DT>(u.r);
    return make_uint2(nv_codes<DT, false>(u.r[0], b, c.rule),
                      nv_codes<DT, false>(u.r[1], b, c.rule));
}

/* A scale with so few bits that the short division is exact; infinities are divided the long
 * way. */
static __device__ __forceinline__ bool is_short(const any_scale &s)
{
    const uint32_t bits = __float_as_uint(s.fp8.factor);
    return !s.bad && bits < TP_F32_INF_BITS && (bits & 0xFFFFu) == 0;
}

/* Eight e4m3 codes. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint2 e4m3_of(const any_scale &s, const dev_raw8<DT> &r)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = dev_value<DT>(r, i);
    if (CODEC == TP_CODEC_FP8 && s.fp8.divide) {
        dev_fp8_divide(v, s.fp8, is_short(s));
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __fmul_rn(v[i], s.fp8.factor);
    }
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
}

/* Eight codes of a byte each. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint2 bytes_of(const any_codec &c, const any_scale &s,
                                                 const dev_raw8<DT> &r)
{
    if constexpr (CODEC != TP_CODEC_INT8)
        return e4m3_of<CODEC, DT>(s, r);
    else if (s.amax >= TP_F32_INF_BITS)
        return make_uint2(0, 0);
    else
        return dev_int8x8<DT>(r, s.fp8.factor, c.f16, c.rule == TP_INT4_QUOTIENT_BF16);
}

/* Codes of a unit: 16 bytes, or 16 nibbles in x and y. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint4 codes_of(const any_codec &c, const any_scale &s,
                                                 place_unit<DT> &u)
{
    if constexpr (IS_NIBBLES(CODEC)) {
        const uint2 nibbles = nibbles_of<CODEC, DT>(c, s, u);
        return make_uint4(nibbles.x, nibbles.y, 0, 0);
    } else {
        const uint2 a = bytes_of<CODEC, DT>(c, s, u.r[0]), b = bytes_of<CODEC, DT>(c, s, u.r[1]);
        return make_uint4(a.x, a.y, b.x, b.y);
    }
}

/* They go to the stage. */
template <int CODEC>
static __device__ __forceinline__ void stage_unit(const place_encode &a, uint4 codes, uint32_t row,
                                                  uint32_t column, uint32_t *stage)
{
    uint32_t *w = stage + place_staged(row, column);
    if (IS_NIBBLES(CODEC) && a.codes.stage == PLACE_PACKED) {
        w = stage + row * (PLACE_PACKED_PITCH / 4) + column / 8;
        w[0] = codes.x;
        w[1] = codes.y;
        return;
    }
    if (IS_NIBBLES(CODEC))
        codes = make_uint4(place_spread(codes.x), place_spread(codes.x >> 16),
                           place_spread(codes.y), place_spread(codes.y >> 16));
    w[0] = codes.x;
    w[1] = codes.y;
    w[2] = codes.z;
    w[3] = codes.w;
}

/* What a scale that was found before says: of integers, and of FP8 by rules that divide. */
static __device__ __forceinline__ any_scale given_scale(const any_codec &c, uint32_t element,
                                                        uint32_t bits)
{
    any_scale s;
    s.bits = bits;
    s.fp8.factor = element == TP_ELEM_F32    ? tp_bits_f32(bits)
                   : element == TP_ELEM_BF16 ? tp_bf16_to_f32((uint16_t)bits)
                                             : tp_f16_to_f32((uint16_t)bits);
    s.fp8.scale = s.fp8.factor;
    s.fp8.divide = true;
    s.fp8.round_bf16 = c.rule == TP_FP8_CT_BF16;
    s.bad = tp_abs_bits(s.fp8.factor) >= TP_F32_INF_BITS;
    s.amax = s.bad ? TP_F32_INF_BITS : 0;
    return s;
}

/* Codes of a unit; *bits: the scale of its block. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint4 encode_block(const place_encode &a, uint32_t amax,
                                                     bool inside, place_unit<DT> &u,
                                                     uint32_t *bits)
{
    any_codec c = a.codec;
    c.codec = CODEC;
    if constexpr (CODEC == TP_CODEC_INT4 || CODEC == TP_CODEC_INT8) {
        const place_quick q = quick_of<CODEC>(c, amax);
        if (q.ordinary && c.rule == TP_INT4_QUOTIENT_FP32) {
            *bits = q.bits;
            return quick_codes<CODEC, DT>(q, u);
        }
    }
    const any_scale s = scale_of(c, amax);
    dev_flag_bad(a.flags, inside && s.bad);
    *bits = s.bits;
    return codes_of<CODEC, DT>(c, s, u);
}

/* One unit to the stage; the first of a block has its scale. */
template <int CODEC, int DT>
static __device__ __forceinline__ void encode_unit(const place_encode &a, const place_tile &t,
                                                   uint32_t unit, place_unit<DT> &u,
                                                   uint32_t amax, uint32_t *stage,
                                                   uint32_t *scales)
{
    uint32_t row, column, bits;
    const bool inside = unit_inside(a, t, unit, &row, &column);
    if (TAKES_GIVEN(CODEC) && a.given) {
        const any_scale s =
            given_scale(a.codec, a.element, scales[row << a.scale.log2_columns]);
        stage_unit<CODEC>(a, codes_of<CODEC, DT>(a.codec, s, u), row, column, stage);
        return;
    }
    if (!a.square) {
        amax = unit_amax<DT>(u);
#pragma unroll 1
        for (uint32_t d = a.lanes / 2; d; d >>= 1)
            amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, d));
    }
    const uint4 codes = encode_block<CODEC, DT>(a, amax, inside, u, &bits);
    stage_unit<CODEC>(a, codes, row, column, stage);
    if (a.scale.data != NULL && unit % a.lanes == 0 && (!a.square || unit == 0))
        scales[a.square ? 0 : unit / a.lanes] = max(bits, a.least) >> a.scale_shift;
}

template <int CODEC, int DT>
static __device__ __forceinline__ void quantize(const place_encode &a, const place_tile &t,
                                                uint32_t *stage, uint32_t *scales)
{
    const uint32_t amax = CODEC == TP_CODEC_FP8 && a.square ? tile_amax<DT>(a, t) : 0;
    for (uint32_t u = 0; u < PLACE_UNITS; u += 2 * PLACE_THREADS) {
        place_unit<DT> x = load_unit<DT>(a, t, u + threadIdx.x);
        place_unit<DT> y = load_unit<DT>(a, t, u + PLACE_THREADS + threadIdx.x);
        encode_unit<CODEC, DT>(a, t, u + threadIdx.x, x, amax, stage, scales);
        encode_unit<CODEC, DT>(a, t, u + PLACE_THREADS + threadIdx.x, y, amax, stage, scales);
    }
}

/* Asks for the values of a tile that comes later, half a row of it a thread. */
template <int DT>
static __device__ __forceinline__ void ask(const place_encode &a, uint32_t tile)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    if (tile >= a.grid.count)
        return;
    const place_tile t = place_tile_of(a.grid, tile);
    const uint32_t row = t.n * PLACE_SIDE + threadIdx.x / 2;
    const uint32_t column = t.k * PLACE_SIDE + threadIdx.x % 2 * (PLACE_SIDE / 2);
    if (row >= a.n || column >= a.k)
        return;
    const uint8_t *at = a.in + (((uint64_t)t.e * a.n + row) * a.k + column) * bytes;
#pragma unroll
    for (int i = 0; i < PLACE_SIDE / 2 * bytes; i += 64)
        if (column + (uint32_t)(i / bytes) < a.k)
            place_ask(at + i);
}

template <int CODEC, int DT>
static __global__ __launch_bounds__(PLACE_THREADS, TP_IS32(DT) ? 2 : 4) void
encode_placed(const __grid_constant__ struct place_encode a)
{
    const int bits = IS_NIBBLES(CODEC) ? 4 : 8;
    __shared__ __align__(16) uint32_t stage[PLACE_STAGE];
    __shared__ uint32_t scales[PLACE_SCALES];
    const place_item word = place_first(a.codes), scale = place_first(a.scale);
    if (a.global.data != NULL && blockIdx.x == 0 && threadIdx.x == 0)
        store_global(a.global, a.codec.global);
    for (uint32_t i = blockIdx.x; i < a.grid.count; i += gridDim.x) {
        const place_tile t = place_tile_of(a.grid, i);
        ask<DT>(a, i + gridDim.x);
        if (TAKES_GIVEN(CODEC) && a.given) {
            place_take_scales(a.scale, scale, t, scales);
            __syncthreads();
        }
        quantize<CODEC, DT>(a, t, stage, scales);
        __syncthreads();
        if (a.codes.stage == PLACE_BYTES)
            place_put<bits, PLACE_BYTES>(a.codes, word, t, stage, a.map);
        else
            place_put<bits, bits == 4 ? PLACE_PACKED : PLACE_RUN>(a.codes, word, t, stage, a.map);
        if (a.scale.data != NULL && !a.given)
            place_put_scales(a.scale, scale, t, scales);
        __syncthreads();
    }
}

/* ---- scales of whole rows ------------------------------------------------ */

struct place_rows {
    struct any_codec codec;
    struct any_plane scale;
    const uint8_t *in;
    uint32_t *flags;
    uint64_t first, rows, n, k; /* rows of all experts */
};

/* A warp finds the scale of a row. */
template <int DT>
static __global__ __launch_bounds__(PLACE_THREADS) void
scale_rows(const __grid_constant__ struct place_rows a)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const uint64_t row = (uint64_t)blockIdx.x * (PLACE_THREADS / 32) + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    if (row >= a.rows)
        return;
    const uint8_t *in = a.in + (a.first + row) * a.k * bytes;
    uint32_t amax = 0;
#pragma unroll 8
    for (uint64_t i = lane; i < a.k / 8; i += 32)
        amax = dev_amax8<DT>(amax, dev_load_raw8<DT>(in + i * 8 * bytes));
    const any_scale s = scale_of(a.codec, dev_max_lanes<32>(dev_amax_bits<DT>(amax)));
    if (lane != 0)
        return;
    const uint64_t e = (a.first + row) / a.n;
    dev_flag_bad(a.flags, s.bad);
    store_scale(a.scale, a.codec.codec, at_of(a.scale, e, a.first + row - e * a.n, 0), s.bits);
}

/* ---- host ---------------------------------------------------------------- */

/* A scale of the codec's bits is stored as they are, or without its lower ones. */
static bool scale_shift(const struct tp_op *op, const any_plane &scale, uint32_t *shift)
{
    const bool f16 = tp_op_is_int(op) && op->scale_rule == TP_INT_SCALE_F16;
    *shift = 0;
    if (tp_op_is_int(op))
        return scale.element == (f16 ? TP_ELEM_F16 : TP_ELEM_BF16);
    if (op->codec != TP_CODEC_FP8)
        return tp_element_bits((enum tp_element)scale.element) == 8;
    *shift = scale.element == TP_ELEM_F32 ? 0 : scale.element == TP_ELEM_BF16 ? 16 : 23;
    return scale.element == TP_ELEM_F32 ||
           (scale.element == TP_ELEM_BF16 && op->scale_rule == TP_FP8_SCALE_BF16) ||
           (scale.element == TP_ELEM_E8M0 && op->scale_rule == TP_FP8_SCALE_UE8M0);
}

/* One scale to a row, which can be read back as it was found. */
static bool rows_of(const struct tp_op *op, const any_plane &from, struct tp_box3 box,
                    place_encode *a)
{
    a->given = true;
    a->element = (uint8_t)from.element;
    return op->block_n == 1 && from.per_n == 1 && from.per_k == box.k && !(from.least > 0) &&
           (tp_op_is_int(op) || (op->codec == TP_CODEC_FP8 && op->rule >= TP_FP8_CT_FP32)) &&
           (tp_op_is_int(op) || from.element == TP_ELEM_F32 || from.element == TP_ELEM_BF16) &&
           tp_cuda_place_scales(from, box, &a->scale);
}

/* Blocks whose amax these kernels find, each with a scale of its own. */
static bool scales_of(const struct tp_op *op, const any_plane &from, struct tp_box3 box,
                      place_encode *a)
{
    const uint64_t n = op->block_n, k = op->block_k;
    a->least = op->codec == TP_CODEC_FP8 ? tp_f32_bits(from.least) : 0;
    a->square = n == PLACE_SIDE && k == PLACE_SIDE && op->codec == TP_CODEC_FP8;
    a->lanes = a->square ? 1 : (uint32_t)k / UNIT;
    return (a->square || (n == 1 && k >= UNIT && k <= PLACE_SIDE)) && from.per_n == n &&
           from.per_k == k && tp_cuda_place_scales(from, box, &a->scale) &&
           scale_shift(op, from, &a->scale_shift);
}

/* False: for cuda_any.cu. */
static bool arguments(const struct tp_op *op, struct tp_args *args, const any_side &side,
                      place_encode *a)
{
    const struct tp_box3 box = args->box;
    memset(a, 0, sizeof *a);
    a->codec = tp_cuda_any_codec(op, args);
    if (side.group8.data != NULL || box.k % UNIT != 0 ||
        (op->rule == TP_INT4_QUOTIENT_BF16 && a->codec.f16 && op->codec == TP_CODEC_INT4) ||
        (op->codec == TP_CODEC_INT4 && side.codes.element != TP_ELEM_INT4) ||
        !tp_cuda_place_codes(side.codes, box, true, &a->codes))
        return false;
    a->lanes = 1;
    if (!a->codec.per_tensor &&
        !(op->block_k == 0 ? rows_of : scales_of)(op, side.scale, box, a))
        return false;
    a->grid = tp_cuda_place_grid(box, a->codes);
    a->global = side.global;
    a->in = (const uint8_t *)args->in[0];
    a->flags = args->device_flags;
    a->n = (uint32_t)box.n;
    a->k = (uint32_t)box.k;
    a->map = dev_map{0, 0, side.codes.element == TP_ELEM_UINT8B128 ? 0x80808080u : 0, {0, 0},
                     {0, 0}};
    if (side.codes.element == TP_ELEM_INT4)
        a->map = dev_map_of(NULL, op->table);
    return a->grid.count != 0;
}

template <int CODEC, int DT> static void launch(const place_encode &a, cudaStream_t stream)
{
    const uint32_t blocks = tp_cuda_place_blocks((const void *)encode_placed<CODEC, DT>, a.grid);
    encode_placed<CODEC, DT><<<blocks, PLACE_THREADS, 0, stream>>>(a);
}

template <int DT> static void launch_codec(const place_encode &a, cudaStream_t stream)
{
    switch (a.codec.codec) {
    case TP_CODEC_INT4:
        launch<TP_CODEC_INT4, DT>(a, stream);
        break;
    case TP_CODEC_INT8:
        launch<TP_CODEC_INT8, DT>(a, stream);
        break;
    case TP_CODEC_FP8:
        launch<TP_CODEC_FP8, DT>(a, stream);
        break;
    case TP_CODEC_MXFP8:
        launch<TP_CODEC_MXFP8, DT>(a, stream);
        break;
    case TP_CODEC_MXFP4:
        launch<TP_CODEC_MXFP4, DT>(a, stream);
        break;
    default:
        launch<TP_CODEC_NVFP4, DT>(a, stream);
        break;
    }
}

/* The first row of a row of tiles, both counted through all experts. */
static uint64_t first_row(const place_encode &a, uint32_t tiles)
{
    return (uint64_t)(tiles / a.grid.n) * a.n + (uint64_t)(tiles % a.grid.n) * PLACE_SIDE;
}

/* Scales of whole rows, then codes, for so many rows at a time that the second reading finds the
 * weights in the device's cache. */
template <int DT> static void launch_rows(place_encode a, const any_plane &scale, void *stream)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const struct place_grid all = a.grid;
    const uint64_t strip = (uint64_t)PLACE_SIDE * a.k * bytes;
    const uint32_t most = strip < PLACE_CACHED ? (uint32_t)(PLACE_CACHED / strip) : 1;
    for (a.grid.first = 0; a.grid.first < all.rows; a.grid.first += most) {
        a.grid.rows = all.rows - a.grid.first < most ? all.rows - a.grid.first : most;
        a.grid.count = a.grid.rows * all.k;
        const uint64_t first = first_row(a, a.grid.first);
        const uint64_t end = first_row(a, a.grid.first + a.grid.rows);
        const place_rows r = {a.codec, scale, a.in, a.flags, first, end - first, a.n, a.k};
        scale_rows<DT><<<(uint32_t)dev_ceil(end - first, PLACE_THREADS / 32), PLACE_THREADS, 0,
                         (cudaStream_t)stream>>>(r);
        launch_codec<DT>(a, (cudaStream_t)stream);
    }
}

extern "C" void tp_cuda_encode_placed(const struct tp_op *op, struct tp_args *args)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    const uint64_t count = args->box.e * args->box.n * args->box.k;
    const struct any_side side = tp_cuda_any_side(op, args, args->out);
    struct place_encode a;
    if (args->flags & TP_FAILED)
        return;
    if (!arguments(op, args, side, &a)) {
        tp_cuda_encode_any(op, args);
        return;
    }
    tp_cuda_any_pad(op, TP_ROLE_CODES, side.codes, count, stream);
    tp_cuda_any_pad(op, TP_ROLE_SCALE, side.scale, any_elements(side.scale, args->box), stream);
    if (a.given)
        DEV_BY_DTYPE(args->dtype, launch_rows, a, side.scale, args->stream);
    else
        DEV_BY_DTYPE(args->dtype, launch_codec, a, stream);
}
