/* A last look at a plan: no tensor of the source becomes two things. It finds mistakes of planning,
 * which would be a damaged output at status 0.
 *
 * Invariant: parts of one weight may be in several units, as the experts of a stack are; a tensor
 * belongs to one weight of the units, or is copied once.
 */
#include "pack/plan/unit/build.h"

#include "pack/os/os.h"

#include <stdlib.h>

static const uint32_t COPIED = UINT32_MAX; /* a taker: a weight's number + 1 is less */

static enum tp_code use(const struct tp_plan *plan, uint32_t *users, uint32_t tensor,
                        uint32_t user, struct tp_err *err)
{
    if (!users[tensor] || (users[tensor] == user && user != COPIED)) {
        users[tensor] = user;
        return TP_OK;
    }
    tp_err_tensor(err, plan->ckpt->tensors[tensor].name);
    tp_err_path(err, plan->ckpt->files[plan->ckpt->tensors[tensor].file].path);
    tp_err_hint(err, "this is a mistake of tilepack: please report it; --exclude leaves the weight "
                     "as it is");
    return tp_fail(err, TP_E_UNSUPPORTED, "the plan would write it twice");
}

static enum tp_code use_unit(const struct tp_plan *plan, uint32_t *users,
                             const struct tp_unit *unit, struct tp_err *err)
{
    uint64_t views = tp_unit_views(unit);
    enum tp_code code = TP_OK;
    for (uint64_t v = 0; v < views && code == TP_OK; v++) {
        uint32_t w = unit->views[v].weight;
        const struct tp_weight *weight = &plan->weights->items[w];
        if (v && unit->views[v - 1].weight == w)
            continue;
        for (uint32_t i = 0; i < TP_MAX_OUT && code == TP_OK; i++)
            if (weight->tensor[i] != TP_NO_TENSOR)
                code = use(plan, users, weight->tensor[i], w + 1, err);
    }
    return code;
}

enum tp_code tp_plan_check_unique_sources(const struct tp_plan *plan, struct tp_err *err)
{
    uint32_t *users = tp_os_zalloc(plan->ckpt->tensor_count + 1, sizeof *users, err);
    enum tp_code code = users ? TP_OK : TP_E_MEMORY;
    for (size_t u = 0; u < plan->unit_count && code == TP_OK; u++)
        code = use_unit(plan, users, &plan->units[u], err);
    for (size_t k = 0; k < plan->kept_count && code == TP_OK; k++)
        if (!plan->kept[k].made) /* of its tensors none is copied */
            code = use(plan, users, plan->kept[k].tensor, COPIED, err);
    free(users);
    return code;
}
