/* `tilepack prove`: which weights are proven, on which GPU, with how many rows. The proof itself
 * is of pack/prove, its report of prove_report.c. A checkpoint that is not what was written is
 * found by its checksums before anything is computed: a kernel cannot tell. */
#include "cli/cmd.h"
#include "cli/progress.h"
#include "cli/prove_report.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/check/verify.h"
#include "pack/commit/manifest_note.h"
#include "pack/inspect/inspect.h"
#include "pack/os/below.h"
#include "pack/os/clock.h"
#include "pack/os/os.h"
#include "pack/prove/prove_weight.h"

#include <stdlib.h>
#include <string.h>

struct work {
    const struct tp_options *o;
    struct tp_source source, other;
    struct tp_prover prover;
    struct tp_prove_options options;
    uint32_t device;
    size_t *chosen; /* numbers of weights */
    size_t count;
    struct tp_proofs proofs;
    struct tp_err err;
};

static enum tp_code read_m(struct work *w)
{
    const char *text = w->o->m ? w->o->m : "1,16,256,4096";
    struct tp_prove_options *p = &w->options;
    bool good = tp_parse_u64_list(text, p->m, TP_PROVE_M, &p->m_count) && p->m_count;
    for (size_t i = 0; good && i < p->m_count; i++)
        good = p->m[i] >= 1 && p->m[i] <= 65536;
    if (good)
        return TP_OK;
    tp_err_hint(&w->err, "up to %d numbers of 1..65536, as in --m 1,16,256,4096", TP_PROVE_M);
    return tp_fail(&w->err, TP_E_USAGE, "--m '%s' is not a list of row counts", text);
}

static enum tp_code read_device(struct work *w)
{
    const char *text = w->o->device;
    uint64_t index = 0;
    size_t count = 0;
    bool one = strcmp(text, "auto") == 0 || strcmp(text, "cuda") == 0 ||
               (strncmp(text, "cuda:", 5) == 0 && tp_parse_u64_list(text + 5, &index, 1, &count) &&
                index <= UINT32_MAX);
    w->device = (uint32_t)index;
    if (one)
        return TP_OK;
    return tp_refuse(&w->err, TP_E_USAGE, "--device cuda, or --device cuda:I for GPU number I",
                     "--device %s: the kernels run on one GPU", text);
}

/* The first thing that is wrong with the files, as an error of its own. */
static enum tp_code damaged(struct work *w, const struct tp_verify_report *report)
{
    const struct tp_problem *first = &report->problems[0];
    if (first->file)
        tp_err_path(&w->err, first->file);
    if (first->tensor)
        tp_err_tensor(&w->err, first->tensor);
    tp_err_hint(&w->err, "'tilepack verify %s' lists all, and with --against SRC the elements; "
                "convert it again", w->o->arg.item[0]);
    return tp_fail(&w->err, TP_E_DIFF, "the stored weights are damaged: %s", first->what);
}

/* --against: what must come out. */
static enum tp_code open_other(struct work *w)
{
    if (!w->o->against)
        return TP_OK;
    enum tp_code code = tp_source_open_as(w->o->against, NULL, NULL, &w->other, &w->err);
    w->options.other = &w->other.ckpt;
    w->options.others = &w->other.weights;
    return code;
}

/* Checksums of all files; then the weights are known, too. */
static enum tp_code open_verified(struct work *w)
{
    struct tp_verify_report report = {0};
    struct tp_verify_options options = {.jobs = w->o->jobs, .stop = w->options.stop};
    enum tp_code code = tp_checkpoint_open(w->o->arg.item[0], 0, &w->source.ckpt, &w->err);
    if (code == TP_OK)
        code = tp_verify(&w->source.ckpt, &w->source.weights, &options, &report, &w->err);
    if (code == TP_OK && report.problem_count)
        code = damaged(w, &report);
    tp_verify_report_close(&report);
    return code;
}

static enum tp_code no_kernel(struct work *w, const struct tp_weight *weight)
{
    char text[128];
    tp_err_path(&w->err, w->o->arg.item[0]);
    if (weight)
        tp_err_tensor(&w->err, weight->name);
    return tp_refuse(&w->err, TP_E_UNSUPPORTED,
                     "--to w4a8-cutlass and --to fp8-deepseek make what can be proven",
                     "%s%s: there are kernels for w4a8-cutlass and for FP8 in blocks of 128x128",
                     weight ? "it is stored as " : "holds nothing that a kernel here reads",
                     weight ? tp_weight_source(weight, text, sizeof text) : "");
}

/* Every weight that a kernel reads. */
static enum tp_code choose_all(struct work *w)
{
    const struct tp_weights *weights = &w->source.weights;
    for (size_t i = 0; i < weights->count; i++)
        if (tp_prove_kind(&weights->items[i]))
            w->chosen[w->count++] = i;
        else
            w->proofs.left += weights->items[i].form->format != NULL;
    return w->count ? TP_OK : no_kernel(w, NULL);
}

static enum tp_code choose_named(struct work *w, const char *name)
{
    struct tp_subject subject;
    enum tp_code code =
        tp_inspect_find(&w->source.ckpt, &w->source.weights, name, &subject, &w->err);
    if (code)
        return code;
    if (!subject.weight || !tp_prove_kind(subject.weight)) {
        if (!subject.weight)
            tp_err_tensor(&w->err, w->source.ckpt.tensors[subject.tensor].name);
        return no_kernel(w, subject.weight);
    }
    w->chosen[w->count++] = (size_t)(subject.weight - w->source.weights.items);
    return TP_OK;
}

static enum tp_code choose(struct work *w)
{
    size_t names = w->o->arg.count - 1;
    w->chosen = tp_os_zalloc(w->source.weights.count + names + 1, sizeof *w->chosen, &w->err);
    if (!w->chosen)
        return TP_E_MEMORY;
    enum tp_code code = names ? TP_OK : choose_all(w);
    for (size_t i = 0; i < names && code == TP_OK; i++)
        code = choose_named(w, w->o->arg.item[i + 1]);
    return code;
}

/* Proves a whole checkpoint, without what no kernel takes. */
static enum tp_code prove_all(struct work *w)
{
    struct tp_progress *progress = tp_progress_start(w->o, "prove", 0);
    w->proofs.items = tp_os_zalloc(w->count, sizeof *w->proofs.items, &w->err);
    enum tp_code code = w->proofs.items ? TP_OK : TP_E_MEMORY;
    for (size_t i = 0; i < w->count && code == TP_OK; i++) {
        struct tp_prove_result *result = &w->proofs.items[w->proofs.count];
        struct tp_err err = {0};
        tp_progress_add(progress, 0, w->source.weights.items[w->chosen[i]].name);
        code = tp_prove(&w->source.ckpt, &w->source.weights, w->chosen[i], &w->prover, &w->options,
                        result, &err);
        bool left = result->refused && w->o->arg.count == 1;
        if (code && (!left || !w->err.code))
            w->err = err;
        if (left) {
            tp_prove_result_close(result);
            w->proofs.left++;
            code = TP_OK;
        } else {
            w->proofs.count++;
        }
    }
    tp_progress_end(progress);
    if (code || w->proofs.count == 0)
        return w->err.code; /* of the first weight, where each was refused */
    w->err = (struct tp_err){0};
    return TP_OK;
}

/* What --tune found, into the manifest; not from wrong numbers. */
static enum tp_code keep(struct work *w)
{
    if (!w->o->write || tp_proofs_wrong(&w->proofs))
        return TP_OK;
    struct tp_text text = {0};
    enum tp_code code = tp_prove_schedules(&w->proofs, &text, &w->err);
    if (code == TP_OK)
        code = tp_manifest_note(w->o->arg.item[0], "schedules", text.data, &w->err);
    tp_text_free(&text);
    return code;
}

static enum tp_code check_write(struct work *w)
{
    if (!w->o->write || tp_below_is_dir(w->o->arg.item[0], &w->err) || w->err.code)
        return w->err.code;
    return tp_refuse(&w->err, TP_E_USAGE, "print the table with --json",
                     "--write: '%s' is no directory, and has no manifest", w->o->arg.item[0]);
}

/* The plug-in comes first: without it nothing else matters. */
static enum tp_code work(struct work *w)
{
    enum tp_code code = read_m(w);
    if (code || (code = read_device(w)) || (code = check_write(w)) ||
        (code = tp_prover_open(w->device, &w->prover, &w->err)) ||
        (code = open_other(w)) ||
        (code = w->o->arg.count > 1 || w->o->against
                    ? tp_source_open_as(w->o->arg.item[0], NULL, NULL, &w->source, &w->err)
                    : open_verified(w)) ||
        (code = choose(w)) || (code = prove_all(w)))
        return code;
    return keep(w);
}

static void close_all(struct work *w)
{
    for (size_t i = 0; i < w->proofs.count; i++)
        tp_prove_result_close(&w->proofs.items[i]);
    free(w->proofs.items);
    free(w->chosen);
    tp_source_close(&w->source);
    tp_source_close(&w->other);
    tp_prover_close(&w->prover);
}

int tp_cmd_prove(const struct tp_options *o)
{
    struct work w = {.o = o,
                     .options = {.all = o->tune, .stop = tp_catch_signals()},
                     .proofs = {.path = o->arg.item[0], .prover = &w.prover, .tune = o->tune}};
    double start = tp_now();
    int status = (int)work(&w);
    w.proofs.seconds = tp_now() - start;
    if (status == TP_E_USAGE)
        status = tp_report_usage("prove", &w.err);
    else if (status)
        status = tp_report_error(&w.err);
    else
        status = tp_prove_print(&w.proofs, o->json);
    close_all(&w);
    return status;
}
