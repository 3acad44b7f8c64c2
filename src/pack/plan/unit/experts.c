/* Which experts have no gate, and whose rows of gate and up are interleaved: by all weights of the
 * checkpoint, chosen or not. Of the first matrix that can be told from itself, of the last one it
 * cannot.
 *
 * Invariant: of the last matrix both are so only if its other matrix is there and says so.
 */
#include "pack/plan/unit/build.h"

#include "base/suffix.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/unit/origin.h"

#include <string.h>

static enum tp_code add(struct tp_builder *b, struct tp_names *names, const char *name, size_t size)
{
    uint32_t number;
    if (tp_names_find(names, name, size) >= 0)
        return TP_OK;
    const char *prefix = tp_store_join(&b->plan->store, name, size, "", b->err);
    return prefix ? tp_names_add(names, prefix, size, &number, b->err) : TP_E_MEMORY;
}

static bool is_ungated(const struct tp_weight *weight)
{
    return tp_origins_ungated(weight->origin, weight->origins);
}

bool tp_plan_is_gated(const struct tp_weight *weight, const struct tp_stack_name *stack)
{
    return stack->gate_up && !is_ungated(weight);
}

bool tp_plan_is_interleaved(const struct tp_weight *weight)
{
    const struct tp_weight_form *form = weight->form;
    if (form->format && form->format->keeps_interleaved && form->format->part == TP_PART_UP)
        return weight->origins == 1 && weight->origin[0].rank == 3; /* of one stack, as it was */
    if (weight->origins > 1) /* put apart already, whatever its name is */
        return false;
    return form->format &&
           (form->interleaved || (form->separator == '_' && tp_ends_with(weight->name, "_proj")));
}

/* "P.w13" of a packed stack, or a matrix of an expert of P, where a format asks for those. */
static enum tp_code add_weight(struct tp_builder *b, const struct tp_weight *weight,
                               bool asked)
{
    size_t size = strlen(weight->name);
    struct tp_expert_name name;
    if (weight->form->rank == 3 && weight->form->format && tp_ends_with(weight->name, ".w13"))
        return add(b, is_ungated(weight)           ? &b->with_up
                      : tp_plan_is_interleaved(weight) ? &b->interleaved
                                                       : &b->with_gate,
                   weight->name, size - strlen(".w13"));
    if (!asked || weight->form->rank != 2 ||
        !tp_name_expert(&b->plan->weights->facts, weight->name, &name) ||
        name.matrix == TP_EXPERT_DOWN)
        return TP_OK;
    return add(b, name.matrix == TP_EXPERT_GATE ? &b->with_gate : &b->with_up, weight->name,
               name.prefix);
}

enum tp_code tp_plan_find_experts(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code = TP_OK;
    bool asked = false;
    for (size_t r = 0; r < b->request->rule_count; r++) {
        const struct tp_format *format = b->request->rules[r].format;
        asked |= format && format->variant[TP_PART_DOWN_UNGATED];
    }
    for (size_t w = 0; w < weights->count && code == TP_OK; w++)
        code = add_weight(b, &weights->items[w], asked);
    return code;
}

bool tp_plan_is_last_ungated(const struct tp_builder *b, const char *name)
{
    if (!tp_ends_with(name, ".w2"))
        return false;
    size_t size = strlen(name) - strlen(".w2");
    return tp_names_find(&b->with_up, name, size) >= 0 &&
           tp_names_find(&b->with_gate, name, size) < 0;
}

bool tp_plan_is_last_interleaved(const struct tp_builder *b, const char *name)
{
    return tp_ends_with(name, ".w2") &&
           tp_names_find(&b->interleaved, name, strlen(name) - strlen(".w2")) >= 0;
}
