/* What `tilepack schedule` found out, and its two printed forms. */
#ifndef TP_CLI_SCHEDULE_REPORT_H
#define TP_CLI_SCHEDULE_REPORT_H

#include "cli/human.h"
#include "cli/writer.h"
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

struct tp_schedule {
    const struct tp_schedule_case *cases;
    size_t count;
    bool why; /* with the runners-up of each case */
};

/* "deepgemm", as given to --kernel. */
const char *tp_schedule_kernel_name(enum tp_sched_kernel kernel);

/* "8x7168x2048", without E for a 2-D weight. */
const char *tp_schedule_shape(char text[TP_SHAPE_TEXT], const struct tp_schedule_case *c);

/* Case `i` of a struct tp_schedule. */
void tp_schedule_put(struct tp_writer *w, size_t i, const void *of);
/* One of its ranked configurations. */
void tp_schedule_put_config(struct tp_writer *w, const char *key,
                            const struct tp_schedule_case *of, size_t rank);

/* One JSON object, or: a table, then what is illegal or not taken and why; with `why` the
 * runners-up of each case and its launch numbers. Returns the exit status. */
int tp_schedule_print(const struct tp_schedule *all, bool json);

#endif
