/* Codes from one layout to another, and back to values, where both have tables of bits
 * (cuda_place.cuh): whole words are read in the order in which they are stored, put in rows in
 * shared memory, and leave it in the other order or as values.
 *
 * Scales that are stored alike in both go the same way; others are made by cuda_any.cu, which also
 * takes other shapes. Invariant: bytes equal tp_repack_ref and tp_decode_ref.
 */
#include "kernels/cuda/cuda_place.cuh"

enum { MOVE_TURNS = 8 /* words of a thread that are on their way */ };

struct place_repack {
    struct place_plane codes, scale;           /* what is written */
    struct place_plane from_codes, from_scale; /* what is read */
    struct place_grid grid;
    dev_map map; /* from stored to stored */
};

/* Words of a tile to the stage. */
template <int BITS>
static __device__ __forceinline__ void take_words(const place_plane &p, const place_item &first,
                                                  const place_tile &t, uint8_t *stage,
                                                  const dev_map &map)
{
    const uint8_t *in = p.data + place_base(p, t) * 4;
    const uint32_t at = place_in(p, first.rc);
    for (uint32_t i = 0; i < BITS * 2; i += MOVE_TURNS) {
        uint32_t word[MOVE_TURNS];
        place_item item;
#pragma unroll
        for (uint32_t j = 0; j < MOVE_TURNS; j++)
            word[j] = place_turn(p, first, t, i + j, &item) ? dev_load4(in + item.at * 4ull) : 0;
#pragma unroll
        for (uint32_t j = 0; j < MOVE_TURNS; j++)
            if (place_turn(p, first, t, i + j, &item))
                place_scatter<BITS>(p, stage + at + p.high_in[i + j], dev_map_word(word[j], map));
    }
}

/* The same of items of four words. */
template <int BITS>
static __device__ __forceinline__ void take_wide(const place_plane &p, const place_item &first,
                                                 const place_tile &t, uint8_t *stage,
                                                 const dev_map &map)
{
    const uint8_t *in = p.data + place_base(p, t) * 16;
    const uint32_t at = place_in(p, first.rc), step = p.stage == PLACE_PACKED ? 4 : 32 / BITS;
    uint4 w[BITS / 2];
    place_item item;
#pragma unroll
    for (uint32_t i = 0; i < BITS / 2; i++)
        w[i] = place_turn(p, first, t, i, &item) ? dev_load16(in + item.at * 16ull)
                                                 : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (uint32_t i = 0; i < BITS / 2; i++) {
        uint8_t *b = stage + at + p.high_in[i];
        if (!place_turn(p, first, t, i, &item))
            continue;
        place_scatter<BITS>(p, b, dev_map_word(w[i].x, map));
        place_scatter<BITS>(p, b + step, dev_map_word(w[i].y, map));
        place_scatter<BITS>(p, b + 2 * step, dev_map_word(w[i].z, map));
        place_scatter<BITS>(p, b + 3 * step, dev_map_word(w[i].w, map));
    }
}

template <int BITS>
static __device__ __forceinline__ void take(const place_plane &p, const place_item &first,
                                            const place_tile &t, uint32_t *stage,
                                            const dev_map &map)
{
    if (p.wide)
        take_wide<BITS>(p, first, t, (uint8_t *)stage, map);
    else
        take_words<BITS>(p, first, t, (uint8_t *)stage, map);
}

/* Asks for the words of a tile that comes later. */
static __device__ __forceinline__ void ask(const place_plane &p, const place_item &first,
                                           const place_grid &grid, uint32_t i)
{
    if (i >= grid.count || threadIdx.x % (p.wide ? 4 : 16) != 0)
        return;
    const place_tile t = place_tile_of(grid, i);
    const uint8_t *in = p.data + place_base(p, t) * (p.wide ? 16 : 4);
#pragma unroll 1
    for (uint32_t j = 0; j < place_turns(p); j++) {
        place_item item;
        if (place_turn(p, first, t, j, &item))
            place_ask(in + item.at * (p.wide ? 16ull : 4ull));
    }
}

/* From the stage in the way that the plane says. */
template <int BITS>
static __device__ __forceinline__ void put(const place_plane &p, const place_item &first,
                                           const place_tile &t, const uint32_t *stage)
{
    const dev_map same = {0, 0, 0, {0, 0}, {0, 0}};
    if (p.stage == PLACE_BYTES)
        place_put<BITS, PLACE_BYTES>(p, first, t, stage, same);
    else if (BITS == 4 && p.stage == PLACE_PACKED)
        place_put<BITS, PLACE_PACKED>(p, first, t, stage, same);
    else
        place_put<BITS, PLACE_RUN>(p, first, t, stage, same);
}

template <int BITS>
static __global__ __launch_bounds__(PLACE_THREADS, 4) void
repack_placed(const __grid_constant__ struct place_repack a)
{
    __shared__ __align__(16) uint32_t stage[PLACE_STAGE];
    __shared__ uint32_t scales[PLACE_SCALES];
    const place_item to = place_first(a.codes), from = place_first(a.from_codes);
    const place_item to_scale = place_first(a.scale), from_scale = place_first(a.from_scale);
    for (uint32_t i = blockIdx.x; i < a.grid.count; i += gridDim.x) {
        const place_tile t = place_tile_of(a.grid, i);
        ask(a.from_codes, from, a.grid, i + gridDim.x);
        take<BITS>(a.from_codes, from, t, stage, a.map);
        if (a.scale.data != NULL)
            place_take_scales(a.from_scale, from_scale, t, scales);
        __syncthreads();
        put<BITS>(a.codes, to, t, stage);
        if (a.scale.data != NULL)
            place_put_scales(a.scale, to_scale, t, scales);
        __syncthreads();
    }
}

/* ---- decode -------------------------------------------------------------- */

struct place_decode {
    struct any_codec codec;
    struct place_plane codes, scale;
    struct place_grid grid;
    struct any_side side; /* its global scale */
    uint8_t *out;
    uint32_t n, k;
    dev_map map; /* to canonical codes */
};

/* What codes are multiplied by, from a stored scale. */
static __device__ __forceinline__ float factor_of(const place_decode &a, uint32_t bits,
                                                  float global)
{
    float s;
    switch (a.side.scale.element) {
    case TP_ELEM_BF16:
        s = tp_bf16_to_f32((uint16_t)bits);
        break;
    case TP_ELEM_F16:
        s = tp_f16_to_f32((uint16_t)bits);
        break;
    case TP_ELEM_F32:
        s = tp_bits_f32(bits);
        break;
    case TP_ELEM_E8M0:
        s = tp_e8m0_value((uint8_t)bits);
        break;
    default:
        s = tp_e4m3_value((uint8_t)bits);
        break;
    }
    if (a.codec.codec == TP_CODEC_NVFP4)
        s = a.codec.rule == TP_NVFP4_CT ? __fdiv_rn(s, global) : __fmul_rn(s, global);
    return s;
}

static __device__ __forceinline__ float code_value(uint32_t codec, uint32_t code)
{
    switch (codec) {
    case TP_CODEC_INT4:
        return (float)((int)code - 8);
    case TP_CODEC_INT8:
        return (float)(int8_t)code;
    case TP_CODEC_FP8:
    case TP_CODEC_MXFP8:
        return dev_e4m3_value(code);
    default:
        return tp_e2m1_value((uint8_t)code);
    }
}

/* Four values to their place. */
template <bool BF16>
static __device__ __forceinline__ void put_values(const place_decode &a, uint64_t at,
                                                  uint32_t codes, float factor)
{
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = __float_as_uint(tp_canonical(
            __fmul_rn(code_value(a.codec.codec, codes >> 8 * i & 0xFFu), factor)));
    if constexpr (BF16) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = tp_f32_to_bf16(__uint_as_float(w[i]));
        *(uint2 *)(a.out + at * 2) = make_uint2(w[0] | w[1] << 16, w[2] | w[3] << 16);
    } else {
        *(uint4 *)(a.out + at * 4) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* A warp writes the rows of a tile, four columns a lane. */
template <bool BF16>
static __device__ __forceinline__ void put_rows(const place_decode &a, const place_tile &t,
                                                const uint32_t *stage, const uint32_t *scales,
                                                float global)
{
    const uint32_t column = threadIdx.x % 32 * 4, k = t.k * PLACE_SIDE + column;
    const uint32_t left = min(a.n - t.n * PLACE_SIDE, (uint32_t)PLACE_SIDE);
    const uint32_t shift_n = PLACE_SIDE_LOG2 - a.scale.log2_rows;
    const uint32_t shift_k = PLACE_SIDE_LOG2 - a.scale.log2_columns;
    float factor = global;
    if (k >= a.k)
        return;
#pragma unroll 4
    for (uint32_t row = threadIdx.x / 32; row < left; row += PLACE_THREADS / 32) {
        const uint64_t at = ((uint64_t)t.e * a.n + t.n * PLACE_SIDE + row) * a.k + k;
        if (a.scale.data != NULL)
            factor = __uint_as_float(
                scales[row >> shift_n << a.scale.log2_columns | column >> shift_k]);
        put_values<BF16>(a, at, stage[place_staged(row, column)], factor);
    }
}

template <int BITS, bool BF16>
static __global__ __launch_bounds__(PLACE_THREADS, 4) void
decode_placed(const __grid_constant__ struct place_decode a)
{
    __shared__ __align__(16) uint32_t stage[PLACE_STAGE];
    __shared__ uint32_t scales[PLACE_SCALES];
    const place_item word = place_first(a.codes), scale = place_first(a.scale);
    const float global = load_global(a.side, a.codec.global);
    for (uint32_t i = blockIdx.x; i < a.grid.count; i += gridDim.x) {
        const place_tile t = place_tile_of(a.grid, i);
        ask(a.codes, word, a.grid, i + gridDim.x);
        take<BITS>(a.codes, word, t, stage, a.map);
        if (a.scale.data != NULL)
            place_take_scales(a.scale, scale, t, scales);
        __syncthreads();
        for (uint32_t j = threadIdx.x; a.scale.data != NULL && j < a.scale.count;
             j += PLACE_THREADS)
            scales[j] = __float_as_uint(factor_of(a, scales[j], global));
        __syncthreads();
        put_rows<BF16>(a, t, stage, scales, global);
        __syncthreads();
    }
}

/* ---- host ---------------------------------------------------------------- */

/* Codes of these kernels: whole nibbles of int4, bytes that differ by their highest bit. */
static bool is_plain(const struct tp_op *op, const any_side &side)
{
    return op->codec != TP_CODEC_INT4 || side.codes.element == TP_ELEM_INT4;
}

static dev_map flip_of(bool flip)
{
    return dev_map{0, 0, flip ? 0x80808080u : 0, {0, 0}, {0, 0}};
}

/* From a stored code to a stored or (to NULL) canonical one, of INT8 to the signed byte. */
static dev_map map_between(const struct tp_op *from, const any_side &source, const struct tp_op *to,
                           const any_side *target)
{
    uint8_t same[16];
    for (uint8_t i = 0; i < 16; i++)
        same[i] = i;
    if (source.codes.element == TP_ELEM_INT4)
        return dev_map_of(from->table, to != NULL ? to->table : same);
    const uint32_t other = target != NULL ? target->codes.element : (uint32_t)TP_ELEM_INT8;
    return flip_of(from->codec == TP_CODEC_INT8 && source.codes.element != other);
}

/* The same scales in the same blocks, stored as the same numbers. */
static bool scales_alike(const any_plane &a, const any_plane &b)
{
    return a.data != NULL && b.data != NULL && a.element == b.element && a.f16 == b.f16 &&
           b.least <= a.least && a.per_n == b.per_n && a.per_k == b.per_k;
}

/* Codes of 4 bits are staged as they are stored where both sides have neighbours in a word. */
static bool places_of(const any_plane &source, const any_plane &target, struct tp_box3 box,
                      place_repack *a)
{
    if (!tp_cuda_place_codes(source, box, true, &a->from_codes) ||
        !tp_cuda_place_codes(target, box, true, &a->codes) ||
        a->codes.width != a->from_codes.width)
        return false;
    return (a->codes.stage == PLACE_PACKED) == (a->from_codes.stage == PLACE_PACKED) ||
           (tp_cuda_place_codes(source, box, false, &a->from_codes) &&
            tp_cuda_place_codes(target, box, false, &a->codes));
}

static bool repack_arguments(const struct tp_op *from, const struct tp_op *to, struct tp_box3 box,
                             const any_side &source, const any_side &target, place_repack *a)
{
    memset(a, 0, sizeof *a);
    if (source.group8.data != NULL || target.group8.data != NULL || !is_plain(from, source) ||
        !is_plain(to, target) || source.codes.data == target.codes.data ||
        !places_of(source.codes, target.codes, box, a))
        return false;
    if (!scales_alike(source.scale, target.scale) ||
        !tp_cuda_place_scales(source.scale, box, &a->from_scale) ||
        !tp_cuda_place_scales(target.scale, box, &a->scale))
        a->scale.data = NULL;
    a->grid = tp_cuda_place_grid(box, a->codes);
    a->map = map_between(from, source, to, &target);
    return a->grid.count != 0;
}

template <int BITS> static void launch_repack(const place_repack &a, cudaStream_t stream)
{
    const uint32_t blocks = tp_cuda_place_blocks((const void *)repack_placed<BITS>, a.grid);
    repack_placed<BITS><<<blocks, PLACE_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_repack_placed(const struct tp_op *from, const struct tp_op *to,
                                      struct tp_args *args)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    const uint64_t count = args->box.e * args->box.n * args->box.k;
    const struct any_side source = tp_cuda_any_side(from, args, (void *const *)args->in);
    const struct any_side target = tp_cuda_any_side(to, args, args->out);
    struct place_repack a;
    if (args->flags & TP_FAILED)
        return;
    if (!repack_arguments(from, to, args->box, source, target, &a)) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    tp_cuda_any_pad(to, TP_ROLE_CODES, target.codes, count, stream);
    if (a.scale.data != NULL)
        tp_cuda_any_pad(to, TP_ROLE_SCALE, target.scale, any_elements(target.scale, args->box),
                        stream);
    if (a.codes.width == 4)
        launch_repack<4>(a, stream);
    else
        launch_repack<8>(a, stream);
    tp_cuda_repack_any_scales(from, to, args, a.scale.data != NULL);
}

/* Integers' scales have the type that they were rounded to. */
static bool factors_known(const struct tp_op *op, const any_side &side)
{
    return !tp_op_is_int(op) || side.scale.element == (side.scale.f16 ? TP_ELEM_F16 : TP_ELEM_BF16);
}

static bool decode_arguments(const struct tp_op *op, struct tp_args *args, place_decode *a)
{
    const struct tp_box3 box = args->box;
    memset(a, 0, sizeof *a);
    a->side = tp_cuda_any_side(op, args, (void *const *)args->in);
    a->codec = tp_cuda_any_codec(op, args);
    if (args->flags & TP_FAILED)
        return true;
    if (a->side.group8.data != NULL || !is_plain(op, a->side) || box.k % 8 != 0 ||
        !factors_known(op, a->side) ||
        !tp_cuda_place_codes(a->side.codes, box, false, &a->codes) ||
        (!a->codec.per_tensor && !tp_cuda_place_scales(a->side.scale, box, &a->scale)))
        return false;
    a->grid = tp_cuda_place_grid(box, a->codes);
    a->out = (uint8_t *)args->out[0];
    a->n = (uint32_t)box.n;
    a->k = (uint32_t)box.k;
    a->map = map_between(op, a->side, NULL, NULL);
    return a->grid.count != 0;
}

template <int BITS, bool BF16> static void launch_decode(const place_decode &a, void *stream)
{
    const uint32_t blocks = tp_cuda_place_blocks((const void *)decode_placed<BITS, BF16>, a.grid);
    decode_placed<BITS, BF16><<<blocks, PLACE_THREADS, 0, (cudaStream_t)stream>>>(a);
}

extern "C" void tp_cuda_decode_placed(const struct tp_op *op, struct tp_args *args)
{
    struct place_decode a;
    if (!decode_arguments(op, args, &a)) {
        tp_cuda_decode_any(op, args);
        return;
    }
    if (args->flags & TP_FAILED)
        return;
    const bool bf16 = args->dtype == TP_BF16;
    if (a.codes.width == 4 && bf16)
        launch_decode<4, true>(a, args->stream);
    else if (a.codes.width == 4)
        launch_decode<4, false>(a, args->stream);
    else if (bf16)
        launch_decode<8, true>(a, args->stream);
    else
        launch_decode<8, false>(a, args->stream);
}
