/* What `tilepack compare` found, as text, JSON and a page.
 */
#ifndef TP_CLI_COMPARE_REPORT_H
#define TP_CLI_COMPARE_REPORT_H

#include "pack/check/cost.h"

#include <stdio.h>

struct tp_candidates {
    const char *source;        /* its path */
    uint64_t bytes;            /* of all its tensors */
    bool full;
    double seconds;
    struct tp_cost *items; /* the smallest first */
    size_t count;
};

/* On stdout, as one JSON object or as text; a status as of a command. `verbose`: every weight,
 * else the worst ones. */
int tp_compare_print(const struct tp_candidates *all, bool json, bool verbose);

/* Writes the page to an open file. */
void tp_compare_page(const struct tp_candidates *all, FILE *out);

#endif
