/* `tilepack compare`: what each format would make of a checkpoint, without writing any. Plans
 * each of them, has their errors measured, and hands the figures to compare_report.h. */
#include "cli/cmd.h"
#include "cli/compare_report.h"
#include "cli/lost_report.h"
#include "cli/page.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "kernels/op/traits.h"
#include "pack/os/clock.h"

#include <stdlib.h>
#include <string.h>

/* Values of a box of the sample: of longer rows no real model is, and memory goes with them. */
#define BOX_VALUES (UINT64_C(1) << 24)

static enum tp_code make_request(const struct tp_options *o, const struct tp_format *format,
                                 struct tp_request *request, struct tp_err *err)
{
    *request = (struct tp_request){.requantize = true, .keep_nonfinite = true, .bare = true,
                                   .outline = !o->full};
    const struct tp_search_words unsaid = {0};
    enum tp_code code = tp_request_to(request, format->name, NULL, 0, err);
    if (code == TP_OK)
        code = tp_request_search(request, &unsaid, err);
    return code ? code : tp_request_choice(o, request, err);
}

static enum tp_code one_format(const struct tp_options *o, const struct tp_source *source,
                               struct tp_cost *cost, struct tp_err *err)
{
    struct tp_side side = {.ckpt = &source->ckpt, .weights = &source->weights, .strict = true};
    struct tp_progress *progress = tp_progress_start(o, cost->format->name, 0);
    struct tp_estimate_options options = {
        .full = o->full, .max = BOX_VALUES, .jobs = o->jobs, .stop = tp_catch_signals(),
        .progress = progress ? tp_progress_add : NULL,
        .total = progress ? tp_progress_total : NULL, .progress_arg = progress};
    struct tp_request request;
    enum tp_code code = make_request(o, cost->format, &request, err);
    if (code == TP_OK)
        code = tp_cost_of(&side, &request, &options, cost, err);
    tp_progress_end(progress);
    tp_request_close(&request);
    if (code)
        tp_err_path(err, source->ckpt.path);
    return code;
}

/* --to, or every format that is written and loses something. A format named twice is compared
 * once. */
static enum tp_code choose(const struct tp_options *o, struct tp_candidates *all,
                           struct tp_err *err)
{
    size_t count;
    enum tp_code code = tp_formats_check(err);
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t i = 0; i < o->compared.count && code == TP_OK; i++) { /* says what is meant */
        struct tp_request request = {0};
        code = tp_request_to(&request, o->compared.item[i], NULL, 0, err);
        tp_request_close(&request);
    }
    all->items = calloc(count + 1, sizeof *all->items);
    if (code || !all->items)
        return tp_fail(err, TP_E_MEMORY, "out of memory");
    for (size_t f = 0; f < count; f++) {
        bool named = !o->compared.count && !tp_codecs[formats[f]->op.codec].is_number;
        for (size_t i = 0; i < o->compared.count; i++)
            named |= !strcmp(formats[f]->name, o->compared.item[i]);
        if (named && !formats[f]->input_only)
            all->items[all->count++].format = formats[f];
    }
    return TP_OK;
}

static int by_size(const void *left, const void *right)
{
    const struct tp_cost *a = left, *b = right;
    if (!a->refused != !b->refused)
        return !b->refused - !a->refused;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->format->name, b->format->name);
}

static void close_all(struct tp_candidates *all)
{
    for (size_t i = 0; i < all->count; i++)
        tp_cost_close(&all->items[i]);
    free(all->items);
}

/* The page comes first: what fails with it is then all that is printed. */
static int report(const struct tp_options *o, const struct tp_checkpoint *ckpt,
                  const struct tp_candidates *all)
{
    struct tp_page page;
    struct tp_err err = {0};
    for (size_t i = 0; i < all->count; i++)
        tp_lost_warn(all->items[i].units, all->items[i].unit_count);
    if (!o->html)
        return tp_compare_print(all, o->json, o->verbose);
    if (tp_page_open(&page, o->html, ".html", tp_checkpoint_file_mode(ckpt), &err))
        return err.path[0] ? tp_report_error(&err) : tp_report_usage("compare", &err);
    tp_compare_page(all, page.file);
    if (tp_page_close(&page, TP_OK, &err))
        return tp_report_error(&err);
    return tp_compare_print(all, o->json, o->verbose);
}

static uint64_t tensor_bytes(const struct tp_checkpoint *ckpt)
{
    uint64_t bytes = 0;
    for (size_t t = 0; t < ckpt->tensor_count; t++)
        bytes += ckpt->tensors[t].bytes;
    return bytes;
}

static enum tp_code open_source(const struct tp_options *o, struct tp_request *said,
                                struct tp_source *source, struct tp_err *err)
{
    enum tp_code code = tp_request_facts(o, said, err);
    return code ? code : tp_source_open_as(o->arg.item[0], NULL, &said->models, source, err);
}

int tp_cmd_compare(const struct tp_options *o)
{
    struct tp_request said = {0}; /* of the model; in use until the source is closed */
    struct tp_candidates all = {.source = o->arg.item[0], .full = o->full};
    struct tp_source source = {0};
    struct tp_err err = {0};
    double start = tp_now();
    int status;
    if (choose(o, &all, &err)) {
        status = tp_report_usage("compare", &err);
        close_all(&all);
        return status;
    }
    enum tp_code code = open_source(o, &said, &source, &err);
    all.bytes = code ? 0 : tensor_bytes(&source.ckpt);
    for (size_t i = 0; i < all.count && code == TP_OK; i++)
        code = one_format(o, &source, &all.items[i], &err);
    all.seconds = tp_now() - start;
    qsort(all.items, all.count, sizeof *all.items, by_size);
    status = code ? tp_report_error(&err) : report(o, &source.ckpt, &all);
    close_all(&all);
    tp_source_close(&source);
    tp_request_close(&said);
    return status;
}
