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

void tp_form_reorder(struct tp_unit_form *form, const struct tp_row_order *order,
                     const struct tp_row_order *source)
{
    static const struct tp_row_order none;
    const bool same = tp_row_order_same(order, source);
    form->order = same ? none : *order;
    form->undo = same ? none : *source;
}

bool tp_form_moves(const struct tp_unit_form *form)
{
    return form->order.kind || form->undo.kind;
}

/* The row of the view that is row n of a unit whose rows move. */
static uint64_t moved(const struct tp_unit_form *form, uint64_t n)
{
    return tp_row_stored(&form->undo, form->box.n, tp_row_source(&form->order, form->box.n, n));
}

/* Rows of a head, and whether a head goes on in one step or every second row does. */
static uint64_t head_of(const struct tp_unit_form *form)
{
    return tp_row_head(form->order.kind ? &form->order : &form->undo, form->box.n);
}

static uint64_t parts_of_head(const struct tp_unit_form *form)
{
    return form->order.kind == TP_ORDER_ROTARY_HALVES || form->undo.kind == TP_ORDER_ROTARY_HALVES
               ? 2 : 1;
}

uint64_t tp_unit_runs(const struct tp_unit *unit)
{
    const struct tp_unit_form *form = unit->form;
    return tp_form_moves(form) ? form->box.n / head_of(form) * parts_of_head(form)
                               : form->views_per_expert;
}

struct tp_row_run tp_unit_run(const struct tp_unit *unit, uint64_t e, uint64_t r)
{
    const struct tp_unit_form *form = unit->form;
    if (tp_form_moves(form)) {
        uint64_t head = head_of(form), parts = parts_of_head(form), part = r % parts;
        bool halves = form->order.kind == TP_ORDER_ROTARY_HALVES;
        struct tp_row_run run = {.to = r / parts * head + part * (halves ? head / parts : 1),
                                 .pitch = halves ? 1 : parts, .count = head / parts};
        run.first = moved(form, run.to);
        run.step = run.count > 1 ? moved(form, run.to + run.pitch) - run.first : 1;
        return run;
    }
    struct tp_view view = tp_unit_view(unit, e, (uint32_t)r);
    struct tp_row_run run = {.to = form->interleaved ? r : 0, .first = view.row,
                             .pitch = form->interleaved ? form->views_per_expert : 1,
                             .step = view.step > 1 ? view.step : 1, .count = form->view_rows[r],
                             .view = (uint32_t)r};
    for (uint64_t i = 0; i < r && !form->interleaved; i++)
        run.to += form->view_rows[i];
    return run;
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
    if (tp_form_moves(unit->form)) {
        uint64_t head = head_of(unit->form);
        *row = moved(unit->form, n);
        *rows_left = parts_of_head(unit->form) > 1 ? 1 : head - n % head;
        return tp_unit_view(unit, e, 0);
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
