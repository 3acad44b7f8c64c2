/* The distinct weight shapes of a checkpoint, for the schedules: which GEMMs will
 * run on it. Reads headers only and decides nothing about bytes.
 *
 * Invariant: numbered experts of one layer and role are one stack, because that is
 * how a grouped kernel meets them.
 */
#include "pack/schedule/schedule.h"

#include "base/suffix.h"
#include "pack/source/checkpoint.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/source/weights.h"

#include <stdlib.h>
#include <string.h>

enum tp_sched_cut tp_sched_cut_of(const struct tp_model_facts *facts, const char *name)
{
    static const enum tp_sched_cut cuts[] = {[TP_PARALLEL_NONE] = TP_SCHED_CUT_NONE,
                                             [TP_PARALLEL_N] = TP_SCHED_CUT_N,
                                             [TP_PARALLEL_K] = TP_SCHED_CUT_K};
    const struct tp_model_parallel *parallel = tp_name_parallel(facts, name);
    return parallel ? cuts[parallel->cut] : TP_SCHED_CUT_ANY;
}

struct list {
    struct tp_schedule_shape *shapes;
    size_t count, capacity;
    bool shared; /* among ranks */
};

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_shape(const struct tp_schedule_shape *a, const struct tp_schedule_shape *b)
{
    /* n*k of a tensor in a file fits 64 bits; larger first */
    int order = compare_numbers(b->n * b->k, a->n * a->k);
    if (!order)
        order = compare_numbers(b->n, a->n);
    if (!order)
        order = compare_numbers(a->e, b->e);
    if (!order)
        order = compare_numbers(a->cut, b->cut);
    if (!order)
        order = strcmp(a->format ? a->format : "", b->format ? b->format : "");
    return order;
}

static int by_example(const void *a, const void *b)
{
    const struct tp_schedule_shape *x = a, *y = b;
    int order = strcmp(x->example, y->example);
    return order ? order : compare_shape(x, y);
}

static int by_shape(const void *a, const void *b)
{
    int order = compare_shape(a, b);
    return order ? order : strcmp(((const struct tp_schedule_shape *)a)->example,
                                  ((const struct tp_schedule_shape *)b)->example);
}

/* "model.layers.3.mlp.experts.7.up_proj" -> "model.layers.3.mlp.experts.{e}.up_proj" */
static char *stack_key(const struct tp_model_facts *facts, const char *name, struct tp_err *err)
{
    struct tp_expert_name expert;
    if (!tp_name_expert(facts, name, &expert))
        return tp_os_format(err, "%s", name);
    return tp_os_format(err, "%.*s.{e}.%.*s", (int)expert.prefix, name, (int)expert.label_size,
                        expert.label);
}

/* A plain weight has the name of its tensor; one that is kept by default is not
 * a candidate for these kernels. */
static bool wanted(const struct tp_checkpoint *ckpt, const struct tp_model_facts *facts,
                   const struct tp_weight *weight)
{
    struct tp_kept_name kept;
    if (weight->form->format)
        return !weight->form->format->is_bias;
    if (weight->tensor[0] == TP_NO_TENSOR)
        return false;
    return !tp_name_kept(facts, ckpt->tensors[weight->tensor[0]].name, &kept);
}

static enum tp_code add(const struct tp_model_facts *facts, const struct tp_weight *weight,
                        struct list *list, struct tp_err *err)
{
    enum tp_code code = tp_os_grow((void **)&list->shapes, &list->capacity, list->count + 1,
                                   sizeof *list->shapes, err);
    if (code)
        return code;
    char *key = stack_key(facts, weight->name, err);
    if (!key)
        return TP_E_MEMORY;
    list->shapes[list->count++] = (struct tp_schedule_shape){
        .e = weight->form->box.e,
        .n = weight->form->box.n,
        .k = weight->form->box.k,
        .count = 1,
        .cut = list->shared ? tp_sched_cut_of(facts, weight->name) : TP_SCHED_CUT_NONE,
        .format = weight->form->format ? weight->form->format->name : NULL,
        .example = key,
    };
    return TP_OK;
}

/* Joins neighbours: experts of one stack add up in e, equal shapes in count. */
static void join(struct list *list, bool stacks)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct tp_schedule_shape *last = kept ? &list->shapes[kept - 1] : NULL;
        struct tp_schedule_shape *shape = &list->shapes[i];
        bool same = last && last->n == shape->n && last->k == shape->k &&
                    last->format == shape->format && last->cut == shape->cut &&
                    (stacks ? strcmp(last->example, shape->example) == 0
                            : last->e == shape->e);
        if (!same) {
            list->shapes[kept++] = *shape;
            continue;
        }
        if (stacks)
            last->e += shape->e;
        else
            last->count += shape->count;
        free(shape->example);
    }
    list->count = kept;
}

static enum tp_code collect(const struct tp_checkpoint *ckpt,
                            const struct tp_model_choice *choice, struct list *list,
                            struct tp_err *err)
{
    struct tp_weights weights = {0};
    enum tp_code code = tp_weights_find_as(ckpt, choice, &weights, err);
    for (size_t i = 0; !code && i < weights.count; i++)
        if (wanted(ckpt, &weights.facts, &weights.items[i]))
            code = add(&weights.facts, &weights.items[i], list, err);
    tp_weights_close(&weights);
    return code;
}

enum tp_code tp_schedule_shapes(const char *path, const struct tp_model_choice *choice,
                                bool shared, struct tp_schedule_shape **shapes, size_t *count,
                                struct tp_err *err)
{
    struct tp_checkpoint ckpt = {0};
    struct list list = {.shared = shared};
    *shapes = NULL;
    *count = 0;
    enum tp_code code = tp_checkpoint_open(path, 0, &ckpt, err);
    if (!code)
        code = collect(&ckpt, choice, &list, err);
    tp_checkpoint_close(&ckpt);
    if (code) {
        tp_schedule_shapes_free(list.shapes, list.count);
        return code;
    }
    if (list.count) {
        qsort(list.shapes, list.count, sizeof *list.shapes, by_example);
        join(&list, true);
        qsort(list.shapes, list.count, sizeof *list.shapes, by_shape);
        join(&list, false);
    }
    *shapes = list.shapes;
    *count = list.count;
    return TP_OK;
}

void tp_schedule_shapes_free(struct tp_schedule_shape *shapes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(shapes[i].example);
    free(shapes);
}

void tp_sched_check_format(const struct tp_sched_problem *problem, const char *format,
                           struct tp_sched_checks *checks)
{
    /* The first of a row is what `convert --to` makes for the kernel; the others
     * its engines load and transform. */
    static const char *const sm90[] = {"fp8-deepseek", "fp8-ct", NULL};
    static const char *const sm100[] = {"fp8-deepgemm-sm100", "fp8-deepseek", "fp8-ct", NULL};
    static const char *const w4a8[] = {"w4a8-cutlass", "w4a8-ct", NULL};
    if (!format)
        return;
    const char *const *names = problem->kernel == TP_SCHED_W4A8 ? w4a8
                               : problem->arch == 10            ? sm100
                                                                : sm90;
    bool pass = tp_word_of(format, names, SIZE_MAX) >= 0;
    tp_sched_check_add(checks, "format", TP_SCHED_ASSERT,
                       "the kernel reads the format that is stored", pass,
                       pass ? "stored is %s" : "stored is %s; convert to %s", format, names[0]);
}
