/* int4 codes taken over from one layout into another: row-major into CUTLASS's
 * reordered form with packed scales, and back.
 *
 * A thread owns the 32 nibbles of rows n and n + 8 in one k tile of 32 columns:
 * two 16-byte loads on the row-major side, one run of 32 bytes on the other. A
 * thread block takes 32 rows by 16 k tiles, through shared memory: 256-byte pieces
 * of rows on one side, 512-byte runs on the other. It is that small, and has that few
 * registers, so that many share a multiprocessor and the last ones end together. The
 * grid is (32 rows, 16 k tiles, expert); one step along its k is the scales', in the
 * same launch. Invariant: bytes equal tp_repack_ref.
 */
#include "kernels/cuda/cuda_rows.cuh"

#include "base/num.h"

enum {
    THREADS = 128,
    TILE_ROWS = 32,            /* two n tiles of a thread block; rows whose scales it packs */
    TILE_KT = 16,              /* k tiles of 32 columns of a thread block */
    UNITS = TILE_ROWS / 16,    /* row pairs of a thread, one in each n tile */
    PIECES = 2 * UNITS,        /* 16-byte pieces of a thread on the reordered side */
    ROW_THREADS = THREADS / TILE_ROWS, /* threads that share a row's scales */
    MAX_SHARED = 48 * 1024,
};

/* All the thread blocks that the multiprocessor has threads for. */
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
#define RESIDENT (1536 / THREADS)
#else
#define RESIDENT (2048 / THREADS)
#endif

struct reorder_args {
    const uint8_t *in;
    uint8_t *out;
    const void *scale_in; /* bf16 of each group, or packed: to restore */
    void *scale_out;
    float *channel;
    uint64_t n, k;
    uint32_t groups, scale_step; /* the step along the grid's k that packs scales */
    uint32_t channel_rule;
    bool skip_zero;
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

/* The tile of a thread block: its first n tile of 16 rows and first k tile. */
struct tile {
    uint32_t nt, kt;
};

/* Its pieces in shared memory: 32 of 16 bytes for each k tile, exclusive-ored with the
 * k tile so that neighbouring threads hit all banks. */
static __device__ __forceinline__ uint32_t piece_at(uint32_t kt, uint32_t piece)
{
    return kt * TILE_ROWS + (piece ^ (kt & 7));
}

/* Unit `u` of a thread on the row-major side: k tile threadIdx.x % 16, row
 * threadIdx.x / 16 (and 8 more) of n tile u. */
struct unit {
    uint32_t slot; /* of its two pieces in shared memory: this, and with 1 flipped */
    uint64_t at;   /* byte in the expert of row n, k tile kt */
    bool inside;
};

static __device__ __forceinline__ struct unit unit_of(const struct reorder_args &a, struct tile t,
                                                      uint32_t u)
{
    const uint32_t kt = threadIdx.x % TILE_KT, pair = threadIdx.x / TILE_KT;
    struct unit i;
    i.slot = piece_at(kt, u * 16 + pair * 2);
    i.at = ((t.nt + u) * 16 + pair) * (a.k / 2) + (t.kt + kt) * 16;
    i.inside = (t.nt + u) * 16 < a.n && t.kt + kt < a.k / 32;
    return i;
}

/* Piece `u` of a thread on the reordered side. */
struct piece {
    uint32_t slot; /* in shared memory */
    uint64_t at;   /* byte in the expert */
    bool inside;
};

static __device__ __forceinline__ struct piece piece_of(const struct reorder_args &a,
                                                        struct tile t, uint32_t u)
{
    const uint32_t kt = u * (THREADS / TILE_ROWS) + threadIdx.x / TILE_ROWS;
    const uint32_t i = threadIdx.x % TILE_ROWS;
    struct piece p;
    p.slot = piece_at(kt, i);
    p.at = (t.kt + kt) * (16 * a.n) + t.nt * 256 + i * 16;
    p.inside = t.nt * 16 + i < a.n && t.kt + kt < a.k / 32;
    return p;
}

static __device__ __forceinline__ void reorder_codes(const struct reorder_args &a, struct tile t,
                                                     uint4 *shared)
{
    const uint64_t half_k = a.k / 2;
    const uint8_t *in = a.in + blockIdx.z * (a.n * half_k);
    uint8_t *out = a.out + blockIdx.z * (a.n * half_k);
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
        shared[i.slot] = make_uint4(run[0], run[1], run[2], run[3]);
        shared[i.slot ^ 1] = make_uint4(run[4], run[5], run[6], run[7]);
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < PIECES; u++) {
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
    const uint8_t *in = (const uint8_t *)((const uint16_t *)a.scale_in + first_row * a.groups);
    for (uint32_t i = threadIdx.x; i < rows * a.groups / 8; i += THREADS) {
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

/* Channel scales and packed group scales of 32 rows from n0 on. */
static __device__ __forceinline__ void pack_scales(const struct reorder_args &a, uint32_t n0,
                                                   uint16_t *scales)
{
    __shared__ dev_channel channel[TILE_ROWS];
    const uint32_t rows = min((uint32_t)a.n - n0, (uint32_t)TILE_ROWS);
    const uint32_t pitch = ((a.groups + 1) / 2 | 1) * 2, row = threadIdx.x / ROW_THREADS;
    const uint64_t e = blockIdx.z, first = e * a.n + n0;
    uint32_t amax = 0;
    load_scales(a, first, rows, pitch, scales);
    __syncthreads();
    if (row < rows)
        for (uint32_t g = threadIdx.x % ROW_THREADS; g < a.groups; g += ROW_THREADS)
            if (!(a.skip_zero && group_is_zero(a, first + row, g)))
                amax = max(amax, (uint32_t)scales[row * pitch + g] & 0x7FFFu);
    const dev_channel c = dev_channel_of(dev_max_lanes<ROW_THREADS>(amax), a.channel_rule);
    if (row < rows && threadIdx.x % ROW_THREADS == 0) {
        channel[row] = c;
        a.channel[first + row] = dev_channel_value(c);
    }
    __syncthreads();
    const uint32_t two = threadIdx.x % (TILE_ROWS / 2) * 2; /* rows that lie together */
    if (two >= rows)
        return;
    const dev_channel c0 = channel[two], c1 = channel[two + 1];
    uint2 *out = (uint2 *)a.scale_out + e * a.groups * a.n + n0 + two;
    for (uint32_t g = threadIdx.x / (TILE_ROWS / 2); g < a.groups; g += 2 * ROW_THREADS) {
        const uint2 x = dev_group8(scales[two * pitch + g], c0);
        const uint2 y = dev_group8(scales[(two + 1) * pitch + g], c1);
        *(uint4 *)(out + g * a.n) = make_uint4(x.x, x.y, y.x, y.y);
    }
}

static __global__ __launch_bounds__(THREADS, RESIDENT) void
reorder_int4(const __grid_constant__ struct reorder_args a)
{
    extern __shared__ uint4 shared[];
    if (blockIdx.y == a.scale_step) {
        pack_scales(a, blockIdx.x * TILE_ROWS, (uint16_t *)shared);
        return;
    }
    const uint32_t step = blockIdx.y - (blockIdx.y > a.scale_step);
    const struct tile t = {blockIdx.x * (TILE_ROWS / 16), step * TILE_KT};
    reorder_codes(a, t, shared);
}

/* The bf16 scales of `rows` whole rows, from rows of `pitch`. */
static __device__ __forceinline__ void store_scales(const struct reorder_args &a,
                                                    uint64_t first_row, uint32_t rows,
                                                    uint32_t pitch, const uint16_t *scales)
{
    uint4 *out = (uint4 *)((uint16_t *)a.scale_out + first_row * a.groups);
    for (uint32_t i = threadIdx.x; i < rows * a.groups / 8; i += THREADS) {
        uint32_t w[4], row = i * 8 / a.groups, g = i * 8 - row * a.groups;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const uint32_t s = scales[row * pitch + g];
            w[j / 2] = j & 1 ? w[j / 2] | s << 16 : s;
            if (++g == a.groups)
                g = 0, row++;
        }
        out[i] = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* bf16 scales of the groups of 32 rows from n0 on: group scale times channel scale. The
 * last of the eight multiples is -1 times the group scale. */
static __device__ __forceinline__ void restore_scales(const struct reorder_args &a, uint32_t n0,
                                                      uint16_t *scales)
{
    const uint32_t rows = min((uint32_t)a.n - n0, (uint32_t)TILE_ROWS);
    const uint32_t pitch = ((a.groups + 1) / 2 | 1) * 2;
    const uint32_t two = threadIdx.x % (TILE_ROWS / 2) * 2; /* rows that lie together */
    const uint64_t e = blockIdx.z, first = e * a.n + n0;
    const uint8_t *in = (const uint8_t *)a.scale_in + (e * a.groups * a.n + n0 + two) * 8;
    if (two < rows) {
        const float c0 = a.channel[first + two], c1 = a.channel[first + two + 1];
#pragma unroll 4
        for (uint32_t g = threadIdx.x / (TILE_ROWS / 2); g < a.groups; g += 2 * ROW_THREADS) {
            const uint4 v = dev_load16(in + g * a.n * 8);
            const float s0 = -dev_e4m3_value(v.y >> 24), s1 = -dev_e4m3_value(v.w >> 24);
            scales[two * pitch + g] = tp_f32_to_bf16(__fmul_rn(s0, c0));
            scales[(two + 1) * pitch + g] = tp_f32_to_bf16(__fmul_rn(s1, c1));
        }
    }
    __syncthreads();
    store_scales(a, first, rows, pitch, scales);
}

static __device__ __forceinline__ void restore_codes(const struct reorder_args &a, struct tile t,
                                                     uint4 *shared)
{
    const uint64_t half_k = a.k / 2;
    const uint8_t *in = a.in + blockIdx.z * (a.n * half_k);
    uint8_t *out = a.out + blockIdx.z * (a.n * half_k);
    uint4 v[PIECES];
#pragma unroll
    for (int u = 0; u < PIECES; u++) {
        const struct piece p = piece_of(a, t, u);
        v[u] = p.inside ? dev_load16(in + p.at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < PIECES; u++)
        shared[piece_of(a, t, u).slot] = v[u];
    __syncthreads();
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const struct unit i = unit_of(a, t, u);
        const uint4 x = shared[i.slot], y = shared[i.slot ^ 1];
        const uint32_t run[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
        uint4 low, high;
        from_run(run, low, high);
        if (i.inside) {
            *(uint4 *)(out + i.at) = map4(low, a.map);
            *(uint4 *)(out + i.at + 8 * half_k) = map4(high, a.map);
        }
    }
}

static __global__ __launch_bounds__(THREADS, RESIDENT) void
restore_int4(const __grid_constant__ struct reorder_args a)
{
    extern __shared__ uint4 shared[];
    if (blockIdx.y == a.scale_step) {
        restore_scales(a, blockIdx.x * TILE_ROWS, (uint16_t *)shared);
        return;
    }
    const uint32_t step = blockIdx.y - (blockIdx.y > a.scale_step);
    const struct tile t = {blockIdx.x * (TILE_ROWS / 16), step * TILE_KT};
    restore_codes(a, t, shared);
}

static void fill_sizes(struct reorder_args *a, struct tp_box3 box)
{
    a->n = box.n;
    a->k = box.k;
    a->groups = (uint32_t)(box.k / 128);
}

/* Steps along k of a grid for the codes. */
static uint32_t code_steps(struct tp_box3 box)
{
    return (uint32_t)dev_ceil(box.k / 32, TILE_KT);
}

/* Bytes of shared memory: the scales of 32 rows, or the codes of a tile. */
static uint64_t shared_bytes(struct tp_box3 box)
{
    const uint64_t scales = TILE_ROWS * ((dev_ceil(box.k / 128, 2) | 1) * 2) * sizeof(uint16_t);
    return tp_max_u64(scales, sizeof(uint4) * TILE_ROWS * TILE_KT);
}

static bool fits(struct tp_box3 box)
{
    const uint64_t max = 65535; /* of a grid's second and third side */
    return box.k % 128 == 0 && box.n % 16 == 0 && box.k <= max * 32 * TILE_KT / 2 &&
           box.n <= 0x7FFFFFFFu && box.e <= max && shared_bytes(box) <= MAX_SHARED - 512;
}

extern "C" void tp_cuda_int4_reorder(const struct tp_op *from, const struct tp_op *to,
                                     struct tp_args *args)
{
    struct reorder_args a;
    fill_sizes(&a, args->box);
    if (!fits(args->box)) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    a.in = (const uint8_t *)args->in[tp_op_find(from, TP_ROLE_CODES)];
    a.out = (uint8_t *)args->out[tp_op_find(to, TP_ROLE_CODES)];
    a.scale_in = args->in[tp_op_find(from, TP_ROLE_SCALE)];
    a.scale_out = args->out[tp_op_find(to, TP_ROLE_GROUP8)];
    a.channel = (float *)args->out[tp_op_find(to, TP_ROLE_CHANNEL)];
    a.channel_rule = to->channel_rule;
    a.skip_zero = to->skip_zero_groups;
    a.zero_word = (from->table[8] & 15) * 0x11111111u;
    a.map = dev_map_of(from->table, to->table);
    const uint32_t steps = a.in == a.out ? 0 : code_steps(args->box); /* 0: scales alone */
    a.scale_step = steps / 2; /* done well before the end */
    const dim3 grid((uint32_t)dev_ceil(args->box.n, TILE_ROWS), steps + 1, (uint32_t)args->box.e);
    reorder_int4<<<grid, THREADS, shared_bytes(args->box), (cudaStream_t)args->stream>>>(a);
}

extern "C" void tp_cuda_int4_restore(const struct tp_op *from, const struct tp_op *to,
                                     struct tp_args *args)
{
    struct reorder_args a;
    fill_sizes(&a, args->box);
    if (!fits(args->box)) {
        tp_cuda_repack_any(from, to, args);
        return;
    }
    a.in = (const uint8_t *)args->in[tp_op_find(from, TP_ROLE_CODES)];
    a.out = (uint8_t *)args->out[tp_op_find(to, TP_ROLE_CODES)];
    a.map = dev_map_of(from->table, to->table);
    a.scale_in = args->in[tp_op_find(from, TP_ROLE_GROUP8)];
    a.scale_out = args->out[tp_op_find(to, TP_ROLE_SCALE)];
    a.channel = (float *)args->in[tp_op_find(from, TP_ROLE_CHANNEL)];
    const uint32_t steps = code_steps(args->box);
    a.scale_step = steps / 2;
    const dim3 grid((uint32_t)dev_ceil(args->box.n, TILE_ROWS), steps + 1, (uint32_t)args->box.e);
    restore_int4<<<grid, THREADS, shared_bytes(args->box), (cudaStream_t)args->stream>>>(a);
}
