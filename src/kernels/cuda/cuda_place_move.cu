/* Codes from one layout to another, and back to values, where both have tables of bits
 * (cuda_place.cuh): whole words are read in the order in which they are stored, exchanged in
 * registers, and leave shared memory in the other order or as values. A block of threads has one
 * tile of codes that stay codes: the more blocks, the less they wait, and tiles that follow each
 * other are read together. Where values are written, which are more than what is read, it has some,
 * and the words of the next one are on their way while a tile is written.
 *
 * Scales that are stored alike in both go the same way; others are made by cuda_any.cu, which also
 * takes other shapes. Invariant: bytes equal tp_repack_ref and tp_decode_ref.
 */
#include "kernels/cuda/cuda_place.cuh"
#include "kernels/cuda/cuda_values.cuh"

/* What a thread knows of itself for all its tiles. */
struct place_self {
    place_item from, to, from_scale, to_scale; /* a thread's first items */
    uint32_t in, out;                          /* its first bytes of the stage */
    uint32_t from_scale_in, to_scale_in;       /* its first scales in shared memory */
    uint32_t value_scale_in;                   /* that of its first eight of values */
};

static __device__ __forceinline__ place_self self_of(const place_sums &sums)
{
    return place_self{place_first(sums, SUM_FROM_AT),
                      place_first(sums, SUM_TO_AT),
                      place_first(sums, SUM_FROM_SCALE_AT),
                      place_first(sums, SUM_TO_SCALE_AT),
                      place_sum_of(sums, SUM_HAND_IN),
                      place_sum_of(sums, SUM_TO_IN),
                      place_sum_of(sums, SUM_FROM_SCALE_IN),
                      place_sum_of(sums, SUM_TO_SCALE_IN),
                      place_sum_of(sums, SUM_VALUE_SCALE_IN)};
}

/* A thread's codes and scales of a tile as loaded. */
template <int ROUNDS> struct place_taken {
    place_words words[ROUNDS];
    uint32_t scales[PLACE_SCALE_TURNS];
};

template <int ROUNDS>
static __device__ __forceinline__ void take(const place_job &a, const place_self &self,
                                            const place_spot &s, place_taken<ROUNDS> *taken)
{
    const place_plane &scale = a.plane[PLACE_FROM_SCALE];
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
        place_load(a, self.from, s, round, &taken->words[round]);
    place_scales(scale, self.from_scale, s, s.base[PLACE_FROM_SCALE],
                 place_get_scales{taken->scales});
}

/* The tiles of a block of threads, one after the other, or (one stage) its only one:
 * put(self, spot, stage, out, scales) writes what waits in shared memory, scale(bits) is what waits
 * of a scale. */
template <int BITS, int ROUNDS, int STAGES, typename SCALE, typename PUT>
static __device__ __forceinline__ void move_tiles(const place_job &a, SCALE scale, PUT put)
{
    __shared__ place_shared<BITS, ROUNDS, STAGES> shared;
    const place_plane &scales = a.plane[PLACE_FROM_SCALE];
    place_taken<ROUNDS> taken = {};
    place_count(a, &shared.sums);
    place_look(a, blockIdx.x, STAGES == 1 ? 1 : PLACE_AHEAD, shared.spots);
    __syncthreads();
    const place_self self = self_of(shared.sums);
    take<ROUNDS>(a, self, shared.spots[0], &taken);
    for (uint32_t i = blockIdx.x, turn = 0; i < a.grid.count; i += gridDim.x, turn++) {
        const uint32_t other = STAGES == 1 ? 0 : turn % 2 * shared.other;
        uint8_t *waiting = (uint8_t *)shared.scales[turn % STAGES];
        place_stage<BITS>(a, self.in ^ other, 0, taken.words, shared.stage);
#pragma unroll
        for (uint32_t j = 0; j < PLACE_SCALE_TURNS; j++)
            if (j * PLACE_THREADS < scales.count)
                taken.scales[j] = scale(taken.scales[j]);
        place_keep_scales(scales, self.from_scale_in, taken.scales, waiting);
        if (STAGES == 2)
            place_look_ahead(a, i, turn, shared.spots);
        if (STAGES == 2 && i + gridDim.x < a.grid.count)
            take<ROUNDS>(a, self, place_spot_of(shared.spots, turn + 1), &taken);
        __syncthreads();
        put(self, STAGES == 1 ? shared.spots[0] : place_spot_of(shared.spots, turn), shared.stage,
            self.out ^ other, waiting);
        if (STAGES == 1)
            break;
    }
}

enum { REPACK_BLOCKS = 6 }; /* on a multiprocessor: as many as leave a thread 40 registers */

template <int BITS, int ROUNDS>
static __global__ __launch_bounds__(PLACE_THREADS, REPACK_BLOCKS) void
repack_placed(const __grid_constant__ struct place_job a)
{
    const auto same = [](uint32_t bits) { return bits; };
    move_tiles<BITS, ROUNDS, 1>(
        a, same,
        [&](const place_self &self, const place_spot &s, const uint8_t *stage, uint32_t out,
            const uint8_t *scales) {
            place_put<ROUNDS, BITS == 8>(a, self.to, out, s, stage);
            place_scales(a.plane[PLACE_TO_SCALE], self.to_scale, s, s.base[PLACE_TO_SCALE],
                         place_put_scales{scales, self.to_scale_in});
        });
}

/* ---- decode -------------------------------------------------------------- */

struct place_decode : place_job {
    struct any_codec codec;
    struct any_plane global;
    uint32_t element; /* of the scales */
};

/* What codes are multiplied by, from a stored scale. */
static __device__ __forceinline__ float factor_of(const place_decode &a, uint32_t bits,
                                                  float global)
{
    float s;
    switch (a.element) {
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

/* A code that is not e4m3, of a byte or in the lowest four bits. */
template <int CODEC> static __device__ __forceinline__ float value_of(uint32_t code)
{
    if (CODEC == TP_CODEC_INT8)
        return (float)(int8_t)code;
    code &= 15u;
    if (CODEC == TP_CODEC_INT4) /* 2^23 and the code, less 2^23 and the code of zero */
        return __fsub_rn(__uint_as_float(0x4B000000u | code), 8388616.0f);
    /* e2m1 has the exponents of the smallest numbers of fp32 */
    return __fmul_rn(__uint_as_float((code & 7u) << 22 | code >> 3 << 31), 0x1p126f);
}

/* Eight values of words of the stage: nibbles of one, or bytes of two. */
template <int CODEC>
static __device__ __forceinline__ void values_of(uint32_t low, uint32_t high, float factor,
                                                 float (&v)[PLACE_EIGHT])
{
    if constexpr (CODEC == TP_CODEC_FP8) {
        scaled4(low, factor, v);
        scaled4(high, factor, v + 4);
    } else {
        const bool bytes = CODEC == TP_CODEC_INT8;
#pragma unroll
        for (int i = 0; i < PLACE_EIGHT; i++)
            v[i] = __fmul_rn(value_of<CODEC>(!bytes  ? low >> 4 * i
                                             : i < 4 ? low >> 8 * i
                                                     : high >> 8 * (i - 4)),
                             factor);
    }
}

template <int CODEC, bool BF16, bool FULL>
static __device__ __forceinline__ void put_values(const place_decode &a, const place_item &first,
                                                  const place_spot &s, const uint8_t *stage,
                                                  uint32_t in, const uint8_t *scales,
                                                  uint32_t at, float global)
{
    const bool bytes = CODEC == TP_CODEC_FP8 || CODEC == TP_CODEC_INT8;
    const place_plane &p = a.plane[PLACE_TO];
    const uint64_t size = PLACE_EIGHT * (BF16 ? 2 : 4);
    uint8_t *out = p.data + (s.base[PLACE_TO] + first.at) * size;
#pragma unroll 4
    for (int i = 0; i < PLACE_EIGHTS; i++) {
        if (!place_inside<FULL>(a, s, first.rc + p.high_rc[i]))
            continue;
        const uint32_t *codes = (const uint32_t *)(stage + (in ^ p.high_in[i]));
        const uint2 w = bytes ? *(const uint2 *)codes : make_uint2(codes[0], 0);
        float v[PLACE_EIGHT], factor = global;
        if (a.plane[PLACE_FROM_SCALE].data != NULL)
            factor = *(const float *)(scales + (at ^ a.high_scale[i]));
        values_of<CODEC>(w.x, w.y, factor, v);
        uint4 *to = (uint4 *)(out + p.high_at[i] * size);
        to[0] = BF16 ? bf16x8(v) : f32x4(v);
        if (!BF16)
            to[1] = f32x4(v + 4);
    }
}

#define IS_NIBBLES(codec) ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_MXFP4)

template <int CODEC, bool BF16>
static __global__ __launch_bounds__(PLACE_THREADS, IS_NIBBLES(CODEC) ? 4 : 3) void
decode_placed(const __grid_constant__ struct place_decode a)
{
    const float global = load_global(a.global, a.codec.global);
    const int bits = IS_NIBBLES(CODEC) ? 4 : 8;
    move_tiles<bits, bits / 4, 2>(
        a,
        [&](uint32_t bits) { return __float_as_uint(factor_of(a, bits, global)); },
        [&](const place_self &self, const place_spot &s, const uint8_t *stage, uint32_t out,
            const uint8_t *scales) {
            const uint32_t at = self.value_scale_in;
            if (s.full)
                put_values<CODEC, BF16, true>(a, self.to, s, stage, out, scales, at, global);
            else
                put_values<CODEC, BF16, false>(a, self.to, s, stage, out, scales, at, global);
        });
}

/* ---- host ---------------------------------------------------------------- */

enum { DECODE_RUN = 2 }; /* tiles of a block of threads; found by measuring */

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
static bool same_scales(const any_plane &a, const any_plane &b)
{
    return a.data != NULL && b.data != NULL && a.element == b.element && a.f16 == b.f16 &&
           b.min <= a.min && a.per_n == b.per_n && a.per_k == b.per_k;
}

static bool both_scales(const any_plane &from, const any_plane &to, uint32_t code_bits,
                        bool in_words, struct tp_box3 box, place_job *a)
{
    return tp_cuda_place_scales(from, code_bits, in_words, box, a->shape,
                                &a->plane[PLACE_FROM_SCALE]) &&
           tp_cuda_place_scales(to, code_bits, in_words, box, a->shape,
                                &a->plane[PLACE_TO_SCALE]);
}

/* Two rounds of codes of four bits. */
static bool is_double(struct place_shape shape)
{
    return shape.rows + shape.columns == PLACE_MAX_BITS;
}

/* The codes in the widest tiles that both layouts and the weight let be: whole lines of the cache
 * are read then, of fewer rows. */
static bool codes_in_tiles(const struct place_ends &ends, uint32_t code_bits, place_job *a)
{
    static const struct place_shape shapes[] = {{6, 9}, {6, 8}, place_square};
    for (const struct place_shape &shape : shapes) {
        uint32_t join, lanes;
        const bool wide = shape.columns > place_square.columns;
        a->shape = shape;
        if ((code_bits == 8 && is_double(shape)) || (wide && ends.box.k >> shape.columns == 0))
            continue;
        if (tp_cuda_place_codes(ends, a, &join, &lanes))
            return true;
    }
    return false;
}

/* Codes of these kernels in both, and of one width. */
static bool are_movable(const struct tp_op *from, const struct tp_op *to, const any_side &source,
                        const any_side &target)
{
    return source.group8.data == NULL && target.group8.data == NULL && is_plain(from, source) &&
           is_plain(to, target) && source.codes.data != target.codes.data &&
           tp_element_bits((enum tp_element)source.codes.element) ==
               tp_element_bits((enum tp_element)target.codes.element);
}

/* Codes that are exchanged, and their scales where both ends have them alike. */
static bool move_arguments(const any_side &source, const any_side &target, struct tp_box3 box,
                           bool same, place_job *a)
{
    const struct place_ends ends = {PLACE_REPACK, &source.codes, &target.codes, NULL, box, 1};
    const uint32_t code_bits = tp_element_bits((enum tp_element)source.codes.element);
    if (!codes_in_tiles(ends, code_bits, a))
        return false;
    if (!same || (!both_scales(source.scale, target.scale, code_bits, true, box, a) &&
                  !both_scales(source.scale, target.scale, code_bits, false, box, a)))
        a->plane[PLACE_TO_SCALE] = a->plane[PLACE_FROM_SCALE] = place_plane{};
    tp_cuda_place_wait(NULL, a);
    return true;
}

/* *carried: by cuda_place_carry.cu. */
static bool repack_arguments(const struct tp_op *from, const struct tp_op *to, struct tp_box3 box,
                             const any_side &source, const any_side &target, place_job *a,
                             bool *carried)
{
    const bool same = same_scales(source.scale, target.scale);
    memset(a, 0, sizeof *a);
    if (!are_movable(from, to, source, target))
        return false;
    a->map = map_between(from, source, to, &target);
    *carried = tp_cuda_carry_arguments(source.codes, target.codes, box, a);
    if (*carried && same)
        tp_cuda_carry_scales(source.scale, target.scale, box, a);
    else if (!*carried && !move_arguments(source, target, box, same, a))
        return false;
    tp_cuda_place_sums(a);
    a->grid = tp_cuda_place_grid(box, a->shape, place_n_first(a->plane[PLACE_FROM]) &&
                                                    place_n_first(a->plane[PLACE_TO]));
    return a->grid.count != 0;
}

template <int BITS, int ROUNDS>
static void launch_repack(const place_job &a, cudaStream_t stream)
{
    repack_placed<BITS, ROUNDS><<<a.grid.count, PLACE_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_repack_placed(const struct tp_op *from, const struct tp_op *to,
                                      struct tp_args *args)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    const uint64_t count = args->box.e * args->box.n * args->box.k;
    const struct any_side source = tp_cuda_any_side(from, args, (void *const *)args->in);
    const struct any_side target = tp_cuda_any_side(to, args, args->out);
    struct place_job a;
    bool carried;
    if (args->flags & TP_FAILED)
        return;
    if (!repack_arguments(from, to, args->box, source, target, &a, &carried)) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    const bool scales = a.plane[PLACE_TO_SCALE].data != NULL;
    tp_cuda_any_pad(to, TP_ROLE_CODES, target.codes, count, stream);
    if (scales)
        tp_cuda_any_pad(to, TP_ROLE_SCALE, target.scale, any_elements(target.scale, args->box),
                        stream);
    if (carried)
        tp_cuda_carry(a, stream);
    else if (a.plane[PLACE_TO].width == 8)
        launch_repack<8, 2>(a, stream);
    else if (is_double(a.shape))
        launch_repack<4, 2>(a, stream);
    else
        launch_repack<4, 1>(a, stream);
    tp_cuda_repack_any_scales(from, to, args, scales);
}

/* Integers' scales have the type that they were rounded to; eight values of a row have one. */
static bool factors_known(const struct tp_op *op, const any_side &side)
{
    return side.scale.data == NULL ||
           (side.scale.per_k >= PLACE_EIGHT &&
            (!tp_op_is_int(op) ||
             side.scale.element == (side.scale.f16 ? TP_ELEM_F16 : TP_ELEM_BF16)));
}

static bool decode_arguments(const struct tp_op *op, struct tp_args *args, place_decode *a)
{
    const struct tp_box3 box = args->box;
    uint32_t join, lanes;
    memset(a, 0, sizeof *a);
    const struct any_side side = tp_cuda_any_side(op, args, (void *const *)args->in);
    a->shape = place_square;
    a->codec = tp_cuda_any_codec(op, args);
    if (args->flags & TP_FAILED)
        return true;
    const struct place_ends ends = {PLACE_DECODE, &side.codes, NULL, (uint8_t *)args->out[0],
                                    box, 1};
    if (side.group8.data != NULL || !is_plain(op, side) || box.k % PLACE_EIGHT != 0 ||
        !factors_known(op, side) || !tp_cuda_place_codes(ends, a, &join, &lanes) ||
        (!a->codec.per_tensor &&
         !tp_cuda_place_scales(side.scale,
                               tp_element_bits((enum tp_element)side.codes.element), false, box,
                               a->shape, &a->plane[PLACE_FROM_SCALE])))
        return false;
    tp_cuda_place_wait(&a->plane[PLACE_TO], a);
    tp_cuda_place_sums(a);
    a->global = side.global;
    a->element = side.scale.element;
    a->grid = tp_cuda_place_grid(box, a->shape, place_n_first(a->plane[PLACE_TO]));
    a->map = map_between(op, side, NULL, NULL);
    return a->grid.count != 0;
}

template <int CODEC, bool BF16> static void launch_decode(const place_decode &a, void *stream)
{
    const uint32_t blocks =
        tp_cuda_place_blocks((const void *)decode_placed<CODEC, BF16>, a.grid, DECODE_RUN);
    decode_placed<CODEC, BF16><<<blocks, PLACE_THREADS, 0, (cudaStream_t)stream>>>(a);
}

/* MXFP8's codes are FP8's, NVFP4's MXFP4's. */
template <bool BF16> static void launch_codec(const place_decode &a, void *stream)
{
    switch (a.codec.codec) {
    case TP_CODEC_INT4:
        launch_decode<TP_CODEC_INT4, BF16>(a, stream);
        break;
    case TP_CODEC_INT8:
        launch_decode<TP_CODEC_INT8, BF16>(a, stream);
        break;
    case TP_CODEC_FP8:
    case TP_CODEC_MXFP8:
        launch_decode<TP_CODEC_FP8, BF16>(a, stream);
        break;
    default:
        launch_decode<TP_CODEC_MXFP4, BF16>(a, stream);
        break;
    }
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
    if (args->dtype == TP_BF16)
        launch_codec<true>(a, args->stream);
    else
        launch_codec<false>(a, args->stream);
}
