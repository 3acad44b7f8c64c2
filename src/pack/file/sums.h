/* The sum of a file's data, which does not depend on the order in which it was read.
 *
 * Normative (formats/README.md, section 10.1): each tensor is cut into blocks of 4096 bytes, the
 * last of them filled with zeros. A block at byte `at` of its file has 512 words W of 8 bytes,
 * little-endian. Of four lines of 8 words, a group, one is made: for i = 8 g + j, j < 8, T[i] =
 * W[32 g + j] + (W[32 g + 8 + j] <<< 8) + ((W[32 g + 16 + j] + (W[32 g + 24 + j] <<< 8)) <<< 20).
 * With the keys K[i] = mix(i), which are added to both halves of T[i] by themselves, A is the sum
 * of the products of the halves, and B that of the T[i] as they are. The file's sum is that of
 * mix(A ^ mix(at)) and that of mix(B + mix(at)) over all blocks. All modulo 2^64; <<< rotates, mix
 * is tp_leaf_mix(). Source of A: NH, of UMAC (RFC 4418), of which XXH3 is made, too.
 *
 * It has the speed of memory: XXH3 of the same bytes takes twice as long. A change of one word
 * always changes B. It finds what chance does, and not what is made on purpose.
 */
#ifndef TP_PACK_SUMS_H
#define TP_PACK_SUMS_H

#include "pack/file/sum_block.h"

#include <stddef.h>

enum { TP_SUM_BYTES = 16 };

/* Adds the blocks that `data` is cut into, the first of them at byte `at` of the file. */
void tp_sum_add(struct tp_sum *sum, const void *data, size_t size, uint64_t at);
/* A block of which groups come by themselves: `part`, which begins as {0}, gets those from number
 * `first` on, and is added to the sum when it has had each of them once. */
void tp_sum_part(struct tp_sum *part, const void *data, size_t first, size_t count);
void tp_sum_whole(struct tp_sum *sum, const struct tp_sum *block, uint64_t at);
/* As 16 bytes, the high ones of `a` first, and back: what tp_hash_print() prints. */
void tp_sum_bytes(const struct tp_sum *sum, uint8_t bytes[TP_SUM_BYTES]);
struct tp_sum tp_sum_of_bytes(const uint8_t bytes[TP_SUM_BYTES]);

#endif
