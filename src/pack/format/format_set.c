/* "key=value": a choice by its word. Most choices are a number in the settings; one of a
 * group size is also another format of the same file.
 */
#include "pack/format/format_parse.h"

#include <stdio.h>
#include <string.h>

/* "scale=gpu|cpu|div, zero-groups=keep|skip" */
static void list_keys(const struct tp_format *format, char *text, size_t size)
{
    text[0] = '\0';
    for (uint32_t p = 0; p < format->params; p++) {
        const struct tp_param *param = &format->param[p];
        for (uint32_t c = 0; c < param->count; c++) {
            size_t at = strlen(text);
            snprintf(text + at, size - at, "%s%s%s%s", c ? "|" : p ? ", " : "", c ? "" : param->key,
                     c ? "" : "=", param->choices[c]);
        }
    }
}

/* The format with the group size that the choice sets, if it sets one. */
static enum tp_code choose_group(const struct tp_format **format, const json_t *set,
                                 struct tp_err *err)
{
    uint64_t group = tp_format_choice_group(set);
    if (group == 0 || group == (*format)->group)
        return TP_OK;
    const struct tp_format *other = tp_format_grouped(*format, group, err);
    *format = other ? other : *format;
    return other ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_format_set(const struct tp_format **chosen, const char *key_value,
                           struct tp_settings *settings, struct tp_err *err)
{
    const struct tp_format *format = *chosen;
    const char *equals = strchr(key_value, '=');
    size_t key_size = equals ? (size_t)(equals - key_value) : 0;
    char legal[400];
    for (uint32_t p = 0; equals && p < format->params; p++) {
        const struct tp_param *param = &format->param[p];
        if (strlen(param->key) != key_size || memcmp(param->key, key_value, key_size) != 0)
            continue;
        int choice = tp_param_find(param, equals + 1);
        if (choice >= 0) {
            settings->choice[p] = (uint8_t)choice;
            return choose_group(chosen, param->set[choice], err);
        }
    }
    list_keys(format, legal, sizeof legal);
    tp_err_hint(err, "%s takes %s", format->name, format->params ? legal : "no --set");
    return tp_fail(err, TP_E_USAGE, "--set '%s' means nothing to format %s", key_value,
                   format->name);
}

void tp_format_keep_zeros(const struct tp_format *format, struct tp_settings *settings)
{
    for (uint32_t p = 0; p < format->params; p++)
        for (uint32_t c = 0; c < format->param[p].count; c++)
            if (json_is_true(json_object_get(format->param[p].set[c], "zeros")))
                settings->choice[p] = (uint8_t)c;
}

uint32_t tp_format_unsearched(const struct tp_format *format, const struct tp_settings *settings)
{
    uint32_t p = 0;
    while (p < format->params && !format->param[p].unsearched[settings->choice[p]])
        p++;
    return p;
}

struct tp_format_search tp_format_search(const struct tp_format *format,
                                         const struct tp_settings *settings)
{
    return tp_format_unsearched(format, settings) == format->params
               ? format->searched
               : (struct tp_format_search){0};
}
