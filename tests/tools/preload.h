/* What libraries to be preloaded have in common: the function that one of theirs stands before, and
 * the last argument of open(). To be included first.
 */
#ifndef TP_TESTS_PRELOAD_H
#define TP_TESTS_PRELOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

#define REAL(name)                                    \
    static __typeof__(name) *real;                    \
    if (!real)                                        \
        *(void **)&real = dlsym(RTLD_NEXT, #name)

static int mode_of(va_list args, int flags) { return flags & O_CREAT ? va_arg(args, int) : 0; }

#endif
