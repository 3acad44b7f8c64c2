/* Weights whose largest values took the scales of the others, in words. */
#include "cli/lost_report.h"

#include "cli/report.h"
#include "kernels/op/distance.h"

#include <stdio.h>

static double percent(const struct tp_unit_result *unit)
{
    return 100 * tp_distance_lost(&unit->distance);
}

void tp_lost_warn(const struct tp_unit_result *units, size_t count)
{
    const struct tp_unit_result *most = NULL;
    size_t losing = 0;
    char others[64] = "";
    for (size_t u = 0; u < count; u++) {
        if (!units[u].format || !tp_distance_loses(&units[u].distance))
            continue;
        if (!losing++ || percent(&units[u]) > percent(most))
            most = &units[u];
        tp_note("%s in %s: %.2f %% of its runs of eight values became zero", units[u].name,
                units[u].format->name, percent(&units[u]));
    }
    if (!losing)
        return;
    if (losing > 1)
        snprintf(others, sizeof others, ", and too much of %zu other weight%s", losing - 1,
                 losing == 2 ? "" : "s");
    tp_warn("%s in %s: %.2f %% of its runs of eight values became zero%s; in healthy weights less "
            "than %g %% do, and SNR does not show it", most->name, most->format->name,
            percent(most), others, 100 * TP_LOST_LIMIT);
}
