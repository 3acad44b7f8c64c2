/* Sums of groups with the vectors of x86; the formula is groups_plain() of sums.c. */
#include "pack/file/sum_block.h"

#if defined(__x86_64__)

#include <immintrin.h>

enum { LINE = 64 };

/* Words rotated to the left by 8 bits: by a byte, in one instruction. */
#define TURNED_8 7, 0, 1, 2, 3, 4, 5, 6, 15, 8, 9, 10, 11, 12, 13, 14

__attribute__((target("avx2"))) static inline __m256i load_256(const void *from)
{
    return _mm256_loadu_si256(from);
}

__attribute__((target("avx2"))) static inline uint64_t total_256(__m256i v)
{
    __m128i two = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return (uint64_t)_mm_cvtsi128_si64(two) + (uint64_t)_mm_extract_epi64(two, 1);
}

__attribute__((target("avx2"))) struct tp_sum
tp_sum_groups_avx2(const uint8_t *data, const uint64_t *keys, size_t groups)
{
    const __m256i by_8 = _mm256_setr_epi8(TURNED_8, TURNED_8);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < groups * LINE; i += 32) { /* half a line */
        const uint8_t *at = data + i / LINE * TP_SUM_GROUP + i % LINE;
        __m256i t = _mm256_add_epi64(load_256(at), _mm256_shuffle_epi8(load_256(at + LINE), by_8));
        __m256i u = _mm256_add_epi64(load_256(at + 2 * LINE),
                                     _mm256_shuffle_epi8(load_256(at + 3 * LINE), by_8));
        u = _mm256_or_si256(_mm256_slli_epi64(u, 20), _mm256_srli_epi64(u, 44));
        t = _mm256_add_epi64(t, u);
        b = _mm256_add_epi64(b, t);
        t = _mm256_add_epi32(t, load_256((const uint8_t *)keys + i));
        a = _mm256_add_epi64(a, _mm256_mul_epu32(t, _mm256_srli_epi64(t, 32)));
    }
    return (struct tp_sum){total_256(a), total_256(b)};
}

/* _mm512_reduce_add_epi64() adds signed numbers, of which C allows no overflow. */
__attribute__((target("avx512f"))) static inline uint64_t total_512(__m512i v)
{
    uint64_t words[8], total = 0;
    _mm512_storeu_si512(words, v);
    for (int i = 0; i < 8; i++)
        total += words[i];
    return total;
}

__attribute__((target("avx512f"))) struct tp_sum
tp_sum_groups_avx512(const uint8_t *data, const uint64_t *keys, size_t groups)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    for (size_t i = 0; i < groups * LINE; i += LINE) {
        const uint8_t *at = data + 4 * i;
        __m512i t = _mm512_add_epi64(_mm512_loadu_si512(at),
                                     _mm512_rol_epi64(_mm512_loadu_si512(at + LINE), 8));
        __m512i u = _mm512_add_epi64(_mm512_loadu_si512(at + 2 * LINE),
                                     _mm512_rol_epi64(_mm512_loadu_si512(at + 3 * LINE), 8));
        t = _mm512_add_epi64(t, _mm512_rol_epi64(u, 20));
        b = _mm512_add_epi64(b, t);
        t = _mm512_add_epi32(t, _mm512_loadu_si512((const uint8_t *)keys + i));
        a = _mm512_add_epi64(a, _mm512_mul_epu32(t, _mm512_srli_epi64(t, 32)));
    }
    return (struct tp_sum){total_512(a), total_512(b)};
}

#else

struct tp_sum tp_sum_groups_avx2(const uint8_t *data, const uint64_t *keys, size_t groups)
{
    (void)data, (void)keys, (void)groups;
    return (struct tp_sum){0, 0};
}

struct tp_sum tp_sum_groups_avx512(const uint8_t *data, const uint64_t *keys, size_t groups)
{
    return tp_sum_groups_avx2(data, keys, groups);
}

#endif
