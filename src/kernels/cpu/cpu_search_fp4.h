/* The scale search of NVFP4 and MXFP4: sixteen blocks of a row at a time. Their codes are made
 * by cpu_fp4.h; how VL blocks are searched is cpu_search_nvfp4.inc's and cpu_search_mxfp4.inc's.
 * A row's last blocks are completed with zeros.
 */
#ifndef TP_KERNELS_CPU_SEARCH_FP4_H
#define TP_KERNELS_CPU_SEARCH_FP4_H

#include "kernels/cpu/cpu_fp4.h"
#include "kernels/cpu/cpu_search.h"
#include "kernels/cpu/cpu_search_e2m1.h"

/* Integers of the values in even places of a register of words, or magnitudes of those in odd
 * ones. */
V vu e2m1_ints(enum tp_dtype dtype, vu r, bool slow, vf factor)
{
    vu high = slow ? v_and(r, v_set(0x7FFF0000u)) : v_sll(r, 16);
    return v_rint(f_mul(dtype == TP_BF16 ? v_floats(high) : search_f16(high), factor));
}

/* Four consecutive values of all blocks, of two of them in each quarter of `a` and of two more in
 * that of `b`: those in even places, and those in odd ones. */
V void e2m1_take_four(enum tp_dtype dtype, vu a, vu b, const vf factor[2], vu x[2])
{
    x[0] = w_abs(w_pack_signed(e2m1_ints(dtype, a, false, factor[0]),
                               e2m1_ints(dtype, b, false, factor[1])));
    x[1] = w_pack_signed(e2m1_ints(dtype, a, true, factor[0]),
                         e2m1_ints(dtype, b, true, factor[1]));
}

/* Magnitudes of values of 16 bits, as search_take(), but in an order of their own, which errors
 * without weights do not care about: lanes are put in order where 32 bits become words. */
V void e2m1_take_words(struct search_ints *ints, const struct search_source *from, unsigned size,
                       vf factor)
{
    const vu f = v_bits(factor);
    const vf both[2] = {v_floats(v_unpack_lo(f, f)), v_floats(v_unpack_hi(f, f))};
    UNROLL
    for (unsigned i = 0; i < size; i += 8) {
        vu r[4];
        UNROLL
        for (unsigned j = 0; j < 4; j++)
            r[j] = v_load_lanes(from->values + 2 * i + j * from->stride, 4 * from->stride);
        e2m1_take_four(from->dtype, d_unpack_lo(r[0], r[1]), d_unpack_lo(r[2], r[3]), both,
                       ints->x + i / 2);
        e2m1_take_four(from->dtype, d_unpack_hi(r[0], r[1]), d_unpack_hi(r[2], r[3]), both,
                       ints->x + i / 2 + 2);
    }
}

/* The magnitudes; with weights, and their roots. */
V void e2m1_take(struct search_ints *ints, const struct search_source *from, bool weighted,
                 unsigned size, vf factor)
{
    ints->size = size;
    if (!weighted && from->dtype != TP_F32) {
        e2m1_take_words(ints, from, size, factor);
        return;
    }
    search_take(ints, from, factor);
    if (weighted)
        search_roots(ints, from);
    UNROLL
    for (unsigned i = 0; i < ints->size / 2; i++)
        ints->x[i] = w_abs(ints->x[i]);
}

/* Factors of codes, as fp4_scales() has them, for other scales. */
V vf fp4_factors(const struct fp4_job *job, vu scale)
{
    const vf global = f_set(job->args->global);
    if (job->op->codec == TP_CODEC_MXFP4)
        return v_floats(v_sll(v_sub(v_set(254), scale), 23));
    if (job->op->rule == TP_NVFP4_CT)
        return f_div(f_of_e4m3(scale), global);
    if (job->op->rule == TP_NVFP4_TORCHAO)
        return f_div(f_div(f_set(1.0f), global), f_of_e4m3(scale));
    return f_mul(f_of_e4m3(scale), global);
}

/* Up to 64 blocks of a row, sixteen at a time. Each step is done for all before the next, so that
 * a processor finds work while it waits for the results of some. */
enum { FP4_SIXTEENS = 4 };
struct fp4_span {
    uint64_t first; /* value */
    unsigned blocks;
    const uint8_t *values[FP4_SIXTEENS], *root[FP4_SIXTEENS]; /* root: NULL if there are none */
    uint32_t amax[FP4_SIXTEENS][16];
    float factor[FP4_SIXTEENS][16];
    uint8_t scale[FP4_SIXTEENS * 16];
    bool slow[FP4_SIXTEENS]; /* by the reference */
    uint8_t padded[16 * 32 * 4]; /* values, roots and nibbles of the last blocks */
    uint16_t padded_root[16 * 32];
    uint8_t nibbles[16 * 16];
};

/* The scales of VL blocks in place of the rule's. False: too large numbers. */
typedef bool fp4_search_blocks(const struct fp4_job *job, const struct search_source *from,
                               bool weighted, vu amax, vu *scale);

/* Sixteen blocks of a span. False: not of the usual kind. */
typedef bool fp4_search_sixteen(const struct fp4_job *job, enum tp_dtype dtype,
                                struct fp4_span *s, unsigned at);

/* Searched scales in place of the rule's. A broken global scale is noticed where factors are
 * made. */
V bool fp4_search_vectors(const struct fp4_job *job, enum tp_dtype dtype, unsigned size,
                          bool weighted, struct fp4_span *s, unsigned at,
                          fp4_search_blocks *search)
{
    const uint64_t stride = size * value_bytes(dtype);
    const uint8_t *root = s->root[at];
    for (unsigned i = 0; i < 16; i += VL) {
        struct search_source from = {dtype, s->values[at] + i * stride, stride,
                                     root ? root + 2 * i * size : NULL, 2 * size};
        vu m = v_load(s->amax[at] + i), t = v_load_u8(s->scale + 16 * at + i);
        if (!search(job, &from, weighted, m, &t))
            return false;
        v_store_u8(s->scale + 16 * at + i, t);
    }
    return true;
}

V bool fp4_search16(const struct fp4_job *job, enum tp_dtype dtype, unsigned size,
                    struct fp4_span *s, unsigned at, fp4_search_blocks *search)
{
    return search_weighted(job->op, job->args)
               ? fp4_search_vectors(job, dtype, size, true, s, at, search)
               : fp4_search_vectors(job, dtype, size, false, s, at, search);
}

/* False: not of the usual kind. */
V bool fp4_factors16(const struct fp4_job *job, const uint8_t scale[16], float factor[16])
{
    for (unsigned i = 0; i < 16; i += VL) {
        vu u = v_bits(fp4_factors(job, v_load_u8(scale + i)));
        if (v_any_gt(v_set(1), u) || v_any_gt(u, v_set(0x7F000000u)))
            return false;
        v_store(factor + i, u);
    }
    return true;
}

/* Where the values and roots are; the last ones with zeros behind, where 16 are not full. */
V void fp4_span_open(const struct fp4_job *job, struct fp4_span *s, enum tp_dtype dtype,
                     unsigned size, const uint8_t *root)
{
    const uint8_t *p = (const uint8_t *)job->args->in[0] + s->first * value_bytes(dtype);
    const unsigned full = s->blocks / 16, left = s->blocks % 16;
    for (unsigned i = 0; 16 * i < s->blocks; i++) {
        s->values[i] = p + 16 * i * size * value_bytes(dtype);
        s->root[i] = root ? root + 2 * 16 * i * size : NULL;
    }
    if (left == 0)
        return;
    memset(s->padded, 0, sizeof s->padded);
    s->values[full] = memcpy(s->padded, s->values[full], (size_t)left * size * value_bytes(dtype));
    if (root != NULL)
        s->root[full] = memcpy(s->padded_root, s->root[full], 2 * (size_t)left * size);
}

/* Sixteen blocks by the reference, as many as there are. */
NOINLINE void fp4_search_slow(struct fp4_job *job, struct fp4_span *s, unsigned at, uint8_t *dst)
{
    const unsigned size = job->op->block_k;
    for (unsigned b = 16 * at; b < s->blocks && b < 16 * at + 16; b++) {
        uint8_t codes[32];
        uint32_t bits;
        search_slow(job->op, job->args, s->first + b * size, codes, &bits);
        s->scale[b] = (uint8_t)bits;
        for (unsigned i = 0; i < size / 2; i++)
            *dst++ = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    }
}

V void fp4_span_codes(struct fp4_job *job, struct fp4_span *s, enum tp_dtype dtype,
                      unsigned size, unsigned at, uint8_t *dst)
{
    const bool full = 16 * at + 16 <= s->blocks;
    if (s->slow[at]) {
        fp4_search_slow(job, s, at, dst);
        return;
    }
    fp4_codes_by(job, dtype, s->values[at], s->scale + 16 * at, s->factor[at],
                 full ? dst : s->nibbles);
    if (!full)
        memcpy(dst, s->nibbles, (size_t)(s->blocks - 16 * at) * size / 2);
}

V void fp4_search_span(struct fp4_job *job, struct fp4_span *s, enum tp_dtype dtype,
                       unsigned size, uint8_t *dst, fp4_search_sixteen *search)
{
    const unsigned sixteens = (s->blocks + 15) / 16;
    for (unsigned i = 0; i < sixteens; i++)
        block_amax16(dtype, s->values[i], size, 16, s->amax[i]);
    for (unsigned i = 0; i < sixteens; i++)
        s->slow[i] = !fp4_scales16(job, s->amax[i], s->scale + 16 * i, NULL);
    for (unsigned i = 0; i < sixteens; i++) {
        for (unsigned j = 0; j < 16 * size * value_bytes(dtype); j += 64)
            v_prefetch(s->values[i] + 4096 + j);
        s->slow[i] = s->slow[i] || !search(job, dtype, s, i);
    }
    for (unsigned i = 0; i < sixteens; i++)
        s->slow[i] = s->slow[i] || !fp4_factors16(job, s->scale + 16 * i, s->factor[i]);
    for (unsigned i = 0; i < sixteens; i++)
        fp4_span_codes(job, s, dtype, size, i, dst + 16 * i * size / 2);
}

V void fp4_search_row(struct fp4_job *job, struct fp4_span *s, enum tp_dtype dtype,
                      unsigned size, uint64_t row, const uint8_t *root, uint8_t *codes,
                      fp4_search_sixteen *search)
{
    const uint64_t k = job->args->box.k, n = row % job->args->box.n;
    for (uint64_t at = 0; at < k; at += FP4_SIXTEENS * 16 * size) {
        unsigned b = 0;
        s->first = row * k + at;
        s->blocks = (unsigned)tp_min_u64(FP4_SIXTEENS * 16, (k - at) / size);
        fp4_span_open(job, s, dtype, size, root ? root + 2 * at : NULL);
        fp4_search_span(job, s, dtype, size, codes + s->first / 2, search);
        for (; b + 4 <= s->blocks; b += 4) /* four lie together, row-major or in tiles */
            memcpy(job->scale.data + tp_plane_at(&job->scale, n, at + b * size), s->scale + b, 4);
        for (; b < s->blocks; b++)
            job->scale.data[tp_plane_at(&job->scale, n, at + b * size)] = s->scale[b];
    }
}

V void fp4_search_rows(const struct tp_op *op, struct tp_args *args, enum tp_dtype dtype,
                       unsigned size, fp4_search_sixteen *search)
{
    const struct tp_box3 box = args->box;
    struct fp4_job job;
    struct fp4_span span;
    const uint8_t *root = NULL;
    if (!fp4_open(&job, op, args))
        return;
    for (uint64_t row = 0; row < box.e * box.n; row++) {
        if (row % box.n == 0) {
            tp_plane_enter(&job.scale, row / box.n);
            root = search_expert_roots(op, args, row / box.n);
        }
        fp4_search_row(&job, &span, dtype, size, row, root,
                       args->out[tp_op_find(op, TP_ROLE_CODES)], search);
    }
}

#endif
