/* Kernels that were loaded, and launches as a graph: what a server replays, too, and nothing of
 * the host is in the time of a short kernel. */
#include "fp8_run.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <stdlib.h>

enum { KEPT = 64 /* kernels that stay loaded */ };

static struct {
    struct fp8_kernel kernel[KEPT];
    size_t count, next; /* next: the one that goes when there are too many */
} kept;

struct fp8_problem fp8_problem_of(const struct tilepack_prove_problem *p)
{
    bool contiguous = p->layout == TILEPACK_PROVE_CONTIGUOUS;
    return (struct fp8_problem){.m = contiguous ? p->m * p->e : p->m, .n = p->n, .k = p->k,
                                .groups = p->e, .layout = (enum fp8_layout)p->layout};
}

/* Not by memcmp: what lies between members is anything. */
static bool is_same(const struct fp8_kernel *kernel, const struct tp_sched_config *c,
                    const struct fp8_problem *p)
{
    const struct tp_sched_config *d = &kernel->config;
    const struct fp8_problem *q = &kernel->problem;
    return d->block_m == c->block_m && d->block_n == c->block_n && d->stages == c->stages &&
           d->cluster_m == c->cluster_m && d->cluster_n == c->cluster_n &&
           d->swizzle == c->swizzle && d->smem == c->smem && d->sms == c->sms && q->m == p->m &&
           q->n == p->n && q->k == p->k && q->groups == p->groups && q->layout == p->layout;
}

static enum tp_code get_kernel(const struct tp_sched_config *config,
                               const struct fp8_problem *problem, struct fp8_kernel **kernel,
                               struct tp_err *err)
{
    for (size_t i = 0; i < kept.count; i++)
        if (is_same(&kept.kernel[i], config, problem)) {
            *kernel = &kept.kernel[i];
            return TP_OK;
        }
    *kernel = &kept.kernel[kept.next];
    fp8_close(*kernel);
    kept.count = kept.count < KEPT ? kept.count + 1 : KEPT;
    kept.next = (kept.next + 1) % KEPT;
    return fp8_open(config, problem, *kernel, err);
}

void fp8_run_close(void)
{
    for (size_t i = 0; i < kept.count; i++)
        fp8_close(&kept.kernel[i]);
    kept.count = kept.next = 0;
}

/* ---- rows of experts -------------------------------------------------------------------- */

/* CONTIGUOUS: the expert of each row; MASKED: m for each expert. On the device, in fresh memory;
 * 0 for one expert. */
static enum tp_code equal_groups(const struct tilepack_prove_problem *p, gpu_address *groups,
                                 struct tp_err *err)
{
    uint64_t count = p->layout == TILEPACK_PROVE_CONTIGUOUS ? p->e * p->m
                   : p->layout == TILEPACK_PROVE_MASKED     ? p->e : 0;
    *groups = 0;
    if (count == 0)
        return TP_OK;
    int32_t *numbers = tp_os_alloc(count * sizeof *numbers, err);
    if (!numbers)
        return TP_E_MEMORY;
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (int32_t)(p->layout == TILEPACK_PROVE_MASKED ? p->m : i / p->m);
    enum tp_code code = gpu_check(gpu.alloc(groups, count * sizeof *numbers),
                                  "memory for the experts' rows", err);
    if (code == TP_OK)
        code = gpu_check(gpu.upload(*groups, numbers, count * sizeof *numbers),
                         "the experts' rows", err);
    free(numbers);
    return code;
}

static enum tp_code make_arguments(const struct fp8_kernel *kernel,
                                   const struct tilepack_prove_operands *sets, size_t count,
                                   gpu_address groups, struct fp8_arguments *to,
                                   struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < count && code == TP_OK; i++) {
        const struct tilepack_prove_operands *o = &sets[i];
        struct fp8_operands operands = {
            .a = o->rows, .b = o->codes, .row_scales = o->row_scales, .weight_scales = o->scales,
            .rows = o->row_groups ? o->row_groups : (const void *)(uintptr_t)groups,
            .out = o->out};
        code = fp8_arguments(kernel, &operands, &to[i], err);
    }
    return code;
}

/* ---- launches in a graph -------------------------------------------------------------- */

struct replay {
    void *stream, *graph, *ready, *begin, *end;
};

static void replay_close(struct replay *r)
{
    if (r->begin)
        gpu.event_destroy(r->begin);
    if (r->end)
        gpu.event_destroy(r->end);
    if (r->ready)
        gpu.graph_ready_destroy(r->ready);
    if (r->graph)
        gpu.graph_destroy(r->graph);
    if (r->stream)
        gpu.stream_destroy(r->stream);
}

static enum tp_code replay_record(struct replay *r, const struct fp8_kernel *kernel,
                                  struct fp8_arguments *sets, size_t count, uint32_t launches,
                                  struct tp_err *err)
{
    const char *what = "a graph of launches";
    enum tp_code code = gpu_check(gpu.stream_create(&r->stream, GPU_NON_BLOCKING), what, err);
    if (code || (code = gpu_check(gpu.event_create(&r->begin, 0), what, err)) ||
        (code = gpu_check(gpu.event_create(&r->end, 0), what, err)) ||
        (code = gpu_check(gpu.capture_begin(r->stream, GPU_CAPTURE), what, err)))
        return code;
    for (uint32_t i = 0; i < launches && code == TP_OK; i++)
        code = fp8_launch(kernel, &sets[i % count], r->stream, err);
    int ended = gpu.capture_end(r->stream, &r->graph);
    if (code || (code = gpu_check(ended, what, err)))
        return code;
    return gpu_check(gpu.graph_ready(&r->ready, r->graph, 0), what, err);
}

static enum tp_code replay_time(struct replay *r, double *microseconds, struct tp_err *err)
{
    const char *what = "the kernel failed";
    float milliseconds = 0;
    enum tp_code code = gpu_check(gpu.event_record(r->begin, r->stream), what, err);
    if (code || (code = gpu_check(gpu.graph_launch(r->ready, r->stream), what, err)) ||
        (code = gpu_check(gpu.event_record(r->end, r->stream), what, err)) ||
        (code = gpu_check(gpu.event_wait(r->end), what, err)))
        return code;
    code = gpu_check(gpu.event_elapsed(&milliseconds, r->begin, r->end), what, err);
    *microseconds = 1000.0 * (double)milliseconds;
    return code;
}

/* Once to warm up, and the rounds. */
static enum tp_code measure(const struct fp8_kernel *kernel, struct fp8_arguments *sets,
                            size_t count, const struct fp8_times *times, struct tp_err *err)
{
    struct replay replay = {0};
    double microseconds = 0;
    enum tp_code code = replay_record(&replay, kernel, sets, count, times->launches, err);
    if (code == TP_OK)
        code = replay_time(&replay, &microseconds, err);
    for (uint32_t i = 0; i < times->rounds && code == TP_OK; i++)
        if ((code = replay_time(&replay, &microseconds, err)) == TP_OK)
            times->microseconds[i] = microseconds / times->launches;
    replay_close(&replay);
    return code;
}

/* ---- all of it ------------------------------------------------------------------------ */

static enum tp_code run_sets(const struct fp8_kernel *kernel,
                             const struct tilepack_prove_operands *sets, size_t count,
                             gpu_address groups, const struct fp8_times *times,
                             struct tp_err *err)
{
    void *storage = NULL;
    size_t size = count * sizeof(struct fp8_arguments);
    if (!(storage = tp_os.aligned_alloc(64, tp_round_up(size, 64))))
        return tp_fail(err, TP_E_MEMORY, "out of memory for the kernel's arguments");
    struct fp8_arguments *arguments = storage;
    enum tp_code code = make_arguments(kernel, sets, count, groups, arguments, err);
    if (code == TP_OK && (code = fp8_launch(kernel, arguments, NULL, err)) == TP_OK)
        code = gpu_check(gpu.synchronize(), "the kernel failed", err);
    if (code == TP_OK && times->rounds)
        code = measure(kernel, arguments, count, times, err);
    free(storage);
    return code;
}

enum tp_code fp8_run(const struct tp_sched_config *config,
                     const struct tilepack_prove_problem *problem,
                     const struct tilepack_prove_operands *sets, size_t set_count,
                     const struct fp8_times *times, struct tp_err *err)
{
    struct fp8_problem p = fp8_problem_of(problem);
    struct fp8_kernel *kernel = NULL;
    gpu_address groups = 0;
    enum tp_code code = get_kernel(config, &p, &kernel, err);
    if (code == TP_OK)
        code = equal_groups(problem, &groups, err);
    if (code == TP_OK)
        code = run_sets(kernel, sets, times->rounds ? set_count : 1, groups, times, err);
    if (groups)
        gpu.release(groups);
    return code;
}
