/* `tilepack bench`: every kernel row beside the memory ceiling. Lines appear as they
 * are measured; under --json there is one object at the end. */
#include "cli/cmd.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/bench/bench.h"
#include "pack/source/search_choice.h"

#include <stdlib.h>
#include <string.h>

enum { ROW_TEXT = 96, SHAPE_TEXT = 72 };

/* ---- options ------------------------------------------------------------- */

static enum tp_code parse_shapes(const struct tp_options *o, struct tp_box3 *shapes,
                                 struct tp_err *err)
{
    for (size_t i = 0; i < o->shape.count; i++) {
        uint64_t v[3], values;
        size_t count;
        if (!tp_parse_u64_list(o->shape.item[i], v, 3, &count) || count < 2)
            return tp_fail(err, TP_E_USAGE, "--shape '%s': it is not of the form E,N,K",
                           o->shape.item[i]);
        shapes[i] = (struct tp_box3){count == 3 ? v[0] : 1, v[count - 2], v[count - 1]};
        if (__builtin_mul_overflow(shapes[i].e, shapes[i].n, &values) ||
            __builtin_mul_overflow(values, shapes[i].k, &values) || values == 0 ||
            values >> 40)
            return tp_fail(err, TP_E_USAGE, "--shape '%s': it is empty or too large",
                           o->shape.item[i]);
    }
    return TP_OK;
}

static bool searches(const struct tp_options *o)
{
    return o->search && strcmp(o->search, "none") != 0;
}

/* The search for every codec that has it, with the importance that convert would take. */
static void choose_search(const struct tp_options *o, struct tp_bench_options *options)
{
    const struct tp_search_words words = {.search = o->search};
    options->searched = searches(o);
    for (int codec = 0; codec < TP_CODEC_COUNT && options->searched; codec++) {
        struct tp_search_choice choice;
        struct tp_err none = {0};
        if (tp_search_choice_make(&words, (enum tp_codec)codec, &choice, &none) == TP_OK)
            options->search[codec] = (struct tp_bench_search){choice.search, choice.importance};
    }
}

/* ---- text ---------------------------------------------------------------- */

static const char *const kinds[] = {"encode", "repack", "decode"};

/* "w4a8-ct -> w4a8-cutlass  int4_row_to_w4a8_avx512" has two columns: what, and row. */
static void what_text(char text[ROW_TEXT], const struct tp_bench_case *c)
{
    const char *dtype = tp_dtype_name(c->dtype);
    if (c->kind == TP_BENCH_ENCODE && c->op.search)
        snprintf(text, ROW_TEXT, "%s -> %s (%s)", dtype, c->format->name,
                 tp_search_name(c->op.search));
    else if (c->kind == TP_BENCH_ENCODE)
        snprintf(text, ROW_TEXT, "%s -> %s", dtype, c->format->name);
    else if (c->kind == TP_BENCH_DECODE)
        snprintf(text, ROW_TEXT, "%s -> %s", c->format->name, dtype);
    else
        snprintf(text, ROW_TEXT, "%s -> %s%s", c->source->name, c->format->name,
                 c->scales_only ? " (scales)" : "");
}

static void shape_text(char text[SHAPE_TEXT], const struct tp_bench_case *c)
{
    snprintf(text, SHAPE_TEXT, "%llu,%llu,%llu", (unsigned long long)c->box.e,
             (unsigned long long)c->box.n, (unsigned long long)c->box.k);
}

struct widths {
    int what, row, shape;
};

static struct widths measure_widths(const struct tp_bench *bench)
{
    struct widths w = {4, 3, 5};
    for (size_t i = 0; i < bench->count; i++) {
        char what[ROW_TEXT], shape[SHAPE_TEXT];
        what_text(what, &bench->cases[i]);
        shape_text(shape, &bench->cases[i]);
        w.what = (int)strlen(what) > w.what ? (int)strlen(what) : w.what;
        w.row = (int)strlen(bench->cases[i].row) > w.row ? (int)strlen(bench->cases[i].row)
                                                         : w.row;
        w.shape = (int)strlen(shape) > w.shape ? (int)strlen(shape) : w.shape;
    }
    return w;
}

static double rate(const struct tp_bench_result *r, double seconds)
{
    return seconds > 0 ? (double)(r->read_bytes + r->write_bytes) / seconds * 1e-9 : 0;
}

static void print_line(const struct widths *w, const struct tp_bench_case *c,
                       const struct tp_bench_result *r)
{
    char what[ROW_TEXT], shape[SHAPE_TEXT];
    double speed = rate(r, r->seconds), ceiling = rate(r, r->ceiling_seconds);
    what_text(what, c);
    shape_text(shape, c);
    printf("%-*s  %-*s  %*s  %9.2f  %9.2f  %8.2f", w->what, what, w->row, c->row, w->shape,
           shape, speed, ceiling, ceiling > 0 ? speed / ceiling : 0);
    if (r->far_seconds > 0)
        printf("  %5.2f", r->far_ceiling_seconds / r->far_seconds);
    if (r->plain_seconds > 0)
        printf("  %6.2f", r->seconds / r->plain_seconds);
    printf("\n");
    fflush(stdout);
}

static void print_head(const struct tp_options *o, int device, const struct widths *w)
{
    char name[TP_BENCH_NAME];
    const bool searched = device == TP_BENCH_CPU && searches(o);
    if (device == TP_BENCH_CPU)
        printf("CPU, %u thread%s; GB/s of bytes in and out, ceiling: a copying loop of the same "
               "bytes;\ninputs from memory, outputs to a buffer of the thread (far: the fraction "
               "with outputs to memory)\n\n", o->jobs, o->jobs == 1 ? "" : "s");
    else
        printf("cuda:%d, %s; GB/s of bytes in and out, ceiling: a streaming kernel of the same "
               "bytes\n\n", device, tp_bench_device_name(device, name));
    if (searched)
        printf("slower: how many times longer than the same conversion without a search\n\n");
    printf("%s%-*s  %-*s  %*s  %9s  %9s  %8s%s%s%s\n", tp_style("1"), w->what, "what", w->row,
           "row", w->shape, "shape", "GB/s", "ceiling", "fraction",
           device == TP_BENCH_CPU ? "    far" : "", searched ? "  slower" : "", tp_style("0"));
    fflush(stdout);
}

/* ---- JSON ---------------------------------------------------------------- */

static void put_case(struct tp_writer *w, const struct tp_bench_case *c,
                     const struct tp_bench_result *r)
{
    const double speed = rate(r, r->seconds), ceiling = rate(r, r->ceiling_seconds);
    const bool far = r->far_seconds > 0, plain = r->plain_seconds > 0;
    const bool searched = c->kind == TP_BENCH_ENCODE && c->op.search;
    tp_object(w, NULL, tp_str("kind", kinds[c->kind]), tp_str("format", c->format->name),
              tp_str("row", c->row), tp_str("isa", tp_isa_name(c->isa)), tp_box("shape", &c->box),
              tp_num("read_bytes", r->read_bytes), tp_num("write_bytes", r->write_bytes),
              tp_real("seconds", r->seconds), tp_real("seconds_min", r->fastest),
              tp_real("seconds_max", r->slowest), tp_real("ceiling_seconds", r->ceiling_seconds),
              tp_real("gb_per_s", speed), tp_real("ceiling_gb_per_s", ceiling),
              tp_real("fraction", ceiling > 0 ? speed / ceiling : 0.0),
              tp_num("repeats", r->repeats), tp_bool("scales_only", c->scales_only),
              tp_if(far, tp_real("far_seconds", r->far_seconds)),
              tp_if(far, tp_real("far_ceiling_seconds", r->far_ceiling_seconds)),
              tp_if(far, tp_real("far_fraction", r->far_ceiling_seconds / r->far_seconds)),
              tp_if(searched, tp_str("search", tp_search_name(c->op.search))),
              tp_if(searched, tp_str("importance", tp_importance_word(c->op.importance))),
              tp_if(plain, tp_real("plain_seconds", r->plain_seconds)),
              tp_if(plain, tp_real("slower", r->seconds / r->plain_seconds)),
              c->kind == TP_BENCH_REPACK ? tp_str("source", c->source->name)
                                         : tp_str("dtype", tp_dtype_name(c->dtype)));
}

static void end_json(struct tp_writer *w, const struct tp_options *o, int device)
{
    char name[TP_BENCH_NAME];
    tp_end(w, ']');
    if (device == TP_BENCH_CPU)
        tp_write(w, tp_num("threads", o->jobs));
    else
        tp_write(w, tp_num("device_number", (uint64_t)device),
                 tp_str("device_name", tp_bench_device_name(device, name)));
}

/* ---- the command --------------------------------------------------------- */

static int measure_all(const struct tp_options *o, struct tp_bench *bench)
{
    int device = bench->options.device;
    struct widths widths = measure_widths(bench);
    struct tp_writer w;
    struct tp_err err = {0};
    tp_json_open(&w);
    tp_write(&w, tp_str("device", device == TP_BENCH_CPU ? "cpu" : "cuda"));
    tp_begin(&w, "rows", '[');
    if (!o->json)
        print_head(o, device, &widths);
    for (size_t i = 0; i < bench->count; i++) {
        struct tp_bench_result result;
        if (tp_bench_measure(bench, i, &result, &err))
            break;
        if (o->json)
            put_case(&w, &bench->cases[i], &result);
        else
            print_line(&widths, &bench->cases[i], &result);
    }
    end_json(&w, o, device);
    if (o->json && !err.code)
        return tp_json_close(&w);
    tp_text_free(&w.text);
    return err.code ? tp_report_error(&err) : TP_OK;
}

int tp_cmd_bench(const struct tp_options *o)
{
    struct tp_err err = {0};
    struct tp_bench bench;
    struct tp_box3 *shapes = calloc(o->shape.count + 1, sizeof *shapes);
    struct tp_bench_options options = {
        .formats = o->format.item, .format_count = o->format.count, .settings = o->set.item,
        .setting_count = o->set.count, .shapes = shapes, .shape_count = o->shape.count,
        .jobs = o->jobs, .all_rows = o->verbose, .stop = tp_catch_signals()};
    int status;
    choose_search(o, &options);
    if (!shapes)
        tp_fail(&err, TP_E_MEMORY, "no memory for the shapes");
    if (!shapes || parse_shapes(o, shapes, &err) ||
        tp_bench_device(o->device, &options.device, &err) ||
        tp_bench_open(&options, &bench, &err)) {
        status = err.code == TP_E_USAGE ? tp_report_usage("bench", &err) : tp_report_error(&err);
    } else {
        status = measure_all(o, &bench);
        tp_bench_close(&bench);
    }
    free(shapes);
    return status;
}
