/* Scales of whole rows for the kernels for every layout; see cuda_row_scales.cu and
 * cuda_place_rows.cu. */
#ifndef TP_KERNELS_CUDA_PLACE_ROWS_CUH
#define TP_KERNELS_CUDA_PLACE_ROWS_CUH

#include "kernels/cuda/cuda_place_values.cuh"

/* The scales alone, where codes are made afterwards; `a` has what is said of the codes. */
void tp_cuda_place_row_scales(const struct place_encode &a, const struct any_side &side,
                              const struct tp_args *args);

/* Scales and codes of a weight that is read once. False: nothing is enqueued, as the device, the
 * layout or the weight's size is not for this. */
bool tp_cuda_place_rows_once(const struct place_encode &a, const struct any_side &side,
                             const struct tp_args *args);

#endif
