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
    size_t size = strlen(weight->name), end = strlen(suffix);
    const char separator = weight->form->separator;
    if (size + (separator != 0) + end >= sizeof name)
        return NULL;
    memcpy(name, weight->name, size);
    if (separator)
        name[size++] = separator;
    memcpy(name + size, suffix, end + 1);
    return tp_checkpoint_near(plan->ckpt, weight->tensor[0], name);
}

/* A suffix that tensors of activation scales have, and whether the numbers there are divisors. */
struct suffix {
    const char *text;
    bool divides;
};

/* The suffixes to look for beside a weight: those of its quantizer or, where tilepack packed it or
 * it is plain, of our formats. None beside biases. */
static size_t suffixes_of(const struct tp_weight_form *form, struct suffix suffix[TP_MAX_BESIDE])
{
    if (form->format && form->format->is_bias)
        return 0;
    const char *own = form->format ? form->format->inputs.suffix : NULL;
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
    size_t count = weight->form->format ? suffixes_of(weight->form, suffix) : 0;
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

void tp_plan_leave_inputs(struct tp_builder *b, uint32_t w, bool carried)
{
    struct suffix suffix[TP_MAX_BESIDE];
    const struct tp_weight *weight = tp_weight_at(b, w);
    size_t count = suffixes_of(weight->form, suffix);
    for (size_t i = 0; i < count; i++) {
        const struct tp_tensor *tensor = find_beside(b->plan, weight, suffix[i].text);
        if (!tensor || (!weight->form->format && !fits(tensor, weight->form->box.e)))
            continue;
        b->plan->drops = true;
        b->left_out[tensor - b->plan->ckpt->tensors] |= carried; /* in another form it is not */
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

/* The scale of an expert of that weight: a number above 0. */
static enum tp_code read_scale(const struct tp_builder *b, const char *weight,
                               const struct tp_tensor *tensor, uint64_t expert, float *number)
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
    tp_err_hint(b->err, "--weights-only='glob:%s' leaves this one out and keeps the others; "
                        "--weights-only leaves all of them out", weight);
    return tp_fail(b->err, TP_E_INPUT, "the activation scale is %g, which is no positive number",
                   (double)*number);
}

/* Scales that are copied as they are have to be positive numbers, too. */
static enum tp_code check_scales(const struct tp_builder *b, const struct tp_weight *weight,
                                 const struct tp_tensor *tensor)
{
    uint64_t count = tensor->bytes / (tp_dtype_bits(tensor->dtype) / 8);
    enum tp_code code = TP_OK;
    float ignored;
    for (uint64_t e = 0; e < count && code == TP_OK; e++)
        code = read_scale(b, weight->name, tensor, e, &ignored);
    return code;
}

enum tp_code tp_plan_note_inputs(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    for (size_t u = 0; u < plan->kept_unit_count; u++) {
        struct tp_unit *unit = &plan->kept_units[u];
        const struct tp_weight *weight = tp_weight_at(b, unit->views[0].weight);
        struct scales scales = scales_of(plan, weight);
        struct tp_unit_form form;
        enum tp_code code;
        if (!scales.tensor || tp_plan_is_left_out(b, scales.tensor))
            continue;
        if ((code = check_scales(b, weight, scales.tensor)))
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

/* Engines load a fused set as one matrix (q, k and v, gate and up): all have the widest scale of
 * those that are carried over. *any: *fused is one already, or has become one. */
static enum tp_code set_scale(const struct tp_builder *b, const struct tp_weight *weight,
                              struct scales own, bool *any, float *fused)
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
        bool left;
        int size = snprintf(name, sizeof name, "%.*s%s%s", (int)set.module, weight->name,
                            set.set->part[p], end);
        const struct tp_tensor *tensor =
            size < (int)sizeof name ? tp_checkpoint_find(b->plan->ckpt, name) : NULL;
        if (!tensor || !fits(tensor, 1))
            continue;
        name[(size_t)size - strlen(end)] = '\0'; /* that of the part */
        if ((code = tp_request_unscales(b->request, name, &left, b->err)) || left ||
            (code = read_scale(b, name, tensor, 0, &number)))
            continue;
        *fused = *any ? wider(*fused, number, own.divides) : number;
        *any = true;
    }
    return code;
}

/* The weight of a unit whose own scale is left out, where its set has one; or NULL. */
static const struct tp_weight *in_set(const struct tp_builder *b, const struct tp_unit *unit,
                                      enum tp_code *code)
{
    const struct tp_weight *weight = tp_weight_at(b, unit->views[0].weight);
    bool any = false;
    float ignored;
    if (*code == TP_OK && unit->form->rank == 2 && b->request->unscale_count &&
        weight->form->op.codec == unit->form->op.codec)
        *code = set_scale(b, weight, scales_of(b->plan, weight), &any, &ignored);
    return any ? weight : NULL;
}

/* The first part whose scale is carried over, in *first (NULL: there is none), if all such parts
 * have scales for activations of the unit's kind, of one kind. Where none is to be, the first part
 * stands for those of its set (set_scale()). */
static enum tp_code find_carried(const struct tp_builder *b, const struct tp_unit *unit,
                                 const struct tp_weight **first)
{
    bool all = true, divides = false;
    enum tp_code code = TP_OK;
    *first = NULL;
    for (uint64_t i = 0; i < tp_unit_views(unit) && all && code == TP_OK; i++) {
        const struct tp_weight *weight = tp_weight_at(b, unit->views[i].weight);
        struct scales scales = scales_of(b->plan, weight);
        bool left;
        if ((code = tp_request_unscales(b->request, weight->name, &left, b->err)) || left)
            continue;
        divides = *first ? divides : scales.divides;
        *first = *first ? *first : weight;
        all = scales.tensor && scales.divides == divides &&
              weight->form->op.codec == unit->form->op.codec;
    }
    if (!*first || !all)
        *first = all ? in_set(b, unit, &code) : NULL;
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

/* The scale of the parts of experts [first, end), in the unit's kind; where none of them has one
 * that is carried over, that of all. `weight`: what find_carried() found. */
static enum tp_code fused_scale(const struct tp_builder *b, const struct tp_unit *unit,
                                const struct tp_weight *weight, uint64_t first, uint64_t end,
                                float *fused)
{
    uint32_t parts = unit->form->views_per_expert;
    struct scales own = scales_of(b->plan, weight);
    bool divides = own.divides, any = false;
    enum tp_code code = TP_OK;
    for (uint64_t i = first * parts; i < end * parts && code == TP_OK; i++) {
        struct tp_view view = tp_unit_view(unit, i / parts, (uint32_t)(i % parts));
        const struct tp_weight *part = tp_weight_at(b, view.weight);
        const struct tp_tensor *tensor = scales_of(b->plan, part).tensor;
        float number = 0;
        bool left;
        if ((code = tp_request_unscales(b->request, part->name, &left, b->err)) || left)
            continue;
        if (tensor) /* as find_carried() found */
            code = read_scale(b, part->name, tensor, view.expert, &number);
        *fused = any ? wider(*fused, number, divides) : number;
        any = true;
    }
    if (code == TP_OK && unit->form->rank == 2)
        code = set_scale(b, weight, own, &any, fused);
    if (code == TP_OK && !any && (first || end < unit->form->box.e))
        return fused_scale(b, unit, weight, 0, unit->form->box.e, fused);
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

/* Where the scales of a unit come from: of the source, with the part that find_carried() found, or
 * of the file of importance, or neither. */
struct from {
    const struct tp_weight *source;
    bool file;
};

/* Whether the file has those of all parts, none of which is left out. */
static enum tp_code find_measured(struct tp_builder *b, const struct tp_unit *unit, bool *measured)
{
    uint64_t found = 0, views = tp_unit_views(unit);
    uint32_t parts = unit->form->views_per_expert;
    bool left = false;
    enum tp_code code = TP_OK;
    for (uint64_t i = 0; i < views && code == TP_OK && !left; i++) {
        float largest;
        code = tp_plan_largest_input(b, unit, tp_unit_view(unit, i / parts, (uint32_t)(i % parts)),
                                     &largest);
        found += code == TP_OK && largest > 0;
        if (code == TP_OK)
            code = tp_request_unscales(b->request, tp_weight_at(b, unit->views[i].weight)->name,
                                       &left, b->err);
    }
    *measured = code == TP_OK && found == views && !left;
    if (code || left || found == 0 || found == views)
        return code;
    tp_err_tensor(b->err, unit->name);
    tp_err_path(b->err, tp_importance_path(b->request->importance));
    tp_err_hint(b->err, "give an expert that saw no text the largest magnitude of its layer");
    return tp_fail(b->err, TP_E_INPUT, "it has the largest magnitude of inputs, NAME.amax, for "
                   "%llu of the %llu parts of this weight", (unsigned long long)found,
                   (unsigned long long)views);
}

/* What the tensor of the unit's scales holds: one number for each expert, or one. */
static enum tp_code make_numbers(struct tp_builder *b, const struct tp_unit *unit,
                                 struct from from, float *numbers, uint64_t count)
{
    const bool largest = unit->form->format->inputs.largest;
    enum tp_code code = TP_OK;
    for (uint64_t e = 0; e < count && code == TP_OK; e++) {
        uint64_t first = largest ? 0 : e, end = largest ? unit->form->box.e : e + 1;
        if (largest && e)
            numbers[e] = numbers[0];
        else
            code = from.source ? fused_scale(b, unit, from.source, first, end, &numbers[e])
                               : measured_scale(b, unit, first, end, &numbers[e]);
    }
    return code;
}

/* Adds the tensor of the unit's scales to what is kept. */
static enum tp_code add_scales(struct tp_builder *b, const struct tp_unit *unit, struct from from)
{
    const struct tp_format_inputs *inputs = &unit->form->format->inputs;
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
    uint32_t at = tp_weight_at(b, unit->views[0].weight)->tensor[0];
    if (from.source) /* what was measured stands where its weight does */
        at = (uint32_t)(scales_of(plan, from.source).tensor - plan->ckpt->tensors);
    if (code == TP_OK)
        code = tp_plan_add_kept(b, at, UINT32_MAX, NULL);
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
    struct from from = {NULL, false};
    if (unit->form->format->is_bias)
        return TP_OK;
    enum tp_code code = wanted ? find_carried(b, unit, &from.source) : TP_OK;
    if (code == TP_OK && wanted && !from.source && b->request->importance)
        code = find_measured(b, unit, &from.file);
    bool carried = from.source || from.file;
    if (code == TP_OK && wanted && !carried && inputs->why && !b->request->bare)
        return refuse_missing(b, unit);
    if (code == TP_OK && carried)
        code = add_scales(b, unit, from);
    unit->form->inputs = carried;
    for (uint64_t i = 0; i < tp_unit_views(unit) && code == TP_OK; i++) {
        tp_plan_leave_inputs(b, unit->views[i].weight, carried);
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
        if ((code = tp_names_number(&layers, &b->plan->store, unit->name, expert.prefix, &first,
                                    &capacity, sizeof *first, &number, b->err)))
            break;
        const struct tp_unit *other = first[number] ? first[number] : unit;
        first[number] = other;
        if (other->form->inputs != unit->form->inputs) {
            bool has = unit->form->inputs;
            code = refuse_partial(b, has ? other : unit, has ? unit : other);
        }
    }
    tp_names_close(&layers);
    free(first);
    return code;
}
