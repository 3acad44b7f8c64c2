/* What the general kernels share (cuda_any.cu, cuda_any_args.cu, cuda_search_any.cu): any
 * layout as a kernel argument, one code and one scale at a time. See cuda_any.cu. */
#ifndef TP_KERNELS_CUDA_ANY_CUH
#define TP_KERNELS_CUDA_ANY_CUH

#include "kernels/cuda/cuda_rows.cuh"
#include "kernels/cuda/cuda_search.cuh"

enum { ANY_THREADS = 256, ANY_GRID = 4096 };

struct any_plane {
    uint8_t *data; /* NULL: absent */
    uint32_t element;
    uint32_t zero_point; /* canonical code of an integer zero: 8, or 128 with INT8 */
    bool f16;            /* scales of integers are F16 numbers, else bf16 */
    float min;           /* of F32 scales: a smaller one is stored as this; 0: as it is */
    uint64_t per_n, per_k, bytes;
    struct tp_layout layout;
};

struct any_side {
    struct any_plane codes, scale, group8, channel, global;
    uint8_t to_code[16];
};

/* What of an operation says how a block becomes codes and a scale. */
struct any_codec {
    uint32_t codec, rule, scale_rule;
    float global;
    bool f16;        /* as in any_plane */
    bool per_tensor; /* FP8: `global` is the scale of every block */
};

struct any_args : any_codec {
    struct tp_box3 box;
    struct any_side side; /* encode: what is written; decode: what is read */
    const uint8_t *in;
    uint8_t *values;
    uint32_t *flags;
    uint64_t block_n, block_k;
    uint8_t table[16];
    uint32_t dtype, channel_rule, half; /* half: 0, 1, or 2 = bytes */
    bool skip_zero;
    struct dev_search how; /* how scales are searched, if they are */
};

/* For a weight's operation (cuda_any_args.cu); a layout that cannot be evaluated sets
 * TP_FAILED. */
struct any_codec tp_cuda_any_codec(const struct tp_op *op, const struct tp_args *args);
struct any_side tp_cuda_any_side(const struct tp_op *op, struct tp_args *args, void *const *data);
struct any_args tp_cuda_any_args(const struct tp_op *op, struct tp_args *args, void *const *data);

/* Enqueues the search of an int4 weight's scales (search MSE), which go to their places; codes are
 * not made (cuda_search_scales.cu). False: its groups are not 32, 64 or 128 columns. */
bool tp_cuda_search_scales(const struct tp_op *op, struct tp_args *args,
                           const struct any_plane &scale);

/* Enqueues the padding of every output. */
void tp_cuda_any_fill(const struct tp_op *op, const struct any_args &a, cudaStream_t stream);

/* The same of one output that has so many elements, where it has padding. */
void tp_cuda_any_pad(const struct tp_op *op, enum tp_role role, const any_plane &p,
                     uint64_t elements, cudaStream_t stream);

/* Enqueues what follows group scales that wait in the place of the packed ones. */
void tp_cuda_any_finish(const struct any_args &a, cudaStream_t stream);

static inline uint32_t grid_for(uint64_t threads)
{
    uint64_t blocks = dev_ceil(threads, ANY_THREADS);
    return (uint32_t)(blocks > (uint64_t)ANY_GRID ? (uint64_t)ANY_GRID : blocks ? blocks : 1);
}

/* The global scale as it is stored: fp32, of FP8 also bf16. */
static __device__ inline void store_global(const any_plane &global, float value)
{
    if (global.element == TP_ELEM_BF16)
        *(uint16_t *)global.data = tp_f32_to_bf16(value);
    else
        *(float *)global.data = value;
}

/* The stored global scale, or `given` where there is none. */
static __device__ inline float load_global(const any_plane &global, float given)
{
    if (global.data == NULL)
        return given;
    return global.element == TP_ELEM_BF16 ? tp_bf16_to_f32(*(const uint16_t *)global.data)
                                          : *(const float *)global.data;
}

/* Launches that it takes to store codes: one for each half of a byte. */
static inline uint32_t halves_of(const any_plane &codes)
{
    return codes.element == TP_ELEM_INT4 || codes.element == TP_ELEM_E2M1 ? 2 : 1;
}

/* Elements that are stored for a box, without padding. */
static inline uint64_t any_elements(const any_plane &p, struct tp_box3 box)
{
    return p.data == NULL ? 0 : box.e * dev_ceil(box.n, p.per_n) * dev_ceil(box.k, p.per_k);
}

static __device__ inline uint64_t dim_at(const struct tp_layout_dim &d, uint64_t x)
{
    uint64_t at = 0;
    for (uint32_t m = 0; m < d.modes; m++) {
        uint64_t rest = x / d.size[m];
        at += (m + 1 == d.modes ? x : x - rest * d.size[m]) * d.stride[m];
        x = rest;
    }
    return at;
}

static __device__ inline uint64_t at_of(const any_plane &p, uint64_t e, uint64_t n, uint64_t k)
{
    return dim_at(p.layout.dim[TP_DIM_E], e) + dim_at(p.layout.dim[TP_DIM_N], n / p.per_n) +
           dim_at(p.layout.dim[TP_DIM_K], k / p.per_k);
}

static __device__ inline float load_value(const uint8_t *in, uint32_t dtype, uint64_t i)
{
    if (dtype == TP_F32)
        return ((const float *)in)[i];
    uint16_t h = ((const uint16_t *)in)[i];
    return dtype == TP_BF16 ? tp_bf16_to_f32(h) : tp_f16_to_f32(h);
}

static __device__ inline void store_code(const any_plane &p, const uint8_t *table, uint32_t half,
                                         uint64_t at, uint8_t code)
{
    if (p.element != TP_ELEM_INT4 && p.element != TP_ELEM_E2M1) {
        if (half == 0)
            p.data[at] = p.element == TP_ELEM_INT8 ? (uint8_t)(code - p.zero_point) : code;
        return;
    }
    if ((at & 1) != half)
        return;
    uint8_t stored = p.element == TP_ELEM_INT4 ? table[code & 15] : code;
    uint8_t *byte = p.data + at / 2;
    *byte = half ? (uint8_t)((*byte & 0x0F) | stored << 4) : (uint8_t)((*byte & 0xF0) | stored);
}

static __device__ inline bool any_is_int(uint32_t codec)
{
    return codec == TP_CODEC_INT4 || codec == TP_CODEC_INT8;
}

/* Scales travel in the codec's own form, see tp_codec_encode(). `f16`: as in any_plane. */
static __device__ inline float scale_value(uint32_t codec, bool f16, uint32_t bits)
{
    if (any_is_int(codec))
        return f16 ? tp_f16_to_f32((uint16_t)bits) : tp_bf16_to_f32((uint16_t)bits);
    if (codec == TP_CODEC_FP8)
        return tp_bits_f32(bits);
    return codec == TP_CODEC_NVFP4 ? tp_e4m3_value((uint8_t)bits) : tp_e8m0_value((uint8_t)bits);
}

static __device__ inline void store_scale(const any_plane &p, uint32_t codec, uint64_t at,
                                          uint32_t bits)
{
    float value = scale_value(codec, p.f16, bits);
    const bool same = any_is_int(codec) && p.f16 == (p.element == TP_ELEM_F16);
    switch (p.element) {
    case TP_ELEM_BF16:
        ((uint16_t *)p.data)[at] = same ? (uint16_t)bits : tp_f32_to_bf16(value);
        break;
    case TP_ELEM_F16:
        ((uint16_t *)p.data)[at] = same ? (uint16_t)bits : tp_f32_to_f16(value);
        break;
    case TP_ELEM_F32:
        ((float *)p.data)[at] = p.min > 0 && value < p.min ? p.min : value;
        break;
    case TP_ELEM_E8M0:
        p.data[at] = (uint8_t)(codec == TP_CODEC_FP8 ? bits >> 23 : bits);
        break;
    default:
        p.data[at] = (uint8_t)bits;
        break;
    }
}

/* ---- the codecs, a block's scale and one value at a time ----------------- */

struct any_scale {
    uint32_t bits; /* as stored */
    dev_fp8 fp8;   /* factor, divide, round_bf16: of every codec but int4 */
    uint32_t amax;
    bool bad; /* counts as non-finite */
};

/* int_scale() of codec.c. */
static __device__ inline uint32_t any_int_scale(const any_codec &a, uint32_t amax)
{
    const float reach = a.codec == TP_CODEC_INT8 ? 127.5f : 7.5f;
    const float scale = __fdiv_rn(__uint_as_float(amax), reach);
    const uint16_t bits = a.f16 ? tp_f32_to_f16(scale) : tp_f32_to_bf16(scale);
    return bits ? bits : a.f16 ? 0x1400 : 0x3C00;
}

static __device__ inline struct any_scale scale_of(const any_codec &a, uint32_t amax)
{
    struct any_scale s;
    s.amax = amax;
    s.bad = amax >= TP_F32_INF_BITS;
    s.fp8.divide = s.fp8.round_bf16 = false;
    switch (a.codec) {
    case TP_CODEC_INT4:
    case TP_CODEC_INT8:
        s.bits = any_int_scale(a, amax);
        s.fp8.factor = scale_value(a.codec, a.f16, s.bits);
        s.bad = s.bad || (a.f16 && (s.bits & 0x7C00) == 0x7C00); /* beyond what F16 holds */
        break;
    case TP_CODEC_FP8:
        s.fp8 = dev_fp8_of(a.rule, a.scale_rule, amax);
        if (a.per_tensor)
            s.fp8.scale = s.fp8.factor = a.global;
        s.bits = tp_f32_bits(s.fp8.scale);
        break;
    case TP_CODEC_NVFP4:
        s.bits = dev_nvfp4_scale(a.rule, amax, a.global, &s.fp8.factor);
        s.fp8.divide = a.rule != TP_NVFP4_TORCHAO;
        break;
    case TP_CODEC_MXFP8: {
        const dev_mx m = dev_mx_of(a.rule, amax);
        s.bits = m.scale;
        s.fp8.factor = m.factor;
        s.bad = m.bad;
        break;
    }
    default:
        s.bits = dev_mxfp4_scale(a.rule, amax);
        s.fp8.factor = tp_e8m0_reciprocal((uint8_t)s.bits);
        break;
    }
    return s;
}

static __device__ inline uint8_t code_of(const any_codec &a, const struct any_scale &s, float x)
{
    float q;
    if (any_is_int(a.codec)) {
        const int zero_point = a.codec == TP_CODEC_INT8 ? 128 : 8;
        if (s.amax >= TP_F32_INF_BITS)
            return (uint8_t)zero_point;
        q = __fdiv_rn(x, s.fp8.factor);
        if (a.rule == TP_INT4_QUOTIENT_BF16)
            q = a.f16 ? tp_f16_to_f32(tp_f32_to_f16(q)) : tp_bf16_to_f32(tp_f32_to_bf16(q));
        q = fminf(fmaxf(q, (float)-zero_point), (float)(zero_point - 1));
        return (uint8_t)((int)rintf(q) + zero_point);
    }
    q = s.fp8.divide ? __fdiv_rn(x, s.fp8.factor) : __fmul_rn(x, s.fp8.factor);
    if (s.fp8.round_bf16)
        q = tp_bf16_to_f32(tp_f32_to_bf16(q));
    if (a.codec == TP_CODEC_FP8 || a.codec == TP_CODEC_MXFP8)
        return tp_e4m3_of(q);
    if (a.codec == TP_CODEC_NVFP4 && a.rule == TP_NVFP4_MODELOPT && x == 0.0f)
        return 0;
    return tp_e2m1_of(q);
}

/* ---- blocks -------------------------------------------------------------- */

struct any_block {
    uint64_t e, n0, k0, rows, columns;
};

/* Block w of all, counted along K first. */
static __device__ inline any_block any_block_of(const any_args &a, uint64_t w)
{
    const uint64_t blocks_n = dev_ceil(a.box.n, a.block_n), blocks_k = dev_ceil(a.box.k, a.block_k);
    const uint64_t rest = w / blocks_k;
    any_block b;
    b.k0 = (w - rest * blocks_k) * a.block_k;
    b.e = rest / blocks_n;
    b.n0 = (rest - b.e * blocks_n) * a.block_n;
    b.rows = min(a.block_n, a.box.n - b.n0);
    b.columns = min(a.block_k, a.box.k - b.k0);
    return b;
}

static inline __host__ __device__ uint64_t any_blocks(const any_args &a)
{
    return a.box.e * dev_ceil(a.box.n, a.block_n) * dev_ceil(a.box.k, a.block_k);
}

static __device__ inline uint64_t block_index(const any_args &a, const any_block &b, uint64_t i)
{
    uint64_t n = i / b.columns;
    return (b.e * a.box.n + b.n0 + n) * a.box.k + b.k0 + (i - n * b.columns);
}

static __device__ inline bool encode_codes(const any_args &a, const any_block &b,
                                           const struct any_scale &s, uint32_t lane)
{
    bool zero = true;
    for (uint64_t i = lane; i < b.rows * b.columns; i += 32) {
        uint64_t n = i / b.columns, k = i - n * b.columns;
        uint8_t code = code_of(a, s, load_value(a.in, a.dtype, block_index(a, b, i)));
        zero = zero && code == 8;
        store_code(a.side.codes, a.table, a.half,
                   at_of(a.side.codes, b.e, b.n0 + n, b.k0 + k), code);
    }
    return __all_sync(0xFFFFFFFFu, zero);
}

/* The largest magnitude of a block, in every lane of the warp. */
static __device__ inline uint32_t any_amax(const any_args &a, const any_block &b, uint32_t lane)
{
    uint32_t amax = 0;
    for (uint64_t i = lane; i < b.rows * b.columns; i += 32)
        amax = max(amax, tp_abs_bits(load_value(a.in, a.dtype, block_index(a, b, i))));
    return dev_max_lanes<32>(amax);
}

static __device__ inline void encode_scales(const any_args &a, const any_block &b, uint32_t bits,
                                            bool zero, uint32_t lane)
{
    const any_plane &p = a.side.scale, &g = a.side.group8;
    if (g.data != NULL && lane == 0) {
        uint16_t *stash = (uint16_t *)(g.data + 8 * at_of(g, b.e, b.n0, b.k0));
        stash[0] = (uint16_t)bits;
        stash[1] = zero;
    }
    if (p.data == NULL)
        return;
    uint64_t columns = dev_ceil(b.columns, p.per_k), rows = dev_ceil(b.rows, p.per_n);
    for (uint64_t i = lane; i < rows * columns; i += 32) {
        uint64_t n = i / columns;
        store_scale(p, a.codec,
                    at_of(p, b.e, b.n0 + n * p.per_n, b.k0 + (i - n * columns) * p.per_k), bits);
    }
}

#endif
