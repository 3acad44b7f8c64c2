/* The plan: the output tensors of one unit or kept tensor, their names, shapes and sizes.
 * Which file they go to, and where in it, is plan_files.c's business.
 *
 * Invariant: an output's bytes are those of its shape, and those of the layout that
 * the kernels will write.
 */
#include "pack/plan/plan_build.h"

#include "base/num.h"
#include "pack/os/os.h"

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

static enum tp_code shape_bytes(struct tp_output *output, struct tp_err *err)
{
    uint64_t bits = tp_dtype_bits(output->dtype);
    for (uint32_t d = 0; d < output->rank; d++)
        if (!tp_mul_u64(&bits, bits, output->shape[d]))
            return tp_fail(err, TP_E_UNSUPPORTED, "output %s is too large", output->name);
    output->bytes = bits / 8;
    return TP_OK;
}

static enum tp_code constant_bytes(const struct tp_unit *unit, uint32_t i, struct tp_output *output,
                                   struct tp_err *err)
{
    if (!(output->constant = tp_os_alloc(output->bytes, err)))
        return TP_E_MEMORY;
    return tp_format_constant(unit->format, i, unit->box, output->constant, output->bytes, err);
}

/* Shape and bytes from the texts of the format file. */
static enum tp_code evaluate(const struct tp_unit *unit, uint32_t i, struct tp_output *output,
                             struct tp_err *err)
{
    uint64_t expected;
    enum tp_code code = tp_format_shape(unit->format, i, unit->box, unit->rank, output->shape,
                                        &output->rank, err);
    if (code == TP_OK)
        code = shape_bytes(output, err);
    if (code == TP_OK && unit->op.out[i].role != TP_ROLE_WORDS) {
        code = tp_op_bytes(&unit->op, i, unit->box, &expected, err);
        if (code == TP_OK && expected != output->bytes)
            code = tp_fail(err, TP_E_UNSUPPORTED, "format %s: shape and layout of %s disagree",
                           unit->format->name, unit->format->out[i].suffix);
    }
    if (code)
        tp_err_tensor(err, unit->name);
    return code;
}

static bool same_kind(const struct tp_unit_sizes *sizes, const struct tp_unit *unit)
{
    return sizes->format == unit->format && sizes->rank == unit->rank &&
           sizes->box.e == unit->box.e && sizes->box.n == unit->box.n &&
           sizes->box.k == unit->box.k &&
           memcmp(&sizes->settings, &unit->settings, sizeof unit->settings) == 0;
}

/* What is known of units like this one; of a new kind, nothing yet. */
static struct tp_unit_sizes *sizes_of(struct tp_builder *b, const struct tp_unit *unit)
{
    for (uint32_t s = 0; s < TP_KNOWN_SIZES; s++)
        if (same_kind(&b->sizes[s], unit))
            return &b->sizes[s];
    struct tp_unit_sizes *sizes = &b->sizes[b->next_sizes++ % TP_KNOWN_SIZES];
    *sizes = (struct tp_unit_sizes){.format = unit->format, .settings = unit->settings,
                                    .box = unit->box, .rank = unit->rank};
    return sizes;
}

static enum tp_code find_size(struct tp_builder *b, const struct tp_unit *unit, uint32_t i,
                              struct tp_output *output)
{
    struct tp_output_size *size = &sizes_of(b, unit)->out[i];
    if (!size->known) {
        enum tp_code code = evaluate(unit, i, output, b->err);
        if (code)
            return code;
        size->known = true;
        size->rank = output->rank;
        size->bytes = output->bytes;
        memcpy(size->shape, output->shape, sizeof size->shape);
        return TP_OK;
    }
    output->rank = size->rank;
    output->bytes = size->bytes;
    memcpy(output->shape, size->shape, sizeof size->shape);
    return TP_OK;
}

/* The constant of the first unit of a kind is that of all. */
static enum tp_code known_constant(struct tp_builder *b, const struct tp_unit *unit, uint32_t i,
                                   struct tp_output *output)
{
    struct tp_output_size *size = &sizes_of(b, unit)->out[i];
    if (!size->constant) {
        enum tp_code code = constant_bytes(unit, i, output, b->err);
        size->constant = output->constant;
        return code;
    }
    if (!(output->constant = tp_os_alloc(output->bytes, b->err)))
        return TP_E_MEMORY;
    memcpy(output->constant, size->constant, output->bytes);
    return TP_OK;
}

static enum tp_code packed_output(struct tp_builder *b, uint32_t u, uint32_t i)
{
    struct tp_output *output;
    enum tp_code code = new_output(b, &output);
    const struct tp_unit *unit = &b->plan->units[u];
    if (code)
        return code;
    const struct tp_format_out *out = &unit->format->out[i];
    output->unit = u;
    output->source = i; /* which output of the unit */
    output->dtype = tp_format_dtype(unit->format, &unit->op, i);
    output->name = tp_os_join(b->err, unit->prefix, strlen(unit->prefix), out->suffix);
    if (!output->name)
        return TP_E_MEMORY;
    if ((code = find_size(b, unit, i, output)))
        return code;
    return unit->op.out[i].role == TP_ROLE_WORDS ? known_constant(b, unit, i, output) : TP_OK;
}

static enum tp_code plain_output(struct tp_builder *b, uint32_t u)
{
    struct tp_output *output;
    enum tp_code code = new_output(b, &output);
    const struct tp_unit *unit = &b->plan->units[u];
    if (code)
        return code;
    output->unit = u;
    output->dtype = unit->dtype;
    output->name = tp_os_copy(b->err, unit->name);
    if (unit->rank == 3)
        output->shape[output->rank++] = unit->box.e;
    output->shape[output->rank++] = unit->transposed ? unit->box.k : unit->box.n;
    output->shape[output->rank++] = unit->transposed ? unit->box.n : unit->box.k;
    return output->name ? shape_bytes(output, b->err) : TP_E_MEMORY;
}

enum tp_code tp_plan_unit_outputs(struct tp_builder *b, uint32_t u)
{
    enum tp_code code = TP_OK;
    if (!b->plan->units[u].format)
        return plain_output(b, u);
    for (uint32_t i = 0; i < b->plan->units[u].op.outs && code == TP_OK; i++)
        code = packed_output(b, u, i);
    return code;
}

/* Of a kept weight that is cut for ranks, the shape of its slice. */
static enum tp_code slice_output(struct tp_builder *b, const struct tp_kept *kept,
                                 struct tp_output *output)
{
    const struct tp_unit *unit = &b->plan->kept_units[kept->unit];
    const struct tp_weight *weight = &b->plan->weights->items[unit->views[0].weight];
    uint32_t i = 0;
    while (weight->tensor[i] != kept->tensor)
        i++;
    enum tp_code code = tp_format_shape(unit->format, i, unit->box, unit->rank, output->shape,
                                        &output->rank, b->err);
    if (code == TP_OK && (code = shape_bytes(output, b->err)) == TP_OK &&
        unit->op.out[i].role == TP_ROLE_WORDS)
        code = constant_bytes(unit, i, output, b->err);
    return code;
}

enum tp_code tp_plan_kept_output(struct tp_builder *b, const struct tp_kept *kept)
{
    struct tp_output *output;
    enum tp_code code = new_output(b, &output);
    if (code)
        return code;
    const struct tp_tensor *tensor = &b->plan->ckpt->tensors[kept->tensor];
    output->unit = UINT32_MAX;
    output->source = kept->tensor;
    output->dtype = tensor->dtype;
    output->rank = tensor->rank;
    memcpy(output->shape, tensor->shape, sizeof tensor->shape);
    output->bytes = tensor->bytes;
    output->name = tp_os_copy(b->err, tensor->name);
    if (!output->name)
        return TP_E_MEMORY;
    bool cut = kept->unit != UINT32_MAX && b->plan->kept_units[kept->unit].cut.ranks;
    return cut ? slice_output(b, kept, output) : TP_OK;
}
