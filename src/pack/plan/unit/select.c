/* Which weights are converted, and to what: patterns, defaults, orientation.
 *
 * Decides by name and rank only; whether a shape suits the format is checked
 * when the unit is made.
 */
#include "pack/plan/unit/build.h"

#include "base/suffix.h"
#include "pack/engine/engine.h"
#include "pack/model/model_names.h"
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
    if (!w->form->format)
        return plan->ckpt->tensors[w->tensor[0]].name;
    size_t length = strlen(w->name);
    if (length + sizeof end > TP_FULL_NAME) {
        tp_err_tensor(err, w->name);
        tp_fail(err, TP_E_UNSUPPORTED, "tensor name is longer than %d bytes", TP_FULL_NAME - 1);
        return NULL;
    }
    if (tp_plan_is_bias(w)) /* what happens to a weight happens to its bias */
        length = tp_name_bias_base(w->name);
    memcpy(buffer, w->name, length);
    memcpy(buffer + length, end, sizeof end);
    return buffer;
}

static const char *shared_reason(struct tp_builder *b, const char *text)
{
    if (!b->last_reason || strcmp(b->last_reason, text) != 0)
        b->last_reason = tp_store_join(&b->plan->store, text, strlen(text), "", b->err);
    return b->last_reason;
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
    if (!choice->reason && !(choice->reason = shared_reason(b, text)))
        return TP_E_MEMORY;
    if (refused && b->request->strict) {
        tp_err_tensor(b->err, tp_weight_at(b, weight)->name);
        tp_err_hint(b->err, "leave it out with --exclude, or drop --strict to keep it as it is");
        return tp_fail(b->err, TP_E_UNSUPPORTED, "cannot be converted: %s", text);
    }
    return TP_OK;
}

static enum tp_code rule_matches(struct tp_request *request, const struct tp_rule *rule,
                                 const char *name, bool *matches, struct tp_err *err)
{
    *matches = !rule->pattern.text;
    return *matches ? TP_OK
                    : tp_pattern_match(&request->matcher, &rule->pattern, name, matches, err);
}

/* *found: the first rule for the name, or NULL. */
static enum tp_code first_rule(struct tp_request *request, const char *name,
                               struct tp_rule **found, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    bool matches = false;
    *found = NULL;
    for (size_t i = 0; i < request->rule_count && !matches && code == TP_OK; i++) {
        code = rule_matches(request, &request->rules[i], name, &matches, err);
        if (matches)
            *found = &request->rules[i];
    }
    return code;
}

/* *reason: why a weight stays as it is unless it is asked for by name, or NULL. The source's
 * lists are read only where they decide something. */
static enum tp_code default_reason(struct tp_builder *b, uint32_t w, const char *name,
                                   const char **reason)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    bool ignored = false;
    /* What is packed was meant to be, and a checkpoint of two kinds helps nobody. */
    struct tp_kept_name kept;
    *reason = NULL;
    if (!weight->form->format && tp_name_kept(&b->plan->weights->facts, name, &kept))
        *reason = kept.why;
    if (weight->form->format || *reason)
        return TP_OK;
    enum tp_code code = b->ignore.ckpt ? TP_OK
                                       : tp_source_ignore_open(b->plan->ckpt, &b->ignore, b->err);
    b->ignore.matcher.work = b->request->matcher.work; /* one limit for all lists of a source */
    if (code == TP_OK)
        code = tp_source_ignores(&b->ignore, weight->name, &ignored, b->err);
    b->request->matcher.work = b->ignore.matcher.work;
    if (ignored)
        *reason = TP_REASON_LISTED;
    return code;
}

/* A stack that may lie either way: to guess would give other weights. */
static enum tp_code refuse_unclear(struct tp_builder *b, uint32_t w,
                                   const struct tp_stack_name *stack)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    const struct tp_tensor *tensor = &b->plan->ckpt->tensors[weight->tensor[0]];
    unsigned long long e = tensor->shape[0], x = tensor->shape[1], y = tensor->shape[2];
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    if (stack->is->interleaved)
        return tp_fail(b->err, TP_E_UNSUPPORTED, "its sizes say that it is no [E,K,N], as rows "
                       "of gate and up that are interleaved have to be");
    tp_err_hint(b->err, "--stacks enk or --stacks ekn says which; --exclude leaves it as it is");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "the stack [%llu,%llu,%llu] may be [E,N,K], each "
                   "expert giving %llu features of %llu, or [E,K,N], %llu of %llu: sizes and "
                   "config.json do not tell", e, x, y, x, y, y, x);
}

/* 3-D weights: expert stacks of known orientation, or what the user names. */
static enum tp_code check_stack(struct tp_builder *b, uint32_t w, const char *name, bool asked)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    struct tp_stack_name stack;
    if (weight->form->rank != 3 || weight->form->format)
        return TP_OK;
    if (weight->form->interleaved && b->choices[w].rule->format->experts == TP_EXPERTS_SPLIT)
        return tp_choice_keep(
            b, w, true,
            "the experts of this architecture cannot be written one "
            "by one: rows of gate and up are interleaved, and so are their biases");
    bool stacked = tp_name_stack(&b->plan->weights->facts, name, &stack);
    if (stacked && weight->form->unclear)
        return refuse_unclear(b, w, &stack);
    if (stacked || asked)
        return TP_OK;
    return tp_choice_keep(b, w, false,
                          "3-D weight of unknown orientation (--include takes it as [E,N,K])");
}

/* Plain tensors of two dimensions or three that are no weight by their names: no request makes
 * one of them. A bias, above all, goes where the rows of its weight go, and would be there
 * twice. */
static bool is_no_weight(const struct tp_weight *weight, const char *name)
{
    static const char *const ends[] = {".bias",      "_bias", "_scale", "_scales", "_scale_inv",
                                       "zero_point", "zeros", "A_log",  "sink",    "sinks"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !weight->form->format; i++)
        if (tp_ends_with(name, ends[i]))
            return true;
    return false;
}

static bool takes_embeddings(const struct tp_format *format)
{
    size_t count;
    const struct tp_engine *const *engines = tp_engines(&count);
    for (size_t e = 0; format && e < count; e++)
        for (size_t r = 0; r < engines[e]->rows; r++)
            if (tp_row_has(&engines[e]->row[r], format->name) &&
                engines[e]->row[r].takes >> TP_USE_EMBEDDING & 1)
                return true;
    return false;
}

/* The rule takes the weight. Nothing that is recorded could tell the name from those of experts
 * if it held their placeholder. */
static enum tp_code take(struct tp_builder *b, uint32_t w, struct tp_rule *rule)
{
    if (strstr(tp_weight_at(b, w)->name, "{e}"))
        return tp_choice_keep(b, w, true, "its name holds {e}, which stands for the numbers of "
                              "experts where names are recorded");
    if (tp_name_use(&b->plan->weights->facts, tp_weight_at(b, w)->name) == TP_USE_EMBEDDING &&
        !takes_embeddings(rule->format))
        return tp_choice_keep(b, w, true, "a table of embeddings, which no reader takes in %s",
                              rule->format->name);
    b->choices[w].rule = rule;
    return TP_OK;
}

/* A plain weight of a source that is quantized stays as its quantizer left it. */
static bool stays_plain(const struct tp_builder *b, uint32_t w, const struct tp_rule *rule)
{
    return rule && rule->format && !tp_weight_at(b, w)->form->format &&
           (b->request->repack_only || (b->quantized && !b->request->plain && !rule->plain));
}

static enum tp_code choose(struct tp_builder *b, uint32_t w)
{
    struct tp_request *request = b->request;
    char buffer[TP_FULL_NAME];
    if (request->repack_only && tp_weight_at(b, w)->form->format)
        return take(b, w, &request->rules[0]); /* whatever is packed, by whatever name */
    const char *name = tp_weight_full_name(b->plan, w, buffer, b->err);
    if (!name)
        return b->err->code;
    bool excluded, included = false;
    enum tp_code code = tp_request_excludes(request, name, &excluded, b->err);
    if (code == TP_OK && excluded)
        return tp_choice_keep(b, w, false, "excluded");
    if (code == TP_OK)
        code = tp_request_includes(request, name, &included, b->err);
    if (code == TP_OK && request->include_count && !included)
        return tp_choice_keep(b, w, false, "not included");
    struct tp_rule *rule = NULL;
    if (code == TP_OK)
        code = first_rule(request, name, &rule, b->err);
    bool left = !included && stays_plain(b, w, rule);
    bool asked = !left && (included || (rule && rule->pattern.text));
    const char *reason = NULL;
    if (code == TP_OK && !asked)
        code = default_reason(b, w, name, &reason);
    if (code == TP_OK && !reason && !asked && rule && rule->format &&
        (code = tp_engine_asks_of(&b->asks, &b->plan->weights->facts, rule->format, b->err)) ==
            TP_OK)
        reason = tp_engine_keeps(&b->asks, name);
    if (code)
        return code;
    if (!reason && rule && rule->format && is_no_weight(tp_weight_at(b, w), name))
        reason = "no weight by its name, but a bias, a scale or another parameter of its own";
    if (!reason && left) {
        reason = b->quantized ? TP_REASON_LEFT : "not packed";
        rule->left = true;
    }
    if (reason)
        return tp_choice_keep(b, w, false, "%s", reason);
    if (!rule)
        return tp_choice_keep(b, w, false, "no rule of the recipe matches");
    rule->used = true;
    if (!rule->format)
        return tp_choice_keep(b, w, false, "kept by the recipe");
    code = take(b, w, rule);
    return code || !b->choices[w].rule ? code : check_stack(b, w, name, asked);
}

static enum tp_code matches_any_weight(struct tp_builder *b, const struct tp_rule *rule,
                                       bool *matches)
{
    char buffer[TP_FULL_NAME];
    enum tp_code code = TP_OK;
    *matches = false;
    for (uint32_t w = 0; w < b->plan->weights->count && !*matches && code == TP_OK; w++) {
        const char *name = tp_weight_full_name(b->plan, w, buffer, b->err);
        code = name ? rule_matches(b->request, rule, name, matches, b->err) : b->err->code;
    }
    return code;
}

static enum tp_code check_rules_used(struct tp_builder *b)
{
    for (size_t i = 0; i < b->request->rule_count; i++) {
        const struct tp_rule *rule = &b->request->rules[i];
        bool matches;
        if (!rule->pattern.text || rule->used || rule->optional)
            continue;
        if (rule->left) {
            tp_err_hint(b->err, "\"plain\": \"convert\" in the rule converts them");
            return tp_fail(b->err, TP_E_USAGE, "rule %zu of the recipe, '%s', matches no weight "
                           "but those that the source's quantizer left plain", i + 1,
                           rule->pattern.text);
        }
        enum tp_code code = matches_any_weight(b, rule, &matches);
        if (code)
            return code;
        if (matches) {
            tp_err_hint(b->err, "put the rule first: the first match wins");
            return tp_fail(b->err, TP_E_USAGE, "rule %zu of the recipe, '%s', is never used: "
                           "earlier rules, or defaults, take all its weights", i + 1,
                           rule->pattern.text);
        }
        tp_err_hint(b->err, "correct the pattern, or mark the rule \"optional\": true");
        return tp_fail(b->err, TP_E_USAGE, "rule %zu of the recipe, '%s', matches no weight", i + 1,
                       rule->pattern.text);
    }
    return TP_OK;
}

static enum tp_code include_matches_any(struct tp_builder *b, size_t i, bool *matches)
{
    char buffer[TP_FULL_NAME];
    enum tp_code code = TP_OK;
    *matches = false;
    for (uint32_t w = 0; w < b->plan->weights->count && !*matches && code == TP_OK; w++) {
        const char *name = tp_weight_full_name(b->plan, w, buffer, b->err);
        if (name && !tp_weight_at(b, w)->form->format && name[tp_name_bias_base(name)])
            continue; /* a bias; scales may be those of codes that are refused later */
        code = name ? tp_request_include_matches(b->request, i, name, matches, b->err)
                    : b->err->code;
    }
    return code;
}

/* A pattern that takes in nothing is misspelt, and what it means would stay unconverted. What is
 * recorded of 0.1.0 was allowed then. */
static enum tp_code check_includes_used(struct tp_builder *b)
{
    for (size_t i = 0; i < b->request->include_count && !b->request->recorded; i++) {
        bool matches;
        enum tp_code code = include_matches_any(b, i, &matches);
        if (code)
            return code;
        if (matches)
            continue;
        tp_err_hint(b->err, "correct the pattern; 'tilepack dump' lists the names");
        return tp_fail(b->err, TP_E_USAGE, "--include '%.200s' matches no weight",
                       b->request->include[i].text);
    }
    return TP_OK;
}

static enum tp_code exclude_matches_any(struct tp_builder *b, const struct tp_pattern *exclude,
                                        bool *matches)
{
    char buffer[TP_FULL_NAME];
    const struct tp_checkpoint *ckpt = b->plan->ckpt;
    enum tp_code code = TP_OK;
    *matches = false;
    for (uint32_t w = 0; w < b->plan->weights->count && !*matches && code == TP_OK; w++) {
        const char *name = tp_weight_full_name(b->plan, w, buffer, b->err);
        code = name ? tp_pattern_match(&b->request->matcher, exclude, name, matches, b->err)
                    : b->err->code;
    }
    for (size_t t = 0; t < ckpt->tensor_count && !*matches && code == TP_OK; t++)
        code = tp_pattern_match(&b->request->matcher, exclude, ckpt->tensors[t].name, matches,
                                b->err);
    return code;
}

/* A misspelt one leaves nothing as it is. No error: one list may serve several models. */
static enum tp_code find_idle_exclude(struct tp_builder *b)
{
    bool matches = true;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < b->request->exclude_count && matches && code == TP_OK; i++) {
        code = exclude_matches_any(b, &b->request->exclude[i], &matches);
        if (code == TP_OK && !matches)
            b->plan->idle_exclude = b->request->exclude[i].text;
    }
    return code;
}

enum tp_code tp_plan_select(struct tp_builder *b)
{
    enum tp_code code = tp_engines_check(b->err); /* none is missing where they are asked */
    if (code == TP_OK)
        code = tp_plan_find_unread(b);
    b->request->matcher.work = 0; /* `compare` makes several plans of one request */
    for (uint32_t w = 0; w < b->plan->weights->count && code == TP_OK; w++)
        code = choose(b, w);
    tp_source_ignore_close(&b->ignore);
    if (code == TP_OK)
        code = check_includes_used(b);
    if (code == TP_OK)
        code = find_idle_exclude(b);
    return code ? code : check_rules_used(b);
}
