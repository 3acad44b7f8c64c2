/* What both searches of int4 share: 8 threads hold a group of 128, each the 8 values at place
 * lane % 8 of 16 and the 8 at the place 8 further on. Invariant: see cuda_search.cuh. */
#ifndef TP_KERNELS_CUDA_SEARCH_INT4_CUH
#define TP_KERNELS_CUDA_SEARCH_INT4_CUH

#include "kernels/cuda/cuda_int4.cuh"
#include "kernels/cuda/cuda_search.cuh"

enum { INT4_THREADS = 256, GROUP_LANES = 8, LANE_VALUES = 16 };

/* `groups` are those of a row. */
struct int4_search_args : int4_args {
    uint64_t rows, all_groups;
    bool tiled; /* w4a8-cutlass */
    struct dev_search how;
    float shrink[TP_SEARCH_INT4]; /* largest magnitudes to candidate scales, but the first */
};

static inline struct int4_search_args int4_search_args_of(const struct tp_op *op,
                                                          struct tp_args *args)
{
    struct int4_search_args a;
    static_cast<int4_args &>(a) = int4_args_of(op, args);
    a.tiled = tp_op_find(op, TP_ROLE_SCALE) < 0;
    a.rows = args->box.e * args->box.n;
    a.all_groups = a.rows * a.groups;
    a.how = dev_search_of(op, args);
    for (int i = 0; i < TP_SEARCH_INT4; i++)
        a.shrink[i] = tp_search_int4_factor(op->search_signed, tp_search_int4_thousandths(i));
    return a;
}

/* The lane's values of a group (counted over the whole weight); zeros where it is none. */
template <int DT>
static __device__ __forceinline__ void group_load(const uint8_t *in, uint64_t group, bool inside,
                                                  dev_raw8<DT> (&r)[2])
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const uint8_t *p = in + (group * 128 + threadIdx.x % GROUP_LANES * 8) * bytes;
    r[0] = inside ? dev_load_raw8<DT>(p) : dev_zero_raw8<DT>();
    r[1] = inside ? dev_load_raw8<DT>(p + 64 * bytes) : dev_zero_raw8<DT>();
}

template <int DT>
static __device__ __forceinline__ float group_value(const dev_raw8<DT> (&r)[2], int i)
{
    return dev_value<DT>(r[i / 8], i % 8);
}

template <int DT>
static __device__ __forceinline__ uint32_t group_amax(const dev_raw8<DT> (&r)[2])
{
    return dev_max_lanes<GROUP_LANES>(
        dev_amax_bits<DT>(dev_amax8<DT>(dev_amax8<DT>(0, r[0]), r[1])));
}

/* tp_search_flips() of finite values. */
template <int DT> static __device__ __forceinline__ bool group_flips(const dev_raw8<DT> (&r)[2])
{
    float positive = 0, negative = 0;
    dev_search_ends<DT>(r[0], &positive, &negative);
    dev_search_ends<DT>(r[1], &positive, &negative);
    return dev_search_flips<GROUP_LANES>(positive, negative);
}

/* The lane's share of a group as integers with root weights (1 without weights). */
struct group_ints {
    float x[LANE_VALUES], root[LANE_VALUES];
    float unit;        /* of x, positive */
    float max, min;    /* of x */
    float far_root;    /* that of the farther of both is no less */
};

/* A bound, from below, of the group's error: what its lanes' largest magnitudes cost when the
 * values of codes end at `up` and -`down`. */
template <bool WEIGHTED>
static __device__ __forceinline__ float clip_error(const group_ints &ints, float up, float down)
{
    const float above = __fsub_rn(ints.max, up), below = __fsub_rn(-ints.min, down);
    float d = fmaxf(ints.max >= -ints.min ? above : below, 0.0f);
    if (WEIGHTED)
        d = __fmul_rn(d, ints.far_root);
    d = __fmul_rn(d, d);
#pragma unroll
    for (int lanes = GROUP_LANES / 2; lanes; lanes >>= 1)
        d = __fadd_rn(d, __shfl_xor_sync(0xFFFFFFFFu, d, lanes));
    return d;
}

/* `largest` is the bits of the group's largest magnitude after multiplying by `factor`; `h`
 * the importance of the group's columns, with TP_IMPORTANCE_FILE (NULL: of no group). */
template <int DT, bool WEIGHTED>
static __device__ __forceinline__ group_ints group_ints_of(const dev_search &how,
                                                           const dev_raw8<DT> (&r)[2],
                                                           float factor, uint32_t largest,
                                                           bool flip, const float *h)
{
    group_ints ints;
    ints.unit = dev_search_unit(largest);
    ints.max = ints.min = 0;
    ints.far_root = 1.0f;
    const float unit = flip ? -ints.unit : ints.unit;
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++) {
        const float rounded = dev_search_rounded(__fmul_rn(group_value<DT>(r, i), factor), unit);
        if (WEIGHTED)
            sum += dev_square(rounded);
        ints.x[i] = __fadd_rn(rounded, -DEV_ROUND);
        ints.max = fmaxf(ints.max, ints.x[i]);
        ints.min = fminf(ints.min, ints.x[i]);
    }
    if (WEIGHTED && how.weights == TP_IMPORTANCE_MAGNITUDE) {
        dev_roots_of_magnitude<LANE_VALUES, GROUP_LANES>(
            ints.x, sum, dev_search_int(__uint_as_float(largest), ints.unit), ints.root);
#pragma unroll
        for (int i = 0; i < LANE_VALUES; i++) /* larger values have no smaller roots */
            ints.far_root = fmaxf(ints.far_root, ints.root[i]);
    } else if (WEIGHTED) {
        float w[LANE_VALUES];
#pragma unroll
        for (int i = 0; i < LANE_VALUES; i++)
            w[i] = 0;
        if (h != NULL) {
            dev_load_importance(h + threadIdx.x % GROUP_LANES * 8, w);
            dev_load_importance(h + threadIdx.x % GROUP_LANES * 8 + 64, w + 8);
        }
        dev_roots_of_file<LANE_VALUES, GROUP_LANES>(w, ints.root);
    } else {
#pragma unroll
        for (int i = 0; i < LANE_VALUES; i++)
            ints.root[i] = 1.0f;
    }
    return ints;
}

/* The square of root weight times distance, an integer: the distance is 4096 at most. */
template <bool WEIGHTED>
static __device__ __forceinline__ uint64_t group_square(float distance, float root)
{
    const float d = WEIGHTED ? __fmul_rn(fabsf(distance), root) : fabsf(distance);
    const uint32_t integer = __float_as_uint(__fadd_rn(d, 8388608.0f)) & 0x7FFFFFu;
    return (uint64_t)integer * integer;
}

static __device__ __forceinline__ uint64_t group_sum(uint64_t v)
{
#pragma unroll
    for (int d = GROUP_LANES / 2; d; d >>= 1)
        v += __shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)v, d);
    return v;
}

/* Canonical codes of the lane's values as tp_codec_codes() has them, in two words. `scale`:
 * bf16 bits, perhaps negative. */
template <int DT>
static __device__ __forceinline__ void group_codes_by_rule(const dev_raw8<DT> (&r)[2],
                                                           uint32_t amax, uint32_t scale,
                                                           uint32_t rule, uint32_t (&words)[2])
{
    const float s = __uint_as_float(scale << 16);
#pragma unroll
    for (int j = 0; j < 2; j++)
        words[j] =
            amax < TP_F32_INF_BITS ? dev_int4x8_by_rule<DT>(r[j], s, rule) : 0x88888888u;
}

/* Row-major codes of a group (counted over the whole weight). */
static __device__ __forceinline__ void group_store(const int4_search_args &a, uint64_t group,
                                                   const uint32_t (&words)[2])
{
    uint32_t *codes = (uint32_t *)a.codes + group * 16 + threadIdx.x % GROUP_LANES;
    codes[0] = dev_map_word(words[0], a.map);
    codes[8] = dev_map_word(words[1], a.map);
}

#endif
