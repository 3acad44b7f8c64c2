/* The clock by which this program measures: it never jumps, and begins nowhere in
 * particular.
 */
#ifndef TP_PACK_CLOCK_H
#define TP_PACK_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t tp_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* In seconds. */
static inline double tp_now(void) { return 1e-9 * (double)tp_now_ns(); }

#endif
