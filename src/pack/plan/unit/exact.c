/* What of packed weights a format takes over, by their form alone, and with which of its choices
 * nothing of them is lost: those are the defaults for that source. What the user sets stays.
 */
#include "pack/plan/unit/build.h"

#include "kernels/op/convert_scales.h"
#include "pack/model/model_names.h"
#include "pack/format/format_parse.h"

#include <string.h>

/* The element of the scales that groups of integers have. */
static enum tp_element scale_element(const struct tp_op *op)
{
    int scale = tp_op_find(op, TP_ROLE_SCALE);
    return scale < 0 ? TP_ELEM_E4M3X8 : op->out[scale].element;
}

/* FP8 with scales times a factor, and NVFP4 as E5M3: rounded as the engine does. */
static bool stores_otherwise(const struct tp_op *op)
{
    int scale = tp_op_find(op, TP_ROLE_SCALE);
    return scale >= 0 && (op->out[scale].factor || op->out[scale].element == TP_ELEM_E5M3);
}

/* Zero points that become products with scales, of 16 bits. */
static bool rounds_zeros(const struct tp_op *from, const struct tp_op *to)
{
    int was = tp_op_find(from, TP_ROLE_ZERO), is = tp_op_find(to, TP_ROLE_ZERO);
    return was >= 0 && is >= 0 && from->out[was].element != to->out[is].element &&
           (to->out[is].element == TP_ELEM_BF16 || to->out[is].element == TP_ELEM_F16);
}

enum tp_loss tp_repack_loss(const struct tp_op *from, const struct tp_op *to)
{
    if (rounds_zeros(from, to))
        return TP_LOSS_SCALES;
    bool rounds = tp_op_is_int(to) || stores_otherwise(to);
    if (rounds && scale_element(from) != scale_element(to))
        return TP_LOSS_SCALES; /* of FP8, FP4 and MX only equal scales are taken over */
    return tp_repack_inverts(from, to) ? TP_LOSS_GLOBAL : TP_LOSS_NONE;
}

bool tp_numbers_decide(const struct tp_op *from, const struct tp_op *to)
{
    return from->codec == TP_CODEC_MXFP4 && to->block_k &&
           (to->codec == TP_CODEC_MXFP8 ||
            (to->codec == TP_CODEC_FP8 && to->scale_rule == TP_FP8_SCALE_UE8M0));
}

bool tp_scales_decide(const struct tp_op *from, const struct tp_op *to)
{
    enum tp_element narrow = scale_element(to);
    return tp_op_is_int(to) && scale_element(from) == TP_ELEM_F32 &&
           (narrow == TP_ELEM_BF16 || narrow == TP_ELEM_F16);
}

bool tp_form_fits(const struct tp_weight_form *weight, const struct tp_op *to)
{
    struct tp_op from = weight->op;
    if (from.block_k >= weight->box.k) /* a group that is as long as the row is the row */
        from.block_k = 0;
    return tp_repack_possible(&from, to) || tp_convert_scales_possible(&from, to);
}

/* What is lost of the weight with these settings. */
static enum tp_loss loss_of(const struct tp_weight_form *from, const struct tp_format *format,
                            struct tp_settings settings, struct tp_op *op)
{
    if (tp_op_find(&from->op, TP_ROLE_ZERO) >= 0)
        tp_format_keep_zeros(format, &settings);
    tp_format_op(format, &settings, op);
    if (tp_format_broken_need(format, &settings, from->box, from->rank == 3))
        return TP_LOSS_VALUES;
    if (!tp_form_fits(from, op))
        return tp_numbers_decide(&from->op, op) ? TP_LOSS_STOPS : TP_LOSS_VALUES;
    return tp_repack_loss(&from->op, op);
}

/* The next choice of those parameters that are open: the last of them changes first. */
static bool next_choice(const struct tp_format *format, uint32_t open, struct tp_settings *settings)
{
    for (uint32_t p = format->params; p-- > 0;)
        if (open >> p & 1) {
            if (++settings->choice[p] < format->param[p].count)
                return true;
            settings->choice[p] = 0;
        }
    return false;
}

/* The format of the group size that the settings say. */
static const struct tp_format *of_group(const struct tp_format *format,
                                        const struct tp_settings *settings, struct tp_err *err)
{
    for (uint32_t p = 0; p < format->params && format; p++) {
        uint64_t group = tp_format_choice_group(format->param[p].set[settings->choice[p]]);
        if (group && group != format->group)
            return tp_format_grouped(format, group, err);
    }
    return format;
}

enum tp_code tp_exact_choice(const struct tp_weight_form *from, uint32_t open,
                             const struct tp_format **format, struct tp_settings *settings,
                             enum tp_loss *loss, struct tp_err *err)
{
    const struct tp_format *first = *format, *tried;
    struct tp_settings next = *settings;
    struct tp_op op;
    *loss = loss_of(from, first, next, &op);
    if (*loss == TP_LOSS_NONE)
        return TP_OK;
    for (uint32_t p = 0; p < first->params; p++)
        next.choice[p] = open >> p & 1 ? 0 : next.choice[p];
    bool own_rule = false; /* of exact ones that which the source was made by is the best */
    do {
        if (!(tried = of_group(first, &next, err)))
            return TP_E_MEMORY;
        enum tp_loss its = loss_of(from, tried, next, &op);
        bool own = its == TP_LOSS_NONE && from->op.codec == TP_CODEC_NVFP4 &&
                   op.rule == from->op.rule;
        if (its < *loss || (own && !own_rule)) {
            *format = tried;
            *settings = next;
            *loss = its;
            own_rule = own;
        }
    } while (next_choice(first, open, &next));
    return TP_OK;
}

bool tp_rule_searches(const struct tp_rule *rule)
{
    struct tp_op op = rule->format->op;
    tp_search_choice_op(&rule->search, &op);
    return tp_op_search(&op) != TP_SEARCH_NONE;
}

struct tp_rule *tp_rule_asked(struct tp_rule *rule)
{
    return rule && rule->base ? rule->base : rule;
}

const char *tp_need_choice(const struct tp_unit_form *form, const char **key)
{
    for (uint32_t p = 0; p < form->format->params; p++)
        for (uint32_t c = 0; c < form->format->param[p].count; c++) {
            struct tp_settings settings = form->settings;
            settings.choice[p] = (uint8_t)c;
            *key = form->format->param[p].key;
            if (!tp_format_broken_need(form->format, &settings, form->box, form->rank == 3))
                return form->format->param[p].choices[c];
        }
    return NULL;
}

/* The rule with the choice that loses least of such a weight. */
static enum tp_code choose(struct tp_builder *b, const struct tp_weight_form *form,
                           struct tp_rule *rule, struct tp_rule **chosen)
{
    struct tp_rule own;
    enum tp_loss loss;
    memcpy(&own, rule, sizeof own); /* with what lies between the members */
    *chosen = rule;
    enum tp_code code = tp_exact_choice(form, ~rule->set, &own.format, &own.settings, &loss,
                                        b->err);
    if (code || memcmp(&own.settings, &rule->settings, sizeof own.settings) == 0)
        return code;
    own.base = rule;
    own.follows = false; /* whatever it is with other weights: equal ones are one rule */
    rule->follows = true;
    *chosen = tp_shared_keep(&b->rules, &own, sizeof own, b->err);
    return *chosen ? TP_OK : TP_E_MEMORY;
}

/* Whether the weight is of experts, chosen for that rule, and plain; *box: as it is written. */
static bool is_expert(const struct tp_builder *b, uint32_t w, const struct tp_rule *rule,
                      struct tp_box3 *box)
{
    const struct tp_weight *weight = &b->plan->weights->items[w];
    const struct tp_model_facts *facts = &b->plan->weights->facts;
    struct tp_expert_name expert;
    struct tp_stack_name stack;
    *box = (struct tp_box3){1, weight->form->box.n, weight->form->box.k};
    return b->choices[w].rule == rule && !weight->form->format &&
           (weight->form->rank == 3 ? tp_name_stack(facts, weight->name, &stack)
                                    : tp_name_expert(facts, weight->name, &expert));
}

/* The rule with that choice of one parameter; false: some expert does not fit it. */
static enum tp_code with_choice(struct tp_builder *b, struct tp_rule *rule, uint32_t p,
                                const char *name, struct tp_rule *own, bool *fits)
{
    struct tp_box3 box;
    memcpy(own, rule, sizeof *own); /* with what lies between the members */
    own->base = rule;
    own->follows = false;
    for (uint32_t c = 0; c < rule->format->param[p].count; c++)
        if (strcmp(rule->format->param[p].choices[c], name) == 0)
            own->settings.choice[p] = (uint8_t)c;
    own->format = of_group(rule->format, &own->settings, b->err);
    *fits = own->format != NULL;
    for (uint32_t w = 0; w < b->plan->weights->count && *fits; w++)
        *fits = !is_expert(b, w, rule, &box) ||
                !tp_format_broken_need(own->format, &own->settings, box, false);
    return own->format ? TP_OK : TP_E_MEMORY;
}

/* What the format has as the default for experts, all of a rule alike. */
static enum tp_code choose_for_experts(struct tp_builder *b, struct tp_rule *rule, uint32_t p)
{
    const json_t *names = rule->format->param[p].experts;
    struct tp_rule own, *chosen;
    struct tp_box3 box;
    bool fits = false;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < json_array_size(names) && !fits && code == TP_OK; i++)
        code = with_choice(b, rule, p, json_string_value(json_array_get(names, i)), &own, &fits);
    if (code || !fits)
        return code;
    if (!(chosen = tp_shared_keep(&b->rules, &own, sizeof own, b->err)))
        return TP_E_MEMORY;
    for (uint32_t w = 0; w < b->plan->weights->count; w++)
        if (is_expert(b, w, rule, &box)) {
            rule->follows = true;
            b->choices[w].rule = chosen;
        }
    return TP_OK;
}

static enum tp_code follow_experts(struct tp_builder *b)
{
    enum tp_code code = TP_OK;
    for (size_t r = 0; r < b->request->rule_count; r++) {
        struct tp_rule *rule = &b->request->rules[r];
        for (uint32_t p = 0; rule->format && p < rule->format->params && code == TP_OK; p++)
            if (rule->format->param[p].experts && !(rule->set >> p & 1))
                code = choose_for_experts(b, rule, p);
    }
    return code;
}

/* A model has a few forms, and may have 1,000,000 weights. */
enum { KNOWN = 64 };
struct known {
    const struct tp_weight_form *form;
    struct tp_rule *rule, *chosen;
};

enum tp_code tp_plan_follow_sources(struct tp_builder *b)
{
    struct known known[KNOWN] = {0};
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < b->request->rule_count; i++)
        b->request->rules[i].follows = false; /* `compare` makes several plans of one request */
    for (uint32_t w = 0; w < b->plan->weights->count && code == TP_OK; w++) {
        const struct tp_weight *weight = tp_weight_at(b, w);
        struct tp_rule *rule = b->choices[w].rule;
        if (!rule || tp_rule_searches(rule) || !weight->form->format || tp_plan_is_bias(weight) ||
            tp_op_is_number(&weight->form->op))
            continue;
        struct known *one = &known[((uintptr_t)weight->form >> 4 ^ (uintptr_t)rule >> 3) % KNOWN];
        if (one->form != weight->form || one->rule != rule) {
            code = choose(b, weight->form, rule, &one->chosen);
            one->form = weight->form;
            one->rule = rule;
        }
        b->choices[w].rule = one->chosen;
    }
    return code ? code : follow_experts(b);
}
