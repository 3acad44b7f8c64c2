/* Internal to the CUDA kernels: the functions behind the rows of cuda_rows.c. Every
 * function takes a box of any size and enqueues its work on args->stream; where its own
 * kernel does not fit the box it calls the general one. Launch errors stay in
 * cudaGetLastError() for the caller. */
#ifndef TP_KERNELS_CUDA_ROW_FUNCTIONS_H
#define TP_KERNELS_CUDA_ROW_FUNCTIONS_H

#include "base/c_linkage.h"
#include "kernels/op/kernel.h"

TP_C_BEGIN

/* Any layout, codec and shape; see cuda_any.cu. */
void tp_cuda_encode_any(const struct tp_op *op, struct tp_args *args);
void tp_cuda_repack_any(const struct tp_op *from, const struct tp_op *to, struct tp_args *args);
void tp_cuda_decode_any(const struct tp_op *op, struct tp_args *args);

/* Makes all outputs but the codes, or the global scale alone, of a repack without packed group
 * scales. */
void tp_cuda_repack_any_scales(const struct tp_op *from, const struct tp_op *to,
                               struct tp_args *args, bool global_only);

/* The same for encodes with a search of scales (tp_op_search()); tp_cuda_encode_any() calls it.
 * See cuda_search_any.cu. */
void tp_cuda_search_any(const struct tp_op *op, struct tp_args *args);

/* The same with errors fed back (tp_op_feeds()); see cuda_feedback.cu. */
void tp_cuda_encode_fed(const struct tp_op *op, struct tp_args *args);

/* Any layout that has tables of bits; see cuda_place.cuh. */
void tp_cuda_encode_placed(const struct tp_op *op, struct tp_args *args);
void tp_cuda_repack_placed(const struct tp_op *from, const struct tp_op *to,
                           struct tp_args *args);
void tp_cuda_decode_placed(const struct tp_op *op, struct tp_args *args);

void tp_cuda_fp8_128x128(const struct tp_op *op, struct tp_args *args);
void tp_cuda_fp8_1x128(const struct tp_op *op, struct tp_args *args);
void tp_cuda_mxfp8_kwise(const struct tp_op *op, struct tp_args *args);
void tp_cuda_fp4_kwise(const struct tp_op *op, struct tp_args *args);
void tp_cuda_mxfp8_nwise(const struct tp_op *op, struct tp_args *args);
void tp_cuda_int4_row(const struct tp_op *op, struct tp_args *args);
/* Groups of 32 or 64, or one to a row (block_k = 0). */
void tp_cuda_int4_sized(const struct tp_op *op, struct tp_args *args);
/* Groups of 32, 64 or 128, or one to a row (block_k = 0). */
void tp_cuda_int8(const struct tp_op *op, struct tp_args *args);
/* FP8 by a scale that is known before, for the rules that divide. */
void tp_cuda_fp8_tensor(const struct tp_op *op, struct tp_args *args);
/* FP8 with one bf16 scale to a row, stored as bf16 or fp32. */
void tp_cuda_fp8_rows(const struct tp_op *op, struct tp_args *args);
void tp_cuda_int4_w4a8(const struct tp_op *op, struct tp_args *args);
void tp_cuda_fp4_search(const struct tp_op *op, struct tp_args *args);
/* int4, any layout, search MSE. */
void tp_cuda_int4_search_placed(const struct tp_op *op, struct tp_args *args);
void tp_cuda_int4_search(const struct tp_op *op, struct tp_args *args);
void tp_cuda_w4a8_search(const struct tp_op *op, struct tp_args *args);
void tp_cuda_int4_reorder(const struct tp_op *from, const struct tp_op *to,
                          struct tp_args *args);
void tp_cuda_int4_restore(const struct tp_op *from, const struct tp_op *to,
                          struct tp_args *args);
void tp_cuda_fp8_rescale(const struct tp_op *from, const struct tp_op *to,
                         struct tp_args *args);
void tp_cuda_mxfp8_retile(const struct tp_op *from, const struct tp_op *to,
                          struct tp_args *args);
void tp_cuda_decode_row(const struct tp_op *op, struct tp_args *args);
void tp_cuda_decode_col(const struct tp_op *op, struct tp_args *args);
void tp_cuda_decode_w4a8(const struct tp_op *op, struct tp_args *args);

TP_C_END

#endif
