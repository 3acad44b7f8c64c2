/* Names of equal layers differ in their numbers only; this takes them away. */
#include "cli/fold.h"

#include <string.h>

char *tp_fold_name(const char *name)
{
    char *key = strdup(name), *to = key;
    for (const char *at = name; key && *at;) {
        if (*at >= '0' && *at <= '9' && (at == name || at[-1] == '.')) {
            *to++ = '*';
            while (*at >= '0' && *at <= '9')
                at++;
        } else {
            *to++ = *at++;
        }
    }
    if (key)
        *to = '\0';
    return key;
}
