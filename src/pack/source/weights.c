/* Source weights: descriptors first, then the interchange formats by their
 * tensors, then plain floats. Reads headers only, and the weight_shape of weights
 * that may be of 4 bits or of 8.
 */
#include "pack/source/weights.h"

#include "base/suffix.h"
#include "kernels/op/traits.h"
#include "pack/format/recognise.h"
#include "pack/source/descriptor.h"
#include "pack/source/descriptor_unknown.h"
#include "pack/source/source_quant.h"
#include "pack/text/json_tree.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct finder {
    const struct tp_checkpoint *ckpt;
    struct tp_weights *weights;
    bool *used;   /* per checkpoint tensor */
    uint32_t last; /* the first tensor of the described weight before */
    uint64_t bits; /* tp_source_config_bits() */
    unsigned activations; /* tp_source_config_activations() */
    struct tp_err *err;
};

static uint32_t tensor_index(const struct finder *f, const struct tp_tensor *tensor)
{
    return tensor ? (uint32_t)(tensor - f->ckpt->tensors) : TP_NO_TENSOR;
}

enum { NEAR = 8 }; /* neighbours that are looked at one by one */

/* The tensor whose name is prefix and suffix, or NULL. Names are sorted, so it is mostly
 * near `from`: a tensor of the same weight, or of the weight before. */
static const struct tp_tensor *find_near(const struct finder *f, uint32_t from,
                                         const char *prefix, size_t prefix_size,
                                         const char *suffix)
{
    const struct tp_checkpoint *ckpt = f->ckpt;
    char wanted[2048];
    int first = 0;
    if (prefix_size + strlen(suffix) + 1 > sizeof wanted)
        return NULL;
    for (size_t i = from, steps = 0; i < ckpt->tensor_count && steps < NEAR; steps++) {
        const char *name = ckpt->tensors[i].name;
        int order = strncmp(prefix, name, prefix_size);
        if (order == 0)
            order = strcmp(suffix, name + prefix_size);
        if (order == 0)
            return &ckpt->tensors[i];
        if (first && (order < 0) != (first < 0))
            return NULL; /* it would have been between these two */
        first = order;
        i += order < 0 ? SIZE_MAX : 1; /* before 0: ends as behind the last one does */
    }
    memcpy(wanted, prefix, prefix_size);
    strcpy(wanted + prefix_size, suffix);
    return tp_checkpoint_find(ckpt, wanted);
}

/* The tensor whose name begins as that of `codes` does and ends in `suffix`, or NULL. */
static const struct tp_tensor *find_sibling(const struct finder *f, const struct tp_tensor *codes,
                                            size_t prefix_size, const char *suffix)
{
    return find_near(f, tensor_index(f, codes), codes->name, prefix_size, suffix);
}

/* The dtypes in which readers and writers store the same scale; U8 is one of them
 * where scales are not integers of another kind. */
static bool element_of(enum tp_dtype dtype, enum tp_element *element)
{
    switch (dtype) {
    case TP_F32: *element = TP_ELEM_F32; return true;
    case TP_BF16: *element = TP_ELEM_BF16; return true;
    case TP_F16: *element = TP_ELEM_F16; return true;
    case TP_F8_E8M0:
    case TP_U8: *element = TP_ELEM_E8M0; return true;
    default: return false;
    }
}

static bool same_shape(const struct tp_tensor *tensor, const uint64_t *shape, uint32_t rank)
{
    return tensor->rank == rank && memcmp(tensor->shape, shape, rank * sizeof *shape) == 0;
}

/* A global scale of one number is a scalar, or [1]. Not in FP8, where that tells formats apart. */
static bool is_scalar_global(const struct tp_tensor *tensor, const struct tp_op *op, uint32_t i,
                             uint32_t rank)
{
    return rank == 0 && op->out[i].role == TP_ROLE_GLOBAL && op->codec != TP_CODEC_FP8 &&
           tensor->rank == 1 && tensor->shape[0] == 1;
}

/* Output i of the format under one of the names that it goes by, or NULL. */
static const struct tp_tensor *find_output(const struct finder *f, const struct tp_format *format,
                                           uint32_t i, const struct tp_tensor *codes,
                                           size_t prefix_size, bool *renamed)
{
    const struct tp_format_out *out = &format->out[i];
    const struct tp_tensor *tensor = find_sibling(f, codes, prefix_size, out->suffix);
    for (int a = 0; !tensor && a < TP_MAX_ALSO && out->also[a]; a++) {
        tensor = find_sibling(f, codes, prefix_size, out->also[a]);
        *renamed |= tensor != NULL;
    }
    return tensor;
}

/* FP8 scales: what the stored type can hold decides where they can be taken over. */
static uint8_t fp8_scale_rule(enum tp_element element)
{
    return element == TP_ELEM_E8M0   ? TP_FP8_SCALE_UE8M0
           : element == TP_ELEM_BF16 ? TP_FP8_SCALE_BF16
                                     : TP_FP8_SCALE_FP32;
}

/* Whether a scale may have that dtype instead of the format's. One byte to a row is no scale
 * of the row: a weight in blocks of 32 whose K is 32 looks alike. */
static bool other_scale(struct tp_weight *weight, uint32_t i, enum tp_dtype dtype)
{
    struct tp_op_out *out = &weight->form->op.out[i];
    enum tp_dtype own = weight->form->format->out[i].dtype;
    bool fp8 = weight->form->op.codec == TP_CODEC_FP8, integer = tp_op_is_int(&weight->form->op);
    if ((out->role != TP_ROLE_SCALE && !tp_op_per_tensor(&weight->form->op)) ||
        (own == TP_U8 && dtype != TP_F8_E8M0) || (own != TP_U8 && !fp8 && !integer) ||
        !element_of(dtype, &out->element) ||
        ((integer || out->per_k == 0) && out->element == TP_ELEM_E8M0))
        return false;
    if (fp8)
        weight->form->op.scale_rule = fp8_scale_rule(out->element);
    return true;
}

/* Whether output i of the format is there for the weight; fills tensor[i] and
 * adapts the element of a scale stored in another float type. */
static bool match_output(const struct finder *f, struct tp_weight *weight, uint32_t i,
                         const struct tp_tensor *codes, size_t prefix_size)
{
    const struct tp_format *format = weight->form->format;
    const struct tp_tensor *tensor =
        find_output(f, format, i, codes, prefix_size, &weight->form->renamed);
    struct tp_op_out *out = &weight->form->op.out[i];
    uint64_t shape[TP_MAX_RANK];
    uint32_t rank;
    weight->tensor[i] = tensor_index(f, tensor);
    if (!tensor && format->out[i].optional)
        out->role = TP_ROLE_WORDS;
    if (!tensor)
        return out->role == TP_ROLE_WORDS; /* nothing in them that the shape does not say */
    if (f->used[weight->tensor[i]] ||
        tp_format_shape(format, i, weight->form->box, weight->form->rank, shape, &rank, NULL) ||
        (!same_shape(tensor, shape, rank) &&
         !is_scalar_global(tensor, &weight->form->op, i, rank)))
        return false;
    return tensor->dtype == format->out[i].dtype || other_scale(weight, i, tensor->dtype);
}

/* The format for the group size that the scales' shape gives: format itself when
 * it has no group size of its own, NULL when there is none that fits. */
static const struct tp_format *with_group(const struct finder *f, const struct tp_format *format,
                                          const struct tp_tensor *codes, size_t prefix_size)
{
    int s = tp_op_find(&format->op, TP_ROLE_SCALE), rank;
    struct tp_box3 box;
    bool renamed = false;
    if (!format->group)
        return format;
    const struct tp_tensor *scale =
        find_output(f, format, (uint32_t)s, codes, prefix_size, &renamed);
    uint32_t skip = scale ? format->out[s].rank - scale->rank : 0;
    if (!scale || skip > 1 || format->out[s].group_dim < (int)skip ||
        !tp_format_box_of(format, codes->shape, codes->rank, &box, &rank))
        return NULL;
    uint64_t groups = scale->shape[format->out[s].group_dim - (int)skip];
    if (groups == 0 || box.k % groups)
        return NULL;
    bool row = groups == 1 && box.k > TP_GROUP_MOST; /* which has pieces */
    return tp_format_grouped(format, row ? TP_GROUP_ROW : box.k / groups, NULL);
}

/* The length of the name before the joint, or 0 when the tensor's name is not that
 * of codes with that suffix. */
static size_t stem_of(const char *suffix, const char *joint, const char *ending, const char *name)
{
    size_t size = strlen(name), suffix_size = strlen(suffix);
    if (size < suffix_size + 2 || strcmp(name + size - suffix_size, suffix) != 0 ||
        name[size - suffix_size - 1] != joint[0])
        return 0;
    size -= suffix_size + 1;
    size_t stem = ending ? strlen(ending) : 0;
    return stem <= size && memcmp(name + size - stem, ending ? ending : "", stem) == 0 ? size : 0;
}

static bool match_format(const struct finder *f, const struct tp_format *format,
                         const struct tp_tensor *codes, size_t prefix_size,
                         struct tp_weight *weight)
{
    for (int i = 0; i < TP_MAX_ABSENT && format->absent[i]; i++)
        if (find_sibling(f, codes, prefix_size, format->absent[i]))
            return false;
    const struct tp_format *own = format; /* whose config says a group size, too */
    if (!(format = with_group(f, format, codes, prefix_size)) ||
        (format->activations != TP_ACTIVATIONS_UNSAID && format->group != own->group))
        return false;
    struct tp_weight_form *form = weight->form;
    memset(form, 0, sizeof *form);
    *weight = (struct tp_weight){.form = form};
    weight->form->format = format;
    weight->form->op = format->op;
    if (tp_op_is_int(&form->op)) /* engines round the scales when they load them */
        form->op.scale_rule = TP_INT_SCALE_BF16;
    if (!tp_format_box_of(format, codes->shape, codes->rank, &weight->form->box,
                          &weight->form->rank))
        return false;
    for (uint32_t i = 0; i < format->op.outs; i++)
        if (!match_output(f, weight, i, codes, prefix_size))
            return false;
    return true;
}

static enum tp_code add(struct finder *f, struct tp_weight *weight, const char *name,
                        size_t name_size)
{
    struct tp_weights *weights = f->weights;
    weight->form->joint = weight->form->format ? weight->form->format->joint[0] : '.';
    weight->name = tp_store_join(&weights->names, name, name_size, "", f->err);
    weight->form = tp_weights_form(weights, weight->form, f->err);
    if (!weight->name || !weight->form ||
        tp_os_grow((void **)&weights->items, &weights->capacity, weights->count + 1,
                   sizeof *weights->items, f->err))
        return TP_E_MEMORY;
    weights->items[weights->count++] = *weight;
    for (uint32_t i = 0; i < TP_MAX_OUT; i++)
        if (weight->tensor[i] != TP_NO_TENSOR)
            f->used[weight->tensor[i]] = true;
    return TP_OK;
}

static void no_tensors(struct tp_weight *weight)
{
    for (int i = 0; i < TP_MAX_OUT; i++)
        if (!weight->form->format || (uint32_t)i >= weight->form->op.outs)
            weight->tensor[i] = TP_NO_TENSOR;
}

/* Formats of the same integers differ in what becomes of activations. Where config.json does not
 * say it, those that leave them plain are known by their descriptors only. */
static bool activations_agree(const struct finder *f, const struct tp_recognised *codes)
{
    if (codes->activations == TP_ACTIVATIONS_UNSAID || !tp_codecs[codes->codec].is_int)
        return true;
    return f->activations ? f->activations >> codes->activations & 1
                          : codes->activations != TP_ACTIVATIONS_PLAIN;
}

/* Whether the rows of gate and up alternate in a stack of that name. */
static bool stands_in_turn(const struct finder *f, const char *name)
{
    struct tp_stack_name stack;
    return tp_name_stack(&f->weights->facts, name, &stack) && stack.is->alternates;
}

/* Whether the weight with these codes is of that format, which is read for it. */
static enum tp_code match_codes(const struct finder *f, const struct tp_recognised *row,
                                const struct tp_tensor *codes, struct tp_weight *weight,
                                bool *found)
{
    size_t stem = stem_of(row->suffix, row->joint, row->stem, codes->name);
    const struct tp_format *format;
    if (!stem || codes->dtype != row->dtype || !activations_agree(f, row))
        return TP_OK;
    enum tp_code code = tp_format_get(row->format, &format, f->err);
    *found = code == TP_OK && format && match_format(f, format, codes, stem + 1, weight);
    return code;
}

/* The first format, of codes of other than `not_bits`, of which the weight with these codes is.
 * Those with codes of as many bits as config.json says come first; of them, as the table has them,
 * those that are written too: they are special cases of those that are not. Kernel-ready formats
 * are known by their descriptors only. */
static enum tp_code first_match(const struct finder *f, const struct tp_tensor *tensor,
                                uint32_t not_bits, struct tp_weight *weight, bool *found)
{
    enum tp_code code = TP_OK;
    *found = false;
    for (int agrees = 1; agrees >= 0; agrees--)
        for (const struct tp_recognised *row = tp_recognised; row->format; row++) {
            if (row->role != TP_ROLE_CODES || row->bits == not_bits ||
                (f->bits >> row->bits & 1) != (unsigned)agrees)
                continue;
            code = match_codes(f, row, tensor, weight, found);
            if (code || *found)
                return code;
        }
    return TP_OK;
}

/* The tensor weight_shape of compressed-tensors, or NULL. */
static const struct tp_tensor *stored_shape(const struct finder *f, const struct tp_weight *weight)
{
    const struct tp_weight_form *form = weight->form;
    for (uint32_t i = 0; i < form->op.outs; i++)
        if (form->op.out[i].role == TP_ROLE_WORDS && form->format->out[i].dtype == TP_I64 &&
            weight->tensor[i] != TP_NO_TENSOR)
            return &f->ckpt->tensors[weight->tensor[i]];
    return NULL;
}

/* Integers of 4 and of 8 bits lie in the same words: where both fit, config.json decides if it
 * has one of the widths only, else the K that weight_shape says. */
static enum tp_code settle_width(const struct finder *f, const struct tp_tensor *tensor,
                                 struct tp_weight *weight)
{
    struct tp_weight_form form = {0};
    struct tp_weight other = {.form = &form};
    uint32_t bits = weight->form->format->bits;
    bool found = false;
    enum tp_code code = TP_OK;
    if (tp_op_is_int(&weight->form->op))
        code = first_match(f, tensor, bits, &other, &found);
    if (code || !found)
        return code;
    const struct tp_tensor *shape = stored_shape(f, weight);
    bool both = f->bits >> bits & f->bits >> form.format->bits & 1;
    weight->form->any_width = !shape;
    weight->form->unsaid_width = !shape && both;
    if (!shape || ((f->bits >> bits ^ f->bits >> form.format->bits) & 1))
        return TP_OK;
    int64_t sizes[2];
    code = tp_checkpoint_read(f->ckpt, shape->file, sizes, sizeof sizes,
                                           shape->offset, f->err);
    if (code)
        tp_err_tensor(f->err, shape->name);
    if (code || sizes[1] == (int64_t)weight->form->box.k)
        return code;
    weight->form->any_width = sizes[1] != (int64_t)form.box.k;
    weight->form->unsaid_width = weight->form->any_width && both;
    if (!weight->form->any_width) {
        memcpy(weight->form, &form, sizeof form); /* with what lies between the members */
        other.form = weight->form;
        *weight = other;
    }
    return TP_OK;
}

/* A packed weight of an interchange format whose codes are in this tensor. */
static enum tp_code try_interchange(struct finder *f, const struct tp_tensor *tensor)
{
    struct tp_weight_form form = {0};
    struct tp_weight weight = {.form = &form};
    bool found;
    enum tp_code code = first_match(f, tensor, UINT32_MAX, &weight, &found);
    if (code || !found || (code = settle_width(f, tensor, &weight)))
        return code;
    no_tensors(&weight);
    form.dtype = TP_BF16;
    form.alternates = form.rank == 3 &&
                      (form.format->joint[0] != '.' || stands_in_turn(f, tensor->name));
    const char *suffix = form.format->out[tp_op_find(&form.format->op, TP_ROLE_CODES)].suffix;
    return add(f, &weight, tensor->name,
               stem_of(suffix, form.format->joint, form.format->stem, tensor->name));
}

/* The sizes [N,K] or [K,N] of the other stack of the same experts; zeros without one. */
static void find_partner(const struct finder *f, const struct tp_tensor *tensor,
                         const struct tp_stack_name *stack, uint64_t sizes[2])
{
    const struct tp_model_facts *facts = &f->weights->facts;
    const char *end = tensor->name + tp_name_stem(tensor->name);
    char suffix[256];
    sizes[0] = sizes[1] = 0;
    for (size_t m = 0; m < facts->count; m++)
        for (size_t s = 0; s < facts->model[m]->stacks; s++) {
            const struct tp_model_stack *other = &facts->model[m]->stack[s];
            if (other->gate_up == stack->gate_up ||
                snprintf(suffix, sizeof suffix, "%s%s", other->name, end) >= (int)sizeof suffix)
                continue;
            const struct tp_tensor *found = find_near(f, tensor_index(f, tensor), tensor->name,
                                                      stack->module, suffix);
            if (!found || found->rank != 3 || found->shape[0] != tensor->shape[0])
                continue;
            sizes[0] = found->shape[1];
            sizes[1] = found->shape[2];
            return;
        }
}

/* A plain stack of experts: which of its dimensions is N. */
static void lay_out(const struct finder *f, const struct tp_tensor *tensor,
                    struct tp_weight_form *form)
{
    struct tp_stack_name stack;
    uint64_t other[2];
    if (tensor->rank != 3 || !tp_name_stack(&f->weights->facts, tensor->name, &stack))
        return;
    find_partner(f, tensor, &stack, other);
    enum tp_stack_layout layout =
        tp_stack_layout_of(&f->weights->facts, stack.is, tensor->shape + 1, other);
    form->unclear = layout == TP_STACK_BY_SIZES ||
                    (layout == TP_STACK_ENK && stack.is->alternates);
    if (layout != TP_STACK_EKN)
        return;
    form->transposed = true;
    form->alternates = stack.is->alternates;
    form->box.n = tensor->shape[2];
    form->box.k = tensor->shape[1];
}

static enum tp_code add_plain(struct finder *f, uint32_t index)
{
    const struct tp_tensor *tensor = &f->ckpt->tensors[index];
    struct tp_weight_form form;
    struct tp_weight weight = {.form = &form};
    const uint64_t *shape = tensor->shape;
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    form.rank = (int)tensor->rank;
    form.dtype = tensor->dtype;
    form.box.e = tensor->rank == 3 ? *shape++ : 1;
    form.box.n = shape[0];
    form.box.k = shape[1];
    lay_out(f, tensor, &form);
    no_tensors(&weight);
    weight.tensor[0] = index;
    return add(f, &weight, tensor->name, tp_name_stem(tensor->name));
}

static bool is_plain(const struct tp_tensor *tensor)
{
    return tp_dtype_is_float(tensor->dtype) && (tensor->rank == 2 || tensor->rank == 3) &&
           tensor->bytes > 0;
}

/* Ties output i of a described unit to its tensor and checks dtype and shape. */
static enum tp_code bind_output(struct finder *f, struct tp_weight *weight, uint32_t i,
                                const char *prefix)
{
    const struct tp_format_out *out = &weight->form->format->out[i];
    const struct tp_tensor *tensor = find_near(f, i ? weight->tensor[0] : f->last, prefix,
                                               strlen(prefix), out->suffix);
    uint64_t shape[TP_MAX_RANK];
    uint32_t rank;
    if (!tensor)
        return tp_fail(f->err, TP_E_INPUT, "its descriptor names the tensor %s%s, which is "
                       "missing", prefix, out->suffix);
    weight->tensor[i] = tensor_index(f, tensor);
    if (f->used[weight->tensor[i]])
        return tp_fail(f->err, TP_E_INPUT, "two descriptors claim the tensor %s", tensor->name);
    enum tp_code code = TP_OK;
    bool fits;
    if (weight->form->format->unknown) {
        fits = tp_unknown_output_fits(weight->form, i, tensor->dtype, tensor->bytes);
    } else {
        code = tp_format_shape(weight->form->format, i, weight->form->box, weight->form->rank,
                               shape, &rank, f->err);
        fits = !code && same_shape(tensor, shape, rank) &&
               tensor->dtype == tp_format_dtype(weight->form->format, &weight->form->op, i);
    }
    if (code)
        return code;
    if (!fits)
        return tp_fail(f->err, TP_E_INPUT,
                       "tensor %s has not the dtype and shape its descriptor gives", tensor->name);
    f->used[weight->tensor[i]] = true;
    f->last = weight->tensor[0];
    return TP_OK;
}

static enum tp_code bind(struct finder *f, struct tp_weight *weight)
{
    char *prefix = tp_weight_prefix(weight, f->err);
    enum tp_code code = prefix ? TP_OK : TP_E_MEMORY;
    for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++) {
        code = bind_output(f, weight, i, prefix);
        if (code) {
            tp_err_tensor(f->err, weight->name);
            tp_err_hint(f->err, "the file's tensors and its __metadata__ are not of one "
                                "conversion: convert the source again");
        }
    }
    free(prefix);
    if (code == TP_OK)
        no_tensors(weight);
    return code;
}

static enum tp_code find_described(struct finder *f)
{
    struct tp_weights *weights = f->weights;
    for (size_t i = 0; i < f->ckpt->file_count; i++) {
        const struct tp_st_header *header = &f->ckpt->files[i].header;
        const char *descriptors = tp_st_meta(header, TP_META_DESCRIPTORS);
        const char *units = tp_st_meta(header, TP_META_UNITS);
        size_t first = weights->count;
        enum tp_code code = TP_OK;
        if (!descriptors || !units)
            continue;
        code = tp_descriptors_version(tp_st_meta(header, TP_META_VERSION), f->err);
        if (code == TP_OK)
            code = tp_descriptors_parse(descriptors, units, weights, f->err);
        for (size_t w = first; w < weights->count && code == TP_OK; w++)
            code = bind(f, &weights->items[w]);
        if (code) {
            tp_err_path(f->err, f->ckpt->files[i].path);
            return code;
        }
    }
    return TP_OK;
}

/* Weights that other tools packed. */
static enum tp_code find_recognised(struct finder *f)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < f->ckpt->tensor_count && code == TP_OK; i++) {
        uint32_t index = f->ckpt->by_data[i];
        const struct tp_tensor *tensor = &f->ckpt->tensors[index];
        if (!f->used[index] && !is_plain(tensor) && tensor->rank >= 2)
            code = try_interchange(f, tensor);
    }
    return code;
}

/* All that is left. */
static enum tp_code find_plain(struct finder *f)
{
    struct tp_weights *weights = f->weights;
    enum tp_code code = TP_OK;
    weights->other = tp_os_zalloc(f->ckpt->tensor_count + 1, sizeof *weights->other, f->err);
    if (!weights->other)
        return TP_E_MEMORY;
    for (size_t i = 0; i < f->ckpt->tensor_count && code == TP_OK; i++) {
        uint32_t index = f->ckpt->by_data[i];
        if (f->used[index])
            continue;
        if (is_plain(&f->ckpt->tensors[index])) {
            code = add_plain(f, index);
            f->used[index] = false; /* packed weights alone claim theirs */
        } else {
            weights->other[weights->other_count++] = index;
        }
    }
    return code;
}

/* A bias by its name and shape: [N] of a matrix, [E,N] of a stack. */
static bool is_bias(const struct tp_tensor *tensor)
{
    return tp_dtype_is_float(tensor->dtype) && tensor->bytes > 0 &&
           ((tensor->rank == 1 && tp_ends_with(tensor->name, ".bias")) ||
            (tensor->rank == 2 && (tp_ends_with(tensor->name, "_bias") ||
                                   tp_ends_with(tensor->name, ".bias"))));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tp_weight *)a)->name, ((const struct tp_weight *)b)->name);
}

static enum tp_code add_bias(struct finder *f, uint32_t index)
{
    const struct tp_tensor *tensor = &f->ckpt->tensors[index];
    bool stack = tensor->rank == 2;
    struct tp_weight_form form;
    struct tp_weight weight = {.form = &form};
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    form.rank = stack ? 3 : 2;
    form.dtype = tensor->dtype;
    form.flat = true;
    form.box = (struct tp_box3){stack ? tensor->shape[0] : 1, tensor->shape[stack], 1};
    no_tensors(&weight);
    weight.tensor[0] = index;
    return add(f, &weight, tensor->name, strlen(tensor->name));
}

/* Behind all weights: the biases, which a format may want in another order. */
static enum tp_code find_biases(struct finder *f)
{
    struct tp_weights *weights = f->weights;
    size_t count = weights->count;
    enum tp_code code = TP_OK;
    for (uint32_t t = 0; t < f->ckpt->tensor_count && code == TP_OK; t++)
        if (!f->used[t] && is_bias(&f->ckpt->tensors[t]))
            code = add_bias(f, t);
    weights->biases = weights->count - count;
    weights->count = count;
    if (weights->biases)
        qsort(weights->items + count, weights->biases, sizeof *weights->items, by_name);
    return code;
}

/* All that is known by config.json. */
static enum tp_code read_config(struct finder *f, const struct tp_model_choice *choice)
{
    const struct tp_checkpoint *ckpt = f->ckpt;
    json_t *config;
    enum tp_code code = tp_source_config(ckpt, &config, f->err);
    if (code == TP_OK)
        code = tp_model_facts_of(ckpt->config, ckpt->config_size, choice, &f->weights->facts,
                                 f->err);
    if (code == TP_E_INPUT)
        tp_source_config_path(ckpt, f->err);
    f->bits = tp_source_config_bits(config);
    if (code == TP_OK)
        code = tp_source_config_activations(config, &f->activations, f->err);
    json_decref(config);
    return code;
}

static enum tp_code find_weights(const struct tp_checkpoint *ckpt,
                                 const struct tp_model_choice *choice, bool plain, bool unknown,
                                 struct tp_weights *weights, struct tp_err *err)
{
    struct finder f = {.ckpt = ckpt, .weights = weights, .err = err};
    memset(weights, 0, sizeof *weights);
    weights->takes_unknown = unknown;
    uint64_t mark = tp_json_mark();
    enum tp_code code = tp_models_check(err); /* with one missing, its tensors would pass for
                                                 others */
    if (code == TP_OK)
        code = read_config(&f, choice);
    if (code == TP_OK && !(f.used = tp_os_zalloc(ckpt->tensor_count + 1, sizeof *f.used, err)))
        code = TP_E_MEMORY;
    if (code == TP_OK)
        code = find_described(&f);
    if (code == TP_OK)
        code = find_recognised(&f); /* before the plain ones: they own their scales */
    if (code == TP_OK && plain)
        code = find_plain(&f);
    if (code == TP_OK && plain)
        code = find_biases(&f);
    free(f.used);
    code = tp_json_check(mark, code, err);
    if (code)
        tp_weights_close(weights);
    return code;
}

enum tp_code tp_weights_find(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                             struct tp_err *err)
{
    return find_weights(ckpt, NULL, true, false, weights, err);
}

enum tp_code tp_weights_find_any(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                                 struct tp_err *err)
{
    return find_weights(ckpt, NULL, true, true, weights, err);
}

enum tp_code tp_weights_find_as(const struct tp_checkpoint *ckpt,
                                const struct tp_model_choice *choice, struct tp_weights *weights,
                                struct tp_err *err)
{
    return find_weights(ckpt, choice, true, false, weights, err);
}

enum tp_code tp_weights_find_packed(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                                    struct tp_err *err)
{
    return find_weights(ckpt, NULL, false, true, weights, err);
}

void tp_weight_blame(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                     struct tp_err *err)
{
    uint32_t codes = weight->tensor[tp_op_find(&weight->form->op, TP_ROLE_CODES)];
    tp_err_path(err, ckpt->files[ckpt->tensors[codes].file].path);
    tp_err_tensor(err, weight->name);
}
