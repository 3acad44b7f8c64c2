/* Integer codes of strips of eight rows with one scale each, for cuda_place_rows.cu: straight from
 * values in shared memory in the order of storage, where the codes of four of the rows, or of
 * eight, are whole items of 16 bytes. Knows neither where values come from nor who waits for whom.
 * Invariant: bytes equal tp_encode_ref.
 */
#ifndef TP_KERNELS_CUDA_PLACE_STRIP_CUH
#define TP_KERNELS_CUDA_PLACE_STRIP_CUH

#include "kernels/cuda/cuda_place_codes.cuh"

enum {
    ROWS_BAND = 64, /* rows that eight strips share out */
    ROWS_STRIP = 8,
    ROWS_COLUMNS = 1024,           /* of a chunk */
    ROWS_PITCH = ROWS_COLUMNS * 2, /* bytes of a row of a chunk */
    ROWS_CHUNK = ROWS_STRIP * ROWS_PITCH,
    ROWS_MAX_CHUNKS = 14,
    ROWS_RUN = 28,            /* chunks of all strips of a block, about */
    ROWS_OTHER = 1024,        /* bytes that a block has beside them, at most */
    ROWS_UNIT = 128,          /* columns of which a warp makes codes at a time */
    ROWS_ITEM = 16,           /* columns of which four lanes, or eight, do */
    ROWS_CODES = 32,          /* of eight rows that are stored side by side */
    ROWS_PAIRS = 16,          /* of neighbouring columns that a lane has of a unit */
    ROWS_HIGHER = 8 * 2,      /* bytes between both pairs of a row and item */
    ROWS_MAX_THREADS = 1024,  /* of a multiprocessor: 64 registers each */
    ROWS_MAX_BLOCKS = 4,      /* of a multiprocessor */
};

/* A kernel: its codec and type of values. */
template <int CODEC_, int DT_> struct rows_kind {
    static const int CODEC = CODEC_, DT = DT_, BITS = CODE_BITS(CODEC);
    static const int ROWS = BITS == 4 ? 8 : 4; /* of a lane's item */
    static const int ITEMS = 8 / ROWS;         /* of a lane and unit */
    static const int WORDS = 4 * ITEMS;        /* of codes */
};

/* What codes of a row are made by, where its scale is not rare: its reciprocal and place_quick's
 * `max`. */
struct alignas(8) rows_by {
    float high;
    uint32_t max;
};

/* PLACE_TO counts single codes, its tiles are a band's rows of 16 columns. */
struct rows_args : place_encode {
    uint32_t strips;        /* of all experts */
    uint32_t chunks, units; /* of a strip */
    uint32_t run;           /* strips of a block */
    uint32_t warps;         /* that find scales and make codes */
    uint32_t own_row[3];    /* of the bits of a row's number in its strip */
    uint32_t strip_row[3], strip_at[3]; /* of a strip's number in its band */
    uint32_t column_at[2];  /* of those of a pair's number in eight columns */
    uint64_t next_at;       /* from 16 columns to the next ones */
};

static __device__ __forceinline__ uint32_t sum3(const uint32_t (&add)[3], uint32_t number)
{
    return (number & 1) * add[0] + (number >> 1 & 1) * add[1] + (number >> 2 & 1) * add[2];
}

/* ---- scales -------------------------------------------------------------- */

/* The bits of a scale as store_scale() stores them. */
template <int CODEC>
static __device__ __forceinline__ uint32_t stored_bits(const rows_args &a, uint32_t bits)
{
    uint32_t stored = 0;
    any_plane p;
    p.data = (uint8_t *)&stored;
    p.element = a.element;
    p.f16 = a.codec.f16;
    p.min = 0;
    store_scale(p, CODEC, 0, bits);
    return stored;
}

/* False: the scale is rare. */
template <int CODEC>
static __device__ __forceinline__ bool by_of(const rows_args &a, uint32_t stored, rows_by *by)
{
    const place_block b = given_block<CODEC>(a, stored);
    *by = rows_by{b.d.high, b.quick.max};
    return b.quick.ordinary;
}

/* ---- a unit ---------------------------------------------------------------- */

/* What a lane knows of its part of every unit: of codes of four bits all rows of two and two
 * columns of 16, of bytes half of the rows, twice. Half of the lanes read the higher pair of a row
 * first (`swapped`), so that no two meet in a bank. */
struct rows_lane {
    uint32_t column; /* its first in a unit */
    uint32_t in;     /* bytes: its first row and pair in a unit */
    uint64_t out;    /* bytes */
    uint32_t row;    /* its first */
    bool swapped;
};

template <class KIND>
static __device__ __forceinline__ rows_lane lane_of(const rows_args &a)
{
    const uint32_t lane = threadIdx.x % 32, pair = lane / KIND::ITEMS % 4;
    rows_lane l;
    l.swapped = KIND::BITS == 4 ? lane >= 16 : lane % 2;
    l.column = lane / (4 * KIND::ITEMS) * ROWS_ITEM;
    l.row = lane % KIND::ITEMS * KIND::ROWS;
    l.in = l.row * ROWS_PITCH + (l.column + pair * 2) * 2 + l.swapped * ROWS_HIGHER;
    l.out = l.column / ROWS_ITEM * a.next_at + (pair & 1) * a.column_at[0] +
            (pair >> 1) * a.column_at[1];
    l.out = l.out * KIND::BITS / 8 + lane % KIND::ITEMS * 16;
    return l;
}

/* Pairs of a lane's items: by item, row, and which is read first. */
struct rows_pairs {
    uint32_t w[ROWS_PAIRS];
};

template <class KIND>
static __device__ __forceinline__ rows_pairs load_unit(const rows_lane &l, const uint8_t *unit)
{
    const uint8_t *low = unit + l.in, *high = unit + (l.in ^ ROWS_HIGHER);
    rows_pairs v;
#pragma unroll
    for (int i = 0; i < KIND::ITEMS; i++)
#pragma unroll
        for (int r = 0; r < KIND::ROWS; r++) {
            const uint32_t at = r * ROWS_PITCH + i * (ROWS_UNIT / KIND::ITEMS * 2);
            v.w[(i * KIND::ROWS + r) * 2] = *(const uint32_t *)(low + at);
            v.w[(i * KIND::ROWS + r) * 2 + 1] = *(const uint32_t *)(high + at);
        }
    return v;
}

/* The sum of codes 256 apart in their weights, with what their floats have above them. */
template <bool CLAMP>
static __device__ __forceinline__ uint32_t sum_of(const float (&q)[2][2], float base)
{
    uint32_t sum = 0;
#pragma unroll
    for (int i = 3; i >= 0; i--) {
        const float x = q[i & 1][i >> 1];
        sum = sum * 256u +
              __float_as_uint(__fadd_rn(CLAMP ? fminf(x, base + 7.0f) : x, 12582920.0f - base));
    }
    return sum;
}

/* A word of two rows, as dev_int4x8() sums it up, its lowest bit the higher pair's. */
template <int DT>
static __device__ __forceinline__ uint32_t int4_word(const uint32_t *w, const rows_by *by,
                                                     bool swapped)
{
    const float base = 192.0f;
    float q[2][2][2]; /* which is read first, row, column */
#pragma unroll
    for (int i = 0; i < 4; i++)
        dev_ordinary_pair<DT>(w[i], by[i / 2].high, by[i / 2].max, base, q[i % 2][i / 2]);
    return sum_of<DT != TP_BF16>(q[0], base) * (swapped ? 16u : 1u) +
           sum_of<DT != TP_BF16>(q[1], base) * (swapped ? 1u : 16u) - 0x3F400000u;
}

/* A word of a row, its lowest bit the higher pair's. */
template <int DT>
static __device__ __forceinline__ uint32_t int8_word(const uint32_t *w, const rows_by &by,
                                                     bool swapped)
{
    const float base = 768.0f;
    float q[4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float pair[2];
        dev_ordinary_pair<DT>(w[i], by.high, by.max, base, pair);
        q[i] = pair[0];
        q[i + 2] = pair[1];
    }
    return place_bytes(dev_int8x4<DT == TP_BF16>(q, base), 0, swapped ? 0x2301u : 0x3210u);
}

/* Codes of two pairs of any row, in the order of its columns. */
template <int CODEC, int DT>
static __device__ __noinline__ uint32_t any_row_codes(const place_encode &a, uint32_t stored,
                                                      uint32_t low, uint32_t high)
{
    dev_raw8<DT> r = dev_zero_raw8<DT>();
    r.w[0] = low;
    r.w[1] = high;
    return codes_of<CODEC, DT, GIVEN>(a, given_block<CODEC>(a, stored), r).x;
}

/* Words of a strip with a rare scale. */
template <class KIND>
static __device__ __forceinline__ void rare_words(const rows_args &a, const rows_lane &l,
                                                  const uint32_t *scales, const rows_pairs &v,
                                                  uint32_t (&words)[KIND::WORDS])
{
#pragma unroll
    for (int i = 0; i < KIND::WORDS; i++)
        words[i] = 0;
#pragma unroll
    for (int i = 0; i < ROWS_PAIRS; i += 2) {
        const uint32_t row = i / 2 % KIND::ROWS;
        const uint32_t low = l.swapped ? v.w[i + 1] : v.w[i];
        const uint32_t high = l.swapped ? v.w[i] : v.w[i + 1];
        const uint32_t x = any_row_codes<KIND::CODEC, KIND::DT>(a, scales[l.row + row], low, high);
        if (KIND::BITS == 8) {
            words[i / 2] = place_bytes(x, 0, 0x3120);
            continue;
        }
        const uint32_t spread = (x & 0xFu) | (x & 0xF0u) << 12 | (x & 0xF00u) >> 4 |
                                (x & 0xF000u) << 8;
        words[i / 4] |= spread << i / 2 % 2 * 8;
    }
}

template <class KIND>
static __device__ __forceinline__ void ordinary_words(const rows_lane &l,
                                                      const rows_by (&by)[KIND::ROWS],
                                                      const rows_pairs &v,
                                                      uint32_t (&words)[KIND::WORDS])
{
#pragma unroll
    for (int i = 0; i < KIND::WORDS; i++)
        if constexpr (KIND::BITS == 4)
            words[i] = int4_word<KIND::DT>(v.w + i * 4, by + i * 2, l.swapped);
        else
            words[i] = int8_word<KIND::DT>(v.w + i * 2, by[i % KIND::ROWS], l.swapped);
}

/* Codes of a unit to memory; of a lane's items those that lie within the weight. */
template <class KIND>
static __device__ __forceinline__ void put_unit(const rows_args &a, const rows_lane &l,
                                                uint32_t column, uint8_t *out,
                                                uint32_t (&words)[KIND::WORDS])
{
    const uint64_t stride = a.next_at * KIND::BITS / 8;
    if (KIND::BITS == 8 || a.map.kind == 0) {
        const uint32_t flip = a.map.before ^ a.map.after;
#pragma unroll
        for (int i = 0; i < KIND::WORDS; i++)
            words[i] ^= flip;
    } else {
#pragma unroll
        for (int i = 0; i < KIND::WORDS; i++)
            words[i] = dev_map_word(words[i], a.map);
    }
    out += column / ROWS_ITEM * stride;
#pragma unroll
    for (int i = 0; i < KIND::ITEMS; i++)
        if (column + l.column + i * (ROWS_UNIT / KIND::ITEMS) < a.k)
            *(uint4 *)(out + i * (ROWS_UNIT / KIND::ITEMS / ROWS_ITEM) * stride) = make_uint4(
                words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]);
}

#endif
