/* What is known of each codec and of each element, one row each.
 *
 * A fact of a codec or an element that more than one place asks for is a column here, so that a
 * new one is a row. The arithmetic of codecs is in codec.c; what kernels of an instruction set or
 * a device can do is in their own tables (needs.h says in which words).
 */
#ifndef TP_KERNELS_TRAITS_H
#define TP_KERNELS_TRAITS_H

#include "base/c_linkage.h"
#include "kernels/op/kernel.h"

TP_C_BEGIN

/* The bit of `needs` for a codec or an element that the reference alone knows yet. */
#define TP_NEED_SLOW (UINT32_C(1) << 31)

struct tp_element_traits {
    const char *name;    /* in format files and descriptors */
    uint8_t bits;
    bool is_float;       /* a number of IEEE's kind: BF16, F16, F32 */
    bool has_table;      /* a code that tp_op.table maps to what is stored */
    enum tp_dtype dtype; /* which safetensors has for one such number, or NONE */
    double (*value)(const uint8_t *at); /* the number by itself, of little-endian bytes or a
                            nibble; NULL: it needs the operation's table */
    uint32_t needs;      /* TP_NEED_... bits of an operation that has such an output */
};

struct tp_codec_traits {
    const char *name;    /* in format files and descriptors */
    const char *const *rules, *const *scale_rules; /* words of tp_op.rule and scale_rule, in the
                            order of their enums; NULL at the end */
    bool is_int;         /* codes are integers, scales 16-bit floats */
    bool is_number;      /* codes are the numbers themselves: nothing is quantized */
    bool has_global;     /* there is a global scale beside those of blocks */
    bool searches;       /* scales can be searched for the least error */
    bool searches_rows;  /* and for the least error of what the W4A8 kernel computes */
    uint8_t zero_point;  /* of integers: the canonical code of 0 */
    uint8_t bits;        /* of a code, as a description says it, however it is stored; 0: none */
    uint32_t codes, scales; /* the elements that they may have, as 1 << enum tp_element */
    uint32_t needs;      /* TP_NEED_... bits */
};

/* By enum tp_element and enum tp_codec. */
extern const struct tp_element_traits tp_elements[TP_ELEM_COUNT];
extern const struct tp_codec_traits tp_codecs[TP_CODEC_COUNT];
extern const char *const tp_role_names[TP_ROLE_COUNT];
extern const char *const tp_search_names[]; /* by enum tp_search; NULL at the end */

/* Whether an output of that role may have that element. */
bool tp_codec_takes(enum tp_codec codec, enum tp_role role, enum tp_element element);

/* The word of scale_rules for scales that are stored as that element: what the stored type can hold
 * decides where they can be taken over. */
uint8_t tp_codec_scale_rule(enum tp_codec codec, enum tp_element element);

/* The canonical code that stands for 0, from which codes count; 0 where they are no integers. */
static inline int tp_op_zero_point(const struct tp_op *op)
{
    return tp_codecs[op->codec].zero_point;
}

/* Whether scales are integers' of F16, else of bf16 or others. */
static inline bool tp_op_has_f16_scales(const struct tp_op *op)
{
    return tp_codecs[op->codec].is_int && op->scale_rule == TP_INT_SCALE_F16;
}

/* Whether they are F32 numbers, which only a reader has. */
static inline bool tp_op_has_f32_scales(const struct tp_op *op)
{
    return tp_codecs[op->codec].is_int && op->scale_rule == TP_INT_SCALE_F32;
}

TP_C_END

#endif
