/* Sharing a budget of bytes out among sets, each of which takes one of several choices: so that the
 * sum of costs is least and the budget is never exceeded. Knows numbers only.
 *
 * First each set has its smallest choice. Then the steps up the lower convex hull of each set's
 * (bytes, cost) are taken, that which saves most for a byte first, as long as there is room
 * (Lagrange's multiplier is the last one's saving). What is left of the budget is used by a search
 * through all assignments, bounded by the same hulls: it ends with the least sum that there is, or
 * after a fixed number of tries with the best one seen. Nothing depends on time or on threads.
 */
#ifndef TP_PACK_SHARE_OUT_H
#define TP_PACK_SHARE_OUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TP_SHARE_CHOICES = 8 };

/* What a set may take. */
struct tp_share_choice {
    bool can;       /* false: the rest means nothing */
    uint64_t bytes; /* no sum over all sets is 2^53 or more */
    double cost;    /* finite, not negative */
};

struct tp_share_set {
    struct tp_share_choice choice[TP_SHARE_CHOICES]; /* at least one can be taken */
};

struct tp_share {
    uint32_t *taken; /* of each set: its choice. Of the caller, with room for all */
    uint64_t bytes;
    double cost, bound; /* of what is taken, and what no assignment is below */
    bool least;         /* the search came to its end: there is nothing better */
};

/* TP_E_UNSUPPORTED, without a hint, where even the smallest choices exceed the budget; share->bytes
 * is then what they take. TP_E_MEMORY. */
enum tp_code tp_share_out(const struct tp_share_set *sets, size_t count, uint64_t budget,
                          struct tp_share *share, struct tp_err *err);

/* What can be had at best for how many bytes: the corners of the line that bounds are on, from the
 * smallest choices on. */
struct tp_share_point {
    uint64_t bytes;
    double cost;
};
/* *points in fresh memory, in the order of bytes. TP_E_MEMORY. */
enum tp_code tp_share_line(const struct tp_share_set *sets, size_t count,
                           struct tp_share_point **points, size_t *point_count,
                           struct tp_err *err);

#endif
