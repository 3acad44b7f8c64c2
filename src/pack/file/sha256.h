/* SHA-256 of bytes and of whole files: the hash for those who fear an attacker. XXH3
 * (leafhash.h) finds accidents, in one pass with the writing; this one is computed where it
 * is asked for, by reading the file again.
 *
 * The only place that knows whose SHA-256 it is: nettle's. It uses the processor's own
 * instructions, weighs little and needs no start-up; its licence (LGPL-3.0-or-later or
 * GPL-2.0-or-later) goes with Apache-2.0.
 */
#ifndef TP_PACK_SHA256_H
#define TP_PACK_SHA256_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TP_SHA256_BYTES = 32, TP_SHA256_TEXT = 65 }; /* TEXT counts the closing zero */

void tp_sha256(const void *data, size_t size, uint8_t digest[TP_SHA256_BYTES]);

/* 64 lower-case hexadecimal digits, and back: false unless `text` is exactly that. */
void tp_sha256_print(const uint8_t digest[TP_SHA256_BYTES], char text[TP_SHA256_TEXT]);
bool tp_sha256_parse(const char *text, uint8_t digest[TP_SHA256_BYTES]);

struct tp_sha256_file {
    char *path;
    uint64_t size;
    uint8_t digest[TP_SHA256_BYTES];
    struct tp_err err; /* why it has none */
};

/* Files by their number. */
struct tp_sha256_list {
    size_t count;
    void *arg;
    /* The path of file i, in fresh memory; NULL: *err says why. */
    char *(*path)(void *arg, size_t i, struct tp_err *err);
    /* Takes what was found out of file i. Called in order, by the caller's thread. */
    enum tp_code (*take)(void *arg, size_t i, const struct tp_sha256_file *file,
                         struct tp_err *err);
};

/* Hashes files, one thread to each, `jobs` at a time (256 KiB of memory each, at most 64), and 1
 * MiB for all, however many they are. `stop` as in tp_run_options, or NULL. Ends with the first
 * failure of the list's functions: that of a file is theirs to judge. */
enum tp_code tp_sha256_each(const struct tp_sha256_list *list, unsigned jobs, atomic_int *stop,
                            struct tp_err *err);

#endif
