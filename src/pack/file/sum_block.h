/* The sum of one block, with the vectors of an instruction set. Inside of sums.c, which has the
 * formula (sums.h) in plain C, too, and asks first whether the processor has them. On other
 * processors nobody calls these.
 */
#ifndef TP_PACK_SUM_BLOCK_H
#define TP_PACK_SUM_BLOCK_H

#include <stdint.h>

enum { TP_SUM_BLOCK = 4096, TP_SUM_KEYS = 128 };

struct tp_sum {
    uint64_t a, b;
};

struct tp_sum tp_sum_block_avx2(const uint8_t *block, const uint64_t *keys);
struct tp_sum tp_sum_block_avx512(const uint8_t *block, const uint64_t *keys);

#endif
