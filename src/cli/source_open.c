/* Opening the source of a command. */
#include "cli/source_open.h"

#include "base/num.h"
#include "pack/os/machine.h"
#include "pack/os/os.h"
#include "pack/run/budget.h"

#include <string.h>

/* How the source of a conversion is opened; without options: how one is that is only read. */
static enum tp_code open_with(const struct tp_options *o, const char *path,
                              struct tp_source *source, struct tp_err *err)
{
    memset(source, 0, sizeof *source);
    if (!o)
        return tp_checkpoint_open(path, 0, &source->ckpt, err);
    unsigned flags = (o->strict ? TP_CHECKPOINT_STRICT : 0u) |
                     (o->follow_links ? 0u : TP_CHECKPOINT_COPIES) | TP_CHECKPOINT_FOLDERS;
    return tp_checkpoint_open_copying(path, flags, o->copy.item, o->copy.count, &source->ckpt, err);
}

enum tp_code tp_source_open_as(const char *path, const struct tp_options *o,
                               const struct tp_model_choice *choice, struct tp_source *source,
                               struct tp_err *err)
{
    enum tp_code code = open_with(o, path, source, err);
    if (code == TP_OK && (code = tp_weights_find_as(&source->ckpt, choice, &source->weights, err)))
        tp_checkpoint_close(&source->ckpt);
    return code;
}

enum tp_code tp_source_open(const char *path, const struct tp_options *o, struct tp_source *source,
                            struct tp_err *err)
{
    enum tp_code code = open_with(o, path, source, err);
    if (code == TP_OK && (code = tp_weights_find_any(&source->ckpt, &source->weights, err)))
        tp_checkpoint_close(&source->ckpt);
    return code;
}

void tp_source_close(struct tp_source *source)
{
    tp_weights_close(&source->weights);
    tp_checkpoint_close(&source->ckpt);
}

/* What a process may take that was not told: enough for 750,000 tensors, unless the machine or the
 * cgroup has little. */
static uint64_t usual_memory(void)
{
    const uint64_t max = UINT64_C(2) << 30, min = UINT64_C(32) << 20;
    return tp_max_u64(tp_min_u64(max, tp_machine_memory("") / 2), min);
}

static uint64_t max_memory(const struct tp_options *o)
{
    return o->max_memory ? o->max_memory : usual_memory();
}

void tp_limit_memory(const struct tp_options *o)
{
    tp_os_limit_heap(max_memory(o) - TP_OS_PROGRAM_BYTES);
}

void tp_limit_work(const struct tp_options *o, struct tp_run_options *run)
{
    tp_os_limit_heap(0);
    run->memory = max_memory(o);
    run->work = o->max_memory ? 0 : TP_RUN_WORK;
}
