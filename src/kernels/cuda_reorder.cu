/* int4 codes taken over from one layout into another: row-major into CUTLASS's
 * reordered form with packed scales, and back.
 *
 * A thread owns the 32 nibbles of rows n and n + 8 in one k tile of 32 columns:
 * two 16-byte loads on the row-major side, one run of 32 bytes on the other. Pairs
 * of threads swap halves so that every store fills whole 32-byte sectors. The
 * scales are done by the first thread blocks of the same launch. Invariant: bytes
 * equal tp_repack_ref.
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
    uint32_t scale_blocks, scale_tiles; /* scale_tiles: along N */
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

/* Even and odd rows of neighbouring threads: afterwards `first` belongs to the even
 * row and `second` to the odd one, 16 bytes each, at byte 16 * odd of the run. */
static __device__ __forceinline__ void swap_halves(const uint32_t run[8], uint32_t odd,
                                                   uint4 &first, uint4 &second)
{
    uint32_t got[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        got[i] = __shfl_xor_sync(0xFFFFFFFFu, odd ? run[i] : run[4 + i], 8);
    if (odd) {
        first = make_uint4(got[0], got[1], got[2], got[3]);
        second = make_uint4(run[4], run[5], run[6], run[7]);
    } else {
        first = make_uint4(run[0], run[1], run[2], run[3]);
        second = make_uint4(got[0], got[1], got[2], got[3]);
    }
}

/* Which 32 nibbles a thread owns. */
struct owner {
    uint64_t e;
    uint32_t n_tile, row, kt; /* tile of 16 rows; row 0..7; first k tile */
    bool inside;
};

static __device__ __forceinline__ struct owner owner_of(const struct reorder_args &a,
                                                        uint32_t block)
{
    struct owner o;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t rest = block / a.tiles_k;
    o.kt = (block - rest * a.tiles_k) * TILE_KT + (lane & 7);
    o.e = rest / a.tiles_n;
    o.n_tile = (rest - (uint32_t)o.e * a.tiles_n) * (TILE_ROWS / 16) + warp / 2;
    o.row = (warp & 1) * 4 + lane / 8;
    o.inside = (uint64_t)o.n_tile * 16 < a.n;
    return o;
}

static __device__ __forceinline__ void reorder_codes(const struct reorder_args &a, uint32_t block)
{
    const struct owner o = owner_of(a, block);
    const uint32_t odd = threadIdx.x / 8 & 1;
    const uint64_t half_k = a.k / 2;
    const uint8_t *in = a.in + (o.e * a.n + (uint64_t)o.n_tile * 16 + o.row) * half_k;
    uint8_t *out = a.out + o.e * a.n * half_k + (uint64_t)o.n_tile * 256 +
                   (o.row & 6) * 32 + odd * 16;
    uint4 w[2], v[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t kt = o.kt + 8 * j;
        w[j] = v[j] = make_uint4(0, 0, 0, 0);
        if (o.inside && kt < a.k / 32) {
            w[j] = dev_load16(in + (uint64_t)kt * 16);
            v[j] = dev_load16(in + 8 * half_k + (uint64_t)kt * 16);
        }
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t kt = o.kt + 8 * j, run[8];
        uint4 first, second;
        to_run(map4(w[j], a.map), map4(v[j], a.map), run);
        swap_halves(run, odd, first, second);
        if (o.inside && kt < a.k / 32) {
            *(uint4 *)(out + (uint64_t)kt * 16 * a.n) = first;
            *(uint4 *)(out + (uint64_t)kt * 16 * a.n + 32) = second;
        }
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

static __device__ void pack_scales(const struct reorder_args &a, uint32_t block,
                                   uint16_t *scales)
{
    __shared__ dev_channel channel[SCALE_ROWS];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint64_t e = block / a.scale_tiles;
    const uint32_t n0 = (block - (uint32_t)e * a.scale_tiles) * SCALE_ROWS;
    const uint32_t rows = min((uint32_t)a.n - n0, (uint32_t)SCALE_ROWS);
    const uint32_t pitch = ((a.groups + 1) / 2 | 1) * 2;
    for (uint32_t row = warp; row < rows; row += REORDER_THREADS / 32) {
        uint64_t source = e * a.n + n0 + row;
        uint32_t amax = 0;
        for (uint32_t g = lane; g < a.groups; g += 32) {
            uint16_t s = a.scale_in[source * a.groups + g];
            scales[row * pitch + g] = s;
            if (!(a.skip_zero && group_is_zero(a, source, g)))
                amax = max(amax, (uint32_t)s & 0x7FFFu);
        }
        amax = dev_max_lanes<32>(amax);
        if (lane == 0) {
            channel[row] = dev_channel_of(amax, a.divide);
            a.channel[source] = dev_channel_value(channel[row]);
        }
    }
    __syncthreads();
    if (lane < rows)
        for (uint32_t g = warp; g < a.groups; g += REORDER_THREADS / 32)
            *(uint2 *)(a.scale_out + ((e * a.groups + g) * a.n + n0 + lane) * 8) =
                dev_group8(scales[lane * pitch + g], channel[lane]);
}

static __global__ __launch_bounds__(REORDER_THREADS) void
reorder_int4(const struct reorder_args a)
{
    extern __shared__ uint16_t scales[];
    if (blockIdx.x < a.scale_blocks)
        pack_scales(a, blockIdx.x, scales);
    else
        reorder_codes(a, blockIdx.x - a.scale_blocks);
}

static __global__ __launch_bounds__(REORDER_THREADS) void
restore_int4(const struct reorder_args a)
{
    const struct owner o = owner_of(a, blockIdx.x);
    const uint64_t half_k = a.k / 2;
    const uint8_t *in = a.in + o.e * a.n * half_k + (uint64_t)o.n_tile * 256 + o.row * 32;
    uint8_t *out = a.out + (o.e * a.n + (uint64_t)o.n_tile * 16 + o.row) * half_k;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t kt = o.kt + 8 * j;
        if (!o.inside || kt >= a.k / 32)
            continue;
        const uint4 *p = (const uint4 *)(in + (uint64_t)kt * 16 * a.n);
        uint4 x = p[0], y = p[1], w, v;
        const uint32_t run[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
        from_run(run, w, v);
        *(uint4 *)(out + (uint64_t)kt * 16) = map4(w, a.map);
        *(uint4 *)(out + 8 * half_k + (uint64_t)kt * 16) = map4(v, a.map);
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
