/* Modules that engines load as one, and whose weights are not all alike.
 *
 * It tells modules by their names alone, as engines do. Invariant: a module is named if and only if
 * two of its weights have different formats, where having none (a plain weight) is one of its own.
 */
#include "pack/plan/file/uneven.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/unit/build.h"
#include "pack/text/name_set.h"

#include <stdlib.h>
#include <string.h>

struct finder {
    const struct tp_plan *plan;
    unsigned alike;          /* of the engine */
    struct tp_names modules;
    struct tp_store store;   /* of their names */
    const char **format;     /* by number of the module: of its first weight; NULL: plain */
    size_t capacity;
    struct tp_text text;     /* of the name that is looked for */
    bool experts;            /* it is of experts */
    const char *uneven;      /* the first module that is */
    struct tp_err *err;
};

/* The module of the expert's weight, under the name that engines give it, or the key of what is
 * fused, into `text`. */
static enum tp_code name_module(struct finder *f, const char *name)
{
    const struct tp_model_facts *facts = &f->plan->weights->facts;
    struct tp_expert_name expert;
    struct tp_stack_name stack;
    char key[TP_FULL_NAME];
    f->text.size = 0;
    f->experts = tp_name_expert(facts, name, &expert) || tp_name_stack(facts, name, &stack);
    if (!f->experts)
        return f->alike & TP_ALIKE_FUSED && tp_name_fused(facts, name, key, sizeof key, NULL)
                   ? tp_text_add_word(&f->text, key, f->err)
                   : TP_OK;
    if (!(f->alike & TP_ALIKE_EXPERTS))
        return TP_OK;
    if (tp_name_expert(facts, name, &expert))
        return tp_text_add(&f->text, name, expert.prefix, f->err);
    if (!tp_name_stack(facts, name, &stack))
        return TP_OK;
    const char *engines = stack.is->engines;
    enum tp_code code =
        tp_text_add(&f->text, name, engines ? stack.module : stack.prefix, f->err);
    return code || !engines ? code : tp_text_add_word(&f->text, engines, f->err);
}

static enum tp_code look_at(struct finder *f, const char *name, const char *format)
{
    const size_t seen = f->modules.count;
    uint32_t number;
    enum tp_code code = name_module(f, name);
    if (code || !f->text.size ||
        (code = tp_names_number(&f->modules, &f->store, f->text.data, f->text.size, &f->format,
                                &f->capacity, sizeof *f->format, &number, f->err)))
        return code;
    if (number == seen)
        f->format[number] = format;
    const char *first = f->format[number];
    if (!f->uneven && (!first != !format || (first && strcmp(first, format) != 0)))
        f->uneven = f->modules.items[number];
    return TP_OK;
}

static enum tp_code look_at_units(struct finder *f, const struct tp_unit *units, size_t count)
{
    enum tp_code code = TP_OK;
    for (size_t u = 0; u < count && code == TP_OK && !f->uneven; u++)
        if (units[u].form->format)
            code = look_at(f, units[u].name, units[u].form->format->name);
    return code;
}

enum tp_code tp_plan_uneven(const struct tp_plan *plan, unsigned alike, struct tp_text *module,
                            bool *experts, struct tp_err *err)
{
    struct finder f = {.plan = plan, .alike = alike, .err = err};
    if (!alike)
        return TP_OK;
    enum tp_code code = look_at_units(&f, plan->units, plan->unit_count);
    if (code == TP_OK)
        code = look_at_units(&f, plan->kept_units, plan->kept_unit_count);
    for (size_t k = 0; k < plan->kept_count && code == TP_OK && !f.uneven; k++) {
        const struct tp_tensor *tensor = &plan->ckpt->tensors[plan->kept[k].tensor];
        if (plan->kept[k].reason && plan->kept[k].unit == UINT32_MAX && tensor->rank >= 2)
            code = look_at(&f, tensor->name, NULL);
    }
    if (code == TP_OK && f.uneven)
        code = tp_text_add_word(module, f.uneven, err);
    *experts = f.experts;
    free(f.format);
    tp_names_close(&f.modules);
    tp_store_close(&f.store);
    tp_text_free(&f.text);
    return code;
}
