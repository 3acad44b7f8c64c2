/* Origins: which rows of which plain tensor a packed weight was made from.
 *
 * They pass through every conversion: stacking experts, splitting stacks and
 * repacking all end in origins that name the tensors of the first, plain source,
 * so that `unpack` restores those.
 */
#include "pack/plan/unit/origin.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/quantizer/quantizer.h"
#include "pack/model/model_names.h"

#include <stdlib.h>
#include <string.h>

struct list {
    struct tp_origin *items;
    size_t count, capacity;
    const struct tp_model_facts *facts;
    struct tp_err *err;
};

/* Appends a copy whose name is `name` (fresh memory, taken over). */
static enum tp_code append(struct list *list, const struct tp_origin *origin, char *name)
{
    if (!name || tp_os_grow((void **)&list->items, &list->capacity, list->count + 1,
                            sizeof *list->items, list->err)) {
        free(name);
        return TP_E_MEMORY;
    }
    list->items[list->count] = *origin;
    list->items[list->count++].name = name;
    return TP_OK;
}

/* "X.experts.3.gate_proj.weight" -> "X.experts.{e}.gate_proj.weight", and so with a bias. */
static char *expert_template(const struct tp_model_facts *facts, const char *name,
                             struct tp_err *err)
{
    struct tp_expert_name expert;
    if (!tp_name_expert(facts, name, &expert))
        return tp_os_copy(err, name);
    return tp_os_format(err, "%.*s.{e}.%s", (int)expert.prefix, name, expert.label);
}

/* What a weight as a whole was, if nothing is recorded: the plain tensor itself,
 * or, for a packed checkpoint of other tools, S.weight. */
static enum tp_code own_origin(const struct tp_plan *plan, const struct tp_weight *weight,
                               struct tp_origin *origin, struct tp_err *err)
{
    *origin = (struct tp_origin){.rows = weight->form->box.n, .expert = -1,
                                 .flat = weight->form->flat,
                                 .rank = (uint32_t)weight->form->rank,
                                 .transposed = weight->form->transposed ||
                                               (weight->form->format && weight->form->interleaved)};
    const struct tp_quantizer_form *as = weight->form->as;
    uint64_t *shape = origin->shape;
    if (weight->form->rank == 3)
        *shape++ = weight->form->box.e;
    *shape++ = weight->form->box.n;
    *shape = weight->form->box.k;
    if (weight->form->format && /* plain stacks have no ".weight", nor has what is one itself */
        (weight->form->interleaved || (as && as->base)))
        origin->name = tp_os_copy(err, weight->name);
    else if (weight->form->format)
        origin->name = tp_os_join(err, weight->name, strlen(weight->name), ".weight");
    else
        origin->name = tp_os_copy(err, plan->ckpt->tensors[weight->tensor[0]].name);
    if (!origin->name || !strstr(origin->name, "{e}"))
        return origin->name ? TP_OK : TP_E_MEMORY;
    tp_err_tensor(err, weight->name);
    tp_err_hint(err, "rename it in the source");
    return tp_fail(err, TP_E_UNSUPPORTED, "its name holds {e}, which stands for the numbers of "
                   "experts where names are recorded");
}

/* What of `origin`, which are the weight's rows from `at` on, a part of a unit
 * takes: nothing, or an origin of its own. */
static enum tp_code take_rows(const struct tp_unit *unit, const struct tp_weight *weight,
                              const struct tp_view *view, uint64_t rows,
                              const struct tp_origin *origin, uint64_t at, struct list *list)
{
    uint64_t first = tp_max_u64(at, view->row), step = tp_max_u64(origin->step, 1);
    uint64_t end = tp_min_u64(at + origin->rows, view->row + rows);
    struct tp_origin mine = *origin;
    char *name;
    if (view->step > 1) { /* of a weight that is all of one tensor, in its order */
        end = at + origin->rows;
        mine.step = view->step;
    }
    if (first >= end)
        return TP_OK;
    mine.row += (first - at) * step;
    mine.rows = view->step > 1 ? rows : end - first;
    bool template = strstr(origin->name, "{e}") != NULL;
    if (unit->form->rank == 3 && weight->form->rank == 2) { /* becomes one of a stack */
        mine.expert = -1;
        name = origin->rank == 3 ? tp_os_copy(list->err, origin->name)
                                 : expert_template(list->facts, origin->name, list->err);
    } else if (unit->form->rank == 2 && weight->form->rank == 3) { /* taken out of a stack */
        if (origin->rank == 3 && !template)
            mine.expert = (int64_t)view->expert;
        name = tp_origin_name(origin, view->expert, list->err);
    } else {
        name = tp_os_copy(list->err, origin->name);
    }
    return append(list, &mine, name);
}

static enum tp_code part_origins(const struct tp_plan *plan, const struct tp_unit *unit, uint32_t p,
                                 struct list *list)
{
    const struct tp_view *view = &unit->views[p];
    const struct tp_weight *weight = &plan->weights->items[view->weight];
    struct tp_origin own;
    enum tp_code code = TP_OK;
    if (!weight->origins) {
        if ((code = own_origin(plan, weight, &own, list->err)) == TP_OK)
            code = take_rows(unit, weight, view, unit->form->view_rows[p], &own, 0, list);
        free(own.name);
        return code;
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < weight->origins && code == TP_OK; i++) {
        code =
            take_rows(unit, weight, view, unit->form->view_rows[p], &weight->origin[i], at, list);
        at += weight->origin[i].rows;
    }
    return code;
}

/* One list for the whole unit: stacks repeat it for every expert, so the parts of
 * the first expert say everything. */
enum tp_code tp_unit_origins(const struct tp_plan *plan, const struct tp_unit *unit,
                             struct tp_origin **origins, uint32_t *count, struct tp_err *err)
{
    struct list list = {.facts = &plan->weights->facts, .err = err};
    enum tp_code code = TP_OK;
    for (uint32_t p = 0; p < unit->form->views_per_expert && code == TP_OK; p++)
        code = part_origins(plan, unit, p, &list);
    *origins = list.items;
    *count = (uint32_t)list.count;
    if (code) {
        tp_origins_free(list.items, *count);
        *origins = NULL;
        *count = 0;
    }
    return code;
}

bool tp_origins_ungated(const struct tp_origin *origins, uint32_t count)
{
    return count == 1 && strstr(origins->name, "{e}");
}

enum tp_code tp_weight_origins(const struct tp_plan *plan, uint32_t w, struct tp_origin **origins,
                               uint32_t *count, struct tp_err *err)
{
    const struct tp_weight_form *form = plan->weights->items[w].form;
    struct tp_unit_form whole = {.rank = form->rank, .box = form->box, .views_per_expert = 1,
                                 .view_rows = {form->box.n}};
    struct tp_unit unit = {.form = &whole, .views = &(struct tp_view){.weight = w, .step = 1}};
    return tp_unit_origins(plan, &unit, origins, count, err);
}
