/* The name that an unfinished output has. */
#ifndef TP_PACK_PARTIAL_NAME_H
#define TP_PACK_PARTIAL_NAME_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* The unfinished output beside `output`: NAME.partial for a directory, in which a journal says
 * that it is this program's; .NAME.tilepack.partial for a file, of which its name alone says so.
 * A name that would not leave room for that within the 255 bytes of a file name is cut at a
 * character, and a hash of all of it stands for the rest: the same output has the same unfinished
 * one in every run. Fresh memory, or NULL. */
char *tp_partial_name(const char *output, bool file, struct tp_err *err);

/* A name beside `output`: BEFORE, its name, END, cut in the same way where there would be no room
 * for `reserved` bytes more. Fresh memory, or NULL. */
char *tp_beside_name(const char *output, const char *before, const char *end, size_t reserved,
                     struct tp_err *err);

#endif
