/* Rows for AVX2 (with F16C); chosen at run time, see rows.c. Compiled as it is, this is their
 * list; with CPU_ALGORITHM, one of cpu_*.inc, the rows of that algorithm: the Makefile does both.
 */
#define ISA TP_ISA_AVX2
#define ISA_NAME "avx2"
#define ISA_OWN(name) name##_avx2
#include "kernels/cpu/cpu_rows.h"

#if !defined(CPU_ALGORITHM)

#if defined(__x86_64__)
CPU_ALGORITHMS(ISA_DECLARE)
const struct tp_row_set *const tp_rows_avx2[] = {CPU_ALGORITHMS(ISA_LISTED) NULL};
#else
const struct tp_row_set *const tp_rows_avx2[] = {NULL};
#endif

#elif defined(__x86_64__)

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#include "kernels/cpu/vec_avx2.h"

#include CPU_ALGORITHM

#ifdef __clang__
#pragma clang attribute pop
#endif

#endif
