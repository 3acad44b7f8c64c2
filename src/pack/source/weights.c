/* Source weights: descriptors first, then the interchange formats by their
 * tensors, then plain floats. Reads headers only, and the weight_shape of weights
 * that may be of 4 bits or of 8.
 */
#include "pack/source/weights.h"

#include "base/suffix.h"
#include "kernels/op/traits.h"
#include "pack/source/descriptor.h"
#include "pack/source/descriptor_unknown.h"
#include "pack/source/finder.h"
#include "pack/source/recognise.h"
#include "pack/source/source_quant.h"
#include "pack/text/json_tree.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A plain stack of experts: which of its dimensions is N. */
static void lay_out(const struct tp_finder *f, const struct tp_tensor *tensor,
                    struct tp_weight_form *form)
{
    const uint64_t one[2] = {1, 1};
    enum tp_stack_layout layout;
    bool interleaved;
    if (!tp_finder_stack(f, tensor, tensor->shape + 1, one, &layout, &interleaved))
        return;
    form->unclear = layout == TP_STACK_BY_SIZES || (layout == TP_STACK_ENK && interleaved);
    if (layout != TP_STACK_EKN)
        return;
    form->transposed = true;
    form->interleaved = interleaved;
    form->box.n = tensor->shape[2];
    form->box.k = tensor->shape[1];
}

static enum tp_code add_plain(struct tp_finder *f, uint32_t index)
{
    const struct tp_tensor *tensor = &f->ckpt->tensors[index];
    struct tp_weight_form form;
    struct tp_weight weight = {.form = &form};
    const uint64_t *shape = tensor->shape;
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    form.separator = '.';
    form.rank = (int)tensor->rank;
    form.dtype = tp_dtype_read(form.stored = tensor->dtype);
    form.box.e = tensor->rank == 3 ? *shape++ : 1;
    form.box.n = shape[0];
    form.box.k = shape[1];
    lay_out(f, tensor, &form);
    tp_finder_no_tensors(&weight);
    weight.tensor[0] = index;
    return tp_finder_add(f, &weight, tensor->name, tp_name_base(tensor->name));
}

static bool is_plain(const struct tp_tensor *tensor)
{
    return tp_dtype_read(tensor->dtype) && (tensor->rank == 2 || tensor->rank == 3) &&
           tensor->bytes > 0;
}

/* Ties output i of a described unit to its tensor and checks dtype and shape. */
static enum tp_code bind_output(struct tp_finder *f, struct tp_weight *weight, uint32_t i,
                                const char *prefix)
{
    const struct tp_format_out *out = &weight->form->format->out[i];
    const struct tp_tensor *tensor = tp_finder_near(f, i ? weight->tensor[0] : f->last, prefix,
                                               strlen(prefix), out->suffix);
    uint64_t shape[TP_MAX_RANK];
    uint32_t rank;
    if (!tensor)
        return tp_fail(f->err, TP_E_INPUT, "its descriptor names the tensor %s%s, which is "
                       "missing", prefix, out->suffix);
    weight->tensor[i] = tp_finder_index(f, tensor);
    if (f->used[weight->tensor[i]])
        return tp_fail(f->err, TP_E_INPUT, "two descriptors claim the tensor %s", tensor->name);
    enum tp_code code = TP_OK;
    bool fits;
    if (weight->form->format->unknown) {
        fits = tp_unknown_output_fits(weight->form, i, tensor->dtype, tensor->bytes);
    } else {
        code = tp_format_shape(weight->form->format, i, weight->form->box, weight->form->rank,
                               shape, &rank, f->err);
        fits = !code && tp_same_shape(tensor, shape, rank) &&
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

static enum tp_code bind(struct tp_finder *f, struct tp_weight *weight)
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
        tp_finder_no_tensors(weight);
    return code;
}

static enum tp_code find_described(struct tp_finder *f)
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
static enum tp_code find_recognised(struct tp_finder *f)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < f->ckpt->tensor_count && code == TP_OK; i++) {
        uint32_t index = f->ckpt->by_data[i];
        const struct tp_tensor *tensor = &f->ckpt->tensors[index];
        if (f->used[index] || is_plain(tensor) || tensor->rank < 2)
            continue;
        if ((code = tp_quantizers_check(f->err)) == TP_OK)
            code = tp_finder_recognise(f, tensor);
    }
    return code;
}

/* All that is left. */
static enum tp_code find_plain(struct tp_finder *f)
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
    return tp_dtype_read(tensor->dtype) && tensor->bytes > 0 &&
           ((tensor->rank == 1 && tp_ends_with(tensor->name, ".bias")) ||
            (tensor->rank == 2 && (tp_ends_with(tensor->name, "_bias") ||
                                   tp_ends_with(tensor->name, ".bias"))));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tp_weight *)a)->name, ((const struct tp_weight *)b)->name);
}

static enum tp_code add_bias(struct tp_finder *f, uint32_t index)
{
    const struct tp_tensor *tensor = &f->ckpt->tensors[index];
    bool stack = tensor->rank == 2;
    struct tp_weight_form form;
    struct tp_weight weight = {.form = &form};
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    form.separator = '.';
    form.rank = stack ? 3 : 2;
    form.dtype = tp_dtype_read(form.stored = tensor->dtype);
    form.flat = true;
    form.box = (struct tp_box3){stack ? tensor->shape[0] : 1, tensor->shape[stack], 1};
    tp_finder_no_tensors(&weight);
    weight.tensor[0] = index;
    return tp_finder_add(f, &weight, tensor->name, strlen(tensor->name));
}

/* Behind all weights: the biases, which a format may want in another order. */
static enum tp_code find_biases(struct tp_finder *f)
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
static enum tp_code read_config(struct tp_finder *f, const struct tp_model_choice *choice)
{
    const struct tp_checkpoint *ckpt = f->ckpt;
    enum tp_code code = tp_source_config(ckpt, &f->config, f->err);
    if (code == TP_OK)
        code = tp_model_facts_of(ckpt->config, ckpt->config_size, choice, &f->weights->facts,
                                 f->err);
    if (code == TP_E_INPUT)
        tp_source_config_path(ckpt, f->err);
    f->method = json_string_value(json_object_get(f->config, "quant_method"));
    f->bits = tp_source_config_bits(f->config);
    tp_source_config_block(f->config, f->block);
    return code ? code : tp_source_config_activations(f->config, &f->activations, f->err);
}

static enum tp_code find_weights(const struct tp_checkpoint *ckpt,
                                 const struct tp_model_choice *choice, bool plain, bool unknown,
                                 struct tp_weights *weights, struct tp_err *err)
{
    struct tp_finder f = {.ckpt = ckpt, .weights = weights, .err = err};
    memset(weights, 0, sizeof *weights);
    weights->takes_unknown = unknown;
    uint64_t before = tp_json_failures();
    enum tp_code code = read_config(&f, choice);
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
    free(f.tried);
    json_decref(f.config);
    json_decref(f.marks);
    code = tp_json_check(before, code, err);
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

const struct tp_tensor *tp_weight_convolution(const struct tp_checkpoint *ckpt,
                                              const struct tp_weight *weight)
{
    int codes = weight->form->format ? tp_op_find(&weight->form->op, TP_ROLE_CODES) : -1;
    const struct tp_tensor *tensor = codes < 0 ? NULL : &ckpt->tensors[weight->tensor[codes]];
    bool four = tensor && tensor->rank == 4 && weight->form->format->out[codes].rank < 4;
    return four ? tensor : NULL;
}

void tp_weight_attribute_error(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                               struct tp_err *err)
{
    uint32_t codes = weight->tensor[tp_op_find(&weight->form->op, TP_ROLE_CODES)];
    tp_err_path(err, ckpt->files[ckpt->tensors[codes].file].path);
    tp_err_tensor(err, weight->name);
}
