/* The list of modules that are not quantized.
 *
 * A reader builds a quantized layer wherever no list says otherwise, and copies a plain weight
 * into it in silence or stops; so the list has every kept layer under every name that a reader
 * may ask for. Invariant: no entry stands there twice, and none stands for a converted weight.
 */
#include "pack/plan/file/kept_list.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/file/renamed.h"
#include "pack/plan/unit/build.h"
#include "pack/text/name_set.h"
#include "pack/text/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lister {
    const struct tp_plan *plan;
    const struct tp_model_facts *facts;
    enum tp_kept_form form;
    json_t *list;
    struct tp_names names; /* of the list */
    struct tp_name_key *packed; /* sorted: the weights that are packed; where there are stacks */
    size_t packed_count;
    struct tp_text text;   /* of the name that is being made */
    struct tp_err *err;
};

static enum tp_code add(struct lister *l, const char *name, size_t size)
{
    uint32_t number;
    if (tp_names_find(&l->names, name, size) >= 0)
        return TP_OK;
    json_t *text = json_stringn(name, size);
    if (!text || json_array_append_new(l->list, text))
        return tp_fail(l->err, TP_E_MEMORY, "out of memory for config.json");
    return tp_names_add(&l->names, json_string_value(text), size, &number, l->err);
}

static enum tp_code add_text(struct lister *l)
{
    return add(l, l->text.data, l->text.size);
}

static enum tp_code add_name(void *state, const char *name, size_t size)
{
    return add(state, name, size);
}

/* The module under its own name and under those that readers give it. */
static enum tp_code add_module(struct lister *l, const char *name, size_t size)
{
    enum tp_code code = add(l, name, size);
    return code || l->form == TP_KEPT_OWN
               ? code
               : tp_each_renamed(l->facts, name, size, add_name, l, l->err);
}

/* Whether the tensor is kept as a weight of its own: not a part of a packed one. */
static const struct tp_tensor *kept_weight(const struct tp_plan *plan, size_t k)
{
    const struct tp_kept *kept = &plan->kept[k];
    return kept->reason && kept->unit == UINT32_MAX ? &plan->ckpt->tensors[kept->tensor] : NULL;
}

static void list_packed(struct lister *l, const struct tp_unit *units, size_t count)
{
    for (size_t u = 0; u < count; u++)
        if (units[u].form->format)
            l->packed[l->packed_count++] = (struct tp_name_key){.name = units[u].name};
}

/* Before they are first asked for; most models keep no stack, and no part of a set. */
static enum tp_code sort_packed(struct lister *l)
{
    if (l->packed)
        return TP_OK;
    size_t count = l->plan->unit_count + l->plan->kept_unit_count;
    l->packed = tp_os_alloc(count * sizeof *l->packed, l->err);
    if (!l->packed)
        return TP_E_MEMORY;
    list_packed(l, l->plan->units, l->plan->unit_count);
    list_packed(l, l->plan->kept_units, l->plan->kept_unit_count);
    tp_names_sort(l->packed, l->packed_count);
    return TP_OK;
}

/* The same of a module with its whole path: asked for each stack of many. */
static bool packs_in(const struct lister *l, const char *module, size_t size)
{
    return tp_names_sorted_have(l->packed, l->packed_count, module, size, '.') ||
           tp_names_sorted_have(l->packed, l->packed_count, module, size, '\0');
}

/* Whether the model has that part of the set, plain or packed. */
static bool has_part(const struct lister *l, const char *name, const struct tp_fused_name *fused,
                     size_t part, char text[TP_FULL_NAME])
{
    int size = snprintf(text, TP_FULL_NAME, "%.*s%s.weight", (int)fused->module, name,
                        fused->set->part[part]);
    return size >= TP_FULL_NAME || tp_checkpoint_find(l->plan->ckpt, text) ||
           packs_in(l, text, tp_name_base(text));
}

/* The matrix that readers make of the set of which the kept weight is the first part: they may
 * know no parts of it. None, where some part is packed. */
static enum tp_code add_merged(struct lister *l, const char *name,
                               const struct tp_fused_name *fused)
{
    char text[TP_FULL_NAME];
    for (size_t p = 0; p < fused->set->parts; p++)
        if (snprintf(text, sizeof text, "%.*s%s", (int)fused->module, name,
                     fused->set->part[p]) < (int)sizeof text &&
            packs_in(l, text, strlen(text)))
            return TP_OK;
    if (fused->part || !fused->set->engines)
        return TP_OK;
    int size = snprintf(text, sizeof text, "%.*s%s", (int)fused->module, name,
                        fused->set->engines);
    return size < (int)sizeof text ? add_module(l, text, (size_t)size) : TP_OK;
}

/* What the model lacks of the set that the kept weight is of: readers that merge it ask for all
 * of its parts by their names (v_proj, where keys serve as values). One part alone is no set. */
static enum tp_code add_absent(struct lister *l, const char *name)
{
    char text[TP_FULL_NAME];
    struct tp_fused_name fused;
    struct tp_expert_name expert;
    size_t parts = 0;
    if (l->form == TP_KEPT_OWN || tp_name_expert(l->facts, name, &expert) ||
        !tp_name_fused(l->facts, name, text, sizeof text, &fused))
        return TP_OK;
    enum tp_code code = sort_packed(l);
    for (size_t p = 0; p < fused.set->parts && code == TP_OK; p++)
        parts += has_part(l, name, &fused, p, text);
    if (parts > 1 && code == TP_OK)
        code = add_merged(l, name, &fused);
    for (size_t p = 0; p < fused.set->parts && parts > 1 && code == TP_OK; p++)
        if (!has_part(l, name, &fused, p, text))
            code = add_module(l, text, tp_name_base(text));
    return code;
}

static enum tp_code add_linears(struct lister *l)
{
    enum tp_code code = TP_OK;
    for (size_t k = 0; k < l->plan->kept_count && code == TP_OK; k++) {
        const struct tp_tensor *tensor = kept_weight(l->plan, k);
        struct tp_stack_name stack;
        if (!tensor || tensor->rank != 2 || tp_name_stack(l->facts, tensor->name, &stack))
            continue;
        size_t base_length = tp_name_base(tensor->name);
        if (tensor->name[base_length] &&
            (code = add_module(l, tensor->name, base_length)) == TP_OK)
            code = add_absent(l, tensor->name);
    }
    return code;
}

/* What engines call the module of the experts, into `text`. */
static enum tp_code experts_module(struct lister *l, const struct tp_tensor *tensor,
                                   const struct tp_stack_name *stack)
{
    l->text.size = 0;
    size_t own = stack->is->engines ? stack->module : stack->prefix;
    enum tp_code code = tp_text_add(&l->text, tensor->name, own, l->err);
    return code || !stack->is->engines ? code
                                       : tp_text_add_word(&l->text, stack->is->engines, l->err);
}

/* The last two segments: "mlp.experts". */
static const char *tail_of(const char *name, size_t size)
{
    size_t dots = 0, at = size;
    while (at > 0 && (dots += name[at - 1] == '.') < 2)
        at--;
    return name + at;
}

static bool is_in_any(const struct tp_unit *units, size_t count, const char *run, size_t size)
{
    for (size_t u = 0; u < count; u++) {
        const char *name = units[u].name;
        for (const char *at = name; units[u].form->format && (at = strstr(at, run)); at++)
            if ((at == name || at[-1] == '.') && (at[size] == '.' || at[size] == '\0'))
                return true;
    }
    return false;
}

/* Whether a weight that is packed has that run of segments in its name. */
static bool packs_some(const struct tp_plan *plan, const char *run, size_t size)
{
    return is_in_any(plan->units, plan->unit_count, run, size) ||
           is_in_any(plan->kept_units, plan->kept_unit_count, run, size);
}

/* From the segment before the first number: what comes before it readers rename. */
static const char *from_layer(const char *name, size_t size)
{
    const char *segment = name, *before = name;
    for (const char *end = name + size; segment < end; before = segment, segment++) {
        if (isdigit((unsigned char)*segment))
            return before;
        const char *last = segment;
        segment = memchr(segment, '.', (size_t)(end - segment));
        if (!segment)
            break;
        if (isdigit((unsigned char)segment[1]))
            return last;
    }
    return name;
}

/* "re:.*mlp[.]experts[.].*": readers ask for PREFIX.experts.0.gate_proj and its like. */
static enum tp_code add_expression(struct lister *l, const char *from, const char *end)
{
    char *module = tp_os_join(l->err, from, (size_t)(end - from), "");
    enum tp_code code = module ? TP_OK : TP_E_MEMORY;
    l->text.size = 0;
    if (code == TP_OK)
        code = tp_text_add_word(&l->text, "re:.*", l->err);
    for (const char *at = module; code == TP_OK && *at; at++)
        code = *at == '.' ? tp_text_add_word(&l->text, "[.]", l->err)
                          : tp_text_add(&l->text, at, 1, l->err);
    if (code == TP_OK && (code = tp_text_add_word(&l->text, "[.].*", l->err)) == TP_OK)
        code = add_text(l);
    free(module);
    return code;
}

/* Before their names are made, which would take many times as much memory. */
static enum tp_code too_many(const struct lister *l, const struct tp_tensor *tensor,
                             uint64_t experts)
{
    tp_err_tensor(l->err, tensor->name);
    tp_err_hint(l->err, "convert the stack, too");
    return tp_fail(l->err, TP_E_UNSUPPORTED, "it is kept beside a stack that is packed, and the "
                   "names of its %llu experts would make config.json larger than the limit of %llu "
                   "bytes", (unsigned long long)experts, (unsigned long long)TP_CONFIG_MAX_BYTES);
}

/* The matrices of the stack as if they were written one by one, which is how readers ask. */
static enum tp_code add_experts(struct lister *l, const struct tp_tensor *tensor, bool gate_up)
{
    static const char *const labels[] = {"gate_proj", "up_proj", "down_proj"};
    uint64_t experts = tensor->rank == 3 && tensor->bytes ? tensor->shape[0] : 0;
    if (experts > TP_CONFIG_MAX_BYTES / (l->text.size + sizeof "\"..down_proj\","))
        return too_many(l, tensor, experts);
    char *module = tp_os_join(l->err, l->text.data, l->text.size, "");
    enum tp_code code = module ? TP_OK : TP_E_MEMORY;
    for (uint64_t e = 0; e < experts && code == TP_OK; e++)
        for (size_t i = gate_up ? 0 : 2; i < (gate_up ? 2u : 3u) && code == TP_OK; i++) {
            char *name = tp_os_format(l->err, "%s.%llu.%s", module, (unsigned long long)e,
                                      labels[i]);
            code = name ? add_module(l, name, strlen(name)) : TP_E_MEMORY;
            free(name);
        }
    free(module);
    return code;
}

/* A stack beside a packed one of the same experts: the name of their module is that of both. */
static enum tp_code add_half(struct lister *l, const struct tp_tensor *tensor,
                             const struct tp_stack_name *stack)
{
    enum tp_code code = add(l, tensor->name, tp_name_base(tensor->name));
    return code || l->form == TP_KEPT_OWN ? code : add_experts(l, tensor, stack->gate_up);
}

static enum tp_code add_stack(struct lister *l, const struct tp_tensor *tensor,
                              const struct tp_stack_name *stack)
{
    enum tp_code code = sort_packed(l);
    if (code == TP_OK)
        code = experts_module(l, tensor, stack);
    if (code == TP_OK && packs_in(l, l->text.data, l->text.size))
        return add_half(l, tensor, stack);
    if (code || l->form != TP_KEPT_CT)
        return code ? code : add_text(l);
    const char *name = l->text.data, *end = name + l->text.size;
    const char *tail = tail_of(name, l->text.size);
    return add_expression(l, packs_some(l->plan, tail, (size_t)(end - tail))
                                 ? from_layer(name, l->text.size) : tail, end);
}

static enum tp_code add_stacks(struct lister *l)
{
    enum tp_code code = TP_OK;
    for (size_t k = 0; k < l->plan->kept_count && code == TP_OK; k++) {
        const struct tp_tensor *tensor = kept_weight(l->plan, k);
        struct tp_stack_name stack;
        if (tensor && tensor->rank >= 2 && tp_name_stack(l->facts, tensor->name, &stack))
            code = add_stack(l, tensor, &stack);
    }
    return code;
}

static bool is_head(const struct tp_unit *unit)
{
    return unit->use == TP_USE_HEAD && unit->form->format;
}

bool tp_packs_head(const struct tp_plan *plan)
{
    bool packs = false;
    for (size_t u = 0; u < plan->unit_count && !packs; u++)
        packs = is_head(&plan->units[u]);
    for (size_t u = 0; u < plan->kept_unit_count && !packs; u++)
        packs = is_head(&plan->kept_units[u]);
    return packs;
}

/* Whatever it is called in the file, readers call it lm_head. */
static enum tp_code add_head(struct lister *l)
{
    static const char head[] = "lm_head";
    return l->form == TP_KEPT_OWN || tp_packs_head(l->plan) ? TP_OK
                                                            : add(l, head, sizeof head - 1);
}

json_t *tp_kept_list(const struct tp_plan *plan, enum tp_kept_form form, struct tp_err *err)
{
    struct lister l = {.plan = plan, .facts = &plan->weights->facts, .form = form,
                       .list = json_array(), .err = err};
    enum tp_code code = add_linears(&l);
    if (code == TP_OK && (code = add_stacks(&l)) == TP_OK)
        code = add_head(&l);
    free(l.packed);
    tp_names_close(&l.names);
    tp_text_free(&l.text);
    if (code) {
        json_decref(l.list);
        l.list = NULL;
    }
    return l.list;
}
