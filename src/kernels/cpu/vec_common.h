/* What the headers of vector operations have in common: how their functions are
 * declared, words that mean the same everywhere, and prefetching.
 *
 * A `vu` is one register of VL lanes of 32 bits (or of words or bytes where a name
 * says w_ or b_), a `vf` the same of floats; VBYTES is its size and LANES the number
 * of its lanes of 128 bits, within which table operations and interleaving act.
 */
#ifndef TP_KERNELS_VEC_COMMON_H
#define TP_KERNELS_VEC_COMMON_H

#include "base/dtype.h"
#include "kernels/op/scalar.h"

#define V static inline __attribute__((always_inline))
/* A function of a shared header that stays one: it is long, or seldom called. */
#define NOINLINE static __attribute__((noinline, unused))
#ifdef __clang__
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Codes of x * f, x / f, bf16(x / f); of bf16(x * f) where x * f is no tie of bf16, and of
 * x * f rounded to 16 significant bits, no tie either; of x * f where it is near no bound
 * between two codes. */
enum { HOW_MUL, HOW_DIV, HOW_DIV_BF16, HOW_MUL_BF16, HOW_MUL_SNAP, HOW_MUL_CLEAR };

V bool how_divides(int how) { return how == HOW_DIV || how == HOW_DIV_BF16; }

V void v_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }
V void v_prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }
V void v_prefetch_write(void *p) { __builtin_prefetch(p, 1, 3); }

#endif
