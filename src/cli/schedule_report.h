/* What `tilepack schedule` found out, and its two printed forms. */
#ifndef TP_CLI_SCHEDULE_REPORT_H
#define TP_CLI_SCHEDULE_REPORT_H

#include "pack/schedule/gpus.h"
#include "pack/schedule/schedule.h"

/* One weight shape at one m. */
struct tp_schedule_case {
    const struct tp_schedule_shape *shape; /* as stored, before any cut */
    unsigned ranks;                        /* tensor parallel; 1: not cut */
    enum tp_sched_cut cut;                 /* how this case is cut; never ANY */
    const struct tp_gpu *gpu;
    struct tp_sched_problem problem;
    struct tp_sched_plan plan;
    struct tp_sched_checks checks;
    struct tp_sched_cost cost;
};

/* "deepgemm", as given to --kernel. */
const char *tp_schedule_kernel_name(enum tp_sched_kernel kernel);

/* A table, then what is illegal or not taken and why; with `why` the runners-up of
 * each case and its launch numbers. Returns the exit status. */
int tp_schedule_print_text(const struct tp_schedule_case *cases, size_t count, bool why);

/* One JSON object; runners-up only with `why`. Returns the exit status. */
int tp_schedule_print_json(const struct tp_schedule_case *cases, size_t count, bool why);

#endif
