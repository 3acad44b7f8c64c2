/* Weights to codes and scales in any layout that has tables of bits (cuda_place.cuh): a thread
 * quantizes eights of values of one row or of several, so many that its registers hold whole
 * words of what is stored.
 *
 * The largest magnitude of a block comes from the thread's own eights and from lanes side by side,
 * or (FP8 in blocks of 128x128) from all threads. The values of the next tile are on their way
 * while a tile is written; blocks of threads stay for many tiles. K in multiples of 16, blocks of
 * one row and 16 to 128 columns; other shapes go to cuda_any.cu. Invariant: bytes equal
 * tp_encode_ref, padding included.
 */
#include "kernels/cuda/cuda_fp4.cuh"
#include "kernels/cuda/cuda_int4.cuh"
#include "kernels/cuda/cuda_int8.cuh"
#include "kernels/cuda/cuda_place.cuh"

enum {
    PLACE_EIGHTS = PLACE_SIDE * PLACE_SIDE / PLACE_EIGHT / PLACE_THREADS, /* of a thread */
    PLACE_LOADS = 8, /* eights of a row that a lane has on their way */
};

/* Codecs whose scales may have been found before: RULE is GIVEN then, and of NVFP4 a
 * rule. */
enum { GIVEN = 255 };
#define TAKES_GIVEN(codec) \
    ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_INT8 || (codec) == TP_CODEC_FP8)

#define IS_NIBBLES(codec) \
    ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_MXFP4 || (codec) == TP_CODEC_NVFP4)
#define IS_INT(codec) ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_INT8)
#define CODE_BITS(codec) (IS_NIBBLES(codec) ? 4 : 8)

/* Blocks of threads on a multiprocessor: as many as leave a thread the registers that it needs. */
#define LEAST_BLOCKS(codec, dt)                                             \
    (TP_IS32(dt) ? 2 : !IS_NIBBLES(codec) || (codec) == TP_CODEC_NVFP4 ? 3 : 4)

struct place_encode : place_job {
    struct any_codec codec;
    struct any_plane global;
    struct fp4_global nv;
    uint32_t *flags;
    uint32_t join;        /* bits of an eight's number that do not change its block */
    uint32_t lanes;       /* neighbours that share a block: 1 to 32 */
    uint32_t joined;      /* bits of `join` */
    bool shared;          /* lanes that share blocks are as many as their blocks, or more */
    uint32_t scale_shift; /* from a scale's bits to the stored ones */
    uint32_t least;       /* of the bits of an fp32 scale: smaller ones are stored as this */
    bool square;          /* one scale to a tile */
    bool given;           /* scales that were found before: of whole rows, */
    bool grouped;         /* or of groups */
    uint8_t element;      /* of those */
};

/* A thread's values of a tile as loaded. */
template <int DT> struct place_values {
    dev_raw8<DT> r[PLACE_EIGHTS];
};

template <int DT, bool FULL>
static __device__ __forceinline__ void load_as(const place_encode &a, const place_item &first,
                                               const place_spot &s, place_values<DT> *v)
{
    const uint32_t bytes = place_once(PLACE_EIGHT * (TP_IS32(DT) ? 4 : 2));
    const place_plane &p = a.plane[PLACE_FROM];
    const uint8_t *in = p.data + (s.base[PLACE_FROM] + first.at) * bytes;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS; i++)
        v->r[i] = place_inside<FULL>(a, s, first.rc + p.high_rc[i])
                      ? dev_load_raw8<DT>(in + (uint64_t)p.high_at[i] * bytes)
                      : dev_zero_raw8<DT>();
}

template <int DT>
static __device__ __forceinline__ void load_values(const place_encode &a, const place_item &first,
                                                   const place_spot &s, place_values<DT> *v)
{
    if (s.full)
        load_as<DT, true>(a, first, s, v);
    else
        load_as<DT, false>(a, first, s, v);
}

/* ---- largest magnitudes ---------------------------------------------------- */

/* Of the whole tile, in every thread. */
template <int DT>
static __device__ __forceinline__ uint32_t tile_amax(const place_values<DT> &v)
{
    __shared__ uint32_t most[PLACE_THREADS / 32];
    uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS; i++)
        amax = dev_amax8<DT>(amax, v.r[i]);
    amax = dev_max_lanes<32>(dev_amax_bits<DT>(amax));
    __syncthreads(); /* the last tile's are read */
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = amax;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PLACE_THREADS / 32; i++)
        amax = max(amax, most[i]);
    return amax;
}

/* Magnitudes in the form that several share a word: two of 16 bits, or one. */
template <int DT> struct place_most {
    static const int apart = TP_IS32(DT) ? 1 : 2; /* in a word */
    uint32_t w[PLACE_EIGHTS / apart];
};

template <int DT> static __device__ __forceinline__ uint32_t max_of(uint32_t a, uint32_t b)
{
    return TP_IS32(DT) ? max(a, b) : __vmaxu2(a, b);
}

/* Eights whose numbers differ in a bit have one block. */
template <int DT, int BIT>
static __device__ __forceinline__ void join_eights(place_most<DT> *m)
{
    const int bit = BIT / place_most<DT>::apart;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS / place_most<DT>::apart; i++)
        if (bit == 0)
            m->w[i] = max_of<DT>(m->w[i], __byte_perm(m->w[i], 0, 0x1032));
        else if (!(i & bit))
            m->w[i] = m->w[i | bit] = max_of<DT>(m->w[i], m->w[i | bit]);
}

/* Of the blocks of a thread's eights. */
template <int DT>
static __device__ __forceinline__ place_most<DT> blocks_amax(const place_encode &a,
                                                             const place_values<DT> &v)
{
    const int apart = place_most<DT>::apart;
    place_most<DT> m;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS; i += apart) {
        const uint32_t x = dev_amax8<DT>(0, v.r[i]), y = dev_amax8<DT>(0, v.r[i + apart - 1]);
        m.w[i / apart] = apart == 1 ? x
                                    : __vmaxu2(__byte_perm(x, y, 0x5410),
                                               __byte_perm(x, y, 0x7632));
    }
    if (a.join & 1)
        join_eights<DT, 1>(&m);
    if (a.join & 2)
        join_eights<DT, 2>(&m);
    if (a.join & 4)
        join_eights<DT, 4>(&m);
#pragma unroll 1
    for (uint32_t d = a.lanes / 2; d; d >>= 1)
#pragma unroll
        for (int i = 0; i < PLACE_EIGHTS / apart; i++)
            m.w[i] = max_of<DT>(m.w[i], __shfl_xor_sync(0xFFFFFFFFu, m.w[i], d));
    return m;
}

/* As fp32 bits. */
template <int DT>
static __device__ __forceinline__ uint32_t amax_of(const place_most<DT> &m, int eight)
{
    const uint32_t w = m.w[eight / place_most<DT>::apart];
    return TP_IS32(DT) ? w : dev_amax_bits1<DT>(eight % 2 ? w >> 16 : w & 0xFFFFu);
}

/* The same of an eight that the compiler does not know. */
template <int DT>
static __device__ __forceinline__ uint32_t amax_at(const place_most<DT> &m, uint32_t eight)
{
    uint32_t bits = amax_of<DT>(m, 0);
#pragma unroll
    for (int i = 1; i < PLACE_EIGHTS; i++)
        bits = eight == i ? amax_of<DT>(m, i) : bits;
    return bits;
}

/* ---- scales and codes ------------------------------------------------------ */

/* scale_of() of integers where no magnitude is NaN, infinite, zero or near the
 * ends of the range: without branches. 7.5 and 127.5 have so few bits that dev_divide() by them
 * is exact. */
struct place_quick {
    uint32_t bits, most; /* most: two bf16 numbers whose quotients round to the largest code */
    float value;
    bool ordinary;
};

#define LARGEST(codec) ((codec) == TP_CODEC_INT8 ? 127.0f : 7.0f)

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
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;"
        : "=r"(q.most)
        : "f"(__fmul_rn(q.value, LARGEST(CODEC))));
    return q;
}

/* A scale with so few bits that the short division is exact; infinities are divided the long
 * way. */
static __device__ __forceinline__ bool is_short(const any_scale &s)
{
    const uint32_t bits = __float_as_uint(s.fp8.factor);
    return !s.bad && bits < TP_F32_INF_BITS && (bits & 0xFFFFu) == 0;
}

/* What dev_divide_long() takes, with quotients that are not rounded to bf16 afterwards. */
static __device__ __forceinline__ bool is_long(const any_scale &s)
{
    const uint32_t scale = __float_as_uint(s.fp8.factor);
    return scale - 0x21800000u <= 0x3C000000u && !s.fp8.round_bf16 &&
           (s.amax >> 23) < (scale >> 23) + 19;
}

/* Eight e4m3 codes. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint2 e4m3_of(const any_scale &s, const dev_raw8<DT> &r)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = dev_value<DT>(r, i);
    if (CODEC == TP_CODEC_FP8 && s.fp8.divide && !is_short(s) && is_long(s)) {
        const float y = __frcp_rn(s.fp8.factor);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = dev_divide_long(v[i], s.fp8.factor, y);
    } else if (CODEC == TP_CODEC_FP8 && s.fp8.divide) {
        dev_fp8_divide(v, s.fp8, is_short(s));
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __fmul_rn(v[i], s.fp8.factor);
    }
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
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

/* A block's scale, and what its codes are made by. */
struct place_block {
    any_scale s;
    place_quick quick; /* integers, where it is ordinary */
    dev_divisor d;
    nv_block nv;
};

/* Integers by the short way, also from a scale that was found before. */
template <int CODEC>
static __device__ __forceinline__ void set_quick(const any_codec &c, place_block *b)
{
    b->quick.ordinary = b->quick.ordinary && c.rule == TP_INT4_QUOTIENT_FP32;
    b->d = dev_divisor_of(b->quick.value);
}

template <int CODEC>
static __device__ __forceinline__ place_block given_block(const place_encode &a, uint32_t bits)
{
    place_block b;
    b.s = given_scale(a.codec, a.element, bits);
    if (CODEC == TP_CODEC_INT4 || CODEC == TP_CODEC_INT8) {
        const float value = b.s.fp8.factor;
        b.quick.value = value;
        /* 2^-74 to 2^68; searched ones may be too small for some values, or below zero */
        b.quick.ordinary = !a.grouped && __float_as_uint(value) - 0x1A800000u < 0x47000000u &&
                           (!a.codec.f16 || bits - 0x0400u < 0x7800u);
        asm("cvt.rn.bf16x2.f32 %0, %1, %1;"
            : "=r"(b.quick.most)
            : "f"(__fmul_rn(value, LARGEST(CODEC))));
        set_quick<CODEC>(a.codec, &b);
    }
    return b;
}

/* The scale of rare blocks of integers. */
template <int CODEC>
static __device__ __noinline__ uint32_t rare_scale(uint32_t *flags, bool f16, uint32_t amax)
{
    any_codec c;
    c.codec = CODEC;
    c.f16 = f16;
    const any_scale s = scale_of(c, amax);
    dev_flag_bad(flags, s.bad);
    return s.bits;
}

template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ place_block block_of(const place_encode &a, uint32_t amax)
{
    any_codec c = a.codec;
    place_block b;
    c.codec = CODEC;
    if (CODEC == TP_CODEC_INT4 || CODEC == TP_CODEC_INT8) {
        b.quick = quick_of<CODEC>(c, amax);
        set_quick<CODEC>(c, &b);
        b.s.bits = b.quick.bits;
        b.s.fp8.factor = b.quick.value;
        if (!b.quick.ordinary) {
            b.s.bits = rare_scale<CODEC>(a.flags, c.f16, amax);
            b.s.fp8.factor = scale_value(CODEC, c.f16, b.s.bits);
        }
        b.s.amax = amax;
        b.s.bad = false; /* has been said */
    } else if (CODEC == TP_CODEC_NVFP4) {
        b.s.bad = amax >= TP_F32_INF_BITS;
        b.s.bits = nv_scale<DT, RULE>(a.nv, amax, &b.s.fp8.factor);
        b.nv = nv_block_of(RULE, b.s.fp8.factor, amax, 6.9f);
        if (b.nv.special)
            b.s.bits = dev_nvfp4_scale(RULE, amax, a.nv.global, &b.s.fp8.factor);
    } else {
        b.s = scale_of(c, amax);
    }
    return b;
}

/* Codes of rare blocks; not a part of the loops that have no place for them. */
template <int CODEC, int DT>
static __device__ __noinline__ uint2 rare_codes(dev_raw8<DT> r, float factor, uint32_t amax,
                                                uint32_t rule, bool f16)
{
    if constexpr (CODEC == TP_CODEC_NVFP4)
        return make_uint2(any_codes<DT>(r, factor, rule), 0);
    else if constexpr (CODEC == TP_CODEC_INT4)
        return make_uint2(amax >= TP_F32_INF_BITS ? 0x88888888u
                                                  : dev_int4x8_by_rule<DT>(r, factor, rule),
                          0);
    else
        return amax >= TP_F32_INF_BITS
                   ? make_uint2(0, 0)
                   : dev_int8x8<DT>(r, factor, f16, rule == TP_INT4_QUOTIENT_BF16);
}

template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ uint32_t nv_eight(const place_block &b, dev_raw8<DT> r)
{
    if (b.nv.special)
        return rare_codes<CODEC, DT>(r, b.s.fp8.factor, 0, RULE, false).x;
    if (RULE == TP_NVFP4_MODELOPT) {
#pragma unroll
        for (int i = 0; i < (TP_IS32(DT) ? 8 : 4); i++)
            r.w[i] = dev_plain_zero<DT>(r.w[i]);
    }
    return nv_codes<DT, false, RULE == TP_NVFP4_TORCHAO>(r, b.nv, RULE);
}

/* Eight codes: nibbles in x, or bytes. */
template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ uint2 codes_of(const place_encode &a, const place_block &b,
                                                 const dev_raw8<DT> &r)
{
    if constexpr (CODEC == TP_CODEC_INT4 || CODEC == TP_CODEC_INT8) {
        if (!b.quick.ordinary)
            return rare_codes<CODEC, DT>(r, b.s.fp8.factor, b.s.amax, a.codec.rule, a.codec.f16);
        if constexpr (CODEC == TP_CODEC_INT4)
            return make_uint2(dev_int4_ordinary<DT>(r, b.d.high, b.d.low, b.quick.most), 0);
        else
            return dev_int8_ordinary<DT>(r, b.d.high, b.d.low, b.quick.most);
    } else if constexpr (CODEC == TP_CODEC_NVFP4) {
        return make_uint2(nv_eight<CODEC, DT, RULE>(b, r), 0);
    } else if constexpr (CODEC == TP_CODEC_MXFP4) {
        return make_uint2(mx_codes<DT>(r, b.s.fp8.factor), 0);
    } else {
        return e4m3_of<CODEC, DT>(b.s, r);
    }
}

/* A scale where the others of the tile wait. */
template <int CODEC>
static __device__ __forceinline__ void keep_scale(const place_encode &a, uint32_t at,
                                                  const any_scale &s, uint32_t *scales)
{
    const bool fp8 = CODEC == TP_CODEC_FP8;
    dev_flag_bad(a.flags, s.bad);
    if (fp8 && a.square ? threadIdx.x == 0 : (threadIdx.x & (a.lanes - 1)) == 0)
        scales[at] = fp8 ? max(s.bits, a.least) >> a.scale_shift : s.bits;
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
                                                 const place_most<DT> &most, uint32_t at,
                                                 uint32_t *scales, place_block *own)
{
    own->quick = quick_of<CODEC>(a.codec, amax_at<DT>(most, own_eight(a)));
    set_quick<CODEC>(a.codec, own);
    if (!__all_sync(0xFFFFFFFFu, own->quick.ordinary))
        return false;
    if ((threadIdx.x & (a.lanes - 1)) << a.joined < PLACE_EIGHTS)
        scales[at] = own->quick.bits;
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
    const uint32_t most = DT == TP_BF16 ? __shfl_sync(all, own.quick.most, lane) : 0;
    if (CODEC == TP_CODEC_INT4)
        return make_uint2(dev_int4_ordinary<DT>(r, high, low, most), 0);
    return dev_int8_ordinary<DT>(r, high, low, most);
}

/* quantize() where the scales of integers are shared out. False: nothing is done. */
template <int CODEC, int DT>
static __device__ __forceinline__ bool quantize_shared(const place_encode &a,
                                                       const place_values<DT> &v,
                                                       const place_most<DT> &most, uint32_t at,
                                                       uint32_t in, uint8_t *stage,
                                                       uint32_t *scales)
{
    const int rounds = CODE_BITS(CODEC) / 4, eights = PLACE_EIGHTS / rounds;
    place_block own;
    if (!own_block<CODEC, DT>(a, most, at, scales, &own))
        return false;
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        place_words words;
#pragma unroll
        for (int j = 0; j < eights; j++) {
            const int i = round * eights + j;
            const uint2 codes = shared_codes<CODEC, DT>(a, own, i, v.r[i]);
            words.w[j * rounds] = codes.x;
            if (rounds == 2)
                words.w[j * rounds + 1] = codes.y;
        }
        place_stage<CODE_BITS(CODEC)>(a, in, round, &words, stage);
    }
    return true;
}

/* A thread's values to codes in the stage; `at`: its first scale, `own`: that of own_eight(). */
template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ void quantize(const place_encode &a, const place_values<DT> &v,
                                                uint32_t at, uint32_t own, uint32_t in,
                                                uint8_t *stage, uint32_t *scales)
{
    const int rounds = CODE_BITS(CODEC) / 4, eights = PLACE_EIGHTS / rounds;
    const bool given = TAKES_GIVEN(CODEC) && RULE == GIVEN;
    const bool square = CODEC == TP_CODEC_FP8 && a.square;
    const uint32_t amax = square ? tile_amax<DT>(v) : 0;
    place_most<DT> most;
    place_block b;
    if (!square && !given)
        most = blocks_amax<DT>(a, v);
    if constexpr (IS_INT(CODEC) && !given)
        if (a.shared && quantize_shared<CODEC, DT>(a, v, most, own, in, stage, scales))
            return;
#pragma unroll
    for (int round = 0; round < rounds; round++) {
        place_words words;
#pragma unroll
        for (int j = 0; j < eights; j++) {
            const int i = round * eights + j;
            if (i == 0 || !(i & a.join)) {
                const uint32_t scale_at = at + a.high_scale[i];
                b = given ? given_block<CODEC>(a, scales[scale_at])
                          : block_of<CODEC, DT, RULE>(a, square ? amax : amax_of<DT>(most, i));
                if (!given)
                    keep_scale<CODEC>(a, scale_at, b.s, scales);
            }
            const uint2 codes = codes_of<CODEC, DT, RULE>(a, b, v.r[i]);
            words.w[j * rounds] = codes.x;
            if (rounds == 2)
                words.w[j * rounds + 1] = codes.y;
        }
        place_stage<CODE_BITS(CODEC)>(a, in, round, &words, stage);
    }
}

/* What a thread keeps: its first items, its first scale and the one that it finds for others, and
 * its first bytes of the stage and of the scales. */
enum { KEPT_FROM, KEPT_TO, KEPT_SCALE, KEPT_ITEMS };
enum { KEPT_AT, KEPT_OWN, KEPT_IN, KEPT_OUT, KEPT_SCALE_IN, KEPT_OTHERS };

typedef place_kept<KEPT_ITEMS, KEPT_OTHERS> encode_kept;

static __device__ __forceinline__ void keep_self(const place_encode &a, encode_kept *kept)
{
    const place_plane *p = a.plane;
    const place_item from = place_first(p[PLACE_FROM]);
    kept->keep(KEPT_FROM, from);
    kept->keep(KEPT_TO, place_first(p[PLACE_TO]));
    kept->keep(KEPT_SCALE, place_first(p[PLACE_TO_SCALE]));
    kept->other[KEPT_AT][threadIdx.x] = place_scale_of(p[PLACE_TO_SCALE], from.rc);
    kept->other[KEPT_OWN][threadIdx.x] =
        kept->other[KEPT_AT][threadIdx.x] + a.high_scale[own_eight(a)];
    kept->other[KEPT_IN][threadIdx.x] = place_first_in(a.hand.low_in);
    kept->other[KEPT_OUT][threadIdx.x] = place_first_in(p[PLACE_TO].low_in);
    kept->other[KEPT_SCALE_IN][threadIdx.x] = place_first_in(p[PLACE_TO_SCALE].low_in);
}

template <int CODEC, int DT, uint32_t RULE>
static __global__ __launch_bounds__(PLACE_THREADS, LEAST_BLOCKS(CODEC, DT)) void
encode_placed(const __grid_constant__ struct place_encode a)
{
    const int bits = CODE_BITS(CODEC);
    const bool given = TAKES_GIVEN(CODEC) && RULE == GIVEN;
    __shared__ place_shared<bits> shared;
    __shared__ encode_kept kept;
    const place_plane &to_scale = a.plane[PLACE_TO_SCALE];
    const uint32_t me = threadIdx.x;
    uint32_t next[PLACE_SCALE_TURNS] = {0};
    place_values<DT> v;
    keep_self(a, &kept);
    if (a.global.data != NULL && blockIdx.x == 0 && me == 0)
        store_global(a.global, a.codec.global);
    place_look(a, blockIdx.x, shared.spots);
    __syncthreads();
    if (given) {
        place_scales(to_scale, kept.item(KEPT_SCALE), shared.spots[0],
                     shared.spots[0].base[PLACE_TO_SCALE], place_get_scales{next});
        place_keep_scales(to_scale, kept.other[KEPT_SCALE_IN][me], next, shared.scales[0]);
        __syncthreads();
    }
    load_values<DT>(a, kept.item(KEPT_FROM), shared.spots[0], &v);
    for (uint32_t i = blockIdx.x, turn = 0; i < a.grid.count; i += gridDim.x, turn++) {
        const place_spot &s = place_spot_of(shared.spots, turn);
        const place_spot &after = place_spot_of(shared.spots, turn + 1);
        const bool more = i + gridDim.x < a.grid.count;
        const uint32_t other = turn % 2 * shared.other;
        uint32_t *scales = shared.scales[turn % 2];
        if (given && more)
            place_scales(to_scale, kept.item(KEPT_SCALE), after, after.base[PLACE_TO_SCALE],
                         place_get_scales{next});
        quantize<CODEC, DT, RULE>(a, v, kept.other[KEPT_AT][me], kept.other[KEPT_OWN][me],
                                  kept.other[KEPT_IN][me] ^ other, shared.stage, scales);
        if (given && more)
            place_keep_scales(to_scale, kept.other[KEPT_SCALE_IN][me], next,
                              shared.scales[(turn + 1) % 2]);
        place_look_ahead(a, i, turn, shared.spots);
        if (more)
            load_values<DT>(a, kept.item(KEPT_FROM), after, &v);
        __syncthreads();
        place_put<bits>(a, kept.item(KEPT_TO), kept.other[KEPT_OUT][me] ^ other, s, shared.stage);
        if (to_scale.data != NULL && !given)
            place_scales(to_scale, kept.item(KEPT_SCALE), s, s.base[PLACE_TO_SCALE],
                         place_put_scales{(const uint8_t *)scales,
                                          kept.other[KEPT_SCALE_IN][me]});
    }
}

/* ---- scales of whole rows ------------------------------------------------ */

struct place_rows {
    struct any_codec codec;
    struct any_plane scale;
    const uint8_t *in;
    uint32_t *flags;
    uint64_t rows, n, k; /* rows of all experts */
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
    const uint8_t *in = a.in + row * a.k * bytes;
    uint32_t amax = 0;
#pragma unroll 1
    for (uint64_t i = lane; i < a.k / 8; i += 32 * PLACE_LOADS) {
        dev_raw8<DT> r[PLACE_LOADS];
#pragma unroll
        for (int j = 0; j < PLACE_LOADS; j++)
            r[j] = i + 32 * j < a.k / 8 ? dev_load_raw8<DT>(in + (i + 32 * j) * 8 * bytes)
                                        : dev_zero_raw8<DT>();
#pragma unroll
        for (int j = 0; j < PLACE_LOADS; j++)
            amax = dev_amax8<DT>(amax, r[j]);
    }
    const any_scale s = scale_of(a.codec, dev_max_lanes<32>(dev_amax_bits<DT>(amax)));
    if (lane != 0)
        return;
    const uint64_t e = row / a.n;
    dev_flag_bad(a.flags, s.bad);
    store_scale(a.scale, a.codec.codec, at_of(a.scale, e, row - e * a.n, 0), s.bits);
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
           tp_cuda_place_scales(from, CODE_BITS(op->codec), box, &a->plane[PLACE_TO_SCALE]);
}

/* Blocks whose amax these kernels find, each with a scale of its own. */
static bool scales_of(const struct tp_op *op, const any_plane &from, struct tp_box3 box,
                      place_encode *a)
{
    const uint64_t n = op->block_n, k = op->block_k;
    a->least = op->codec == TP_CODEC_FP8 ? tp_f32_bits(from.least) : 0;
    a->square = n == PLACE_SIDE && k == PLACE_SIDE && op->codec == TP_CODEC_FP8;
    return (a->square || (n == 1 && k >= UNIT && k <= PLACE_SIDE)) && from.per_n == n &&
           from.per_k == k &&
           tp_cuda_place_scales(from, CODE_BITS(op->codec), box, &a->plane[PLACE_TO_SCALE]) &&
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
                                    wide ? (uint64_t)PLACE_SIDE : op->block_k};
    if (codes.data == NULL || !tp_cuda_place_codes(ends, a, &a->join, &a->lanes))
        return false;
    if (a->square || a->codec.per_tensor) {
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
    a->codec = tp_cuda_any_codec(op, args);
    if (side.group8.data != NULL || box.k % UNIT != 0 ||
        (op->rule == TP_INT4_QUOTIENT_BF16 && a->codec.f16 && op->codec == TP_CODEC_INT4) ||
        (op->codec == TP_CODEC_INT4 && side.codes.element != TP_ELEM_INT4))
        return false;
    if (!a->codec.per_tensor && !all_scales_of(op, side.scale, box, a))
        return false;
    if (!codes_of(op, args, side.codes, a))
        return false;
    tp_cuda_place_high_scales(a->plane[PLACE_FROM], a->plane[PLACE_TO_SCALE], a);
    a->grid = tp_cuda_place_grid(box, place_n_first(a->plane[PLACE_TO]));
    a->global = side.global;
    a->nv = fp4_global{args->global, 1.0f / args->global};
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
    const uint32_t blocks =
        tp_cuda_place_blocks((const void *)encode_placed<CODEC, DT, RULE>, a.grid);
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

/* Scales of whole rows, then codes: of the whole weight at once, as launches for parts of it that a
 * device's cache holds cost more than reading the weight twice. */
template <int DT>
static void launch_rows(const place_encode &a, const any_plane &scale, uint64_t experts,
                        void *stream)
{
    const uint64_t rows = experts * a.n;
    const place_rows r = {a.codec, scale, a.plane[PLACE_FROM].data, a.flags, rows, a.n, a.k};
    scale_rows<DT><<<(uint32_t)dev_ceil(rows, PLACE_THREADS / 32), PLACE_THREADS, 0,
                     (cudaStream_t)stream>>>(r);
    launch_given<DT>(a, (cudaStream_t)stream);
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
    if (a.given)
        DEV_BY_DTYPE(args->dtype, launch_rows, a, side.scale, args->box.e, args->stream);
    else
        DEV_BY_DTYPE(args->dtype, launch_codec, a, (cudaStream_t)args->stream);
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
