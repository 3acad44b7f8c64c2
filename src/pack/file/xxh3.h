/* XXH3-128 with the vectors of one instruction set: the same hash, several times as
 * fast as the library's. Inside of leafhash.c, which asks first whether the processor
 * has them. On other processors both are the library's function.
 */
#ifndef TP_PACK_XXH3_H
#define TP_PACK_XXH3_H

#include <stddef.h>
#include <stdint.h>

struct tp_xxh3 {
    uint64_t low, high;
};
struct tp_xxh3 tp_xxh3_avx2(const void *data, size_t size);
struct tp_xxh3 tp_xxh3_avx512(const void *data, size_t size);

#endif
