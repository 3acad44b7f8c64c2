/* Names of tensors, by what the files of models say of them. The model's own file is asked
 * first, then the default; in a file the first entry that fits counts.
 *
 * Nothing here decides bytes; it decides only which weights are taken by default
 * and which belong together. --include and --exclude overrule the first.
 */
#include "pack/model/model_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* How long the name is without that end; nothing is left of it: the whole name. */
static size_t base_length(const char *name, const char *end)
{
    size_t size = strlen(name), cut = strlen(end);
    return size > cut && strcmp(name + size - cut, end) == 0 ? size - cut : size;
}

size_t tp_name_base(const char *name)
{
    return base_length(name, ".weight");
}

size_t tp_name_bias_base(const char *name)
{
    size_t size = base_length(name, ".bias");
    return name[size] ? size : base_length(name, "_bias");
}

/* The last segment of a name, ".weight" taken away; *size is its length. */
static const char *last_segment(const char *name, size_t *size)
{
    size_t end = tp_name_base(name), start = end;
    while (start > 0 && name[start - 1] != '.')
        start--;
    *size = end - start;
    return name + start;
}

/* The entry of one file that keeps the module, or NULL: of those that match at the first segment,
 * the first one. */
static const struct tp_model_keep *find_keep(const struct tp_model_facts *facts, size_t m,
                                             const char *module, size_t size)
{
    const struct tp_model *model = facts->model[m];
    const uint64_t pairs = tp_module_pairs(module, size);
    const struct tp_model_keep *found = NULL;
    const char *first = NULL;
    for (const struct tp_model_keep *keep = model->keep; keep < model->keep + model->keeps; keep++)
        for (size_t p = 0; p < keep->modules && !(keep->unknown && facts->known); p++) {
            const char *at = tp_module_find(&keep->module[p], module, size, pairs);
            if (at && (!found || at < first)) {
                found = keep;
                first = at;
            }
        }
    return found;
}

bool tp_name_kept(const struct tp_model_facts *facts, const char *name, struct tp_kept_name *out)
{
    struct tp_stack_name stack;
    size_t size = tp_name_base(name);
    *out = (struct tp_kept_name){0};
    if (tp_name_stack(facts, name, &stack)) {
        out->why = stack.is->kept;
        return out->why != NULL;
    }
    if (!name[size]) {
        out->why = "not a linear layer's weight (its name does not end in .weight)";
        return true;
    }
    for (size_t m = 0; m < facts->count; m++) {
        if (tp_modules_match(facts->model[m]->convert, facts->model[m]->converts, name, size))
            return false;
        const struct tp_model_keep *keep = find_keep(facts, m, name, size);
        if (!keep)
            continue;
        *out = (struct tp_kept_name){.why = keep->why};
        return true;
    }
    return false;
}

bool tp_name_integers(const struct tp_model_facts *facts, const char *name)
{
    for (size_t m = 0; m < facts->count; m++)
        if (tp_modules_match(facts->model[m]->integer, facts->model[m]->integers, name,
                             strlen(name)))
            return true;
    return false;
}

static const struct tp_model_keep *keep_of(const struct tp_model_facts *facts, const char *module)
{
    const struct tp_model_keep *keep = NULL;
    for (size_t m = 0; m < facts->count && !keep; m++)
        keep = find_keep(facts, m, module, strlen(module));
    return keep;
}

bool tp_name_plain(const struct tp_model_facts *facts, const char *module)
{
    const struct tp_model_keep *keep = keep_of(facts, module);
    return keep && keep->plain;
}

/* Which matrix of an expert is called so; false: none. */
static bool find_matrix(const struct tp_model_facts *facts, const char *label, size_t size,
                        enum tp_expert_matrix *matrix)
{
    for (size_t m = 0; m < facts->count; m++)
        for (size_t set = 0; set < facts->model[m]->label_sets; set++)
            for (int i = 0; i < TP_EXPERT_MATRICES; i++) {
                const char *text = facts->model[m]->labels[set].matrix[i];
                *matrix = (enum tp_expert_matrix)i;
                if (text && strncmp(text, label, size) == 0 && !text[size])
                    return true;
            }
    return false;
}

bool tp_name_expert(const struct tp_model_facts *facts, const char *name,
                    struct tp_expert_name *out)
{
    const char *at = NULL, *next = name;
    while ((next = strstr(next, ".experts."))) /* the last one counts */
        at = next++;
    if (!at && strncmp(name, "experts.", 8) == 0)
        at = name - 1;
    if (!at || !isdigit((unsigned char)at[9]))
        return false;
    const char *digit = at + 9;
    out->prefix = (size_t)(at + 8 - name);
    out->expert = 0;
    for (; isdigit((unsigned char)*digit); digit++) {
        if (out->expert > 1000000)
            return false;
        out->expert = out->expert * 10 + (uint64_t)(*digit - '0');
    }
    if (*digit != '.' || (at[9] == '0' && digit != at + 10)) /* "07" is not how it is written */
        return false;
    out->label = digit + 1;
    out->label_size = strcspn(out->label, ".");
    const char *rest = out->label + out->label_size;
    return (!*rest || strcmp(rest, ".weight") == 0 || strcmp(rest, ".bias") == 0) &&
           find_matrix(facts, out->label, out->label_size, &out->matrix);
}

enum tp_use tp_name_use(const struct tp_model_facts *facts, const char *module)
{
    struct tp_expert_name expert;
    if (tp_name_expert(facts, module, &expert))
        return TP_USE_EXPERTS;
    const struct tp_model_keep *keep = keep_of(facts, module);
    return keep && keep->head        ? TP_USE_HEAD
           : keep && keep->embedding ? TP_USE_EMBEDDING
                                     : TP_USE_LINEAR;
}

static bool stack_of(const struct tp_model_stack *stack, const char *name, size_t size,
                     struct tp_stack_name *out)
{
    size_t length = strlen(stack->name);
    if (size < length || memcmp(name + size - length, stack->name, length) != 0 ||
        (size > length && name[size - length - 1] != '.'))
        return false;
    out->module = size - length;
    out->prefix = out->module + (size_t)(strrchr(stack->name, '.') - stack->name);
    out->gate_up = stack->gate_up;
    out->is = stack;
    return true;
}

bool tp_name_stack(const struct tp_model_facts *facts, const char *name,
                   struct tp_stack_name *out)
{
    size_t size = tp_name_base(name);
    for (size_t m = 0; m < facts->count; m++)
        for (size_t s = 0; s < facts->model[m]->stacks; s++)
            if (stack_of(&facts->model[m]->stack[s], name, size, out))
                return true;
    return false;
}

/* The set of one file that the segment is a part of, and which part, or NULL. */
static const struct tp_model_fused *find_fused(const struct tp_model *model, const char *label,
                                               size_t length, size_t *part)
{
    for (size_t f = 0; f < model->fuseds; f++)
        for (*part = 0; *part < model->fused[f].parts; ++*part) {
            const char *text = model->fused[f].part[*part];
            if (strlen(text) == length && memcmp(text, label, length) == 0)
                return &model->fused[f];
        }
    return NULL;
}

bool tp_name_fused(const struct tp_model_facts *facts, const char *name, char *key, size_t size,
                   struct tp_fused_name *out)
{
    const struct tp_model_fused *fused = NULL;
    size_t length, part = 0;
    const char *label = last_segment(name, &length);
    size_t start = (size_t)(label - name);
    for (size_t m = 0; m < facts->count && !fused; m++)
        fused = find_fused(facts->model[m], label, length, &part);
    if (!fused || start + strlen(fused->set) >= size)
        return false;
    memcpy(key, name, start);
    strcpy(key + start, fused->set);
    if (out)
        *out = (struct tp_fused_name){fused, part, start};
    return true;
}

bool tp_name_rows(const struct tp_model_facts *facts, const char *name, uint64_t rows,
                  struct tp_row_order *order)
{
    const struct tp_rows_of *of = facts->rows, *end = of + facts->row_orders;
    *order = (struct tp_row_order){0};
    while (of < end && !tp_modules_match(of->is->module, of->is->modules, name, tp_name_base(name)))
        of++;
    if (of == end || of->is->order == TP_ORDER_SOURCE)
        return true;
    const bool grouped = of->is->order == TP_ORDER_QKV_GROUPS;
    if (of->heads > UINT16_MAX || of->groups > UINT16_MAX)
        return false;
    *order = (struct tp_row_order){(uint16_t)of->is->order, (uint16_t)of->heads,
                                   grouped ? (uint16_t)of->groups : 0};
    return tp_row_order_fits(order, rows);
}

const struct tp_model_parallel *tp_name_parallel(const struct tp_model_facts *facts,
                                                 const char *name)
{
    size_t size = tp_name_base(name);
    for (size_t m = 0; m < facts->count; m++)
        for (size_t i = 0; i < facts->model[m]->parallels; i++) {
            const struct tp_model_parallel *parallel = &facts->model[m]->parallel[i];
            if (tp_modules_match(parallel->module, parallel->modules, name, size))
                return parallel;
        }
    return NULL;
}
