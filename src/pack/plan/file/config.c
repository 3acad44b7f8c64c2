/* quantization_config: what each family of readers wants, from the "config" of
 * the format files.
 *
 * Layers are listed by exact name, generated from what was really kept: the one
 * form that every reader understands. A kernel-ready format gets a quant_method
 * of our own, so that a stock loader refuses it instead of misreading it.
 */
#include "pack/plan/file/config.h"

#include "base/suffix.h"
#include "pack/engine/engine.h"
#include "pack/text/json_edit.h"
#include "pack/text/json_tree.h"
#include "pack/model/model_names.h"
#include "pack/plan/file/kept_list.h"
#include "pack/plan/file/targets.h"
#include "pack/os/os.h"
#include "pack/quantizer/quantizer.h"
#include "pack/source/source_config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Formats used by the plan, in order of first use, but one that experts have before the others:
 * transformers takes the first group for experts, whatever its targets are. */
struct used {
    const struct tp_unit *unit[TP_MAX_GROUPS]; /* one of each format and settings */
    bool experts[TP_MAX_GROUPS];               /* whether some of its weights are of experts */
    size_t count;
    uint8_t *group; /* of each unit, as tp_targets() wants it */
};

/* What the format says to readers. Of zero points and order that another tool wrote it says
 * nothing: they need not be those that are written here. */
static const json_t *config_of(const struct tp_plan *plan, const struct tp_unit *unit)
{
    bool own = unit >= plan->units && unit < plan->units + plan->unit_count;
    if (own || !(tp_op_needs(&unit->form->format->op) & TP_NEED_REFERENCE) ||
        plan->weights->items[unit->views[0].weight].origin)
        return unit->form->format->config;
    return NULL;
}

/* Whether the format has words for activation scales, and the weight has some. */
static bool names_inputs(const struct tp_unit *unit)
{
    return unit->form->inputs && json_object_get(unit->form->format->config, "inputs");
}

/* What the format says otherwise of experts without such scales, or NULL. */
static const json_t *expert_words(const struct tp_plan *plan, const struct tp_unit *unit)
{
    struct tp_expert_name expert;
    const json_t *words = json_object_get(unit->form->format->config, "experts");
    return words && !names_inputs(unit) &&
           tp_name_expert(&plan->weights->facts, unit->name, &expert) ? words : NULL;
}

/* Whether both are described by the same words: settings that decide only how the
 * bytes came about do not show in the config. */
static bool same(const struct tp_plan *plan, const struct tp_unit *a, const struct tp_unit *b)
{
    if (a->form->format != b->form->format || names_inputs(a) != names_inputs(b) ||
        expert_words(plan, a) != expert_words(plan, b) ||
        a->form->ordered != b->form->ordered || a->form->version2 != b->form->version2)
        return false;
    for (uint32_t p = 0; p < a->form->format->params; p++) {
        const struct tp_param *param = &a->form->format->param[p];
        const json_t *x = param->config[a->form->settings.choice[p]];
        const json_t *y = param->config[b->form->settings.choice[p]];
        if (x != y && !(x && y && json_equal(x, y)))
            return false;
    }
    return true;
}

static enum tp_code collect_from(const struct tp_plan *plan, const struct tp_unit *units,
                                 size_t count, uint8_t *group, struct used *used,
                                 struct tp_err *err)
{
    for (size_t u = 0; u < count; u++) {
        const struct tp_unit *unit = &units[u];
        struct tp_expert_name expert;
        size_t i = 0;
        group[u] = TP_NO_GROUP;
        if (!unit->form->format || unit->form->format->is_bias)
            continue;
        while (i < used->count && !same(plan, used->unit[i], unit))
            i++;
        if (i == TP_MAX_GROUPS)
            return tp_fail(err, TP_E_UNSUPPORTED, "more than %zu formats in one checkpoint",
                           used->count);
        group[u] = (uint8_t)i;
        if (i == used->count)
            used->unit[used->count++] = unit;
        used->experts[i] |= tp_name_expert(&plan->weights->facts, unit->name, &expert);
    }
    return TP_OK;
}

static void experts_first(struct used *used, size_t units)
{
    size_t first = 0;
    while (first < used->count && !used->experts[first])
        first++;
    if (first == used->count)
        return;
    const struct tp_unit *unit = used->unit[first];
    memmove(used->unit + 1, used->unit, first * sizeof *used->unit);
    used->unit[0] = unit;
    for (size_t u = 0; u < units; u++)
        if (used->group[u] <= first)
            used->group[u] = used->group[u] == first ? 0 : used->group[u] + 1;
}

/* Formats of what is written, and of packed weights that are copied. */
static enum tp_code collect(const struct tp_plan *plan, struct used *used, struct tp_err *err)
{
    used->group = tp_os_alloc(plan->unit_count + plan->kept_unit_count + 1, err);
    if (!used->group)
        return TP_E_MEMORY;
    enum tp_code code = collect_from(plan, plan->units, plan->unit_count, used->group, used, err);
    if (code == TP_OK)
        code = collect_from(plan, plan->kept_units, plan->kept_unit_count,
                            used->group + plan->unit_count, used, err);
    if (code == TP_OK)
        experts_first(used, plan->unit_count + plan->kept_unit_count);
    return code;
}

/* One of config_groups: what the format says, and in it what the choices say otherwise. */
static json_t *format_group(const struct tp_plan *plan, const struct tp_unit *unit)
{
    const json_t *config = unit->form->format->config;
    json_t *group = json_object();
    tp_json_set(group, "format", json_incref(json_object_get(config, "format")));
    tp_json_update(group, json_object_get(config, "group"));
    if (names_inputs(unit))
        tp_json_update(group, json_object_get(config, "inputs"));
    tp_json_update(group, expert_words(plan, unit));
    for (uint32_t p = 0; p < unit->form->format->params; p++) {
        const json_t *extra = unit->form->format->param[p].config[unit->form->settings.choice[p]];
        group = tp_json_merge(group, json_object_get(extra, "group"));
    }
    return group;
}

/* NULL with *err set: no memory. */
static json_t *compressed_tensors(const struct tp_plan *plan, const struct used *used,
                                  json_t *kept, struct tp_err *err)
{
    json_t *targets[TP_MAX_GROUPS];
    if (tp_targets(plan, used->group, used->count, targets, err))
        return NULL;
    json_t *config = json_object(), *groups = json_object();
    tp_json_set(config, "quant_method", json_string("compressed-tensors"));
    json_t *format = json_object_get(used->unit[0]->form->format->config, "format");
    tp_json_set(config, "format", used->count == 1 ? json_incref(format)
                                                           : json_string("mixed-precision"));
    tp_json_set(config, "quantization_status", json_string("compressed"));
    tp_json_set(config, "ignore", json_incref(kept));
    for (size_t i = 0; i < used->count; i++) {
        char name[32];
        json_t *group = format_group(plan, used->unit[i]);
        tp_json_set(group, "targets", targets[i]);
        snprintf(name, sizeof name, "group_%zu", i);
        tp_json_set(groups, name, group);
    }
    tp_json_set(config, "config_groups", groups);
    return config;
}

/* Whether one of the words begins there: of which no key may hold one. */
static bool begins_word(const json_t *words, const char *at)
{
    size_t i;
    json_t *word;
    json_array_foreach(words, i, word)
        if (strncmp(at, json_string_value(word), json_string_length(word)) == 0)
            return true;
    return false;
}

/* GPTQ's way to leave modules out: a pattern for each name. */
static json_t *not_these(const json_t *names, const json_t *apart)
{
    json_t *dynamic = json_object(), *name;
    size_t i;
    json_array_foreach(names, i, name)
    {
        struct tp_text text = {0};
        enum tp_code code = tp_text_add_word(&text, "-:^", NULL);
        for (const char *at = json_string_value(name); *at && code == TP_OK; at++) {
            bool plain = isalnum((unsigned char)*at) || *at == '_' || (unsigned char)*at >= 128;
            code = tp_text_addf(&text, NULL, begins_word(apart, at) ? "[%c]"
                                              : plain                ? "%c"
                                                                     : "\\%c", *at);
        }
        if (code == TP_OK && tp_text_add_word(&text, "$", NULL) == TP_OK)
            tp_json_set(dynamic, text.data, json_object());
        else
            tp_json_no_memory();
        tp_text_free(&text);
    }
    return dynamic;
}

/* Whether one of the names is of a module that readers might quantize: what they call it there may
 * be another name. */
static bool leaves_some(const struct tp_plan *plan, const json_t *kept)
{
    size_t i;
    json_t *name;
    json_array_foreach(kept, i, name)
        if (!tp_name_plain(&plan->weights->facts, json_string_value(name)))
            return true;
    return false;
}

/* Readers look for names of the file in their own, or for ends of names: with "." the first take
 * every module but those that are left out, whatever they call it. */
static json_t *everywhere(const struct tp_plan *plan)
{
    json_t *ends = json_object(), *list = json_pack("[s]", ".");
    const char *end;
    json_t *value;
    for (size_t u = 0; u < plan->unit_count; u++) {
        const char *dot = strrchr(plan->units[u].name, '.');
        if (plan->units[u].form->format)
            tp_json_set(ends, dot ? dot + 1 : plan->units[u].name, json_true());
    }
    json_object_foreach(ends, end, value)
        tp_json_append(list, json_string(end));
    json_decref(ends);
    return json_pack("[o]", list);
}

/* One method with flat fields ("fp8"): the lists of kept modules by their keys. */
static json_t *flat(const struct tp_plan *plan, const struct tp_unit *unit, json_t *kept)
{
    const json_t *facts = unit->form->format->config;
    json_t *config = json_object();
    size_t i;
    json_t *key;
    tp_json_set(config, "quant_method", json_incref(json_object_get(facts, "quant_method")));
    tp_json_update(config, json_object_get(facts, "fields"));
    for (uint32_t p = 0; p < unit->form->format->params; p++) {
        const json_t *extra = unit->form->format->param[p].config[unit->form->settings.choice[p]];
        tp_json_update(config, extra);
    }
    const char *all = json_string_value(json_object_get(facts, "everywhere"));
    if (all && plan->unit_count && !plan->kept_unit_count && !leaves_some(plan, kept))
        tp_json_set(config, all, everywhere(plan));
    if (tp_packs_head(plan))
        tp_json_update(config, json_object_get(facts, "head"));
    json_array_foreach(json_object_get(facts, "kept"), i, key)
        if (strcmp(json_string_value(key), "dynamic") == 0)
            tp_json_set(config, "dynamic", not_these(kept, json_object_get(facts, "apart")));
        else
            tp_json_set(config, json_string_value(key), json_incref(kept));
    return config;
}

/* Whether config.json alone says how wide the codes of the kept weight are. */
static bool told_by_config(const struct tp_plan *plan, const struct tp_unit *kept)
{
    return plan->weights->items[kept->views[0].weight].form->any_width;
}

/* What is still needed to read weights that were excluded and whose zero points may be stored less
 * one: its version. */
static enum tp_code add_gptq_version(const struct tp_plan *plan, json_t *config,
                                     struct tp_err *err)
{
    size_t u = 0;
    while (u < plan->kept_unit_count &&
           (!plan->kept_units[u].form->format || !plan->kept_units[u].form->op.zero_add))
        u++;
    if (u == plan->kept_unit_count)
        return TP_OK;
    json_t *source;
    enum tp_code code = tp_source_config(plan->ckpt, &source, err);
    json_t *version = json_object_get(source, "checkpoint_format");
    if (version)
        tp_json_set(config, "checkpoint_format", json_incref(version));
    json_decref(source);
    return code;
}

/* And of integers that may be of 4 bits or of 8, where 4 is what they would be taken for. Of both
 * there are none: tp_source_config_check(). */
static void add_bits(const struct tp_plan *plan, json_t *config)
{
    for (size_t u = 0; u < plan->kept_unit_count; u++)
        if (told_by_config(plan, &plan->kept_units[u]) &&
            plan->kept_units[u].form->format->bits == 8) {
            tp_json_set(config, "bits", json_integer(8));
            return;
        }
}

/* What loads it, and how that is installed: what all its formats ask for, else the package that
 * reads every format. On PyPI nobody has its name: a line that asked for it there would get what
 * anyone may put there. */
static void add_package(const struct used *used, json_t *config)
{
    const struct tp_engine *engine = NULL;
    for (size_t i = 0; i < used->count; i++) {
        const struct tp_engine *own = tp_packaged_engine(used->unit[i]->form->format->name);
        if (!own || (engine && strcmp(own->package, engine->package) != 0)) {
            engine = NULL;
            break;
        }
        engine = own;
    }
    tp_json_set(config, "requires", json_string(engine ? engine->package : "tilepack-llm"));
    tp_json_set(config, "install",
                json_string(engine && engine->install ? engine->install
                                                      : "make wheel && pip install "
                                                        "build/dist/tilepack_llm-*_$(uname -m).whl"
                                                        "  # in a checkout of tilepack"));
}

/* NULL with *err set where the source's is not to be read. */
static json_t *kernel_ready(const struct tp_plan *plan, const struct used *used, json_t *kept,
                            struct tp_err *err)
{
    json_t *config = json_object(), *formats = json_array();
    for (size_t i = 0; i < used->count; i++) {
        size_t j = 0;
        while (strcmp(used->unit[j]->form->format->name, used->unit[i]->form->format->name) != 0)
            j++;
        if (j == i)
            tp_json_append(formats, json_string(used->unit[i]->form->format->name));
    }
    tp_json_set(config, "quant_method", json_string("tilepack"));
    tp_json_set(config, "formats", formats);
    tp_json_set(config, "manifest", json_string("tilepack.json"));
    add_package(used, config);
    tp_json_set(config, "ignore", json_incref(kept));
    add_bits(plan, config);
    if (add_gptq_version(plan, config, err)) {
        json_decref(config);
        return NULL;
    }
    return config;
}

/* The scales of the KV cache are copied with the source's other tensors; so is what they are. */
static enum tp_code keep_cache_scheme(const struct tp_plan *plan, json_t *config,
                                      struct tp_err *err)
{
    static const char key[] = "kv_cache_scheme";
    json_t *source;
    enum tp_code code = tp_source_config(plan->ckpt, &source, err);
    json_t *scheme = json_object_get(source, key);
    if (json_is_object(scheme))
        tp_json_set(config, key, json_incref(scheme));
    json_decref(source);
    return code;
}

/* Whether the formats of all are of that method, those of kept weights of another tool, too. */
static bool all_of(const struct used *used, const char *method)
{
    for (size_t i = 0; i < used->count; i++) {
        const json_t *config = used->unit[i]->form->format->config;
        const char *own = json_string_value(json_object_get(config, "quant_method"));
        if (!own || strcmp(own, method) != 0)
            return false;
    }
    return true;
}

static bool has_words(const struct tp_plan *plan, const struct tp_unit *unit)
{
    return json_object_get(config_of(plan, unit), "quant_method") != NULL;
}

/* Packed weights of another tool that stay, and have no words in the description that readers of
 * what is written go by: neither those readers nor their own could read them. */
static enum tp_code keeps_unnamed(const struct tp_plan *plan, const struct used *used,
                                  struct tp_err *err)
{
    const struct tp_unit *kept = NULL, *made = NULL;
    for (size_t i = 0; i < used->count; i++) {
        const struct tp_unit *unit = used->unit[i];
        bool own = unit >= plan->units && unit < plan->units + plan->unit_count;
        if (own && !has_words(plan, unit))
            return TP_OK; /* none but a loader of one's own reads it */
        made = own ? unit : made;
        if (!own && !has_words(plan, unit) && !plan->weights->items[unit->views[0].weight].origin)
            kept = unit;
    }
    if (!kept || !made)
        return TP_OK;
    tp_err_tensor(err, kept->name);
    tp_err_hint(err, "convert it, too, or the model that the checkpoint was made of");
    return tp_fail(err, TP_E_UNSUPPORTED, "it stays packed as %s, and the quantization_config of "
                   "%s has no words for that: nobody could read it", kept->form->format->name,
                   made->form->format->name);
}

/* The value of "quantization_config" for the plan (new reference), or NULL with
 * *err set where no reader could understand the mixture of formats. */
static json_t *describe(const struct tp_plan *plan, const struct used *used, struct tp_err *err)
{
    const char *method = NULL;
    size_t interchange = 0;
    for (size_t i = 0; i < used->count; i++) {
        const json_t *config = config_of(plan, used->unit[i]);
        const char *own = json_string_value(json_object_get(config, "quant_method"));
        interchange += own != NULL;
        if (own && method && strcmp(own, method) != 0) {
            tp_err_hint(err, "convert to formats of one family: compressed-tensors (-ct), or fp8");
            tp_fail(err, TP_E_UNSUPPORTED,
                    "no reader takes \"%s\" and \"%s\" in one checkpoint (%s and %s)", method, own,
                    used->unit[0]->form->format->name, used->unit[i]->form->format->name);
            return NULL;
        }
        if (own)
            method = own;
    }
    /* One kernel-ready part keeps stock loaders out. */
    const bool groups = method && strcmp(method, "compressed-tensors") == 0;
    enum tp_kept_form form = used->count == 0 || interchange < used->count ? TP_KEPT_OWN
                             : groups                                    ? TP_KEPT_CT
                                                                         : TP_KEPT_EXACT;
    if (method && form != TP_KEPT_CT && used->count > 1 && all_of(used, method)) {
        tp_err_hint(err, "use one variant and scale for all layers");
        tp_fail(err, TP_E_UNSUPPORTED,
                "a quantization_config of method \"%s\" describes all layers alike, but these "
                "would be of %zu kinds", method, used->count);
        return NULL;
    }
    if (form == TP_KEPT_OWN && keeps_unnamed(plan, used, err))
        return NULL;
    json_t *kept = tp_kept_list(plan, form, err), *config = NULL;
    if (kept)
        config = form == TP_KEPT_OWN  ? kernel_ready(plan, used, kept, err)
                 : form == TP_KEPT_CT ? compressed_tensors(plan, used, kept, err)
                                      : flat(plan, used->unit[0], kept);
    json_decref(kept);
    if (config && form != TP_KEPT_EXACT && keep_cache_scheme(plan, config, err)) {
        json_decref(config);
        return NULL;
    }
    return config;
}

static json_t *quantization_of(const struct tp_plan *plan, struct tp_err *err)
{
    struct used used = {.count = 0};
    json_t *config = collect(plan, &used, err) ? NULL : describe(plan, &used, err);
    free(used.group);
    return config;
}

static bool changes(const struct tp_plan *plan)
{
    return plan->restores || plan->unit_count || plan->drops;
}

enum tp_code tp_config_dispensable(const struct tp_plan *plan, struct tp_err *err)
{
    for (size_t u = 0; u < plan->kept_unit_count; u++) {
        const struct tp_unit *unit = &plan->kept_units[u];
        bool wide = told_by_config(plan, unit) && unit->form->format->bits == 8;
        if (!wide && !unit->form->unversioned)
            continue;
        tp_err_tensor(err, unit->name);
        tp_err_hint(err, "write to a directory, which has a config.json, or convert the weight");
        return tp_fail(err, TP_E_UNSUPPORTED, "it is kept, and that it is of %s its config.json "
                       "alone says, which a single file has not",
                       wide ? "8 bits" : "GPTQ's second version");
    }
    return TP_OK;
}

/* Appends config.json without the quantization_config inside of text_config, which
 * engines find there too and which would be false. */
static enum tp_code add_without_nested(const struct tp_checkpoint *ckpt, struct tp_text *out,
                                       struct tp_err *err)
{
    struct tp_json_span text, nested;
    enum tp_code code = tp_source_nested_config(ckpt, &text, &nested, err);
    if (code)
        return code;
    if (!nested.data)
        return tp_text_add(out, ckpt->config, ckpt->config_size, err);
    size_t before = (size_t)(text.data - ckpt->config), behind = before + text.size;
    if ((code = tp_text_add(out, ckpt->config, before, err)) ||
        (code = tp_json_set_key(text.data, text.size, "quantization_config", NULL, out, err)))
        return code;
    return tp_text_add(out, ckpt->config + behind, ckpt->config_size - behind, err);
}

/* transformers makes a model of random values where it does not know the method: the name of a
 * file of weights that is none is where it stops, with this sentence. The package takes the key
 * out; nothing else reads it. */
static const char guard_key[] = "transformers_weights";
static const char guard[] =
    "\"packed for kernels by tilepack; to read it, import tilepack_llm.transformers first\"";

/* Sets the key in the text; of what is unpacked, or packed for other readers, it is taken out. */
static enum tp_code set_guard(struct tp_text *text, bool own, struct tp_err *err)
{
    struct tp_json_span there;
    struct tp_text done = {0};
    enum tp_code code = tp_json_get_key(text->data, text->size, guard_key, &there, err);
    bool ours = there.data && there.size == sizeof guard - 1 &&
                memcmp(there.data, guard, there.size) == 0;
    if (code || (!own && !ours))
        return code;
    code = tp_json_set_key(text->data, text->size, guard_key, own ? guard : NULL, &done, err);
    tp_text_free(text);
    *text = done;
    return code;
}

/* Sets quantization_config, or takes it out (NULL), and takes out what else is read as such. */
static enum tp_code replace_config(const struct tp_checkpoint *ckpt, const char *value,
                                   bool own, struct tp_text *out, struct tp_err *err)
{
    struct tp_text top = {0}, plain = {0};
    enum tp_code code = add_without_nested(ckpt, &top, err);
    if (!code)
        code = tp_json_set_key(top.data, top.size, TP_LEGACY_CONFIG, NULL, &plain, err);
    if (!code)
        code = set_guard(&plain, own, err);
    if (!code)
        code = tp_json_set_key(plain.data, plain.size, "quantization_config", value, out, err);
    tp_text_free(&top);
    tp_text_free(&plain);
    return code;
}

/* A copy is of packed weights, whatever state of work their tool has left behind: transformers
 * reads "frozen" otherwise. */
static enum tp_code copy_config(const struct tp_checkpoint *ckpt, struct tp_text *out,
                                struct tp_err *err)
{
    struct tp_json_span whole = {ckpt->config, ckpt->config_size}, config, status;
    enum tp_code code = tp_json_get_key(whole.data, whole.size, "quantization_config", &config,
                                        err);
    if (code || !config.data || *config.data != '{' ||
        (code = tp_json_get_inner(whole.data, config, "quantization_status", &status, err)) ||
        !status.data || status.size != 8 || memcmp(status.data, "\"frozen\"", 8) != 0)
        return code ? code : tp_text_add(out, whole.data, whole.size, err);
    size_t before = (size_t)(status.data - whole.data);
    if ((code = tp_text_add(out, whole.data, before, err)) == TP_OK &&
        (code = tp_text_add_word(out, "\"compressed\"", err)) == TP_OK)
        code = tp_text_add(out, status.data + 8, whole.size - before - 8, err);
    return code;
}

/* The value of "quantization_config" as text in fresh memory; *value NULL: there is none. *own: it
 * is of our own method. */
static enum tp_code value_of(const struct tp_plan *plan, char **value, bool *own,
                             struct tp_err *err)
{
    *value = NULL;
    *own = false;
    if (plan->restores)
        return TP_OK;
    json_t *config = quantization_of(plan, err);
    if (!config)
        return err->code;
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    *own = method && strcmp(method, "tilepack") == 0;
    *value = tp_json_dump(config, JSON_INDENT(2));
    json_decref(config);
    return *value ? TP_OK : tp_fail(err, TP_E_MEMORY, "out of memory for config.json");
}

enum tp_code tp_config_text(const struct tp_plan *plan, struct tp_text *text, struct tp_err *err)
{
    char *value = NULL;
    bool own;
    if (!plan->ckpt->config)
        return TP_OK;
    if (!changes(plan)) /* nor does what describes it */
        return copy_config(plan->ckpt, text, err);
    enum tp_code code = value_of(plan, &value, &own, err);
    if (code)
        return code;
    code = replace_config(plan->ckpt, value, own, text, err);
    free(value);
    if (code == TP_OK && text->size > TP_CONFIG_MAX_BYTES) {
        tp_err_hint(err, "convert the modules that it would list as not quantized, too, or "
                         "shorten what else is in it");
        code = tp_fail(err, TP_E_UNSUPPORTED, "with its new quantization_config it would have %zu "
                       "bytes, more than the limit of %llu", text->size,
                       (unsigned long long)TP_CONFIG_MAX_BYTES);
    }
    if (code)
        tp_source_config_path(plan->ckpt, err);
    return code;
}

/* The quantizer whose file that is, while the plan changes what it describes; or NULL. */
static const struct tp_quantizer *described_in(const struct tp_plan *plan, const char *name)
{
    size_t count = 0;
    const struct tp_quantizer *const *all = changes(plan) ? tp_quantizers(&count) : NULL;
    for (size_t q = 0; all && q < count; q++)
        if (all[q]->file && strcmp(all[q]->file, name) == 0)
            return all[q];
    return NULL;
}

bool tp_config_leaves_out(const struct tp_plan *plan, const char *name)
{
    const struct tp_quantizer *q = described_in(plan, name);
    struct tp_side_file side;
    struct tp_err none = {0};
    if (!q || !q->file_says_more)
        return q != NULL;
    tp_source_side_file(plan->ckpt, q, &side, &none);
    free(side.text);
    return side.broken;
}

enum tp_code tp_config_edit(const struct tp_plan *plan, const char *name, struct tp_text *text,
                            struct tp_err *err)
{
    const struct tp_quantizer *q = described_in(plan, name);
    struct tp_side_file side;
    char *value = NULL;
    bool own;
    if (!q || !q->file_says_more)
        return TP_OK;
    enum tp_code code = tp_source_side_file(plan->ckpt, q, &side, err);
    if (code == TP_OK && side.value.data && (code = value_of(plan, &value, &own, err)) == TP_OK)
        code = tp_json_set_key(side.text, side.size, q->file_key, value, text, err);
    free(value);
    free(side.text);
    return code;
}

enum tp_code tp_config_check(const struct tp_plan *plan, struct tp_err *err)
{
    struct tp_text text = {0};
    enum tp_code code = tp_config_text(plan, &text, err);
    tp_text_free(&text);
    return code;
}
