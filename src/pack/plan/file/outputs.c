/* The plan: the output tensors of one unit or kept tensor, their names, shapes and sizes.
 * Which file they go to, and where in it, is files.c's business.
 *
 * Invariant: an output's bytes are those of its shape, and those of the layout that
 * the kernels will write.
 */
#include "pack/plan/unit/build.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/plan/unit/constant.h"

#include <string.h>

static enum tp_code new_output(struct tp_builder *b, struct tp_output **output)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->outputs, &b->output_capacity,
                                   plan->output_count + 1, sizeof *plan->outputs, b->err);
    if (code)
        return code;
    *output = &plan->outputs[plan->output_count++];
    memset(*output, 0, sizeof **output);
    return TP_OK;
}

static enum tp_code shape_bytes(const struct tp_builder *b, struct tp_output *output)
{
    uint64_t bits = tp_dtype_bits((enum tp_dtype)output->dtype);
    for (uint32_t d = 0; d < output->rank; d++)
        if (!tp_mul_u64(&bits, bits, output->shape[d]))
            return tp_fail(b->err, TP_E_UNSUPPORTED, "output %s is too large", output->name);
    output->bytes = bits / 8;
    return TP_OK;
}

/* Shape and bytes from the texts of the format file. */
static enum tp_code format_shape(struct tp_builder *b, const struct tp_unit_form *form, uint32_t i,
                                 struct tp_output *output)
{
    uint64_t shape[TP_MAX_RANK];
    uint32_t rank;
    enum tp_code code =
        tp_format_shape(form->format, i, form->box, form->rank, shape, &rank, b->err);
    if (code)
        return code;
    output->rank = (uint8_t)rank;
    output->shape = tp_store_copy(&b->plan->store, shape, rank * sizeof *shape, b->err);
    return output->shape ? shape_bytes(b, output) : TP_E_MEMORY;
}

/* The same, and the constant; the layout must take as many bytes. */
static enum tp_code evaluate(struct tp_builder *b, const struct tp_unit *unit, uint32_t i,
                             struct tp_output *output)
{
    const struct tp_unit_form *form = unit->form;
    uint64_t expected;
    enum tp_code code = format_shape(b, form, i, output);
    if (code == TP_OK && form->op.out[i].role == TP_ROLE_WORDS)
        return tp_output_constant(&b->plan->store, form, i, output, &b->constants, b->err);
    if (code == TP_OK) {
        code = tp_op_whole_bytes(&form->op, i, form->box, &expected, b->err);
        if (code == TP_OK && expected != output->bytes)
            code = tp_fail(b->err, TP_E_UNSUPPORTED, "format %s: shape and layout of %s disagree",
                           form->format->name, form->format->out[i].suffix);
    }
    if (code)
        tp_err_tensor(b->err, unit->name);
    return code;
}

/* What is known of units of this form; of a new one, nothing yet. */
static struct tp_unit_sizes *sizes_of(struct tp_builder *b, const struct tp_unit_form *form)
{
    for (uint32_t s = 0; s < TP_KNOWN_SIZES; s++)
        if (b->sizes[s].form == form)
            return &b->sizes[s];
    struct tp_unit_sizes *sizes = &b->sizes[b->next_sizes++ % TP_KNOWN_SIZES];
    *sizes = (struct tp_unit_sizes){.form = form};
    return sizes;
}

/* Shape, bytes and constant of the first unit of a form are those of all. */
static enum tp_code find_size(struct tp_builder *b, const struct tp_unit *unit, uint32_t i,
                              struct tp_output *output)
{
    struct tp_output *size = &sizes_of(b, unit->form)->out[i];
    if (!size->shape) {
        enum tp_code code = evaluate(b, unit, i, output);
        if (code == TP_OK)
            *size = *output;
        return code;
    }
    output->rank = size->rank;
    output->bytes = size->bytes;
    output->shape = size->shape;
    output->constant = size->constant;
    return TP_OK;
}

/* The name of the unit, and the suffix that the format gives this output. A reader looks for
 * tensors of names that long at most (pack/source/weights.c). */
static enum tp_code set_name(struct tp_builder *b, const struct tp_unit *unit,
                             struct tp_output *output)
{
    const char *suffix = unit->form->format->out[output->source].suffix;
    size_t length = strlen(unit->name), more = strlen(suffix);
    if (length + 1 + more >= TP_FULL_NAME) {
        tp_err_tensor(b->err, unit->name);
        tp_err_hint(b->err, "--exclude leaves it as it is");
        return tp_fail(b->err, TP_E_UNSUPPORTED, "its name would have %zu bytes with '%s', and at "
                       "most %d are read", length + 1 + more, suffix, TP_FULL_NAME - 1);
    }
    output->name = unit->name;
    if (!unit->form->separator)
        return TP_OK;
    char *name = tp_store_text(&b->plan->store, length + 1 + more + 1, b->err);
    if (!name)
        return TP_E_MEMORY;
    memcpy(name, unit->name, length);
    name[length] = unit->form->separator;
    memcpy(name + length + 1, suffix, more + 1);
    output->name = name;
    return TP_OK;
}

static enum tp_code packed_output(struct tp_builder *b, uint32_t u, uint32_t i)
{
    struct tp_output *output;
    enum tp_code code = new_output(b, &output);
    const struct tp_unit *unit = &b->plan->units[u];
    if (code)
        return code;
    output->unit = u;
    output->source = i;
    output->dtype = (uint8_t)tp_format_dtype(unit->form->format, &unit->form->op, i);
    code = set_name(b, unit, output);
    return code ? code : find_size(b, unit, i, output);
}

static enum tp_code plain_output(struct tp_builder *b, uint32_t u)
{
    struct tp_output *output;
    enum tp_code code = new_output(b, &output);
    const struct tp_unit *unit = &b->plan->units[u];
    const struct tp_unit_form *form = unit->form;
    uint64_t shape[3];
    if (code)
        return code;
    const struct tp_tensor *convolution = tp_weight_convolution(
        b->plan->ckpt, &b->plan->weights->items[unit->views[0].weight]);
    output->unit = u;
    output->dtype = (uint8_t)form->dtype;
    output->name = unit->name;
    if (convolution) {
        output->rank = (uint8_t)convolution->rank;
        output->shape = convolution->shape;
        return shape_bytes(b, output);
    }
    if (form->rank == 3)
        shape[output->rank++] = form->box.e;
    shape[output->rank++] = form->transposed ? form->box.k : form->box.n;
    if (!form->flat)
        shape[output->rank++] = form->transposed ? form->box.n : form->box.k;
    output->shape = tp_store_copy(&b->plan->store, shape, output->rank * sizeof *shape, b->err);
    return output->shape ? shape_bytes(b, output) : TP_E_MEMORY;
}

enum tp_code tp_plan_unit_outputs(struct tp_builder *b, uint32_t u)
{
    enum tp_code code = TP_OK;
    if (!b->plan->units[u].form->format)
        return plain_output(b, u);
    for (uint32_t i = 0; i < b->plan->units[u].form->op.outs && code == TP_OK; i++)
        code = packed_output(b, u, i);
    return code;
}

enum tp_code tp_plan_kept_output(struct tp_builder *b, const struct tp_kept *kept)
{
    struct tp_output *output;
    enum tp_code code = new_output(b, &output);
    if (code)
        return code;
    const struct tp_tensor *tensor = &b->plan->ckpt->tensors[kept->tensor];
    if (kept->made) {
        *output = *kept->made;
        return TP_OK;
    }
    output->unit = UINT32_MAX;
    output->source = kept->tensor;
    output->dtype = (uint8_t)tensor->dtype;
    output->rank = (uint8_t)tensor->rank;
    output->shape = tensor->shape;
    output->bytes = tensor->bytes;
    output->name = tensor->name;
    return TP_OK;
}
