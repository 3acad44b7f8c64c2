/* The line on weights whose codes and scales are taken over as they are. */
#include "cli/exact_report.h"

#include <stdio.h>
#include <string.h>

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

static struct exact find(const struct tp_plan *plan)
{
    const struct tp_unit_form *last = NULL; /* a model has a few, and units of one stand together */
    struct exact exact = {0};
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit_form *form = plan->units[u].form;
        if (form->kind != TP_UNIT_REPACK || form->format->is_bias ||
            tp_unit_loss(plan, &plan->units[u]) != TP_LOSS_NONE)
            continue;
        exact.count++;
        for (uint32_t p = 0; p < form->format->params && form != last; p++)
            if (form->settings.choice[p])
                add_word(&exact, form->format->param[p].key,
                         form->format->param[p].choices[form->settings.choice[p]]);
        last = form;
    }
    return exact;
}

void tp_exact_print(const struct tp_plan *plan)
{
    struct exact exact = find(plan);
    if (exact.count)
        printf("codes taken over, exact: %zu weight%s%s%s%s\n", exact.count,
               exact.count == 1 ? "" : "s", *exact.set ? " (" : "", exact.set,
               *exact.set ? ")" : "");
}

void tp_exact_put(struct tp_writer *w, const struct tp_plan *plan)
{
    struct exact exact = find(plan);
    if (exact.count)
        tp_object(w, "exact", tp_num("weights", exact.count), tp_str("set", exact.set));
}
