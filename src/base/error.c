/* Error values: recording only. The invariant is that the first failure wins. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* `sys`: its text stands behind the message; a lack of memory is told as such. */
static enum tp_code fail_v(struct tp_err *err, enum tp_code code, int sys, const char *fmt,
                           va_list args)
{
    bool memory = sys == ENOMEM;
    if (memory)
        code = TP_E_MEMORY;
    if (!err)
        return code;
    if (err->code != TP_OK)
        return err->code;
    err->code = code;
    err->sys = memory ? 0 : sys;
    int n = vsnprintf(err->what, sizeof err->what, fmt, args);
    if (sys && n >= 0 && (size_t)n < sizeof err->what)
        snprintf(err->what + n, sizeof err->what - (size_t)n, ": %s",
                 memory ? "out of memory" : strerror(sys));
    return code;
}

enum tp_code (tp_fail)(struct tp_err *err, enum tp_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    code = fail_v(err, code, 0, fmt, args);
    va_end(args);
    return code;
}

enum tp_code (tp_refuse)(struct tp_err *err, enum tp_code code, const char *hint, const char *fmt,
                         ...)
{
    va_list args;
    tp_err_hint(err, "%s", hint);
    va_start(args, fmt);
    code = fail_v(err, code, 0, fmt, args);
    va_end(args);
    return code;
}

enum tp_code (tp_refuse_at)(struct tp_err *err, enum tp_code code, const char *path,
                            const char *hint, const char *fmt, ...)
{
    va_list args;
    tp_err_path(err, path);
    tp_err_hint(err, "%s", hint);
    va_start(args, fmt);
    code = fail_v(err, code, 0, fmt, args);
    va_end(args);
    return code;
}

enum tp_code (tp_fail_sys)(struct tp_err *err, int sys, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    enum tp_code code = fail_v(err, TP_E_IO, sys, fmt, args);
    va_end(args);
    return code;
}

void tp_err_memory(struct tp_err *err, const struct tp_err *seen)
{
    if (err && err->code == TP_OK && seen->code == TP_E_MEMORY)
        *err = *seen;
}

void tp_err_take_unread(struct tp_err *err, const struct tp_err *seen)
{
    if (err && err->code == TP_OK && tp_err_unread(seen))
        *err = *seen;
}

bool tp_sys_absent(int sys) { return sys == ENOENT || sys == ENOTDIR; }

bool tp_err_unread(const struct tp_err *seen)
{
    if (seen->code == TP_E_IO)
        return !tp_sys_absent(seen->sys) && seen->sys != ELOOP && seen->sys != ENAMETOOLONG;
    return seen->code == TP_E_MEMORY || seen->code == TP_E_INTERRUPT ||
           seen->code == TP_E_TERMINATE;
}

static void set_once(char *dst, size_t size, const char *src)
{
    if (!dst[0] && src)
        snprintf(dst, size, "%s", src);
}

void tp_err_path(struct tp_err *err, const char *path)
{
    if (err)
        set_once(err->path, sizeof err->path, path);
}

void tp_err_tensor(struct tp_err *err, const char *tensor)
{
    if (err)
        set_once(err->tensor, sizeof err->tensor, tensor);
}

void tp_err_offset(struct tp_err *err, uint64_t offset)
{
    if (err && !err->offset)
        err->offset = offset + 1;
}

void tp_err_hint(struct tp_err *err, const char *fmt, ...)
{
    if (!err || err->hint[0])
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, args);
    va_end(args);
}
