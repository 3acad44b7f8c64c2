/* Activation scales: a source that was calibrated has one number beside each weight, by which
 * activations are divided before they are quantized. Formats whose kernels take them say how
 * (`inputs` of the format file): one number for each expert, or the largest for all of them.
 *
 * Invariant: what is written for an expert is the largest scale of its parts, as engines make it
 * when they fuse gate and up; a scale that is read stays in the plan, renamed, or is left out.
 */
#include "pack/plan/unit/build.h"

#include "kernels/op/scalar.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/unit/constant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A source's scales: a multiplier, as the scale of weights is, or its reciprocal. A format stores
 * reciprocals where its global scale is a divisor. */
struct scales {
    const struct tp_tensor *tensor; /* NULL: there are none */
    bool divides;
};

static const struct tp_weight *weight_at(const struct tp_plan *plan, uint32_t w)
{
    return &plan->weights->items[w];
}

/* One number, or one for each expert. */
static bool fits(const struct tp_tensor *tensor, uint64_t experts)
{
    return tensor->dtype == TP_F32 && tensor->rank <= 1 &&
           (tensor->bytes == 4 || tensor->bytes == 4 * experts);
}

/* *misfit (NULL: not asked for): a tensor of such a name that holds no such numbers, or NULL. */
static struct scales find_scales(const struct tp_plan *plan, const struct tp_weight *weight,
                                 const struct tp_tensor **misfit)
{
    static const char *const ends[] = {"input_scale", "input_global_scale"};
    const struct tp_weight_form *form = weight->form;
    const char *own = form->format ? form->format->inputs.suffix : NULL;
    struct scales scales = {NULL, false};
    char name[TP_FULL_NAME];
    for (size_t i = 0; i < 2 && form->format && !form->format->is_bias && !scales.tensor; i++) {
        if (snprintf(name, sizeof name, "%s%c%s", weight->name, form->joint, ends[i]) >=
            (int)sizeof name)
            return scales;
        scales.tensor = tp_checkpoint_find(plan->ckpt, name);
        if (scales.tensor && !fits(scales.tensor, form->box.e)) {
            if (misfit)
                *misfit = scales.tensor;
            scales.tensor = NULL;
        }
        scales.divides = own && strcmp(own, ends[i]) == 0 ? tp_op_divides(&form->op) : i == 1;
    }
    return scales;
}

static struct scales scales_of(const struct tp_plan *plan, const struct tp_weight *weight)
{
    return find_scales(plan, weight, NULL);
}

/* Whether all parts have scales for activations of the unit's kind, of one kind. */
static bool have_scales(const struct tp_builder *b, const struct tp_unit *unit)
{
    struct scales first = scales_of(b->plan, weight_at(b->plan, unit->views[0].weight));
    bool all = first.tensor != NULL;
    for (uint64_t i = 0; i < tp_unit_views(unit) && all; i++) {
        const struct tp_weight *weight = weight_at(b->plan, unit->views[i].weight);
        struct scales scales = scales_of(b->plan, weight);
        all = scales.tensor && scales.divides == first.divides &&
              weight->form->op.codec == unit->form->op.codec;
    }
    return all;
}

void tp_plan_leave_inputs(struct tp_builder *b, uint32_t w)
{
    struct scales scales = scales_of(b->plan, weight_at(b->plan, w));
    if (!scales.tensor)
        return;
    b->taken[scales.tensor - b->plan->ckpt->tensors] = true;
    b->plan->drops = true;
}

/* The scale of an expert: a number above 0. */
static enum tp_code read_scale(const struct tp_builder *b, const struct tp_tensor *tensor,
                               uint64_t expert, float *number)
{
    uint64_t at = tensor->bytes == 4 ? 0 : 4 * expert;
    enum tp_code code = tp_checkpoint_read(b->plan->ckpt, tensor->file, number, 4,
                                           tensor->offset + at, b->err);
    if (code == TP_OK && *number > 0 && tp_f32_bits(*number) < TP_F32_INF_BITS)
        return TP_OK;
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    if (code)
        return code;
    tp_err_hint(b->err, "get the file again, or convert with --weights-only");
    return tp_fail(b->err, TP_E_INPUT, "the activation scale is %g, which is no positive number",
                   (double)*number);
}

/* What is copied is looked at, too. */
static enum tp_code check_scales(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    enum tp_code code = TP_OK;
    float ignored;
    for (uint64_t e = 0; e < tensor->bytes / sizeof ignored && code == TP_OK; e++)
        code = read_scale(b, tensor, e, &ignored);
    return code;
}

enum tp_code tp_plan_note_inputs(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    for (size_t u = 0; u < plan->kept_unit_count; u++) {
        struct tp_unit *unit = &plan->kept_units[u];
        struct scales scales = scales_of(plan, weight_at(plan, unit->views[0].weight));
        struct tp_unit_form form;
        enum tp_code code;
        if (!scales.tensor || b->taken[scales.tensor - plan->ckpt->tensors])
            continue;
        if ((code = check_scales(b, scales.tensor)))
            return code;
        memcpy(&form, unit->form, sizeof form); /* with what lies between the members */
        form.inputs = true;
        if (!(unit->form = tp_shared_keep(&plan->forms, &form, sizeof form, b->err)))
            return TP_E_MEMORY;
    }
    return TP_OK;
}

/* The scale of most room for activations, of two: the smaller one of divisors. */
static float wider(float a, float b, bool divides)
{
    return (a < b) == divides ? a : b;
}

/* Engines load a fused set as one matrix (q, k and v, gate and up): all have the widest scale. */
static enum tp_code widen_by_set(const struct tp_builder *b, const struct tp_weight *weight,
                                 struct scales own, float *fused)
{
    char key[TP_FULL_NAME], name[TP_FULL_NAME];
    struct tp_fused_name set;
    enum tp_code code = TP_OK;
    if (!tp_name_fused(&b->plan->weights->facts, weight->name, key, sizeof key, &set))
        return TP_OK;
    const char *end = own.tensor->name + strlen(weight->name);
    for (size_t p = 0; p < set.set->parts && code == TP_OK; p++) {
        float number;
        int size = snprintf(name, sizeof name, "%.*s%s%s", (int)set.module, weight->name,
                            set.set->part[p], end);
        const struct tp_tensor *tensor =
            size < (int)sizeof name ? tp_checkpoint_find(b->plan->ckpt, name) : NULL;
        if (!tensor || !fits(tensor, 1))
            continue;
        if ((code = read_scale(b, tensor, 0, &number)) == TP_OK)
            *fused = wider(*fused, number, own.divides);
    }
    return code;
}

/* The scale of the parts of experts [first, end), in the unit's kind. */
static enum tp_code fused_scale(const struct tp_builder *b, const struct tp_unit *unit,
                                uint64_t first, uint64_t end, float *fused)
{
    uint32_t parts = unit->form->views_per_expert;
    const struct tp_weight *weight = weight_at(b->plan, unit->views[0].weight);
    struct scales own = scales_of(b->plan, weight);
    bool divides = own.divides;
    enum tp_code code = TP_OK;
    for (uint64_t i = first * parts; i < end * parts && code == TP_OK; i++) {
        struct tp_view view = tp_unit_view(unit, i / parts, (uint32_t)(i % parts));
        float number = 0;
        code = read_scale(b, scales_of(b->plan, weight_at(b->plan, view.weight)).tensor,
                          view.expert, &number);
        *fused = i == first * parts ? number : wider(*fused, number, divides);
    }
    if (code == TP_OK && unit->form->rank == 2)
        code = widen_by_set(b, weight, own, fused);
    if (code)
        return code;
    if (divides != tp_op_divides(&unit->form->op))
        *fused = 1.0f / *fused;
    if (*fused > 0 && tp_f32_bits(*fused) < TP_F32_INF_BITS)
        return TP_OK;
    tp_err_tensor(b->err, unit->name);
    tp_err_hint(b->err, "calibrate the model again, or convert with --weights-only");
    return tp_fail(b->err, TP_E_INPUT, "its activation scale would be %g", (double)*fused);
}

/* What the tensor of the unit's scales holds: one number for each expert, or one. */
static enum tp_code fill(const struct tp_builder *b, const struct tp_unit *unit, float *numbers,
                         uint64_t count)
{
    const struct tp_format_inputs *inputs = &unit->form->format->inputs;
    uint64_t experts = unit->form->box.e;
    enum tp_code code = TP_OK;
    if (inputs->largest)
        code = fused_scale(b, unit, 0, experts, &numbers[0]);
    for (uint64_t e = 0; e < count && code == TP_OK; e++)
        if (inputs->largest)
            numbers[e] = numbers[0];
        else
            code = fused_scale(b, unit, e, e + 1, &numbers[e]);
    return code;
}

static enum tp_code add(struct tp_builder *b, const struct tp_unit *unit)
{
    const struct tp_format_inputs *inputs = &unit->form->format->inputs;
    const struct tp_weight *first = weight_at(b->plan, unit->views[0].weight);
    struct tp_plan *plan = b->plan;
    uint64_t count = inputs->single ? 1 : unit->form->box.e;
    struct tp_output made = {.bytes = 4 * count, .unit = UINT32_MAX, .dtype = TP_F32,
                             .rank = !inputs->single,
                             .source = (uint32_t)(plan->ckpt->tensor_count + plan->made_count)};
    char end[64];
    snprintf(end, sizeof end, "%c%s", unit->form->joint, inputs->suffix);
    float *numbers = tp_store_zalloc(&plan->store, count, sizeof *numbers, b->err);
    made.name = tp_store_join(&plan->store, unit->name, strlen(unit->name), end, b->err);
    made.shape = tp_store_copy(&plan->store, &count, sizeof count, b->err);
    const struct tp_constant constant = {.made = numbers};
    made.constant = tp_store_copy(&plan->store, &constant, sizeof constant, b->err);
    if (!numbers || !made.name || !made.shape || !made.constant)
        return TP_E_MEMORY;
    enum tp_code code = fill(b, unit, numbers, count);
    const struct tp_tensor *tensor = scales_of(plan, first).tensor;
    if (code == TP_OK)
        code = tp_plan_add_kept(b, (uint32_t)(tensor - plan->ckpt->tensors), UINT32_MAX, NULL);
    if (code)
        return code;
    plan->made_count++;
    struct tp_kept *kept = &plan->kept[plan->kept_count - 1];
    kept->made = tp_store_copy(&plan->store, &made, sizeof made, b->err);
    return kept->made ? TP_OK : TP_E_MEMORY;
}

/* A tensor that has the name of an activation scale, and not what one is. */
static enum tp_code refuse_misfit(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    char shape[TP_PLAN_SHAPE];
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    tp_err_hint(b->err, "correct the tensor, or convert with --weights-only");
    return tp_fail(b->err, TP_E_INPUT, "the activation scale is %s [%s], and has to be F32 with "
                   "one number, [] or [1], or in a stack one for each expert, [E]",
                   tp_dtype_name(tensor->dtype), tp_plan_shape_text(tensor, shape));
}

static enum tp_code refuse(const struct tp_builder *b, const struct tp_unit *unit)
{
    const struct tp_tensor *misfit = NULL;
    for (uint64_t i = 0; i < tp_unit_views(unit); i++) {
        const struct tp_weight *weight = weight_at(b->plan, unit->views[i].weight);
        if (!find_scales(b->plan, weight, &misfit).tensor && misfit)
            return refuse_misfit(b, misfit);
    }
    tp_err_tensor(b->err, unit->name);
    tp_err_hint(b->err, "convert a checkpoint that was calibrated, whose weights have an "
                        "input_scale or input_global_scale; or the weights alone, with "
                        "--weights-only");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s needs activation scales, and the source has none "
                   "for it: %s", unit->form->format->name, unit->form->format->inputs.why);
}

enum tp_code tp_plan_add_inputs(struct tp_builder *b, struct tp_unit *unit)
{
    const struct tp_format_inputs *inputs = &unit->form->format->inputs;
    bool wanted = inputs->suffix && !b->request->weights_only;
    enum tp_code code = TP_OK;
    if (unit->form->format->is_bias || (!wanted && !b->request->weights_only))
        return TP_OK;
    bool carried = wanted && have_scales(b, unit);
    if (wanted && !carried)
        return inputs->why && !b->request->bare ? refuse(b, unit) : TP_OK;
    if (carried)
        code = add(b, unit);
    unit->form->inputs = carried;
    for (uint64_t i = 0; i < tp_unit_views(unit) && code == TP_OK; i++)
        tp_plan_leave_inputs(b, unit->views[i].weight);
    return code;
}
