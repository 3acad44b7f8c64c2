/* Weights that are converted all or none: q/k/v and gate/up, which engines load as one matrix,
 * and the experts of one layer where they are written one by one.
 *
 * Invariant: when it is done, no chosen weight of such a set breaks what its format needs, or
 * what the format's reader needs of parts that it merges.
 */
#include "pack/plan/unit/build.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/text/name_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The sets with a member that cannot be converted. They take the other members along. */
struct unsuited {
    uint8_t *fault;       /* enum fault, of each weight */
    struct tp_names keys;
    uint32_t *member;     /* of each key: the first such member and one */
    size_t capacity;
};
/* What speaks against a weight by itself. */
enum fault { FITS, BREAKS_NEED, BREAKS_MERGE };

static const struct tp_model_facts *facts_of(const struct tp_builder *b)
{
    return &b->plan->weights->facts;
}

/* Whether it is a stack that will be written expert by expert. */
static bool is_split(const struct tp_builder *b, uint32_t w, struct tp_stack_name *stack)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    return weight->form->rank == 3 && !weight->form->interleaved && !b->request->no_stack &&
           b->choices[w].rule->format->experts == TP_EXPERTS_SPLIT &&
           tp_name_stack(facts_of(b), weight->name, stack) && !stack->is->kept;
}

/* The size of one weight that is written. */
static struct tp_box3 written_box(const struct tp_builder *b, uint32_t w)
{
    struct tp_stack_name stack;
    struct tp_box3 box = tp_weight_at(b, w)->form->box;
    if (!is_split(b, w, &stack))
        return box;
    if (tp_plan_is_gated(tp_weight_at(b, w), &stack))
        box.n /= 2;
    return (struct tp_box3){1, box.n, box.k};
}

static bool breaks_need(const struct tp_builder *b, uint32_t w)
{
    const struct tp_rule *rule = b->choices[w].rule;
    struct tp_stack_name stack;
    bool stacked = rule && tp_weight_at(b, w)->form->rank == 3 && !is_split(b, w, &stack);
    return rule &&
           tp_format_broken_need(rule->format, &rule->settings, written_box(b, w), stacked);
}

/* Rows of the parts but the last of a module that is merged in the file already: *rows are
 * those of one, *others of the next. False: config.json does not tell. */
static bool merged_rows(const struct tp_builder *b, enum tp_merged_parts parts, uint64_t n,
                        uint64_t rows[2])
{
    const struct tp_model_facts *facts = facts_of(b);
    uint64_t heads = facts->heads + 2 * facts->kv_heads;
    if (parts == TP_MERGED_HALVES || parts == TP_MERGED_THIRDS) {
        uint64_t count = parts == TP_MERGED_HALVES ? 2 : 3;
        rows[0] = rows[1] = n / count;
        return n % count == 0;
    }
    if (!heads || facts->heads > n || facts->kv_heads > n || n % heads)
        return false;
    rows[0] = n / heads * (parts == TP_MERGED_QKV ? facts->heads : 1);
    rows[1] = n / heads * (parts == TP_MERGED_QKV ? facts->kv_heads : 1);
    return true;
}

static const struct tp_model_merged *find_merged(const struct tp_builder *b, const char *module)
{
    const struct tp_model_facts *facts = facts_of(b);
    for (size_t m = 0; m < facts->count; m++)
        for (size_t i = 0; i < facts->model[m]->mergeds; i++)
            if (tp_modules_match(&facts->model[m]->merged[i].module, 1, module, strlen(module)))
                return &facts->model[m]->merged[i];
    return NULL;
}

/* The rows of all parts of the set that there are, from that one on. */
static uint64_t rows_from(const struct tp_builder *b, const char *name,
                          const struct tp_fused_name *fused, size_t first)
{
    char part[TP_FULL_NAME];
    uint64_t rows = 0;
    for (size_t p = first; p < fused->set->parts; p++) {
        int size = snprintf(part, sizeof part, "%.*s%s.weight", (int)fused->module, name,
                            fused->set->part[p]);
        const struct tp_tensor *tensor =
            size < (int)sizeof part ? tp_checkpoint_find(b->plan->ckpt, part) : NULL;
        rows += tensor && tensor->rank ? tensor->shape[0] : 0;
    }
    return rows;
}

/* What is asked of the rows of a chosen weight that is merged, or NULL: what is packed stays so. */
static enum tp_code merge_of(struct tp_builder *b, uint32_t w, const struct tp_engine_merge **merge)
{
    const struct tp_rule *rule = b->choices[w].rule;
    *merge = NULL;
    if (!rule || b->request->merged || tp_weight_at(b, w)->form->format)
        return TP_OK;
    enum tp_code code = tp_engine_asks_of(&b->asks, facts_of(b), rule->format, b->err);
    if (code == TP_OK)
        *merge = tp_engine_merges(&b->asks, tp_weight_at(b, w)->name);
    return code;
}

/* Whether its rows, or those of a part, end where the reader cannot merge it. */
static bool breaks_merge(const struct tp_builder *b, uint32_t w, const struct tp_engine_merge *asks)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    char key[TP_FULL_NAME];
    struct tp_stack_name stack;
    struct tp_fused_name fused;
    uint64_t multiple = asks ? asks->multiple : 0, rows[2];
    if (!multiple)
        return false;
    if (asks->whole)
        return tp_name_fused(facts_of(b), weight->name, key, sizeof key, &fused) &&
               rows_from(b, weight->name, &fused, 0) % multiple;
    if (is_split(b, w, &stack))
        return tp_plan_is_gated(weight, &stack) && weight->form->box.n / 2 % multiple;
    if (weight->form->rank != 2)
        return false;
    if (tp_name_fused(facts_of(b), weight->name, key, sizeof key, &fused))
        return weight->form->box.n % multiple &&
               rows_from(b, weight->name, &fused, fused.part + 1);
    const struct tp_model_merged *merged = find_merged(b, weight->name);
    if (!merged)
        return false;
    return merged_rows(b, merged->parts, weight->form->box.n, rows) ? rows[0] % multiple ||
                                                                   rows[1] % multiple
                                                              : weight->form->box.n % multiple != 0;
}

/* The set that the weight belongs to, if any: the experts of a layer that are written one by
 * one, or what is fused. */
static bool set_key(const struct tp_builder *b, uint32_t w, char key[TP_FULL_NAME])
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    struct tp_expert_name expert;
    struct tp_stack_name stack;
    size_t prefix;
    if (!b->choices[w].rule || tp_plan_is_bias(weight))
        return false;
    if (is_split(b, w, &stack))
        prefix = stack.prefix;
    else if (weight->form->rank == 2 && b->choices[w].rule->format->experts == TP_EXPERTS_SPLIT &&
             tp_name_expert(facts_of(b), weight->name, &expert))
        prefix = expert.prefix;
    else
        return weight->form->rank == 2 &&
               tp_name_fused(facts_of(b), weight->name, key, TP_FULL_NAME, NULL);
    if (prefix >= TP_FULL_NAME)
        return false;
    memcpy(key, weight->name, prefix);
    key[prefix] = '\0';
    return true;
}

/* What follows its source does so as a set, or not at all: then its weights are refused. */
static enum tp_code agree(struct tp_builder *b)
{
    uint32_t total = (uint32_t)b->plan->weights->count, number = 0;
    struct tp_names keys = {0};
    char key[TP_FULL_NAME];
    struct tp_rule **rules = NULL;
    size_t capacity = 0;
    enum tp_code code = TP_OK;
    for (uint64_t i = 0; total && i < 2 * (uint64_t)total && code == TP_OK; i++) {
        struct tp_rule **rule = &b->choices[i % total].rule;
        if (!set_key(b, (uint32_t)(i % total), key))
            continue;
        if ((code = tp_names_number(&keys, &b->plan->store, key, strlen(key), &rules, &capacity,
                                    sizeof *rules, &number, b->err)))
            break;
        if (!rules[number])
            rules[number] = *rule;
        else if (i < total && rules[number] != *rule)
            rules[number] = tp_rule_asked(rules[number]);
        else if (rules[number] == tp_rule_asked(*rule))
            *rule = rules[number];
    }
    tp_names_close(&keys);
    free(rules);
    return code;
}

static enum tp_code add_unsuited(struct tp_builder *b, uint32_t w, const char *key,
                                 struct unsuited *unsuited)
{
    uint32_t number;
    enum tp_code code = tp_names_number(&unsuited->keys, &b->plan->store, key, strlen(key),
                                        &unsuited->member, &unsuited->capacity,
                                        sizeof *unsuited->member, &number, b->err);
    if (code == TP_OK && !unsuited->member[number])
        unsuited->member[number] = w + 1;
    return code;
}

/* Notes what speaks against the weight, and so against its set. */
static enum tp_code look_at(struct tp_builder *b, uint32_t w, struct unsuited *unsuited)
{
    const struct tp_engine_merge *merge;
    char key[TP_FULL_NAME];
    enum tp_code code = merge_of(b, w, &merge);
    if (breaks_need(b, w))
        unsuited->fault[w] = BREAKS_NEED;
    else if (breaks_merge(b, w, merge))
        unsuited->fault[w] = BREAKS_MERGE;
    return code || !unsuited->fault[w] || !set_key(b, w, key) ? code
                                                              : add_unsuited(b, w, key, unsuited);
}

/* Keeps the members of the set that could be converted by themselves. */
static enum tp_code keep_sibling(struct tp_builder *b, uint32_t w, const struct unsuited *unsuited)
{
    char key[TP_FULL_NAME];
    int64_t set = set_key(b, w, key) ? tp_names_find(&unsuited->keys, key, strlen(key)) : -1;
    if (set < 0 || unsuited->fault[w])
        return TP_OK;
    return tp_choice_keep(b, w, true, "engines fuse it with %s, which cannot be converted",
                          tp_weight_at(b, unsuited->member[set] - 1)->name);
}

static enum tp_code keep_unmerged(struct tp_builder *b, uint32_t w)
{
    const struct tp_engine_merge *merge;
    enum tp_code code = merge_of(b, w, &merge);
    if (code || !merge)
        return code;
    return tp_choice_keep(b, w, true, "%s; --merged convert converts it all the same", merge->says);
}

/* The set that engines merge of which the weight is a part, whether it is chosen or not. Experts
 * are judged by the whole layer. */
static bool merged_key(const struct tp_builder *b, uint32_t w, char key[TP_FULL_NAME])
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    struct tp_expert_name expert;
    return weight->form->rank == 2 && !tp_plan_is_bias(weight) &&
           !tp_name_expert(facts_of(b), weight->name, &expert) &&
           tp_name_fused(facts_of(b), weight->name, key, TP_FULL_NAME, NULL);
}

/* A part of such a set that is kept, and one that is chosen, plus one; 0: there is none. */
struct merged_set {
    uint32_t kept, chosen;
};

static bool differ(const struct tp_rule *x, const struct tp_rule *y)
{
    return x->format != y->format ||
           memcmp(&x->settings, &y->settings, sizeof x->settings) != 0;
}

static enum tp_code refuse_mixture(const struct tp_builder *b, uint32_t x, uint32_t y)
{
    tp_err_tensor(b->err, tp_weight_at(b, y)->name);
    tp_err_hint(b->err, "give both one format and the same settings; --merged convert converts "
                        "them all the same");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "it would be %s, and %s %s, or with other settings: "
                   "engines load both as one matrix", b->choices[y].rule->format->name,
                   tp_weight_at(b, x)->name, b->choices[x].rule->format->name);
}

static enum tp_code note_part(struct tp_builder *b, uint32_t w, struct merged_set *set)
{
    if (!b->choices[w].rule) {
        set->kept = w + 1;
    } else if (!set->chosen) {
        set->chosen = w + 1;
    } else if (!tp_weight_at(b, w)->form->format &&
               !tp_weight_at(b, set->chosen - 1)->form->format &&
               differ(b->choices[set->chosen - 1].rule, b->choices[w].rule)) {
        return refuse_mixture(b, set->chosen - 1, w);
    }
    return TP_OK;
}

/* Keeps plain parts of sets of which a part is kept; what is packed was packed so. */
static enum tp_code keep_incomplete(struct tp_builder *b)
{
    struct tp_names keys = {0};
    struct merged_set *sets = NULL;
    size_t capacity = 0;
    char key[TP_FULL_NAME];
    uint32_t total = (uint32_t)b->plan->weights->count, number;
    enum tp_code code = TP_OK;
    for (uint32_t w = 0; w < total && code == TP_OK; w++) {
        if (!merged_key(b, w, key))
            continue;
        code = tp_names_number(&keys, &b->plan->store, key, strlen(key), &sets, &capacity,
                               sizeof *sets, &number, b->err);
        if (code == TP_OK)
            code = note_part(b, w, &sets[number]);
    }
    for (uint32_t w = 0; w < total && sets && code == TP_OK; w++) {
        if (!b->choices[w].rule || tp_weight_at(b, w)->form->format || !merged_key(b, w, key))
            continue;
        int64_t found = tp_names_find(&keys, key, strlen(key));
        uint32_t kept = found < 0 ? 0 : sets[found].kept;
        if (kept)
            code = tp_choice_keep(b, w, true, "engines load it and %s as one matrix, and that is "
                                  "kept (%s); --merged convert converts it all the same",
                                  tp_weight_at(b, kept - 1)->name, b->choices[kept - 1].reason);
    }
    tp_names_close(&keys);
    free(sets);
    return code;
}

enum tp_code tp_plan_keep_sets(struct tp_builder *b)
{
    uint32_t total = (uint32_t)b->plan->weights->count;
    struct unsuited unsuited = {.fault = tp_os_zalloc(total + 1, 1, b->err)};
    enum tp_code code = !unsuited.fault ? TP_E_MEMORY : b->rules.count ? agree(b) : TP_OK;
    if (code == TP_OK && !b->request->merged)
        code = keep_incomplete(b);
    for (uint32_t w = 0; w < total && code == TP_OK; w++)
        code = look_at(b, w, &unsuited);
    for (uint32_t w = 0; w < total && unsuited.keys.count && code == TP_OK; w++)
        code = keep_sibling(b, w, &unsuited);
    for (uint32_t w = 0; w < total && code == TP_OK; w++)
        if (unsuited.fault[w] == BREAKS_MERGE)
            code = keep_unmerged(b, w);
    free(unsuited.member);
    free(unsuited.fault);
    tp_names_close(&unsuited.keys);
    return code;
}
