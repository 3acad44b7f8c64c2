/* Packed weights that are copied as they are. They get a fresh hash, which says that they are
 * right: so what is known of them without a source is looked at on the way.
 */
#include "pack/commit/commit_build.h"

#include "pack/os/os.h"
#include "pack/run/run.h"
#include "pack/source/contents.h"

#include <stdlib.h>

static enum tp_code check_words(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                struct tp_err *err)
{
    char what[TP_WORD_TEXT];
    enum tp_code code = TP_OK;
    for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++) {
        if (weight->form->op.out[i].role != TP_ROLE_WORDS || weight->tensor[i] == TP_NO_TENSOR ||
            (code = tp_words_check(ckpt, weight, i, what, err)) || !*what)
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

enum tp_code tp_commit_run(const struct tp_commit *c, const struct tp_plan *plan,
                           struct tp_sink *sink, struct tp_run_options *run)
{
    const struct tp_plan *whole = c->plan; /* of which ranks copy the same weights */
    struct tp_contents contents = {0};
    struct tp_weights kept = {0};
    enum tp_code code = TP_OK;
    if (!whole->kept_unit_count || run->gather)
        return tp_run(plan, sink, run, c->err);
    if (!(kept.items = tp_os_zalloc(whole->kept_unit_count, sizeof *kept.items, c->err)))
        return TP_E_MEMORY;
    for (size_t u = 0; u < whole->kept_unit_count && code == TP_OK; u++) {
        const struct tp_unit *unit = &whole->kept_units[u];
        const struct tp_weight *weight = &whole->weights->items[unit->views[0].weight];
        if (run->skip_file && run->skip_file[unit->file])
            continue;
        kept.items[kept.count++] = *weight;
        code = check_words(whole->ckpt, weight, c->err);
    }
    if (code == TP_OK)
        code = tp_contents_open(whole->ckpt, &kept, !run->keep_nonfinite, &contents, c->err);
    run->contents = contents.count ? &contents : NULL;
    if (code == TP_OK)
        code = tp_run(plan, sink, run, c->err);
    if (code == TP_OK) /* however it was read */
        code = tp_contents_end(&contents, c->err);
    run->contents = NULL;
    tp_contents_close(&contents);
    free(kept.items);
    return code;
}
