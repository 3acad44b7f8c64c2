/* What all steps of finding weights share: tensors by their names, stacks of experts, the list that
 * is made.
 */
#include "pack/source/finder.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <string.h>

uint32_t tp_finder_index(const struct tp_finder *f, const struct tp_tensor *tensor)
{
    return tensor ? (uint32_t)(tensor - f->ckpt->tensors) : TP_NO_TENSOR;
}

const struct tp_tensor *tp_finder_near(const struct tp_finder *f, uint32_t from,
                                         const char *prefix, size_t prefix_size,
                                         const char *suffix)
{
    char wanted[2048];
    if (prefix_size + strlen(suffix) + 1 > sizeof wanted)
        return NULL;
    memcpy(wanted, prefix, prefix_size);
    strcpy(wanted + prefix_size, suffix);
    return tp_checkpoint_near(f->ckpt, from, wanted);
}

bool tp_same_shape(const struct tp_tensor *tensor, const uint64_t *shape, uint32_t rank)
{
    return tensor->rank == rank && memcmp(tensor->shape, shape, rank * sizeof *shape) == 0;
}

enum tp_code tp_finder_add(struct tp_finder *f, struct tp_weight *weight, const char *name,
                           size_t name_size)
{
    struct tp_weights *weights = f->weights;
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

void tp_finder_no_tensors(struct tp_weight *weight)
{
    for (int i = 0; i < TP_MAX_OUT; i++)
        if (!weight->form->format || (uint32_t)i >= weight->form->op.outs)
            weight->tensor[i] = TP_NO_TENSOR;
}

/* The sizes [N,K] or [K,N] of the other stack of the same experts; zeros without one. */
static void find_partner(const struct tp_finder *f, const struct tp_tensor *tensor,
                         const struct tp_stack_name *stack, uint64_t sizes[2])
{
    const struct tp_model_facts *facts = &f->weights->facts;
    const char *end = tensor->name + tp_name_base(tensor->name);
    char suffix[256];
    sizes[0] = sizes[1] = 0;
    for (size_t m = 0; m < facts->count; m++)
        for (size_t s = 0; s < facts->model[m]->stacks; s++) {
            const struct tp_model_stack *other = &facts->model[m]->stack[s];
            if (other->gate_up == stack->gate_up ||
                snprintf(suffix, sizeof suffix, "%s%s", other->name, end) >= (int)sizeof suffix)
                continue;
            const struct tp_tensor *found = tp_finder_near(f, tp_finder_index(f, tensor),
                                                           tensor->name, stack->module, suffix);
            if (!found || found->rank != 3 || found->shape[0] != tensor->shape[0])
                continue;
            sizes[0] = found->shape[1];
            sizes[1] = found->shape[2];
            return;
        }
}

bool tp_finder_stack(const struct tp_finder *f, const struct tp_tensor *tensor,
                     const uint64_t sizes[2], const uint64_t factor[2],
                     enum tp_stack_layout *layout, bool *interleaved)
{
    struct tp_stack_name stack;
    uint64_t other[2];
    if (tensor->rank != 3 || !tp_name_stack(&f->weights->facts, tensor->name, &stack))
        return false;
    find_partner(f, tensor, &stack, other);
    other[0] *= factor[0];
    other[1] *= factor[1];
    *layout = tp_stack_layout_of(&f->weights->facts, stack.is, sizes, other);
    *interleaved = stack.is->interleaved;
    return true;
}
