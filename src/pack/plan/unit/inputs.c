/* Activation scales: a source that was calibrated has one number beside each weight, by which
 * activations are divided before they are quantized. Of another source a file of importance may say
 * how large activations become. Formats whose kernels take scales say how (`inputs` of the format
 * file): one number for each expert, or the largest for all of them.
 *
 * Invariant: what is written for an expert is the largest scale of its parts, as engines make it
 * when they fuse gate and up; a scale that is read stays in the plan, renamed, or is left out.
 */
#include "pack/plan/unit/build.h"

#include "kernels/op/scalar.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/unit/constant.h"
#include "pack/quantizer/quantizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A source's scales: a multiplier, as the scale of weights is, or its reciprocal. A format stores
 * reciprocals where its global scale is a divisor. */
struct scales {
    const struct tp_tensor *tensor; /* NULL: there are none */
    bool divides;
};

/* One number, or one for each expert. */
static bool fits(const struct tp_tensor *tensor, uint64_t experts)
{
    uint64_t width = tp_dtype_bits(tensor->dtype) / 8;
    return (tensor->dtype == TP_F32 || tensor->dtype == TP_BF16) && tensor->rank <= 1 &&
           (tensor->bytes == width || tensor->bytes == width * experts);
}

/* The tensor of the weight's name with that suffix, or NULL. */
static const struct tp_tensor *find_beside(const struct tp_plan *plan,
                                           const struct tp_weight *weight, const char *suffix)
{
    char name[TP_FULL_NAME];
    const char separator[2] = {weight->form->separator, '\0'};
    int size = snprintf(name, sizeof name, "%s%s%s", weight->name, separator, suffix);
    return size < (int)sizeof name ? tp_checkpoint_find(plan->ckpt, name) : NULL;
}

/* A suffix that tensors of activation scales have, and whether the numbers there are divisors. */
struct suffix {
    const char *text;
    bool divides;
};

/* The suffixes to look for beside a packed weight: those of its quantizer or, where tilepack
 * packed it, of our formats. None beside plain weights and biases. */
static size_t suffixes_of(const struct tp_weight_form *form, struct suffix suffix[TP_MAX_BESIDE])
{
    if (!form->format || form->format->is_bias)
        return 0;
    const char *own = form->format->inputs.suffix;
    size_t count = 0;
    for (uint32_t i = 0; form->by && i < form->by->besides; i++)
        if (form->by->beside[i].is <= TP_BESIDE_DIVISOR)
            suffix[count++] = (struct suffix){form->by->beside[i].suffix,
                                              form->by->beside[i].is == TP_BESIDE_DIVISOR};
    if (!form->by) {
        suffix[count++] = (struct suffix){"input_scale", false};
        suffix[count++] = (struct suffix){"input_global_scale", true};
    }
    for (size_t i = 0; i < count && own; i++)
        if (strcmp(own, suffix[i].text) == 0)
            suffix[i].divides = tp_op_divides(&form->op);
    return count;
}

/* The activation scales beside a weight. *misfit (NULL: not asked for) is set to a tensor that has
 * the name of one and does not hold such numbers, if there is one. */
static struct scales find_scales(const struct tp_plan *plan, const struct tp_weight *weight,
                                 const struct tp_tensor **misfit)
{
    struct suffix suffix[TP_MAX_BESIDE];
    size_t count = suffixes_of(weight->form, suffix);
    for (size_t i = 0; i < count; i++) {
        const struct tp_tensor *tensor = find_beside(plan, weight, suffix[i].text);
        if (tensor && fits(tensor, weight->form->box.e))
            return (struct scales){tensor, suffix[i].divides};
        if (tensor && misfit)
            *misfit = tensor;
    }
    return (struct scales){NULL, false};
}

static struct scales scales_of(const struct tp_plan *plan, const struct tp_weight *weight)
{
    return find_scales(plan, weight, NULL);
}

/* Whether every part of the unit has scales, for activations of the unit's codec, and they are all
 * multipliers or all divisors. */
static bool have_scales(const struct tp_builder *b, const struct tp_unit *unit)
{
    struct scales first = scales_of(b->plan, tp_weight_at(b, unit->views[0].weight));
    bool all = first.tensor != NULL;
    for (uint64_t i = 0; i < tp_unit_views(unit) && all; i++) {
        const struct tp_weight *weight = tp_weight_at(b, unit->views[i].weight);
        struct scales scales = scales_of(b->plan, weight);
        all = scales.tensor && scales.divides == first.divides &&
              weight->form->op.codec == unit->form->op.codec;
    }
    return all;
}

void tp_plan_leave_inputs(struct tp_builder *b, uint32_t w)
{
    struct suffix suffix[TP_MAX_BESIDE];
    const struct tp_weight *weight = tp_weight_at(b, w);
    size_t count = suffixes_of(weight->form, suffix);
    for (size_t i = 0; i < count; i++) {
        const struct tp_tensor *tensor = find_beside(b->plan, weight, suffix[i].text);
        b->plan->drops = b->plan->drops || tensor;
        tp_plan_leave_out(b, tensor);
    }
}

/* A marker may stand once for all weights of a module, or of the whole model: it is looked for in
 * each module that the weight is in, and at the root. */
static void leave_markers(struct tp_builder *b, const struct tp_weight *weight, const char *suffix)
{
    char name[TP_FULL_NAME];
    for (const char *at = weight->name; at; at = strchr(at, '.')) {
        at += at > weight->name; /* behind the dot */
        int size = snprintf(name, sizeof name, "%.*s%s", (int)(at - weight->name), weight->name,
                            suffix);
        if (size < (int)sizeof name)
            tp_plan_leave_out(b, tp_checkpoint_find(b->plan->ckpt, name));
    }
}

void tp_plan_leave_beside(struct tp_builder *b, uint32_t w)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    const struct tp_quantizer *by = weight->form->by;
    for (uint32_t i = 0; by && i < by->besides; i++) {
        if (by->beside[i].is < TP_BESIDE_MARKER)
            continue;
        tp_plan_leave_out(b, find_beside(b->plan, weight, by->beside[i].suffix));
        if (by->beside[i].is == TP_BESIDE_MARKER)
            leave_markers(b, weight, by->beside[i].suffix);
    }
}

/* The scale of an expert: a number above 0. */
static enum tp_code read_scale(const struct tp_builder *b, const struct tp_tensor *tensor,
                               uint64_t expert, float *number)
{
    uint64_t width = tp_dtype_bits(tensor->dtype) / 8;
    uint64_t at = tensor->bytes == width ? 0 : width * expert;
    uint32_t bits = 0;
    enum tp_code code = tp_checkpoint_read(b->plan->ckpt, tensor->file, &bits, width,
                                           tensor->offset + at, b->err);
    *number = tensor->dtype == TP_F32 ? tp_bits_f32(bits) : tp_bf16_to_f32((uint16_t)bits);
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

/* Scales that are copied as they are have to be positive numbers, too. */
static enum tp_code check_scales(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    uint64_t count = tensor->bytes / (tp_dtype_bits(tensor->dtype) / 8);
    enum tp_code code = TP_OK;
    float ignored;
    for (uint64_t e = 0; e < count && code == TP_OK; e++)
        code = read_scale(b, tensor, e, &ignored);
    return code;
}

enum tp_code tp_plan_note_inputs(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    for (size_t u = 0; u < plan->kept_unit_count; u++) {
        struct tp_unit *unit = &plan->kept_units[u];
        struct scales scales = scales_of(plan, tp_weight_at(b, unit->views[0].weight));
        struct tp_unit_form form;
        enum tp_code code;
        if (!scales.tensor || tp_plan_is_left_out(b, scales.tensor))
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

/* Of two scales the one that larger activations fit: the larger multiplier, the smaller divisor. */
static float wider(float a, float b, bool divides)
{
    return (a < b) == divides ? a : b;
}

/* Engines load a fused set (q, k and v; gate and up) as one matrix, so all of it gets the widest
 * scale of its parts, of which each is a weight of its own here. */
static enum tp_code widen_by_set(const struct tp_builder *b, const struct tp_weight *weight,
                                 struct scales own, float *fused)
{
    char key[TP_FULL_NAME], name[TP_FULL_NAME];
    struct tp_fused_name set;
    enum tp_code code = TP_OK;
    if (!own.tensor ||
        !tp_name_fused(&b->plan->weights->facts, weight->name, key, sizeof key, &set))
        return TP_OK;
    const char *end = own.tensor->name + strlen(weight->name); /* from the separator on */
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

static enum tp_code check_scale(const struct tp_builder *b, const struct tp_unit *unit, float scale)
{
    if (scale > 0 && tp_f32_bits(scale) < TP_F32_INF_BITS)
        return TP_OK;
    tp_err_tensor(b->err, unit->name);
    tp_err_hint(b->err, "calibrate the model again, or convert with --weights-only");
    return tp_fail(b->err, TP_E_INPUT, "its activation scale would be %g", (double)scale);
}

/* The widest scale of all parts of the experts [first, end), as the unit's format stores it: a
 * multiplier or a divisor. */
static enum tp_code fused_scale(struct tp_builder *b, const struct tp_unit *unit,
                                uint64_t first, uint64_t end, float *fused)
{
    uint32_t parts = unit->form->views_per_expert;
    const struct tp_weight *weight = tp_weight_at(b, unit->views[0].weight);
    struct scales own = scales_of(b->plan, weight);
    bool divides = own.divides;
    enum tp_code code = TP_OK;
    for (uint64_t i = first * parts; i < end * parts && code == TP_OK; i++) {
        struct tp_view view = tp_unit_view(unit, i / parts, (uint32_t)(i % parts));
        const struct tp_tensor *tensor =
            scales_of(b->plan, tp_weight_at(b, view.weight)).tensor;
        float number = 0;
        if (tensor) /* as have_scales() found */
            code = read_scale(b, tensor, view.expert, &number);
        *fused = i == first * parts ? number : wider(*fused, number, divides);
    }
    if (code == TP_OK && unit->form->rank == 2)
        code = widen_by_set(b, weight, own, fused);
    if (code)
        return code;
    if (divides != tp_op_divides(&unit->form->op))
        *fused = 1.0f / *fused;
    return check_scale(b, unit, *fused);
}

/* The same from a file of importance: the largest activation that was measured becomes the largest
 * value of the format. */
static enum tp_code measured_scale(struct tp_builder *b, const struct tp_unit *unit,
                                   uint64_t first, uint64_t end, float *scale)
{
    const float range = unit->form->format->inputs.range;
    uint32_t parts = unit->form->views_per_expert;
    float largest = 0, part;
    enum tp_code code = TP_OK;
    for (uint64_t i = first * parts; i < end * parts && code == TP_OK; i++) {
        code = tp_plan_largest_input(b, unit, tp_unit_view(unit, i / parts, (uint32_t)(i % parts)),
                                     &part);
        largest = code || part < largest ? largest : part;
    }
    if (code)
        return code;
    *scale = tp_op_divides(&unit->form->op) ? range / largest : largest / range;
    return check_scale(b, unit, *scale);
}

/* Where the scales of a unit come from: its source, or the file of importance. */
enum from { FROM_NOWHERE, FROM_SOURCE, FROM_FILE };

static enum tp_code find_origin(struct tp_builder *b, const struct tp_unit *unit, enum from *from)
{
    uint64_t found = 0, views = tp_unit_views(unit);
    uint32_t parts = unit->form->views_per_expert;
    enum tp_code code = TP_OK;
    *from = have_scales(b, unit) ? FROM_SOURCE : FROM_NOWHERE;
    for (uint64_t i = 0; i < views && !*from && b->request->importance && code == TP_OK; i++) {
        float largest;
        code = tp_plan_largest_input(b, unit, tp_unit_view(unit, i / parts, (uint32_t)(i % parts)),
                                     &largest);
        found += code == TP_OK && largest > 0;
    }
    if (code == TP_OK && found == views)
        *from = FROM_FILE;
    if (code || found == 0 || found == views)
        return code;
    tp_err_tensor(b->err, unit->name);
    tp_err_path(b->err, tp_importance_path(b->request->importance));
    tp_err_hint(b->err, "give an expert that saw no text the largest magnitude of its layer");
    return tp_fail(b->err, TP_E_INPUT, "it has the largest magnitude of inputs, NAME.amax, for "
                   "%llu of the %llu parts of this weight", (unsigned long long)found,
                   (unsigned long long)views);
}

/* The numbers of the unit's tensor of scales: one for each expert, or one for all of them. */
static enum tp_code make_numbers(struct tp_builder *b, const struct tp_unit *unit, enum from from,
                                 float *numbers, uint64_t count)
{
    enum tp_code (*scale)(struct tp_builder *b, const struct tp_unit *unit, uint64_t first,
                          uint64_t end, float *scale) =
        from == FROM_FILE ? measured_scale : fused_scale;
    const struct tp_format_inputs *inputs = &unit->form->format->inputs;
    uint64_t experts = unit->form->box.e;
    enum tp_code code = TP_OK;
    if (inputs->largest)
        code = scale(b, unit, 0, experts, &numbers[0]);
    for (uint64_t e = 0; e < count && code == TP_OK; e++)
        if (inputs->largest)
            numbers[e] = numbers[0];
        else
            code = scale(b, unit, e, e + 1, &numbers[e]);
    return code;
}

/* Adds the tensor of the unit's scales to what is kept. */
static enum tp_code add_scales(struct tp_builder *b, const struct tp_unit *unit, enum from from)
{
    const struct tp_format_inputs *inputs = &unit->form->format->inputs;
    const struct tp_weight *first = tp_weight_at(b, unit->views[0].weight);
    struct tp_plan *plan = b->plan;
    uint64_t count = inputs->single ? 1 : unit->form->box.e;
    struct tp_output made = {.bytes = 4 * count, .unit = UINT32_MAX, .dtype = TP_F32,
                             .rank = !inputs->single,
                             .source = (uint32_t)(plan->ckpt->tensor_count + plan->made_count)};
    char end[64];
    snprintf(end, sizeof end, "%c%s", unit->form->separator, inputs->suffix);
    float *numbers = tp_store_zalloc(&plan->store, count, sizeof *numbers, b->err);
    made.name = tp_store_join(&plan->store, unit->name, strlen(unit->name), end, b->err);
    made.shape = tp_store_copy(&plan->store, &count, sizeof count, b->err);
    const struct tp_constant constant = {.made = numbers};
    made.constant = tp_store_copy(&plan->store, &constant, sizeof constant, b->err);
    if (!numbers || !made.name || !made.shape || !made.constant)
        return TP_E_MEMORY;
    enum tp_code code = make_numbers(b, unit, from, numbers, count);
    const struct tp_tensor *tensor = scales_of(plan, first).tensor;
    if (code == TP_OK) /* what was measured stands where its weight does */
        code = tp_plan_add_kept(b, from == FROM_FILE ? first->tensor[0]
                                                     : (uint32_t)(tensor - plan->ckpt->tensors),
                                UINT32_MAX, NULL);
    if (code)
        return code;
    plan->made_count++;
    struct tp_kept *kept = &plan->kept[plan->kept_count - 1];
    kept->made = tp_store_copy(&plan->store, &made, sizeof made, b->err);
    return kept->made ? TP_OK : TP_E_MEMORY;
}

/* A tensor that has the name of an activation scale and does not hold one. */
static enum tp_code refuse_misfit(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    char shape[TP_PLAN_SHAPE];
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    tp_err_hint(b->err, "correct the tensor, or convert with --weights-only");
    return tp_fail(b->err, TP_E_INPUT, "the activation scale is %s [%s], and has to be F32 or BF16 "
                   "with one number, [] or [1], or in a stack one for each expert, [E]",
                   tp_dtype_name(tensor->dtype), tp_plan_shape_text(tensor, shape));
}

static enum tp_code refuse_missing(const struct tp_builder *b, const struct tp_unit *unit)
{
    const struct tp_tensor *misfit = NULL;
    for (uint64_t i = 0; i < tp_unit_views(unit); i++) {
        const struct tp_weight *weight = tp_weight_at(b, unit->views[i].weight);
        if (!find_scales(b->plan, weight, &misfit).tensor && misfit)
            return refuse_misfit(b, misfit);
    }
    tp_err_tensor(b->err, unit->name);
    tp_err_hint(b->err, "convert a checkpoint that was calibrated, whose weights have an "
                        "input_scale or input_global_scale; or give --importance a file with "
                        "NAME.amax of each weight; or convert the weights alone, with "
                        "--weights-only");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s needs activation scales, and the source has none "
                   "for it: %s", unit->form->format->name, unit->form->format->inputs.why);
}

enum tp_code tp_plan_add_inputs(struct tp_builder *b, struct tp_unit *unit)
{
    const struct tp_format_inputs *inputs = &unit->form->format->inputs;
    bool wanted = inputs->suffix && !b->request->weights_only;
    enum from from = FROM_NOWHERE;
    if (unit->form->format->is_bias)
        return TP_OK;
    enum tp_code code = wanted ? find_origin(b, unit, &from) : TP_OK;
    if (code == TP_OK && wanted && !from && inputs->why && !b->request->bare)
        return refuse_missing(b, unit);
    if (code == TP_OK && from)
        code = add_scales(b, unit, from);
    unit->form->inputs = from != FROM_NOWHERE;
    for (uint64_t i = 0; i < tp_unit_views(unit) && code == TP_OK; i++) {
        tp_plan_leave_inputs(b, unit->views[i].weight);
        tp_plan_leave_beside(b, unit->views[i].weight);
    }
    return code;
}

/* An expert that lacks what others of its layer have: readers take all or none, and leave the
 * scale that is not there as memory happens to be. */
static enum tp_code refuse_partial(const struct tp_builder *b, const struct tp_unit *without,
                                   const struct tp_unit *with)
{
    tp_err_tensor(b->err, without->name);
    tp_err_hint(b->err, "--weights-only leaves them all out, so that activations stay as they are; "
                        "or calibrate again, with data that reach every expert");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "it has no activation scale, and %s of the same "
                   "layer has one: readers of %s take those of all experts or of none", with->name,
                   without->form->format->name);
}

enum tp_code tp_plan_check_inputs(const struct tp_builder *b)
{
    const struct tp_plan *plan = b->plan;
    struct tp_names layers = {0};
    const struct tp_unit **first = NULL; /* of each */
    size_t capacity = 0;
    enum tp_code code = TP_OK;
    for (size_t u = 0; u < plan->unit_count && code == TP_OK; u++) {
        const struct tp_unit *unit = &plan->units[u];
        struct tp_expert_name expert;
        uint32_t number;
        if (!unit->form->format || !unit->form->format->inputs.suffix ||
            !tp_name_expert(&plan->weights->facts, unit->name, &expert))
            continue;
        int64_t found = tp_names_find(&layers, unit->name, expert.prefix);
        if (found >= 0 && first[found]->form->inputs != unit->form->inputs) {
            bool has = unit->form->inputs;
            code = refuse_partial(b, has ? first[found] : unit, has ? unit : first[found]);
        }
        if (found >= 0)
            continue;
        const char *own = tp_store_join(&b->plan->store, unit->name, expert.prefix, "", b->err);
        code = own ? tp_os_grow((void **)&first, &capacity, layers.count + 1, sizeof *first, b->err)
                   : TP_E_MEMORY;
        if (code == TP_OK &&
            !(code = tp_names_add(&layers, own, expert.prefix, &number, b->err)))
            first[number] = unit;
    }
    tp_names_close(&layers);
    free(first);
    return code;
}
