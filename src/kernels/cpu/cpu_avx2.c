/* Rows for AVX2 (with F16C); chosen at run time, see rows.c. */
#include "kernels/op/row_set.h"

#if defined(__x86_64__)

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/distance.h"
#include "kernels/op/floats.h"
#include "kernels/op/op_at.h"
#include "kernels/op/place.h"
#include "kernels/op/place_bits.h"
#include "kernels/op/plane.h"
#include "kernels/op/scalar.h"
#include "kernels/op/search.h"
#include "kernels/op/search_scalar.h"
#include "kernels/op/word_bits.h"

#include <immintrin.h>
#include <math.h>

#ifdef __clang__
#pragma clang attribute push(                                                                 \
    __attribute__((target("avx2,f16c"))), \
    apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#include "kernels/cpu/vec_avx2.h"

#define ISA TP_ISA_AVX2
#define ISA_NAME "avx2"
#include "kernels/cpu/cpu_words.inc"
#include "kernels/cpu/cpu_run.inc"
#include "kernels/cpu/cpu_fp8.inc"
#include "kernels/cpu/cpu_mx.inc"
#include "kernels/cpu/cpu_nwise.inc"
#include "kernels/cpu/cpu_int4.inc"
#include "kernels/cpu/cpu_int.inc"
#include "kernels/cpu/cpu_fp4.inc"
#include "kernels/cpu/cpu_search.inc"
#include "kernels/cpu/cpu_search_e2m1.inc"
#include "kernels/cpu/cpu_search_fp4.inc"
#include "kernels/cpu/cpu_search_int4.inc"
#include "kernels/cpu/cpu_search_group.inc"
#include "kernels/cpu/cpu_search_w4a8_error.inc"
#include "kernels/cpu/cpu_search_w4a8.inc"
#include "kernels/cpu/cpu_search_w4a8_codes.inc"
#include "kernels/cpu/cpu_decode.inc"
#include "kernels/cpu/cpu_repack.inc"
#define DOUBLES 4
#include "kernels/cpu/cpu_distance.inc"
#include "kernels/cpu/cpu_place_bits.inc"
#include "kernels/cpu/cpu_place_blocks.inc"
#include "kernels/cpu/cpu_place.inc"
#include "kernels/cpu/cpu_place_move.inc"
#include "kernels/cpu/cpu_rows.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif

const struct tp_row_set tp_rows_avx2 = ROW_SET;

#else

const struct tp_row_set tp_rows_avx2 = {0};

#endif
