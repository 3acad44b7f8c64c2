/* The table of CUDA rows.
 *
 * A row names what its own kernel reads and writes; every row takes any box, and
 * operations without a row get the general kernels of cuda_any.cu and cuda_search_any.cu.
 * Knows no CUDA call.
 */
#include "kernels/cuda/cuda.h"

#ifdef TP_HAVE_CUDA

#include "kernels/cuda/cuda_row_functions.h"

static const struct tp_op_out *out_of(const struct tp_op *op, enum tp_role role)
{
    int i = tp_op_find(op, role);
    return i < 0 ? NULL : &op->out[i];
}

static bool is(const struct tp_op_out *out, enum tp_element element, uint32_t per_n,
               uint32_t per_k)
{
    return out != NULL && out->element == element && out->per_n == per_n && out->per_k == per_k &&
           out->fill == 0;
}

static bool codes_are(const struct tp_op *op, enum tp_element element)
{
    return is(out_of(op, TP_ROLE_CODES), element, 1, 1);
}

static bool block_is(const struct tp_op *op, uint32_t n, uint32_t k)
{
    return op->block_n == n && op->block_k == k;
}

/* A scale for each k elements of a row; 0: for each row. */
static bool grouped(const struct tp_op *op, enum tp_element codes, enum tp_element scale,
                    uint32_t k)
{
    return block_is(op, 1, k) && codes_are(op, codes) &&
           is(out_of(op, TP_ROLE_SCALE), scale, 1, k);
}

static bool int4_row(const struct tp_op *op)
{
    return grouped(op, TP_ELEM_INT4, TP_ELEM_BF16, 128);
}

static bool int4_sized(const struct tp_op *op)
{
    const uint32_t k = op->block_k;
    return (k == 32 || k == 64 || k == 0) && grouped(op, TP_ELEM_INT4, TP_ELEM_BF16, k);
}

static bool int4_w4a8(const struct tp_op *op)
{
    const struct tp_op_out *channel = out_of(op, TP_ROLE_CHANNEL);
    return block_is(op, 1, 128) && codes_are(op, TP_ELEM_INT4) &&
           is(out_of(op, TP_ROLE_GROUP8), TP_ELEM_E4M3X8, 1, 128) && channel != NULL &&
           is(channel, TP_ELEM_F32, 1, 0) && channel->place == TP_PLACE_ROW &&
           out_of(op, TP_ROLE_SCALE) == NULL;
}

static bool int8_channel(const struct tp_op *op)
{
    const bool f16 = op->scale_rule == TP_INT_SCALE_F16;
    return block_is(op, 1, 0) &&
           (codes_are(op, TP_ELEM_INT8) || codes_are(op, TP_ELEM_UINT8B128)) &&
           is(out_of(op, TP_ROLE_SCALE), f16 ? TP_ELEM_F16 : TP_ELEM_BF16, 1, 0);
}

static bool fp8_tensor(const struct tp_op *op)
{
    return tp_op_per_tensor(op) && codes_are(op, TP_ELEM_E4M3) &&
           (op->rule == TP_FP8_DIV || op->rule == TP_FP8_CT_FP32 || op->rule == TP_FP8_CT_BF16);
}

static bool fp8_channel(const struct tp_op *op)
{
    const struct tp_op_out *scale = out_of(op, TP_ROLE_SCALE);
    return block_is(op, 1, 0) && codes_are(op, TP_ELEM_E4M3) && op->rule >= TP_FP8_CT_FP32 &&
           (is(scale, TP_ELEM_BF16, 1, 0) ||
            (is(scale, TP_ELEM_F32, 1, 0) && !(scale->min > 0)));
}

static bool fp8_blocks(const struct tp_op *op)
{
    const struct tp_op_out *scale = out_of(op, TP_ROLE_SCALE);
    return block_is(op, 128, 128) && codes_are(op, TP_ELEM_E4M3) &&
           (is(scale, TP_ELEM_F32, 128, 128) || is(scale, TP_ELEM_BF16, 128, 128));
}

static bool fp8_sm100(const struct tp_op *op)
{
    return block_is(op, 128, 128) && codes_are(op, TP_ELEM_E4M3) &&
           op->scale_rule == TP_FP8_SCALE_UE8M0 &&
           is(out_of(op, TP_ROLE_SCALE), TP_ELEM_E8M0, 1, 128);
}

static bool fp8_rows(const struct tp_op *op)
{
    return grouped(op, TP_ELEM_E4M3, TP_ELEM_F32, 128);
}

static bool mx_kwise(const struct tp_op *op)
{
    return grouped(op, TP_ELEM_E4M3, TP_ELEM_E8M0, 32);
}

static bool mx_nwise(const struct tp_op *op)
{
    return (block_is(op, 32, 1) || block_is(op, 32, 32)) && codes_are(op, TP_ELEM_E4M3) &&
           is(out_of(op, TP_ROLE_SCALE), TP_ELEM_E8M0, 32, 1);
}

static bool mxfp4_kwise(const struct tp_op *op)
{
    return grouped(op, TP_ELEM_E2M1, TP_ELEM_E8M0, 32);
}

static bool nvfp4_kwise(const struct tp_op *op)
{
    return grouped(op, TP_ELEM_E2M1, TP_ELEM_E4M3, 16);
}

/* Whatever the layout is; the functions send what has no tables to the general kernels. */
static bool placed(const struct tp_op *op)
{
    return tp_op_find(op, TP_ROLE_CODES) >= 0 && tp_op_find(op, TP_ROLE_GROUP8) < 0;
}

/* One row for each type that weights come in. Those for every layout heed least scales. */
#define HEEDS(codes) ((codes) == TP_PLACE_EVERY ? TP_NEED_SCALE_MIN : 0)
#define SEARCH(codec, codes, scales, accepts, fn, name, search)                                   \
    {codec, TP_BF16, codes, scales, accepts, TP_ISA_CUDA, fn, name "_bf16_cuda", search,          \
     HEEDS(codes)},                                                                               \
    {codec, TP_F16, codes, scales, accepts, TP_ISA_CUDA, fn, name "_f16_cuda", search,            \
     HEEDS(codes)},                                                                               \
    {codec, TP_F32, codes, scales, accepts, TP_ISA_CUDA, fn, name "_f32_cuda", search,            \
     HEEDS(codes)}
#define ENCODE(codec, codes, scales, accepts, fn, name) \
    SEARCH(codec, codes, scales, accepts, fn, name, TP_SEARCH_NONE)
#define PLACED(codec, name) \
    ENCODE(codec, TP_PLACE_EVERY, TP_PLACE_EVERY, placed, tp_cuda_encode_placed, name)

static const struct tp_encode_row encode_rows[] = {
    ENCODE(TP_CODEC_INT4, TP_PLACE_ROW, TP_PLACE_ROW, int4_row, tp_cuda_int4_row, "int4_row"),
    ENCODE(TP_CODEC_INT4, TP_PLACE_ROW, TP_PLACE_ROW, int4_sized, tp_cuda_int4_sized,
           "int4_row_sized"),
    ENCODE(TP_CODEC_INT4, TP_PLACE_W4A8, TP_PLACE_COL, int4_w4a8, tp_cuda_int4_w4a8, "int4_w4a8"),
    ENCODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_ROW, fp8_blocks, tp_cuda_fp8_128x128,
           "fp8_128x128_row"),
    ENCODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_MN_PACKED4, fp8_sm100, tp_cuda_fp8_128x128,
           "fp8_128x128_packed4"),
    ENCODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_MN_ALIGNED, fp8_rows, tp_cuda_fp8_1x128,
           "fp8_1x128_aligned"),
    ENCODE(TP_CODEC_MXFP8, TP_PLACE_ROW, TP_PLACE_ROW, mx_kwise, tp_cuda_mxfp8_kwise,
           "mxfp8_1x32_row"),
    ENCODE(TP_CODEC_MXFP8, TP_PLACE_ROW, TP_PLACE_TILE_N, mx_kwise, tp_cuda_mxfp8_kwise,
           "mxfp8_1x32_tiles"),
    ENCODE(TP_CODEC_MXFP8, TP_PLACE_COL, TP_PLACE_TILE_K, mx_nwise, tp_cuda_mxfp8_nwise,
           "mxfp8_32xn_col_tiles"),
    ENCODE(TP_CODEC_MXFP4, TP_PLACE_ROW, TP_PLACE_ROW, mxfp4_kwise, tp_cuda_fp4_kwise,
           "mxfp4_1x32_row"),
    ENCODE(TP_CODEC_MXFP4, TP_PLACE_ROW, TP_PLACE_TILE_N, mxfp4_kwise, tp_cuda_fp4_kwise,
           "mxfp4_1x32_tiles"),
    ENCODE(TP_CODEC_NVFP4, TP_PLACE_ROW, TP_PLACE_ROW, nvfp4_kwise, tp_cuda_fp4_kwise,
           "nvfp4_1x16_row"),
    ENCODE(TP_CODEC_NVFP4, TP_PLACE_ROW, TP_PLACE_TILE_N, nvfp4_kwise, tp_cuda_fp4_kwise,
           "nvfp4_1x16_tiles"),
    ENCODE(TP_CODEC_INT8, TP_PLACE_ROW, TP_PLACE_ROW, int8_channel, tp_cuda_int8,
           "int8_row_channel"),
    ENCODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_ROW, fp8_channel, tp_cuda_fp8_rows,
           "fp8_row_channel"),
    ENCODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_ANY, fp8_tensor, tp_cuda_fp8_tensor,
           "fp8_row_tensor"),
    SEARCH(TP_CODEC_INT4, TP_PLACE_ROW, TP_PLACE_ROW, int4_row, tp_cuda_int4_search,
           "int4_row_mse", TP_SEARCH_MSE),
    SEARCH(TP_CODEC_INT4, TP_PLACE_ROW, TP_PLACE_ROW, int4_row, tp_cuda_w4a8_search,
           "int4_row_w4a8", TP_SEARCH_W4A8),
    SEARCH(TP_CODEC_INT4, TP_PLACE_W4A8, TP_PLACE_COL, int4_w4a8, tp_cuda_w4a8_search,
           "int4_w4a8_w4a8", TP_SEARCH_W4A8),
    SEARCH(TP_CODEC_MXFP4, TP_PLACE_ROW, TP_PLACE_ROW, mxfp4_kwise, tp_cuda_fp4_search,
           "mxfp4_1x32_row_mse", TP_SEARCH_MSE),
    SEARCH(TP_CODEC_MXFP4, TP_PLACE_ROW, TP_PLACE_TILE_N, mxfp4_kwise, tp_cuda_fp4_search,
           "mxfp4_1x32_tiles_mse", TP_SEARCH_MSE),
    SEARCH(TP_CODEC_NVFP4, TP_PLACE_ROW, TP_PLACE_ROW, nvfp4_kwise, tp_cuda_fp4_search,
           "nvfp4_1x16_row_mse", TP_SEARCH_MSE),
    SEARCH(TP_CODEC_NVFP4, TP_PLACE_ROW, TP_PLACE_TILE_N, nvfp4_kwise, tp_cuda_fp4_search,
           "nvfp4_1x16_tiles_mse", TP_SEARCH_MSE),
    PLACED(TP_CODEC_INT4, "int4_placed"),
    SEARCH(TP_CODEC_INT4, TP_PLACE_EVERY, TP_PLACE_EVERY, placed, tp_cuda_int4_search_placed,
           "int4_placed_mse", TP_SEARCH_MSE),
    PLACED(TP_CODEC_INT8, "int8_placed"),
    PLACED(TP_CODEC_FP8, "fp8_placed"),
    PLACED(TP_CODEC_MXFP8, "mxfp8_placed"),
    PLACED(TP_CODEC_MXFP4, "mxfp4_placed"),
    PLACED(TP_CODEC_NVFP4, "nvfp4_placed"),
};

static bool to_w4a8(const struct tp_op *from, const struct tp_op *to)
{
    return int4_row(from) && int4_w4a8(to);
}

static bool from_w4a8(const struct tp_op *from, const struct tp_op *to)
{
    return int4_w4a8(from) && int4_row(to);
}

static bool to_sm100(const struct tp_op *from, const struct tp_op *to)
{
    const struct tp_op_out *scale = out_of(from, TP_ROLE_SCALE);
    return codes_are(from, TP_ELEM_E4M3) && codes_are(to, TP_ELEM_E4M3) &&
           (is(scale, TP_ELEM_F32, 128, 128) || is(scale, TP_ELEM_BF16, 128, 128) ||
            is(scale, TP_ELEM_F32, 1, 128)) &&
           is(out_of(to, TP_ROLE_SCALE), TP_ELEM_E8M0, 1, 128);
}

static bool mx_tiles(const struct tp_op *from, const struct tp_op *to)
{
    return mx_kwise(from) && mx_kwise(to);
}

static bool both_placed(const struct tp_op *from, const struct tp_op *to)
{
    return placed(from) && placed(to);
}

#define REPLACED(codec, name)                                                             \
    {codec, TP_PLACE_EVERY, TP_PLACE_EVERY, TP_PLACE_EVERY, TP_PLACE_EVERY, both_placed, \
     TP_ISA_CUDA, tp_cuda_repack_placed, name, TP_NEED_SCALE_MIN}

static const struct tp_repack_row repack_rows[] = {
    {TP_CODEC_INT4, TP_PLACE_ROW, TP_PLACE_W4A8, TP_PLACE_ROW, TP_PLACE_COL, to_w4a8, TP_ISA_CUDA,
     tp_cuda_int4_reorder, "int4_row_to_w4a8_cuda", 0},
    {TP_CODEC_INT4, TP_PLACE_W4A8, TP_PLACE_ROW, TP_PLACE_COL, TP_PLACE_ROW, from_w4a8,
     TP_ISA_CUDA, tp_cuda_int4_restore, "int4_w4a8_to_row_cuda", 0},
    {TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_ROW, TP_PLACE_ROW, TP_PLACE_MN_PACKED4, to_sm100,
     TP_ISA_CUDA, tp_cuda_fp8_rescale, "fp8_row_to_packed4_cuda", 0},
    {TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_ROW, TP_PLACE_MN_ALIGNED, TP_PLACE_MN_PACKED4, to_sm100,
     TP_ISA_CUDA, tp_cuda_fp8_rescale, "fp8_aligned_to_packed4_cuda", 0},
    {TP_CODEC_MXFP8, TP_PLACE_ROW, TP_PLACE_ROW, TP_PLACE_ROW, TP_PLACE_TILE_N, mx_tiles,
     TP_ISA_CUDA, tp_cuda_mxfp8_retile, "mxfp8_row_to_tiles_cuda", 0},
    {TP_CODEC_MXFP8, TP_PLACE_ROW, TP_PLACE_ROW, TP_PLACE_TILE_N, TP_PLACE_ROW, mx_tiles,
     TP_ISA_CUDA, tp_cuda_mxfp8_retile, "mxfp8_tiles_to_row_cuda", 0},
    REPLACED(TP_CODEC_INT4, "int4_placed_cuda"),
    REPLACED(TP_CODEC_INT8, "int8_placed_cuda"),
    REPLACED(TP_CODEC_FP8, "fp8_placed_cuda"),
    REPLACED(TP_CODEC_MXFP8, "mxfp8_placed_cuda"),
    REPLACED(TP_CODEC_MXFP4, "mxfp4_placed_cuda"),
    REPLACED(TP_CODEC_NVFP4, "nvfp4_placed_cuda"),
};


static bool decodes_fp8(const struct tp_op *op)
{
    return fp8_blocks(op) || fp8_sm100(op) || fp8_rows(op);
}

#define DECODE(codec, codes, scales, accepts, fn, name)                                           \
    {codec, TP_F32, codes, scales, accepts, TP_ISA_CUDA, fn, name "_f32_cuda", 0},                \
    {codec, TP_BF16, codes, scales, accepts, TP_ISA_CUDA, fn, name "_bf16_cuda", 0}
#define DECODE_PLACED(codec, name) \
    DECODE(codec, TP_PLACE_EVERY, TP_PLACE_EVERY, placed, tp_cuda_decode_placed, name)

static const struct tp_decode_row decode_rows[] = {
    DECODE(TP_CODEC_INT4, TP_PLACE_ROW, TP_PLACE_ROW, int4_row, tp_cuda_decode_row,
           "int4_row"),
    DECODE(TP_CODEC_INT4, TP_PLACE_W4A8, TP_PLACE_COL, int4_w4a8, tp_cuda_decode_w4a8,
           "int4_w4a8"),
    DECODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_ROW, decodes_fp8, tp_cuda_decode_row,
           "fp8_128x128_row"),
    DECODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_MN_PACKED4, decodes_fp8, tp_cuda_decode_row,
           "fp8_128x128_packed4"),
    DECODE(TP_CODEC_FP8, TP_PLACE_ROW, TP_PLACE_MN_ALIGNED, decodes_fp8, tp_cuda_decode_row,
           "fp8_1x128_aligned"),
    DECODE(TP_CODEC_MXFP8, TP_PLACE_ROW, TP_PLACE_ROW, mx_kwise, tp_cuda_decode_row,
           "mxfp8_1x32_row"),
    DECODE(TP_CODEC_MXFP8, TP_PLACE_ROW, TP_PLACE_TILE_N, mx_kwise, tp_cuda_decode_row,
           "mxfp8_1x32_tiles"),
    DECODE(TP_CODEC_MXFP8, TP_PLACE_COL, TP_PLACE_TILE_K, mx_nwise, tp_cuda_decode_col,
           "mxfp8_32xn_col_tiles"),
    DECODE_PLACED(TP_CODEC_INT4, "int4_placed"),
    DECODE_PLACED(TP_CODEC_INT8, "int8_placed"),
    DECODE_PLACED(TP_CODEC_FP8, "fp8_placed"),
    DECODE_PLACED(TP_CODEC_MXFP8, "mxfp8_placed"),
    DECODE_PLACED(TP_CODEC_MXFP4, "mxfp4_placed"),
    DECODE_PLACED(TP_CODEC_NVFP4, "nvfp4_placed"),
};

#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

const struct tp_row_set tp_rows_cuda = {
    .encode = encode_rows, .encodes = COUNT(encode_rows), .any_encode = tp_cuda_encode_any,
    .repack = repack_rows, .repacks = COUNT(repack_rows), .any_repack = tp_cuda_repack_any,
    .decode = decode_rows, .decodes = COUNT(decode_rows), .any_decode = tp_cuda_decode_any,
    .any_heeds = TP_DEVICE_HEEDS,
};

#endif

tp_encode_fn tp_cuda_encode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    return tp_isa_enabled(TP_ISA_CUDA) ? tp_row_set_encode(&tp_rows_cuda, op, dtype) : NULL;
}

tp_repack_fn tp_cuda_repack_find(const struct tp_op *from, const struct tp_op *to)
{
    return tp_isa_enabled(TP_ISA_CUDA) ? tp_row_set_repack(&tp_rows_cuda, from, to) : NULL;
}

tp_decode_fn tp_cuda_decode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    return tp_isa_enabled(TP_ISA_CUDA) ? tp_row_set_decode(&tp_rows_cuda, op, dtype) : NULL;
}
