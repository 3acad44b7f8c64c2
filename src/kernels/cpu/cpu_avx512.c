/* Rows for AVX-512 (F, BW, VL, VBMI, VBMI2, VNNI); chosen at run time, see rows.c. Compiled as it
 * is, this is their list; with CPU_ALGORITHM the rows of one algorithm, as in cpu_avx2.c.
 */
#define ISA TP_ISA_AVX512
#define ISA_NAME "avx512"
#define ISA_OWN(name) name##_avx512
#include "kernels/cpu/cpu_rows.h"

#if !defined(CPU_ALGORITHM)

#if defined(__x86_64__)
CPU_ALGORITHMS(ISA_DECLARE)
const struct tp_row_set *const tp_rows_avx512[] = {CPU_ALGORITHMS(ISA_LISTED) NULL};
#else
const struct tp_row_set *const tp_rows_avx512[] = {NULL};
#endif

#elif defined(__x86_64__)

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(                                                                 \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,"   \
                          "avx512vnni"))),                                                    \
    apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512vnni")
#endif

#include "kernels/cpu/vec_avx512.h"

#include CPU_ALGORITHM

#ifdef __clang__
#pragma clang attribute pop
#endif

#endif
