/* The headers of a checkpoint that is not opened yet: how long they are and how many tensors they
 * list, and the names of its files, on which it depends what memory it takes to open it and to plan
 * what becomes of it; and whether a file has a header at all.
 */
#ifndef TP_PACK_HEADER_BYTES_H
#define TP_PACK_HEADER_BYTES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct tp_header_size {
    uint64_t bytes;     /* of all headers */
    uint64_t uncounted; /* of these: of archives, and of more than any checkpoint has */
    uint64_t tensors;   /* of the others */
    uint64_t files;     /* in the directory, those in its folders too; 0: it is a file */
    uint64_t names;     /* bytes of all their names, with those of the folders */
};

/* Of a file, or of all files of a directory, archives too; zeros: not known. Keeps no list. What
 * cannot be read, or is no header, counts nothing: whoever opens it says why. */
struct tp_header_size tp_header_size(const char *path);

/* Has the figures of what does not fit (tp_os_limit_beside()) know of the archives among them: for
 * whoever may fail before it opens them. */
void tp_header_archives(const char *path);

/* Whether the file begins as safetensors files do, or is an archive of one that does: one that was
 * cut off does, too. What cannot be looked at (tp_err_unread()) does not, and becomes the error. */
bool tp_header_begins(const char *path, struct tp_err *err);

#endif
