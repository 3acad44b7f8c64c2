/* The searched scale of one block, one function for each codec (search_int4.c, search_fp4.c).
 */
#ifndef TP_KERNELS_SEARCH_CODEC_H
#define TP_KERNELS_SEARCH_CODEC_H

#include "kernels/op/search_ints.h"

/* The scale of one live block, as bits; `plain` is the rule's own. */
uint16_t tp_search_int4(const struct tp_op *op, const float *values, uint32_t amax,
                        const float *importance, struct tp_search_ints *ints);
uint8_t tp_search_nvfp4(const struct tp_op *op, const float *values, uint32_t amax, float global,
                        const float *importance, uint8_t plain, struct tp_search_ints *ints);
uint8_t tp_search_mxfp4(const struct tp_op *op, const float *values, uint32_t amax,
                        const float *importance, uint8_t plain, struct tp_search_ints *ints);

#endif
