/* Which weights are converted, and to what: patterns, defaults, orientation.
 *
 * Decides by name and rank only; whether a shape suits the format is checked
 * when the unit is made.
 */
#include "pack/plan/plan_build.h"

#include "pack/source/model_names.h"
#include "pack/os/os.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tp_weight_full_name(const struct tp_plan *plan, uint32_t weight,
                                char buffer[TP_FULL_NAME], struct tp_err *err)
{
    static const char end[] = ".weight";
    const struct tp_weight *w = &plan->weights->items[weight];
    if (!w->format)
        return plan->ckpt->tensors[w->tensor[0]].name;
    size_t length = strlen(w->name);
    if (length + sizeof end > TP_FULL_NAME) {
        tp_err_tensor(err, w->name);
        tp_fail(err, TP_E_UNSUPPORTED, "tensor name is longer than %d bytes", TP_FULL_NAME - 1);
        return NULL;
    }
    memcpy(buffer, w->name, length);
    memcpy(buffer + length, end, sizeof end);
    return buffer;
}

enum tp_code tp_choice_keep(struct tp_builder *b, uint32_t weight, bool refused, const char *fmt,
                            ...)
{
    struct tp_choice *choice = &b->choices[weight];
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    choice->rule = NULL;
    choice->refused |= refused;
    if (!choice->reason && !(choice->reason = tp_os_format(b->err, "%s", text)))
        return TP_E_MEMORY;
    if (refused && b->request->strict) {
        tp_err_tensor(b->err, b->plan->weights->items[weight].name);
        tp_err_hint(b->err, "leave it out with --exclude, or drop --strict to keep it as it is");
        return tp_fail(b->err, TP_E_UNSUPPORTED, "cannot be converted: %s", text);
    }
    return TP_OK;
}

static bool any_match(const struct tp_pattern *patterns, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (regexec(&patterns[i].regex, name, 0, NULL, 0) == 0)
            return true;
    return false;
}

static struct tp_rule *first_rule(struct tp_request *request, const char *name)
{
    for (size_t i = 0; i < request->rule_count; i++)
        if (!request->rules[i].pattern ||
            regexec(&request->rules[i].regex, name, 0, NULL, 0) == 0)
            return &request->rules[i];
    return NULL;
}

/* 3-D weights: expert stacks of known orientation, or what the user names. */
static enum tp_code check_stack(struct tp_builder *b, uint32_t w, const char *name, bool asked)
{
    const struct tp_weight *weight = &b->plan->weights->items[w];
    struct tp_stack_name stack;
    if (weight->rank != 3 || weight->format)
        return TP_OK;
    if (weight->alternates && b->choices[w].rule->format->experts == TP_EXPERTS_SPLIT)
        return tp_choice_keep(b, w, true, "the experts of this architecture cannot be written one "
                              "by one: rows of gate and up alternate, and so do their biases");
    if (tp_name_stack(name, &stack) || asked)
        return TP_OK;
    return tp_choice_keep(b, w, false,
                          "3-D weight of unknown orientation (--include takes it as [E,N,K])");
}

static enum tp_code choose(struct tp_builder *b, uint32_t w)
{
    struct tp_request *request = b->request;
    char buffer[TP_FULL_NAME];
    if (request->repack_only) { /* whatever is packed, by whatever name */
        if (!b->plan->weights->items[w].format)
            return tp_choice_keep(b, w, false, "not packed");
        b->choices[w].rule = &request->rules[0];
        return TP_OK;
    }
    const char *name = tp_weight_full_name(b->plan, w, buffer, b->err);
    if (!name)
        return b->err->code;
    if (any_match(request->exclude, request->exclude_count, name))
        return tp_choice_keep(b, w, false, "excluded");
    bool included = any_match(request->include, request->include_count, name);
    if (request->include_count && !included)
        return tp_choice_keep(b, w, false, "not included");
    struct tp_rule *rule = first_rule(request, name);
    bool asked = included || (rule && rule->pattern);
    /* What is packed was meant to be, and a checkpoint of two kinds helps nobody. */
    bool packed = b->plan->weights->items[w].format;
    const char *reason = packed ? NULL : tp_kept_reason(tp_name_kept(name));
    if (!packed && !reason && tp_source_ignores(&b->ignore, b->plan->weights->items[w].name))
        reason = "not quantized in the source";
    if (!asked && reason)
        return tp_choice_keep(b, w, false, "%s", reason);
    if (!rule)
        return tp_choice_keep(b, w, false, "no rule of the recipe matches");
    rule->used = true;
    if (!rule->format)
        return tp_choice_keep(b, w, false, "kept by the recipe");
    b->choices[w].rule = rule;
    return check_stack(b, w, name, asked);
}

static bool matches_any_weight(struct tp_builder *b, const struct tp_rule *rule)
{
    char buffer[TP_FULL_NAME];
    for (uint32_t w = 0; w < b->plan->weights->count; w++) {
        const char *name = tp_weight_full_name(b->plan, w, buffer, b->err);
        if (name && regexec(&rule->regex, name, 0, NULL, 0) == 0)
            return true;
    }
    return false;
}

static enum tp_code check_rules_used(struct tp_builder *b)
{
    for (size_t i = 0; i < b->request->rule_count; i++) {
        const struct tp_rule *rule = &b->request->rules[i];
        if (!rule->pattern || rule->used || rule->optional)
            continue;
        if (matches_any_weight(b, rule)) {
            tp_err_hint(b->err, "put the rule first: the first match wins");
            return tp_fail(b->err, TP_E_USAGE, "rule %zu of the recipe, '%s', is never used: "
                           "earlier rules, or defaults, take all its weights", i + 1,
                           rule->pattern);
        }
        tp_err_hint(b->err, "correct the pattern, or mark the rule \"optional\": true");
        return tp_fail(b->err, TP_E_USAGE, "rule %zu of the recipe, '%s', matches no weight", i + 1,
                       rule->pattern);
    }
    return TP_OK;
}

enum tp_code tp_plan_select(struct tp_builder *b)
{
    enum tp_code code = tp_source_ignore_open(b->plan->ckpt, &b->ignore, b->err);
    for (uint32_t w = 0; w < b->plan->weights->count && code == TP_OK; w++)
        code = choose(b, w);
    tp_source_ignore_close(&b->ignore);
    return code ? code : check_rules_used(b);
}
