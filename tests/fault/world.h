/* The outside world, under the test's control: every entry of tp_os is replaced by
 * one that counts, and that fails, kills the process or writes a log when told to.
 *
 * Calls are numbered from 1 in the order in which they happen; a conversion with
 * one worker makes the same calls each time.
 */
#ifndef TEST_FAULT_WORLD_H
#define TEST_FAULT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

enum call {
    CALL_OPEN, CALL_CREATE, CALL_CLOSE, CALL_PREAD, CALL_PWRITE, CALL_FSTAT, CALL_STAT,
    CALL_FSYNC, CALL_FALLOCATE, CALL_FTRUNCATE, CALL_RENAME, CALL_EXCHANGE, CALL_MKDIR,
    CALL_UNLINK, CALL_RMDIR, CALL_LOCK, CALL_OPENDIR, CALL_READDIR, CALL_CLOSEDIR,
    CALL_REALPATH, CALL_GETRLIMIT, CALL_SETRLIMIT, CALL_THREAD,
    CALL_ALLOC, /* malloc, calloc, realloc, aligned_alloc, jansson's and PCRE2's */
    CALL_COUNT
};

enum fault {
    FAULT_NONE,
    FAULT_ENOSPC,
    FAULT_EIO,   /* of an allocation: no memory */
    FAULT_EINTR, /* nothing was done; the caller has to try again */
    FAULT_SHORT, /* half of the bytes */
    FAULT_KILL_BEFORE,
    FAULT_KILL_AFTER,
    FAULT_KILL_HALF, /* killed in the middle of a write */
    FAULT_COUNT
};

const char *call_name(enum call call);
const char *fault_name(enum fault fault);
/* Whether the system could do this to that call. */
bool fault_applies(enum fault fault, enum call call);
/* Whether a program has to get over it without any harm. */
bool fault_is_harmless(enum fault fault);

/* Replaces tp_os and the allocator of jansson. Once. */
void world_install(void);
/* Starts counting anew. Call number `at` suffers the fault (0: none does); with
 * `sticky` all later calls of its kind as well. */
void world_arm(uint64_t at, enum fault fault, bool sticky);
uint64_t world_calls(void);
/* What call number n (from 1) was, in the last run that nothing was done to. */
enum call world_call(uint64_t n);
void world_keep_trace(void);

/* While on, what changes files is logged (see power.h). */
void world_log(bool on);

#endif
