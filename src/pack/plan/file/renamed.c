#include "pack/plan/file/renamed.h"

#include "pack/text/text.h"

#include <string.h>

struct renaming {
    tp_renamed_fn each;
    void *state;
    struct tp_text text; /* of the name that is being made */
    struct tp_err *err;
};

/* Where the run of whole segments begins in the name, or NULL. */
static const char *find_run(const char *name, size_t size, const char *run)
{
    size_t length = strlen(run);
    for (size_t i = 0; i + length <= size; i++)
        if ((i == 0 || name[i - 1] == '.') && memcmp(name + i, run, length) == 0 &&
            (i + length == size || name[i + length] == '.'))
            return name + i;
    return NULL;
}

/* The name with that run replaced, into `text`; nothing if the run is not in it. */
static enum tp_code rename_run(struct renaming *r, const char *name, size_t size,
                               const struct tp_model_rename *rename)
{
    const char *run = find_run(name, size, rename->from);
    r->text.size = 0;
    if (!run)
        return TP_OK;
    const char *rest = run + strlen(rename->from);
    enum tp_code code;
    if ((code = tp_text_add(&r->text, name, (size_t)(run - name), r->err)) ||
        (code = tp_text_add_word(&r->text, rename->to, r->err)))
        return code;
    return tp_text_add(&r->text, rest, (size_t)(name + size - rest), r->err);
}

/* The names of one model. */
static enum tp_code of_model(struct renaming *r, const char *name, size_t size,
                             const struct tp_model *model)
{
    struct tp_text all = {0};
    size_t replaced = 0;
    enum tp_code code = tp_text_add(&all, name, size, r->err);
    for (size_t i = 0; i < model->renames && code == TP_OK; i++) {
        code = rename_run(r, name, size, &model->rename[i]);
        if (code == TP_OK && r->text.size)
            code = r->each(r->state, r->text.data, r->text.size);
        if (code == TP_OK)
            code = rename_run(r, all.data, all.size, &model->rename[i]);
        if (code || !r->text.size)
            continue;
        all.size = 0;
        replaced++;
        code = tp_text_add(&all, r->text.data, r->text.size, r->err);
    }
    if (code == TP_OK && replaced > 1)
        code = r->each(r->state, all.data, all.size);
    tp_text_free(&all);
    return code;
}

enum tp_code tp_each_renamed(const struct tp_model_facts *facts, const char *name, size_t size,
                             tp_renamed_fn each, void *state, struct tp_err *err)
{
    struct renaming r = {.each = each, .state = state, .err = err};
    enum tp_code code = TP_OK;
    for (size_t m = 0; m < facts->count && code == TP_OK; m++)
        if (facts->model[m]->renames)
            code = of_model(&r, name, size, facts->model[m]);
    tp_text_free(&r.text);
    return code;
}
