/* The operations of the formats, built in C for tests and benchmarks of kernels;
 * the layout texts are those of the format files. Header only.
 */
#ifndef TP_TESTS_OPS_H
#define TP_TESTS_OPS_H

#include "base/layout_parse.h"
#include "kernels/op/kernel.h"
#include "kernels/op/word_bits.h"

#include <stdlib.h>
#include <string.h>

#define OPS_ROW "(E,N,K):(N*K,K,1)"
#define OPS_COL "(E,N,K):(N*K,1,N)"
#define OPS_GRID(a, b)                                                        \
    "(E,ceil(N," #a "),ceil(K," #b ")):(ceil(N," #a ")*ceil(K," #b "),ceil(K," #b "),1)"
#define OPS_W4A8 "(E,(8,2,N/16),(4,4,2,K/32)):(N*K,(64,4,512),(1,16,8,32*N))"
#define OPS_GROUP8 "(E,N,K/128):(N*(K/128),1,N)"
#define OPS_CHANNEL "(E,N,1):(N,1,1)"
#define OPS_TILE_N                                                              \
    "(E,(32,4,align(N,128)/128),(4,align(ceil(K,32),4)/4)):"                    \
    "(align(N,128)*align(ceil(K,32),4),(16,4,128*align(ceil(K,32),4)),(1,512))"
#define OPS_TILE_N16                                                            \
    "(E,(32,4,align(N,128)/128),(4,align(ceil(K,16),4)/4)):"                    \
    "(align(N,128)*align(ceil(K,16),4),(16,4,128*align(ceil(K,16),4)),(1,512))"
#define OPS_TILE_K                                                              \
    "(E,(4,align(ceil(N,32),4)/4),(32,4,align(K,128)/128)):"                    \
    "(align(K,128)*align(ceil(N,32),4),(1,512),(16,4,128*align(ceil(N,32),4)))"
#define OPS_MN_ALIGNED "(E,align(N,4),ceil(K,128)):(align(N,4)*ceil(K,128),1,align(N,4))"
#define OPS_MN_PACKED4                        \
    "(E,align(N,4),(4,ceil(ceil(K,128),4))):" \
    "(4*align(N,4)*ceil(ceil(K,128),4),4,(1,4*align(N,4)))"

/* The compiled layout of a text; compiled once, and kept. NULL of one that is none. */
static inline const struct tp_layout_expr *ops_layout(const char *text)
{
    static struct ops_compiled {
        struct tp_layout_expr layout;
        const char *text;
        struct ops_compiled *next;
    } *all;
    struct ops_compiled *item = all;
    struct tp_err err = {0};
    if (!text)
        return NULL;
    while (item && strcmp(item->text, text) != 0)
        item = item->next;
    if (item)
        return &item->layout;
    item = malloc(sizeof *item);
    if (!item || tp_layout_compile(text, &item->layout, &err)) {
        free(item);
        return NULL;
    }
    item->text = text;
    item->next = all;
    all = item;
    return &item->layout;
}

static inline void ops_out(struct tp_op *op, enum tp_role role, enum tp_element element,
                           uint32_t per_n, uint32_t per_k, const char *layout)
{
    struct tp_op_out *out = &op->out[op->outs++];
    out->role = role;
    out->element = element;
    out->per_n = per_n;
    out->per_k = per_k;
    out->layout = ops_layout(layout);
    out->place = tp_place_of(out->layout);
}

/* Without outputs; the nibble table is the identity. */
static inline struct tp_op ops_begin(enum tp_codec codec, int rule, uint32_t block_n,
                                     uint32_t block_k)
{
    struct tp_op op = {0};
    op.codec = codec;
    op.rule = (uint8_t)rule;
    op.block_n = block_n;
    op.block_k = block_k;
    for (uint8_t i = 0; i < 16; i++)
        op.table[i] = i;
    return op;
}

static inline struct tp_op ops_w4a8_ct(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_INT4, rule, 1, 128);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_INT4, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_BF16, 1, 128, OPS_GRID(1, 128));
    ops_out(&op, TP_ROLE_WORDS, TP_ELEM_I64, 1, 1, NULL);
    return op;
}

/* group 0: a whole row. */
static inline struct tp_op ops_w4a16_ct(int rule, uint32_t group)
{
    const char *const layout = group == 32   ? OPS_GRID(1, 32)
                               : group == 64 ? OPS_GRID(1, 64)
                               : group       ? OPS_GRID(1, 128)
                                             : "(E,N,K/(K)):(N*(K/(K)),K/(K),1)";
    struct tp_op op = ops_begin(TP_CODEC_INT4, rule, 1, group);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_INT4, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_BF16, 1, group, layout);
    ops_out(&op, TP_ROLE_WORDS, TP_ELEM_I64, 1, 1, NULL);
    return op;
}

/* The same with F16 scales. */
static inline struct tp_op ops_w4a16_f16(int rule, uint32_t group)
{
    struct tp_op op = ops_w4a16_ct(rule, group);
    op.scale_rule = TP_INT_SCALE_F16;
    op.out[1].element = TP_ELEM_F16;
    return op;
}

/* Codes and scales of int4 or int8 in groups, laid out as engines have them; group 0: a row. */
enum ops_placed { OPS_GPTQ, OPS_AWQ, OPS_MARLIN, OPS_MARLIN_ROW, OPS_MACHETE };

static inline struct tp_op ops_placed_int(enum tp_codec codec, enum ops_placed how, int rule,
                                          uint32_t group, bool f16)
{
    static const char *const codes[][2] = {
        [OPS_GPTQ] = {"(E,N,(8,K/8)):(N*K,8,(1,8*N))", "(E,N,(4,K/4)):(N*K,4,(1,4*N))"},
        [OPS_AWQ] = {"(E,(2,4,N/8),K):(N*K,(4,1,8),N)", "(E,(2,2,N/4),K):(N*K,(2,1,4),N)"},
        [OPS_MARLIN] = {"(E,(8,2,4,N/64),(2,4,2,K/16)):(N*K,(128,2,8,1024),(4,32,1,16*N))",
                        "(E,(8,2,4,N/64),(2,4,2,K/16)):(N*K,(128,4,8,1024),(2,32,1,16*N))"},
        [OPS_MARLIN_ROW] = {"(E,(8,2,4,N/64),(2,4,2,K/16)):(N*K,(128,2,8,1024),(4,32,1,16*N))",
                            "(E,(8,2,4,N/64),(2,4,2,K/16)):(N*K,(128,4,8,1024),(2,32,1,16*N))"},
        [OPS_MACHETE] = {"(E,(8,2,8,N/128),(2,4,2,4,K/64)):"
                         "(N*K,(128,1,1024,8192),(4,32,2,8,64*N))",
                         "(E,(8,2,8,N/128),(2,4,2,4,K/64)):"
                         "(N*K,(128,2,1024,8192),(1,32,4,8,64*N))"},
    };
    const char *columns = group == 32   ? "(E,N,ceil(K,32)):(N*ceil(K,32),1,N)"
                          : group == 64 ? "(E,N,ceil(K,64)):(N*ceil(K,64),1,N)"
                          : group       ? "(E,N,ceil(K,128)):(N*ceil(K,128),1,N)"
                                        : "(E,N,1):(N,1,N)";
    const char *scales = how == OPS_MARLIN && group == 32
                             ? "(E,(8,8,N/64),K/32):(N*(K/32),(8,1,64),N)"
                         : how == OPS_MARLIN && group == 128
                             ? "(E,(8,8,N/64),K/128):(N*(K/128),(8,1,64),N)"
                         : how == OPS_MARLIN_ROW ? "(E,(2,4,4,N/32),1):(N,(1,8,2,32),N)"
                                                 : columns;
    const bool int8 = codec == TP_CODEC_INT8;
    struct tp_op op = ops_begin(codec, rule, 1, group);
    op.scale_rule = f16 ? TP_INT_SCALE_F16 : TP_INT_SCALE_BF16;
    ops_out(&op, TP_ROLE_CODES, int8 ? TP_ELEM_UINT8B128 : TP_ELEM_INT4, 1, 1, codes[how][int8]);
    ops_out(&op, TP_ROLE_SCALE, f16 ? TP_ELEM_F16 : TP_ELEM_BF16, 1, group, scales);
    return op;
}

/* The operation with zero points beside its scales, which GPTQ stores less one; of two bytes they
 * are products with the scales. NULL: as scales lie. */
static inline struct tp_op ops_zeros(struct tp_op op, enum tp_element element, const char *layout,
                                     uint8_t add)
{
    const struct tp_op_out scale = op.out[1];
    op.zeros = true;
    op.zero_add = add;
    ops_out(&op, TP_ROLE_ZERO, element, scale.per_n, scale.per_k, layout);
    if (!layout) {
        op.out[op.outs - 1].layout = scale.layout;
        op.out[op.outs - 1].place = scale.place;
    }
    return op;
}

/* The operation with codes whose bits change places within words: bit i is bit 5 i + 3. */
static inline struct tp_op ops_moved_bits(struct tp_op op)
{
    static const uint8_t order[TP_WORD_BITS] = {
        3,  8,  13, 18, 23, 28, 1,  6,  11, 16, 21, 26, 31, 4,  9,  14,
        19, 24, 29, 2,  7,  12, 17, 22, 27, 0,  5,  10, 15, 20, 25, 30};
    op.out[0].word_bits = order;
    return op;
}

/* With signed codes (int8-ct), or plus 128 and perhaps in groups (w8a16-ct). */
static inline struct tp_op ops_int8(int rule, bool is_signed, uint32_t group, bool f16)
{
    struct tp_op op = ops_begin(TP_CODEC_INT8, rule, 1, group);
    op.scale_rule = f16 ? TP_INT_SCALE_F16 : TP_INT_SCALE_BF16;
    ops_out(&op, TP_ROLE_CODES, is_signed ? TP_ELEM_INT8 : TP_ELEM_UINT8B128, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, f16 ? TP_ELEM_F16 : TP_ELEM_BF16, 1, group,
            group == 32    ? OPS_GRID(1, 32)
            : group == 128 ? OPS_GRID(1, 128)
                           : "(E,N,1):(N,1,1)");
    return op;
}

static inline struct tp_op ops_fp8_tensor(int rule, const char *codes)
{
    struct tp_op op = ops_begin(TP_CODEC_FP8, rule, 0, 0);
    op.scale_rule = TP_FP8_SCALE_BF16;
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, codes);
    ops_out(&op, TP_ROLE_GLOBAL, TP_ELEM_BF16, 0, 0, NULL);
    return op;
}

static inline struct tp_op ops_w4a8_cutlass(int rule, int channel_rule, bool skip_zero)
{
    static const uint8_t encode[16] = {0, 7, 6, 5, 4, 3, 2, 1, 8, 9, 10, 11, 12, 13, 14, 15};
    struct tp_op op = ops_begin(TP_CODEC_INT4, rule, 1, 128);
    for (int i = 0; i < 16; i++)
        op.table[i] = encode[i ^ 8];
    op.channel_rule = (uint8_t)channel_rule;
    op.skip_zero_groups = skip_zero;
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_INT4, 1, 1, OPS_W4A8);
    ops_out(&op, TP_ROLE_WORDS, TP_ELEM_I32, 1, 1, NULL);
    ops_out(&op, TP_ROLE_GROUP8, TP_ELEM_E4M3X8, 1, 128, OPS_GROUP8);
    ops_out(&op, TP_ROLE_CHANNEL, TP_ELEM_F32, 1, 0, OPS_CHANNEL);
    return op;
}

static inline struct tp_op ops_fp8_deepseek(int rule, int scale_rule)
{
    struct tp_op op = ops_begin(TP_CODEC_FP8, rule, 128, 128);
    op.scale_rule = (uint8_t)scale_rule;
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_F32, 128, 128, OPS_GRID(128, 128));
    return op;
}

static inline struct tp_op ops_fp8_ct(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_FP8, rule, 128, 128);
    op.scale_rule = TP_FP8_SCALE_BF16;
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_BF16, 128, 128, OPS_GRID(128, 128));
    return op;
}

static inline struct tp_op ops_fp8_dynamic_ct(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_FP8, rule, 1, 0);
    op.scale_rule = TP_FP8_SCALE_BF16;
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_BF16, 1, 0, "(E,N,1):(N,1,1)");
    return op;
}

static inline struct tp_op ops_fp8_sm100(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_FP8, rule, 128, 128);
    op.scale_rule = TP_FP8_SCALE_UE8M0;
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E8M0, 1, 128, OPS_MN_PACKED4);
    return op;
}

static inline struct tp_op ops_fp8_1x128(int rule, int scale_rule)
{
    struct tp_op op = ops_begin(TP_CODEC_FP8, rule, 1, 128);
    op.scale_rule = (uint8_t)scale_rule;
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_F32, 1, 128, OPS_MN_ALIGNED);
    return op;
}

static inline struct tp_op ops_mxfp8_ct(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_MXFP8, rule, 1, 32);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E8M0, 1, 32, OPS_GRID(1, 32));
    return op;
}

static inline struct tp_op ops_mxfp8_blocked(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_MXFP8, rule, 1, 32);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E8M0, 1, 32, OPS_TILE_N);
    return op;
}

/* block_k: 1 or 32 */
static inline struct tp_op ops_mxfp8_torchao3d(int rule, uint32_t block_k)
{
    struct tp_op op = ops_begin(TP_CODEC_MXFP8, rule, 32, block_k);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1, OPS_COL);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E8M0, 32, 1, OPS_TILE_K);
    return op;
}

static inline struct tp_op ops_mxfp4_ct(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_MXFP4, rule, 1, 32);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E2M1, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E8M0, 1, 32, OPS_GRID(1, 32));
    return op;
}

static inline struct tp_op ops_mxfp4_blocked(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_MXFP4, rule, 1, 32);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E2M1, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E8M0, 1, 32, OPS_TILE_N);
    return op;
}

static inline struct tp_op ops_nvfp4_blocked(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_NVFP4, rule, 1, 16);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E2M1, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E4M3, 1, 16, OPS_TILE_N16);
    ops_out(&op, TP_ROLE_GLOBAL, TP_ELEM_F32, 0, 0, NULL);
    return op;
}

static inline struct tp_op ops_nvfp4_ct(int rule)
{
    struct tp_op op = ops_begin(TP_CODEC_NVFP4, rule, 1, 16);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E2M1, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_E4M3, 1, 16, OPS_GRID(1, 16));
    ops_out(&op, TP_ROLE_GLOBAL, TP_ELEM_F32, 0, 0, NULL);
    return op;
}

/* Codes of 8 or 4 bits by an engine's order, scales in columns: no row has this place. */
static inline struct tp_op ops_placed_of(struct tp_op op, const char *codes, const char *scales)
{
    op.out[0].layout = ops_layout(codes);
    op.out[0].place = tp_place_of(op.out[0].layout);
    op.out[1].layout = ops_layout(scales);
    op.out[1].place = tp_place_of(op.out[1].layout);
    return op;
}

/* Two's complement nibbles in groups of 32, in blocks of 256 columns (mxint4-trtllm). */
static inline struct tp_op ops_mxint4(int rule)
{
    struct tp_op op = ops_placed_of(ops_w4a16_ct(rule, 32),
                                    "(E,(4,8,N/32),(256,K/256)):(N*K,(2048,256,8192),(1,256*N))",
                                    "(E,(4,8,4,N/128),(4,K/128)):"
                                    "(N*(K/32),(128,16,4,4*K),(1,512))");
    for (uint8_t i = 0; i < 16; i++)
        op.table[i] = i ^ 8;
    return op;
}

/* Scales are stored that are not below `min`. */
static inline struct tp_op ops_min_of(struct tp_op op, float min)
{
    op.out[1].min = min;
    return op;
}
/* Blocks of 128x128 in blocks of 128 columns (fp8-trtllm). */
static inline struct tp_op ops_fp8_trtllm(int rule, int scale_rule)
{
    return ops_min_of(ops_placed_of(ops_fp8_deepseek(rule, scale_rule),
                                    "(E,(2,8,N/16),(128,K/128)):(N*K,(1024,128,2048),(1,128*N))",
                                    OPS_GRID(128, 128)), 1e-10f);
}

/* Scales for each row and 128 columns, or for each row, times 2^120 or 2^8 (fp8-marlin); rows of
 * scales may be missing to the next 64, and columns of codes. */
static inline struct tp_op ops_fp8_marlin(int rule, bool channel, bool f16)
{
    struct tp_op op = ops_begin(TP_CODEC_FP8, rule, channel ? 1 : 128, channel ? 0 : 128);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_E4M3, 1, 1,
            "(E,(8,2,4,align(N,64)/64),(2,4,2,align(K,64)/16)):"
            "(align(N,64)*align(K,64),(128,4,8,1024),(2,32,1,16*align(N,64)))");
    ops_out(&op, TP_ROLE_SCALE, f16 ? TP_ELEM_F16 : TP_ELEM_BF16, 1, channel ? 0 : 128,
            channel ? "(E,(2,4,4,align(N,64)/32),1):(align(N,64),(1,8,2,32),align(N,64))"
                    : "(E,(8,8,align(N,64)/64),ceil(K,128)):"
                      "(align(N,64)*ceil(K,128),(8,1,64),align(N,64))");
    op.out[1].factor = f16 ? 8 : 120;
    return op;
}

/* Scales of E5M3, and a global one times a power of two (nvfp4-marlin). */
static inline struct tp_op ops_nvfp4_marlin(int rule, int factor)
{
    struct tp_op op =
        ops_placed_of(ops_nvfp4_ct(rule),
                      "(E,(8,2,4,align(N,64)/64),(2,4,2,K/16)):"
                      "(align(N,64)*K,(128,2,8,1024),(4,32,1,16*align(N,64)))",
                      "(E,(8,2,2,2,align(N,64)/64),ceil(K,16)):"
                      "(align(N,64)*ceil(K,16),(8,2,1,4,64),align(N,64))");
    op.out[1].element = TP_ELEM_E5M3;
    op.out[2].factor = factor;
    return op;
}

/* Numbers in another order. */
static inline struct tp_op ops_floats(enum tp_element element, const char *layout)
{
    struct tp_op op = ops_begin(TP_CODEC_FLOAT, 0, 1, 1);
    ops_out(&op, TP_ROLE_CODES, element, 1, 1, layout);
    return op;
}
#define OPS_BLOCKS_OF_64 "(E,(8,8,N/64),(2,32,K/64)):(N*K,(2,512,64*K),(1,16,4096))"

#endif
