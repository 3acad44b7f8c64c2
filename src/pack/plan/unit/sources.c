/* Packed sources while planning: what is read of them beforehand, and why one of
 * them is refused.
 *
 * Invariant: after tp_plan_check_sources() every chosen packed weight can be
 * decoded, and tensors that look packed but were not recognised are an error.
 */
#include "pack/plan/unit/build.h"

#include "base/suffix.h"
#include "pack/os/os.h"
#include "pack/source/source_check.h"
#include "pack/source/source_config.h"
#include "pack/source/source_spare.h"
#include "pack/source/source_transforms.h"
#include "pack/text/json_tree.h"

#include <stdio.h>
#include <string.h>

bool tp_looks_packed(const struct tp_tensor *tensor)
{
    static const char *const suffixes[] = {".qweight", ".weight_packed", "_proj_blocks"};
    if (tensor->rank < 2 || tensor->bytes == 0)
        return false;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (tp_ends_with(tensor->name, suffixes[i]))
            return true;
    return tp_ends_with(tensor->name, ".weight") && !tp_dtype_is_float(tensor->dtype) &&
           tensor->dtype != TP_BOOL && tp_dtype_bits(tensor->dtype) <= 32;
}

const char *tp_plan_shape_text(const struct tp_tensor *tensor, char text[TP_PLAN_SHAPE])
{
    size_t size = 0;
    *text = '\0';
    for (uint32_t d = 0; d < tensor->rank; d++)
        size += (size_t)snprintf(text + size, TP_PLAN_SHAPE - size, "%s%llu", d ? "," : "",
                                 (unsigned long long)tensor->shape[d]);
    return text;
}

/* Codes of no format that is read: an error, unless they are excluded. */
static enum tp_code refuse_unknown(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    char shape[TP_PLAN_SHAPE];
    bool excluded;
    enum tp_code code = tp_request_excludes(b->request, tensor->name, &excluded, b->err);
    if (code || excluded)
        return code;
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    tp_err_hint(b->err, "`tilepack formats` lists what is read (of GPTQ and AWQ: 4 bits); "
                        "--exclude leaves the tensor as it is");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s [%s] looks like the codes of a quantized weight, "
                   "but with the tensors beside it it is of no format that is read here",
                   tp_dtype_name(tensor->dtype), tp_plan_shape_text(tensor, shape));
}

/* What stands beside a weight and says nothing is not copied: another form would read it. */
static void leave_spares(struct tp_builder *b, const struct tp_weight *weight)
{
    for (uint32_t t = tp_source_spare(b->plan->ckpt, weight, 0); t != TP_NO_TENSOR;
         t = tp_source_spare(b->plan->ckpt, weight, t + 1))
        b->taken[t] = true;
}

/* Whether a weight becomes another. */
static bool changes(const struct tp_builder *b, uint32_t w)
{
    return b->choices ? b->choices[w].rule != NULL
                      : b->request->restore && b->plan->weights->items[w].form->format;
}

/* What is changed has no word for inputs that are transformed, and what config.json says of all
 * weights is written anew. */
static enum tp_code check_transforms(const struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code = TP_OK;
    bool any = false;
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++) {
        if (!changes(b, w))
            continue;
        if (!any)
            code = tp_source_transforms_check(b->plan->ckpt, b->err);
        if (code == TP_OK && weights->items[w].form->format)
            code = tp_source_beside_check(b->plan->ckpt, &weights->items[w], b->err);
        any = true;
    }
    return code;
}

enum tp_code tp_plan_check_sources(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    uint64_t mark = tp_json_mark();
    enum tp_code code =
        tp_source_config_check(b->plan->ckpt, weights, b->choices != NULL, b->err);
    if (code == TP_OK)
        code = check_transforms(b);
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        if (!b->choices || b->choices[w].rule) {
            code = tp_source_check(b->plan->ckpt, weights, w, b->err);
            if (code == TP_OK)
                leave_spares(b, &weights->items[w]);
        }
    for (size_t i = 0; i < weights->other_count && code == TP_OK && b->choices; i++) {
        const struct tp_tensor *tensor = &b->plan->ckpt->tensors[weights->other[i]];
        if (tp_looks_packed(tensor))
            code = refuse_unknown(b, tensor);
    }
    return tp_json_check(mark, code, b->err);
}

enum tp_code tp_plan_refuse(const struct tp_builder *b, const struct tp_unit *unit,
                            const char *reason)
{
    const struct tp_weight *weight = &b->plan->weights->items[unit->views[0].weight];
    uint32_t codes = weight->tensor[tp_op_find(&weight->form->op, TP_ROLE_CODES)];
    char source[128];
    tp_err_tensor(b->err, unit->name);
    tp_err_path(b->err, b->plan->ckpt->files[b->plan->ckpt->tensors[codes].file].path);
    tp_err_hint(b->err, "--exclude leaves it as it is");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s cannot be converted to %s: %s",
                   tp_weight_source(weight, source, sizeof source), unit->form->format->name,
                   reason);
}
