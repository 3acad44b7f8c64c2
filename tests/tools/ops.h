/* The operations of the formats, built in C for tests and benchmarks of kernels;
 * the layout texts are those of the format files. Header only.
 */
#ifndef TP_TESTS_OPS_H
#define TP_TESTS_OPS_H

#include "kernels/op/kernel.h"

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

static inline void ops_out(struct tp_op *op, enum tp_role role, enum tp_element element,
                           uint32_t per_n, uint32_t per_k, const char *layout)
{
    struct tp_op_out *out = &op->out[op->outs++];
    out->role = role;
    out->element = element;
    out->per_n = per_n;
    out->per_k = per_k;
    out->layout = layout;
    out->place = tp_place_of(layout);
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
                                             : "(E,N,K/(K)):(N*(K/(K)),K/(K),1)";
    struct tp_op op = ops_begin(TP_CODEC_INT4, rule, 1, group);
    ops_out(&op, TP_ROLE_CODES, TP_ELEM_INT4, 1, 1, OPS_ROW);
    ops_out(&op, TP_ROLE_SCALE, TP_ELEM_BF16, 1, group, layout);
    ops_out(&op, TP_ROLE_WORDS, TP_ELEM_I64, 1, 1, NULL);
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

#endif
