/* The command line of a request: what card and journal say. Knows nothing of how the work is
 * spread, cut into files or packed, as that changes no byte of a weight.
 */
#include "pack/plan/file/command.h"

/* "--set scale=gpu --search mse": what is not said by the format. */
static enum tp_code add_rule(const struct tp_rule *rule, struct tp_text *text, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (uint32_t p = 0; p < rule->format->params && code == TP_OK; p++)
        if (tp_rule_says(rule, p))
            code = tp_text_addf(text, err, " --set %s=%s", rule->format->param[p].key,
                                rule->format->param[p].stored[rule->settings.choice[p]]);
    if (code == TP_OK && rule->search.search != TP_SEARCH_NONE)
        code = tp_text_addf(text, err, " --search %s%s --importance %s",
                            tp_search_name(rule->search.search),
                            rule->search.is_signed ? " --signed" : "",
                            rule->search.importance == TP_IMPORTANCE_FILE
                                ? "FILE" : tp_importance_word(rule->search.importance));
    else if (code == TP_OK && rule->unsaid.search == TP_SEARCH_NONE &&
             tp_format_search(rule->format, &rule->settings).search != TP_SEARCH_NONE)
        code = tp_text_add_word(text, " --search none", err);
    return code;
}

static enum tp_code add_patterns(const char *option, const struct tp_pattern *items, size_t count,
                                 struct tp_text *text, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < count && code == TP_OK; i++)
        code = tp_text_addf(text, err, " %s'%s'", option, items[i].text);
    return code;
}

enum tp_code tp_command_text(const struct tp_request *r, const char *src, const char *dst,
                             struct tp_text *text, struct tp_err *err)
{
    const struct tp_rule *rule = r->rule_count == 1 && !r->rules[0].pattern.text ? r->rules : NULL;
    bool unpacks = r->restore || r->repack_only;
    enum tp_code code = tp_text_addf(text, err, "tilepack %s %s -o %s",
                                     unpacks ? "unpack" : "convert", src, dst);
    if (code == TP_OK && r->restore && r->dtype != TP_DTYPE_NONE)
        code = tp_text_addf(text, err, " --dtype %s", r->dtype == TP_F32 ? "f32" : "bf16");
    if (code == TP_OK && !r->restore)
        code = rule && rule->format ? tp_text_addf(text, err, " --to %s", rule->format->name)
                                    : tp_text_add_word(text, " --recipe FILE", err);
    if (code == TP_OK && !unpacks && rule && rule->format)
        code = add_rule(rule, text, err);
    if (code == TP_OK)
        code = add_patterns("--include ", r->include, r->include_count, text, err);
    if (code == TP_OK)
        code = add_patterns("--exclude ", r->exclude, r->exclude_count, text, err);
    for (size_t i = 0; i < r->rule_count && code == TP_OK && !r->restore; i++)
        if (r->rules[i].format && tp_format_is_added(r->rules[i].format)) {
            code = tp_text_add_word(text, " --format-file FILE", err);
            break;
        }
    if (code == TP_OK && r->models.own)
        code = tp_text_add_word(text, " --model-file FILE", err);
    if (code == TP_OK && r->models.layout)
        code = tp_text_addf(text, err, " --stacks %s",
                            r->models.layout == TP_STACK_ENK ? "enk" : "ekn");
    if (code == TP_OK && r->merged)
        code = tp_text_add_word(text, " --merged convert", err);
    if (code == TP_OK && r->weights_only)
        code = tp_text_add_word(text, " --weights-only", err);
    if (code == TP_OK)
        code = add_patterns("--weights-only=", r->unscale, r->unscale_count, text, err);
    return code ? code : tp_text_addf(text, err, "%s%s%s", r->no_stack ? " --no-stack" : "",
                                      r->requantize ? " --requantize" : "",
                                      r->keep_nonfinite && !unpacks ? " --nonfinite keep" : "");
}
