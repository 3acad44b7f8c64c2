/* Checked arithmetic for every number that comes from a file.
 *
 * Each operation returns false, and leaves *r unspecified, when the exact result
 * does not fit. No other file does bare arithmetic on sizes read from input.
 */
#ifndef TP_BASE_NUM_H
#define TP_BASE_NUM_H

#include "base/c_linkage.h"

#include <stdbool.h>
#include <stdint.h>

TP_C_BEGIN

static inline bool tp_add_u64(uint64_t *r, uint64_t a, uint64_t b)
{
    return !__builtin_add_overflow(a, b, r);
}

static inline bool tp_sub_u64(uint64_t *r, uint64_t a, uint64_t b)
{
    return !__builtin_sub_overflow(a, b, r);
}

static inline bool tp_mul_u64(uint64_t *r, uint64_t a, uint64_t b)
{
    return !__builtin_mul_overflow(a, b, r);
}

/* r = a rounded up to a multiple of unit (unit > 0). */
static inline bool tp_align_u64(uint64_t *r, uint64_t a, uint64_t unit)
{
    uint64_t rest = a % unit;
    return rest ? tp_add_u64(r, a, unit - rest) : (*r = a, true);
}

/* Rounded-up quotient; never overflows (unit > 0). */
static inline uint64_t tp_ceil_div(uint64_t a, uint64_t unit)
{
    return a / unit + (a % unit != 0);
}

/* For sizes already proven small: round up without a check. */
static inline uint64_t tp_round_up(uint64_t a, uint64_t unit)
{
    return tp_ceil_div(a, unit) * unit;
}

static inline uint64_t tp_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t tp_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t tp_gcd_u64(uint64_t a, uint64_t b);
/* Least common multiple of two positive numbers; false when it does not fit. */
bool tp_lcm_u64(uint64_t *r, uint64_t a, uint64_t b);

TP_C_END

#endif
