/* Internal to src/kernels: how the files of rows hand their tables to rows.c. */
#ifndef TP_KERNELS_ROWS_H
#define TP_KERNELS_ROWS_H

#include "kernels/op/kernel.h"

/* All rows that one instruction set adds. */
struct tp_row_set {
    const struct tp_encode_row *encode;
    const struct tp_repack_row *repack;
    const struct tp_decode_row *decode;
    size_t encodes, repacks, decodes;
};

/* Empty sets where the compiler's target has no such instructions. */
extern const struct tp_row_set tp_rows_avx512, tp_rows_avx2, tp_rows_neon;

#endif
