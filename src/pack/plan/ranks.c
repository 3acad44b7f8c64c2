/* Planning for ranks: which weight is cut where, the plan of each rank, and the one
 * plan of all their files.
 *
 * The plan of the whole decides everything; a rank's plan has the same weights in
 * the same files, with the shapes and layouts of its slices.
 */
#include "pack/plan/ranks.h"

#include "base/num.h"
#include "pack/text/json_tree.h"
#include "pack/file/leafhash.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/constant.h"
#include "pack/plan/origin.h"
#include "pack/plan/plan_build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where a weight is cut ------------------------------------------------ */

/* What is known of attention; 0: nothing. */
struct heads {
    uint64_t query, key_value;
    bool interleaved; /* gate and up alternate row by row: any pair of rows is whole */
};

static struct heads heads_of(const struct tp_model_facts *facts)
{
    struct heads heads = {.query = facts->heads, .key_value = facts->kv_heads};
    struct tp_stack_name stack;
    heads.interleaved = tp_name_stack(facts, "experts.gate_up_proj", &stack) &&
                        stack.is->alternates;
    return heads;
}

static uint64_t count_of(const struct heads *heads, const struct tp_model_parallel *name)
{
    return name->heads == TP_HEADS_QUERY       ? heads->query
           : name->heads == TP_HEADS_KEY_VALUE ? heads->key_value
                                               : 0;
}

/* Rows of the stretches that are cut one by one. */
static bool find_pieces(const struct tp_unit *unit, const struct tp_model_parallel *name,
                        const struct heads *heads, struct tp_cut *cut)
{
    uint64_t n = unit->form->box.n;
    bool fits = heads->query <= n && heads->key_value <= n; /* or products would wrap */
    cut->pieces = 1;
    cut->piece_rows[0] = n;
    bool apart = unit->form->format->rows == TP_ROWS_UP_GATE || unit->form->op.stretches > 1;
    if (name->rows == TP_FUSED_GATE_UP && (apart || !heads->interleaved)) {
        cut->pieces = 2;
        cut->piece_rows[0] = cut->piece_rows[1] = n / 2;
        return n % 2 == 0;
    }
    if (name->rows == TP_FUSED_QKV) {
        uint64_t all = heads->query + 2 * heads->key_value;
        if (!fits || !all || n % all)
            return false;
        cut->pieces = 3;
        cut->piece_rows[0] = n / all * heads->query;
        cut->piece_rows[1] = cut->piece_rows[2] = n / all * heads->key_value;
    }
    return true;
}

struct why {
    char text[400];
};

static bool says(struct why *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool says(struct why *why, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    return false;
}

/* One dimension: each stretch begins, ends and is divided at multiples of g. */
static bool divides(const struct tp_unit *unit, char dim, uint64_t extent, uint64_t g,
                    unsigned ranks, struct why *why)
{
    if (!g)
        return says(why, "its %s cannot be cut", unit->form->format->name);
    if (extent % ranks == 0 && extent / ranks % g == 0)
        return true;
    return says(why, "%c = %llu cannot be cut into %u parts at multiples of %llu, where the tiles "
                "of %s end", dim, (unsigned long long)extent, ranks, (unsigned long long)g,
                unit->form->format->name);
}

static bool cut_fits(const struct tp_unit *unit, const struct tp_model_parallel *name,
                     const struct heads *heads, unsigned ranks, struct tp_cut *cut,
                     struct why *why)
{
    uint64_t n, k;
    uint64_t count = count_of(heads, name);
    tp_cut_granules(&unit->form->op, &n, &k);
    *cut = (struct tp_cut){.along = name->cut == TP_PARALLEL_K ? TP_CUT_K : TP_CUT_N,
                           .ranks = ranks, .pieces = 1, .piece_rows = {unit->form->box.n}};
    if (count % ranks)
        return says(why, "%llu %sheads cannot be divided among %u ranks",
                    (unsigned long long)count,
                    name->heads == TP_HEADS_KEY_VALUE ? "key/value " : "", ranks);
    if (cut->along == TP_CUT_K) {
        if (!divides(unit, 'K', unit->form->box.k, k, ranks, why))
            return false;
    } else if (!find_pieces(unit, name, heads, cut)) {
        return says(why, "config.json does not tell where its parts begin");
    }
    for (uint32_t p = 0; cut->along == TP_CUT_N && p < cut->pieces; p++)
        if (!divides(unit, 'N', cut->piece_rows[p], n, ranks, why))
            return false;
    const struct tp_shape_rule *rule = tp_format_broken_need(
        unit->form->format, &unit->form->settings, tp_cut_box(cut, unit->form->box),
        unit->form->rank == 3);
    if (rule)
        return says(why, "a slice's %c would not be a multiple of %llu: %s", rule->dim,
                    (unsigned long long)rule->multiple, rule->why);
    return true;
}

/* Fails with the numbers of ranks that this weight could be cut for. */
static enum tp_code refuse(const struct tp_unit *unit, const struct tp_model_parallel *name,
                           const struct heads *heads, const struct why *why, struct tp_err *err)
{
    char legal[120] = "1";
    size_t at = 1;
    for (unsigned n = 2; n <= 256 && at < sizeof legal - 8; n++) {
        struct tp_cut cut;
        struct why ignored = {""};
        if (cut_fits(unit, name, heads, n, &cut, &ignored))
            at += (size_t)snprintf(legal + at, sizeof legal - at, ", %u", n);
    }
    tp_err_tensor(err, unit->name);
    tp_err_hint(err, "--tp may be %s for this weight; --exclude leaves a plain weight whole",
                legal);
    return tp_fail(err, TP_E_UNSUPPORTED, "%s", why->text);
}

/* A bias is cut as the rows of its weight are; one of a weight that is cut along K is added
 * once, to the sum. */
static const struct tp_model_parallel *parallel_of(const struct tp_plan *whole,
                                                   const struct tp_unit *unit)
{
    char name[TP_FULL_NAME];
    if (!unit->form->format || !unit->form->format->is_bias)
        return tp_name_parallel(&whole->weights->facts, unit->name);
    snprintf(name, sizeof name, "%.*s", (int)tp_name_bias_stem(unit->name), unit->name);
    const struct tp_model_parallel *is = tp_name_parallel(&whole->weights->facts, name);
    return is && is->cut == TP_PARALLEL_K ? NULL : is;
}

/* Of experts without a gate, what is called as gate and up are holds one matrix. */
static enum tp_code find_rows(const struct tp_plan *whole, const struct tp_unit *unit,
                              struct tp_model_parallel *name, struct tp_err *err)
{
    struct tp_origin *origins;
    uint32_t count;
    if (name->rows != TP_FUSED_GATE_UP)
        return TP_OK;
    enum tp_code code = tp_unit_origins(whole, unit, &origins, &count, err);
    if (code == TP_OK && tp_origins_ungated(origins, count))
        name->rows = TP_FUSED_NONE;
    tp_origins_free(origins, count);
    return code;
}

static enum tp_code find_cut(struct tp_ranks *ranks, const struct tp_unit *unit,
                             const struct heads *heads, struct tp_cut *cut, struct tp_err *err)
{
    const struct tp_model_parallel *found = parallel_of(ranks->whole, unit);
    struct why why = {""};
    *cut = (struct tp_cut){.along = TP_CUT_NONE};
    if (!unit->form->format || !found || !found->tp || found->cut == TP_PARALLEL_NONE)
        return TP_OK;
    struct tp_model_parallel name = *found;
    enum tp_code code = find_rows(ranks->whole, unit, &name, err);
    if (code)
        return code;
    if (name.heads != TP_HEADS_NONE && !count_of(heads, &name) && !ranks->unsaid_heads)
        ranks->unsaid_heads = unit->name;
    return cut_fits(unit, &name, heads, ranks->count, cut, &why)
               ? TP_OK
               : refuse(unit, &name, heads, &why, err);
}

/* ---- plan of one rank ------------------------------------------------------ */

static enum tp_code copy_unit(struct tp_plan *plan, const struct tp_unit *from,
                              const struct tp_cut *cut, struct tp_unit *to, struct tp_err *err)
{
    struct tp_unit_form form;
    memcpy(&form, from->form, sizeof form); /* with what lies between the members */
    *to = *from; /* names and views stay those of the whole */
    to->importance = NULL; /* a rank's plan is never run by itself */
    if (cut->along != TP_CUT_NONE)
        form.cut = *cut;
    form.box = tp_cut_box(cut, from->form->box);
    to->form = tp_shared_keep(&plan->forms, &form, sizeof form, err);
    return to->form ? TP_OK : TP_E_MEMORY;
}

/* `cuts`: of the units, then of the kept ones. */
static enum tp_code copy_units(const struct tp_plan *whole, const struct tp_cut *cuts,
                               struct tp_plan *plan, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    plan->units = tp_os_zalloc(whole->unit_count + 1, sizeof *plan->units, err);
    plan->kept_units = tp_os_zalloc(whole->kept_unit_count + 1, sizeof *plan->kept_units, err);
    plan->kept = tp_os_zalloc(whole->kept_count + 1, sizeof *plan->kept, err);
    if (!plan->units || !plan->kept_units || !plan->kept)
        return TP_E_MEMORY;
    for (; plan->unit_count < whole->unit_count && code == TP_OK; plan->unit_count++)
        code = copy_unit(plan, &whole->units[plan->unit_count], &cuts[plan->unit_count],
                         &plan->units[plan->unit_count], err);
    for (; plan->kept_unit_count < whole->kept_unit_count && code == TP_OK;
         plan->kept_unit_count++)
        code = copy_unit(plan, &whole->kept_units[plan->kept_unit_count],
                         &cuts[whole->unit_count + plan->kept_unit_count],
                         &plan->kept_units[plan->kept_unit_count], err);
    for (; plan->kept_count < whole->kept_count; plan->kept_count++)
        plan->kept[plan->kept_count] = whole->kept[plan->kept_count];
    return code;
}

static enum tp_code plan_rank(struct tp_ranks *ranks, const struct tp_cut *cuts,
                              const struct tp_request *request, unsigned r, struct tp_err *err)
{
    struct tp_plan *plan = &ranks->plans[r];
    ranks->requests[r] = *request;
    ranks->requests[r].ranks = ranks->count;
    ranks->requests[r].rank = r;
    struct tp_builder b = {.plan = plan, .request = &ranks->requests[r], .follow = ranks->whole,
                           .err = err};
    *plan = (struct tp_plan){.ckpt = ranks->whole->ckpt, .weights = ranks->whole->weights};
    enum tp_code code = copy_units(ranks->whole, cuts, plan, err);
    return code ? code : tp_plan_files(&b, NULL);
}

/* ---- all files, and the run ------------------------------------------------- */

static enum tp_code collect_files(struct tp_ranks *ranks, struct tp_err *err)
{
    struct tp_plan *all = &ranks->all;
    size_t files = ranks->whole->file_count * ranks->count, outputs = 0;
    *all = (struct tp_plan){.ckpt = ranks->whole->ckpt, .weights = ranks->whole->weights};
    for (unsigned r = 0; r < ranks->count; r++)
        outputs += ranks->plans[r].output_count;
    all->files = tp_os_zalloc(files + 1, sizeof *all->files, err);
    all->outputs = tp_os_zalloc(outputs + 1, sizeof *all->outputs, err);
    if (!all->files || !all->outputs)
        return TP_E_MEMORY;
    all->bytes_in = ranks->whole->bytes_in;
    for (; all->file_count < files; all->file_count++) {
        const struct tp_plan *plan = &ranks->plans[all->file_count % ranks->count];
        const struct tp_plan_file *from = &plan->files[all->file_count / ranks->count];
        struct tp_plan_file *to = &all->files[all->file_count];
        *to = *from; /* the header stays the rank's */
        to->name = tp_os_format(err, TP_RANK_PREFIX "%zu/%s", all->file_count % ranks->count,
                                from->name);
        if (!to->name)
            return TP_E_MEMORY;
        to->first_output = (uint32_t)all->output_count;
        for (uint32_t o = 0; o < from->output_count; o++) {
            struct tp_output *output = &all->outputs[all->output_count++];
            *output = plan->outputs[from->first_output + o];
            output->file = (uint32_t)all->file_count;
            all->bytes_out += output->bytes;
        }
    }
    return TP_OK;
}

static void hash_all(struct tp_ranks *ranks, const uint8_t whole[16],
                     const uint8_t *(*of)(const struct tp_plan *), uint8_t hash[16])
{
    uint8_t pair[32];
    memcpy(hash, whole, 16);
    for (unsigned r = 0; r < ranks->count; r++) {
        memcpy(pair, hash, 16);
        memcpy(pair + 16, of(&ranks->plans[r]), 16);
        tp_hash(pair, sizeof pair, hash);
    }
}

static const uint8_t *hash_of(const struct tp_plan *plan) { return plan->hash; }
static const uint8_t *id_of(const struct tp_plan *plan) { return plan->id; }

/* Which output of each rank an output of the whole became. */
static enum tp_code map_outputs(struct tp_ranks *ranks, struct tp_err *err)
{
    const struct tp_plan *whole = ranks->whole;
    uint32_t *kept = tp_os_zalloc(whole->ckpt->tensor_count + whole->made_count + 1, sizeof *kept,
                                  err);
    ranks->output = tp_os_zalloc((whole->output_count + 1) * ranks->count, sizeof *ranks->output,
                                 err);
    if (!kept || !ranks->output) {
        free(kept);
        return TP_E_MEMORY;
    }
    for (size_t o = 0; o < whole->output_count; o++)
        if (whole->outputs[o].unit == UINT32_MAX)
            kept[whole->outputs[o].source] = (uint32_t)o;
    for (uint32_t a = 0; a < ranks->all.output_count; a++) {
        const struct tp_output *output = &ranks->all.outputs[a];
        unsigned r = output->file % ranks->count;
        uint32_t o = output->unit == UINT32_MAX ? kept[output->source]
                                                : whole->units[output->unit].output[output->source];
        ranks->output[o * ranks->count + r] = a;
    }
    free(kept);
    return TP_OK;
}

/* A kept packed weight that is cut, as a unit that moves its bytes. */
static enum tp_code move_unit(struct tp_ranks *ranks, const struct tp_unit *kept,
                              const uint32_t *output_of, struct tp_err *err)
{
    struct tp_plan *run = &ranks->run;
    uint32_t u = (uint32_t)run->unit_count++;
    struct tp_unit *unit = &run->units[u];
    const struct tp_weight *weight = &run->weights->items[kept->views[0].weight];
    struct tp_unit_form form;
    memcpy(&form, kept->form, sizeof form); /* with what lies between the members */
    form.kind = TP_UNIT_MOVE;
    *unit = *kept;
    if (!(unit->form = tp_shared_keep(&ranks->forms, &form, sizeof form, err)))
        return TP_E_MEMORY;
    for (uint32_t i = 0; i < unit->form->op.outs; i++) {
        unit->output[i] = UINT32_MAX;
        if (weight->tensor[i] == TP_NO_TENSOR)
            continue;
        uint32_t o = output_of[weight->tensor[i]];
        struct tp_output *output = &run->outputs[o];
        unit->output[i] = o;
        output->unit = u;
        output->source = i;
        if (unit->form->op.out[i].role != TP_ROLE_WORDS)
            continue;
        enum tp_code code = tp_output_constant(&ranks->store, unit->form, i, output, NULL,
                                               err);
        if (code)
            return code;
    }
    return TP_OK;
}

static enum tp_code make_run(struct tp_ranks *ranks, const struct tp_cut *cuts,
                             struct tp_err *err)
{
    const struct tp_plan *whole = ranks->whole;
    struct tp_plan *run = &ranks->run;
    size_t units = whole->unit_count + whole->kept_unit_count;
    enum tp_code code = TP_OK;
    *run = *whole;
    uint32_t *output_of = tp_os_zalloc(whole->ckpt->tensor_count + whole->made_count + 1,
                                       sizeof *output_of, err);
    run->units = tp_os_zalloc(units + 1, sizeof *run->units, err);
    run->outputs = tp_os_zalloc(whole->output_count + 1, sizeof *run->outputs, err);
    ranks->cuts = tp_os_zalloc(units + 1, sizeof *ranks->cuts, err);
    if (!output_of || !run->units || !run->outputs || !ranks->cuts) {
        free(output_of);
        return TP_E_MEMORY;
    }
    for (size_t u = 0; u < whole->unit_count; u++) {
        run->units[u] = whole->units[u];
        ranks->cuts[u] = cuts[u];
    }
    for (size_t o = 0; o < whole->output_count; o++) {
        run->outputs[o] = whole->outputs[o];
        if (whole->outputs[o].unit == UINT32_MAX)
            output_of[whole->outputs[o].source] = (uint32_t)o;
    }
    for (size_t k = 0; k < whole->kept_unit_count && code == TP_OK; k++) {
        const struct tp_cut *cut = &cuts[whole->unit_count + k];
        if (cut->along == TP_CUT_NONE)
            continue;
        ranks->cuts[run->unit_count] = *cut;
        code = move_unit(ranks, &whole->kept_units[k], output_of, err);
    }
    free(output_of);
    return code;
}

/* Of the units that are biases, or of the others: these come first, as what is wrong with both is
 * said of the weight. */
static enum tp_code find_cuts(struct tp_ranks *ranks, bool biases, struct tp_cut *cuts,
                              struct tp_err *err)
{
    const struct tp_plan *whole = ranks->whole;
    struct heads heads = heads_of(&whole->weights->facts);
    size_t count = whole->unit_count + whole->kept_unit_count;
    enum tp_code code = TP_OK;
    for (size_t u = 0; u < count && code == TP_OK; u++) {
        const struct tp_unit *unit = u < whole->unit_count
                                         ? &whole->units[u]
                                         : &whole->kept_units[u - whole->unit_count];
        if ((unit->form->format && unit->form->format->is_bias) == biases)
            code = find_cut(ranks, unit, &heads, &cuts[u], err);
    }
    return code;
}

static enum tp_code make(struct tp_ranks *ranks, const struct tp_request *request,
                         struct tp_cut *cuts, struct tp_err *err)
{
    const struct tp_plan *whole = ranks->whole;
    enum tp_code code = find_cuts(ranks, false, cuts, err);
    if (code == TP_OK)
        code = find_cuts(ranks, true, cuts, err);
    ranks->plans = tp_os_zalloc(ranks->count, sizeof *ranks->plans, err);
    ranks->requests = tp_os_zalloc(ranks->count, sizeof *ranks->requests, err);
    if (!ranks->plans || !ranks->requests)
        return TP_E_MEMORY;
    for (unsigned r = 0; r < ranks->count && code == TP_OK; r++)
        code = plan_rank(ranks, cuts, request, r, err);
    if (code || (code = collect_files(ranks, err)) || (code = map_outputs(ranks, err)) ||
        (code = make_run(ranks, cuts, err)))
        return code;
    hash_all(ranks, whole->hash, hash_of, ranks->all.hash);
    hash_all(ranks, whole->id, id_of, ranks->all.id);
    return TP_OK;
}

enum tp_code tp_ranks_make(const struct tp_plan *whole, const struct tp_request *request,
                           unsigned count, struct tp_ranks *ranks, struct tp_err *err)
{
    uint64_t mark = tp_json_mark();
    *ranks = (struct tp_ranks){.count = count, .whole = whole};
    struct tp_cut *cuts =
        tp_os_zalloc(whole->unit_count + whole->kept_unit_count + 1, sizeof *cuts, err);
    enum tp_code code = cuts ? make(ranks, request, cuts, err) : TP_E_MEMORY;
    code = tp_json_check(mark, code, err);
    free(cuts);
    if (code)
        tp_ranks_close(ranks);
    return code;
}

void tp_ranks_close(struct tp_ranks *ranks)
{
    for (unsigned r = 0; ranks->plans && r < ranks->count; r++)
        tp_plan_close(&ranks->plans[r]);
    for (size_t f = 0; f < ranks->all.file_count; f++)
        free(ranks->all.files[f].name);
    tp_store_close(&ranks->store);
    tp_shared_close(&ranks->forms);
    free(ranks->all.files);
    free(ranks->all.outputs);
    free(ranks->run.units);
    free(ranks->run.outputs);
    free(ranks->plans);
    free(ranks->requests);
    free(ranks->cuts);
    free(ranks->output);
    memset(ranks, 0, sizeof *ranks);
}

void tp_ranks_count_cuts(const struct tp_ranks *ranks, size_t count[3])
{
    count[TP_CUT_NONE] = count[TP_CUT_N] = count[TP_CUT_K] = 0;
    for (size_t u = 0; u < ranks->run.unit_count; u++)
        count[ranks->cuts[u].along]++;
}
