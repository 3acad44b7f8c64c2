/* Rows for NEON, which every aarch64 machine has. Compiled as it is, this is their list; with
 * CPU_ALGORITHM the rows of one algorithm, as in cpu_avx2.c.
 */
#define ISA TP_ISA_NEON
#define ISA_NAME "neon"
#define ISA_OWN(name) name##_neon
#include "kernels/cpu/cpu_rows.h"

#if !defined(CPU_ALGORITHM)

#if defined(__aarch64__)
CPU_ALGORITHMS(ISA_DECLARE)
const struct tp_row_set *const tp_rows_neon[] = {CPU_ALGORITHMS(ISA_LISTED) NULL};
#else
const struct tp_row_set *const tp_rows_neon[] = {NULL};
#endif

#elif defined(__aarch64__)

#include "kernels/cpu/vec_neon.h"

#include CPU_ALGORITHM

#endif
