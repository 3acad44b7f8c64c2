/* Units of the chosen weights: experts stacked or split.
 *
 * Every chosen weight ends in exactly one unit (or, when a stack is split, in
 * the units of its experts), or is kept with a reason.
 */
#include "pack/plan/unit/draft.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/quantizer/quantizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the rows of up stand before those of gate in a weight that holds both. */
static bool up_first(const struct tp_format *format)
{
    return format && format->rows == TP_ROWS_UP_GATE;
}

/* Whether the rows of gate and up lie in an order of the format's own, and so are never interleaved
 * as they may in the source. */
static bool sets_order(const struct tp_format *format)
{
    return up_first(format) || format->variant[TP_PART_GATED] || format->op.segments > 1;
}

/* Whether the format's stacks are w13 and w2 also where the rows of gate and up are interleaved. */
static bool names_stacks(const struct tp_format *format)
{
    return sets_order(format) || format->keeps_interleaved;
}

/* Whether a packed stack goes by its own name again: its rows are interleaved, and the format has
 * no other word for that. */
static bool loses_name(const struct tp_builder *b, const struct tp_weight *weight,
                       const struct tp_format *format)
{
    return weight->form->format && weight->origins == 1 && !names_stacks(format) &&
           (tp_plan_is_interleaved(weight) || tp_plan_is_last_interleaved(b, weight->name));
}

/* Whether its rows are interleaved, and stay so. */
static bool stays_interleaved(const struct tp_format *format, const struct tp_weight *weight)
{
    return format->keeps_interleaved &&
           (weight->form->interleaved || tp_plan_is_interleaved(weight));
}

/* The views of a unit that is one weight: of all its rows, or of gate and of up where these change
 * places or are laid out apart on either side. */
static enum tp_code whole_views(struct tp_builder *b, struct tp_unit *unit, uint32_t w, bool gated)
{
    const struct tp_weight_form *source = tp_weight_at(b, w)->form;
    uint64_t half = source->box.n / 2;
    bool swapped = gated && up_first(source->format) != up_first(unit->form->format);
    bool interleaved = gated && sets_order(b->choices[w].rule->format) &&
                       (source->interleaved || tp_plan_is_interleaved(tp_weight_at(b, w)));
    uint32_t parts = swapped || unit->form->op.segments > 1 || source->op.segments > 1 ? 2 : 1;
    unit->form->repeats = true;
    if (tp_unit_make_views(b, unit, parts))
        return TP_E_MEMORY;
    for (uint32_t p = 0; p < parts; p++) {
        bool second = p != swapped;
        unit->form->view_rows[p] = source->box.n / parts;
        unit->views[p] = (struct tp_view){.weight = w, .step = interleaved ? 2 : 1,
                                          .row = second ? interleaved ? 1 : half : 0};
    }
    return TP_OK;
}

/* One weight, one unit of the same rank. */
static enum tp_code single(struct tp_builder *b, uint32_t w, const char *full)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    struct tp_draft draft;
    struct tp_stack_name stack;
    struct tp_unit *unit = tp_unit_start(b, w, &draft);
    unit->form->rank = weight->form->rank;
    unit->form->box = weight->form->box;
    const struct tp_format *format = b->choices[w].rule->format;
    bool ordered = names_stacks(format);
    bool stacked = weight->form->rank == 3 && !b->request->no_stack &&
                   (ordered || !tp_plan_is_interleaved(weight)) && !loses_name(b, weight, format) &&
                   tp_name_stack(&b->plan->weights->facts, full, &stack) && !stack.is->kept;
    unit->form->separator = stacked ? '_' : weight->form->separator;
    unit->name = weight->name;
    /* gate_up_proj that is interleaved is no w13 as long as it is: see tp_plan_is_interleaved() */
    if (stacked && (ordered || !weight->form->interleaved))
        unit->name = tp_store_join(&b->plan->store, full, stack.prefix,
                                   stack.gate_up ? ".w13" : ".w2", b->err);
    else if (loses_name(b, weight, format))
        unit->name = tp_store_join(&b->plan->store, weight->origin[0].name,
                                   tp_name_base(weight->origin[0].name), "", b->err);
    bool gated = weight->form->rank == 3 && weight->form->box.n % 2 == 0 &&
                 !stays_interleaved(format, weight) &&
                 tp_name_stack(&b->plan->weights->facts, full, &stack) &&
                 tp_plan_is_gated(weight, &stack);
    if (gated)
        tp_unit_gated(unit);
    if (!unit->name || whole_views(b, unit, w, gated))
        return TP_E_MEMORY;
    return tp_unit_finalize(b, unit, gated);
}

/* Rows [row, row + rows) of one expert of a 3-D weight, as a 2-D unit. */
static enum tp_code split_one(struct tp_builder *b, uint32_t w, uint64_t expert, uint64_t row,
                              uint64_t rows, const char *name)
{
    struct tp_draft draft;
    struct tp_unit *unit = tp_unit_start(b, w, &draft);
    unit->form->box.n = rows;
    unit->name = tp_store_join(&b->plan->store, name, strlen(name), "", b->err);
    if (!unit->name || tp_unit_make_views(b, unit, 1))
        return TP_E_MEMORY;
    unit->form->view_rows[0] = rows;
    unit->views[0] = (struct tp_view){.weight = w, .step = 1, .expert = expert, .row = row};
    return tp_unit_finalize(b, unit, false);
}

/* Name of a part of a stack as llm-compressor writes it; of a packed stack that
 * recorded its experts' names, that name. */
static char *split_name(struct tp_builder *b, const struct tp_weight *weight, uint64_t e,
                        uint32_t p, const struct tp_stack_name *stack, const char *full)
{
    static const char *const labels[] = {"gate_proj", "up_proj", "down_proj"};
    uint32_t label = up_first(weight->form->format) ? 1 - p : p;
    if (p >= weight->origins || !strstr(weight->origin[p].name, "{e}"))
        return tp_os_format(b->err, "%.*s.%llu.%s", (int)stack->prefix, full,
                            (unsigned long long)e, labels[stack->gate_up ? label : 2]);
    char *name = tp_origin_name(&weight->origin[p], e, b->err);
    if (name)
        name[tp_name_base(name)] = '\0';
    return name;
}

/* A stack becomes one unit per expert and projection. */
static enum tp_code split_stack(struct tp_builder *b, uint32_t w, const struct tp_stack_name *stack,
                                const char *full)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    uint32_t matrices = tp_plan_is_gated(weight, stack) ? 2 : 1;
    bool recorded = weight->origins == matrices;
    size_t first = b->plan->unit_count;
    enum tp_code code = TP_OK;
    if (!recorded && weight->form->box.n % matrices)
        return tp_choice_keep(b, w, true, "its rows do not divide into gate and up");
    for (uint64_t e = 0; e < weight->form->box.e && code == TP_OK; e++)
        for (uint64_t p = 0, row = 0; p < matrices && b->choices[w].rule && code == TP_OK; p++) {
            uint64_t rows = recorded ? weight->origin[p].rows : weight->form->box.n / matrices;
            char *name = split_name(b, weight, e, (uint32_t)p, stack, full);
            code = name ? split_one(b, w, e, row, rows, name) : TP_E_MEMORY;
            row += rows;
            free(name);
        }
    while (!b->choices[w].rule && b->plan->unit_count > first) /* one refused: all kept */
        tp_unit_close(&b->plan->units[--b->plan->unit_count]);
    return code;
}

/* One expert matrix of a set that may be stacked. */
struct member {
    const char *name; /* of the checkpoint tensor (codes) */
    struct tp_expert_name parsed;
    uint32_t weight;
};

static int by_stack(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    size_t size = x->parsed.prefix < y->parsed.prefix ? x->parsed.prefix : y->parsed.prefix;
    int order = memcmp(x->name, y->name, size);
    if (order || x->parsed.prefix != y->parsed.prefix)
        return order ? order : x->parsed.prefix < y->parsed.prefix ? -1 : 1;
    bool x_down = x->parsed.matrix == TP_EXPERT_DOWN, y_down = y->parsed.matrix == TP_EXPERT_DOWN;
    if (x_down != y_down)
        return x_down ? 1 : -1;
    if (x->parsed.expert != y->parsed.expert)
        return x->parsed.expert < y->parsed.expert ? -1 : 1;
    return (int)x->parsed.matrix - (int)y->parsed.matrix;
}

static bool same_stack(const struct member *a, const struct member *b)
{
    return a->parsed.prefix == b->parsed.prefix &&
           memcmp(a->name, b->name, a->parsed.prefix) == 0 &&
           (a->parsed.matrix == TP_EXPERT_DOWN) == (b->parsed.matrix == TP_EXPERT_DOWN);
}

/* One matrix of each expert: the last, or the first of experts without a gate. */
static bool is_one_matrix(const struct member *members, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (members[i].parsed.matrix != members[0].parsed.matrix)
            return false;
    return true;
}

static enum tp_expert_matrix matrix_at(const struct member *members, size_t i, uint32_t matrices)
{
    return matrices == 1 ? members[0].parsed.matrix : i % 2 ? TP_EXPERT_UP : TP_EXPERT_GATE;
}

static const char *matrix_label(int part)
{
    return part == TP_EXPERT_DOWN ? "down" : part == TP_EXPERT_UP ? "up" : "gate";
}

static bool lacking(const struct member *members, size_t i, uint32_t matrices, char *text,
                    size_t size)
{
    snprintf(text, size, "expert %zu has no %s matrix", i / matrices,
             matrix_label(matrix_at(members, i, matrices)));
    return false;
}

/* Whether the sorted members are experts 0..count/matrices-1, each complete, alike
 * in shape and dtype. Writes what is wrong. */
static bool complete(const struct tp_builder *b, const struct member *members, size_t count,
                     uint32_t matrices, char *text, size_t size)
{
    const struct tp_weight *first = tp_weight_at(b, members[0].weight);
    for (size_t i = 0; i < count; i++) {
        const struct tp_weight *weight = tp_weight_at(b, members[i].weight);
        if (members[i].parsed.expert != i / matrices ||
            members[i].parsed.matrix != matrix_at(members, i, matrices))
            return lacking(members, i, matrices, text, size);
        if (weight->form->box.n != first->form->box.n ||
            weight->form->box.k != first->form->box.k ||
            weight->form->dtype != first->form->dtype ||
            weight->form->format != first->form->format ||
            (weight->form->format && !tp_op_same(&weight->form->op, &first->form->op)) ||
            weight->form->rank != 2) {
            snprintf(text, size, "the %s matrix of expert %llu differs in shape, dtype or format "
                     "from that of expert 0", matrix_label(members[i].parsed.matrix),
                     (unsigned long long)(i / matrices));
            return false;
        }
    }
    return count % matrices == 0 || lacking(members, count, matrices, text, size);
}

static struct tp_rule *rule_of(const struct tp_builder *b, const struct member *member)
{
    return b->choices[member->weight].rule;
}

/* Whether one of the members goes to a stack; they do all, or it is an error. */
static enum tp_code find_stacked(struct tp_builder *b, const struct member *members, size_t count,
                                 bool *stacked)
{
    struct tp_rule *rule = rule_of(b, &members[0]);
    size_t other = 0;
    *stacked = false;
    for (size_t i = 0; i < count; i++) {
        struct tp_rule *its = rule_of(b, &members[i]);
        *stacked |= its && its->format->experts == TP_EXPERTS_STACK;
        other = other || tp_rule_asked(its) == tp_rule_asked(rule) ? other : i;
    }
    if (!*stacked || !other)
        return TP_OK;
    const struct member *kept = &members[rule ? other : 0], *made = &members[rule ? 0 : other];
    const char *reason = b->choices[kept->weight].reason;
    tp_err_tensor(b->err, kept->name);
    tp_err_hint(b->err, "let --include, --exclude or the recipe treat all of them alike, or leave "
                        "the experts apart with --no-stack");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "experts cannot be stacked: this matrix %s%s%s, and "
                   "the %s matrix of expert %llu is to be in %s",
                   rule_of(b, kept) ? "goes by another rule" : "is kept (",
                   rule_of(b, kept) ? "" : reason, rule_of(b, kept) ? "" : ")",
                   matrix_label(made->parsed.matrix), (unsigned long long)made->parsed.expert,
                   rule_of(b, made)->format->name);
}

static enum tp_code stack(struct tp_builder *b, const struct member *members, size_t count)
{
    const struct member *first = &members[0];
    bool down = first->parsed.matrix == TP_EXPERT_DOWN;
    uint32_t matrices = is_one_matrix(members, count) ? 1 : 2;
    struct tp_draft draft;
    char text[300];
    if (!complete(b, members, count, matrices, text, sizeof text)) {
        tp_err_tensor(b->err, first->name);
        tp_err_hint(b->err, "complete the checkpoint, or leave the experts apart with --no-stack");
        return tp_fail(b->err, TP_E_INPUT, "experts cannot be stacked: %s", text);
    }
    uint64_t rows = tp_weight_at(b, first->weight)->form->box.n;
    struct tp_unit *unit = tp_unit_start(b, first->weight, &draft);
    unit->form->rank = 3;
    unit->form->box.e = count / matrices;
    unit->form->box.n = rows * matrices;
    unit->form->separator = '_';
    if (matrices == 2)
        tp_unit_gated(unit);
    unit->name = tp_store_join(&b->plan->store, first->name, first->parsed.prefix,
                               down ? ".w2" : ".w13", b->err);
    if (!unit->name || tp_unit_make_views(b, unit, matrices))
        return TP_E_MEMORY;
    for (uint32_t p = 0; p < matrices; p++)
        unit->form->view_rows[p] = rows;
    bool swapped = matrices == 2 && up_first(unit->form->format);
    for (size_t i = 0; i < count; i++)
        unit->views[i ^ swapped] = (struct tp_view){.weight = members[i].weight, .step = 1};
    return tp_unit_finalize(b, unit, matrices == 2);
}

/* Collects the expert matrices, chosen or not, and stacks those that go to stacked formats. */
static enum tp_code stack_experts(struct tp_builder *b)
{
    size_t count = 0, total = b->plan->weights->count;
    enum tp_code code = TP_OK;
    bool stacked = false;
    for (size_t r = 0; r < b->request->rule_count; r++) {
        const struct tp_format *format = b->request->rules[r].format;
        stacked |= format && format->experts == TP_EXPERTS_STACK;
    }
    if (!stacked)
        return TP_OK;
    struct member *members = tp_os_zalloc(total + 1, sizeof *members, b->err);
    if (!members)
        return TP_E_MEMORY;
    for (uint32_t w = 0; w < total; w++) {
        const struct tp_weight *weight = tp_weight_at(b, w);
        const struct tp_rule *rule = b->choices[w].rule;
        if (weight->form->rank != 2 || weight->name[tp_name_bias_base(weight->name)])
            continue;
        if (b->request->recorded && (!rule || rule->format->experts != TP_EXPERTS_STACK))
            continue; /* what is recorded was allowed then */
        members[count].weight = w;
        members[count].name = weight->name;
        if (tp_name_expert(&b->plan->weights->facts, weight->name, &members[count].parsed))
            count++;
    }
    qsort(members, count, sizeof *members, by_stack);
    for (size_t i = 0, end; i < count && code == TP_OK; i = end) {
        for (end = i + 1; end < count && same_stack(&members[i], &members[end]);)
            end++;
        code = find_stacked(b, members + i, end - i, &stacked);
        if (stacked && code == TP_OK)
            code = stack(b, members + i, end - i);
    }
    free(members);
    return code;
}

/* Whether its quantizer goes by another name than that by which readers know the format. */
static bool is_named_otherwise(const struct tp_weight_form *form)
{
    const json_t *method = json_object_get(form->format->config, "quant_method");
    return method && form->by && form->by->method.count &&
           !tp_words_have(&form->by->method, json_string_value(method));
}

/* Whether nothing is to be done. Of another tool's weight the settings are not known;
 * its scales may be of another type than the format's, which is mended where it
 * costs nothing. */
static bool is_already(const struct tp_builder *b, const struct tp_weight *weight,
                       const struct tp_rule *rule)
{
    const struct tp_unit_form as = {.rank = weight->form->rank, .box = weight->form->box};
    struct tp_op op;
    struct tp_settings settings = rule->settings;
    if (!tp_plan_row_order(b, &as, rule, weight->name, &settings.rows))
        return false;
    if (tp_op_find(&weight->form->op, TP_ROLE_ZERO) >= 0)
        tp_format_keep_zeros(rule->format, &settings);
    if (!weight->form->format ||
        weight->form->format != tp_format_for(rule->format, weight->form->format->part))
        return false;
    if (tp_rule_searches(rule)) /* which tp_unit_finalize() allows with --requantize only */
        return false;
    if (!weight->origin && (tp_op_needs(&weight->form->format->op) & TP_NEED_REFERENCE))
        return false; /* zero points and order: written anew, in the one way that is ours */
    if (weight->origin)
        return memcmp(&weight->form->settings, &settings, sizeof settings) == 0;
    tp_format_op(rule->format, &rule->settings, &op);
    for (uint32_t i = 0; i < op.outs; i++)
        if (weight->tensor[i] == TP_NO_TENSOR ||
            weight->form->op.out[i].element != op.out[i].element || weight->form->format->spelled ||
            is_named_otherwise(weight->form))
            return !tp_repack_possible(&weight->form->op, &op);
    return true;
}

/* Rows that were interleaved in the model stay apart: no format of another order takes them. */
static enum tp_code refuse_interleaved(const struct tp_builder *b, uint32_t w)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    tp_err_tensor(b->err, weight->name);
    tp_err_hint(b->err, "unpack, or convert the checkpoint that it was made of");
    return tp_fail(b->err, TP_E_UNSUPPORTED,
                   "the rows of gate and up, which are interleaved in the "
                   "model, are put apart here: %s would have them interleaved",
                   b->choices[w].rule->format->name);
}

/* No reader of another form has a place for it. */
static enum tp_code refuse_convolution(const struct tp_builder *b, uint32_t w)
{
    tp_err_tensor(b->err, tp_weight_at(b, w)->name);
    tp_err_hint(b->err, "unpack makes it plain; --exclude leaves it as it is");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "it is a convolution, of which %s has none",
                   b->choices[w].rule->format->name);
}

static enum tp_code remaining(struct tp_builder *b, uint32_t w)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    const struct tp_rule *rule = b->choices[w].rule;
    struct tp_stack_name name;
    char buffer[TP_FULL_NAME];
    const char *full = tp_weight_full_name(b->plan, w, buffer, b->err);
    if (!full)
        return b->err->code;
    if (weight->form->format && tp_weight_convolution(b->plan->ckpt, weight))
        return refuse_convolution(b, w);
    if (weight->origins && weight->origin->step > 1 &&
        (!sets_order(rule->format) || rule->format->keeps_interleaved))
        return refuse_interleaved(b, w);
    if (is_already(b, weight, rule))
        return tp_choice_keep(b, w, false, TP_REASON_SAME);
    if (weight->form->rank == 3 && rule->format->experts == TP_EXPERTS_SPLIT &&
        !b->request->no_stack &&
        tp_name_stack(&b->plan->weights->facts, full, &name) && !name.is->kept &&
        !tp_plan_is_interleaved(weight))
        return split_stack(b, w, &name, full);
    return single(b, w, full);
}

/* A packed bias that became part of no unit, as its weight is kept. Formats without biases have it
 * plain again: tp_plan_restore_biases(). */
static enum tp_code keep_bias(struct tp_builder *b, uint32_t w)
{
    const struct tp_format *format = tp_format_bias(b->choices[w].rule->format);
    const struct tp_format *is = tp_weight_at(b, w)->form->format;
    if (!format)
        return TP_OK;
    return tp_choice_keep(b, w, false, "%s", is == tp_format_for(format, is->part)
                                                 ? TP_REASON_SAME : "its weight is kept");
}

enum tp_code tp_plan_units(struct tp_builder *b)
{
    enum tp_code code = tp_plan_keep_sets(b);
    if (code == TP_OK)
        code = tp_plan_find_experts(b);
    if (code == TP_OK)
        code = tp_plan_find_biases(b);
    if (code == TP_OK && !b->request->no_stack)
        code = stack_experts(b);
    for (uint32_t w = 0; w < b->plan->weights->count && code == TP_OK; w++)
        if (b->choices[w].rule && !b->choices[w].done && !tp_plan_is_bias(tp_weight_at(b, w)))
            code = remaining(b, w);
    for (uint32_t w = 0; w < b->plan->weights->count && code == TP_OK; w++)
        if (b->choices[w].rule && !b->choices[w].done && tp_plan_is_bias(tp_weight_at(b, w)))
            code = keep_bias(b, w);
    return code ? code : tp_plan_restore_biases(b);
}
