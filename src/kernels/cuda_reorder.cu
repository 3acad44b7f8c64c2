/* int4 codes taken over from one layout into another: row-major into CUTLASS's
 * reordered form with packed scales, and back.
 *
 * A thread owns the 32 nibbles of rows n and n + 8 in one k tile of 32 columns:
 * two 16-byte loads on the row-major side, one run of 32 bytes on the other. A
 * thread block takes 64 rows by 16 k tiles, through shared memory: 256-byte pieces
 * of rows on one side, 1024-byte runs on the other. The scales are done in the same
 * launch, by thread blocks spread among the others. Invariant: bytes equal
 * tp_repack_ref.
 */
#include "kernels/cuda_rows.cuh"

enum {
    REORDER_THREADS = 256,
    TILE_ROWS = 64,  /* four n tiles of a thread block */
    TILE_KT = 16,    /* k tiles of 32 columns of a thread block */
    SCALE_ROWS = 32, /* rows whose scales a thread block packs */
    MAX_SHARED = 48 * 1024,
};

struct reorder_args {
    const uint8_t *in;
    uint8_t *out;
    const uint16_t *scale_in;
    uint8_t *scale_out;
    float *channel;
    uint64_t n, k;
    uint32_t groups, tiles_n, tiles_k; /* tiles of thread blocks */
    uint32_t scale_blocks, scale_tiles; /* thread blocks for scales; of them along N */
    uint32_t scale_every;               /* every so many thread blocks one of them */
    bool divide, skip_zero;
    uint32_t zero_word; /* stored word of eight zeros */
    dev_map map;
};

/* Row-major words of rows n (w) and n + 8 (v) of a k tile -> 32 bytes. */
static __device__ __forceinline__ void to_run(const uint4 w, const uint4 v, uint32_t run[8])
{
    run[0] = __byte_perm(w.x, v.x, 0x5410);
    run[1] = __byte_perm(w.z, v.z, 0x5410);
    run[2] = __byte_perm(w.x, v.x, 0x7632);
    run[3] = __byte_perm(w.z, v.z, 0x7632);
    run[4] = __byte_perm(w.y, v.y, 0x5410);
    run[5] = __byte_perm(w.w, v.w, 0x5410);
    run[6] = __byte_perm(w.y, v.y, 0x7632);
    run[7] = __byte_perm(w.w, v.w, 0x7632);
}

static __device__ __forceinline__ void from_run(const uint32_t run[8], uint4 &w, uint4 &v)
{
    w = make_uint4(__byte_perm(run[0], run[2], 0x5410), __byte_perm(run[4], run[6], 0x5410),
                   __byte_perm(run[1], run[3], 0x5410), __byte_perm(run[5], run[7], 0x5410));
    v = make_uint4(__byte_perm(run[0], run[2], 0x7632), __byte_perm(run[4], run[6], 0x7632),
                   __byte_perm(run[1], run[3], 0x7632), __byte_perm(run[5], run[7], 0x7632));
}

static __device__ __forceinline__ uint4 map4(uint4 v, const dev_map &m)
{
    return make_uint4(dev_map_word(v.x, m), dev_map_word(v.y, m), dev_map_word(v.z, m),
                      dev_map_word(v.w, m));
}

/* The tile of a thread block, and the places of its pieces in shared memory: 64 of
 * 16 bytes for each k tile, exclusive-ored with the k tile so that neighbouring
 * threads hit all banks. */
struct tile {
    uint64_t e;
    uint32_t nt, kt; /* first n tile of 16 rows, first k tile */
};

static __device__ __forceinline__ struct tile tile_of(const struct reorder_args &a,
                                                      uint32_t block)
{
    struct tile t;
    uint32_t rest = block / a.tiles_n; /* n fastest: long runs are written together */
    t.nt = (block - rest * a.tiles_n) * (TILE_ROWS / 16);
    t.e = rest / a.tiles_k;
    t.kt = (rest - (uint32_t)t.e * a.tiles_k) * TILE_KT;
    return t;
}

static __device__ __forceinline__ uint32_t piece_at(uint32_t kt, uint32_t piece)
{
    return kt * TILE_ROWS + (piece ^ (kt & 7));
}

enum { UNITS = TILE_ROWS / 2 * TILE_KT / REORDER_THREADS }; /* row pairs of a thread */

/* Unit `u` of a thread on the row-major side: which k tile, which row pair. */
struct unit {
    uint32_t kt, pair; /* pair: 8 per n tile */
    uint64_t at;       /* byte in the expert of row n, k tile kt */
    bool inside;
};

static __device__ __forceinline__ struct unit unit_of(const struct reorder_args &a,
                                                      const struct tile &t, int u)
{
    struct unit i;
    uint32_t x = u * REORDER_THREADS + threadIdx.x;
    i.kt = x % TILE_KT;
    i.pair = x / TILE_KT;
    uint64_t row = (uint64_t)(t.nt + i.pair / 8) * 16 + i.pair % 8;
    i.at = row * (a.k / 2) + (uint64_t)(t.kt + i.kt) * 16;
    i.inside = row < a.n && t.kt + i.kt < a.k / 32;
    return i;
}

/* Piece `u` of a thread on the reordered side. */
struct piece {
    uint32_t slot; /* in shared memory */
    uint64_t at;   /* byte in the expert */
    bool inside;
};

static __device__ __forceinline__ struct piece piece_of(const struct reorder_args &a,
                                                        const struct tile &t, int u)
{
    struct piece p;
    uint32_t x = u * REORDER_THREADS + threadIdx.x;
    uint32_t i = x % TILE_ROWS, kt = x / TILE_ROWS;
    p.slot = piece_at(kt, i);
    p.at = (uint64_t)(t.kt + kt) * 16 * a.n + (uint64_t)t.nt * 256 + i * 16;
    p.inside = (uint64_t)t.nt * 16 + i < a.n && t.kt + kt < a.k / 32;
    return p;
}

static __device__ __forceinline__ void reorder_codes(const struct reorder_args &a, uint32_t block,
                                                     uint4 *shared)
{
    const struct tile t = tile_of(a, block);
    const uint64_t half_k = a.k / 2;
    const uint8_t *in = a.in + t.e * a.n * half_k;
    uint8_t *out = a.out + t.e * a.n * half_k;
    uint4 w[UNITS], v[UNITS];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const struct unit i = unit_of(a, t, u);
        w[u] = v[u] = make_uint4(0, 0, 0, 0);
        if (i.inside) {
            w[u] = dev_load16(in + i.at);
            v[u] = dev_load16(in + i.at + 8 * half_k);
        }
    }
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const struct unit i = unit_of(a, t, u);
        uint32_t run[8];
        to_run(map4(w[u], a.map), map4(v[u], a.map), run);
        shared[piece_at(i.kt, i.pair * 2)] = make_uint4(run[0], run[1], run[2], run[3]);
        shared[piece_at(i.kt, i.pair * 2 + 1)] = make_uint4(run[4], run[5], run[6], run[7]);
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < 2 * UNITS; u++) {
        const struct piece p = piece_of(a, t, u);
        if (p.inside)
            *(uint4 *)(out + p.at) = shared[p.slot];
    }
}

/* True when the 128 codes of a group are all zero. */
static __device__ bool group_is_zero(const struct reorder_args &a, uint64_t row, uint32_t g)
{
    const uint4 *p = (const uint4 *)(a.in + row * (a.k / 2) + (uint64_t)g * 64);
    bool zero = true;
    for (int i = 0; i < 4; i++) {
        uint4 v = p[i];
        zero = zero && v.x == a.zero_word && v.y == a.zero_word && v.z == a.zero_word &&
               v.w == a.zero_word;
    }
    return zero;
}

/* The bf16 scales of `rows` whole rows, which lie together, into rows of `pitch`. */
static __device__ __forceinline__ void load_scales(const struct reorder_args &a,
                                                   uint64_t first_row, uint32_t rows,
                                                   uint32_t pitch, uint16_t *scales)
{
    const uint8_t *in = (const uint8_t *)(a.scale_in + first_row * a.groups);
    for (uint32_t i = threadIdx.x; i < rows * a.groups / 8; i += REORDER_THREADS) {
        const uint4 v = dev_load16(in + (uint64_t)i * 16);
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
        uint32_t row = i * 8 / a.groups, g = i * 8 - row * a.groups;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            scales[row * pitch + g] = (uint16_t)(w[j / 2] >> 16 * (j & 1));
            if (++g == a.groups)
                g = 0, row++;
        }
    }
}

/* Channel scales and packed group scales of 32 rows. */
static __device__ void pack_scales(const struct reorder_args &a, uint32_t block,
                                   uint16_t *scales)
{
    __shared__ dev_channel channel[SCALE_ROWS];
    const int row_threads = REORDER_THREADS / SCALE_ROWS;
    const uint64_t e = block / a.scale_tiles;
    const uint32_t n0 = (block - (uint32_t)e * a.scale_tiles) * SCALE_ROWS;
    const uint32_t rows = min((uint32_t)a.n - n0, (uint32_t)SCALE_ROWS);
    const uint32_t pitch = ((a.groups + 1) / 2 | 1) * 2, row = threadIdx.x / row_threads;
    const uint64_t first = e * a.n + n0;
    uint32_t amax = 0;
    load_scales(a, first, rows, pitch, scales);
    __syncthreads();
    if (row < rows)
        for (uint32_t g = threadIdx.x % row_threads; g < a.groups; g += row_threads)
            if (!(a.skip_zero && group_is_zero(a, first + row, g)))
                amax = max(amax, (uint32_t)scales[row * pitch + g] & 0x7FFFu);
    const dev_channel c = dev_channel_of(dev_max_lanes<row_threads>(amax), a.divide);
    if (row < rows && threadIdx.x % row_threads == 0) {
        channel[row] = c;
        a.channel[first + row] = dev_channel_value(c);
    }
    __syncthreads();
    const uint32_t out_row = threadIdx.x % SCALE_ROWS;
    uint2 *out = (uint2 *)a.scale_out + e * a.groups * a.n + n0 + out_row;
    if (out_row < rows)
        for (uint32_t g = threadIdx.x / SCALE_ROWS; g < a.groups; g += row_threads)
            out[g * a.n] = dev_group8(scales[out_row * pitch + g], channel[out_row]);
}

static __global__ __launch_bounds__(REORDER_THREADS) void
reorder_int4(const __grid_constant__ struct reorder_args a)
{
    extern __shared__ uint4 shared[];
    const uint32_t turn = blockIdx.x / a.scale_every;
    if (turn < a.scale_blocks && blockIdx.x == turn * a.scale_every)
        pack_scales(a, turn, (uint16_t *)shared);
    else
        reorder_codes(a, blockIdx.x - min(turn + 1, a.scale_blocks), shared);
}

static __global__ __launch_bounds__(REORDER_THREADS) void
restore_int4(const __grid_constant__ struct reorder_args a)
{
    __shared__ uint4 shared[TILE_ROWS * TILE_KT];
    const struct tile t = tile_of(a, blockIdx.x);
    const uint64_t half_k = a.k / 2;
    const uint8_t *in = a.in + t.e * a.n * half_k;
    uint8_t *out = a.out + t.e * a.n * half_k;
    uint4 v[2 * UNITS];
#pragma unroll
    for (int u = 0; u < 2 * UNITS; u++) {
        const struct piece p = piece_of(a, t, u);
        v[u] = p.inside ? dev_load16(in + p.at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < 2 * UNITS; u++)
        shared[piece_of(a, t, u).slot] = v[u];
    __syncthreads();
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const struct unit i = unit_of(a, t, u);
        const uint4 x = shared[piece_at(i.kt, i.pair * 2)];
        const uint4 y = shared[piece_at(i.kt, i.pair * 2 + 1)];
        const uint32_t run[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
        uint4 low, high;
        from_run(run, low, high);
        if (i.inside) {
            *(uint4 *)(out + i.at) = map4(low, a.map);
            *(uint4 *)(out + i.at + 8 * half_k) = map4(high, a.map);
        }
    }
}

/* bf16 scale of every group: group scale times channel scale. The last of the eight
 * multiples is -1 times the group scale. */
static __global__ void restore_scales(const struct reorder_args a, uint64_t count)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    uint64_t row = i / a.groups, e = row / a.n, g = i - row * a.groups;
    uint64_t unit = (e * a.groups + g) * a.n + (row - e * a.n);
    float group = -tp_e4m3_value(a.in[unit * 8 + 7]);
    ((uint16_t *)a.scale_out)[i] = tp_f32_to_bf16(__fmul_rn(group, a.channel[row]));
}

static void fill_sizes(struct reorder_args *a, struct tp_box3 box)
{
    a->n = box.n;
    a->k = box.k;
    a->groups = (uint32_t)(box.k / 128);
    a->tiles_n = (uint32_t)dev_ceil(box.n, TILE_ROWS);
    a->tiles_k = (uint32_t)dev_ceil(box.k / 32, TILE_KT);
    a->scale_tiles = (uint32_t)dev_ceil(box.n, SCALE_ROWS);
    a->scale_blocks = (uint32_t)(a->scale_tiles * box.e);
}

static bool fits(struct tp_box3 box, uint64_t shared)
{
    return box.k % 128 == 0 && box.n % 16 == 0 && box.k <= 0x7FFFFFFFu && box.n <= 0x7FFFFFFFu &&
           box.e * dev_ceil(box.n, SCALE_ROWS) * (dev_ceil(box.k, 512) + 1) < 0x7FFFFFFFu &&
           shared <= MAX_SHARED - 512;
}

extern "C" void tp_cuda_int4_reorder(const struct tp_op *from, const struct tp_op *to,
                                     struct tp_args *args)
{
    struct reorder_args a;
    fill_sizes(&a, args->box);
    uint64_t shared = SCALE_ROWS * (((args->box.k / 128 + 1) / 2 | 1) * 2) * sizeof(uint16_t);
    if (!fits(args->box, shared)) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    a.in = (const uint8_t *)args->in[tp_op_find(from, TP_ROLE_CODES)];
    a.out = (uint8_t *)args->out[tp_op_find(to, TP_ROLE_CODES)];
    a.scale_in = (const uint16_t *)args->in[tp_op_find(from, TP_ROLE_SCALE)];
    a.scale_out = (uint8_t *)args->out[tp_op_find(to, TP_ROLE_GROUP8)];
    a.channel = (float *)args->out[tp_op_find(to, TP_ROLE_CHANNEL)];
    a.divide = to->channel_div;
    a.skip_zero = to->skip_zero_groups;
    a.zero_word = (from->table[8] & 15) * 0x11111111u;
    a.map = dev_map_of(from->table, to->table);
    uint32_t grid = a.scale_blocks + (uint32_t)(a.tiles_n * a.tiles_k * args->box.e);
    a.scale_every = grid / a.scale_blocks / 2 + 1; /* done well before the end */
    if (shared < sizeof(uint4) * TILE_ROWS * TILE_KT)
        shared = sizeof(uint4) * TILE_ROWS * TILE_KT;
    reorder_int4<<<grid, REORDER_THREADS, shared, (cudaStream_t)args->stream>>>(a);
}

extern "C" void tp_cuda_int4_restore(const struct tp_op *from, const struct tp_op *to,
                                     struct tp_args *args)
{
    struct reorder_args a;
    uint64_t count = args->box.e * args->box.n * (args->box.k / 128);
    fill_sizes(&a, args->box);
    if (!fits(args->box, 0) || dev_ceil(count, 256) > 0x7FFFFFFFu) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    a.in = (const uint8_t *)args->in[tp_op_find(from, TP_ROLE_CODES)];
    a.out = (uint8_t *)args->out[tp_op_find(to, TP_ROLE_CODES)];
    a.map = dev_map_of(from->table, to->table);
    restore_int4<<<(uint32_t)(a.tiles_n * a.tiles_k * args->box.e), REORDER_THREADS, 0,
                   (cudaStream_t)args->stream>>>(a);
    a.in = (const uint8_t *)args->in[tp_op_find(from, TP_ROLE_GROUP8)];
    a.channel = (float *)args->in[tp_op_find(from, TP_ROLE_CHANNEL)];
    a.scale_out = (uint8_t *)args->out[tp_op_find(to, TP_ROLE_SCALE)];
    restore_scales<<<(uint32_t)dev_ceil(count, 256), 256, 0, (cudaStream_t)args->stream>>>(a,
                                                                                           count);
}
