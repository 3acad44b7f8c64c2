/* Random and unit rows. A random row is a range of one pool of random codes, which begins
 * somewhere else for every expert and row: a large X is then no more than copying. */
#include "pack/prove/prove_rows.h"

#include "base/num.h"
#include "kernels/op/scalar.h"

#include <pthread.h>
#include <string.h>

enum { POOL = 1 << 16, ONE = 0x38 /* 1.0 in e4m3 */ };

static uint8_t pool[POOL];
static pthread_once_t pool_made = PTHREAD_ONCE_INIT;

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Sums of four uniform numbers, -448 to 448. */
static void make_pool(void)
{
    for (uint64_t i = 0; i < POOL; i++) {
        uint64_t z = mix(i);
        int sum = (int)(z & 255) + (int)(z >> 8 & 255) + (int)(z >> 16 & 255) +
                  (int)(z >> 24 & 255) - 510;
        pool[i] = tp_e4m3_of((float)sum * (448.0f / 510.0f));
    }
}

void tp_prove_row(uint64_t expert, uint64_t row, uint64_t k, uint8_t *codes)
{
    pthread_once(&pool_made, make_pool);
    uint64_t at = mix(expert << 32 ^ row) % POOL;
    for (uint64_t done = 0, size; done < k; done += size, at = 0) {
        size = tp_min_u64(k - done, POOL - at);
        memcpy(codes + done, pool + at, size);
    }
}

float tp_prove_row_scale(uint64_t expert, uint64_t row, uint64_t block)
{
    uint64_t z = mix(mix(expert << 32 ^ row) + block);
    return (1.0f + (float)(z & 0xFFFF) / 65536.0f) / 512.0f;
}

void tp_prove_units(uint64_t first, uint64_t rows, uint64_t k, uint8_t *codes)
{
    memset(codes, 0, rows * k);
    for (uint64_t i = 0; i < rows; i++)
        codes[i * k + first + i] = ONE;
}
