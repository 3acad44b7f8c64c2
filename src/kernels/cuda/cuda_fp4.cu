/* e2m1 with blocks along K and row-major codes: MXFP4 in 1x32 blocks, NVFP4 in 1x16.
 *
 * A thread takes 32 values of a row, two blocks of NVFP4 or one of MXFP4: four 16-byte loads,
 * one 16-byte store. Of f32 it takes 16: more leave too few registers to hold loads. Scales are
 * row-major or in 128x4 tiles, which go through shared memory so that whole sectors are written.
 * Handles every N; K in whole blocks; other shapes go to cuda_any.cu. Invariant: bytes equal
 * tp_encode_ref, padding of the scales included.
 */
#include "kernels/cuda/cuda_fp4.cuh"

/* Scale and codes of 16 values: a block of NVFP4. */
template <int DT, uint32_t RULE>
static __device__ __forceinline__ uint8_t encode_nv(const struct fp4_args &a, dev_raw8<DT> (&r)[2],
                                                    uint32_t amax, uint2 &codes)
{
    const bool product = RULE == TP_NVFP4_TORCHAO;
    float factor;
    uint8_t scale = nv_scale<DT, RULE>(a, amax, &factor);
    const nv_block b = nv_block_of(RULE, factor, amax, 6.9f);
    if (RULE == TP_NVFP4_MODELOPT)
        plain_zeros<DT>(r);
    if (__any_sync(0xFFFFFFFFu, b.special)) {
        scale = dev_nvfp4_scale(RULE, amax, a.global, &factor);
        codes = make_uint2(any_codes<DT>(r[0], factor, RULE), any_codes<DT>(r[1], factor, RULE));
    } else {
        codes = make_uint2(nv_codes<DT, false, product>(r[0], b, RULE),
                           nv_codes<DT, false, product>(r[1], b, RULE));
    }
    return scale;
}

/* Scale of a block of MXFP4, and the codes of 16 values of it. */
template <int DT>
static __device__ __forceinline__ uint8_t encode_mx(const struct fp4_args &a,
                                                    const dev_raw8<DT> (&r)[2], uint32_t amax,
                                                    uint2 &codes)
{
    const uint8_t scale = dev_mxfp4_scale(a.rule, amax);
    const float factor = tp_e8m0_reciprocal(scale);
    codes = make_uint2(mx_codes<DT>(r[0], factor), mx_codes<DT>(r[1], factor));
    return scale;
}

/* The 16 values of unit i; zeros where it is not `inside`. */
template <int DT>
static __device__ __forceinline__ void load_unit(dev_raw8<DT> (&r)[2], const uint8_t *in,
                                                 uint32_t i, bool inside)
{
    const uint32_t bytes = TP_IS32(DT) ? 4 : 2;
    in += (uint64_t)i * (UNIT * bytes);
    r[0] = inside ? dev_load_raw8<DT>(in) : dev_zero_raw8<DT>();
    r[1] = inside ? dev_load_raw8<DT>(in + 8 * bytes) : dev_zero_raw8<DT>();
}

template <int DT>
static __device__ __forceinline__ uint32_t unit_amax(const dev_raw8<DT> (&r)[2])
{
    return dev_amax_bits<DT>(dev_amax8<DT>(dev_amax8<DT>(0, r[0]), r[1]));
}

static __device__ __forceinline__ void store_global(const struct fp4_args &a)
{
    if (a.global_out != NULL && blockIdx.x == 0 && threadIdx.x == 0)
        *a.global_out = a.global;
}

/* A unit a thread: a block of NVFP4, or half a block of MXFP4, the other half in the next lane. */
template <int DT, bool NV, uint32_t RULE>
static __global__ __launch_bounds__(FP4_THREADS, 6) void
encode_16(const __grid_constant__ struct fp4_args a)
{
    const uint32_t i = blockIdx.x * FP4_THREADS + threadIdx.x;
    const bool inside = i < a.count;
    dev_raw8<DT> r[2];
    load_unit<DT>(r, a.in, i, inside);
    uint32_t amax = unit_amax<DT>(r);
    if (!NV)
        amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 1));
    uint2 codes;
    const uint8_t scale = NV ? encode_nv<DT, RULE>(a, r, amax, codes)
                             : encode_mx<DT>(a, r, amax, codes);
    dev_flag(a.flags, amax);
    store_global(a);
    if (!inside)
        return;
    const uint32_t block = NV ? i : i / 2;
    ((uint2 *)a.codes)[i] = codes;
    if (NV || i % 2 == 0)
        a.scale[a.tiles ? tile_at(a, block) : block] = scale;
}

/* For tiles of scales a thread block takes 256 columns of 32 rows: of eight neighbours, and of
 * those 32, 64 and 96 further on. Their scales are 128 bytes of each of their tiles. */
enum { TILED_LANES = 8 /* threads of a row */, TILED_UNITS = 2 * TILED_LANES };

/* Where the two units of a thread lie. */
struct fp4_place {
    uint32_t i;        /* the first; the second follows it */
    bool inside, both; /* the first is there, the second too */
    /* tiles: which of the row's thread blocks it is, the quarter of a tile, the 128 rows */
    uint32_t step, part, panel;
};

static __device__ __forceinline__ struct fp4_place place_in_tiles(const struct fp4_args &a)
{
    const uint32_t rest = dev_quotient(blockIdx.x, a.by_steps), row = threadIdx.x / TILED_LANES;
    struct fp4_place p;
    p.step = blockIdx.x - rest * a.steps;
    p.part = rest % 4;
    p.panel = rest / 4;
    const uint32_t e = dev_quotient(p.panel, a.by_panels);
    const uint32_t n = (p.panel - e * a.panels) * 128 + row / 8 * 32 + p.part * 8 + row % 8;
    const uint32_t unit = p.step * TILED_UNITS + threadIdx.x % TILED_LANES * 2;
    p.i = (e * a.rows + n) * a.units + unit;
    p.inside = n < a.rows && unit < a.units;
    p.both = p.inside && unit + 1 < a.units;
    return p;
}

static __device__ __forceinline__ struct fp4_place place_in_rows(const struct fp4_args &a)
{
    struct fp4_place p;
    p.i = (blockIdx.x * FP4_THREADS + threadIdx.x) * 2;
    p.inside = p.i < a.count;
    p.both = p.i + 1 < a.count;
    return p;
}

/* Scales of a thread block's 32 rows into tiles, SCALES of each thread: 1 or 2, a byte each. */
template <int SCALES>
static __device__ __forceinline__ void store_tiled(const struct fp4_args &a,
                                                   const struct fp4_place &p, uint32_t scales)
{
    const uint32_t tiles = TILED_LANES * SCALES / 4; /* beside each other */
    __shared__ __align__(16) uint8_t shared[tiles * 128];
    const uint32_t row = threadIdx.x / TILED_LANES, j = threadIdx.x % TILED_LANES * SCALES;
    uint8_t *mine = shared + j / 4 * 128 + row % 8 * 16 + row / 8 * 4 + j % 4;
    if (SCALES == 2)
        *(uint16_t *)mine = (uint16_t)scales;
    else
        *mine = (uint8_t)scales;
    __syncthreads();
    const uint32_t t = threadIdx.x / 8, kt = p.step * tiles + t, tiles_k = (a.columns + 3) / 4;
    uint4 *out = (uint4 *)(a.scale + ((uint64_t)p.panel * tiles_k + kt) * 512 + p.part * 128);
    if (t < tiles && kt < tiles_k)
        out[threadIdx.x % 8] = ((const uint4 *)shared)[threadIdx.x];
}

/* Two units a thread: two blocks of NVFP4, or one of MXFP4. */
template <int DT, bool NV, uint32_t RULE>
static __global__ __launch_bounds__(FP4_THREADS) void
encode_32(const __grid_constant__ struct fp4_args a)
{
    const struct fp4_place p = a.tiles ? place_in_tiles(a) : place_in_rows(a);
    dev_raw8<DT> r[2], s[2];
    load_unit<DT>(r, a.in, p.i, p.inside);
    load_unit<DT>(s, a.in, p.i + 1, p.both);
    const uint32_t first = unit_amax<DT>(r), second = unit_amax<DT>(s), amax = max(first, second);
    uint2 c, d;
    uint32_t scales = NV ? encode_nv<DT, RULE>(a, r, first, c) : encode_mx<DT>(a, r, amax, c);
    const uint32_t next = NV ? encode_nv<DT, RULE>(a, s, second, d)
                             : encode_mx<DT>(a, s, amax, d);
    scales = p.inside ? scales : 0;
    if (NV && p.both)
        scales |= next << 8;
    dev_flag(a.flags, amax);
    store_global(a);
    if (p.both && p.i % 2 == 0) {
        *(uint4 *)(a.codes + (uint64_t)p.i * 8) = make_uint4(c.x, c.y, d.x, d.y);
    } else {
        if (p.inside)
            ((uint2 *)a.codes)[p.i] = c;
        if (p.both)
            ((uint2 *)a.codes)[p.i + 1] = d;
    }
    if (a.tiles)
        store_tiled<NV ? 2 : 1>(a, p, scales);
    else if (NV && p.both)
        *(uint16_t *)(a.scale + p.i) = (uint16_t)scales;
    else if (p.inside)
        a.scale[NV ? p.i : p.i / 2] = (uint8_t)scales;
}

/* How the places of tiles are found, and the grid; 0: too large. */
static uint32_t tiled_grid(struct fp4_args &a, uint64_t experts, bool nv)
{
    a.units = nv ? a.columns : a.columns * 2;
    a.steps = (uint32_t)dev_ceil(a.units, TILED_UNITS);
    a.panels = (uint32_t)dev_ceil(a.rows, 128);
    a.by_steps = dev_reciprocal_of(a.steps);
    a.by_panels = dev_reciprocal_of(a.panels);
    const uint64_t grid = experts * a.panels * 4 * a.steps;
    return grid <= 0x7FFFFFFFu ? (uint32_t)grid : 0;
}

template <int DT, bool NV, uint32_t RULE>
static void launch_rule(struct fp4_args &a, uint32_t grid, cudaStream_t stream)
{
    if constexpr (TP_IS32(DT))
        encode_16<DT, NV, RULE><<<grid, FP4_THREADS, 0, stream>>>(a);
    else
        encode_32<DT, NV, RULE><<<grid, FP4_THREADS, 0, stream>>>(a);
}

template <int DT>
static void launch(struct fp4_args &a, uint32_t grid, bool nv, cudaStream_t stream)
{
    if (!nv)
        launch_rule<DT, false, 0>(a, grid, stream);
    else if (a.rule == TP_NVFP4_CT)
        launch_rule<DT, true, TP_NVFP4_CT>(a, grid, stream);
    else if (a.rule == TP_NVFP4_TORCHAO)
        launch_rule<DT, true, TP_NVFP4_TORCHAO>(a, grid, stream);
    else
        launch_rule<DT, true, TP_NVFP4_MODELOPT>(a, grid, stream);
}

extern "C" void tp_cuda_fp4_kwise(const struct tp_op *op, struct tp_args *args)
{
    const bool nv = op->codec == TP_CODEC_NVFP4, wide = args->dtype != TP_F32;
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct fp4_args a;
    if (!fp4_begin(op, args, a))
        return;
    uint32_t grid = (uint32_t)dev_ceil(a.count, FP4_THREADS * (wide ? 2 : 1));
    if (a.tiles && wide)
        grid = tiled_grid(a, args->box.e, nv);
    else
        fp4_clear(a, args->box.e, stream);
    if (grid == 0)
        tp_cuda_encode_any(op, args);
    else
        DEV_BY_DTYPE(args->dtype, launch, a, grid, nv, stream);
}
