/* Quoting for shells; see shell_word.h. */
#include "cli/shell_word.h"

#include <string.h>

enum tp_code tp_add_shell_word(struct tp_text *text, const char *path, struct tp_err *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+:,./-";
    const char *at = path;
    while (*at && ((unsigned char)*at >= 0x80 || strchr(plain, *at)))
        at++;
    enum tp_code code = *path == '-' ? tp_text_add_word(text, "./", err) : TP_OK;
    if (code || !*at)
        return code ? code : tp_text_add_word(text, path, err);
    code = tp_text_add(text, "'", 1, err);
    for (at = path; *at && code == TP_OK; at++)
        code = *at == '\'' ? tp_text_add_word(text, "'\\''", err) : tp_text_add(text, at, 1, err);
    return code ? code : tp_text_add(text, "'", 1, err);
}
