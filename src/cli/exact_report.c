/* The lines on packed weights of which nothing is lost. */
#include "cli/exact_report.h"

#include <stdio.h>
#include <string.h>

/* How a weight is kept: the rows of `texts`. */
enum way { WAY_CODES, WAY_SCALES, WAY_VALUES, WAYS, WAY_NONE = WAYS };

static const struct {
    const char *before, *after; /* of the work */
} texts[WAYS] = {
    [WAY_CODES] = {"codes taken over, exact", "codes taken over, exact"},
    [WAY_SCALES] = {"codes taken over if their scales are numbers of the new type, else the run "
                    "stops", "codes taken over, exact"},
    [WAY_VALUES] = {"values kept if all are numbers of the format, else the run stops",
                    "values kept, exact"},
};

struct exact {
    size_t count;
    char set[400]; /* "group=32, scales=f16": choices other than the format's own */
};

static void add_word(struct exact *exact, const char *key, const char *choice)
{
    char word[80];
    size_t used = strlen(exact->set);
    snprintf(word, sizeof word, "%s=%s", key, choice);
    if (!strstr(exact->set, word) && used + strlen(word) + 3 < sizeof exact->set)
        snprintf(exact->set + used, sizeof exact->set - used, "%s%s", used ? ", " : "", word);
}

static enum way way_of(const struct tp_plan *plan, const struct tp_unit *unit, bool done)
{
    const struct tp_unit_form *form = unit->form;
    bool repacked = form->kind == TP_UNIT_REPACK;
    if (!(repacked || form->only_exact) || form->format->is_bias ||
        tp_unit_loss(plan, unit) != TP_LOSS_NONE)
        return WAY_NONE;
    return !repacked ? WAY_VALUES : form->only_exact && !done ? WAY_SCALES : WAY_CODES;
}

static void find(const struct tp_plan *plan, bool done, struct exact exact[WAYS])
{
    const struct tp_unit_form *last = NULL; /* a model has a few, and units of one stand together */
    memset(exact, 0, WAYS * sizeof *exact);
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit_form *form = plan->units[u].form;
        enum way way = way_of(plan, &plan->units[u], done);
        if (way == WAY_NONE)
            continue;
        exact[way].count++;
        for (uint32_t p = 0; p < form->format->params && form != last; p++)
            if (form->settings.choice[p])
                add_word(&exact[way], form->format->param[p].key,
                         form->format->param[p].choices[form->settings.choice[p]]);
        last = form;
    }
}

void tp_exact_print(const struct tp_plan *plan, bool done)
{
    struct exact exact[WAYS];
    find(plan, done, exact);
    for (int w = 0; w < WAYS; w++)
        if (exact[w].count)
            printf("%s: %zu weight%s%s%s%s\n", done ? texts[w].after : texts[w].before,
                   exact[w].count, exact[w].count == 1 ? "" : "s", *exact[w].set ? " (" : "",
                   exact[w].set, *exact[w].set ? ")" : "");
}

void tp_exact_put(struct tp_writer *w, const struct tp_plan *plan, bool done)
{
    static const char *const keys[2][WAYS] = {{"exact", "exact_scales_or_stop",
                                               "exact_values_or_stop"},
                                              {"exact", NULL, "exact_values"}};
    struct exact exact[WAYS];
    find(plan, done, exact);
    for (int way = 0; way < WAYS; way++)
        if (exact[way].count)
            tp_object(w, keys[done][way], tp_num("weights", exact[way].count),
                      tp_str("set", exact[way].set));
}
