/* Every operation that rows are compared with the reference for: each codec, rule and layout that
 * formats have, and searches. Knows no rows. Invariant: those without a search come first.
 */
#ifndef TP_TESTS_OP_KINDS_H
#define TP_TESTS_OP_KINDS_H

#include "ops.h"

#include <string.h>

enum { MAX_OPS = 512 };

/* An operation and the shapes it is defined for. */
struct kind {
    struct tp_op op;
    uint64_t unit_n, unit_k;
    const char *name; /* the form: operations of one name differ in their rules */
    unsigned compared[TP_ISA_COUNT];
};

/* First those without a search; decoding and repacking know no others. */
static struct kind kinds[MAX_OPS];
static size_t plain_count, kind_count;

static void add_named(const char *name, struct tp_op op, uint64_t unit_n, uint64_t unit_k)
{
    assert_true(kind_count < MAX_OPS);
    kinds[kind_count++] = (struct kind){op, unit_n, unit_k, name, {0}};
}

/* The name is that of the function that makes the operation. */
#define add(op, unit_n, unit_k) add_named(#op, op, unit_n, unit_k)

static bool same_form(const struct kind *a, const struct kind *b)
{
    size_t size = strcspn(a->name, "(");
    return size == strcspn(b->name, "(") && memcmp(a->name, b->name, size) == 0;
}

/* The form with a search, for every importance. */
static void add_search(const char *name, struct tp_op op, enum tp_search search, bool is_signed,
                       uint64_t unit_n, uint64_t unit_k)
{
    op.search = (uint8_t)search;
    op.search_signed = is_signed;
    for (int i = TP_IMPORTANCE_NONE; i <= TP_IMPORTANCE_FILE; i++) {
        op.importance = (uint8_t)i;
        add_named(name, op, unit_n, unit_k);
    }
}

/* The form with the error of code * scale, for one importance: of layouts, which are the same
 * search. */
static void add_placed_search(const char *name, struct tp_op op, bool is_signed, int importance,
                              uint64_t unit_n, uint64_t unit_k)
{
    op.search = TP_SEARCH_MSE;
    op.search_signed = is_signed;
    op.importance = (uint8_t)importance;
    add_named(name, op, unit_n, unit_k);
}

/* Groups of every size with scales of both types, in rows and in layouts of kernels. */
static void make_int4_searches(void)
{
    static const uint32_t sizes[] = {32, 64, 128, 0};
    for (int i = 0; i < 4; i++) {
        const uint32_t size = sizes[i], unit = size ? size : 8;
        const enum ops_placed marlin = size ? OPS_MARLIN : OPS_MARLIN_ROW;
        if (size != 128)
            add_search("w4a16_ct mse", ops_w4a16_ct(i % 2, size), TP_SEARCH_MSE, i / 2, 1, unit);
        add_search("w4a16_f16 mse", ops_w4a16_f16(TP_INT4_QUOTIENT_FP32, size), TP_SEARCH_MSE,
                   i % 2, 1, unit);
        for (int f16 = 0; f16 < 2; f16++) {
            add_placed_search("placed_int mse",
                              ops_placed_int(TP_CODEC_INT4, OPS_GPTQ, 0, size, f16), f16, i % 3, 1,
                              unit);
            add_placed_search("placed_int mse",
                              ops_placed_int(TP_CODEC_INT4, marlin, 0, size, f16), !f16,
                              (i + 1) % 3, 64, size < 64 ? 64 : size);
        }
    }
    add_placed_search("moved mse",
                      ops_moved_bits(ops_placed_int(TP_CODEC_INT4, OPS_MARLIN, 0, 32, true)), true,
                      TP_IMPORTANCE_FILE, 64, 64);
    add_placed_search("moved mse", ops_moved_bits(ops_mxfp4_blocked(TP_MX_EVEN)), false,
                      TP_IMPORTANCE_MAGNITUDE, 1, 32);
    add_placed_search("moved mse", ops_moved_bits(ops_nvfp4_blocked(TP_NVFP4_CT)), false,
                      TP_IMPORTANCE_NONE, 1, 32);
    add_placed_search("mxint4 mse", ops_mxint4(0), false, TP_IMPORTANCE_MAGNITUDE, 128, 256);
}

static void make_searches(void)
{
    make_int4_searches();
    add_placed_search("nvfp4_marlin mse", ops_nvfp4_marlin(TP_NVFP4_MODELOPT, 119), false,
                      TP_IMPORTANCE_MAGNITUDE, 64, 32);
    add_search("placed_int w4a8", ops_placed_int(TP_CODEC_INT4, OPS_GPTQ, 0, 128, false),
               TP_SEARCH_W4A8, false, 1, 128);
    add_search("mxfp4 placed mse",
               ops_placed_of(ops_mxfp4_ct(TP_MX_EVEN), OPS_BLOCKS_OF_64,
                             "(E,N,K/32):(N*(K/32),1,N)"), TP_SEARCH_MSE, false, 64, 64);
    add_search("nvfp4 placed mse",
               ops_placed_of(ops_nvfp4_ct(TP_NVFP4_CT), OPS_BLOCKS_OF_64,
                             "(E,N,K/16):(N*(K/16),1,N)"), TP_SEARCH_MSE, false, 64, 64);
    for (int rule = TP_MX_RCEIL; rule <= TP_MX_CEIL; rule++)
        add_search("mxfp4_ct mse", ops_mxfp4_ct(rule), TP_SEARCH_MSE, false, 1, 32);
    add_search("mxfp4_blocked mse", ops_mxfp4_blocked(TP_MX_EVEN), TP_SEARCH_MSE, false, 1, 32);
    for (int rule = TP_NVFP4_CT; rule <= TP_NVFP4_MODELOPT; rule++) {
        add_search("nvfp4_ct mse", ops_nvfp4_ct(rule), TP_SEARCH_MSE, false, 1, 16);
        add_search("nvfp4_blocked mse", ops_nvfp4_blocked(rule), TP_SEARCH_MSE, false, 1, 16);
    }
    for (int rule = TP_INT4_QUOTIENT_FP32; rule <= TP_INT4_QUOTIENT_BF16; rule++)
        for (int flip = 0; flip < 2; flip++) {
            add_search("w4a8_ct mse", ops_w4a8_ct(rule), TP_SEARCH_MSE, flip, 1, 128);
            add_search("w4a8_ct w4a8", ops_w4a8_ct(rule), TP_SEARCH_W4A8, flip, 1, 128);
        }
    for (int channel = TP_CHANNEL_GPU; channel <= TP_CHANNEL_DIV; channel++)
        for (int i = 0; i < 4; i++)
            add_search("w4a8_cutlass w4a8", ops_w4a8_cutlass(i % 2, channel, i / 2),
                       TP_SEARCH_W4A8, i % 2, 16, 128);
}

/* The same with errors fed back, where importance comes from a file. */
static void make_fed(void)
{
    for (size_t k = plain_count, end = kind_count; k < end; k++)
        if (kinds[k].op.importance == TP_IMPORTANCE_FILE) {
            struct tp_op op = kinds[k].op;
            op.rank = (uint8_t)(1 + 7 * k % 19);
            add_named("fed(", op, kinds[k].unit_n, kinds[k].unit_k);
        }
}

/* What has codes where no row of its own puts them, and integers of every kind. */
static void make_placed(int rule)
{
    const char *const columns =
        "(E,ceil(N,128),ceil(K,128)):(ceil(N,128)*ceil(K,128),1,ceil(N,128))";
    for (int f16 = 0; f16 < 2 && rule == 0; f16++) /* rules are those of plain rows */
        for (int c = 0; c < 2; c++) {
            enum tp_codec codec = c ? TP_CODEC_INT8 : TP_CODEC_INT4;
            add(ops_placed_int(codec, OPS_GPTQ, rule, 128, f16), 1, 128);
            add(ops_placed_int(codec, OPS_GPTQ, rule, 32, f16), 1, 32);
            add(ops_placed_int(codec, OPS_AWQ, rule, 64, f16), 8, 64);
            add(ops_placed_int(codec, OPS_AWQ, rule, 0, f16), 8, 8);
            add(ops_placed_int(codec, OPS_MARLIN, rule, 128, f16), 64, 128);
            add(ops_placed_int(codec, OPS_MARLIN, rule, 32, f16), 64, 64);
            add(ops_placed_int(codec, OPS_MARLIN_ROW, rule, 0, f16), 64, 64);
            add(ops_placed_int(codec, OPS_MACHETE, rule, 0, f16), 128, 64);
        }
    for (int f16 = 0; f16 < 2 && rule == 0; f16++) {
        add(ops_zeros(ops_placed_int(TP_CODEC_INT4, OPS_GPTQ, 0, 32, f16), TP_ELEM_INT4, NULL, 1),
            8, 32);
        add(ops_zeros(ops_placed_int(TP_CODEC_INT4, OPS_AWQ, 0, 128, f16), TP_ELEM_INT4,
                      "(E,(2,4,N/8),ceil(K,128)):(N*ceil(K,128),(4,1,8),N)", 0), 8, 128);
        add(ops_zeros(ops_placed_int(TP_CODEC_INT4, OPS_MARLIN, 0, 32, f16), TP_ELEM_INT4,
                      "(E,(8,2,2,2,N/64),K/32):(N*(K/32),(8,4,1,2,64),N)", 0), 64, 64);
        add(ops_zeros(ops_placed_int(TP_CODEC_INT4, OPS_MACHETE, 0, 128, f16),
                      f16 ? TP_ELEM_F16 : TP_ELEM_BF16, NULL, 0), 128, 128);
        add(ops_zeros(ops_placed_int(TP_CODEC_INT8, OPS_GPTQ, 0, 128, f16), TP_ELEM_UINT8B128,
                      NULL, f16), 8, 128);
        add(ops_zeros(ops_placed_int(TP_CODEC_INT8, OPS_MARLIN, 0, 128, f16), TP_ELEM_UINT8B128,
                      NULL, 0), 64, 128);
    }
    add(ops_moved_bits(ops_placed_int(TP_CODEC_INT4, OPS_MARLIN, rule, 128, false)), 64, 128);
    add(ops_moved_bits(ops_mxfp4_blocked(rule ? TP_MX_EVEN : TP_MX_RCEIL)), 1, 32);
    add(ops_moved_bits(ops_nvfp4_blocked(rule)), 1, 32);
    add(ops_mxint4(rule), 128, 256);
    add(ops_min_of(ops_fp8_deepseek(TP_FP8_V2, TP_FP8_SCALE_FP32), 0.01f), 1, 1);
    add(ops_min_of(ops_placed_of(ops_fp8_deepseek(TP_FP8_V2, TP_FP8_SCALE_FP32),
                                 OPS_BLOCKS_OF_64, columns), 0.01f), 64, 64);
    add(ops_fp8_trtllm(rule ? TP_FP8_CUDA : TP_FP8_DIV, rule), 16, 128);
    for (int f16 = 0; f16 < 2; f16++) {
        add(ops_fp8_marlin(rule ? TP_FP8_CUDA : TP_FP8_DIV, false, f16), 64, 16);
        add(ops_fp8_marlin(rule ? TP_FP8_CT_BF16 : TP_FP8_CT_FP32, true, f16), 64, 16);
        add(ops_int8(rule, true, 0, f16), 1, 1);
        add(ops_int8(rule, false, 0, f16), 1, 4);
        add(ops_int8(rule, false, 32, f16), 1, 32);
        add(ops_int8(rule, false, 128, f16), 1, 128);
        add(ops_w4a16_f16(rule, 32), 1, 32);
        add(ops_w4a16_f16(rule, 0), 1, 8);
    }
    add(ops_fp8_tensor(rule ? TP_FP8_CT_BF16 : TP_FP8_CT_FP32, OPS_ROW), 1, 1);
    add(ops_fp8_tensor(rule ? TP_FP8_CT_BF16 : TP_FP8_CT_FP32, OPS_BLOCKS_OF_64), 64, 64);
    add(ops_fp8_tensor(rule ? TP_FP8_CT_BF16 : TP_FP8_DIV, OPS_ROW), 1, 1);
    add(ops_placed_of(ops_fp8_ct(rule ? TP_FP8_CT_BF16 : TP_FP8_CT_FP32), OPS_BLOCKS_OF_64,
                      columns), 64, 64);
    add(ops_placed_of(ops_mxfp8_ct(rule ? TP_MX_CT : TP_MX_RCEIL), OPS_BLOCKS_OF_64,
                      "(E,N,K/32):(N*(K/32),1,N)"), 64, 64);
    add(ops_placed_of(ops_mxfp4_ct(rule ? TP_MX_EVEN : TP_MX_RCEIL), OPS_BLOCKS_OF_64,
                      "(E,N,K/32):(N*(K/32),1,N)"), 64, 64);
    for (int nvfp4 = TP_NVFP4_TORCHAO; nvfp4 <= TP_NVFP4_MODELOPT; nvfp4++) {
        add(ops_nvfp4_marlin(nvfp4, 119), 64, 32);
        add(ops_nvfp4_marlin(nvfp4, 7), 64, 16);
    }
    for (int nvfp4 = TP_NVFP4_CT; nvfp4 <= TP_NVFP4_MODELOPT; nvfp4++)
        add(ops_placed_of(ops_nvfp4_ct(nvfp4), OPS_BLOCKS_OF_64, "(E,N,K/16):(N*(K/16),1,N)"), 64,
            64);
}

/* Numbers of every type, in runs of a row and one by one. */
static void make_floats(void)
{
    const enum tp_element elements[] = {TP_ELEM_BF16, TP_ELEM_F16, TP_ELEM_F32};
    for (int i = 0; i < 3; i++) {
        add(ops_floats(elements[i],
                       "(E,(4,8,N/32),(64,K/64)):(N*K,(512,64,2048),(1,64*N))"), 32, 64);
        add(ops_floats(elements[i],
                       "(E,(2,4,4,align(N,64)/32),K):(align(N,64)*K,(1,8,2,32),align(N,64))"), 32,
            1);
    }
}

static int make_kinds(void **state)
{
    (void)state;
    for (int rule = TP_FP8_V2; rule <= TP_FP8_SEED_CUDA; rule++) {
        for (int scale = TP_FP8_SCALE_FP32; scale <= TP_FP8_SCALE_UE8M0; scale++) {
            add(ops_fp8_deepseek(rule, scale), 1, 1);
            add(ops_fp8_1x128(rule, scale), 1, 1);
        }
        add(ops_fp8_sm100(rule), 1, 1);
    }
    add(ops_fp8_ct(TP_FP8_CT_FP32), 1, 1);
    add(ops_fp8_ct(TP_FP8_CT_BF16), 1, 1);
    add(ops_fp8_dynamic_ct(TP_FP8_CT_FP32), 1, 1);
    add(ops_fp8_dynamic_ct(TP_FP8_CT_BF16), 1, 1);
    for (int rule = TP_MX_RCEIL; rule <= TP_MX_CEIL; rule++) {
        add(ops_mxfp8_ct(rule), 1, 32);
        add(ops_mxfp8_blocked(rule), 1, 32);
        add(ops_mxfp8_torchao3d(rule, 1), 32, 1);
        add(ops_mxfp8_torchao3d(rule, 32), 32, 1);
        add(ops_mxfp4_ct(rule), 1, 32);
        add(ops_mxfp4_blocked(rule), 1, 32);
    }
    for (int rule = TP_INT4_QUOTIENT_FP32; rule <= TP_INT4_QUOTIENT_BF16; rule++) {
        make_placed(rule);
        add(ops_w4a8_ct(rule), 1, 128);
        add(ops_w4a16_ct(rule, 32), 1, 32);
        add(ops_w4a16_ct(rule, 64), 1, 64);
        add(ops_w4a16_ct(rule, 0), 1, 8);
        for (int channel = TP_CHANNEL_GPU; channel <= TP_CHANNEL_DIV; channel++)
            for (int skip = 0; skip < 2; skip++)
                add(ops_w4a8_cutlass(rule, channel, skip), 16, 128);
    }
    for (int rule = TP_NVFP4_CT; rule <= TP_NVFP4_MODELOPT; rule++) {
        add(ops_nvfp4_ct(rule), 1, 16);
        add(ops_nvfp4_blocked(rule), 1, 16);
    }
    plain_count = kind_count;
    make_searches();
    make_fed();
    make_floats();
    return 0;
}

#endif
