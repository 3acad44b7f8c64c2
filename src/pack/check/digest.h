/* One SHA-256 for a file or for everything in a directory: what is signed and compared.
 *
 * Normative. Of a file: the SHA-256 of its bytes. Of a directory: the SHA-256 of a text with
 * one line for each file below it, in byte order of their names:
 *     64 hexadecimal digits of its SHA-256, two spaces, its name, a newline.
 * Names are relative to the directory, with '/' between folders; what begins with a dot is
 * left out, links are followed. This is what sha256sum prints for these files.
 */
#ifndef TP_PACK_DIGEST_H
#define TP_PACK_DIGEST_H

#include "pack/file/sha256.h"

struct tp_digest {
    char sha256[TP_SHA256_TEXT]; /* as text */
    size_t files;
    uint64_t bytes; /* of all files */
};

/* TP_E_INPUT for a directory without files, names with a newline or backslash (which would
 * make two directories look alike), folders deeper than 16, a list longer than 256 MiB, which
 * links to folders can make of few files, and what is neither a file nor a folder. `stop` as in
 * tp_run_options, or NULL. */
enum tp_code tp_digest_path(const char *path, unsigned jobs, atomic_int *stop,
                            struct tp_digest *digest, struct tp_err *err);

#endif
