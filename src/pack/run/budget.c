/* Memory by arithmetic: the shares of lanes and leaves, and when to drop behind. */
#include "pack/run/budget.h"

#include "base/num.h"
#include "pack/file/leafhash.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"
#include "pack/run/device.h"
#include "pack/run/room.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_MEMORY (UINT64_C(512) << 20)
#define PROGRAM TP_OS_PROGRAM_BYTES
#define LEAST (UINT64_C(8) << 20)
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

/* Lowers run->jobs until they, and their smallest boxes, fit into the lanes' memory. *needed:
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
            struct tp_box_wish wish = tp_run_wish(run, run->jobs);
            struct tp_grid grid;
            enum tp_code code = tp_unit_boxes(plan, unit, &wish, &grid, err);
            if (code)
                return code;
            memory = tp_grid_memory(plan, unit, &grid);
            if (memory > *needed && run->jobs == 1) {
                *needed = memory;
                *worst = unit;
            }
            if (memory <= wish.memory || run->jobs == 1)
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

/* Of a source from whose archive a box takes pieces all over an expert, as of a transposed one: the
 * bytes of the expert. 0: boxes are read from the first to the last. */
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

/* Unpacked frames of compressed sources stay for the next reader. One at least has to; of three,
 * workers on both sides of a frame's end do not take each other's away. */
static uint64_t archive_memory(const struct tp_plan *plan, uint64_t rest)
{
    uint64_t largest = tp_checkpoint_largest_frame(plan->ckpt, NULL), scattered = 0;
    if (!largest)
        return 0;
    for (size_t u = 0; u < plan->unit_count; u++)
        scattered = tp_max_u64(scattered, scattered_bytes(plan, &plan->units[u]));
    uint64_t wish = tp_max_u64(tp_min_u64(3 * largest + scattered, rest / 2),
                               tp_min_u64(ARCHIVES, rest / 4));
    return tp_max_u64(largest, wish);
}

uint64_t tp_budget_encoder(unsigned level)
{
    return level ? tp_zst_memory((int)level, 1) : 0;
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

static uint64_t beside_lanes(const struct tp_plan *plan, const struct tp_run_options *run,
                             uint64_t rest)
{
    unsigned threads;
    return archive_memory(plan, rest) + encoder_memory(run, rest, &threads);
}

/* What leaves and one worker take whose box is so large. */
static uint64_t room_of(uint64_t box)
{
    return tp_max_u64(LEAST, box + box / 3 + 1);
}

/* What is known of each file by the end, beside what is known of them now: small ones may be many. */
static uint64_t listed_bytes(const struct tp_plan *plan)
{
    enum { ENTRY = 160 };
    uint64_t bytes = ENTRY * (uint64_t)plan->file_count;
    for (size_t i = 0; i < plan->ckpt->other_count; i++)
        bytes += ENTRY + strlen(plan->ckpt->others[i]);
    return bytes;
}

/* Refuses what does not fit into run->memory with a figure that is enough for all of it: for the
 * plan and the program, `room` for the lanes, and what stands beside them, which may be more where
 * the memory is more. The heap of the next run may have some pages more. */
static enum tp_code refuse(const struct tp_plan *plan, const struct tp_run_options *run,
                           uint64_t used, uint64_t room, const char *what, struct tp_err *err)
{
    enum { MIB = 1 << 20, PAGES = 512 << 10 };
    uint64_t fixed = used + room + PAGES;
    uint64_t mib = 0, enough = tp_ceil_div(fixed + beside_lanes(plan, run, 0), MIB);
    while (enough > mib) {
        mib = enough;
        enough = tp_ceil_div(fixed + beside_lanes(plan, run, mib * MIB - used), MIB);
    }
    tp_err_hint(err, "--max-memory %lluMiB is enough for it", (unsigned long long)mib);
    return tp_fail(err, TP_E_MEMORY, "%s does not fit into %llu MiB of memory", what,
                   (unsigned long long)(run->memory >> 20));
}

/* The room for the lanes of those boxes that the least memory allows. */
static enum tp_code least_room(const struct tp_plan *plan, struct tp_run_options run,
                               uint64_t *room, struct tp_err *err)
{
    bool gpu = run.devices != NULL;
    const struct tp_unit *worst;
    uint64_t needed = 0;
    run.memory = LEAST / 2;
    enum tp_code code = gpu ? TP_OK : fit_jobs(plan, &run, &needed, &worst, err);
    *room = room_of(needed > run.memory ? needed : 0);
    return code;
}

enum tp_code tp_budget_run(const struct tp_plan *plan, struct tp_run_options *run,
                           struct tp_budget *budget, struct tp_err *err)
{
    bool gpu = run->devices != NULL, asked = run->memory != 0;
    const struct tp_run_options before = *run;
    uint64_t most = asked ? run->memory : DEFAULT_MEMORY, files, needed;
    uint64_t heap = tp_os_heap_bytes();
    uint64_t used = heap + listed_bytes(plan) + PROGRAM -
                    (gpu ? tp_min_u64(heap, run->devices->driver) : 0);
    uint64_t rest = most > used ? most - used : 0;
    unsigned encoders;
    uint64_t archives = archive_memory(plan, rest), lanes = gpu ? 4 : 2;
    uint64_t beside = archives + encoder_memory(run, rest, &encoders);
    const struct tp_unit *worst = NULL;
    if (asked && rest < beside + LEAST) {
        enum tp_code failed = least_room(plan, before, &needed, err);
        return failed ? failed : refuse(plan, &before, used, needed, run->zstd
            ? "the plan, with headers, names and the encoder of zstd,"
            : "the plan, with headers and names,", err);
    }
    rest = tp_max_u64(rest > beside ? rest - beside : 0, LEAST);
    tp_zst_cache_limit(archives);
    run->memory = rest / lanes;
    run->drop_source = !tp_add_u64(&files, plan->bytes_in, plan->bytes_out) ||
                       tp_budget_too_large(files);
    *budget = (struct tp_budget){.leaves = gpu ? rest / 2 : rest / 4, .encoders = encoders,
                                  .drop = run->drop_source};
    enum tp_code code = gpu ? TP_OK : fit_jobs(plan, run, &needed, &worst, err);
    if (worst && needed > run->memory) /* one worker with one large box: what leaves do not need */
        run->memory = tp_min_u64(needed, rest - budget->leaves);
    if (run->room)
        run->room->most = (rest - budget->leaves - run->memory) / 4 * 3;
    if (code || !asked || !worst || needed <= run->memory)
        return code;
    tp_err_tensor(err, worst->name);
    return refuse(plan, &before, used, room_of(needed), "the smallest piece of it", err);
}
