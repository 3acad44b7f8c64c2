/* How the scales of each unit are searched, and the numbers of importance that belong to it.
 */
#include "pack/plan/unit/build.h"

#include "pack/file/leafhash.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

/* The name of the tensor that the rows of a weight's expert came from. Fresh memory. */
static char *name_of(const struct tp_weight *weight, uint64_t expert, uint64_t row,
                     struct tp_err *err)
{
    uint32_t o = 0;
    while (o + 1 < weight->origins && row >= weight->origin[o].rows)
        row -= weight->origin[o++].rows;
    return weight->origins ? tp_origin_name(&weight->origin[o], expert, err)
                           : tp_os_copy(err, weight->name);
}

/* Every entry of the file has to belong to some weight of the checkpoint. */
enum tp_code tp_plan_check_importance(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    b->plan->importance = b->request->importance;
    if (b->request->importance_path && !b->request->importance) {
        tp_err_hint(b->err, "name it with --importance FILE");
        return tp_fail(b->err, TP_E_USAGE,
                       "its scales were searched with a file of importance, which is needed");
    }
    if (!b->request->importance)
        return TP_OK;
    for (size_t w = 0; w < weights->count; w++) {
        const struct tp_weight *weight = &weights->items[w];
        uint64_t experts = weight->origins ? weight->form->box.e : 1;
        for (uint64_t e = 0; e < experts; e++) {
            char *name = name_of(weight, e, 0, b->err);
            if (!name)
                return TP_E_MEMORY;
            tp_importance_claim(b->request->importance, name);
            free(name);
        }
    }
    return tp_importance_all_claimed(b->request->importance, b->err);
}

/* The view's weight as a file of importance names it, in fresh memory, and how many experts it has
 * there. NULL: no memory. */
static char *name_in_file(const struct tp_plan *plan, const struct tp_view *view,
                          uint64_t *experts, struct tp_err *err)
{
    const struct tp_weight *weight = &plan->weights->items[view->weight];
    const bool alone = weight->origins && weight->origin[0].rank == 2;
    *experts = alone ? 1 : weight->form->box.e;
    return name_of(weight, view->expert, view->row, err);
}

enum tp_code tp_unit_importance(const struct tp_plan *plan, const struct tp_importance_file *file,
                                const struct tp_unit *unit, uint64_t expert,
                                struct tp_importance_ref *ref, struct tp_err *err)
{
    const struct tp_view view = tp_unit_view(unit, expert, 0);
    uint64_t experts;
    char *name = name_in_file(plan, &view, &experts, err);
    if (!name)
        return TP_E_MEMORY;
    enum tp_code code = tp_importance_find(file, name, view.expert, experts, unit->form->box.k, ref,
                                           err);
    free(name);
    return code;
}

enum tp_code tp_unit_gradient(const struct tp_plan *plan, const struct tp_importance_file *file,
                              const struct tp_unit *unit, uint64_t expert, float *square,
                              struct tp_err *err)
{
    double sum = 0, rows = 0;
    enum tp_code code = TP_OK;
    *square = 0;
    for (uint32_t v = 0; v < unit->form->views_per_expert && *square >= 0 && code == TP_OK; v++) {
        const struct tp_view view = tp_unit_view(unit, expert, v);
        uint64_t experts;
        char *name = name_in_file(plan, &view, &experts, err);
        if (!name)
            return TP_E_MEMORY;
        code = tp_importance_gradient(file, name, view.expert, experts, square, err);
        free(name);
        sum += *square * (double)unit->form->view_rows[v];
        rows += (double)unit->form->view_rows[v];
    }
    if (*square >= 0 && rows > 0)
        *square = (float)(sum / rows);
    return code;
}

/* Finds the numbers of every expert; *found says whether one has any. */
static enum tp_code find_all(struct tp_builder *b, struct tp_unit *unit, bool *found)
{
    unit->importance = tp_os_zalloc(unit->form->box.e, sizeof *unit->importance, b->err);
    enum tp_code code = unit->importance ? TP_OK : TP_E_MEMORY;
    *found = false;
    for (uint64_t e = 0; e < unit->form->box.e && code == TP_OK; e++) {
        code = tp_unit_importance(b->plan, b->request->importance, unit, e, &unit->importance[e],
                                  b->err);
        *found |= unit->importance[e].entry != TP_NO_IMPORTANCE;
        if (code == TP_OK && unit->importance[e].rank != unit->importance[0].rank) {
            const struct tp_view view = tp_unit_view(unit, e, 0);
            char *name = name_of(tp_weight_at(b, view.weight), view.expert, view.row, b->err);
            tp_err_tensor(b->err, name ? name : "");
            free(name);
            tp_err_hint(b->err, "give all experts moments of one rank, or the layer");
            tp_err_path(b->err, tp_importance_path(b->request->importance));
            code = tp_fail(b->err, TP_E_INPUT, "it has moments of rank %u, and expert 0 of rank "
                           "%u", unit->importance[e].rank, unit->importance[0].rank);
        }
    }
    return code;
}

enum tp_code tp_plan_largest_input(struct tp_builder *b, const struct tp_unit *unit,
                                   struct tp_view view, float *largest)
{
    const struct tp_weight *weight = &b->plan->weights->items[view.weight];
    const bool alone = unit->form->rank == 2 || (weight->origins && weight->origin[0].rank == 2);
    char *name = name_of(weight, view.expert, view.row, b->err);
    enum tp_code code = !name ? TP_E_MEMORY
                              : tp_importance_largest(b->request->importance, name, view.expert,
                                                      alone ? 1 : weight->form->box.e, largest,
                                                      b->err);
    free(name);
    return code;
}

/* The hash of the moments of each expert, 16 bytes. */
static enum tp_code hash_moments(struct tp_builder *b, const struct tp_unit *unit, uint8_t *hashes)
{
    const uint64_t k = unit->form->box.k, count = k * unit->importance[0].rank;
    float *moments = tp_os_zalloc(count, sizeof *moments, b->err);
    enum tp_code code = moments ? TP_OK : TP_E_MEMORY;
    for (uint64_t e = 0; e < unit->form->box.e && code == TP_OK; e++) {
        code = tp_moments_read(b->request->importance, unit->importance[e], k, moments, b->err);
        tp_hash(moments, count * sizeof *moments, hashes + e * TP_HASH_BYTES);
    }
    free(moments);
    return code;
}

/* Reads and checks all numbers of the unit: their hash is part of its descriptor. */
static enum tp_code hash_all(struct tp_builder *b, struct tp_unit *unit)
{
    uint64_t k = unit->form->box.k, experts = unit->form->box.e;
    const bool moments = unit->importance[0].rank != 0;
    float *numbers = tp_os_zalloc(experts, k * sizeof *numbers + TP_HASH_BYTES, b->err);
    uint8_t *end = (uint8_t *)(numbers + experts * k);
    enum tp_code code = numbers ? TP_OK : TP_E_MEMORY;
    for (uint64_t e = 0; e < experts && code == TP_OK; e++)
        code = tp_importance_read(b->request->importance, unit->importance[e], k, 0, k,
                                  numbers + e * k, b->err);
    if (code == TP_OK && moments)
        code = hash_moments(b, unit, end);
    if (code == TP_OK)
        tp_hash(numbers, experts * (k * sizeof *numbers + (moments ? TP_HASH_BYTES : 0)),
                unit->form->search.hash);
    free(numbers);
    return code;
}

static enum tp_code from_file(struct tp_builder *b, struct tp_unit *unit)
{
    bool found;
    enum tp_code code = find_all(b, unit, &found);
    if (code == TP_OK && found) {
        unit->form->op.rank = (uint8_t)unit->importance[0].rank;
        return hash_all(b, unit);
    }
    free(unit->importance);
    unit->importance = NULL;
    unit->form->search.importance = TP_IMPORTANCE_NONE;
    unit->form->unweighted = code == TP_OK;
    return code;
}

/* What a take-over carries on: what the descriptors of all its sources say. */
static struct tp_search_choice common_choice(const struct tp_builder *b,
                                             const struct tp_unit *unit)
{
    const struct tp_weight *items = b->plan->weights->items;
    const struct tp_weight *first = &items[unit->views[0].weight];
    for (uint64_t i = 0; i < tp_unit_views(unit); i++) {
        const struct tp_weight *weight = &items[unit->views[i].weight];
        bool other_hash = weight != first && weight->form->search.importance == TP_IMPORTANCE_FILE;
        if (other_hash ||
            memcmp(&weight->form->search, &first->form->search, sizeof first->form->search) != 0)
            return (struct tp_search_choice){0};
    }
    return first->form->search;
}

static bool is_plain(const struct tp_builder *b, const struct tp_unit *unit)
{
    return !tp_weight_at(b, unit->views[0].weight)->form->format;
}

static bool is_unsearched(const struct tp_unit_form *form)
{
    return tp_format_unsearched(form->format, &form->settings) < form->format->params;
}

/* What was asked for; where nothing was, plain weights have the search of their format. */
static const struct tp_search_choice *choice_of(const struct tp_builder *b,
                                                const struct tp_unit *unit,
                                                const struct tp_rule *rule)
{
    const bool asked = rule->search.search != TP_SEARCH_NONE;
    return !asked && is_plain(b, unit) ? &rule->unsaid : &rule->search;
}

enum tp_code tp_plan_search(struct tp_builder *b, struct tp_unit *unit,
                            const struct tp_rule *rule)
{
    const struct tp_search_choice *search = choice_of(b, unit, rule);
    if (unit->form->kind == TP_UNIT_REPACK) {
        unit->form->search = common_choice(b, unit);
        return TP_OK;
    }
    unit->form->unsearched = rule->unsearched && is_plain(b, unit) && is_unsearched(unit->form);
    if (search->search == TP_SEARCH_NONE)
        return TP_OK;
    struct tp_op op = unit->form->op;
    tp_search_choice_op(search, &op);
    const bool needless = tp_op_search(&op) == TP_SEARCH_NONE;
    unit->form->needless_search = needless && search == &rule->search;
    if (needless)
        return TP_OK;
    unit->form->search = *search;
    enum tp_code code = search->importance == TP_IMPORTANCE_FILE ? from_file(b, unit) : TP_OK;
    tp_search_choice_op(&unit->form->search, &unit->form->op);
    return code;
}
