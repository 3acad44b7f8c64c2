/* Stages: one clock per thread. Knows nothing of what is timed. */
#include "pack/os/stage.h"

#include "pack/os/clock.h"

#include <stddef.h>

static _Thread_local struct {
    struct tp_run_stats *stats; /* NULL: not counted */
    enum tp_stage stage;
    uint64_t since;
} self;

const char *tp_stage_name(enum tp_stage stage)
{
    static const char *const names[TP_STAGES] = {"other", "read", "kernel",
                                                 "hash",  "write", "sync"};
    return stage < TP_STAGES ? names[stage] : "";
}

void tp_stage_start(struct tp_run_stats *stats)
{
    self.stats = stats;
    self.stage = TP_STAGE_OTHER;
    if (stats) {
        self.since = tp_now_ns();
        atomic_fetch_add(&stats->workers, 1);
    }
}

void tp_stage_stop(void)
{
    tp_stage_set(TP_STAGE_OTHER);
    self.stats = NULL;
}

enum tp_stage tp_stage_set(enum tp_stage stage)
{
    enum tp_stage before = self.stage;
    if (self.stats) {
        uint64_t t = tp_now_ns();
        atomic_fetch_add_explicit(&self.stats->ns[before], t - self.since, memory_order_relaxed);
        self.since = t;
        self.stage = stage;
    }
    return before;
}
