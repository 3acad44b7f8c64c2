/* Memory by arithmetic: the shares of contexts and leaves, and when to drop behind. */
#include "pack/run/budget.h"

#include "base/num.h"
#include "pack/file/leafhash.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"
#include "pack/run/byte_budget.h"
#include "pack/run/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM TP_OS_PROGRAM_BYTES
#define MIN_BYTES (UINT64_C(8) << 20)
#define ARCHIVES (UINT64_C(64) << 20)
/* What a worker takes however small its boxes are: for copies, and its stack and heap. */
#define WORKER (TP_LEAF_BYTES + (UINT64_C(128) << 10))

static uint64_t cache_limit(void)
{
    const char *text = getenv("TILEPACK_CACHE");
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    if (text && *text)
        return strtoull(text, NULL, 10);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : UINT64_MAX;
}

bool tp_budget_too_large(uint64_t bytes)
{
    return bytes > cache_limit();
}

/* Lowers run->jobs until they, and their smallest boxes, fit into the contexts' memory. *needed:
 * what one worker needs for the largest of them, in unit *worst. */
static enum tp_code fit_jobs(const struct tp_plan *plan, struct tp_run_options *run,
                             uint64_t *needed, const struct tp_unit **worst, struct tp_err *err)
{
    *needed = 0;
    run->jobs = (unsigned)tp_min_u64(run->jobs, tp_max_u64(run->memory / WORKER, 1));
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        if (u > 0 && tp_same_boxes(plan, unit, unit - 1))
            continue;
        for (uint64_t memory;; run->jobs /= 2) {
            struct tp_box_hints wanted = tp_run_box_hints(run, run->jobs);
            struct tp_grid grid;
            enum tp_code code = tp_unit_boxes(plan, unit, &wanted, &grid, err);
            if (code)
                return code;
            memory = tp_grid_memory(plan, unit, &grid);
            if (memory > *needed && run->jobs == 1) {
                *needed = memory;
                *worst = unit;
            }
            if (memory <= wanted.memory || run->jobs == 1)
                break;
        }
    }
    return TP_OK;
}

void tp_budget_compare(const struct tp_checkpoint *a, const struct tp_checkpoint *b)
{
    tp_zst_cache_limit(tp_max_u64(ARCHIVES, tp_checkpoint_largest_frame(a, NULL) +
                                        tp_checkpoint_largest_frame(b, NULL)));
}

/* The bytes of an expert, where a box takes pieces from all over it out of an archive, as of a
 * transposed source. 0: boxes are read from the first to the last. */
static uint64_t scattered_bytes(const struct tp_plan *plan, const struct tp_unit *unit)
{
    const struct tp_weight *weight = &plan->weights->items[unit->views[0].weight];
    uint64_t bytes = 0;
    if (!weight->form->format && !weight->form->transposed)
        return 0;
    for (uint32_t i = 0; i < TP_MAX_OUT; i++) {
        if (weight->tensor[i] == TP_NO_TENSOR)
            continue;
        const struct tp_tensor *tensor = &plan->ckpt->tensors[weight->tensor[i]];
        bytes += plan->ckpt->files[tensor->file].zst ? tensor->bytes : 0;
    }
    return bytes / tp_max_u64(weight->form->box.e, 1);
}

/* Unpacked frames of compressed sources stay for the next reader. One at least has to. Of two more
 * than there are workers, which lowers *jobs, those on both sides of a frame's end do not take each
 * other's away. */
static uint64_t archive_memory(const struct tp_plan *plan, uint64_t rest, unsigned *jobs)
{
    uint64_t largest = tp_checkpoint_largest_frame(plan->ckpt, NULL), scattered = 0;
    const uint64_t workers = *jobs ? *jobs : 1;
    if (!largest)
        return 0;
    for (size_t u = 0; u < plan->unit_count; u++)
        scattered = tp_max_u64(scattered, scattered_bytes(plan, &plan->units[u]));
    uint64_t wanted = tp_max_u64(tp_min_u64((workers + 2) * largest + scattered, rest / 2),
                                 tp_min_u64(ARCHIVES, rest / 4));
    uint64_t frames = tp_max_u64(largest, wanted) / largest;
    *jobs = (unsigned)tp_min_u64(workers, frames > 3 ? frames - 2 : 1);
    return tp_max_u64(largest, wanted);
}

/* What compressing takes, one shard at a time; *threads of it. */
static uint64_t encoder_memory(const struct tp_run_options *run, uint64_t rest, unsigned *threads)
{
    *threads = run->jobs ? run->jobs : 1;
    if (!run->zstd)
        return 0;
    while (*threads > 1 && tp_zst_memory((int)run->zstd, *threads) > rest / 2)
        --*threads;
    return tp_zst_memory((int)run->zstd, *threads);
}

/* What is known of each file by the end, beside what is known of them now: small ones may be
 * many. */
static uint64_t listed_bytes(const struct tp_plan *plan)
{
    enum { ENTRY = 160 };
    uint64_t bytes = ENTRY * (uint64_t)plan->file_count;
    for (size_t i = 0; i < plan->ckpt->other_count; i++)
        bytes += ENTRY + strlen(plan->ckpt->others[i]);
    return bytes;
}

/* Index and manifest are made one after the other when the contexts are gone: texts of all tensors
 * and weights, as the headers are, but with more white space. */
static uint64_t text_bytes(const struct tp_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t f = 0; f < plan->file_count; f++)
        bytes += 2 * plan->files[f].header_size;
    return bytes;
}

/* Divides `rest` bytes. */
static enum tp_code divide(const struct tp_plan *plan, uint64_t rest, struct tp_run_options *run,
                           struct tp_budget *budget, struct tp_err *err)
{
    bool gpu = run->devices != NULL, asked = run->memory != 0;
    uint64_t files, needed;
    unsigned encoders;
    uint64_t archives = archive_memory(plan, rest, &run->jobs), shares = gpu ? 4 : 2;
    uint64_t beside = archives + encoder_memory(run, rest, &encoders);
    const struct tp_unit *worst = NULL;
    if (asked && rest < beside + MIN_BYTES)
        return tp_os_fail_limit(err);
    rest = tp_max_u64(rest > beside ? rest - beside : 0, MIN_BYTES);
    tp_zst_cache_limit(archives);
    run->memory = rest / shares;
    run->drop_source = !tp_add_u64(&files, plan->bytes_in, plan->bytes_out) ||
                       tp_budget_too_large(files);
    *budget = (struct tp_budget){.leaves = gpu ? rest / 2 : rest / 4, .encoders = encoders,
                                  .drop = run->drop_source};
    enum tp_code code = gpu ? TP_OK : fit_jobs(plan, run, &needed, &worst, err);
    if (worst && needed > run->memory) /* one worker with one large box: what leaves do not need */
        run->memory = tp_min_u64(needed, rest - budget->leaves);
    if (run->shared_budget)
        run->shared_budget->max = (rest - budget->leaves - run->memory) / 4 * 3;
    if (code || !asked || !worst || needed <= run->memory)
        return code;
    tp_err_tensor(err, worst->name);
    if (tp_op_feeds(&worst->form->op)) { /* whole rows, and what is made of moments */
        tp_err_path(err, tp_importance_path(plan->importance));
        tp_err_hint(err, "moments of a lower rank need less memory");
    }
    return tp_os_fail_limit(err);
}

/* Whether `max` bytes would do for a run that has `used` of them before its work. */
static bool is_enough(const struct tp_plan *plan, const struct tp_run_options *run, uint64_t max,
                      uint64_t used)
{
    struct tp_run_options trial = *run;
    struct tp_budget ignored;
    trial.memory = max;
    trial.shared_budget = NULL;
    return max > used && max - used >= text_bytes(plan) &&
           divide(plan, max - used, &trial, &ignored, NULL) == TP_OK;
}

/* run->memory is too small: the hint says what is not, to a quarter of it. */
static void say_enough(const struct tp_plan *plan, const struct tp_run_options *run, uint64_t used,
                       struct tp_err *err)
{
    const uint64_t mib = UINT64_C(1) << 20, most = UINT64_C(1) << 42;
    uint64_t max = run->memory;
    while (max < most && !is_enough(plan, run, max, used))
        max += max / 4 + mib;
    if (max < most)
        tp_err_hint(err, "--max-memory %lluMiB is enough", (unsigned long long)(max / mib + 1));
}

enum tp_code tp_budget_run(const struct tp_plan *plan, struct tp_run_options *run,
                           struct tp_budget *budget, struct tp_err *err)
{
    uint64_t heap = tp_os_heap_bytes(), max = run->memory ? run->memory : TP_RUN_WORK;
    uint64_t used = heap + listed_bytes(plan) + PROGRAM -
                    (run->devices ? tp_min_u64(heap, run->devices->driver) : 0);
    uint64_t rest = max > used ? max - used : 0;
    const struct tp_run_options asked = *run;
    bool fits = !run->memory || rest >= text_bytes(plan);
    if (fits && run->work && run->work < rest) {
        struct tp_run_options usual = *run;
        if (divide(plan, run->work, &usual, budget, NULL) == TP_OK) {
            *run = usual;
            return TP_OK;
        }
    }
    enum tp_code code = fits ? divide(plan, rest, run, budget, err) : tp_os_fail_limit(err);
    if (code == TP_E_MEMORY && asked.memory)
        say_enough(plan, &asked, used, err);
    return code;
}
