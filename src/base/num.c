/* Checked arithmetic: the two operations too large to inline. */
#include "base/num.h"

uint64_t tp_gcd_u64(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool tp_lcm_u64(uint64_t *r, uint64_t a, uint64_t b)
{
    return tp_mul_u64(r, a / tp_gcd_u64(a, b), b);
}
