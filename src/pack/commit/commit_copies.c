/* Packed weights that are copied as they are. They get a fresh hash, which says that they are
 * right: so what is known of them without a source is looked at on the way.
 */
#include "pack/commit/commit_build.h"

#include "pack/os/os.h"
#include "pack/run/run.h"
#include "pack/source/invariants.h"
#include "pack/source/words_check.h"

#include <stdlib.h>

static enum tp_code check_words(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                struct tp_err *err)
{
    char what[TP_WORD_TEXT];
    enum tp_code code = TP_OK;
    for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++) {
        if ((code = tp_words_check(ckpt, weight, i, what, err)) || !*what)
            continue;
        const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[i]];
        tp_err_path(err, ckpt->files[tensor->file].path);
        tp_err_tensor(err, tensor->name);
        tp_err_hint(err, "'tilepack verify' looks at the whole file; convert it again from its "
                         "source");
        code = tp_fail(err, TP_E_INPUT, "%s: it is not copied", what);
    }
    return code;
}

enum tp_code tp_commit_open_copies(const struct tp_commit *c, struct tp_invariants *invariants,
                                   struct tp_run_options *run)
{
    const struct tp_plan *plan = c->plan;
    enum tp_code code = TP_OK;
    *invariants = (struct tp_invariants){0};
    if (!plan->kept_unit_count)
        return TP_OK;
    bool *copied = tp_os_zalloc(plan->weights->count, sizeof *copied, c->err);
    if (!copied)
        return TP_E_MEMORY;
    for (size_t u = 0; u < plan->kept_unit_count && code == TP_OK; u++) {
        const struct tp_unit *unit = &plan->kept_units[u];
        uint32_t w = unit->views[0].weight;
        if (run->skip_file && run->skip_file[unit->file])
            continue;
        copied[w] = true;
        code = check_words(plan->ckpt, &plan->weights->items[w], c->err);
    }
    if (code == TP_OK)
        code = tp_invariants_open(plan->ckpt, plan->weights, copied, !run->keep_nonfinite,
                                  invariants, c->err);
    run->invariants = invariants->count ? invariants : NULL;
    free(copied);
    return code;
}

enum tp_code tp_commit_run(const struct tp_commit *c, struct tp_sink *sink,
                           struct tp_run_options *run)
{
    enum tp_code code = tp_run(c->plan, sink, run, c->err);
    if (code == TP_OK && run->invariants) /* however it was read */
        code = tp_invariants_end(run->invariants, c->err);
    return code;
}
