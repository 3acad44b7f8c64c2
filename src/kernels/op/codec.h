/* The codecs, one block at a time: the arithmetic that defines every format.
 *
 * Slow and obvious on purpose; the formulas are those of formats/README.md and
 * every fast row must agree with them bit for bit. Built for host only.
 */
#ifndef TP_KERNELS_CODEC_H
#define TP_KERNELS_CODEC_H

#include "kernels/op/kernel.h"

/* Encodes one block of `count` values (the block's elements in any order, those
 * outside the tensor left out). codes[i] is the canonical code of values[i]:
 * q + 8 for int4, q + 128 for int8, sign << 3 | index for e2m1, the byte for e4m3. *scale
 * receives the scale's bits: bf16 or f16 (INT4, INT8), fp32 (FP8; also when it is a power of two; a
 * bf16 scale is widened), e8m0 (MX), e4m3 (NVFP4). `global` is the global scale
 * (NVFP4). Returns true when a value is NaN or infinite (or when the MXFP8 rule
 * TP_MX_CT overflows: tp_mx_ct() in scalar.h). Chooses scales by the codec's rule, whatever
 * the operation says of a search. */
bool tp_codec_encode(const struct tp_op *op, const float *values, uint64_t count, float global,
                     uint8_t *codes, uint32_t *scale);

/* The codes alone (INT4, MXFP4, NVFP4), for a finite scale that was chosen before, as bits;
 * INT4's may be negative. */
void tp_codec_codes(const struct tp_op *op, const float *values, uint64_t count, uint32_t scale,
                    float global, uint8_t *codes);

/* The largest magnitude as bits of an fp32 number (every NaN above infinity); 0 of none. */
uint32_t tp_amax_bits(const float *values, uint64_t count);

/* The global scale of a weight, or of a set of weights that share it, whose largest
 * magnitude is `amax`, in the form that is stored: a divisor with the rule CT
 * (2688 times the reciprocal of amax, each rounded to the weight's dtype; 1 where that
 * is not finite), a multiplier with the others (amax / 2688). Of FP8 per tensor the scale of
 * all values, with the rules CT_* and DIV. 1 for codecs that have none. */
float tp_codec_global(const struct tp_op *op, enum tp_dtype dtype, float amax);

/* Whether it is 1 because the divisor of these values, which are not all 0, is not finite: beyond
 * what their dtype holds, as of F16 below 0.041. */
bool tp_codec_global_lost(const struct tp_op *op, enum tp_dtype dtype, float amax);

/* The same, or TP_E_INPUT (err->of_format) where there is none: a multiplier that underflows to 0
 * would be divided by, and be no scale when it is read again. */
enum tp_code tp_codec_global_of(const struct tp_op *op, enum tp_dtype dtype, float amax,
                                float *global, struct tp_err *err);

/* Parts of it that fast rows share. `amax` is the largest magnitude of the block as
 * bits of an fp32 number. The scale of FP8, and the factor that values are multiplied by
 * (rules V2, SEED, CUDA) or divided by (DIV, CT_*). */
float tp_fp8_block_scale(const struct tp_op *op, uint32_t amax, float *factor);

/* The e4m3 scale of an NVFP4 block, and the factor that values are multiplied by (rule
 * TORCHAO) or divided by. */
uint8_t tp_nvfp4_block_scale(const struct tp_op *op, uint32_t amax, float global,
                             float *factor);
float tp_nvfp4_factor(const struct tp_op *op, uint8_t scale, float global);

/* Value of a canonical code before scaling, and of a scale's bits. */
float tp_codec_code_value(const struct tp_op *op, uint8_t code);
float tp_codec_scale_value(const struct tp_op *op, uint32_t scale_bits);

/* W4A8: group scales (bf16 bits, G of one output row) -> e4m3 group scales and
 * the row's fp32 channel scale; spec: formats/README.md, "channel scale". */
void tp_channel_scale(const uint16_t *row_scales, uint64_t groups, enum tp_channel_rule rule,
                      bool skip_zero, const uint8_t *group_is_zero, uint8_t *group_scales,
                      float *channel);

/* Its parts: sc, an eighth of the channel scale, from the largest magnitude (bf16
 * bits); and for each e4m3 byte f the 8 packed bytes of the group scale f / 8. */
float tp_channel_quotient(uint16_t amax, enum tp_channel_rule rule);
const uint64_t *tp_group8_of_eighth(void);

/* From f = 0x20 on (and below NaN) f / 8 is exact and normal, so that its packed bytes differ
 * from f by what the lowest three bits of f say: place 8 i + f % 8 has what to add for byte i. */
enum { TP_GROUP8_MIN = 0x20 };
const uint8_t *tp_group8_steps(void); /* 64 bytes */

/* One e4m3 group scale -> its 8 multiples -8..-1, in memory order. */
void tp_group8(uint8_t group_scale, uint8_t packed[8]);
/* Whether they are the multiples of one number, which the last of them is with the other sign. */
bool tp_group8_right(const uint8_t packed[8]);
static inline uint8_t tp_group8_scale(const uint8_t packed[8]) { return packed[7] ^ 0x80; }

#endif
