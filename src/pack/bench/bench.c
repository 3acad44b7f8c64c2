/* Which rows are measured, on which shapes: the list of cases behind
 * `tilepack bench`. Knows formats and the tables of rows; times nothing itself.
 */
#include "pack/bench/bench.h"

#include "base/suffix.h"
#include "kernels/cuda/cuda.h"
#include "kernels/op/row_set.h"
#include "pack/bench/bench_cpu.h"
#include "pack/bench/bench_cuda.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tp_box3 cpu_shape = {1, 4096, 4096}, gpu_shape = {8, 7168, 7168};

/* One format with its settings applied. */
struct chosen {
    const struct tp_format *format;
    struct tp_settings settings;
    struct tp_op op;
    bool asked; /* it is among those to be measured; all may be sources */
};

struct lister {
    struct tp_bench *bench;
    const struct tp_bench_options *options;
    struct chosen *formats;
    size_t count;
    struct tp_err *err;
};

/* ---- formats and settings ------------------------------------------------ */

static bool has_key(const struct tp_format *format, const char *setting)
{
    size_t size = strcspn(setting, "=");
    for (uint32_t p = 0; p < format->params; p++)
        if (strlen(format->param[p].key) == size &&
            memcmp(format->param[p].key, setting, size) == 0)
            return true;
    return false;
}

static enum tp_code apply_settings(struct lister *l)
{
    for (size_t s = 0; s < l->options->setting_count; s++) {
        const char *setting = l->options->settings[s];
        bool used = false;
        for (size_t f = 0; f < l->count; f++) {
            struct chosen *chosen = &l->formats[f];
            if (!chosen->asked || !has_key(chosen->format, setting))
                continue;
            enum tp_code code = tp_format_set(&chosen->format, setting, &chosen->settings, l->err);
            if (code)
                return code;
            used = true;
        }
        if (!used)
            return tp_fail(l->err, TP_E_USAGE, "--set '%s' means nothing to the formats measured",
                           setting);
    }
    for (size_t f = 0; f < l->count; f++)
        tp_format_op(l->formats[f].format, &l->formats[f].settings, &l->formats[f].op);
    return TP_OK;
}

static enum tp_code choose_formats(struct lister *l)
{
    size_t count, found = 0;
    if (tp_formats_check(l->err))
        return l->err->code;
    const struct tp_format *const *formats = tp_formats(&count);
    if (!(l->formats = tp_os_zalloc(count + 1, sizeof *l->formats, l->err)))
        return TP_E_MEMORY;
    for (size_t f = 0; f < count; f++) {
        if (formats[f]->input_only)
            continue;
        struct chosen *chosen = &l->formats[l->count++];
        chosen->format = formats[f];
        chosen->asked = l->options->format_count == 0 ||
                        tp_word_of(formats[f]->name, l->options->formats,
                                   l->options->format_count) >= 0;
    }
    for (size_t i = 0; i < l->options->format_count; i++, found = 0) {
        for (size_t f = 0; f < l->count; f++)
            found += strcmp(l->options->formats[i], l->formats[f].format->name) == 0;
        if (!found)
            return tp_refuse(l->err, TP_E_USAGE,
                             "'tilepack formats' lists them; only those that are written have "
                             "kernels to measure", "there is no format '%s' to measure",
                             l->options->formats[i]);
    }
    return apply_settings(l);
}

/* ---- rows ---------------------------------------------------------------- */

static bool on_gpu(const struct lister *l) { return l->options->device != TP_BENCH_CPU; }

static const struct tp_row_set *rows_of(const struct lister *l)
{
    return on_gpu(l) ? &tp_rows_cuda : tp_host_rows();
}

/* Whether the tensors of an operation have a layout for that shape: what a case is taken from
 * may be a format with needs of its own. */
static bool has_layouts(const struct tp_op *op, struct tp_box3 box)
{
    uint64_t bytes;
    for (uint32_t i = 0; i < op->outs; i++)
        if (tp_op_bytes(op, i, box, &bytes, NULL))
            return false;
    return true;
}

/* A shape that the user gave must suit; the default is skipped where it does not. */
static enum tp_code add_shapes(struct lister *l, const struct chosen *chosen,
                               const struct tp_bench_case *model)
{
    const struct tp_box3 *shapes = l->options->shapes;
    size_t count = l->options->shape_count;
    if (count == 0) {
        shapes = on_gpu(l) ? &gpu_shape : &cpu_shape;
        count = 1;
    }
    for (size_t i = 0; i < count; i++) {
        if (tp_format_broken_need(chosen->format, &chosen->settings, shapes[i], shapes[i].e > 1) ||
            (model->source && !has_layouts(&model->from, shapes[i])))
            continue;
        struct tp_bench *bench = l->bench;
        enum tp_code code = tp_os_grow((void **)&bench->cases, &bench->capacity, bench->count + 1,
                                       sizeof *bench->cases, l->err);
        if (code)
            return code;
        bench->cases[bench->count] = *model;
        bench->cases[bench->count++].box = shapes[i];
    }
    return TP_OK;
}

/* The same case by the reference, where every row is asked for on the CPU. */
static enum tp_code add_reference(struct lister *l, const struct chosen *chosen,
                                  struct tp_bench_case *c)
{
    c->isa = TP_ISA_REF;
    c->row = "ref";
    return on_gpu(l) || !l->options->all_rows ? TP_OK : add_shapes(l, chosen, c);
}

/* What of the same instruction set makes the case's codes without a search. */
static tp_encode_fn plain_row(const struct tp_row_set *set, const struct tp_bench_case *c)
{
    for (size_t r = 0; r < set->encodes; r++)
        if (set->encode[r].isa == c->isa && tp_encode_row_fits(&set->encode[r], &c->from, c->dtype))
            return set->encode[r].encode;
    return tp_encode_ref;
}

/* Gives the case the search that was asked for. False: the codec has none. */
static bool choose_search(const struct lister *l, struct tp_bench_case *c)
{
    const struct tp_bench_search *search = &l->options->search[c->op.codec];
    c->from = c->op;
    c->op.search = search->how;
    c->op.importance = search->importance;
    return !l->options->searched || tp_op_search(&c->op) != TP_SEARCH_NONE;
}

static enum tp_code list_encodes(struct lister *l, const struct chosen *chosen,
                                 enum tp_dtype dtype)
{
    struct tp_bench_case c = {.kind = TP_BENCH_ENCODE, .format = chosen->format,
                              .op = chosen->op, .dtype = dtype};
    const struct tp_row_set *set = rows_of(l);
    const bool search = l->options->searched && !on_gpu(l);
    enum tp_code code = TP_OK;
    bool any = false;
    if (!choose_search(l, &c))
        return TP_OK;
    for (size_t r = 0; r < set->encodes && code == TP_OK && (!any || l->options->all_rows); r++) {
        const struct tp_encode_row *row = &set->encode[r];
        if (!tp_encode_row_fits(row, &c.op, dtype))
            continue;
        any = true;
        c.isa = row->isa;
        c.row = row->name;
        c.encode = row->encode;
        c.plain = search ? plain_row(set, &c) : NULL;
        code = add_shapes(l, chosen, &c);
    }
    c.encode = tp_encode_ref;
    c.plain = search ? tp_encode_ref : NULL;
    return code ? code : add_reference(l, chosen, &c);
}

static enum tp_code list_decodes(struct lister *l, const struct chosen *chosen,
                                 enum tp_dtype dtype)
{
    struct tp_bench_case c = {.kind = TP_BENCH_DECODE, .format = chosen->format,
                              .op = chosen->op, .dtype = dtype};
    const struct tp_row_set *set = rows_of(l);
    enum tp_code code = TP_OK;
    bool any = false;
    for (size_t r = 0; r < set->decodes && code == TP_OK && (!any || l->options->all_rows); r++) {
        const struct tp_decode_row *row = &set->decode[r];
        if (!tp_decode_row_fits(row, &chosen->op, dtype))
            continue;
        any = true;
        c.isa = row->isa;
        c.row = row->name;
        c.decode = row->decode;
        code = add_shapes(l, chosen, &c);
    }
    c.decode = tp_decode_ref;
    return code ? code : add_reference(l, chosen, &c);
}

/* The rows for a repack, and the source's operation that they are measured with. */
struct repack {
    const struct tp_row_set *set;
    struct tp_op from;
    bool scales_only; /* the codes cannot be taken over, but the scales have a kernel */
};

static bool any_row_fits(const struct repack *r, const struct tp_op *to)
{
    for (size_t i = 0; i < r->set->repacks; i++)
        if (tp_repack_row_fits(&r->set->repack[i], &r->from, to))
            return true;
    return false;
}

/* Codes of both lie alike, so that a loader would leave them where they are. */
static bool same_codes(const struct tp_op *a, const struct tp_op *b)
{
    return tp_code_place(a) != TP_PLACE_ANY && tp_code_place(a) == tp_code_place(b) &&
           memcmp(a->table, b->table, sizeof a->table) == 0;
}

/* The scales are worth a figure of their own. On a GPU: where nothing else need be done,
 * and W4A8's, which a loader packs anew; on the CPU: where a kernel wants them packed in a
 * way of its own. */
static bool scales_apart(const struct lister *l, const struct tp_op *from, const struct tp_op *to)
{
    if (on_gpu(l))
        return same_codes(from, to) || tp_op_find(to, TP_ROLE_GROUP8) >= 0;
    return tp_scale_place(from) != tp_scale_place(to) &&
           (tp_op_find(to, TP_ROLE_GROUP8) >= 0 || tp_scale_place(to) == TP_PLACE_MN_PACKED4 ||
            tp_scale_place(to) == TP_PLACE_TILE_N);
}

static bool suits(const struct lister *l, const struct repack *r, const struct tp_op *to)
{
    if (!r->scales_only)
        return tp_repack_possible(&r->from, to);
    return r->from.codec == to->codec && r->from.scale_rule == to->scale_rule &&
           any_row_fits(r, to) &&
           (on_gpu(l) || scales_apart(l, &r->from, to));
}

/* The source with its settings, or with one other choice (a power of two as scale,
 * where the target needs it). */
static bool find_source(const struct lister *l, const struct chosen *source,
                        const struct tp_op *to, struct repack *r)
{
    const struct tp_format *format = source->format;
    for (int only = 0; only < 2; only++) {
        r->scales_only = only;
        r->from = source->op;
        if (suits(l, r, to))
            return true;
        for (uint32_t p = 0; p < format->params; p++)
            for (uint32_t c = 0; c < format->param[p].count; c++) {
                struct tp_settings settings = source->settings;
                settings.choice[p] = (uint8_t)c;
                tp_format_op(format, &settings, &r->from);
                if (suits(l, r, to))
                    return true;
            }
    }
    return false;
}

/* Rows for every layout fit all pairs of formats of a codec: listed of formats that were named. */
static bool is_one_of_many(const struct lister *l, const struct tp_repack_row *row)
{
    return row->to_code == TP_PLACE_EVERY && l->options->format_count == 0;
}

static enum tp_code list_repack(struct lister *l, const struct chosen *source,
                                const struct chosen *target)
{
    struct tp_bench_case c = {.kind = TP_BENCH_REPACK, .format = target->format,
                              .source = source->format, .op = target->op, .dtype = TP_BF16};
    struct repack r = {.set = rows_of(l)};
    enum tp_code code = TP_OK;
    bool any = false;
    if (!find_source(l, source, &target->op, &r))
        return TP_OK;
    c.from = r.from;
    for (size_t i = 0; i < r.set->repacks && code == TP_OK && (!any || l->options->all_rows);
         i++) {
        const struct tp_repack_row *row = &r.set->repack[i];
        if (!tp_repack_row_fits(row, &c.from, &c.op) || is_one_of_many(l, row))
            continue;
        any = true;
        c.isa = row->isa;
        c.row = row->name;
        c.repack = row->repack;
        c.scales_only = false;
        if (!r.scales_only)
            code = add_shapes(l, target, &c);
        c.scales_only = scales_apart(l, &c.from, &c.op);
        if (code == TP_OK && c.scales_only)
            code = add_shapes(l, target, &c);
    }
    c.repack = tp_repack_ref;
    c.scales_only = r.scales_only;
    return code ? code : add_reference(l, target, &c);
}

static enum tp_code list_all(struct lister *l)
{
    static const enum tp_dtype from[] = {TP_BF16, TP_F16, TP_F32}, to[] = {TP_BF16, TP_F32};
    enum tp_code code = TP_OK;
    for (size_t f = 0; f < l->count && code == TP_OK; f++)
        for (size_t d = 0; d < 3 && code == TP_OK && l->formats[f].asked; d++)
            code = list_encodes(l, &l->formats[f], from[d]);
    if (l->options->searched)
        return code;
    for (size_t f = 0; f < l->count; f++)
        for (size_t s = 0; s < l->count && code == TP_OK && l->formats[f].asked; s++)
            if (s != f)
                code = list_repack(l, &l->formats[s], &l->formats[f]);
    for (size_t f = 0; f < l->count && code == TP_OK; f++)
        for (size_t d = 0; d < 2 && code == TP_OK && l->formats[f].asked; d++)
            code = list_decodes(l, &l->formats[f], to[d]);
    return code;
}

static enum tp_code check_any(struct lister *l)
{
    if (l->bench->count)
        return TP_OK;
    if (l->options->searched)
        return tp_refuse(l->err, TP_E_USAGE,
                         "'tilepack formats FORMAT' says which searches a format has, and what it "
                         "needs of a shape",
                         "no kernel does this search for these formats and shapes");
    if (on_gpu(l))
        return tp_refuse(l->err, TP_E_USAGE,
                         "'tilepack formats FORMAT' shows what a format needs of a shape",
                         "no GPU kernel takes these formats and shapes");
    return tp_refuse(l->err, TP_E_USAGE,
                     "--verbose measures the reference as well; 'tilepack formats FORMAT' shows "
                     "what a format needs of a shape",
                     "no fast kernel of this machine takes these formats and shapes");
}

enum tp_code tp_bench_open(const struct tp_bench_options *options, struct tp_bench *bench,
                           struct tp_err *err)
{
    struct lister l = {.bench = bench, .options = options, .err = err};
    *bench = (struct tp_bench){.options = *options};
    enum tp_code code = choose_formats(&l);
    if (code == TP_OK && (code = list_all(&l)) == TP_OK)
        code = check_any(&l);
    free(l.formats);
    if (code)
        tp_bench_close(bench);
    return code;
}

/* ---- devices ------------------------------------------------------------- */

static enum tp_code no_device(const char *spec, const char *why, struct tp_err *err)
{
    return tp_refuse(err, TP_E_MEMORY,
                     "use --device cpu, or --device auto to take a GPU where there is one",
                     "--device %s: %s", spec, why);
}

enum tp_code tp_bench_device(const char *spec, int *device, struct tp_err *err)
{
    *device = TP_BENCH_CPU;
    if (strcmp(spec, "cpu") == 0)
        return TP_OK;
    int count = tp_cuda_count();
    if (count == 0 && strcmp(spec, "auto") == 0)
        return TP_OK;
    long id = 0;
    if (strncmp(spec, "cuda:", 5) == 0) {
        char *end;
        id = strtol(spec + 5, &end, 10);
        if (end == spec + 5 || *end)
            return tp_refuse(err, TP_E_USAGE, "name one: --device cuda:0",
                             "--device %s: one device is measured at a time", spec);
    }
    if (count == 0)
        return no_device(spec, tp_cuda_why_none(), err);
    if (id < 0 || id >= count)
        return no_device(spec, "there is no GPU of that number", err);
    *device = (int)id;
    return TP_OK;
}

const char *tp_bench_device_name(int device, char name[TP_BENCH_NAME])
{
    struct tp_cuda_device info;
    bool known = tp_cuda_query(device, &info, NULL) == TP_OK;
    snprintf(name, TP_BENCH_NAME, "%s", known ? info.name : "");
    return name;
}

/* ---- measuring ----------------------------------------------------------- */

static enum tp_code measure_gpu(const struct tp_bench *bench, const struct tp_bench_case *c,
                                struct tp_bench_result *result, struct tp_err *err)
{
    static const enum tp_cuda_kind kinds[] = {TP_CUDA_ENCODE, TP_CUDA_REPACK, TP_CUDA_DECODE};
    struct tp_cuda_bench b = {
        .device = bench->options.device, .kind = kinds[c->kind], .dtype = c->dtype,
        .box = c->box, .scales_only = c->scales_only, .memory = bench->options.memory,
        .to = c->kind == TP_BENCH_DECODE ? NULL : &c->op,
        .from = c->kind == TP_BENCH_DECODE ? &c->op : c->kind == TP_BENCH_REPACK ? &c->from : NULL,
    };
    enum tp_code code = tp_cuda_bench(&b, err);
    *result = (struct tp_bench_result){b.read_bytes, b.write_bytes, b.seconds, b.seconds_min,
                                       b.seconds_max, b.ceiling_seconds, b.repeats, 0, 0,
                                       0};
    if (result->repeats == 0)
        result->repeats = 20; /* what 0 asks for, see bench_cuda.h */
    return code;
}

enum tp_code tp_bench_measure(struct tp_bench *bench, size_t i, struct tp_bench_result *result,
                              struct tp_err *err)
{
    if (tp_stopped(bench->options.stop, err))
        return err->code;
    if (bench->options.device != TP_BENCH_CPU)
        return measure_gpu(bench, &bench->cases[i], result, err);
    return tp_bench_cpu(&bench->cpu, &bench->options, &bench->cases[i], result, err);
}

void tp_bench_close(struct tp_bench *bench)
{
    tp_bench_cpu_close(bench->cpu);
    free(bench->cases);
    *bench = (struct tp_bench){0};
}
