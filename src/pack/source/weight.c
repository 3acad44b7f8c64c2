/* One weight: its memory and its names. */
#include "pack/source/weight.h"

#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *tp_origin_name(const struct tp_origin *origin, uint64_t expert, struct tp_err *err)
{
    const char *marker = strstr(origin->name, "{e}");
    if (!marker)
        return tp_os_copy(err, origin->name);
    return tp_os_format(err, "%.*s%llu%s", (int)(marker - origin->name), origin->name,
                        (unsigned long long)expert, marker + 3);
}

void tp_origins_free(struct tp_origin *origins, uint32_t count)
{
    for (uint32_t i = 0; origins && i < count; i++)
        free(origins[i].name);
    free(origins);
}

void tp_weight_close(struct tp_weight *weight)
{
    tp_origins_free(weight->origin, weight->origins);
    free(weight->lossy);
}

char *tp_weight_prefix(const struct tp_weight *weight, struct tp_err *err)
{
    return tp_os_join(err, weight->name, strlen(weight->name), (char[2]){weight->form->separator});
}

int tp_prefix_order(const char *name_a, char separator_a, const char *name_b, char separator_b)
{
    size_t a = strlen(name_a), b = strlen(name_b), both = a < b ? a : b;
    int order = memcmp(name_a, name_b, both);
    unsigned char x = (unsigned char)(a > both ? name_a[both] : separator_a);
    unsigned char y = (unsigned char)(b > both ? name_b[both] : separator_b);
    if (order || x != y)
        return order ? order : x - y;
    return a < b ? -1 : a > b;
}

const char *tp_weight_source(const struct tp_weight *weight, char *text, size_t size)
{
    const struct tp_format *format = weight->form->format;
    if (format && format->group == TP_GROUP_ROW)
        snprintf(text, size, "%s (one group to a row)", format->name);
    else if (format && format->group)
        snprintf(text, size, "%s (groups of %llu)", format->name,
                 (unsigned long long)format->group);
    else
        snprintf(text, size, "%s",
                 format ? format->name : tp_dtype_name(weight->form->stored));
    return text;
}
