/* The plan as a value: what it owns, and where a row of a unit comes from. It is made by
 * ../convert.c, ../unpack.c and others.
 */
#include "pack/plan/unit/plan.h"

#include <stdlib.h>
#include <string.h>

uint64_t tp_unit_views(const struct tp_unit *unit)
{
    return (unit->form->repeats ? 1 : unit->form->box.e) * unit->form->views_per_expert;
}

struct tp_view tp_unit_view(const struct tp_unit *unit, uint64_t e, uint32_t p)
{
    if (!unit->form->repeats)
        return unit->views[e * unit->form->views_per_expert + p];
    struct tp_view view = unit->views[p];
    view.expert += e;
    return view;
}

struct tp_view tp_unit_view_at(const struct tp_unit *unit, uint64_t e, uint64_t n, uint64_t *row,
                               uint64_t *rows_left)
{
    uint32_t p = 0, per = unit->form->views_per_expert;
    if (unit->form->interleaved) {
        struct tp_view view = tp_unit_view(unit, e, (uint32_t)(n % per));
        *row = view.row + n / per;
        *rows_left = 1;
        return view;
    }
    while (p + 1 < per && n >= unit->form->view_rows[p])
        n -= unit->form->view_rows[p++];
    struct tp_view view = tp_unit_view(unit, e, p);
    *row = view.row + n * (view.step > 1 ? view.step : 1);
    *rows_left = view.step > 1 ? 1 : unit->form->view_rows[p] - n;
    return view;
}

void tp_unit_close(struct tp_unit *unit)
{
    free(unit->importance);
}

static void free_units(struct tp_unit *units, size_t count)
{
    for (size_t u = 0; u < count; u++)
        tp_unit_close(&units[u]);
    free(units);
}

void tp_plan_close(struct tp_plan *plan)
{
    free_units(plan->units, plan->unit_count);
    free_units(plan->kept_units, plan->kept_unit_count);
    for (size_t f = 0; f < plan->file_count; f++) {
        free(plan->files[f].name);
        free(plan->files[f].header);
    }
    free(plan->outputs);
    free(plan->kept);
    free(plan->files);
    free(plan->groups);
    free(plan->stats_units);
    free(plan->units_by_file);
    tp_store_close(&plan->store);
    tp_shared_close(&plan->forms);
    memset(plan, 0, sizeof *plan);
}
