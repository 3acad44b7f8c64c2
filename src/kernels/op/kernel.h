/* Operations on weights, and the table of kernels that carry them out.
 *
 * An operation says what bytes to make; a row says who can make them quickly.
 * Every operation has a reference implementation (ref.c) that follows the
 * layouts alone; a faster row must produce the same bytes, always.
 *
 * A kernel sees one weight W[E,N,K] and writes complete outputs for it. A large
 * tensor is converted in boxes, and a box is simply a small weight of its own
 * whose bytes the caller copies, run by run, to their place in the whole; so a
 * kernel knows nothing of boxes, files, names or JSON.
 */
#ifndef TP_KERNELS_KERNEL_H
#define TP_KERNELS_KERNEL_H

#include "base/c_linkage.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/isa.h"
#include "base/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TP_C_BEGIN

/* Bytes of a box of values; for sizes already proven small. */
static inline uint64_t tp_value_bytes(struct tp_box3 box, enum tp_dtype dtype)
{
    return box.e * box.n * box.k * tp_dtype_bits(dtype) / 8;
}

/* The rules that turn a block of values into codes and one scale. The formulas
 * stand in formats/README.md; codec.h declares them one block at a time. */
enum tp_codec {
    TP_CODEC_INT4,  /* int4 symmetric, scale bf16 or f16: enum tp_int4_rule + tp_int_scale */
    TP_CODEC_FP8,   /* e4m3, scale fp32, bf16 or a power of two: enum tp_fp8_rule + tp_fp8_scale */
    TP_CODEC_MXFP8, /* e4m3, scale e8m0: rule = enum tp_mx_rule */
    TP_CODEC_MXFP4, /* e2m1, scale e8m0: rule = enum tp_mx_rule */
    TP_CODEC_NVFP4, /* e2m1, scale e4m3, one global fp32 scale: rule = enum tp_nvfp4_rule */
    TP_CODEC_INT8,  /* int8 symmetric, scale as of INT4: rule = enum tp_int4_rule */
    TP_CODEC_FLOAT, /* no quantization: CODES are BF16, F16 or F32 numbers, in another order */
    TP_CODEC_COUNT,
};

/* The quotient in fp32, or rounded to the type of the scale. */
enum tp_int4_rule { TP_INT4_QUOTIENT_FP32, TP_INT4_QUOTIENT_BF16 };
/* F32 is of what other tools wrote, and is read alone. */
enum tp_int_scale { TP_INT_SCALE_BF16, TP_INT_SCALE_F16, TP_INT_SCALE_F32 };
/* v2 and seed: DeepGEMM of 2026 and of May 2025 on a CPU, cuda and seed_cuda on a GPU; div:
 * DeepSeek; ct and ct-bf16: compressed-tensors with the quotient in fp32 or rounded to bf16
 * (its scale is bf16). */
enum tp_fp8_rule {
    TP_FP8_V2, TP_FP8_SEED, TP_FP8_DIV, TP_FP8_CUDA, TP_FP8_SEED_CUDA, TP_FP8_CT_FP32,
    TP_FP8_CT_BF16
};
enum tp_fp8_scale { TP_FP8_SCALE_FP32, TP_FP8_SCALE_UE8M0, TP_FP8_SCALE_BF16 };
enum tp_mx_rule { TP_MX_RCEIL, TP_MX_FLOOR, TP_MX_CT, TP_MX_EVEN, TP_MX_CEIL };
enum tp_nvfp4_rule { TP_NVFP4_CT, TP_NVFP4_TORCHAO, TP_NVFP4_MODELOPT };
/* W4A8's channel scale: as vLLM computes it on a GPU, by the same code on a CPU, and in
 * its CUDA kernel. */
enum tp_channel_rule { TP_CHANNEL_GPU, TP_CHANNEL_CPU, TP_CHANNEL_DIV };

/* How the scale of a block is chosen (formats/README.md, section 14). NONE: by the
 * codec's rule alone. MSE: the candidate with the least error of code * scale. W4A8 (INT4):
 * the least error of what the W4A8 kernel computes, for a whole row at once. */
enum tp_search { TP_SEARCH_NONE, TP_SEARCH_MSE, TP_SEARCH_W4A8 };

/* What errors are weighted with: nothing, the values themselves, or tp_args.importance. */
enum tp_importance { TP_IMPORTANCE_NONE, TP_IMPORTANCE_MAGNITUDE, TP_IMPORTANCE_FILE };

/* What an output holds. */
enum tp_role {
    TP_ROLE_CODES,   /* one code per element */
    TP_ROLE_SCALE,   /* one scale per stored block */
    TP_ROLE_GROUP8,  /* W4A8: e4m3 group scale times -8..-1, 8 bytes per group */
    TP_ROLE_CHANNEL, /* W4A8: fp32 scale of an output row */
    TP_ROLE_GLOBAL,  /* one scale of the whole weight (of each expert): fp32, of FP8 also bf16 */
    TP_ROLE_WORDS,   /* constants computed from E,N,K; written by the plan, not by kernels */
    TP_ROLE_ZERO,    /* zero point of a group: a code of the code's own kind, or, of a float
                        element, minus its product with the scale */
    TP_ROLE_ORDER,   /* the group that column k belongs to (act-order); of what is written, a
                        constant: groups are in order */
    TP_ROLE_COUNT,
};

/* How one stored element is to be read. */
enum tp_element {
    TP_ELEM_INT4, /* a nibble; op.table maps offset binary (q + 8) to the stored nibble */
    TP_ELEM_E2M1, /* a nibble */
    TP_ELEM_E4M3,
    TP_ELEM_E4M3X8, /* 8 bytes, see TP_ROLE_GROUP8 */
    TP_ELEM_E8M0,
    TP_ELEM_BF16,
    TP_ELEM_F16,
    TP_ELEM_F32,
    TP_ELEM_I32,
    TP_ELEM_I64,
    TP_ELEM_INT8, /* a signed byte: an int4 value, or that of an INT8 code */
    TP_ELEM_UINT8B128, /* a byte that is the INT8 value plus 128 */
    TP_ELEM_E5M3, /* a scale byte without a sign: see tp_e5m3_of() in scalar.h */
    TP_ELEM_E5M2, /* a code of FP8 sources: the upper half of an F16 */
    TP_ELEM_COUNT,
};
unsigned tp_element_bits(enum tp_element element);

/* Layout patterns that fast rows know. Matched on what a layout gives for a few sizes; any
 * other is TP_PLACE_ANY, which the rows for every layout and the reference handle. For a scale
 * the coordinates are those of stored blocks: (e, n / per_n, k / per_k). */
enum tp_place {
    TP_PLACE_ANY,
    TP_PLACE_ROW,        /* k fastest:  (e,n,k) row-major */
    TP_PLACE_COL,        /* n fastest:  (e,k,n) row-major */
    TP_PLACE_W4A8,       /* CUTLASS reordered int4 for fp8 activations */
    TP_PLACE_TILE_N,     /* 128x4 scale tiles, rows = n, columns = k blocks */
    TP_PLACE_TILE_K,     /* 128x4 scale tiles, rows = k, columns = n blocks */
    TP_PLACE_MN_ALIGNED, /* n fastest, columns of align(N,4) elements */
    TP_PLACE_MN_PACKED4, /* four k blocks in one 4-byte word, words as MN_ALIGNED */
    TP_PLACE_EVERY,      /* of rows only: whatever the layout is, see place.h */
    TP_PLACE_MOVED,      /* of rows only: the same, of codes whose bits are moved and no others */
};

enum { TP_MAX_OUT = 6 };

struct tp_op_out {
    enum tp_role role;
    enum tp_element element;
    uint32_t per_n, per_k;  /* elements of W per stored element; per_k 0 = whole row,
                               per_n 0 = whole weight */
    enum tp_place place;
    uint8_t fill;           /* byte held by padding (a nibble pair for 4 bits) */
    float min;              /* of an f32 SCALE: a smaller one is stored as this; 0: as it is */
    int factor;             /* of a float SCALE or GLOBAL: stored as 2^factor times the number */
    const struct tp_layout_expr *layout; /* NULL for WORDS (and for a GLOBAL that all experts
                               share) */
    const uint8_t *word_bits; /* of CODES: how bits are moved (word_bits.h), or NULL */
};

/* A complete description of the bytes of one packed weight. */
struct tp_op {
    enum tp_codec codec;
    uint8_t rule;       /* the codec's rule enum */
    uint8_t scale_rule; /* enum tp_fp8_scale or tp_int_scale, or 0 */
    uint8_t channel_rule; /* enum tp_channel_rule, or 0 */
    bool skip_zero_groups; /* W4A8 channel scale: all-zero groups do not take part in the amax */
    bool unit_global;   /* NVFP4: the global scale is 1, whatever the amax (single-level scales) */
    bool shifts_scales; /* NVFP4 with E5M3 scales: see tp_args.scale_shift */
    bool fused_global;  /* FP8 per tensor: matrices that engines load as one share the scale */
    bool zeros;         /* of integers that are written: ZERO is stored; else constant, or not
                           there */
    uint8_t zero_add;   /* added to every ZERO element (GPTQ v1 stores zero - 1) */
    uint8_t search;     /* enum tp_search as asked for; tp_op_search() is what is carried out */
    bool search_signed; /* INT4 with a search: scales may be negative */
    uint8_t importance; /* enum tp_importance; only a search reads it */
    uint8_t rank;       /* numbers of moments for each column, for a search that feeds errors
                           back; 0: none */
    uint32_t needs;     /* TP_NEED_... bits beside those that tp_op_needs() finds in what is here */
    uint32_t block_n, block_k; /* block over which one scale is computed */
    uint8_t segments;   /* of a whole weight: 2 where gate and up are laid out apart, else 0 or 1.
                           Boxes that rows of the kernels see have one segment */
    uint8_t table[16];  /* TP_ELEM_INT4: canonical code q + 8 -> stored nibble */
    uint32_t outs;
    struct tp_op_out out[TP_MAX_OUT]; /* in the order of the format file */
};

/* Whether both describe the same bytes for every weight: where each element lies and what
 * it means. How scales were searched does not count, because no reader needs to know it. */
bool tp_op_same(const struct tp_op *a, const struct tp_op *b);

/* What an operation asks of a kernel beside codes and scales in some layout. A row says which of
 * them it heeds, and takes part only where that is all: a bit that no row knows leaves an operation
 * to the reference. */
enum tp_need {
    TP_NEED_ZEROS = 1 << 0,      /* zero points */
    TP_NEED_ORDER = 1 << 1,      /* groups whose columns lie anywhere */
    TP_NEED_PRODUCT = 1 << 2,    /* zero points that are stored times a scale */
    TP_NEED_MOVED = 1 << 3,      /* codes whose bits are moved */
    TP_NEED_MOVED_FILL = 1 << 4, /* and with them padding that is not 0 */
    TP_NEED_FACTOR = 1 << 5,     /* scales of FP8 or NVFP4 that are stored times a factor */
    TP_NEED_INT_FACTOR = 1 << 6, /* the same of another codec */
    TP_NEED_E5M3 = 1 << 7,       /* scales of E5M3 */
    TP_NEED_SCALE_MIN = 1 << 8,  /* scales that are stored not below a number; of who writes them */
    TP_NEED_NUMBERS = 1 << 9,    /* weights that are stored as numbers */
    TP_NEED_FEEDBACK = 1 << 10,  /* errors that are fed back; of who encodes */
    TP_NEED_WIDE_SCALE = 1 << 11, /* scales of integers that are F32 numbers; of who reads */
    /* What another tool may have written, and no GPU decodes. */
    TP_NEED_REFERENCE = TP_NEED_ZEROS | TP_NEED_ORDER,
};
uint32_t tp_op_needs(const struct tp_op *op);
uint32_t tp_encode_needs(const struct tp_op *op); /* TP_NEED_FEEDBACK is of an encode alone */

/* The search that an encode of `op` carries out. NONE where the codec has none (FP8, MXFP8);
 * where group scales are stored (GROUP8) W4A8 stands for MSE too, since their values are what
 * the W4A8 kernel computes. With W4A8, and with errors fed back, an encode needs whole rows: its
 * boxes have all of K. A
 * searched operation has blocks of one row (block_n = 1). */
enum tp_search tp_op_search(const struct tp_op *op);

/* Whether an encode of `op` feeds errors back. */
bool tp_op_feeds(const struct tp_op *op);

/* Index of the first output with that role, or -1. */
int tp_op_find(const struct tp_op *op, enum tp_role role);

/* Numeric layout of output `i` for a weight of that size. A caller that asks for the same
 * sizes again and again uses tp_op_at (op_at.h). */
enum tp_code tp_op_layout(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                          struct tp_layout *layout, struct tp_err *err);

/* Bytes of output `i` including padding (whole bytes; 4-bit sizes are even). */
enum tp_code tp_op_bytes(const struct tp_op *op, uint32_t i, struct tp_box3 box, uint64_t *bytes,
                         struct tp_err *err);

/* The same where the layout is known, which is not looked at where the output has none. */
enum tp_code tp_op_layout_bytes(const struct tp_op *op, uint32_t i,
                                const struct tp_layout *layout, uint64_t *bytes,
                                struct tp_err *err);

/* Both of a whole weight, with all of its segments; the two above are those of a box of one
 * segment, and the same where op->segments is not above 1. */
enum tp_code tp_op_whole_layout(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                                struct tp_layout *layout, struct tp_err *err);
enum tp_code tp_op_whole_bytes(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                               uint64_t *bytes, struct tp_err *err);

/* Rows of one segment of a weight of `rows` rows. */
uint64_t tp_op_segment_rows(const struct tp_op *op, uint64_t rows);

/* From (e,n) of a weight of `rows` rows to what the layout of output i counts: segment h of
 * expert e is expert e * segments + h, whose rows begin at 0. An output that has one element for
 * all rows of an expert counts experts. And back. */
void tp_op_fold(const struct tp_op *op, uint32_t i, uint64_t rows, uint64_t *e, uint64_t *n);
void tp_op_unfold(const struct tp_op *op, uint32_t i, uint64_t rows, uint64_t *e, uint64_t *n);

/* The smallest weight (n,k) of this operation: larger ones are multiples of it, up to what
 * is missing at the ends. */
enum tp_code tp_op_tile(const struct tp_op *op, uint64_t *n, uint64_t *k, struct tp_err *err);

/* The smallest box (n,k) that may be converted on its own; k = 0: whole rows,
 * n = 0: whole columns. */
enum tp_code tp_op_granule(const struct tp_op *op, uint64_t *n, uint64_t *k, struct tp_err *err);

/* The smallest box (n,k) that may be decoded or copied on its own, with the scales of whole rows
 * again in each part of them; k = 0: whole rows, as an order of columns has them. */
enum tp_code tp_op_stored_granule(const struct tp_op *op, uint64_t *n, uint64_t *k,
                                  struct tp_err *err);

enum tp_place tp_place_of(const struct tp_layout_expr *layout);

/* Set in tp_args.flags: by an encode that met NaN or infinity; by any row that was given a
 * layout which cannot be evaluated for this size, and so did not do its work. */
enum { TP_SAW_NONFINITE = 1, TP_FAILED = 2 };

/* One call. Pointers are host or device memory as the row's backend wants;
 * compact, 64-byte aligned, owned by the caller. */
struct tp_args {
    struct tp_box3 box;
    enum tp_dtype dtype;        /* encode: of `in`; decode: of `out[0]` (F32 or BF16) */
    const void *in[TP_MAX_OUT]; /* encode: in[0] = W row-major [E,N,K];
                                   repack, decode: the source operation's outputs */
    void *out[TP_MAX_OUT];      /* the operation's outputs, or out[0] = values [E,N,K] */
    const float *importance;    /* encode with TP_IMPORTANCE_FILE: h[E][K] of the box, finite
                                   and >= 0; NULL: as without importance */
    const struct tp_feedback *fed; /* encode where tp_op_feeds(): its weights stand for
                                   importance, and the box is of one expert; NULL: nothing is fed
                                   back */
    float global;               /* encode: the global scale as stored (tp_codec_global() of the
                                   amax), which GLOBAL receives; repack, decode: used only when
                                   the source's GLOBAL is not given. A call has one global
                                   scale, so such weights come one expert at a time */
    uint8_t scale_shift;        /* repack to E5M3: scales are stored 2^scale_shift as large, GLOBAL
                                   as small; of the host's rows only */
    void *scratch;              /* tp_encode_scratch() bytes */
    uint32_t flags;             /* out: TP_FAILED; of host backends TP_SAW_NONFINITE */
    const struct tp_op_at *from_at, *to_at; /* layouts for this box of the operations that are read
                                   and written, or NULL */
    void *stream;               /* cudaStream_t of CUDA rows, else NULL */
    uint32_t *device_flags;     /* CUDA rows: one word OR-ed with the flags, else NULL */
};

/* The error that TP_FAILED stands for, or TP_OK. To be called after each call of a row. */
enum tp_code tp_args_check(const struct tp_args *args, struct tp_err *err);

/* Rows. `dtype`, `code_place` and `scale_place` say what the row can do;
 * `scale_place` is that of the SCALE output (for W4A8: that of GROUP8). */
typedef void (*tp_encode_fn)(const struct tp_op *op, struct tp_args *args);
struct tp_encode_row {
    enum tp_codec codec;
    enum tp_dtype dtype;
    enum tp_place code_place, scale_place;
    bool (*accepts)(const struct tp_op *op); /* further conditions, or NULL */
    enum tp_isa isa;
    tp_encode_fn encode;
    const char *name; /* codec_place_dtype_isa, for `tilepack bench` */
    enum tp_search search; /* the one that it carries out, as tp_op_search() names it */
    uint32_t heeds; /* TP_NEED_... bits */
};

/* Codes and scales taken over unchanged from another packed form with the same
 * codec and block, e.g. w4a8-ct -> w4a8-cutlass. Host rows make the scales alone when
 * out[] of the codes is NULL. */
typedef void (*tp_repack_fn)(const struct tp_op *from, const struct tp_op *to,
                             struct tp_args *args);
struct tp_repack_row {
    enum tp_codec codec;
    enum tp_place from_code, to_code, from_scale, to_scale;
    bool (*accepts)(const struct tp_op *from, const struct tp_op *to);
    enum tp_isa isa;
    tp_repack_fn repack;
    const char *name;
    uint32_t heeds; /* of both; what is read may have TP_NEED_SCALE_MIN beside them */
};

typedef void (*tp_decode_fn)(const struct tp_op *op, struct tp_args *args);
struct tp_decode_row {
    enum tp_codec codec;
    enum tp_dtype dtype;
    enum tp_place code_place, scale_place;
    bool (*accepts)(const struct tp_op *op);
    enum tp_isa isa;
    tp_decode_fn decode;
    const char *name;
    uint32_t heeds; /* beside TP_NEED_SCALE_MIN, which changes nothing for a reader */
};

/* The best row whose instruction set is enabled. Never fails: the reference fits
 * everything. */
tp_encode_fn tp_encode_find(const struct tp_op *op, enum tp_dtype dtype);
tp_repack_fn tp_repack_find(const struct tp_op *from, const struct tp_op *to);
tp_decode_fn tp_decode_find(const struct tp_op *op, enum tp_dtype dtype);

/* The reference implementations (ref.c): slow, obvious, layout-driven. */
void tp_encode_ref(const struct tp_op *op, struct tp_args *args);
void tp_repack_ref(const struct tp_op *from, const struct tp_op *to, struct tp_args *args);
void tp_decode_ref(const struct tp_op *op, struct tp_args *args);

/* True when codes and scales of `from` can be taken over into `to` unchanged, but for a global
 * scale that becomes its reciprocal (tp_repack_inverts). */
bool tp_repack_possible(const struct tp_op *from, const struct tp_op *to);

/* True where the global scale is a divisor: NVFP4 with the rule CT. */
bool tp_op_divides(const struct tp_op *op);

/* True of a repack whose global scale is a divisor on one side and a multiplier on the other. */
bool tp_repack_inverts(const struct tp_op *from, const struct tp_op *to);

/* The global scale of `from` as a repack stores it in `to`: 1 / global, rounded once to fp32,
 * where tp_repack_inverts(). Infinite for one below 2^-128. */
float tp_repack_global(const struct tp_op *from, const struct tp_op *to, float global);

/* True where a zero point is stored as minus its product with the scale, rounded to the type of
 * the scale: what a kernel adds to code * scale. */
bool tp_op_zero_is_product(const struct tp_op *op);

/* True when one scale is that of the whole weight (of each expert), and found before any box
 * is encoded: FP8 with a GLOBAL and no SCALE. */
bool tp_op_per_tensor(const struct tp_op *op);
/* Whether codes are the numbers themselves, so that nothing was quantized: FLOAT, and FP8 without
 * any scale. */
bool tp_op_is_number(const struct tp_op *op);

/* True when codes are integers and scales 16-bit floats: INT4 and INT8. */
bool tp_op_is_int(const struct tp_op *op);

/* Bytes that an encode of a box needs beside what it needs without a search; 0 when `op`
 * has none. A part of tp_encode_scratch(). */
size_t tp_search_scratch(const struct tp_op *op, struct tp_box3 box);

/* Scratch that any host row may need for this box; and what one that decodes it may need, which is
 * far less where only the reference decodes: rows in act-order are long. */
size_t tp_encode_scratch(const struct tp_op *op, struct tp_box3 box);
size_t tp_decode_scratch(const struct tp_op *op, struct tp_box3 box);

/* Largest absolute finite value, and how many values are NaN or infinite, of
 * `count` values. The stats phase of global scales, and the report of bad input. */
struct tp_value_stats {
    float amax;
    uint64_t nonfinite;
    uint64_t first_nonfinite; /* index, valid when nonfinite > 0 */
};
void tp_value_stats(enum tp_dtype dtype, const void *values, uint64_t count,
                    struct tp_value_stats *stats);

/* Whether one of so many e4m3 bytes is NaN: 0x7F or 0xFF. */
bool tp_e4m3_any_nan(const uint8_t *codes, uint64_t count);

TP_C_END

#endif
