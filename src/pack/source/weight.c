/* One weight: its memory and its names. */
#include "pack/source/weight.h"

#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *tp_origin_name(const struct tp_origin *origin, uint64_t expert, struct tp_err *err)
{
    const char *mark = strstr(origin->name, "{e}");
    if (!mark)
        return tp_os_copy(err, origin->name);
    return tp_os_format(err, "%.*s%llu%s", (int)(mark - origin->name), origin->name,
                        (unsigned long long)expert, mark + 3);
}

void tp_origins_free(struct tp_origin *origins, uint32_t count)
{
    for (uint32_t i = 0; origins && i < count; i++)
        free(origins[i].name);
    free(origins);
}

void tp_weight_close(struct tp_weight *weight)
{
    free(weight->name);
    free(weight->prefix);
    tp_origins_free(weight->origin, weight->origins);
    free(weight->lossy);
}

const char *tp_weight_source(const struct tp_weight *weight, char *text, size_t size)
{
    if (weight->format && weight->format->group)
        snprintf(text, size, "%s (groups of %llu)", weight->format->name,
                 (unsigned long long)weight->format->group);
    else
        snprintf(text, size, "%s",
                 weight->format ? weight->format->name : tp_dtype_name(weight->dtype));
    return text;
}
