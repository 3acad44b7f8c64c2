/* Verifying against the source: the recorded request is planned again on it, run,
 * and every byte compared; on the way the stored values are compared with the
 * source's. GPUs make bytes, nothing else, and in the boxes of the CPU: what is
 * found does not depend on them.
 */
#include "pack/check/verify.h"

#include "base/num.h"
#include "pack/check/verify_build.h"
#include "pack/os/os.h"
#include "pack/run/budget.h"
#include "pack/run/run.h"
#include "pack/source/descriptor.h"
#include "pack/source/page_cache.h"

#include <string.h>

/* Memory of one worker, whatever the number of workers: boxes depend on it. */
#define WORKER_BYTES (UINT64_C(8) << 20)

struct against {
    struct tp_comparison c;
    struct tp_plan plan;
    struct tp_side source;      /* with what the request says of its model */
    struct tp_weights weights;
    struct tp_page_cache cache[2]; /* of stored and source */
    struct tp_value_observer observer;
    struct tp_devices devices;
};

static const char *recorded_request(const struct tp_checkpoint *ckpt)
{
    for (size_t f = 0; f < ckpt->file_count; f++) {
        const char *text = tp_st_meta(&ckpt->files[f].header, TP_META_REQUEST);
        if (text)
            return text;
    }
    return NULL;
}

static const struct tp_weight *stored_weight(const struct against *a, const struct tp_unit *unit)
{
    for (size_t w = 0; w < a->c.stored->weights->count; w++) {
        const struct tp_weight *weight = &a->c.stored->weights->items[w];
        if (tp_prefix_order(weight->name, weight->form->separator, unit->name,
                            unit->form->separator) == 0)
            return weight;
    }
    return NULL;
}

/* With other numbers every byte could differ: that is said once, before. */
static enum tp_code check_importance(const struct against *a, const struct tp_request *request)
{
    for (size_t u = 0; u < a->plan.unit_count && request->importance; u++) {
        const struct tp_unit *unit = &a->plan.units[u];
        const struct tp_weight *stored = unit->form->format ? stored_weight(a, unit) : NULL;
        if (!stored ||
            memcmp(&stored->form->search, &unit->form->search, sizeof unit->form->search) == 0)
            continue;
        tp_err_path(a->c.err, a->c.options->importance);
        tp_err_tensor(a->c.err, unit->name);
        tp_err_hint(a->c.err, "name the file that %s was made with", a->c.stored->ckpt->path);
        return tp_fail(a->c.err, TP_E_INPUT, "its importance is not what the weight was converted "
                       "with");
    }
    return TP_OK;
}

/* The source's weights as the request has them, where it says something of the model. */
static enum tp_code apply_choice(struct against *a, const struct tp_request *request)
{
    if (!request->models.own && !request->models.layout)
        return TP_OK;
    enum tp_code code = tp_weights_find_as(a->c.source->ckpt, &request->models, &a->weights,
                                           a->c.err);
    a->source = (struct tp_side){.ckpt = a->c.source->ckpt, .weights = &a->weights};
    a->c.source = &a->source;
    return code;
}

static enum tp_code make_plan(struct against *a, struct tp_request *request)
{
    const struct tp_checkpoint *stored = a->c.stored->ckpt;
    const char *text = recorded_request(stored);
    if (!text)
        return tp_refuse_at(a->c.err, TP_E_UNSUPPORTED, stored->path,
                            "`tilepack diff` compares two checkpoints by their values",
                            "it does not say how it was converted, so that cannot be done again");
    enum tp_code code = tp_request_parse(text, request, a->c.err);
    if (code) {
        tp_err_path(a->c.err, stored->path);
        return code;
    }
    if (a->c.options->importance &&
        (code = tp_request_importance(request, a->c.options->importance, a->c.err)))
        return code;
    if ((code = apply_choice(a, request)))
        return code;
    const char *file = stored->directory ? NULL : stored->files[0].name;
    const struct tp_checkpoint *source = a->c.source->ckpt;
    code = request->restore ? tp_plan_unpack(source, a->c.source->weights, request->dtype,
                                             request->shard_size, file, &a->plan, a->c.err)
                            : tp_plan_convert(source, a->c.source->weights, request, file,
                                              &a->plan, a->c.err);
    if (code == TP_OK && (code = check_importance(a, request)))
        return code;
    if (code) {
        tp_err_path(a->c.err, source->path);
        tp_err_hint(a->c.err, "is this the checkpoint that %s was made from?", stored->path);
    }
    return code;
}

static enum tp_code start_results(struct against *a)
{
    struct tp_verify_report *report = a->c.report;
    report->units = tp_unit_results_new(&a->plan, a->c.err);
    if (!report->units)
        return TP_E_MEMORY;
    report->unit_count = a->plan.unit_count;
    report->kept = a->plan.kept_count;
    return tp_value_observer_open(&a->observer, &a->plan, a->c.source, false, report->units,
                                  a->c.err);
}

/* Nothing is to stay in the page cache of files from which too much for it was read. */
static enum tp_code open_page_caches(struct against *a)
{
    const struct tp_checkpoint *stored = a->c.stored->ckpt, *source = a->c.source->ckpt;
    if (!tp_budget_too_large(tp_checkpoint_bytes(stored) + tp_checkpoint_bytes(source)))
        return TP_OK;
    enum tp_code code = tp_page_cache_open(&a->cache[0], stored, a->c.err);
    return code ? code : tp_page_cache_open(&a->cache[1], source, a->c.err);
}

static void progress(void *arg, uint64_t bytes, const char *tensor)
{
    struct against *a = arg;
    for (int i = 0; i < 2; i++)
        tp_page_cache_count(&a->cache[i], bytes);
    if (a->c.options->progress)
        a->c.options->progress(a->c.options->progress_arg, bytes, tensor);
}

/* A slot for each worker, who has more to do than the GPU, and slots for boxes of the CPU. */
static enum tp_code choose_devices(struct against *a)
{
    const struct tp_verify_options *options = a->c.options;
    struct tp_devices *devices = &a->devices;
    if (!options->device)
        return TP_OK;
    enum tp_code code = tp_devices_choose(options->device, &a->plan, options->jobs, 0, 0, devices,
                                          a->c.err);
    if (code || !devices->count)
        return code;
    devices->slots_per_device = (unsigned)tp_ceil_div(options->jobs, devices->count);
    devices->slot = tp_min_u64(devices->slot, WORKER_BYTES / 4);
    return TP_OK;
}

static enum tp_code run(struct against *a, const struct tp_request *request)
{
    struct tp_run_options options = {
        .jobs = a->c.options->jobs,
        .devices = a->devices.count ? &a->devices : NULL,
        .same_boxes = true,
        .memory = WORKER_BYTES * a->c.options->jobs,
        .keep_nonfinite = request->keep_nonfinite,
        .stop = a->c.options->stop,
        .progress = progress,
        .progress_arg = a,
        .observe = tp_value_observe,
        .observe_arg = &a->observer,
    };
    struct tp_sink *sink = &a->c.sink.sink;
    enum tp_code code = tp_compare_sink_open(&a->c.sink, &a->plan, a->c.stored->ckpt, a->c.err);
    if (code)
        return code;
    if (a->c.options->total)
        a->c.options->total(a->c.options->progress_arg, tp_run_work(&a->plan, NULL));
    return tp_run(&a->plan, sink, &options, a->c.err);
}

static void close_all(struct against *a)
{
    tp_value_observer_close(&a->observer);
    for (int i = 0; i < 2; i++)
        tp_page_cache_close(&a->cache[i]);
    tp_compare_sink_close(&a->c.sink);
    tp_plan_close(&a->plan);
}

enum tp_code tp_verify_against(const struct tp_side *stored, const struct tp_side *source,
                               const struct tp_verify_options *options,
                               struct tp_verify_report *report, struct tp_err *err)
{
    struct against a = {.c = {.stored = stored, .source = source, .options = options,
                              .report = report, .err = err}};
    struct tp_request request = {0};
    a.c.plan = &a.plan;
    tp_budget_compare(stored->ckpt, source->ckpt);
    enum tp_code code = make_plan(&a, &request);
    if (code == TP_OK && (code = tp_verify_outputs(&a.c)) == TP_OK &&
        (code = start_results(&a)) == TP_OK && (code = open_page_caches(&a)) == TP_OK &&
        (code = choose_devices(&a)) == TP_OK &&
        (code = run(&a, &request)) == TP_OK &&
        (code = tp_verify_differences(&a.c)) == TP_OK)
        code = tp_checkpoint_unchanged(source->ckpt, err);
    if (code == TP_OK && !report->unit_count && !a.plan.kept_unit_count)
        code = tp_verify_problem(report, NULL, NULL, err, "no weight was derived again: nothing is "
                                 "proved but copies of plain ones");
    memcpy(report->device, a.devices.why, sizeof report->device);
    close_all(&a);
    tp_weights_close(&a.weights);
    tp_request_close(&request);
    return code;
}
