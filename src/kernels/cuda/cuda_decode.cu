/* Packed weights back to fp32 or bf16, and scales moved between layouts under
 * unchanged codes (FP8 to SM100 words, MXFP8 between rows and tiles).
 *
 * Row-major codes: a thread writes 16 bytes at a time, 4 or 8 values of a row. W4A8
 * codes: eight values of each of the two rows that share a run. Column-major codes:
 * tiles through shared memory. Shapes that do not fit go to cuda_any.cu. Invariant:
 * bytes equal tp_decode_ref and tp_repack_ref.
 */
#include "kernels/cuda/cuda_values.cuh"

enum { DECODE_THREADS = 256 };
enum decode_codes { DECODE_E4M3, DECODE_INT4 };

struct decode_args {
    const uint8_t *codes, *scale;
    const float *channel;
    uint8_t *out;
    uint64_t n, k, units;                 /* units of 16 bytes of the result */
    uint32_t shift_n, shift_k;            /* log2 of the scales' per_n and per_k */
    uint32_t rows, columns;               /* scales stored per expert */
    uint32_t place, element;
    bool bf16;
    dev_map map; /* stored nibble -> canonical */
};

static __device__ __forceinline__ uint64_t scale_at(const struct decode_args &a, uint64_t e,
                                                    uint32_t i, uint32_t j)
{
    const uint64_t pitch = dev_up(a.rows, 4);
    switch (a.place) {
    case TP_PLACE_MN_ALIGNED:
        return (e * a.columns + j) * pitch + i;
    case TP_PLACE_MN_PACKED4:
        return ((e * dev_ceil(a.columns, 4) + j / 4) * pitch + i) * 4 + j % 4;
    case TP_PLACE_TILE_N:
        return ((e * dev_ceil(a.rows, 128) + i / 128) * dev_ceil(a.columns, 4) + j / 4) * 512 +
               i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
    case TP_PLACE_TILE_K: /* rows of a tile are k, columns n */
        return ((e * dev_ceil(a.columns, 128) + j / 128) * dev_ceil(a.rows, 4) + i / 4) * 512 +
               j % 32 * 16 + j % 128 / 32 * 4 + i % 4;
    default:
        return (e * a.rows + i) * a.columns + j;
    }
}

static __device__ __forceinline__ float scale_of(const struct decode_args &a, uint64_t at)
{
    if (a.element == TP_ELEM_F32)
        return ((const float *)a.scale)[at];
    if (a.element == TP_ELEM_BF16)
        return tp_bf16_to_f32(((const uint16_t *)a.scale)[at]);
    return tp_e8m0_value(a.scale[at]);
}

/* Values of one thread: 16 bytes of the result. */
template <bool BF16> struct decode_unit {
    static const int values = BF16 ? 8 : 4;
};

template <bool BF16>
static __device__ __forceinline__ void store_unit(uint8_t *out, uint64_t i, const float *v)
{
    *(uint4 *)(out + i * 16) = BF16 ? bf16x8(v) : f32x4(v);
}

/* Where a unit lies: unit index, expert, row, column. */
struct decode_at {
    uint64_t i, e;
    uint32_t n, k;
};

/* Codes of a unit as stored, 4 or 8 of them: bytes in x and y, nibbles in x. */
template <int CODES, bool BF16>
static __device__ __forceinline__ uint2 load_codes(const struct decode_args &a,
                                                   const struct decode_at &t)
{
    if (CODES == DECODE_E4M3)
        return BF16 ? dev_load8b(a.codes + t.i * 8)
                    : make_uint2(dev_load4(a.codes + t.i * 4), 0);
    return make_uint2(BF16 ? dev_load4(a.codes + t.i * 4) : ((const uint16_t *)a.codes)[t.i], 0);
}

template <int CODES, bool BF16>
static __device__ __forceinline__ void decode_one(const struct decode_args &a,
                                                  const struct decode_at &t, uint2 codes)
{
    const int values = decode_unit<BF16>::values;
    float v[values];
    const float s = scale_of(a, scale_at(a, t.e, t.n >> a.shift_n, t.k >> a.shift_k));
    if (CODES == DECODE_INT4) {
        const uint32_t word = dev_map_word(codes.x, a.map);
#pragma unroll
        for (int j = 0; j < values; j++)
            v[j] = __fmul_rn((float)((int)(word >> 4 * j & 15) - 8), s);
    } else {
        scaled4(codes.x, s, v);
        if (BF16)
            scaled4(codes.y, s, v + (BF16 ? 4 : 0));
    }
    store_unit<BF16>(a.out, t.i, v);
}

enum { DECODE_UNITS = 4 }; /* of a thread, all loaded before the first is used */

template <int CODES, bool BF16>
static __global__ __launch_bounds__(DECODE_THREADS) void
decode_flat(const __grid_constant__ struct decode_args a)
{
    const int values = decode_unit<BF16>::values;
    const uint32_t per_row = (uint32_t)(a.k / values);
    struct decode_at t[DECODE_UNITS];
    uint2 codes[DECODE_UNITS];
#pragma unroll
    for (int u = 0; u < DECODE_UNITS; u++) {
        t[u].i = ((uint64_t)blockIdx.x * DECODE_UNITS + u) * DECODE_THREADS + threadIdx.x;
        uint32_t row = (uint32_t)t[u].i / per_row;
        t[u].e = row / (uint32_t)a.n;
        t[u].n = row - (uint32_t)t[u].e * (uint32_t)a.n;
        t[u].k = ((uint32_t)t[u].i - row * per_row) * values;
        if (t[u].i < a.units)
            codes[u] = load_codes<CODES, BF16>(a, t[u]);
    }
#pragma unroll
    for (int u = 0; u < DECODE_UNITS; u++)
        if (t[u].i < a.units)
            decode_one<CODES, BF16>(a, t[u], codes[u]);
}

/* W4A8: a warp takes rows n and n + 8 of a tile, whose codes share runs of 32 bytes. A
 * lane takes 8 (f32: 4) columns of both at a time, one word of the run for each four. */
enum { W4A8_UNITS = 4 };

template <bool BF16> struct w4a8_shape {
    static const uint32_t step = 32 * decode_unit<BF16>::values; /* columns of a warp */
    static const uint32_t columns = W4A8_UNITS * step;
};

struct w4a8_unit {
    uint32_t x, y;
    uint2 scale[2]; /* of the group, in both rows */
};

/* Values of a row from its stored nibbles. The packed scales are the values of the 16
 * codes as e4m3: multiples -8..-1; their negatives are 1..7, and 0. */
template <bool BF16>
static __device__ __forceinline__ void store_w4a8(const struct decode_args &a, uint64_t at,
                                                  uint32_t stored, uint2 scale, float channel)
{
    const uint32_t word = dev_map_word(stored, a.map);
    dev_map m;
    float v[decode_unit<BF16>::values];
    m.lo[0] = scale.x;
    m.lo[1] = scale.y;
    m.hi[0] = __byte_perm(scale.y, 0, 0x1234) ^ 0x80808000u;
    m.hi[1] = __byte_perm(scale.x, scale.y, 0x1234) ^ 0x80808080u;
    scaled4(dev_lookup4(word, m), channel, v);
    if (BF16)
        scaled4(dev_lookup4(word >> 16, m), channel, v + (BF16 ? 4 : 0));
    store_unit<BF16>(a.out, at / decode_unit<BF16>::values, v);
}

template <bool BF16>
static __global__ __launch_bounds__(DECODE_THREADS) void
decode_w4a8(const __grid_constant__ struct decode_args a)
{
    const uint32_t rows = (uint32_t)a.n, columns = (uint32_t)a.k, step = w4a8_shape<BF16>::step;
    const uint32_t steps = (uint32_t)dev_ceil(columns, w4a8_shape<BF16>::columns);
    const uint32_t tile = blockIdx.x / steps;
    const uint32_t k = (blockIdx.x - tile * steps) * w4a8_shape<BF16>::columns +
                       threadIdx.x % 32 * decode_unit<BF16>::values;
    const uint64_t e = tile / (rows / 16);
    const uint32_t n = (tile - (uint32_t)e * (rows / 16)) * 16 + threadIdx.x / 32;
    const uint8_t *run = a.codes + e * a.n * (a.k / 2) + n / 16 * 256 + n % 8 * 32 +
                         (k / 4 % 4 * 2 + k / 16 % 2) * 4;
    const uint2 *scale = (const uint2 *)a.scale + e * (a.k / 128) * a.n + n;
    const float channel[2] = {a.channel[e * a.n + n], a.channel[e * a.n + n + 8]};
    struct w4a8_unit unit[W4A8_UNITS];
#pragma unroll
    for (int u = 0; u < W4A8_UNITS; u++) {
        const uint32_t at = k + u * step;
        if (at >= columns)
            break;
        const uint8_t *p = run + (uint64_t)(at / 32 * 16) * rows;
        const uint2 *s = scale + (uint64_t)(at / 128) * rows;
        unit[u].x = dev_load4(p);
        unit[u].y = BF16 ? dev_load4(p + 8) : 0;
        unit[u].scale[0] = dev_load8b(s);
        unit[u].scale[1] = dev_load8b(s + 8);
    }
#pragma unroll
    for (int u = 0; u < W4A8_UNITS; u++) {
        const uint64_t at = (e * a.n + n) * a.k + k + u * step;
        if (k + u * step >= columns)
            break;
        store_w4a8<BF16>(a, at, __byte_perm(unit[u].x, unit[u].y, 0x5410), unit[u].scale[0],
                         channel[0]);
        store_w4a8<BF16>(a, at + 8 * a.k, __byte_perm(unit[u].x, unit[u].y, 0x7632),
                         unit[u].scale[1], channel[1]);
    }
}

/* Values of row `i` of four, by 8 columns: codes of a column in a word, a scale for each. */
static __device__ __forceinline__ void scaled_row(const uint32_t (&codes)[8], uint32_t i,
                                                  const float *scales, float *v)
{
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        const uint32_t pair = __byte_perm(codes[j], codes[j + 1], i | (i + 4) << 4);
#if __CUDA_ARCH__ >= 890
        const uint32_t halves = dev_f16x2_of((uint16_t)pair);
        v[j] = __fmul_rn(dev_widen<TP_F16>(halves, 0), scales[j]);
        v[j + 1] = __fmul_rn(dev_widen<TP_F16>(halves, 1), scales[j + 1]);
#else
        v[j] = __fmul_rn(tp_e4m3_value((uint8_t)pair), scales[j]);
        v[j + 1] = __fmul_rn(tp_e4m3_value((uint8_t)(pair >> 8)), scales[j + 1]);
#endif
    }
}

/* Column-major codes: a tile of 128 rows by 64 columns. A thread takes 4 rows of 8
 * columns, 4 bytes a column; its values become 16-byte pieces of rows in shared
 * memory, exclusive-ored with the thread's number against bank conflicts. With more or fewer
 * than six thread blocks on a multiprocessor, or with wider tiles, it is slower. */
enum { COL_ROWS = 128, COL_COLUMNS = 64, COL_BLOCKS = 6 };
static_assert(COL_ROWS / 32 * COL_COLUMNS == DECODE_THREADS, "a scale for each thread");

/* The scale that a thread fetches for its tile: of a column in 32 rows. */
static __device__ __forceinline__ float tile_scale(const struct decode_args &a, uint64_t e,
                                                   uint32_t n0, uint32_t k0)
{
    const uint32_t n = min(n0 + threadIdx.x / COL_COLUMNS * 32, (uint32_t)a.n - 1);
    const uint32_t k = min(k0 + threadIdx.x % COL_COLUMNS, (uint32_t)a.k - 1);
    return scale_of(a, scale_at(a, e, n >> a.shift_n, k >> a.shift_k));
}

template <bool BF16>
static __global__ __launch_bounds__(DECODE_THREADS, COL_BLOCKS) void
decode_columns(const __grid_constant__ struct decode_args a)
{
    const int pieces = COL_COLUMNS / decode_unit<BF16>::values; /* of a row */
    __shared__ uint4 tile[COL_ROWS * pieces];
    __shared__ __align__(16) float scales[COL_ROWS / 32 * COL_COLUMNS]; /* of 32 rows */
    const uint32_t tiles_k = (uint32_t)dev_ceil(a.k, COL_COLUMNS);
    const uint32_t tiles_n = (uint32_t)dev_ceil(a.n, COL_ROWS);
    const uint32_t rest = blockIdx.x / tiles_k, kt = blockIdx.x - rest * tiles_k;
    const uint64_t e = rest / tiles_n;
    const uint32_t n0 = (rest - (uint32_t)e * tiles_n) * COL_ROWS, k0 = kt * COL_COLUMNS;
    const uint32_t quad = threadIdx.x % 32, oct = threadIdx.x / 32;
    const uint32_t n = n0 + quad * 4, k = k0 + oct * 8;
    const float *scale = scales + quad / 8 * COL_COLUMNS + oct * 8;
    uint32_t codes[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        codes[j] = n < a.n && k + j < a.k ? dev_load4(a.codes + (e * a.k + k + j) * a.n + n) : 0;
    scales[threadIdx.x] = tile_scale(a, e, n0, k0);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float row[8];
        scaled_row(codes, i, scale, row);
        uint4 *out = tile + (quad * 4 + i) * pieces;
        if (BF16) {
            out[oct ^ (quad & 7)] = bf16x8(row);
        } else {
            out[(oct * 2) ^ (quad & 7)] = f32x4(row);
            out[(oct * 2 + 1) ^ (quad & 7)] = f32x4(row + 4);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COL_ROWS * pieces / DECODE_THREADS; i++) {
        const uint32_t x = i * DECODE_THREADS + threadIdx.x, row = x / pieces, piece = x % pieces;
        const uint64_t at = (e * a.n + n0 + row) * a.k + k0 + piece * decode_unit<BF16>::values;
        if (n0 + row < a.n && k0 + piece * decode_unit<BF16>::values < a.k)
            *(uint4 *)(a.out + at * (BF16 ? 2 : 4)) =
                tile[row * pieces + (piece ^ (row / 4 & 7))];
    }
}

static void scale_facts(struct decode_args *a, const struct tp_op *op, struct tp_box3 box,
                        const void *const *data)
{
    int scale = tp_op_find(op, TP_ROLE_SCALE), channel = tp_op_find(op, TP_ROLE_CHANNEL);
    if (scale < 0)
        scale = tp_op_find(op, TP_ROLE_GROUP8);
    a->scale = (const uint8_t *)data[scale];
    a->channel = channel < 0 ? NULL : (const float *)data[channel];
    a->shift_n = (uint32_t)__builtin_ctz(op->out[scale].per_n); /* rows take powers of two */
    a->shift_k = (uint32_t)__builtin_ctz(op->out[scale].per_k);
    a->rows = (uint32_t)dev_ceil(box.n, op->out[scale].per_n);
    a->columns = (uint32_t)dev_ceil(box.k, op->out[scale].per_k);
    a->place = op->out[scale].place;
    a->element = op->out[scale].element;
}

static struct decode_args args_of(const struct tp_op *op, const struct tp_args *args)
{
    static const uint8_t identity[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct decode_args a;
    a.codes = (const uint8_t *)args->in[tp_op_find(op, TP_ROLE_CODES)];
    a.out = (uint8_t *)args->out[0];
    a.n = args->box.n;
    a.k = args->box.k;
    a.bf16 = args->dtype == TP_BF16;
    a.units = args->box.e * a.n * (a.k / (a.bf16 ? 8 : 4));
    scale_facts(&a, op, args->box, args->in);
    a.map = dev_map_of(op->codec == TP_CODEC_INT4 ? op->table : NULL, identity);
    return a;
}

/* 32-bit indices of units; `multiple`: values along k that must be whole. */
static bool flat_fits(struct tp_box3 box, uint64_t multiple)
{
    return box.k % multiple == 0 && box.e * box.n * (box.k / 4) <= 0xFFFFFFFFu;
}

template <int CODES> static void launch_flat(const struct tp_op *op, struct tp_args *args)
{
    const struct decode_args a = args_of(op, args);
    uint32_t grid = (uint32_t)dev_ceil(a.units, DECODE_UNITS * DECODE_THREADS);
    cudaStream_t stream = (cudaStream_t)args->stream;
    if (a.bf16)
        decode_flat<CODES, true><<<grid, DECODE_THREADS, 0, stream>>>(a);
    else
        decode_flat<CODES, false><<<grid, DECODE_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_decode_row(const struct tp_op *op, struct tp_args *args)
{
    if (!flat_fits(args->box, 8))
        tp_cuda_decode_any(op, args);
    else if (op->codec == TP_CODEC_INT4)
        launch_flat<DECODE_INT4>(op, args);
    else
        launch_flat<DECODE_E4M3>(op, args);
}

extern "C" void tp_cuda_decode_w4a8(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    cudaStream_t stream = (cudaStream_t)args->stream;
    uint64_t grid = box.e * (box.n / 16) *
                    dev_ceil(box.k, args->dtype == TP_BF16 ? w4a8_shape<true>::columns
                                                           : w4a8_shape<false>::columns);
    if (!flat_fits(box, 128) || box.n % 16 != 0 || grid > 0x7FFFFFFFu)
        tp_cuda_decode_any(op, args);
    else if (args->dtype == TP_BF16)
        decode_w4a8<true><<<(uint32_t)grid, DECODE_THREADS, 0, stream>>>(args_of(op, args));
    else
        decode_w4a8<false><<<(uint32_t)grid, DECODE_THREADS, 0, stream>>>(args_of(op, args));
}

extern "C" void tp_cuda_decode_col(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    cudaStream_t stream = (cudaStream_t)args->stream;
    uint64_t grid = box.e * dev_ceil(box.n, COL_ROWS) * dev_ceil(box.k, COL_COLUMNS);
    const struct tp_op_out *scale = &op->out[tp_op_find(op, TP_ROLE_SCALE)];
    if (box.n % 4 != 0 || box.k % 8 != 0 || scale->per_n % 32 != 0 || grid > 0x7FFFFFFFu)
        tp_cuda_decode_any(op, args);
    else if (args->dtype == TP_BF16)
        decode_columns<true><<<(uint32_t)grid, DECODE_THREADS, 0, stream>>>(args_of(op, args));
    else
        decode_columns<false><<<(uint32_t)grid, DECODE_THREADS, 0, stream>>>(args_of(op, args));
}

/* ---- scales under unchanged codes ----------------------------------------- */

/* The codes that are copied along, by thread blocks of their own; none where they stay. More
 * than 16 bytes a thread are slower. */
enum { COPY_BYTES = 16 * DECODE_THREADS /* of a thread block */ };

struct code_copy {
    const uint8_t *in;
    uint8_t *out;
    uint64_t bytes;
    uint32_t first; /* thread block */
};

/* True: the thread block is one that copies, and has. */
static __device__ __forceinline__ bool copied_codes(const struct code_copy &c)
{
    if (blockIdx.x < c.first)
        return false;
    const uint64_t at = (uint64_t)(blockIdx.x - c.first) * COPY_BYTES + threadIdx.x * 16;
    if (at + 16 <= c.bytes)
        *(uint4 *)(c.out + at) = dev_load16(c.in + at);
    else
        for (uint64_t i = at; i < c.bytes; i++)
            c.out[i] = c.in[i];
    return true;
}

/* The biased exponent of a power of two. */
static __device__ __forceinline__ uint32_t exponent_of(float scale)
{
    return __float_as_uint(scale) >> 23 & 0xFFu;
}

/* int32 words of four k blocks, for four neighbouring rows; padding is zero.
 * `quads`: fours of rows in a column. */
static __global__ __launch_bounds__(DECODE_THREADS) void
pack_words(const __grid_constant__ struct decode_args a, uint4 *out, uint32_t quads,
           uint32_t count, const __grid_constant__ struct code_copy codes)
{
    if (copied_codes(codes))
        return;
    const uint32_t i = blockIdx.x * DECODE_THREADS + threadIdx.x, words = (a.columns + 3) / 4;
    if (i >= count)
        return;
    const uint32_t column = i / quads, n = (i - column * quads) * 4;
    const uint32_t e = column / words, j = (column - e * words) * 4;
    uint32_t w[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t b = 0; b < 4; b++) {
        if (j + b >= a.columns)
            continue;
        if (a.place == TP_PLACE_MN_ALIGNED) { /* four rows are 16 bytes */
            const uint4 s = dev_load16(a.scale + 4 * scale_at(a, e, n, j + b));
            w[0] |= exponent_of(__uint_as_float(s.x)) << 8 * b;
            w[1] |= exponent_of(__uint_as_float(s.y)) << 8 * b;
            w[2] |= exponent_of(__uint_as_float(s.z)) << 8 * b;
            w[3] |= exponent_of(__uint_as_float(s.w)) << 8 * b;
            continue;
        }
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            if (n + r < a.n)
                w[r] |= exponent_of(scale_of(a, scale_at(a, e, (n + r) >> a.shift_n, j + b)))
                        << 8 * b;
    }
#pragma unroll
    for (uint32_t r = 0; r < 4; r++)
        w[r] = n + r < a.n ? w[r] : 0;
    out[i] = make_uint4(w[0], w[1], w[2], w[3]);
}

/* e8m0 bytes between rows and 128x4 tiles (TILES: into them), 64 a thread: 16 columns, a
 * multiple of which there are, of four rows that are 32 apart. In each of four tiles their
 * words lie side by side. Two neighbouring threads have the same rows. */
enum { RETILE_COLUMNS = 16, RETILE_ROWS = 32 };

/* Thread blocks of a multiprocessor: those that copy are as many as have room beside. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ / 100 == 12)
enum { RETILE_BLOCKS = 1536 / DECODE_THREADS };
#else
enum { RETILE_BLOCKS = 2048 / DECODE_THREADS };
#endif

template <bool TILES>
static __global__ __launch_bounds__(DECODE_THREADS, RETILE_BLOCKS) void
retile(const __grid_constant__ struct decode_args a, uint8_t *out, uint32_t panels,
       const __grid_constant__ struct code_copy codes)
{
    if (copied_codes(codes))
        return;
    const uint32_t i = blockIdx.x * DECODE_THREADS + threadIdx.x;
    const uint32_t pieces = a.columns / RETILE_COLUMNS;
    const uint32_t threads = (pieces + 1) / 2 * 2 * RETILE_ROWS, panel = i / threads;
    const uint32_t rest = i - panel * threads, piece = rest / (2 * RETILE_ROWS) * 2 + rest % 2;
    const uint32_t n = rest / 2 % RETILE_ROWS, panels_n = (a.rows + 127) / 128;
    if (panel >= panels || piece >= pieces)
        return;
    const uint32_t e = panel / panels_n, row = (panel - e * panels_n) * 128 + n;
    const uint64_t rows_at = ((uint64_t)e * a.rows + row) * a.columns + piece * RETILE_COLUMNS;
    const uint64_t tiles_at = ((uint64_t)panel * pieces + piece) * (4 * 512) + n * 16;
    const uint32_t row_step = RETILE_ROWS * a.columns, left = (a.rows - row - 1) / RETILE_ROWS + 1;
    const uint32_t there = row < a.rows ? min(left, 4u) : 0; /* of the four rows */
    const uint8_t *in = a.scale + (TILES ? rows_at : tiles_at);
    uint4 v[4];
#pragma unroll
    for (uint32_t j = 0; j < 4; j++, in += TILES ? row_step : 512)
        v[j] = !TILES || j < there ? dev_load16(in) : make_uint4(0, 0, 0, 0);
    const uint4 w[4] = {make_uint4(v[0].x, v[1].x, v[2].x, v[3].x),
                        make_uint4(v[0].y, v[1].y, v[2].y, v[3].y),
                        make_uint4(v[0].z, v[1].z, v[2].z, v[3].z),
                        make_uint4(v[0].w, v[1].w, v[2].w, v[3].w)};
    out += TILES ? tiles_at : rows_at;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++, out += TILES ? 512 : row_step)
        if (TILES || j < there)
            *(uint4 *)out = w[j];
}

/* The same for any number of columns: four bytes of one row a thread. */
static __global__ __launch_bounds__(DECODE_THREADS) void
retile_any(const struct decode_args a, uint8_t *out, uint64_t count, bool tiles,
           const __grid_constant__ struct code_copy codes)
{
    if (copied_codes(codes))
        return;
    const uint32_t quads = (a.columns + 3) / 4;
    const uint32_t rows = tiles ? (a.rows + 127) / 128 * 128 : a.rows;
    uint64_t i = (uint64_t)blockIdx.x * DECODE_THREADS + threadIdx.x;
    if (i >= count)
        return;
    uint32_t row, j;
    uint64_t e;
    if (tiles) { /* i counts words of the tiles in their order */
        uint64_t tile = i / 128;
        uint32_t l = (uint32_t)(i % 128), rest = (uint32_t)(tile / quads);
        j = (uint32_t)(tile - (uint64_t)rest * quads) * 4;
        e = rest / (rows / 128);
        row = (rest - (uint32_t)e * (rows / 128)) * 128 + (l & 3) * 32 + l / 4;
    } else {
        uint64_t r = i / quads;
        j = (uint32_t)(i - r * quads) * 4;
        e = r / rows;
        row = (uint32_t)(r - e * rows);
    }
    uint32_t word = 0;
    for (uint32_t b = 0; b < 4; b++)
        if (row < a.rows && j + b < a.columns)
            word |= (uint32_t)a.scale[scale_at(a, e, row, j + b)] << 8 * b;
    if (tiles) {
        ((uint32_t *)out)[i] = word;
        return;
    }
    for (uint32_t b = 0; b < 4 && j + b < a.columns; b++)
        out[(e * a.rows + row) * a.columns + j + b] = (uint8_t)(word >> 8 * b);
}

/* `scales`: thread blocks before those that copy. *grid: all of them. */
static struct code_copy codes_of(const struct tp_op *from, const struct tp_op *to,
                                 const struct tp_args *args, uint64_t scales, uint32_t *grid)
{
    struct code_copy c;
    c.in = (const uint8_t *)args->in[tp_op_find(from, TP_ROLE_CODES)];
    c.out = (uint8_t *)args->out[tp_op_find(to, TP_ROLE_CODES)];
    c.bytes = c.in == c.out ? 0 : args->box.e * args->box.n * args->box.k;
    c.first = (uint32_t)scales;
    *grid = (uint32_t)(scales + dev_ceil(c.bytes, COPY_BYTES));
    return c;
}

extern "C" void tp_cuda_fp8_rescale(const struct tp_op *from, const struct tp_op *to,
                                    struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    struct decode_args a;
    uint32_t grid;
    a.n = box.n;
    scale_facts(&a, from, box, args->in);
    uint64_t quads = dev_ceil(box.n, 4), count = box.e * dev_ceil(a.columns, 4) * quads;
    if (count > 0x7FFFFFFFu) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    const struct code_copy codes =
        codes_of(from, to, args, dev_ceil(count, DECODE_THREADS), &grid);
    pack_words<<<grid, DECODE_THREADS, 0, (cudaStream_t)args->stream>>>(
        a, (uint4 *)args->out[tp_op_find(to, TP_ROLE_SCALE)], (uint32_t)quads, (uint32_t)count,
        codes);
}

extern "C" void tp_cuda_mxfp8_retile(const struct tp_op *from, const struct tp_op *to,
                                     struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    const int scale = tp_op_find(to, TP_ROLE_SCALE);
    const bool tiles = to->out[scale].place == TP_PLACE_TILE_N;
    uint8_t *out = (uint8_t *)args->out[scale];
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct decode_args a;
    uint32_t grid;
    scale_facts(&a, from, box, args->in);
    const uint64_t panels = box.e * dev_ceil(a.rows, 128);
    const uint64_t wide = panels * dev_up(a.columns / RETILE_COLUMNS, 2) * RETILE_ROWS;
    const uint64_t count = box.e * dev_ceil(a.columns, 4) * (tiles ? dev_up(a.rows, 128) : a.rows);
    const bool whole = a.columns % RETILE_COLUMNS == 0;
    if (count > 0x7FFFFFFFu) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    const struct code_copy codes =
        codes_of(from, to, args, dev_ceil(whole ? wide : count, DECODE_THREADS), &grid);
    if (!whole)
        retile_any<<<grid, DECODE_THREADS, 0, stream>>>(a, out, count, tiles, codes);
    else if (tiles)
        retile<true><<<grid, DECODE_THREADS, 0, stream>>>(a, out, (uint32_t)panels, codes);
    else
        retile<false><<<grid, DECODE_THREADS, 0, stream>>>(a, out, (uint32_t)panels, codes);
}
