/* Work that several threads share, one numbered item after the other. */
#ifndef TP_PACK_THREADS_H
#define TP_PACK_THREADS_H

#include "base/error.h"

#include <stdatomic.h>
#include <stddef.h>

struct tp_each {
    uint64_t count;
    uint64_t threads; /* at most; the caller is one, and the system may have fewer */
    /* Does item i. `own`: memory of this thread alone. */
    enum tp_code (*one)(void *arg, void *own, uint64_t i, struct tp_err *err);
    void *arg;
    size_t own; /* its bytes, which are zeros at first */
    void (*close)(void *own); /* or NULL */
    atomic_int *stop;         /* as in tp_stopped() */
};

/* TP_OK: all items are done. After the first failure, which is the error, no other is begun. */
enum tp_code tp_each(const struct tp_each *each, struct tp_err *err);

/* TP_E_INTERRUPT or TP_E_TERMINATE once *stop is the number of a signal. NULL: never. */
enum tp_code tp_stopped(atomic_int *stop, struct tp_err *err);

#endif
