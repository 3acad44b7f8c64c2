/* Layouts before their sizes are known: arithmetic in steps, evaluated for a box.
 *
 * Steps stand in an order in which each needs only those before it, and equal ones stand there
 * once: to evaluate a layout is one pass over them.
 */
#include "base/layout.h"

#include "base/num.h"

const struct tp_layout_expr tp_layout_dense = TP_LAYOUT_ROWS(1, 1, 0);

struct tp_layout_expr tp_layout_rows(uint32_t per_n, uint32_t per_k)
{
    struct tp_layout_expr rows = TP_LAYOUT_ROWS(per_n, per_k, per_k == 0);
    return rows;
}

static bool divide(uint64_t *value, uint64_t a, uint64_t b)
{
    if (b == 0 || a % b != 0)
        return false;
    *value = a / b;
    return true;
}

/* The reason for which a step has no value, or NULL. */
static const char *run_step(const struct tp_step *step, const struct tp_step_values *of,
                            const uint64_t before[], uint64_t *value)
{
    const uint64_t a = before[step->a], b = before[step->b];
    switch ((enum tp_step_kind)step->kind) {
    case TP_STEP_NUMBER: *value = step->number; return NULL;
    case TP_STEP_E: *value = of->box.e; return NULL;
    case TP_STEP_N: *value = of->box.n; return NULL;
    case TP_STEP_K: *value = of->box.k; return NULL;
    case TP_STEP_S: *value = of->segments; return NULL;
    case TP_STEP_I: *value = of->index; return NULL;
    case TP_STEP_ADD: return tp_add_u64(value, a, b) ? NULL : "a sum does not fit 64 bits";
    case TP_STEP_SUB: return tp_sub_u64(value, a, b) ? NULL : "a difference is negative";
    case TP_STEP_MUL: return tp_mul_u64(value, a, b) ? NULL : "a product does not fit 64 bits";
    case TP_STEP_DIV: return divide(value, a, b) ? NULL : "a division is not exact";
    case TP_STEP_CEIL:
        *value = b ? tp_ceil_div(a, b) : 0;
        return b ? NULL : "the second argument of ceil() is zero";
    case TP_STEP_ALIGN:
        return b == 0                      ? "the second argument of align() is zero"
               : tp_align_u64(value, a, b) ? NULL
                                           : "an align() does not fit 64 bits";
    }
    return "a step is none";
}

bool tp_steps_run(const struct tp_steps *steps, const struct tp_step_values *of,
                  uint64_t value[TP_STEPS], const char **why)
{
    *why = NULL;
    value[0] = 0;
    for (uint32_t i = 0; i < steps->count && !*why; i++)
        *why = run_step(&steps->step[i], of, value, &value[i]);
    return !*why;
}

bool tp_layout_in_range(const struct tp_layout *layout, const char **why)
{
    uint64_t last = 0, count = 1;
    *why = "a mode has size zero";
    for (int d = 0; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout->dim[d].modes; m++)
            if (layout->dim[d].size[m] == 0)
                return false;
    *why = "offsets do not fit 63 bits";
    for (int d = 0; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout->dim[d].modes; m++) {
            uint64_t size = layout->dim[d].size[m], span;
            if (!tp_mul_u64(&span, size - 1, layout->dim[d].stride[m]) ||
                !tp_add_u64(&last, last, span) || !tp_mul_u64(&count, count, size) ||
                last > INT64_MAX || count > INT64_MAX)
                return false;
        }
    return true;
}

enum tp_code tp_layout_eval(const struct tp_layout_expr *expr, struct tp_box3 box,
                            uint64_t segments, struct tp_layout *layout, struct tp_err *err)
{
    const struct tp_step_values of = {box, segments, 0};
    uint64_t value[TP_STEPS];
    const char *why;
    bool good = tp_steps_run(&expr->steps, &of, value, &why);
    for (int d = 0; d < TP_DIMS && good; d++) {
        layout->dim[d].modes = expr->modes[d];
        for (uint32_t m = 0; m < expr->modes[d]; m++) {
            layout->dim[d].size[m] = value[expr->size[d][m]];
            layout->dim[d].stride[m] = value[expr->stride[d][m]];
        }
    }
    if (good && tp_layout_in_range(layout, &why))
        return TP_OK;
    return tp_fail(err, TP_E_INPUT, "the layout of a weight of %llu x %llu x %llu: %s",
                   (unsigned long long)box.e, (unsigned long long)box.n,
                   (unsigned long long)box.k, why);
}

static bool same_modes(const struct tp_layout_expr *a, const struct tp_layout_expr *b, int d)
{
    bool same = a->modes[d] == b->modes[d];
    for (uint32_t m = 0; same && m < a->modes[d]; m++)
        same = a->size[d][m] == b->size[d][m] && a->stride[d][m] == b->stride[d][m];
    return same;
}

bool tp_layout_expr_same(const struct tp_layout_expr *a, const struct tp_layout_expr *b)
{
    bool same = a == b;
    if (same || !a || !b || a->steps.count != b->steps.count)
        return same;
    same = same_modes(a, b, TP_DIM_E) && same_modes(a, b, TP_DIM_N) && same_modes(a, b, TP_DIM_K);
    for (uint32_t i = 0; same && i < a->steps.count; i++) {
        const struct tp_step *x = &a->steps.step[i], *y = &b->steps.step[i];
        same = x->kind == y->kind && x->a == y->a && x->b == y->b && x->number == y->number;
    }
    return same;
}

/* ---- granules ------------------------------------------------------------ */

/* Any box serves; this one divides by every power of two and small factor that a format uses. */
static const struct tp_step_values probe = {{1, 1u << 20, 1u << 20}, 1, 0};

/* Of one dimension; 0: there is none, as of 1-E for one expert. */
static uint64_t granule_of(const struct tp_layout_expr *expr, int d,
                           const struct tp_step_set *units, const uint64_t value[],
                           const bool known[])
{
    uint64_t granule = 1, unit = 1;
    for (int before = 0; before <= d; before++)
        for (uint32_t m = 0; m < expr->modes[before]; m++)
            if (!known[expr->size[before][m]])
                return 0;
    for (uint32_t i = 0; i < expr->steps.count; i++)
        if (units->bits[i / 64] >> i % 64 & 1 &&
            !tp_lcm_u64(&unit, unit, value[expr->steps.step[i].b]))
            return 0;
    for (uint32_t m = 0; m + 1 < expr->modes[d]; m++)
        if (!tp_mul_u64(&granule, granule, value[expr->size[d][m]]))
            return 0;
    return tp_lcm_u64(&granule, granule, unit) ? granule : 0;
}

void tp_layout_probe(struct tp_layout_expr *expr, const struct tp_step_set units[TP_DIMS])
{
    uint64_t value[TP_STEPS] = {0};
    bool known[TP_STEPS] = {false};
    expr->probed = true;
    for (uint32_t i = 0; i < expr->steps.count; i++) {
        const struct tp_step *step = &expr->steps.step[i];
        known[i] = (step->kind < TP_STEP_ADD || (known[step->a] && known[step->b])) &&
                   !run_step(step, &probe, value, &value[i]);
        expr->probed &= known[i];
    }
    for (int d = 0; d < TP_DIMS; d++) {
        expr->granule[d] = granule_of(expr, d, &units[d], value, known);
        expr->pairs[d] = false;
        for (uint32_t m = 0; m < expr->modes[d]; m++)
            expr->pairs[d] |= value[expr->stride[d][m]] == 1 && value[expr->size[d][m]] > 1;
    }
}

enum tp_code tp_layout_granule(const struct tp_layout_expr *expr, int dim, uint64_t *granule,
                               struct tp_err *err)
{
    *granule = expr->granule[dim];
    return *granule ? TP_OK
                    : tp_fail(err, TP_E_INPUT, "a layout has no granule: a size may be 0, or be "
                              "none for large weights");
}
