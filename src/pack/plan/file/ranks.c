/* What ranks have; see ranks.h. Reads names and sizes alone. */
#include "pack/plan/file/ranks.h"

#include "base/num.h"
#include "pack/model/model_names.h"
#include "pack/plan/unit/build.h"

#include <stdio.h>

uint64_t tp_rank_parts(const struct tp_model_facts *facts, const char *name, enum tp_use use,
                       const struct tp_wish *wish, enum tp_parallel cut)
{
    const struct tp_model_parallel *is =
        wish->ranks < 2 || (wish->whole_experts && use == TP_USE_EXPERTS)
            ? NULL : tp_name_parallel(facts, name);
    struct tp_fused_name fused;
    char key[TP_FULL_NAME];
    if (!is || is->cut != cut)
        return 1;
    bool repeats = facts->kv_heads && facts->kv_heads < wish->ranks &&
                   tp_name_fused(facts, name, key, sizeof key, &fused) && fused.part &&
                   fused.set->parts == 3;
    return repeats ? facts->kv_heads : wish->ranks;
}

bool tp_ranks_have_heads(const struct tp_model_facts *facts, unsigned ranks)
{
    return ranks < 2 || (facts->heads % ranks == 0 &&
                         (facts->kv_heads % ranks == 0 || ranks % facts->kv_heads == 0));
}

static uint64_t rank_bytes(const struct tp_plan *plan, const struct tp_wish *wish,
                           const char *name, int rank, uint64_t bytes)
{
    const struct tp_model_facts *facts = &plan->weights->facts;
    struct tp_stack_name stack;
    enum tp_use use = rank == 3 || tp_name_stack(facts, name, &stack) ? TP_USE_EXPERTS
                                                                      : tp_name_use(facts, name);
    uint64_t parts = use == TP_USE_LINEAR
                         ? tp_rank_parts(facts, name, use, wish, TP_PARALLEL_N) *
                               tp_rank_parts(facts, name, use, wish, TP_PARALLEL_K)
                         : tp_max_u64(wish->ranks, 1);
    return tp_ceil_div(bytes, parts);
}

static void module_of(const struct tp_tensor *tensor, char module[TP_FULL_NAME])
{
    snprintf(module, TP_FULL_NAME, "%.*s", (int)tp_name_base(tensor->name), tensor->name);
}

static uint64_t kept_bytes(const struct tp_plan *plan, const struct tp_wish *wish,
                           const struct tp_kept *kept)
{
    const struct tp_tensor *tensor = &plan->ckpt->tensors[kept->tensor];
    const struct tp_unit *unit = kept->unit == UINT32_MAX ? NULL : &plan->kept_units[kept->unit];
    char module[TP_FULL_NAME];
    module_of(tensor, module);
    return rank_bytes(plan, wish, unit ? unit->name : module,
                      unit ? unit->form->rank : (int)tensor->rank,
                      kept->made ? kept->made->bytes : tensor->bytes);
}

uint64_t tp_plan_rank_bytes(const struct tp_plan *plan, const struct tp_wish *wish)
{
    uint64_t sum = 0;
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < unit->form->outs; i++)
            bytes += plan->outputs[unit->output[i]].bytes;
        sum += rank_bytes(plan, wish, unit->name, unit->form->rank, bytes);
    }
    for (size_t k = 0; k < plan->kept_count; k++)
        sum += kept_bytes(plan, wish, &plan->kept[k]);
    return sum;
}

/* Answers for a matrix alone: a vector and a stack have another use. */
static bool has_parts(const struct tp_plan *plan, const struct tp_wish *wish,
                      const struct tp_tensor *tensor)
{
    const struct tp_model_facts *facts = &plan->weights->facts;
    char module[TP_FULL_NAME];
    module_of(tensor, module);
    enum tp_use use = tp_name_use(facts, module);
    return tensor->rank != 2 || use != TP_USE_LINEAR ||
           (tensor->shape[0] % tp_rank_parts(facts, module, use, wish, TP_PARALLEL_N) == 0 &&
            tensor->shape[1] % tp_rank_parts(facts, module, use, wish, TP_PARALLEL_K) == 0);
}

bool tp_plan_has_parts(const struct tp_plan *plan, const struct tp_wish *wish)
{
    bool has = tp_ranks_have_heads(&plan->weights->facts, wish->ranks);
    for (size_t k = 0; k < plan->kept_count && has; k++)
        has = plan->kept[k].unit != UINT32_MAX ||
              has_parts(plan, wish, &plan->ckpt->tensors[plan->kept[k].tensor]);
    return has;
}
