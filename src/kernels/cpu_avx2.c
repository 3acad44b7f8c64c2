/* Rows for avx2: none on this target. */
#include "kernels/rows.h"

const struct tp_row_set tp_rows_avx2 = {0};
