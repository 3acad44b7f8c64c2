/* How unlike two short names are, for "did you mean". */
#include "base/similar.h"

#include <string.h>

enum { WORD_MAX = 40, UNLIKE = 80 };

/* Edits (insert, drop, change, swap neighbours) that make b of a. */
static unsigned edits(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];
    if (n > WORD_MAX || m > WORD_MAX)
        return WORD_MAX;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

/* The less, the more alike. */
static unsigned distance(const char *typed, const char *name)
{
    size_t length = strlen(typed), common = 0;
    while (typed[common] && typed[common] == name[common])
        common++;
    unsigned cost = edits(typed, name);
    if (common == length && length >= 2)
        return 1; /* typed is the beginning of name */
    if (cost <= 1 + length / 4 || (common >= 2 && cost <= 3))
        return 2 * cost - (common >= 2);
    return UNLIKE;
}

void tp_nearest_try(struct tp_nearest *nearest, const char *name)
{
    unsigned cost = distance(nearest->typed, name);
    if (cost < (nearest->name ? nearest->cost : UNLIKE)) {
        nearest->name = name;
        nearest->cost = cost;
    }
}
