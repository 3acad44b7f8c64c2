/* Verifying against the source: the recorded request is planned again on it, run,
 * and every byte compared; on the way the stored values are compared with the
 * source's.
 *
 * Sums are kept per box and added in the order of the boxes, and the boxes do not
 * depend on the number of threads, so the figures are the same on every run.
 */
#include "pack/check/verify.h"

#include "base/num.h"
#include "kernels/op/kernel.h"
#include "pack/run/budget.h"
#include "pack/os/os.h"
#include "pack/run/ranks_io.h"
#include "pack/source/descriptor.h"
#include "pack/source/traces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory of one worker, whatever the number of workers: boxes depend on it. */
#define WORKER_BYTES (UINT64_C(32) << 20)

/* Buffers of one observation; kept in a list while nobody uses them. */
struct bench {
    struct bench *next;
    struct tp_value_reader reader;
    struct tp_buffer source, decoded, scratch;
};

/* Sums of a unit's boxes until all of them are there. */
struct sums {
    struct tp_distance *boxes;
    size_t count, capacity; /* count: highest box seen + 1 */
    uint64_t values;        /* seen */
};

struct against {
    const struct tp_side *stored, *source;
    const struct tp_verify_options *options;
    struct tp_verify_report *report;
    struct tp_plan plan;
    struct tp_ranks ranks;          /* of the plan, when a rank is verified */
    const struct tp_plan *expected; /* what should be stored: the plan, or that of the rank */
    struct tp_compare_sink sink;
    struct tp_traces traces[2];     /* of stored and source */
    struct sums *sums; /* per unit */
    struct bench *idle;
    pthread_mutex_t lock; /* of sums and idle */
    uint32_t *by_prefix;  /* packed stored weights, sorted; made when needed */
    size_t packed;
    struct tp_err *err;
};

/* ---- values on the way ----------------------------------------------------- */

static struct bench *take_bench(struct against *a, struct tp_err *err)
{
    pthread_mutex_lock(&a->lock);
    struct bench *bench = a->idle;
    if (bench)
        a->idle = bench->next;
    pthread_mutex_unlock(&a->lock);
    return bench ? bench : tp_os_zalloc(1, sizeof *bench, err);
}

static void put_bench(struct against *a, struct bench *bench)
{
    pthread_mutex_lock(&a->lock);
    bench->next = a->idle;
    a->idle = bench;
    pthread_mutex_unlock(&a->lock);
}

/* The source's values of a box: those the run had in its hands, or read again. */
static enum tp_code source_values(struct against *a, const struct tp_observed *seen,
                                  struct bench *bench, struct tp_err *err)
{
    const struct tp_unit *unit = &a->plan.units[seen->unit];
    struct tp_box box = seen->box;
    uint64_t per_expert = box.size.n * box.size.k, experts = box.size.e;
    enum tp_code code = tp_buffer_room(&bench->source, experts * per_expert * sizeof(float), err);
    if (code)
        return code;
    if (seen->dtype != TP_DTYPE_NONE && seen->values) {
        tp_widen(seen->dtype, seen->values, experts * per_expert, bench->source.data);
        return TP_OK;
    }
    box.size.e = 1;
    for (uint64_t e = 0; e < experts && code == TP_OK; e++, box.e++)
        code = tp_read_values(a->source, unit, &box, (float *)bench->source.data + e * per_expert,
                              &bench->reader, err);
    return code;
}

static enum tp_code decode(const struct tp_op *op, const struct tp_observed *seen,
                           struct bench *bench, struct tp_err *err)
{
    struct tp_args args = {.box = seen->box.size, .dtype = TP_F32};
    uint64_t count = args.box.e * args.box.n * args.box.k;
    enum tp_code code = tp_buffer_room(&bench->decoded, count * sizeof(float), err);
    if (code || (code = tp_buffer_room(&bench->scratch, tp_encode_scratch(op, args.box), err)))
        return code;
    for (uint32_t i = 0; i < op->outs; i++)
        args.in[i] = seen->out[i];
    args.out[0] = bench->decoded.data;
    args.scratch = bench->scratch.data;
    tp_decode_find(op, TP_F32)(op, &args);
    return TP_OK;
}

/* Adds a box; with the unit's last one its sums are added up. */
static enum tp_code keep_sums(struct against *a, const struct tp_observed *seen,
                              const struct tp_distance *distance, struct tp_err *err)
{
    const struct tp_unit *unit = &a->plan.units[seen->unit];
    struct sums *sums = &a->sums[seen->unit];
    pthread_mutex_lock(&a->lock);
    size_t before = sums->capacity;
    enum tp_code code = tp_os_grow((void **)&sums->boxes, &sums->capacity,
                                   (size_t)seen->box_index + 1, sizeof *sums->boxes, err);
    if (code == TP_OK) {
        memset(sums->boxes + before, 0, (sums->capacity - before) * sizeof *sums->boxes);
        sums->boxes[seen->box_index] = *distance;
        if (seen->box_index >= sums->count)
            sums->count = (size_t)seen->box_index + 1;
        sums->values += distance->count;
        if (sums->values == unit->box.e * unit->box.n * unit->box.k) {
            for (size_t i = 0; i < sums->count; i++)
                tp_distance_add(&a->report->units[seen->unit].distance, &sums->boxes[i], 0);
            free(sums->boxes);
            *sums = (struct sums){0};
        }
    }
    pthread_mutex_unlock(&a->lock);
    return code;
}

static enum tp_code observe(void *arg, const struct tp_observed *seen, struct tp_err *err)
{
    struct against *a = arg;
    const struct tp_unit *unit = &a->plan.units[seen->unit];
    struct tp_distance distance;
    if (!unit->format)
        return TP_OK;
    struct bench *bench = take_bench(a, err);
    if (!bench)
        return TP_E_MEMORY;
    enum tp_code code = source_values(a, seen, bench, err);
    if (code == TP_OK && (code = decode(&unit->op, seen, bench, err)) == TP_OK) {
        tp_distance_of(bench->source.data, bench->decoded.data,
                       seen->box.size.e * seen->box.size.n * seen->box.size.k, &distance);
        code = keep_sums(a, seen, &distance, err);
    }
    put_bench(a, bench);
    return code;
}

/* ---- the plan and what is stored -------------------------------------------- */

static const char *recorded_request(const struct tp_checkpoint *ckpt)
{
    for (size_t f = 0; f < ckpt->file_count; f++) {
        const char *text = tp_st_meta(&ckpt->files[f].header, TP_META_REQUEST);
        if (text)
            return text;
    }
    return NULL;
}

static enum tp_code make_plan(struct against *a, struct tp_request *request)
{
    const struct tp_checkpoint *stored = a->stored->ckpt;
    const char *text = recorded_request(stored);
    if (!text) {
        tp_err_path(a->err, stored->path);
        tp_err_hint(a->err, "`tilepack diff` compares two checkpoints by their values");
        return tp_fail(a->err, TP_E_UNSUPPORTED,
                       "it does not say how it was converted, so that cannot be done again");
    }
    enum tp_code code = tp_request_parse(text, request, a->err);
    if (code) {
        tp_err_path(a->err, stored->path);
        return code;
    }
    const char *file = stored->directory ? NULL : stored->files[0].name;
    code = request->restore ? tp_plan_unpack(a->source->ckpt, a->source->weights, request->dtype,
                                             request->shard_size, file, &a->plan, a->err)
                            : tp_plan_convert(a->source->ckpt, a->source->weights, request, file,
                                              &a->plan, a->err);
    if (code) {
        tp_err_path(a->err, a->source->ckpt->path);
        tp_err_hint(a->err, "is this the checkpoint that %s was made from?", stored->path);
    }
    return code;
}

/* The slices of one rank are compared with those of the whole, made again. */
static enum tp_code make_expected(struct against *a, const struct tp_request *request)
{
    a->expected = &a->plan;
    if (!request->tp_ranks)
        return TP_OK;
    if (request->tp_ranks > 1024 || request->tp_rank >= request->tp_ranks) {
        tp_err_path(a->err, a->stored->ckpt->path);
        return tp_fail(a->err, TP_E_INPUT, "the recorded request is of rank %u of %u",
                       request->tp_rank, request->tp_ranks);
    }
    enum tp_code code = tp_ranks_make(&a->plan, request, request->tp_ranks, &a->ranks, a->err);
    if (code == TP_OK)
        a->expected = &a->ranks.plans[request->tp_rank];
    return code;
}

static const char *mismatch(const struct tp_output *output, const struct tp_tensor *tensor)
{
    if (!tensor)
        return "is missing";
    if (tensor->dtype != output->dtype)
        return "has another dtype";
    if (tensor->rank != output->rank ||
        memcmp(tensor->shape, output->shape, tensor->rank * sizeof *tensor->shape) != 0)
        return "has another shape";
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Stored tensors that the source does not give: *count of them; problems when
 * `report`. */
static enum tp_code find_extra(struct against *a, bool report, size_t *count)
{
    const struct tp_checkpoint *stored = a->stored->ckpt;
    enum tp_code code = TP_OK;
    const char **names = tp_os_zalloc(a->expected->output_count + 1, sizeof *names, a->err);
    if (!names)
        return TP_E_MEMORY;
    *count = 0;
    for (size_t o = 0; o < a->expected->output_count; o++)
        names[o] = a->expected->outputs[o].name;
    qsort(names, a->expected->output_count, sizeof *names, by_text);
    for (size_t t = 0; t < stored->tensor_count && code == TP_OK; t++) {
        const struct tp_tensor *tensor = &stored->tensors[t];
        if (bsearch(&tensor->name, names, a->expected->output_count, sizeof *names, by_text))
            continue;
        ++*count;
        if (report)
            code = tp_verify_problem(a->report, stored->files[tensor->file].name, tensor->name,
                                     a->err, "is not among the tensors that the source gives");
    }
    free(names);
    return code;
}

/* Outputs that are not stored, or otherwise: *count of them and the first. */
static enum tp_code find_wrong(struct against *a, bool report, size_t *count,
                               const struct tp_output **first)
{
    enum tp_code code = TP_OK;
    *count = 0;
    for (size_t o = 0; o < a->expected->output_count && code == TP_OK; o++) {
        const struct tp_output *output = &a->expected->outputs[o];
        const char *what = mismatch(output, tp_checkpoint_find(a->stored->ckpt, output->name));
        if (!what)
            continue;
        if (++*count == 1)
            *first = output;
        if (report)
            code = tp_verify_problem(a->report, NULL, output->name, a->err, "%s", what);
    }
    return code;
}

/* Names, dtypes and shapes. When a quarter of them differ, it is another model. */
static enum tp_code check_outputs(struct against *a)
{
    const struct tp_checkpoint *stored = a->stored->ckpt;
    size_t wrong, extra;
    const struct tp_output *first = NULL;
    enum tp_code code = find_wrong(a, false, &wrong, &first);
    if (code == TP_OK)
        code = find_extra(a, false, &extra);
    if (code)
        return code;
    if (4 * (wrong + extra) > a->expected->output_count + stored->tensor_count) {
        tp_err_path(a->err, a->source->ckpt->path);
        tp_err_hint(a->err, "name the checkpoint that %s was made from", stored->path);
        return tp_fail(a->err, TP_E_INPUT,
                       "this is another model: of the %zu tensors that it gives, %zu are not in %s "
                       "with that name, dtype and shape%s%.200s", a->expected->output_count, wrong,
                       stored->path, first ? ", such as " : "", first ? first->name : "");
    }
    code = wrong ? find_wrong(a, true, &wrong, &first) : TP_OK;
    return code || !extra ? code : find_extra(a, true, &extra);
}

static enum tp_code start_results(struct against *a)
{
    struct tp_verify_report *report = a->report;
    a->sums = tp_os_zalloc(a->plan.unit_count + 1, sizeof *a->sums, a->err);
    report->units = tp_os_zalloc(a->plan.unit_count + 1, sizeof *report->units, a->err);
    if (!a->sums || !report->units)
        return TP_E_MEMORY;
    report->unit_count = a->plan.unit_count;
    report->kept = a->plan.kept_count;
    for (size_t u = 0; u < a->plan.unit_count; u++) {
        const struct tp_unit *unit = &a->plan.units[u];
        report->units[u].box = unit->box;
        report->units[u].rank = unit->rank;
        report->units[u].format = unit->format;
        if (!(report->units[u].name = tp_os_format(a->err, "%s", unit->name)))
            return TP_E_MEMORY;
    }
    return TP_OK;
}

/* Of the files that too much for the page cache was read from, nothing is to stay. */
static enum tp_code open_traces(struct against *a)
{
    const struct tp_checkpoint *stored = a->stored->ckpt, *source = a->source->ckpt;
    if (!tp_budget_too_large(tp_checkpoint_bytes(stored) + tp_checkpoint_bytes(source)))
        return TP_OK;
    enum tp_code code = tp_traces_open(&a->traces[0], stored, a->err);
    return code ? code : tp_traces_open(&a->traces[1], source, a->err);
}

static void progress(void *arg, uint64_t bytes, const char *tensor)
{
    struct against *a = arg;
    for (int i = 0; i < 2; i++)
        tp_traces_count(&a->traces[i], bytes);
    if (a->options->progress)
        a->options->progress(a->options->progress_arg, bytes, tensor);
}

static enum tp_code run(struct against *a, const struct tp_request *request)
{
    struct tp_run_options options = {
        .jobs = a->options->jobs,
        .memory = WORKER_BYTES * a->options->jobs,
        .keep_nonfinite = request->keep_nonfinite,
        .stop = a->options->stop,
        .progress = progress,
        .progress_arg = a,
        .observe = observe,
        .observe_arg = a,
    };
    struct tp_scatter scatter;
    enum tp_code code = tp_compare_sink_open(&a->sink, a->expected, a->stored->ckpt, a->err);
    if (code)
        return code;
    if (a->expected == &a->plan)
        return tp_run(&a->plan, &a->sink.sink, &options, a->err);
    tp_scatter_open(&scatter, &a->ranks, (unsigned)(a->expected - a->ranks.plans), &a->sink.sink);
    return tp_run(&a->ranks.run, &scatter.sink, &options, a->err);
}

/* ---- differences ------------------------------------------------------------ */

/* Which elements the byte of a packed output belongs to. */
static void place_of(const struct tp_unit *unit, uint32_t i, uint64_t byte, char *text, size_t size)
{
    struct tp_layout layout;
    uint64_t at[TP_DIMS];
    const struct tp_op_out *out = &unit->op.out[i];
    text[0] = '\0';
    if (!out->layout || tp_op_layout(&unit->op, i, unit->box, &layout, NULL))
        return;
    tp_layout_coord(&layout, byte * 8 / tp_element_bits(out->element), at);
    uint64_t n = at[TP_DIM_N] * out->per_n, k = at[TP_DIM_K] * out->per_k;
    int used = snprintf(text, size, ", element e=%llu n=%llu", (unsigned long long)at[TP_DIM_E],
                        (unsigned long long)n);
    if (used > 0 && (size_t)used < size && out->per_k)
        snprintf(text + used, size - (size_t)used, " k=%llu", (unsigned long long)k);
}

static void place_in_plain(const struct tp_output *output, uint64_t byte, char *text, size_t size)
{
    uint64_t i = byte * 8 / tp_dtype_bits(output->dtype);
    uint64_t k = output->rank ? output->shape[output->rank - 1] : 1;
    uint64_t n = output->rank > 1 ? output->shape[output->rank - 2] : 1;
    snprintf(text, size, ", element e=%llu n=%llu k=%llu", (unsigned long long)(i / k / n),
             (unsigned long long)(i / k % n), (unsigned long long)(i % k));
}

static enum tp_code report_output(struct against *a, size_t o)
{
    const struct tp_output *output = &a->expected->outputs[o];
    const struct tp_difference *d = &a->sink.differences[o];
    const struct tp_tensor *tensor = a->sink.tensors[o];
    const struct tp_unit *unit =
        output->unit == UINT32_MAX ? NULL : &a->expected->units[output->unit];
    char place[120] = "";
    uint32_t i = 0;
    if (unit && (d->bytes || !tensor))
        a->report->units[output->unit].differs = true;
    if (!d->bytes)
        return TP_OK;
    while (unit && unit->format && unit->output[i] != o)
        i++;
    if (unit && unit->format)
        place_of(unit, i, d->first_offset, place, sizeof place);
    else
        place_in_plain(output, d->first_offset, place, sizeof place);
    return tp_verify_problem(a->report, a->stored->ckpt->files[tensor->file].name, output->name,
                             a->err, "%llu of its %llu bytes are not those that the source gives, "
                             "the first at byte %llu: 0x%02x instead of 0x%02x%s",
                             (unsigned long long)d->bytes, (unsigned long long)output->bytes,
                             (unsigned long long)d->first_offset, d->theirs, d->ours, place);
}

static int by_prefix(const void *x, const void *y, void *weights)
{
    const struct tp_weight *items = weights;
    return strcmp(items[*(const uint32_t *)x].prefix, items[*(const uint32_t *)y].prefix);
}

static enum tp_code sort_stored(struct against *a)
{
    const struct tp_weights *weights = a->stored->weights;
    if (a->by_prefix)
        return TP_OK;
    if (!(a->by_prefix = tp_os_zalloc(weights->count + 1, sizeof *a->by_prefix, a->err)))
        return TP_E_MEMORY;
    for (uint32_t w = 0; w < weights->count; w++)
        if (weights->items[w].format)
            a->by_prefix[a->packed++] = w;
    qsort_r(a->by_prefix, a->packed, sizeof *a->by_prefix, by_prefix, weights->items);
    return TP_OK;
}

static uint32_t find_stored(const struct against *a, const char *prefix)
{
    size_t low = 0, high = a->packed;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(a->stored->weights->items[a->by_prefix[middle]].prefix, prefix);
        if (order == 0)
            return a->by_prefix[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return UINT32_MAX;
}

/* The figures on the way were of the bytes as they should be. Of a unit that is
 * stored otherwise they are taken again, from what is stored. */
static enum tp_code measure_stored(struct against *a, size_t u)
{
    enum tp_code code = sort_stored(a);
    uint32_t w = code ? UINT32_MAX : find_stored(a, a->plan.units[u].prefix);
    if (w == UINT32_MAX)
        return code;
    const struct tp_weight *weight = &a->stored->weights->items[w];
    struct tp_unit unit = {.name = weight->name, .box = weight->box, .rank = weight->rank,
                           .parts_per_expert = 1, .part_rows = {weight->box.n}};
    if (memcmp(&weight->box, &a->plan.units[u].box, sizeof weight->box) != 0)
        return TP_OK;
    if (!(unit.parts = tp_os_zalloc(weight->box.e, sizeof *unit.parts, a->err)))
        return TP_E_MEMORY;
    for (uint64_t e = 0; e < weight->box.e; e++)
        unit.parts[e] = (struct tp_part){w, e, 0};
    code = tp_compare_units(a->source, &a->plan.units[u], a->stored, &unit, a->options->jobs,
                            a->options->stop, &a->report->units[u].distance, a->err);
    free(unit.parts);
    return code;
}

static enum tp_code report_differences(struct against *a)
{
    enum tp_code code = TP_OK;
    for (size_t o = 0; o < a->expected->output_count && code == TP_OK; o++)
        code = report_output(a, o);
    for (size_t u = 0; u < a->plan.unit_count && code == TP_OK; u++)
        if (a->report->units[u].differs)
            code = measure_stored(a, u);
    return code;
}

static void close_all(struct against *a)
{
    for (size_t u = 0; a->sums && u < a->plan.unit_count; u++)
        free(a->sums[u].boxes);
    free(a->sums);
    while (a->idle) {
        struct bench *bench = a->idle;
        a->idle = bench->next;
        tp_value_reader_free(&bench->reader);
        tp_buffer_free(&bench->source);
        tp_buffer_free(&bench->decoded);
        tp_buffer_free(&bench->scratch);
        free(bench);
    }
    free(a->by_prefix);
    for (int i = 0; i < 2; i++)
        tp_traces_close(&a->traces[i]);
    tp_compare_sink_close(&a->sink);
    tp_ranks_close(&a->ranks);
    tp_plan_close(&a->plan);
    pthread_mutex_destroy(&a->lock);
}

enum tp_code tp_verify_against(const struct tp_side *stored, const struct tp_side *source,
                               const struct tp_verify_options *options,
                               struct tp_verify_report *report, struct tp_err *err)
{
    struct against a = {.stored = stored, .source = source, .options = options, .report = report,
                        .err = err};
    struct tp_request request = {0};
    pthread_mutex_init(&a.lock, NULL);
    enum tp_code code = make_plan(&a, &request);
    if (code == TP_OK && (code = make_expected(&a, &request)) == TP_OK &&
        (code = check_outputs(&a)) == TP_OK &&
        (code = start_results(&a)) == TP_OK && (code = open_traces(&a)) == TP_OK &&
        (code = run(&a, &request)) == TP_OK &&
        (code = report_differences(&a)) == TP_OK)
        code = tp_checkpoint_unchanged(source->ckpt, err);
    close_all(&a);
    tp_request_close(&request);
    return code;
}
