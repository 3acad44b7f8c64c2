/* Weights whose largest values took the scales of the others, in words. */
#include "cli/lost_report.h"

#include "cli/report.h"
#include "kernels/op/distance.h"

#include <stdio.h>

static double percent(const struct tp_unit_result *unit)
{
    return 100 * tp_distance_lost(&unit->distance);
}

/* `losing` weights do, this one most. */
static void warn(const char *name, const char *format, double share, size_t losing)
{
    char others[64] = "";
    if (losing > 1)
        snprintf(others, sizeof others, ", and too much of %zu other weight%s", losing - 1,
                 losing == 2 ? "" : "s");
    tp_warn("%s in %s: %.2f %% of its runs of eight values became zero%s; in healthy weights less "
            "than %g %% do, and SNR does not show it", name, format, share, others,
            100 * TP_LOST_LIMIT);
}

void tp_lost_warn(const struct tp_unit_result *units, size_t count)
{
    const struct tp_unit_result *most = NULL;
    size_t losing = 0;
    for (size_t u = 0; u < count; u++) {
        if (!units[u].format || !tp_distance_loses(&units[u].distance))
            continue;
        if (!losing++ || percent(&units[u]) > percent(most))
            most = &units[u];
        tp_note("%s in %s: %.2f %% of its runs of eight values became zero", units[u].name,
                units[u].format->name, percent(&units[u]));
    }
    if (losing)
        warn(most->name, most->format->name, percent(most), losing);
}

enum tp_code tp_lost_estimate(const struct tp_plan *plan, const struct tp_run_options *run,
                              struct tp_card_use *uses, size_t count, struct tp_err *err)
{
    enum tp_code code = tp_estimate_card(plan, run, uses, count, err);
    for (size_t i = 0; i < count && code == TP_OK; i++)
        if (uses[i].losing)
            warn(uses[i].loser, uses[i].format->name, 100 * uses[i].most_lost, uses[i].losing);
    return code;
}
