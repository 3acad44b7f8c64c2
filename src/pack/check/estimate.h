/* What a conversion would lose, without writing anything: the errors of each weight, of all of
 * its values or of a sample of them.
 *
 * The sample is boxes of each weight that are quantized on their own: rows that lie together
 * (one in most formats, a block or a tile of them in others), of whole rows where a scale
 * belongs to a row, else of a part of their columns. They are spread over the experts, rows
 * and columns of the weight. Only they are read, so that the time does not grow with the
 * model: TP_ESTIMATE_VALUES values in all, each weight a share of them that is a 61st of it or
 * TP_ESTIMATE_MAX if that is more, and at least TP_ESTIMATE_MIN. So small weights are read
 * whole, then expert by expert.
 *
 * A scale of a whole weight is taken from the box alone. Weights that are taken over from a
 * packed source are not measured by a sample. Where boxes are limited, those of whole rows have
 * fewer rows than a tile, and weights with rows that are too long for that are not measured.
 */
#ifndef TP_PACK_ESTIMATE_H
#define TP_PACK_ESTIMATE_H

#include "pack/check/verify_values.h"

#define TP_ESTIMATE_VALUES (UINT64_C(1) << 26)
#define TP_ESTIMATE_MAX (UINT64_C(1) << 18)
#define TP_ESTIMATE_MIN (UINT64_C(1) << 14)

struct tp_estimate_options {
    bool full;         /* all values: the whole run of a conversion, its bytes thrown away */
    unsigned thinned;  /* TP_ESTIMATE_VALUES and _MIN are so many times smaller; 0 as 1 */
    const struct tp_importance_file *importance; /* fills the weighted distances of units that it has
                          numbers of, too: of the columns, times the mean square of the gradients
                          of outputs where it has such of any weight; or NULL. Of samples of all
                          units alone */
    uint64_t max;      /* values of a box, with those that only fill its tiles up; 0: any number */
    unsigned jobs;
    atomic_int *stop;  /* as in tp_run_options, or NULL */
    void (*progress)(void *arg, uint64_t bytes, const char *tensor); /* or NULL; of values read */
    void (*total)(void *arg, uint64_t bytes); /* all that tp_cost_of() reports; or NULL */
    void *progress_arg;
};

/* Fills the distances of `units`, which are tp_unit_results_new() of the plan; those that were
 * not measured stay without values. The plan has headers if `full`. The figures do not depend
 * on `jobs`. */
enum tp_code tp_estimate(const struct tp_plan *plan, const struct tp_side *source,
                         const struct tp_estimate_options *options,
                         struct tp_unit_result *units, struct tp_err *err);

/* The bytes of which tp_estimate() tells its progress. */
uint64_t tp_estimate_work(const struct tp_plan *plan, bool full);

/* The same by the sample, of some units of the plan; those that are not encoded stay without
 * values. distances[i] is of units[i]. */
enum tp_code tp_estimate_some(const struct tp_plan *plan, const struct tp_side *source,
                              const struct tp_estimate_options *options, const uint32_t *units,
                              size_t count, struct tp_distance *distances, struct tp_err *err);

/* What the errors of all weights come to. Means are those of decibels: each weight counts
 * alike, however large its values are. */
struct tp_estimate_sum {
    size_t weights, measured;   /* packed ones of the plan, and those with an error to speak of */
    double bits;                /* stored for each of their values, scales included */
    double mean_db, relative;   /* of the measured; the share: root of the mean of squares */
    size_t worst;               /* unit of the least ratio, valid when measured > 0 */
    double most_lost;           /* tp_distance_lost(), the largest of a weight */
    size_t losing;              /* weights of which tp_distance_loses() says that it is too much */
};
void tp_estimate_add_up(const struct tp_plan *plan, const struct tp_unit_result *units,
                        struct tp_estimate_sum *sum);

/* The units that were measured and are not exact, the worst first; `ranks` has room for all
 * `count` units of the plan. Returns how many. */
struct tp_estimate_rank {
    double db; /* signal to noise */
    uint32_t unit;
};
size_t tp_estimate_order(const struct tp_unit_result *units, size_t count,
                         struct tp_estimate_rank *ranks);

#endif
