/* Rows for neon: none on this target. */
#include "kernels/rows.h"

const struct tp_row_set tp_rows_neon = {0};
