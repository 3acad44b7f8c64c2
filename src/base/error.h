/* Errors as values: a code that is also the exit status, and where it happened.
 *
 * A function that can fail returns `enum tp_code` and takes a `struct tp_err *`;
 * the first failure recorded in it wins, so callers may add context (file,
 * tensor) on the way up without losing the cause. Nothing here prints.
 */
#ifndef TP_BASE_ERROR_H
#define TP_BASE_ERROR_H

#include "base/c_linkage.h"

#include <stdbool.h>
#include <stdint.h>

TP_C_BEGIN

/* Also the process exit codes; the table stands in tilepack(1). */
enum tp_code {
    TP_OK = 0,
    TP_E_DIFF = 1,        /* verify or diff found a difference */
    TP_E_USAGE = 2,       /* wrong command line, or a place that no output can have */
    TP_E_INPUT = 3,       /* an input file is not what it claims to be */
    TP_E_UNSUPPORTED = 4, /* valid input that this version does not convert */
    TP_E_IO = 5,          /* the operating system refused */
    TP_E_MEMORY = 6,      /* out of memory, or the device failed */
    TP_E_EXISTS = 7,      /* the output is there, and is not this one */
    TP_E_LOCKED = 8,      /* another process writes it */
    TP_E_INTERRUPT = 130, /* SIGINT */
    TP_E_TERMINATE = 143, /* SIGTERM */
};

/* {0} is a valid empty error. Strings are truncated, never overrun. */
struct tp_err {
    enum tp_code code;
    int sys;            /* errno, or 0 */
    bool of_format;     /* the data is sound: the format that was asked for cannot hold it */
    uint64_t offset;    /* byte offset in `path` + 1; 0 = none */
    const char *reason; /* of TP_E_EXISTS: why it is not this one, a word for programs; or NULL */
    char path[1024];    /* file concerned, or "" */
    char tensor[512];   /* tensor concerned, or "" */
    char what[1024];    /* what is wrong, and why */
    char hint[1024];    /* what to do about it, or "" */
};

/* Records a failure unless one is already recorded. Returns the code recorded
 * now (the first one), so `return tp_fail(err, ...)` is the idiom. */
enum tp_code tp_fail(struct tp_err *err, enum tp_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with the hint, and of a file with its path. */
enum tp_code tp_refuse(struct tp_err *err, enum tp_code code, const char *hint,
                       const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
enum tp_code tp_refuse_at(struct tp_err *err, enum tp_code code, const char *path,
                          const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The same for a failed system call, TP_E_IO: stores errno's text behind the message. ENOMEM is a
 * lack of memory as any other, TP_E_MEMORY. */
enum tp_code tp_fail_sys(struct tp_err *err, int sys, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__
/* The analyser reads one source file at a time: here it sees that failing is never TP_OK. */
#define tp_fail(err, code, ...) ((void)tp_fail(err, code, __VA_ARGS__), (code))
#define tp_refuse(err, code, ...) ((void)tp_refuse(err, code, __VA_ARGS__), (code))
#define tp_refuse_at(err, code, ...) ((void)tp_refuse_at(err, code, __VA_ARGS__), (code))
#define tp_fail_sys(err, sys, ...) ((void)tp_fail_sys(err, sys, __VA_ARGS__), TP_E_IO)
#endif

/* Takes over a lack of memory from an error that is otherwise of no interest: it says
 * nothing of what was looked at. */
void tp_err_memory(struct tp_err *err, const struct tp_err *seen);

/* The same of all that tp_err_unread() says that of. */
void tp_err_take_unread(struct tp_err *err, const struct tp_err *seen);

/* Whether an errno says that nothing is at a path. No other does. */
bool tp_sys_absent(int sys);

/* Whether an error says nothing of the file that was looked at: memory was short, the run was
 * stopped, or the system could not open or read it though it is there. No file has a name that is
 * too long for the system, though a list in untrusted input may hold one. */
bool tp_err_unread(const struct tp_err *seen);

/* Add what is not yet known; each does nothing if the field is already set. */
void tp_err_path(struct tp_err *err, const char *path);
void tp_err_tensor(struct tp_err *err, const char *tensor);
void tp_err_offset(struct tp_err *err, uint64_t offset);
void tp_err_hint(struct tp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

TP_C_END

#endif
