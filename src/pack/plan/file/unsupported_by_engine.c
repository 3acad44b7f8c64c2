/* Weights that engines have no place for, and modules whose experts are not all alike; see
 * unsupported_by_engine.h.
 *
 * It tells modules by their names alone, as engines do. Invariant: a module is named if and only if
 * two of its weights have different formats, where having none (a plain weight) is one of its own.
 */
#include "pack/plan/file/unsupported_by_engine.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/text/name_set.h"

#include <stdlib.h>
#include <string.h>

struct finder {
    const struct tp_plan *plan;
    struct tp_names modules;
    struct tp_store store;   /* of their names */
    const char **format;     /* by number of the module: of its first weight; NULL: plain */
    size_t capacity;
    struct tp_text text;     /* of the name that is looked for */
    const char *uneven;      /* the first module that is */
    struct tp_err *err;
};

/* The module of the expert's weight, under the name that engines give it, into `text`. */
static enum tp_code name_module(struct finder *f, const char *name)
{
    const struct tp_model_facts *facts = &f->plan->weights->facts;
    struct tp_expert_name expert;
    struct tp_stack_name stack;
    f->text.size = 0;
    if (tp_name_expert(facts, name, &expert))
        return tp_text_add(&f->text, name, expert.prefix, f->err);
    if (!tp_name_stack(facts, name, &stack))
        return TP_OK;
    const char *engines = stack.is->engines;
    enum tp_code code =
        tp_text_add(&f->text, name, engines ? stack.module : stack.prefix, f->err);
    return code || !engines ? code : tp_text_add_word(&f->text, engines, f->err);
}

static enum tp_code add_module(struct finder *f, const char *format)
{
    uint32_t number;
    const char *name = tp_store_join(&f->store, f->text.data, f->text.size, "", f->err);
    enum tp_code code = name ? tp_os_grow((void **)&f->format, &f->capacity, f->modules.count + 1,
                                          sizeof *f->format, f->err)
                             : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_names_add(&f->modules, name, f->text.size, &number, f->err);
    if (code == TP_OK)
        f->format[number] = format;
    return code;
}

static enum tp_code look_at(struct finder *f, const char *name, const char *format)
{
    enum tp_code code = name_module(f, name);
    if (code || !f->text.size)
        return code;
    int64_t number = tp_names_find(&f->modules, f->text.data, f->text.size);
    if (number < 0)
        return add_module(f, format);
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

/* Appends the name of the module, if there is one. */
static enum tp_code find_uneven(const struct tp_plan *plan, struct tp_text *module,
                                struct tp_err *err)
{
    struct finder f = {.plan = plan, .err = err};
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
    free(f.format);
    tp_names_close(&f.modules);
    tp_store_close(&f.store);
    tp_text_free(&f.text);
    return code;
}

static bool is_of_experts(const struct tp_plan *plan, const struct tp_unit *unit)
{
    struct tp_expert_name name;
    return unit->form->rank == 3 || tp_name_expert(&plan->weights->facts, unit->name, &name);
}

/* The rows that serve such weights, a bit each. */
static unsigned rows_that_take(const struct tp_format *format, bool expert)
{
    unsigned rows = 0;
    for (uint32_t i = 0; i < format->serves; i++)
        if (tp_serve_takes(&format->serve[i], expert))
            rows |= 1u << i;
    return rows;
}

static unsigned engines_of(const struct tp_format *format, unsigned rows)
{
    unsigned engines = 0;
    for (uint32_t i = 0; i < format->serves; i++)
        if (rows >> i & 1)
            engines |= 1u << format->serve[i].engine;
    return engines;
}

/* Whether kernels would quantize activations with scales that are not there. */
static bool lacks_inputs(const struct tp_unit_form *form)
{
    return form->format->inputs.suffix && !form->format->config && !form->inputs;
}

/* Why no engine has a place for the weight, or NULL. */
static const char *misfit(const struct tp_unit_form *form, bool expert)
{
    const struct tp_format *format = form->format;
    if (form->rank == 3 && format->experts == TP_EXPERTS_SPLIT)
        return " is a stack, and engines read single experts in this format; they read the stacks "
               "of mxfp4-marlin, mxfp4-trtllm or mxfp4-triton-hopper";
    if (rows_that_take(format, expert) && lacks_inputs(form))
        return " has no activation scales, with which an engine's kernel for this format would "
               "quantize: convert a calibrated source, without --weights-only";
    if (rows_that_take(format, expert))
        return form->rank == 2 && expert && format->experts == TP_EXPERTS_STACK
                   ? " is a single expert, and engines read stacks in this format: convert without "
                     "--no-stack" : NULL;
    if (!rows_that_take(format, !expert))
        return NULL;
    return expert ? " is of experts, and engines read only linear layers in this format: leave "
                    "experts out (--exclude experts), or give them another one in a recipe"
                  : " is a linear layer, and engines read only experts in this format: take these "
                    "alone (--include experts), or give the others another one in a recipe";
}

/* What serves all weights of formats of which that is known, and of what is kept: nothing serves
 * forms that are only read. */
struct served {
    const struct tp_format *format; /* of the first one */
    unsigned rows;                  /* of it, a bit each */
    unsigned engines;
    const char *name, *why;         /* the first that no engine has a place for */
};

static void serve_units(struct served *s, const struct tp_plan *plan, const struct tp_unit *units,
                        size_t count)
{
    for (size_t u = 0; u < count; u++) {
        const struct tp_format *format = units[u].form->format;
        if (!format || format->is_bias || (!format->serves && units == plan->units))
            continue;
        bool expert = is_of_experts(plan, &units[u]);
        unsigned rows = rows_that_take(format, expert);
        if (!s->format)
            *s = (struct served){.format = format, .rows = rows, .engines = ~0u};
        if (s->format == format)
            s->rows &= rows;
        s->engines &= engines_of(format, rows);
        if (!s->why && (s->why = misfit(units[u].form, expert)))
            s->name = units[u].name;
    }
}

static void take_rows(const struct served *s, struct tp_unsupported_by_engine *found)
{
    for (uint32_t i = 0; i < s->format->serves; i++)
        if (s->rows >> i & s->engines >> s->format->serve[i].engine & 1)
            found->rows[found->row_count++] = &s->format->serve[i];
}

enum tp_code tp_plan_unsupported_by_engine(const struct tp_plan *plan,
                                           struct tp_unsupported_by_engine *found,
                                           struct tp_err *err)
{
    struct served s = {0};
    serve_units(&s, plan, plan->units, plan->unit_count);
    if (!s.format)
        return TP_OK;
    serve_units(&s, plan, plan->kept_units, plan->kept_unit_count);
    found->before = s.why ? "No engine reads it: " : "vLLM refuses it: not all experts of ";
    found->after = s.why ? s.why : " are in one format";
    enum tp_code code = s.why ? tp_text_add_word(&found->name, s.name, err)
                              : find_uneven(plan, &found->name, err);
    if (code == TP_OK && !found->name.size)
        take_rows(&s, found);
    return code;
}

void tp_unsupported_by_engine_close(struct tp_unsupported_by_engine *found)
{
    tp_text_free(&found->name);
}
