/* The run loop: one queue of jobs (jobs.c), any number of workers.
 *
 * A unit whose codec needs a value over several units (a shared global scale) has
 * its stats jobs issued before the first of its boxes; a box waits until they are
 * done, which cannot block for ever because stats jobs wait for nothing.
 */
#include "pack/run/run.h"

#include "base/num.h"
#include "kernels/op/codec.h"
#include "pack/run/device.h"
#include "pack/run/dropbehind.h"
#include "pack/run/jobs.h"
#include "pack/run/context.h"
#include "pack/run/read_sums.h"
#include "pack/os/os.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TARGET (UINT64_C(1) << 20)
#define MIN_LIMIT (UINT64_C(256) << 10)
#define DEFAULT_MEMORY (UINT64_C(256) << 20)

struct group_state {
    uint64_t pending; /* stats jobs not done yet */
    float amax;
    float global; /* of all, once none is pending */
};

struct run {
    const struct tp_plan *plan;
    struct tp_sink *sink;
    const struct tp_run_options *options;
    const struct tp_grid **grids; /* per unit, of the store */
    struct tp_store store;
    struct group_state *groups;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* ready, stats done, or failed */
    bool ready; /* for other jobs than headers */
    unsigned cursors;
    struct tp_jobs jobs;
    struct tp_dropbehind behind;
    struct tp_err err; /* the first failure */
};

struct worker {
    struct run *run;
    unsigned number;
    struct tp_context ctx;
    pthread_t thread;
};

static bool stopped(struct run *run)
{
    int signal = run->options->stop ? atomic_load(run->options->stop) : 0;
    if (signal && run->err.code == TP_OK) {
        tp_err_hint(&run->err, "run the same command again to go on from here");
        tp_fail(&run->err, signal == 2 ? TP_E_INTERRUPT : TP_E_TERMINATE, "interrupted");
    }
    return run->err.code != TP_OK;
}

static enum tp_code do_header(struct tp_context *ctx, const struct tp_job *job)
{
    const struct tp_plan_file *file = &ctx->plan->files[job->file];
    return ctx->sink->write(ctx->sink, job->file, TP_SINK_HEADER, 0, file->header,
                            file->header_size, &ctx->err);
}

/* The unit of group g whose dtype gives it the least global scale, which is then that of all. */
static uint32_t min_global(const struct tp_plan *plan, uint32_t g, float amax)
{
    const struct tp_stats_group *group = &plan->groups[g];
    const uint32_t *units = &plan->stats_units[group->first_unit];
    uint32_t found = units[0];
    float min = INFINITY;
    for (uint32_t i = 0; i < group->unit_count; i++) {
        const struct tp_unit_form *form = plan->units[units[i]].form;
        float global = tp_codec_global(&form->op, form->dtype, amax);
        if (global < min) {
            min = global;
            found = units[i];
        }
    }
    return found;
}

/* That of group g, by the rule of its unit u; the largest value is of any. */
static enum tp_code make_global(const struct tp_plan *plan, uint32_t g, uint32_t u, float amax,
                                float *global, struct tp_err *err)
{
    const struct tp_unit *unit = &plan->units[u];
    const struct tp_stats_group *group = &plan->groups[g];
    struct tp_err why = {0};
    if (tp_codec_global_of(&unit->form->op, unit->form->dtype, amax, global, &why) == TP_OK)
        return TP_OK;
    err->of_format = why.of_format;
    tp_err_tensor(err, plan->units[plan->stats_units[group->first_unit]].name);
    tp_err_hint(err, "--exclude leaves it as it is");
    return tp_fail(err, why.code, "%s%s",
                   group->unit_count > 1 ? "with what shares its global scale, " : "", why.what);
}

/* Under the lock. */
static void note_lost(const struct run *run, uint32_t u, float amax)
{
    const struct tp_unit_form *form = run->plan->units[u].form;
    struct tp_lost_globals *lost = run->options->lost;
    if (!lost || !tp_codec_global_lost(&form->op, form->dtype, amax))
        return;
    if (lost->count == 0 || u < lost->unit || (u == lost->unit && amax < lost->amax)) {
        lost->unit = u;
        lost->name = run->plan->units[u].name;
        lost->dtype = form->dtype;
        lost->amax = amax;
    }
    lost->count++;
}

static enum tp_code do_stats(struct run *run, struct tp_context *ctx, const struct tp_job *job)
{
    uint32_t g = tp_jobs_group(&run->jobs, job->unit, job->index);
    struct group_state *group = &run->groups[g];
    float amax = 0;
    enum tp_code code = tp_context_stats(ctx, job->unit, run->grids[job->unit], job->index, &amax);
    pthread_mutex_lock(&run->lock);
    if (amax > group->amax)
        group->amax = amax; /* a maximum is the same in any order */
    if (code == TP_OK && group->pending == 1) {
        uint32_t u = min_global(run->plan, g, group->amax);
        code = make_global(run->plan, g, u, group->amax, &group->global, &ctx->err);
        if (code == TP_OK)
            note_lost(run, u, group->amax);
    }
    if (code == TP_OK && --group->pending == 0) /* a failed one is never done: see work() */
        pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    return code;
}

/* Waits for the box's global scale; false when the run has failed meanwhile. */
static bool wait_for_stats(struct run *run, const struct tp_job *job, float *global)
{
    const struct tp_unit *unit = &run->plan->units[job->unit];
    if (unit->stats == UINT32_MAX)
        return true;
    uint32_t g = tp_jobs_group(&run->jobs, job->unit, job->index);
    *global = run->plan->groups[g].given;
    if (*global > 0)
        return true;
    const struct group_state *group = &run->groups[g];
    pthread_mutex_lock(&run->lock);
    while (group->pending > 0 && run->err.code == TP_OK)
        pthread_cond_wait(&run->changed, &run->lock);
    *global = group->global;
    bool ready = group->pending == 0;
    pthread_mutex_unlock(&run->lock);
    return ready;
}

static void report(const struct run *run, uint64_t bytes, const char *name)
{
    if (run->options->progress)
        run->options->progress(run->options->progress_arg, bytes, name);
}

static enum tp_code do_job(struct run *run, struct tp_context *ctx, const struct tp_job *job)
{
    const struct tp_plan *plan = run->plan;
    const struct tp_output *output = &plan->outputs[job->output];
    enum tp_code code = TP_OK;
    float global = 1; /* where there is none, it changes nothing */
    switch (job->kind) {
    case TP_JOB_HEADER:
        return do_header(ctx, job);
    case TP_JOB_STATS:
        return do_stats(run, ctx, job);
    case TP_JOB_CONSTANT:
        return tp_sink_constant(ctx->sink, job->file, job->output, output, &ctx->err);
    case TP_JOB_COPY: {
        uint64_t size = tp_copy_bytes(output, job->index);
        code = tp_context_copy(ctx, job->output, job->index, size);
        tp_dropbehind_copy(&run->behind, &plan->ckpt->tensors[output->source], job->index, size);
        report(run, size, output->name);
        return code;
    }
    case TP_JOB_BOX: {
        const struct tp_unit *unit = &plan->units[job->unit];
        if (!wait_for_stats(run, job, &global))
            return TP_OK;
        code = tp_context_box(ctx, job->unit, run->grids[job->unit], job->index, global);
        tp_dropbehind_box(&run->behind, job->unit);
        struct tp_box box = tp_grid_box(unit, run->grids[job->unit], job->index);
        report(run, tp_value_bytes(box.size, unit->form->dtype), unit->name);
        return code;
    }
    case TP_JOB_NONE:
        break;
    }
    return code;
}

static void fail(struct run *run, const struct tp_err *err)
{
    pthread_mutex_lock(&run->lock);
    if (run->err.code == TP_OK)
        run->err = *err;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static bool next_job(struct worker *worker, struct tp_job *job)
{
    struct run *run = worker->run;
    job->kind = TP_JOB_NONE;
    pthread_mutex_lock(&run->lock);
    if (!stopped(run))
        *job = tp_jobs_next(&run->jobs, worker->number);
    pthread_mutex_unlock(&run->lock);
    return job->kind != TP_JOB_NONE;
}

/* The header of a cursor's first file, unless the run is ready: others take it then. */
static bool first_header(struct worker *worker, struct tp_job *job)
{
    struct run *run = worker->run;
    pthread_mutex_lock(&run->lock);
    bool early = !run->ready && !stopped(run);
    if (early)
        *job = tp_jobs_next(&run->jobs, worker->number);
    pthread_mutex_unlock(&run->lock);
    return early && job->kind == TP_JOB_HEADER;
}

/* While GPUs start, one worker for each cursor begins its first file. */
static void begin_file(struct worker *worker)
{
    struct tp_sink *sink = worker->run->sink;
    struct tp_context *ctx = &worker->ctx;
    struct tp_job job;
    if (first_header(worker, &job) &&
        (sink->prepare(sink, job.file, &ctx->err) || do_header(ctx, &job)))
        fail(worker->run, &ctx->err);
}

static bool begins_file(const struct worker *worker)
{
    const struct run *run = worker->run;
    return run->options->devices && run->sink->prepare && worker->number > 0 &&
           worker->number <= run->cursors;
}

static void wait_until_ready(struct run *run)
{
    pthread_mutex_lock(&run->lock);
    while (!run->ready && run->err.code == TP_OK)
        pthread_cond_wait(&run->changed, &run->lock);
    pthread_mutex_unlock(&run->lock);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct tp_job job;
    struct tp_read_watch watch = {worker->run->options->sums, TP_READ_BY_NONE};
    tp_stage_start(worker->run->options->stats);
    tp_checkpoint_tell(watch.sums ? tp_read_sums_note : NULL, &watch);
    if (begins_file(worker))
        begin_file(worker);
    wait_until_ready(worker->run);
    while (next_job(worker, &job)) {
        watch.file = job.kind == TP_JOB_STATS ? TP_READ_BY_NONE : job.file; /* boxes read it again
                                                                               */
        if (do_job(worker->run, &worker->ctx, &job)) {
            fail(worker->run, &worker->ctx.err);
            break;
        }
    }
    tp_checkpoint_tell(NULL, NULL);
    tp_stage_stop();
    return NULL;
}

struct tp_box_hints tp_run_box_hints(const struct tp_run_options *options, unsigned jobs)
{
    uint64_t memory = options->memory ? options->memory : DEFAULT_MEMORY;
    struct tp_box_hints hints = {.target = DEFAULT_TARGET, .memory = memory / jobs};
    hints.limit = tp_max_u64(hints.memory / 4, MIN_LIMIT);
    if (options->devices && options->devices->count && !options->same_boxes) {
        hints.limit = options->devices->slot; /* few, large boxes hide the latency of a GPU */
        hints.target = hints.limit / 2;
        hints.memory = 4 * hints.limit; /* most of it pinned, or on the device */
    }
    if (options->box_target)
        hints.target = options->box_target;
    hints.target = tp_min_u64(hints.target, hints.limit);
    return hints;
}

/* Grids of all units; layers repeat, so most are found among the last few. */
static enum tp_code make_grids(struct run *run, struct tp_err *err)
{
    const struct tp_plan *plan = run->plan;
    const struct tp_run_options *options = run->options;
    struct tp_box_hints hints = tp_run_box_hints(options, options->jobs);
    /* Each file may have two tensors under way: the next begins before the last box ends. */
    hints.assembles = run->sink->assembles / 2 / run->cursors;
    run->grids = tp_os_zalloc(plan->unit_count + 1, sizeof *run->grids, err);
    run->groups = tp_os_zalloc(plan->group_count + 1, sizeof *run->groups, err);
    if (!run->grids || !run->groups)
        return TP_E_MEMORY;
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        size_t back = 1;
        while (back <= 16 && back <= u && !tp_same_boxes(plan, unit, unit - back))
            back++;
        if (back <= 16 && back <= u) {
            run->grids[u] = run->grids[u - back];
        } else {
            struct tp_grid *grid = tp_store_zalloc(&run->store, 1, sizeof *grid, err);
            enum tp_code code = grid ? tp_unit_boxes(plan, unit, &hints, grid, err) : TP_E_MEMORY;
            if (code)
                return code;
            run->grids[u] = grid;
        }
        for (uint64_t e = 0; unit->stats != UINT32_MAX && e < unit->form->box.e; e++)
            run->groups[unit->stats + e].pending += run->grids[u]->expert_boxes;
    }
    return TP_OK;
}

static unsigned worker_count(const struct tp_run_options *options)
{
    const struct tp_devices *devices = options->devices;
    return devices && devices->count ? devices->count * devices->slots_per_device : options->jobs;
}

/* Files that no earlier run has finished. */
static uint64_t files_left(const struct run *run)
{
    const bool *skip = run->options->skip_file;
    uint64_t left = 0;
    for (size_t f = 0; f < run->plan->file_count; f++)
        left += !(skip && skip[f]);
    return left;
}

/* One file at a time for every few workers: more would wait for each other's writes.
 * GPUs bring large pieces, which go into the file as they come, each by its worker.
 * Each cursor has a file to begin with: begin_file() relies on it. */
static unsigned cursor_count(const struct run *run, unsigned workers)
{
    const struct tp_devices *devices = run->options->devices;
    uint64_t cursors = workers / (devices && devices->count ? 2 : 4);
    cursors = tp_min_u64(tp_min_u64(cursors, files_left(run)), TP_MAX_CURSORS);
    return (unsigned)tp_max_u64(cursors, 1);
}

/* One worker for each slot of each GPU, or for each job of the CPU. */
static struct worker *make_workers(struct run *run, unsigned count, struct tp_err *err)
{
    struct worker *workers = tp_os_zalloc(count, sizeof *workers, err);
    for (unsigned i = 0; workers && i < count; i++) {
        workers[i].run = run;
        workers[i].number = i;
        workers[i].ctx.plan = run->plan;
        workers[i].ctx.sink = run->sink;
        workers[i].ctx.options = run->options;
    }
    return workers;
}

static enum tp_code make_jobs(struct run *run, struct tp_err *err)
{
    run->jobs = (struct tp_jobs){.plan = run->plan, .skip_file = run->options->skip_file,
                                 .cursor_count = run->cursors};
    run->jobs.issues = tp_os_zalloc(run->plan->group_count + 1, sizeof *run->jobs.issues, err);
    return run->jobs.issues ? TP_OK : TP_E_MEMORY;
}

static enum tp_code open_devices(struct run *run, struct worker *workers, unsigned count,
                                 struct tp_err *err)
{
    struct tp_devices *devices = run->options->devices;
    if (!devices || !devices->count)
        return TP_OK;
    struct tp_compute *computes = tp_os_zalloc(count, sizeof *computes, err);
    enum tp_code code = computes ? tp_devices_open(devices, computes, err) : TP_E_MEMORY;
    for (unsigned i = 0; i < count && code == TP_OK; i++)
        workers[i].ctx.compute = computes[i];
    free(computes);
    return code;
}

/* What the workers wait for: GPUs, and the boxes, whose size depends on them. */
static enum tp_code get_ready(struct run *run, struct worker *workers, unsigned count,
                              struct tp_err *err)
{
    enum tp_code code;
    if ((code = open_devices(run, workers, count, err)) || (code = make_grids(run, err)))
        return code;
    if (run->options->drop_source &&
        (code = tp_dropbehind_open(&run->behind, run->plan, run->grids, err)))
        return code;
    pthread_mutex_lock(&run->lock);
    run->jobs.grids = run->grids;
    run->ready = true;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    return TP_OK;
}

uint64_t tp_run_work(const struct tp_plan *plan, const bool *files)
{
    uint64_t bytes = 0;
    for (size_t u = 0; u < plan->unit_count; u++)
        if (!files || files[plan->units[u].file])
            bytes += tp_value_bytes(plan->units[u].form->box, plan->units[u].form->dtype);
    for (size_t o = 0; o < plan->output_count; o++)
        if (plan->outputs[o].unit == UINT32_MAX && (!files || files[plan->outputs[o].file]))
            bytes += plan->outputs[o].bytes;
    return bytes;
}

static void open_run(struct run *run)
{
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->changed, NULL);
}

static void close_run(struct run *run)
{
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->changed);
    tp_dropbehind_close(&run->behind);
    free(run->grids);
    tp_store_close(&run->store);
    free(run->groups);
    free(run->jobs.issues);
}

enum tp_code tp_run(const struct tp_plan *plan, struct tp_sink *sink,
                    const struct tp_run_options *options, struct tp_err *err)
{
    struct run run = {.plan = plan, .sink = sink, .options = options};
    unsigned started = 0, count = worker_count(options);
    open_run(&run);
    run.cursors = cursor_count(&run, count);
    struct worker *workers = make_workers(&run, count, &run.err);
    enum tp_code code = workers ? make_jobs(&run, &run.err) : TP_E_MEMORY;
    while (code == TP_OK && started + 1 < count &&
           tp_os.start_thread(&workers[started + 1].thread, work, &workers[started + 1]) == 0)
        started++;
    if (code == TP_OK) {
        struct tp_err failure = {0};
        if (get_ready(&run, workers, count, &failure))
            fail(&run, &failure);
        work(&workers[0]); /* this thread works too, so one worker always exists */
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i + 1].thread, NULL);
    for (unsigned i = 0; workers && i < count; i++)
        tp_context_close(&workers[i].ctx);
    if (run.err.code != TP_OK && err && err->code == TP_OK)
        *err = run.err;
    close_run(&run);
    free(workers);
    return run.err.code;
}
