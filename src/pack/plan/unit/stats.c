/* Which units share a value over all their elements: the global scale of NVFP4,
 * and that of FP8 per tensor.
 *
 * Matrices that engines load as one (q/k/v, gate/up) share it, because the engine
 * keeps one scale for the whole (with FP8 per tensor if that is asked for); every expert of a
 * stack has its own. Units
 * that are encoded take part, and those that take over what has no global scale of its own
 * (convert_scales.c): all else brings its scale along.
 */
#include "pack/plan/unit/build.h"

#include "kernels/op/convert_scales.h"
#include "kernels/op/traits.h"
#include "pack/os/os.h"
#include "pack/model/model_names.h"

#include <stdlib.h>
#include <string.h>

struct member {
    char *key; /* of the set; the unit's own name when it stands alone */
    uint32_t unit;
};

static int by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : x->unit < y->unit ? -1 : x->unit > y->unit;
}

static bool needs_stats(const struct tp_plan *plan, const struct tp_unit *unit)
{
    const struct tp_op *from = &plan->weights->items[unit->views[0].weight].form->op;
    return unit->form->format && tp_op_find(&unit->form->op, TP_ROLE_GLOBAL) >= 0 &&
           (unit->form->kind == TP_UNIT_ENCODE || unit->form->op.shifts_scales ||
            tp_convert_scales_possible(from, &unit->form->op));
}

static bool same_set(const struct tp_plan *plan, const struct member *a, const struct member *b)
{
    const struct tp_unit *x = &plan->units[a->unit], *y = &plan->units[b->unit];
    return strcmp(a->key, b->key) == 0 && x->form->rank == 2 && y->form->rank == 2 &&
           x->form->format == y->form->format && x->form->kind == y->form->kind &&
           memcmp(x->form->settings.choice, y->form->settings.choice,
                  sizeof x->form->settings.choice) == 0;
}

static enum tp_code collect(struct tp_builder *b, struct member *members, size_t *count,
                            uint64_t *groups)
{
    *count = 0;
    *groups = 0;
    for (uint32_t u = 0; u < b->plan->unit_count; u++) {
        struct tp_unit *unit = &b->plan->units[u];
        char key[2048];
        if (!needs_stats(b->plan, unit))
            continue;
        *groups += unit->form->box.e;
        bool shares = unit->form->rank == 2 &&
                      (tp_codecs[unit->form->op.codec].has_global || unit->form->op.fused_global);
        bool fused = shares && tp_name_fused(&b->plan->weights->facts, unit->name, key, sizeof key,
                                             NULL);
        members[*count].unit = u;
        if (!(members[*count].key = tp_os_format(b->err, "%s", fused ? key : unit->name)))
            return TP_E_MEMORY;
        ++*count;
    }
    return TP_OK;
}

/* Groups of the sorted members; a stack has one for each expert, in their order. */
static void make_groups(struct tp_plan *plan, const struct member *members, size_t count)
{
    uint32_t used = 0;
    for (size_t i = 0, end; i < count; i = end) {
        struct tp_unit *first = &plan->units[members[i].unit];
        for (end = i + 1; end < count && same_set(plan, &members[i], &members[end]);)
            end++;
        for (uint64_t e = 0; e < first->form->box.e; e++)
            plan->groups[plan->group_count + e] =
                (struct tp_stats_group){used, (uint32_t)(end - i), 0};
        for (size_t j = i; j < end; j++) {
            plan->units[members[j].unit].stats = (uint32_t)plan->group_count;
            plan->stats_units[used++] = members[j].unit;
        }
        plan->group_count += first->form->box.e;
    }
}

enum tp_code tp_plan_stats(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    size_t count;
    uint64_t groups;
    struct member *members = tp_os_zalloc(plan->unit_count + 1, sizeof *members, b->err);
    if (!members)
        return TP_E_MEMORY;
    enum tp_code code = collect(b, members, &count, &groups);
    if (code == TP_OK && count) {
        plan->groups = tp_os_zalloc(groups, sizeof *plan->groups, b->err);
        plan->stats_units = tp_os_zalloc(count, sizeof *plan->stats_units, b->err);
        code = plan->groups && plan->stats_units ? TP_OK : TP_E_MEMORY;
    }
    if (code == TP_OK && count) {
        qsort(members, count, sizeof *members, by_key);
        make_groups(plan, members, count);
    }
    for (size_t i = 0; i < plan->unit_count; i++)
        free(members[i].key);
    free(members);
    return code;
}
