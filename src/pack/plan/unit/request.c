/* Requests: building, recipes, and their JSON form. */
#include "pack/plan/unit/request.h"

#include "base/suffix.h"
#include "pack/engine/engine.h"
#include "pack/file/leafhash.h"
#include "pack/source/importance.h"
#include "pack/text/json_tree.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

/* A file that the request needs: no output may take its place. */
enum tp_code tp_request_input(struct tp_request *request, const char *path, struct tp_err *err)
{
    char **inputs =
        tp_os.realloc(request->inputs, (request->input_count + 1) * sizeof *inputs);
    if (!inputs)
        return tp_fail(err, TP_E_MEMORY, "out of memory");
    request->inputs = inputs;
    inputs[request->input_count] = tp_os_copy(err, path);
    return inputs[request->input_count] ? (request->input_count++, TP_OK) : TP_E_MEMORY;
}

static enum tp_code add_pattern(struct tp_request *request, struct tp_pattern **list,
                                size_t *count, const char *text, struct tp_pattern_origin origin,
                                struct tp_err *err)
{
    struct tp_pattern *items = tp_os.realloc(*list, (*count + 1) * sizeof *items);
    if (!items)
        return tp_fail(err, TP_E_MEMORY, "out of memory");
    *list = items;
    enum tp_code code = tp_pattern_compile(&request->matcher, text, TP_PATTERN_SEARCH, origin,
                                           &items[*count], err);
    *count += !code;
    return code;
}

enum tp_code tp_request_include(struct tp_request *request, const char *pattern,
                                struct tp_err *err)
{
    struct tp_pattern_origin origin = {"--include", -1, TP_E_USAGE};
    return add_pattern(request, &request->include, &request->include_count, pattern, origin, err);
}

enum tp_code tp_request_exclude(struct tp_request *request, const char *pattern,
                                struct tp_err *err)
{
    struct tp_pattern_origin origin = {"--exclude", -1, TP_E_USAGE};
    return add_pattern(request, &request->exclude, &request->exclude_count, pattern, origin, err);
}

enum tp_code tp_request_unscale(struct tp_request *request, const char *pattern,
                                struct tp_err *err)
{
    struct tp_pattern_origin origin = {"--weights-only", -1, TP_E_USAGE};
    return add_pattern(request, &request->unscale, &request->unscale_count, pattern, origin, err);
}

static enum tp_code any_match(struct tp_request *request, const struct tp_pattern *items,
                              size_t count, const char *name, bool *matches, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    *matches = false;
    for (size_t i = 0; i < count && !*matches && code == TP_OK; i++)
        code = tp_pattern_match(&request->matcher, &items[i], name, matches, err);
    return code;
}

enum tp_code tp_request_includes(struct tp_request *request, const char *name,
                                 bool *matches, struct tp_err *err)
{
    return any_match(request, request->include, request->include_count, name, matches, err);
}

enum tp_code tp_request_include_matches(struct tp_request *request, size_t i,
                                        const char *name, bool *matches, struct tp_err *err)
{
    return tp_pattern_match(&request->matcher, &request->include[i], name, matches, err);
}

enum tp_code tp_request_excludes(struct tp_request *request, const char *name,
                                 bool *matches, struct tp_err *err)
{
    return any_match(request, request->exclude, request->exclude_count, name, matches, err);
}

enum tp_code tp_request_unscales(struct tp_request *request, const char *name,
                                 bool *matches, struct tp_err *err)
{
    *matches = request->weights_only;
    return *matches ? TP_OK
                    : any_match(request, request->unscale, request->unscale_count, name, matches,
                                err);
}

/* pattern NULL: for every name. */
static enum tp_code add_rule(struct tp_request *request, const char *pattern,
                             struct tp_pattern_origin origin, struct tp_rule **added,
                             struct tp_err *err)
{
    struct tp_rule *rules =
        tp_os.realloc(request->rules, (request->rule_count + 1) * sizeof *rules);
    if (!rules)
        return tp_fail(err, TP_E_MEMORY, "out of memory");
    request->rules = rules;
    struct tp_rule *rule = &rules[request->rule_count];
    memset(rule, 0, sizeof *rule);
    if (pattern) {
        enum tp_code code = tp_pattern_compile(&request->matcher, pattern, TP_PATTERN_SEARCH,
                                               origin, &rule->pattern, err);
        if (code)
            return code;
    }
    request->rule_count++;
    *added = rule;
    return TP_OK;
}

/* One format that was meant, or those that it may have been, first those that engines load. */
static enum tp_code no_format(const char *name, struct tp_err *err)
{
    char names[900];
    const struct tp_format *one;
    size_t found = tp_format_candidates(name, &one, names, sizeof names);
    const char *near = found == 1 ? one->name : tp_format_nearest(name, true);
    if (found > 1) {
        tp_err_hint(err, "there are %s", names);
        return tp_fail(err, TP_E_USAGE, "there is no format '%s' to convert to", name);
    }
    tp_err_hint(err, "`tilepack formats` lists them");
    if (near)
        return tp_fail(err, TP_E_USAGE, "there is no format '%s' to convert to (did you mean "
                       "'%s'?)", name, near);
    return tp_fail(err, TP_E_USAGE, "there is no format '%s' to convert to", name);
}

static enum tp_code set_format(struct tp_rule *rule, const char *name, struct tp_err *err)
{
    enum tp_code code = tp_format_get(name, &rule->format, err);
    if (code || (rule->format && !rule->format->input_only))
        return code;
    code = tp_formats_check(err); /* what is not read yet is not unknown */
    return code ? code : no_format(name, err);
}

static enum tp_code set_param(struct tp_rule *rule, const char *text, struct tp_err *err)
{
    enum tp_code code = tp_format_set(&rule->format, text, &rule->settings, err);
    for (uint32_t p = 0; p < rule->format->params && code == TP_OK; p++) {
        size_t size = strlen(rule->format->param[p].key);
        if (strncmp(rule->format->param[p].key, text, size) == 0 && text[size] == '=')
            rule->set |= UINT32_C(1) << p;
    }
    return code;
}

enum tp_code tp_request_to(struct tp_request *request, const char *format,
                           const char *const *settings, size_t setting_count, struct tp_err *err)
{
    struct tp_rule *rule;
    enum tp_code code = add_rule(request, NULL, (struct tp_pattern_origin){0}, &rule, err);
    if (code == TP_OK)
        code = set_format(rule, format, err);
    for (size_t i = 0; i < setting_count && code == TP_OK; i++)
        code = set_param(rule, settings[i], err);
    return code;
}

/* One file serves all rules: a second one is TP_E_USAGE. */
static enum tp_code name_importance(struct tp_request *request, const char *path,
                                    struct tp_err *err)
{
    if (request->importance_path && strcmp(request->importance_path, path) == 0)
        return TP_OK;
    if (request->importance_path) {
        tp_err_hint(err, "put what both of them hold into one file");
        return tp_fail(err, TP_E_USAGE, "two files of importance are named, '%.300s' and '%.300s'",
                       request->importance_path, path);
    }
    request->importance_path = tp_os_copy(err, path);
    return request->importance_path ? TP_OK : TP_E_MEMORY;
}

/* The words of a search of the format's own; importance is not said. */
static struct tp_search_words words_for(struct tp_format_search searched)
{
    return (struct tp_search_words){tp_search_name(searched.search), searched.is_signed, NULL};
}

/* Who says how to search, but not which search, gets that of the format. */
static struct tp_search_words completed(const struct tp_search_words *said,
                                        const struct tp_format *format)
{
    struct tp_search_words words = words_for(format->searched);
    if (said->search || (!said->is_signed && !said->importance))
        return *said;
    words.is_signed = words.is_signed || said->is_signed;
    words.importance = said->importance;
    return words;
}

/* What plain weights get where nothing is said of a search. */
static enum tp_code unsaid_search(struct tp_rule *rule, struct tp_err *err)
{
    const struct tp_search_words words =
        words_for(tp_format_search(rule->format, &rule->settings));
    enum tp_code code =
        tp_search_choice_make(&words, rule->format->op.codec, &rule->unsaid, err);
    rule->unsearched = rule->format->searched.search != rule->unsaid.search;
    return code;
}

/* Once the settings of the rule are known. */
static enum tp_code rule_search(struct tp_request *request, struct tp_rule *rule,
                                const struct tp_search_words *said, struct tp_err *err)
{
    const struct tp_search_words words = completed(said, rule->format);
    enum tp_code code =
        tp_search_choice_make(&words, rule->format->op.codec, &rule->search, err);
    if (code == TP_OK)
        code = tp_search_choice_check(&rule->search, &rule->format->op, err);
    if (code == TP_OK && !words.search)
        code = unsaid_search(rule, err);
    return code || rule->search.importance != TP_IMPORTANCE_FILE
               ? code
               : name_importance(request, words.importance, err);
}

enum tp_code tp_request_search(struct tp_request *request, const struct tp_search_words *words,
                               struct tp_err *err)
{
    return rule_search(request, &request->rules[0], words, err);
}

/* The words of a rule in a recipe or in a recorded request. */
static struct tp_search_words words_of(const json_t *json)
{
    return (struct tp_search_words){
        .search = json_string_value(json_object_get(json, "search")),
        .is_signed = json_is_true(json_object_get(json, "signed")),
        .importance = json_string_value(json_object_get(json, "importance")),
    };
}

static enum tp_code read_search(struct tp_request *request, const json_t *json,
                                struct tp_rule *rule, struct tp_err *err)
{
    const struct tp_search_words words = words_of(json);
    return rule_search(request, rule, &words, err);
}

/* What a recorded rule does not say was not done: it is of a version whose files said another
 * thing, or of none. */
static enum tp_code parse_search(struct tp_request *request, const json_t *json,
                                 struct tp_rule *rule, struct tp_err *err)
{
    const json_t *unsaid = json_object_get(json, "unsaid");
    struct tp_search_words words = words_of(json), plain = words_of(unsaid);
    if (!words.search)
        words.search = "none";
    enum tp_code code = rule_search(request, rule, &words, err);
    return code || !unsaid ? code : tp_search_choice_make(&plain, rule->format->op.codec,
                                                          &rule->unsaid, err);
}

static enum tp_code rule_settings(const json_t *json, struct tp_rule *rule, struct tp_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(json, "set"), key, value)
    {
        if (!json_is_string(value)) {
            tp_err_hint(err, "write it in quotes; `tilepack formats %s` lists what it takes",
                        rule->format->name);
            return tp_fail(err, TP_E_USAGE, "\"set\": the value of \"%s\" is not a string", key);
        }
        char *text = tp_os_format(err, "%s=%s", key, json_string_value(value));
        enum tp_code code = text ? set_param(rule, text, err) : TP_E_MEMORY;
        free(text);
        if (code)
            return code;
    }
    return TP_OK;
}

static const char recipe_form[] =
    "a recipe is {\"rules\": [RULE, ...]}, a rule {\"match\": REGEX, \"to\": FORMAT, \"set\": "
    "{KEY: VALUE}} or {\"match\": REGEX, \"keep\": true}";

/* Every key known and of the right type: a recipe is never half understood. */
static enum tp_code check_rule_keys(const json_t *json, struct tp_err *err)
{
    static const struct {
        const char *key, *type;
    } known[] = {{"match", "a string"},    {"to", "a string"},    {"keep", "true or false"},
                 {"set", "an object"},     {"comment", "a string"}, {"optional", "true or false"},
                 {"search", "a string"},   {"signed", "true or false"},
                 {"importance", "a string"}, {"plain", "a string"}};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(key, known[i].key) != 0)
            i++;
        if (i == sizeof known / sizeof *known) {
            tp_err_hint(err, "a rule has the keys match, to, keep, set, search, signed, "
                             "importance, plain, optional and comment");
            return tp_fail(err, TP_E_USAGE, "unknown key \"%s\"", key);
        }
        const char *type = json_is_string(value)    ? "a string"
                           : json_is_object(value)  ? "an object"
                           : json_is_boolean(value) ? "true or false"
                                                    : "";
        if (strcmp(type, known[i].type) != 0)
            return tp_fail(err, TP_E_USAGE, "the value of \"%s\" is not %s", key, known[i].type);
    }
    return TP_OK;
}

/* What becomes of weights that a quantizer left plain, as --plain says it. */
static enum tp_code read_plain(const json_t *json, struct tp_rule *rule, struct tp_err *err)
{
    const char *word = json_string_value(json_object_get(json, "plain"));
    rule->plain = word && strcmp(word, "convert") == 0;
    if (!word || rule->plain || strcmp(word, "keep") == 0)
        return TP_OK;
    return tp_fail(err, TP_E_USAGE, "the value of \"plain\" is neither \"keep\" nor \"convert\"");
}

static enum tp_code read_rule(struct tp_request *request, const json_t *json, struct tp_err *err)
{
    const char *match = json_string_value(json_object_get(json, "match"));
    const char *to = json_string_value(json_object_get(json, "to"));
    bool keep = json_is_true(json_object_get(json, "keep"));
    struct tp_rule *rule;
    enum tp_code code = check_rule_keys(json, err);
    if (code)
        return code;
    if (!json_is_object(json) || !match || !to == !keep)
        return tp_fail(err, TP_E_USAGE,
                       "a rule needs \"match\" and either \"to\": FORMAT or \"keep\": true");
    if (!*match) { /* as recorded it is --to, which takes by default what a recipe names */
        tp_err_hint(err, "\".\" matches every name, also of embeddings and of lm_head");
        return tp_fail(err, TP_E_USAGE, "the value of \"match\" is empty");
    }
    if (keep && json_object_get(json, "set"))
        return tp_fail(err, TP_E_USAGE, "\"set\" goes with \"to\"; a kept weight has no format");
    if (keep && (json_object_get(json, "search") || json_object_get(json, "signed") ||
                 json_object_get(json, "importance")))
        return tp_fail(err, TP_E_USAGE, "a search goes with \"to\"; a kept weight has no scales");
    if (keep && json_object_get(json, "plain"))
        return tp_fail(err, TP_E_USAGE, "\"plain\" goes with \"to\"; a kept weight stays as it is");
    struct tp_pattern_origin origin = {"pattern", -1, TP_E_USAGE};
    if ((code = add_rule(request, match, origin, &rule, err)))
        return code;
    rule->optional = json_is_true(json_object_get(json, "optional"));
    if (keep)
        return TP_OK;
    if ((code = read_plain(json, rule, err)) || (code = set_format(rule, to, err)) ||
        (code = rule_settings(json, rule, err)))
        return code;
    return read_search(request, json, rule, err);
}

static enum tp_code read_rules(struct tp_request *request, const json_t *rules, struct tp_err *err)
{
    if (!json_is_array(rules) || json_array_size(rules) == 0)
        return tp_fail(err, TP_E_USAGE, "\"rules\" is not a list of at least one rule");
    request->recipe = true;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        enum tp_code code = read_rule(request, json_array_get(rules, i), err);
        if (code) {
            char what[sizeof err->what];
            strcpy(what, err->what);
            snprintf(err->what, sizeof err->what, "rule %zu: %.900s", i + 1, what);
            return code;
        }
    }
    return TP_OK;
}

/* A relative path in a recipe begins in the folder of the recipe. */
static enum tp_code place_importance(struct tp_request *request, const char *recipe,
                                     struct tp_err *err)
{
    const char *slash = strrchr(recipe, '/');
    char *relative = request->importance_path;
    if (!relative || relative[0] == '/' || !slash)
        return TP_OK;
    request->importance_path = tp_os_join(err, recipe, (size_t)(slash + 1 - recipe), relative);
    free(relative);
    return request->importance_path ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_request_recipe(struct tp_request *request, const char *path, struct tp_err *err)
{
    char *text;
    size_t size;
    json_error_t where;
    uint64_t before = tp_json_failures();
    enum tp_code code = tp_os_slurp(path, TP_RECIPE_MAX_BYTES, &text, &size, err);
    if (code)
        return code;
    json_t *json = tp_json_load(text, size, &where);
    free(text);
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
        if (code == TP_OK && strcmp(key, "rules") != 0 && strcmp(key, "comment") != 0)
            code = tp_fail(err, TP_E_USAGE, "unknown key \"%s\" beside \"rules\"", key);
    if (!json_is_object(json))
        code = tp_fail(err, TP_E_USAGE, "not a recipe; line %d, column %d: %s",
                       json ? 1 : where.line, json ? 1 : where.column,
                       json ? "expected an object with \"rules\"" : where.text);
    else if (code == TP_OK)
        code = read_rules(request, json_object_get(json, "rules"), err);
    json_decref(json);
    code = tp_json_check(before, code, err);
    if (code == TP_OK && (code = place_importance(request, path, err)) == TP_OK)
        code = tp_request_input(request, path, err);
    tp_err_path(code ? err : NULL, path);
    if (code == TP_E_USAGE)
        tp_err_hint(err, recipe_form);
    return code;
}

bool tp_rule_says(const struct tp_rule *rule, uint32_t param)
{
    return rule->follows ? rule->set >> param & 1
                         : tp_param_is_stored(&rule->format->param[param],
                                              rule->settings.choice[param]);
}

static json_t *settings_json(const struct tp_rule *rule)
{
    json_t *set = json_object();
    for (uint32_t p = 0; p < rule->format->params; p++)
        if (tp_rule_says(rule, p))
            tp_json_set(set, rule->format->param[p].key,
                        json_string(rule->format->param[p].stored[rule->settings.choice[p]]));
    return set;
}

/* Without the path of a file: what was in it is in the descriptors. */
static void search_json(const struct tp_search_choice *search, json_t *item)
{
    if (search->search == TP_SEARCH_NONE)
        return;
    tp_json_set(item, "search", json_string(tp_search_name(search->search)));
    if (search->is_signed)
        tp_json_set(item, "signed", json_true());
    tp_json_set(item, "importance",
                        json_string(tp_importance_word(search->importance)));
}

static void unsaid_json(const struct tp_search_choice *unsaid, json_t *item)
{
    if (unsaid->search == TP_SEARCH_NONE)
        return;
    json_t *search = json_object();
    search_json(unsaid, search);
    tp_json_set(item, "unsaid", search);
}

static const char *const layout_words[] = {
    [TP_STACK_BY_SIZES] = "", [TP_STACK_ENK] = "enk", [TP_STACK_EKN] = "ekn"};

enum tp_code tp_request_stacks(struct tp_request *request, const char *word, struct tp_err *err)
{
    int layout = tp_word_of(word, layout_words, TP_COUNT(layout_words));
    if (layout > TP_STACK_BY_SIZES)
        request->models.layout = (enum tp_stack_layout)layout;
    return !word || layout > TP_STACK_BY_SIZES
               ? TP_OK
               : tp_fail(err, TP_E_INPUT, "'%s' is no layout of stacks: enk or ekn", word);
}

/* Room for a model of the request's own, which tp_request_close() frees. */
static struct tp_model *own_model(struct tp_request *request, struct tp_err *err)
{
    struct tp_model *model = tp_os_zalloc(1, sizeof *model, err);
    request->models.own = model;
    return model;
}

enum tp_code tp_request_model(struct tp_request *request, const char *path, struct tp_err *err)
{
    struct tp_model *model = own_model(request, err);
    enum tp_code code = model ? tp_model_read(path, model, err) : TP_E_MEMORY;
    return code ? code : tp_request_input(request, path, err);
}

static enum tp_code parse_model(struct tp_request *request, json_t *json, struct tp_err *err)
{
    struct tp_model *model = json ? own_model(request, err) : NULL;
    if (!json)
        return TP_OK;
    return model ? tp_model_from(json_incref(json), model, err) : TP_E_MEMORY;
}

/* The hash of a user's format file. */
static json_t *file_json(const struct tp_format *format)
{
    uint8_t hash[TP_HASH_BYTES];
    char text[TP_HASH_TEXT];
    tp_hash(format->text, strlen(format->text), hash);
    tp_hash_print(hash, text);
    return json_string(text);
}

static json_t *patterns_json(const struct tp_pattern *items, size_t count)
{
    json_t *json = json_array();
    for (size_t i = 0; i < count; i++)
        tp_json_append(json, json_string(items[i].text));
    return json;
}

json_t *tp_request_json(const struct tp_request *request)
{
    json_t *json = json_object(), *rules = json_array();
    for (size_t i = 0; i < request->rule_count; i++) {
        const struct tp_rule *rule = &request->rules[i];
        json_t *item = json_object();
        const char *match = rule->pattern.text ? rule->pattern.text : "";
        tp_json_set(item, "match", json_string(match));
        if (rule->format) {
            tp_json_set(item, "to", json_string(rule->format->name));
            if (tp_format_is_added(rule->format))
                tp_json_set(item, "format_file", file_json(rule->format));
            tp_json_set(item, "set", settings_json(rule));
            if (rule->follows)
                tp_json_set(item, "follows", json_true());
            search_json(&rule->search, item);
            unsaid_json(&rule->unsaid, item);
            if (rule->plain)
                tp_json_set(item, "plain", json_string("convert"));
        } else {
            tp_json_set(item, "keep", json_true());
        }
        tp_json_append(rules, item);
    }
    tp_json_set(json, "rules", rules);
    tp_json_set(json, "include", patterns_json(request->include, request->include_count));
    tp_json_set(json, "exclude", patterns_json(request->exclude, request->exclude_count));
    tp_json_set(json, "no_stack", json_boolean(request->no_stack));
    tp_json_set(json, "keep_nonfinite", json_boolean(request->keep_nonfinite));
    tp_json_set(json, "requantize", json_boolean(request->requantize));
    tp_json_set(json, "plain", json_string(request->plain ? "convert" : "keep"));
    if (request->weights_only || request->unscale_count)
        tp_json_set(json, "weights_only", request->weights_only
                        ? json_true() : patterns_json(request->unscale, request->unscale_count));
    if (request->merged)
        tp_json_set(json, "merged", json_true());
    if (request->models.layout)
        tp_json_set(json, "stacks", json_string(layout_words[request->models.layout]));
    if (request->models.own)
        tp_json_set(json, "model", json_incref(request->models.own->json));
    if (request->repack_only)
        tp_json_set(json, "repack_only", json_true());
    if (request->restore)
        tp_json_set(json, "restore", json_string(tp_dtype_name(request->dtype)));
    tp_json_set(json, "shard_size", json_integer((json_int_t)request->shard_size));
    return json;
}

json_t *tp_request_record(const struct tp_request *request)
{
    json_t *json = tp_request_json(request);
    if (request->digests)
        tp_json_set(json, "digest", json_string("sha256"));
    return json;
}

/* Whether the format is at hand with which something was made: of a user's file the same text. */
static enum tp_code recorded_format(const json_t *json, const char *name, struct tp_err *err)
{
    const struct tp_format *format;
    const json_t *file = json_object_get(json, "format_file");
    enum tp_code code = tp_format_get(name, &format, err);
    if (code)
        return code;
    if (!format) {
        tp_err_hint(err, "--format-file FILE gives the file of a format");
        return tp_fail(err, TP_E_UNSUPPORTED, "the format '%s' is not known here: nothing can be "
                       "made in it again", name);
    }
    json_t *own = tp_format_is_added(format) ? file_json(format) : NULL;
    bool same = file ? own && json_equal(own, file) : !own;
    json_decref(own);
    if (same)
        return TP_OK;
    tp_err_hint(err, "--format-file FILE with the file that it was made with");
    return tp_fail(err, TP_E_UNSUPPORTED, "the file of format '%s' is another one than that which "
                   "it was made with", name);
}

static enum tp_code parse_rule(struct tp_request *request, const json_t *json, size_t index,
                               struct tp_err *err)
{
    const char *match = json_string_value(json_object_get(json, "match"));
    const char *to = json_string_value(json_object_get(json, "to"));
    struct tp_pattern_origin origin = {"the recorded request: \"rules\"", (long)index, TP_E_INPUT};
    struct tp_rule *rule;
    enum tp_code code = add_rule(request, match && *match ? match : NULL, origin, &rule, err);
    if (code)
        return code;
    rule->optional = true; /* that it matches was checked when it was recorded */
    if (!to)
        return TP_OK;
    if ((code = read_plain(json, rule, err)) || (code = recorded_format(json, to, err)) ||
        (code = set_format(rule, to, err)) || (code = rule_settings(json, rule, err)) ||
        (code = parse_search(request, json, rule, err)))
        return code;
    if (!json_is_true(json_object_get(json, "follows")))
        rule->set = UINT32_MAX; /* what it does not say did not follow the source */
    return TP_OK;
}

/* "include" or "exclude". */
static enum tp_code parse_patterns(struct tp_request *request, const json_t *json,
                                   struct tp_pattern **list, size_t *count, const char *place,
                                   struct tp_err *err)
{
    enum tp_code code = TP_OK;
    size_t i;
    json_t *item;
    json_array_foreach(json, i, item)
        if (code == TP_OK && json_is_string(item))
            code = add_pattern(request, list, count, json_string_value(item),
                               (struct tp_pattern_origin){place, (long)i, TP_E_INPUT}, err);
    return code;
}

/* What would be wrong on a command line is a fault of the file that it was read from. */
static enum tp_code fail_recorded(const struct tp_err *why, struct tp_err *err)
{
    if (why->code != TP_E_USAGE) {
        *err = *why;
        return why->code;
    }
    tp_err_hint(err, "the file is damaged, or of a newer tilepack: 'tilepack verify' without "
                     "--against tells");
    return tp_fail(err, TP_E_INPUT, "the recorded request is none that there is: %s", why->what);
}

static enum tp_code parse_recorded(const char *text, struct tp_request *request,
                                   struct tp_err *err)
{
    uint64_t before = tp_json_failures();
    json_t *json = tp_json_load(text, strlen(text), NULL);
    enum tp_code code = TP_OK;
    size_t i;
    json_t *item;
    memset(request, 0, sizeof *request);
    request->recorded = true;
    if (!json_is_object(json))
        code = tp_fail(err, TP_E_INPUT, "the recorded request is not valid JSON");
    json_array_foreach(json_object_get(json, "rules"), i, item)
        if (code == TP_OK)
            code = parse_rule(request, item, i, err);
    if (code == TP_OK)
        code = parse_patterns(request, json_object_get(json, "include"), &request->include,
                              &request->include_count, "the recorded request: \"include\"", err);
    if (code == TP_OK)
        code = parse_patterns(request, json_object_get(json, "exclude"), &request->exclude,
                              &request->exclude_count, "the recorded request: \"exclude\"", err);
    if (code == TP_OK) /* true is no list */
        code = parse_patterns(request, json_object_get(json, "weights_only"), &request->unscale,
                              &request->unscale_count, "the recorded request: \"weights_only\"",
                              err);
    if (code == TP_OK)
        code = parse_model(request, json_object_get(json, "model"), err);
    if (code == TP_OK)
        code = tp_request_stacks(request, json_string_value(json_object_get(json, "stacks")), err);
    const char *plain = json_string_value(json_object_get(json, "plain"));
    request->plain = !plain || strcmp(plain, "keep") != 0; /* 0.2.0 quantized what it found plain */
    request->merged = json_is_true(json_object_get(json, "merged"));
    request->no_stack = json_is_true(json_object_get(json, "no_stack"));
    request->keep_nonfinite = json_is_true(json_object_get(json, "keep_nonfinite"));
    request->requantize = json_is_true(json_object_get(json, "requantize"));
    request->weights_only = json_is_true(json_object_get(json, "weights_only"));
    request->repack_only = json_is_true(json_object_get(json, "repack_only"));
    const char *restore = json_string_value(json_object_get(json, "restore"));
    request->restore = restore != NULL;
    request->dtype = restore ? tp_dtype_parse(restore, strlen(restore)) : TP_DTYPE_NONE;
    request->shard_size = (uint64_t)json_integer_value(json_object_get(json, "shard_size"));
    request->digests = json_object_get(json, "digest") != NULL;
    json_decref(json);
    return tp_json_check(before, code, err);
}

enum tp_code tp_request_parse(const char *text, struct tp_request *request, struct tp_err *err)
{
    struct tp_err why = {0};
    if (parse_recorded(text, request, &why) == TP_OK)
        return TP_OK;
    tp_request_close(request);
    return fail_recorded(&why, err);
}

enum tp_code tp_request_importance(struct tp_request *request, const char *path,
                                   struct tp_err *err)
{
    bool wanted = false;
    for (size_t i = 0; i < request->rule_count; i++)
        wanted |= request->rules[i].search.importance == TP_IMPORTANCE_FILE;
    if (!wanted)
        return TP_OK;
    const char *opened = path ? path : request->importance_path;
    enum tp_code code = tp_importance_open(opened, &request->importance, err);
    return code ? code : tp_request_input(request, opened, err);
}

void tp_request_close(struct tp_request *request)
{
    for (size_t i = 0; i < request->rule_count; i++)
        tp_pattern_free(&request->rules[i].pattern);
    for (size_t i = 0; i < request->include_count; i++)
        tp_pattern_free(&request->include[i]);
    for (size_t i = 0; i < request->exclude_count; i++)
        tp_pattern_free(&request->exclude[i]);
    for (size_t i = 0; i < request->unscale_count; i++)
        tp_pattern_free(&request->unscale[i]);
    tp_matcher_close(&request->matcher);
    tp_importance_close(request->importance);
    if (request->models.own) {
        tp_model_close((struct tp_model *)(uintptr_t)request->models.own);
        free((void *)(uintptr_t)request->models.own);
    }
    for (size_t i = 0; i < request->input_count; i++)
        free(request->inputs[i]);
    free(request->inputs);
    free(request->importance_path);
    free(request->rules);
    free(request->include);
    free(request->exclude);
    free(request->unscale);
    memset(request, 0, sizeof *request);
}
