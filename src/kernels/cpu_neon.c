/* Rows for NEON, which every aarch64 machine has. */
#include "kernels/rows.h"

#if defined(__aarch64__)

#include "base/num.h"
#include "kernels/codec.h"
#include "kernels/plane.h"
#include "kernels/scalar.h"

#include "kernels/vec_neon.h"

#define ISA TP_ISA_NEON
#define ISA_NAME "neon"
#include "kernels/cpu_words.inc"
#include "kernels/cpu_run.inc"
#include "kernels/cpu_fp8.inc"
#include "kernels/cpu_mx.inc"
#include "kernels/cpu_nwise.inc"
#include "kernels/cpu_int4.inc"
#include "kernels/cpu_fp4.inc"
#include "kernels/cpu_decode.inc"
#include "kernels/cpu_repack.inc"
#include "kernels/cpu_rows.inc"

const struct tp_row_set tp_rows_neon = ROW_SET;

#else

const struct tp_row_set tp_rows_neon = {0};

#endif
