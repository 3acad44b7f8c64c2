/* What `tilepack compare` found, as text, JSON and a page.
 */
#ifndef TP_CLI_COMPARE_REPORT_H
#define TP_CLI_COMPARE_REPORT_H

#include "pack/check/estimate.h"

#include <stdio.h>

/* One format on the source. */
struct tp_candidate {
    const struct tp_format *format;
    char *refused;             /* why it cannot be written, or NULL; then nothing else is valid */
    uint64_t bytes;            /* of all tensors, the kept ones included */
    size_t kept;               /* tensors that stay as they are */
    bool weights_only;         /* convert wants that said: the source lacks activation scales */
    struct tp_unit_result *units;
    size_t unit_count;
    struct tp_estimate_sum sum;
    struct tp_estimate_rank *ranks; /* the worst weight first */
    size_t rank_count;
};

struct tp_candidates {
    const char *source;        /* its path */
    uint64_t bytes;            /* of all its tensors */
    bool full;
    double seconds;
    struct tp_candidate *items; /* the smallest first */
    size_t count;
};

/* On stdout, as one JSON object or as text; a status as of a command. `verbose`: every weight,
 * else the worst ones. */
int tp_compare_print(const struct tp_candidates *all, bool json, bool verbose);

/* Writes the page to an open file. */
void tp_compare_page(const struct tp_candidates *all, FILE *out);

#endif
