/* The sum of a file's data. Which function does a block is decided once. */
#include "pack/file/sums.h"

#include "base/isa.h"
#include "pack/file/leafhash.h"

#include <pthread.h>
#include <string.h>

enum { LINE = 8 }; /* words */
static uint64_t keys[TP_SUM_GROUPS * LINE] __attribute__((aligned(64)));
static struct tp_sum (*groups_sum)(const uint8_t *data, const uint64_t *keys, size_t groups);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t turn(uint64_t word, unsigned by)
{
    return word << by | word >> (64 - by);
}

/* The signs of 16-bit numbers in the four lines come to four different places. */
static struct tp_sum groups_plain(const uint8_t *data, const uint64_t *key, size_t groups)
{
    struct tp_sum sum = {0, 0};
    for (size_t i = 0; i < groups * LINE; i++) {
        uint64_t w[4];
        for (size_t line = 0; line < 4; line++)
            memcpy(&w[line], data + 8 * ((i / LINE * 4 + line) * LINE + i % LINE), sizeof *w);
        uint64_t t = w[0] + turn(w[1], 8) + turn(w[2] + turn(w[3], 8), 20);
        uint32_t low = (uint32_t)t + (uint32_t)key[i];
        uint32_t high = (uint32_t)(t >> 32) + (uint32_t)(key[i] >> 32);
        sum.a += (uint64_t)low * high;
        sum.b += t;
    }
    return sum;
}

static void prepare(void)
{
    for (size_t i = 0; i < TP_SUM_GROUPS * LINE; i++)
        keys[i] = tp_leaf_mix(i);
    groups_sum = tp_isa_enabled(TP_ISA_AVX512) ? tp_sum_groups_avx512
                 : tp_isa_enabled(TP_ISA_AVX2) ? tp_sum_groups_avx2
                                               : groups_plain;
}

void tp_sum_part(struct tp_sum *part, const void *data, size_t first, size_t count)
{
    pthread_once(&once, prepare);
    const struct tp_sum more = groups_sum(data, keys + first * LINE, count);
    part->a += more.a;
    part->b += more.b;
}

void tp_sum_whole(struct tp_sum *sum, const struct tp_sum *block, uint64_t at)
{
    const uint64_t place = tp_leaf_mix(at);
    sum->a += tp_leaf_mix(block->a ^ place);
    sum->b += tp_leaf_mix(block->b + place);
}

void tp_sum_add(struct tp_sum *sum, const void *data, size_t size, uint64_t at)
{
    uint8_t last[TP_SUM_BLOCK];
    const uint8_t *block = data;
    pthread_once(&once, prepare);
    for (size_t left = size; left; block += TP_SUM_BLOCK, at += TP_SUM_BLOCK) {
        if (left < TP_SUM_BLOCK) {
            memset(last, 0, sizeof last);
            block = memcpy(last, block, left);
        }
        const struct tp_sum one = groups_sum(block, keys, TP_SUM_GROUPS);
        tp_sum_whole(sum, &one, at);
        left -= left < TP_SUM_BLOCK ? left : TP_SUM_BLOCK;
    }
}

void tp_sum_bytes(const struct tp_sum *sum, uint8_t bytes[TP_SUM_BYTES])
{
    for (int i = 0; i < TP_SUM_BYTES; i++)
        bytes[i] = (uint8_t)((i < 8 ? sum->a : sum->b) >> (56 - i % 8 * 8));
}

struct tp_sum tp_sum_of_bytes(const uint8_t bytes[TP_SUM_BYTES])
{
    struct tp_sum sum = {0, 0};
    for (int i = 0; i < TP_SUM_BYTES; i++) {
        uint64_t *half = i < 8 ? &sum.a : &sum.b;
        *half = *half << 8 | bytes[i];
    }
    return sum;
}
