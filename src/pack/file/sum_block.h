/* Sums of groups of a block, with the vectors of an instruction set. Inside of sums.c, which has
 * the formula (sums.h) in plain C, too, and asks first whether the processor has them. On other
 * processors nobody calls these.
 */
#ifndef TP_PACK_SUM_BLOCK_H
#define TP_PACK_SUM_BLOCK_H

#include <stddef.h>
#include <stdint.h>

enum { TP_SUM_GROUP = 256, TP_SUM_GROUPS = 16, TP_SUM_BLOCK = TP_SUM_GROUPS * TP_SUM_GROUP };

struct tp_sum {
    uint64_t a, b;
};

/* A and B of so many groups, with 8 keys each. */
struct tp_sum tp_sum_groups_avx2(const uint8_t *data, const uint64_t *keys, size_t groups);
struct tp_sum tp_sum_groups_avx512(const uint8_t *data, const uint64_t *keys, size_t groups);

#endif
