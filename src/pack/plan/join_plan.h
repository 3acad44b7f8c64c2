/* Joining: the plan of the whole, from what a conversion for ranks wrote beside them
 * (tilepack-tp.json) and from the ranks themselves.
 */
#ifndef TP_PACK_JOIN_PLAN_H
#define TP_PACK_JOIN_PLAN_H

#include "pack/file/leafhash.h"
#include "pack/plan/plan.h"

/* Numbers of things by name, sorted. */
struct tp_named {
    const char *name;
    uint32_t index;
};
struct tp_name_list {
    struct tp_named *items;
    size_t count;
};

/* Weight w of the plan is in slices: in rank r it is weights[r].items[sources[w * count +
 * r]], cut as cuts[w] says. All other outputs are copied from any rank. */
struct tp_join_plan {
    char *path;
    json_t *info;     /* tilepack-tp.json */
    bool unchecked;   /* its text has no hash of its own: 0.1.0 wrote it */
    uint8_t info_hash[TP_HASH_BYTES];
    unsigned count; /* of ranks */
    unsigned flags; /* with which they are opened */
    struct tp_checkpoint *ckpts;
    struct tp_weights *weights;
    struct tp_name_list *packed;  /* per rank: packed weights by prefix */
    struct tp_store prefixes;
    struct tp_plan plan;
    struct tp_name_list outputs;  /* of the plan */
    struct tp_weights whole; /* items are shallow */
    struct tp_cut *cuts;
    uint32_t *sources;
};

/* Reads what lies beside the ranks in the directory `path`. TP_E_USAGE when nothing does. */
enum tp_code tp_join_plan_read(const char *path, unsigned flags, struct tp_join_plan *join,
                               struct tp_err *err);
/* Opens rank r, which is in the directory `path`. */
enum tp_code tp_join_plan_rank(struct tp_join_plan *join, unsigned r, const char *path,
                               struct tp_err *err);
/* With all ranks open: makes join->plan. What does not belong together is TP_E_INPUT. */
enum tp_code tp_join_plan_make(struct tp_join_plan *join, struct tp_err *err);
/* A text of that name in tilepack-tp.json, or "". */
const char *tp_join_plan_text(const struct tp_join_plan *join, const char *key);
void tp_join_plan_close(struct tp_join_plan *join); /* legal on {0}, and after a failure */

#endif
