/* The plan: lists that grow while it is made, of units and of tensors that are copied. A
 * packed weight that is copied keeps its tensors together, its descriptor and its origins.
 */
#include "pack/plan/unit/build.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/source/weight_complete.h"

#include <stdlib.h>
#include <string.h>

void tp_builder_close(struct tp_builder *b)
{
    free(b->choices);
    b->choices = NULL;
    free(b->left_out);
    b->left_out = NULL;
    free(b->packed_biases);
    b->packed_biases = NULL;
    free(b->unread);
    b->unread = NULL;
    tp_shared_close(&b->rules);
    tp_engine_asks_close(&b->asks);
    tp_names_close(&b->with_gate);
    tp_names_close(&b->with_up);
    tp_names_close(&b->interleaved);
}

static enum tp_use use_of(const struct tp_plan *plan, const struct tp_unit *unit)
{
    return unit->form->rank == 3 ? TP_USE_EXPERTS
                                 : tp_name_use(&plan->weights->facts, unit->name);
}

enum tp_code tp_plan_add_unit(struct tp_builder *b, struct tp_unit *unit)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->units, &b->unit_capacity, plan->unit_count + 1,
                                   sizeof *plan->units, b->err);
    unit->form = tp_shared_keep(&plan->forms, unit->form, sizeof *unit->form, b->err);
    if (!unit->form)
        code = TP_E_MEMORY;
    if (code) {
        tp_unit_close(unit);
        return code;
    }
    unit->use = (uint8_t)use_of(plan, unit);
    plan->units[plan->unit_count++] = *unit;
    return TP_OK;
}

enum tp_code tp_plan_add_kept(struct tp_builder *b, uint32_t tensor, uint32_t unit,
                              const char *reason)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->kept, &b->kept_capacity, plan->kept_count + 1,
                                   sizeof *plan->kept, b->err);
    if (code)
        return code;
    struct tp_kept *kept = &plan->kept[plan->kept_count++];
    kept->tensor = tensor;
    kept->unit = unit;
    kept->reason = reason;
    kept->made = NULL;
    kept->integers = unit == UINT32_MAX && b->unread && b->unread[tensor] == TP_UNREAD_INTEGERS;
    return TP_OK;
}

enum tp_code tp_unit_of_weight(struct tp_plan *plan, struct tp_unit *unit, enum tp_unit_kind kind,
                               uint32_t w, struct tp_err *err)
{
    const struct tp_weight *weight = &plan->weights->items[w];
    const struct tp_weight_form *from = weight->form;
    struct tp_unit_form form;
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    form.kind = kind;
    form.box = from->box;
    form.rank = from->rank;
    form.format = from->format;
    form.settings = from->settings;
    form.search = from->search;
    form.op = from->op;
    form.outs = from->op.outs;
    form.dtype = form.original = from->dtype;
    form.separator = from->separator;
    form.views_per_expert = 1;
    form.repeats = true;
    form.view_rows[0] = from->box.n;
    *unit = (struct tp_unit){.name = weight->name, .stats = UINT32_MAX};
    unit->form = tp_shared_keep(&plan->forms, &form, sizeof form, err);
    unit->views = tp_store_zalloc(&plan->store, 1, sizeof *unit->views, err);
    if (!unit->form || !unit->views)
        return TP_E_MEMORY;
    unit->views[0] = (struct tp_view){.weight = w, .step = 1};
    return TP_OK;
}

/* What another tool's GPTQ weight is, that readers know from config.json. */
static enum tp_code note_gptq(struct tp_builder *b, uint32_t w, struct tp_unit *unit)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    struct tp_source_gptq gptq;
    struct tp_unit_form form;
    if (weight->origin || !weight->form->format->op.zero_add)
        return TP_OK;
    enum tp_code code = tp_source_gptq(b->plan->ckpt, weight, &gptq, b->err);
    if (code)
        return code;
    memcpy(&form, unit->form, sizeof form); /* with what lies between the members */
    form.ordered = gptq.ordered;
    form.version2 = gptq.version2;
    form.unversioned = gptq.by_config;
    if (gptq.asymmetric)
        tp_format_keep_zeros(form.format, &form.settings);
    unit->form = tp_shared_keep(&b->plan->forms, &form, sizeof form, b->err);
    return unit->form ? TP_OK : TP_E_MEMORY;
}

/* The packed weight as it is, in the form of a unit. */
static enum tp_code add_kept_unit(struct tp_builder *b, uint32_t w)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->kept_units, &b->kept_unit_capacity,
                                   plan->kept_unit_count + 1, sizeof *plan->kept_units, b->err);
    if (code)
        return code;
    struct tp_unit *unit = &plan->kept_units[plan->kept_unit_count++];
    if ((code = tp_unit_of_weight(plan, unit, TP_UNIT_REPACK, w, b->err)))
        return code;
    unit->use = (uint8_t)use_of(plan, unit);
    return note_gptq(b, w, unit);
}

void tp_plan_leave_out(struct tp_builder *b, const struct tp_tensor *tensor)
{
    struct tp_left_out *left = &b->plan->left;
    const char *dot = tensor ? strrchr(tensor->name, '.') : NULL;
    size_t i = 0;
    if (!tensor || tp_plan_is_left_out(b, tensor))
        return;
    b->left_out[tensor - b->plan->ckpt->tensors] = true;
    left->count++;
    while (i < left->ends && strcmp(left->end[i], dot ? dot : tensor->name) != 0)
        i++;
    if (i == left->ends && i < sizeof left->end / sizeof *left->end)
        left->end[left->ends++] = dot ? dot : tensor->name;
}

bool tp_plan_is_left_out(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    return b->left_out[tensor - b->plan->ckpt->tensors];
}

enum tp_code tp_plan_keep_weight(struct tp_builder *b, uint32_t w, const char *reason)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    if (b->left_out && b->left_out[weight->tensor[0]])
        return TP_OK;
    enum tp_code code = weight->form->format ? add_kept_unit(b, w) : TP_OK;
    uint32_t unit = weight->form->format ? (uint32_t)b->plan->kept_unit_count - 1 : UINT32_MAX;
    for (uint32_t i = 0; i < TP_MAX_OUT && code == TP_OK; i++)
        if (weight->tensor[i] != TP_NO_TENSOR)
            code = tp_plan_add_kept(b, weight->tensor[i], unit, reason);
    return code;
}

bool tp_plan_is_bias(const struct tp_weight *weight)
{
    return weight->form->format && weight->form->format->is_bias;
}
