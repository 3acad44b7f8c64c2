/* Packed weights of other tools: what their small tensors say, and their scales and codes.
 *
 * Headers alone do not tell whether an int4 weight is symmetric, in act-order, or
 * of which GPTQ version; zero points, g_idx and layout words do. They are read
 * while planning, so that nothing is refused after hours of writing.
 */
#ifndef TP_PACK_WEIGHT_COMPLETE_H
#define TP_PACK_WEIGHT_COMPLETE_H

#include "pack/source/weights.h"

/* Reads zero points, g_idx, stored shape and global scale of weight number w and
 * completes it: outputs that say nothing new (all zero points 8, g_idx[k] = k/G) get
 * the role WORDS, so that the weight can be taken over; op.zero_add, global and
 * lossy are set. Does nothing for plain weights and the second time. TP_E_INPUT
 * when they contradict the weight; TP_E_UNSUPPORTED when it has two tensors of scales, or the like,
 * and nothing says which is meant. */
enum tp_code tp_weight_complete(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                                size_t w, struct tp_err *err);

/* What is stored of a GPTQ weight beside codes and scales, as its config.json has to say. */
struct tp_source_gptq {
    bool ordered;    /* in act-order */
    bool asymmetric; /* its zero points are not all that of a symmetric weight */
    bool version2;   /* zero points are stored as they are, not less one */
    bool by_config;  /* which its words do not tell, but config.json */
};
/* Reads it of a weight in a format that stores zero points less one, whether it was completed or
 * not. A g_idx may be damaged. */
enum tp_code tp_source_gptq(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                            struct tp_source_gptq *gptq, struct tp_err *err);

/* Checks all scales of a box that was read as input of a take-over: NaN, infinite or
 * negative ones are TP_E_INPUT, but `negative` allows finite ones below zero. `data`: as
 * tp_args.in of the repack. */
enum tp_code tp_source_scales_check(const struct tp_op *op, bool negative, struct tp_box3 box,
                                    const void *const data[], struct tp_err *err);

/* Checks that the group scales of such a box that are stored as eight multiples of one number are
 * that, whatever they are taken for; same arguments. */
enum tp_code tp_source_scale_luts_check(const struct tp_op *op, struct tp_box3 box,
                                        const void *const data[], struct tp_err *err);

/* Checks that the scales of such a box are numbers of F16 where `to` stores them so, with `exact`
 * also of BF16, and finite where it multiplies them or stores the reciprocal; same arguments. */
enum tp_code tp_source_scales_fit(const struct tp_op *op, const struct tp_op *to, bool exact,
                                  struct tp_box3 box, const void *const data[],
                                  struct tp_err *err);

/* Whether a stored global scale is a positive number; it, less the power of two that its format
 * multiplies it by, in *value. */
bool tp_source_global_right(const struct tp_op_out *out, const uint8_t *at, float *value);

/* Whether a stored scale is a number: neither NaN nor infinite. One below zero is a scale as any
 * other: kernels multiply by it, and quantizers that use all 16 codes of a sign write such. */
bool tp_source_scale_finite(enum tp_element element, const uint8_t *at);

/* Fails for a zero point that `to` has no code for: GPTQ's first version stores them less one; and
 * for what is stored as one times its scale and is none. Same arguments. */
enum tp_code tp_source_zeros_fit(const struct tp_op *op, const struct tp_op *to,
                                 struct tp_box3 box, const void *const data[],
                                 struct tp_err *err);
/* Checks that every byte of int8-stored int4 codes is -8..7; same arguments. */
enum tp_code tp_source_codes_check(const struct tp_op *op, struct tp_box3 box,
                                   const void *const data[], struct tp_err *err);

/* Whether no code of `part` of such a box, counted from its begin, is NaN, as FP8's and MXFP8's may
 * be. What padding holds does not count. Fails when memory is short. */
enum tp_code tp_source_codes_finite(const struct tp_op *op, struct tp_box3 box,
                                    const struct tp_box *part, const void *const data[],
                                    bool *finite, struct tp_err *err);

#endif
