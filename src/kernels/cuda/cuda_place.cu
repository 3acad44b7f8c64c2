/* Weights to codes and scales in any layout that has tables of bits (cuda_place.cuh): a thread
 * quantizes eights of values of one row or of several, so many that its registers hold whole
 * words of what is stored. A tile is 128 x 128 values, which are 2048 eights, 8 for each of the 256
 * threads:
 *
 *     values      8 eights of a thread, in registers
 *     magnitudes  of each block: from its own eights, from lanes side by side, or from all threads
 *     scale       of each block
 *     codes       8 words of a thread; of eight bits 16, in two rounds
 *     exchange    among the words of the thread (place_hand), then through the stage, to memory
 *
 * The largest magnitude of a block comes from the thread's own eights and from lanes side by side,
 * or (FP8 in blocks of 128x128) from all threads. The values of the next tile are on their way
 * while a tile is written; blocks of threads stay for many tiles. K in multiples of 16, blocks of
 * one row and 16 to 128 columns; other shapes go to cuda_any.cu. Invariant: bytes equal
 * tp_encode_ref, padding included.
 */
#include "kernels/cuda/cuda_place_codes.cuh"
#include "kernels/cuda/cuda_place_rows.cuh"

/* Blocks of threads on a multiprocessor: as many as leave a thread the registers that it needs. */
#define MIN_BLOCKS(codec, dt)                                             \
    (TP_IS32(dt) ? 2 : !IS_NIBBLES(codec) || (codec) == TP_CODEC_NVFP4 ? 3 : 4)

/* A scale where the others of the tile wait. */
static __device__ __forceinline__ void put_scale(const place_encode &a, uint32_t at, uint32_t bits,
                                                 uint8_t *scales)
{
    if (a.scale_bytes == 4)
        *(uint32_t *)(scales + at) = bits;
    else if (a.scale_bytes == 2)
        *(uint16_t *)(scales + at) = (uint16_t)bits;
    else
        scales[at] = (uint8_t)bits;
}

/* The scale of a block, by one of the threads that share it. */
template <int CODEC>
static __device__ __forceinline__ void keep_scale(const place_encode &a, uint32_t at,
                                                  const any_scale &s, uint8_t *scales)
{
    const bool fp8 = CODEC == TP_CODEC_FP8;
    dev_flag_bad(a.flags, s.bad);
    if (fp8 && a.square ? threadIdx.x == 0 : (threadIdx.x & (a.lanes - 1)) == 0)
        put_scale(a, at, fp8 ? max(s.bits, a.min) >> a.scale_shift : s.bits, scales);
}

/* The first eight of the block whose scale a lane finds where neighbours share them out, or that
 * of another lane's again. */
static __device__ __forceinline__ uint32_t own_eight(const place_encode &a)
{
    return (threadIdx.x & (a.lanes - 1)) << a.joined & (PLACE_EIGHTS - 1);
}

/* What all codes of integers of a thread are made by if no block of its warp is rare: each lane
 * has found it for one block. False: it is not for this warp. `at`: where the lane's scale waits.
 */
template <int CODEC, int DT>
static __device__ __forceinline__ bool own_block(const place_encode &a,
                                                 const place_max<DT> &max, uint32_t at,
                                                 uint8_t *scales, place_block *own)
{
    own->quick = quick_of<CODEC>(a.codec, amax_at<DT>(max, own_eight(a)));
    set_quick<CODEC>(a.codec, own);
    if (!__all_sync(0xFFFFFFFFu, own->quick.ordinary))
        return false;
    if ((threadIdx.x & (a.lanes - 1)) << a.joined < PLACE_EIGHTS)
        put_scale(a, at, own->quick.bits, scales);
    return true;
}

/* Codes of an eight by what the lane that has found its scale knows. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint2 shared_codes(const place_encode &a,
                                                     const place_block &own, uint32_t eight,
                                                     const dev_raw8<DT> &r)
{
    const uint32_t all = 0xFFFFFFFFu, others = a.lanes - 1;
    const uint32_t lane = (threadIdx.x & ~others & 31) | (eight >> a.joined & others);
    const float high = __shfl_sync(all, own.d.high, lane);
    const float low = TP_IS32(DT) ? __shfl_sync(all, own.d.low, lane) : 0.0f;
    const uint32_t max = DT == TP_BF16 ? __shfl_sync(all, own.quick.max, lane) : 0;
    if (CODEC == TP_CODEC_INT4)
        return make_uint2(dev_int4_ordinary<DT>(r, high, low, max), 0);
    return dev_int8_ordinary<DT>(r, high, low, max);
}

/* quantize() where the scales of integers are shared out. False: nothing is done. */
template <int CODEC, int DT>
static __device__ __forceinline__ bool quantize_shared(const place_encode &a,
                                                       const place_values<DT> &v,
                                                       const place_max<DT> &max, uint32_t at,
                                                       uint32_t in, uint8_t *stage,
                                                       uint8_t *scales)
{
    const int rounds = CODE_BITS(CODEC) / 4, eights = PLACE_EIGHTS / rounds;
    place_block own;
    if (!own_block<CODEC, DT>(a, max, at, scales, &own))
        return false;
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        place_words words[1];
#pragma unroll
        for (int j = 0; j < eights; j++) {
            const int i = round * eights + j;
            const uint2 codes = shared_codes<CODEC, DT>(a, own, i, v.r[i]);
            words[0].w[j * rounds] = codes.x;
            if (rounds == 2)
                words[0].w[j * rounds + 1] = codes.y;
        }
        place_stage<CODE_BITS(CODEC)>(a, in, round, words, stage);
    }
    return true;
}

/* quantize() of NVFP4 where neighbouring eights of a thread are a block and no block of its warp is
 * rare: without branches. False: nothing is done. */
template <int DT, uint32_t RULE>
static __device__ __forceinline__ bool quantize_pairs(const place_encode &a,
                                                      const place_values<DT> &v, uint32_t at,
                                                      uint32_t in, uint8_t *stage,
                                                      uint8_t *scales)
{
    const int pairs = PLACE_EIGHTS / 2;
    uint32_t bits[pairs];
    nv_block b[pairs];
    bool special = false;
    place_words words[1];
#pragma unroll
    for (int j = 0; j < pairs; j++) {
        const uint32_t amax = dev_amax_bits<DT>(
            dev_amax8<DT>(dev_amax8<DT>(0, v.r[2 * j]), v.r[2 * j + 1]));
        float factor;
        bits[j] = nv_scale<DT, RULE>(a.nv, amax, &factor);
        b[j] = nv_block_of(RULE, factor, amax, 6.9f);
        special = special || b[j].special;
    }
    if (__any_sync(0xFFFFFFFFu, special))
        return false;
#pragma unroll
    for (int j = 0; j < pairs; j++)
        put_scale(a, at ^ a.high_scale[2 * j], bits[j], scales);
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS; i++)
        words[0].w[i] = nv_ordinary<DT, RULE>(b[i / 2], v.r[i]);
    place_stage<4>(a, in, 0, words, stage);
    return true;
}

/* A thread's values to codes in the stage; `at`: its first scale, `own`: that of own_eight(). */
template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ void quantize(const place_encode &a, const place_values<DT> &v,
                                                uint32_t at, uint32_t own, uint32_t in,
                                                uint8_t *stage, uint8_t *scales)
{
    const int rounds = CODE_BITS(CODEC) / 4, eights = PLACE_EIGHTS / rounds;
    const bool given = TAKES_GIVEN(CODEC) && RULE == GIVEN, tensor = IS_TENSOR(CODEC, RULE);
    const bool square = CODEC == TP_CODEC_FP8 && !tensor && a.square;
    const uint32_t amax = square ? tile_amax<DT>(v) : tensor ? own_amax<DT>(v) : 0;
    place_max<DT> max;
    place_block b;
    if constexpr (CODEC == TP_CODEC_NVFP4)
        if (a.join == 1 && a.lanes == 1 &&
            quantize_pairs<DT, RULE>(a, v, at, in, stage, scales))
            return;
    if (tensor) {
        b = tensor_block(a, amax);
        dev_flag_bad(a.flags, b.s.bad);
    } else if (!square && !given) {
        max = blocks_amax<DT>(a, v);
    }
    const bool known = tensor && a.tensor.exact && b.s.fp8.divide && !b.s.bad;
    if constexpr (IS_INT(CODEC) && !given)
        if (a.shared && quantize_shared<CODEC, DT>(a, v, max, own, in, stage, scales))
            return;
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        place_words words[1];
#pragma unroll
        for (int j = 0; j < eights; j++) {
            const int i = round * eights + j;
            if (!tensor && (i == 0 || !(i & a.join))) {
                const uint32_t scale_at = at ^ a.high_scale[i];
                b = given ? given_block<CODEC>(a, *(const uint32_t *)(scales + scale_at))
                          : block_of<CODEC, DT, RULE>(a, square ? amax : amax_of<DT>(max, i));
                if (!given)
                    keep_scale<CODEC>(a, scale_at, b.s, scales);
            }
            const uint2 codes = known ? dev_e4m3_known<DT>(v.r[i], a.tensor, b.s.fp8.round_bf16)
                                      : codes_of<CODEC, DT, RULE>(a, b, v.r[i]);
            words[0].w[j * rounds] = codes.x;
            if (rounds == 2)
                words[0].w[j * rounds + 1] = codes.y;
        }
        place_stage<CODE_BITS(CODEC)>(a, in, round, words, stage);
    }
}

template <int CODEC, int DT, uint32_t RULE>
static __global__ __launch_bounds__(PLACE_THREADS, MIN_BLOCKS(CODEC, DT)) void
encode_placed(const __grid_constant__ struct place_encode a)
{
    const int bits = CODE_BITS(CODEC);
    const bool given = TAKES_GIVEN(CODEC) && RULE == GIVEN;
    __shared__ place_shared<bits, bits / 4> shared;
    __shared__ uint32_t own[PLACE_THREADS]; /* of the scale that a thread finds for others */
    const place_plane &to_scale = a.plane[PLACE_TO_SCALE];
    const place_sums &sums = shared.sums;
    const uint32_t me = threadIdx.x;
    uint32_t next[PLACE_SCALE_TURNS] = {0};
    place_values<DT> v;
    place_count(a, &shared.sums);
    if (a.global.data != NULL && blockIdx.x == 0 && me == 0)
        store_global(a.global, a.codec.global);
    place_look(a, blockIdx.x, PLACE_AHEAD, shared.spots);
    __syncthreads();
    own[me] = place_sum_of(sums, SUM_VALUE_SCALE_IN) ^ a.high_scale[own_eight(a)];
    if (given) {
        place_scales(to_scale, place_first(sums, SUM_TO_SCALE_AT), shared.spots[0],
                     shared.spots[0].base[PLACE_TO_SCALE], place_get_scales{next});
        place_keep_scales(to_scale, place_sum_of(sums, SUM_TO_SCALE_IN), next,
                          (uint8_t *)shared.scales[0]);
        __syncthreads();
    }
    load_values<DT>(a, place_first(sums, SUM_FROM_AT), shared.spots[0], &v);
    for (uint32_t i = blockIdx.x, turn = 0; i < a.grid.count; i += gridDim.x, turn++) {
        const place_spot &s = place_spot_of(shared.spots, turn);
        const place_spot &after = place_spot_of(shared.spots, turn + 1);
        const bool more = i + gridDim.x < a.grid.count;
        const uint32_t other = turn % 2 * shared.other;
        uint8_t *scales = (uint8_t *)shared.scales[turn % 2];
        if (given && more)
            place_scales(to_scale, place_first(sums, SUM_TO_SCALE_AT), after,
                         after.base[PLACE_TO_SCALE], place_get_scales{next});
        quantize<CODEC, DT, RULE>(a, v, place_sum_of(sums, SUM_VALUE_SCALE_IN), own[me],
                                  place_sum_of(sums, SUM_HAND_IN) ^ other, shared.stage, scales);
        if (given && more)
            place_keep_scales(to_scale, place_sum_of(sums, SUM_TO_SCALE_IN), next,
                              (uint8_t *)shared.scales[(turn + 1) % 2]);
        place_look_ahead(a, i, turn, shared.spots);
        if (more)
            load_values<DT>(a, place_first(sums, SUM_FROM_AT), after, &v);
        __syncthreads();
        place_put<bits / 4, true>(a, place_first(sums, SUM_TO_AT),
                                 place_sum_of(sums, SUM_TO_IN) ^ other, s, shared.stage);
        if (to_scale.data != NULL && !given)
            place_scales(to_scale, place_first(sums, SUM_TO_SCALE_AT), s, s.base[PLACE_TO_SCALE],
                         place_put_scales{scales, place_sum_of(sums, SUM_TO_SCALE_IN)});
    }
}

/* ---- host ---------------------------------------------------------------- */

enum { ENCODE_RUN = 8 }; /* tiles of a block of threads; found by measuring */

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
    return op->block_n == 1 && from.per_n == 1 && from.per_k == box.k && !(from.min > 0) &&
           (tp_op_is_int(op) || (op->codec == TP_CODEC_FP8 && op->rule >= TP_FP8_CT_FP32)) &&
           (tp_op_is_int(op) || from.element == TP_ELEM_F32 || from.element == TP_ELEM_BF16) &&
           tp_cuda_place_scales(from, CODE_BITS(op->codec), false, box, a->shape,
                                &a->plane[PLACE_TO_SCALE]);
}

/* Blocks whose amax these kernels find, each with a scale of its own. */
static bool scales_of(const struct tp_op *op, const any_plane &from, struct tp_box3 box,
                      place_encode *a)
{
    const uint64_t n = op->block_n, k = op->block_k;
    const uint32_t bits = CODE_BITS(op->codec);
    place_plane *to = &a->plane[PLACE_TO_SCALE];
    a->min = op->codec == TP_CODEC_FP8 ? tp_f32_bits(from.min) : 0;
    a->square = n == 1u << a->shape.rows && k == 1u << a->shape.columns &&
                op->codec == TP_CODEC_FP8;
    return (a->square || (n == 1 && k >= UNIT && k <= 1u << a->shape.columns)) && from.per_n == n &&
           from.per_k == k &&
           ((!a->given && tp_cuda_place_scales(from, bits, true, box, a->shape, to)) ||
            tp_cuda_place_scales(from, bits, false, box, a->shape, to)) &&
           scale_shift(op, from, &a->scale_shift);
}

/* Scales of groups that are searched, which are read back as they were found. */
static bool groups_of(const struct tp_op *op, const any_plane &from, struct tp_box3 box,
                      place_encode *a)
{
    a->given = a->grouped = true;
    a->element = (uint8_t)from.element;
    return scales_of(op, from, box, a);
}

static bool all_scales_of(const struct tp_op *op, const any_plane &from, struct tp_box3 box,
                          place_encode *a)
{
    if (tp_op_search(op) != TP_SEARCH_NONE)
        return groups_of(op, from, box, a);
    return (op->block_k == 0 ? rows_of : scales_of)(op, from, box, a);
}

/* Codes, and which eights and lanes share a block. */
static bool codes_of(const struct tp_op *op, struct tp_args *args, const any_plane &codes,
                     place_encode *a)
{
    const bool wide = (a->given && !a->grouped) || a->codec.per_tensor || a->square;
    const struct place_ends ends = {PLACE_ENCODE,      NULL,      &codes,
                                    (uint8_t *)args->in[0], args->box,
                                    wide ? (uint64_t)1 << a->shape.columns : op->block_k};
    if (codes.data == NULL || !tp_cuda_place_codes(ends, a, &a->join, &a->lanes))
        return false;
    if (a->square) {
        a->join = PLACE_EIGHTS - 1;
        a->lanes = 32;
    }
    while (a->join >> a->joined)
        a->joined++;
    a->shared = a->lanes << a->joined >= PLACE_EIGHTS;
    return true;
}

/* False: for cuda_any.cu. */
static bool arguments(const struct tp_op *op, struct tp_args *args, const any_side &side,
                      place_encode *a)
{
    const struct tp_box3 box = args->box;
    memset(a, 0, sizeof *a);
    a->shape = place_square;
    a->codec = tp_cuda_any_codec(op, args);
    if (side.group8.data != NULL || box.k % UNIT != 0 ||
        (op->rule == TP_INT4_QUOTIENT_BF16 && a->codec.f16 && op->codec == TP_CODEC_INT4) ||
        (op->codec == TP_CODEC_INT4 && side.codes.element != TP_ELEM_INT4))
        return false;
    if (!a->codec.per_tensor && !all_scales_of(op, side.scale, box, a))
        return false;
    if (!codes_of(op, args, side.codes, a))
        return false;
    tp_cuda_place_wait(&a->plane[PLACE_FROM], a);
    tp_cuda_place_sums(a);
    a->grid = tp_cuda_place_grid(box, a->shape, place_n_first(a->plane[PLACE_TO]));
    a->global = side.global;
    a->nv = fp4_global_of(args->global);
    if (a->codec.per_tensor)
        a->tensor = dev_known_divisor_of(args->global, args->dtype);
    a->flags = args->device_flags;
    a->map = dev_map{0, 0, side.codes.element == TP_ELEM_UINT8B128 ? 0x80808080u : 0, {0, 0},
                     {0, 0}};
    if (side.codes.element == TP_ELEM_INT4)
        a->map = dev_map_of(NULL, op->table);
    return a->grid.count != 0;
}

template <int CODEC, int DT, uint32_t RULE = 0>
static void launch(const place_encode &a, cudaStream_t stream)
{
    const uint32_t blocks = tp_cuda_place_blocks((const void *)encode_placed<CODEC, DT, RULE>,
                                                 a.grid, ENCODE_RUN);
    encode_placed<CODEC, DT, RULE><<<blocks, PLACE_THREADS, 0, stream>>>(a);
}

template <int DT> static void launch_nvfp4(const place_encode &a, cudaStream_t stream)
{
    if (a.codec.rule == TP_NVFP4_CT)
        launch<TP_CODEC_NVFP4, DT, TP_NVFP4_CT>(a, stream);
    else if (a.codec.rule == TP_NVFP4_TORCHAO)
        launch<TP_CODEC_NVFP4, DT, TP_NVFP4_TORCHAO>(a, stream);
    else
        launch<TP_CODEC_NVFP4, DT, TP_NVFP4_MODELOPT>(a, stream);
}

/* Scales have been found. */
template <int DT> static void launch_given(const place_encode &a, cudaStream_t stream)
{
    if (a.codec.codec == TP_CODEC_INT4)
        launch<TP_CODEC_INT4, DT, GIVEN>(a, stream);
    else if (a.codec.codec == TP_CODEC_INT8)
        launch<TP_CODEC_INT8, DT, GIVEN>(a, stream);
    else
        launch<TP_CODEC_FP8, DT, GIVEN>(a, stream);
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
        if (a.codec.per_tensor)
            launch<TP_CODEC_FP8, DT, TENSOR>(a, stream);
        else
            launch<TP_CODEC_FP8, DT>(a, stream);
        break;
    case TP_CODEC_MXFP8:
        launch<TP_CODEC_MXFP8, DT>(a, stream);
        break;
    case TP_CODEC_MXFP4:
        launch<TP_CODEC_MXFP4, DT>(a, stream);
        break;
    default:
        launch_nvfp4<DT>(a, stream);
        break;
    }
}

/* What the kernels are called with, and the padding of the outputs enqueued. False: nothing is left
 * to do here, as the call has failed before or the general kernels have it. */
static bool prepare(const struct tp_op *op, struct tp_args *args, struct any_side *side,
                    struct place_encode *a)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    const uint64_t count = args->box.e * args->box.n * args->box.k;
    *side = tp_cuda_any_side(op, args, args->out);
    if (args->flags & TP_FAILED)
        return false;
    if (!arguments(op, args, *side, a)) {
        tp_cuda_encode_any(op, args);
        return false;
    }
    tp_cuda_any_pad(op, TP_ROLE_CODES, side->codes, count, stream);
    tp_cuda_any_pad(op, TP_ROLE_SCALE, side->scale, any_elements(side->scale, args->box), stream);
    return true;
}

extern "C" void tp_cuda_encode_placed(const struct tp_op *op, struct tp_args *args)
{
    struct any_side side;
    struct place_encode a;
    if (!prepare(op, args, &side, &a))
        return;
    if (!a.given) {
        DEV_BY_DTYPE(args->dtype, launch_codec, a, (cudaStream_t)args->stream);
    } else if (!tp_cuda_place_rows_once(a, side, args)) {
        tp_cuda_place_row_scales(a, side, args);
        DEV_BY_DTYPE(args->dtype, launch_given, a, (cudaStream_t)args->stream);
    }
}

extern "C" void tp_cuda_int4_search_placed(const struct tp_op *op, struct tp_args *args)
{
    struct any_side side;
    struct place_encode a;
    if (!prepare(op, args, &side, &a))
        return;
    if (tp_cuda_search_scales(op, args, side.scale))
        DEV_BY_DTYPE(args->dtype, launch_given, a, (cudaStream_t)args->stream);
    else
        tp_cuda_encode_any(op, args);
}
