/* XXH3-128 compiled for AVX2: xxhash.h with another target. */
#include "pack/file/xxh3.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#define XXH_VECTOR 2 /* the header's number of this set; clang shows it no macro of it */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#endif

#include "pack/file/xxh3.inc"

struct tp_xxh3 tp_xxh3_avx2(const void *data, size_t size) { return hash_of(data, size); }
