/* Which tensors are stored, against those that the source gives: names, dtypes, shapes. */
#include "pack/check/verify_build.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

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

/* Stored tensors that the source does not give: *count of them; problems when
 * `report`. */
static enum tp_code find_extra(const struct tp_comparison *c, bool report, size_t *count)
{
    const struct tp_checkpoint *stored = c->stored->ckpt;
    enum tp_code code = TP_OK;
    bool *given = tp_os_zalloc(stored->tensor_count + 1, sizeof *given, c->err);
    if (!given)
        return TP_E_MEMORY;
    *count = 0;
    for (size_t o = 0; o < c->plan->output_count; o++) {
        const struct tp_tensor *tensor = tp_checkpoint_find(stored, c->plan->outputs[o].name);
        if (tensor)
            given[tensor - stored->tensors] = true;
    }
    for (size_t t = 0; t < stored->tensor_count && code == TP_OK; t++) {
        const struct tp_tensor *tensor = &stored->tensors[t];
        if (given[t])
            continue;
        ++*count;
        if (report)
            code = tp_verify_problem(c->report, stored->files[tensor->file].name, tensor->name,
                                     c->err, "is not among the tensors that the source gives");
    }
    free(given);
    return code;
}

/* Outputs that are not stored, or otherwise: *count of them and the first. */
static enum tp_code find_wrong(const struct tp_comparison *c, bool report, size_t *count,
                               const struct tp_output **first)
{
    enum tp_code code = TP_OK;
    *count = 0;
    for (size_t o = 0; o < c->plan->output_count && code == TP_OK; o++) {
        const struct tp_output *output = &c->plan->outputs[o];
        const char *what = mismatch(output, tp_checkpoint_find(c->stored->ckpt, output->name));
        if (!what)
            continue;
        if (++*count == 1)
            *first = output;
        if (report)
            code = tp_verify_problem(c->report, NULL, output->name, c->err, "%s", what);
    }
    return code;
}

enum tp_code tp_verify_outputs(const struct tp_comparison *c)
{
    const struct tp_checkpoint *stored = c->stored->ckpt;
    size_t wrong, extra;
    const struct tp_output *first = NULL;
    enum tp_code code = find_wrong(c, false, &wrong, &first);
    if (code == TP_OK)
        code = find_extra(c, false, &extra);
    if (code)
        return code;
    if (4 * (wrong + extra) > c->plan->output_count + stored->tensor_count) {
        tp_err_path(c->err, c->source->ckpt->path);
        tp_err_hint(c->err, "name the checkpoint that %s was made from", stored->path);
        return tp_fail(c->err, TP_E_INPUT,
                       "this is another model: of the %zu tensors that it gives, %zu are not in %s "
                       "with that name, dtype and shape%s%.200s", c->plan->output_count, wrong,
                       stored->path, first ? ", such as " : "",
                       first ? first->name : "");
    }
    code = wrong ? find_wrong(c, true, &wrong, &first) : TP_OK;
    return code || !extra ? code : find_extra(c, true, &extra);
}
