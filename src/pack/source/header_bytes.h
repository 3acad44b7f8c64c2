/* Whether a file has a header at all. */
#ifndef TP_PACK_HEADER_BYTES_H
#define TP_PACK_HEADER_BYTES_H

#include "base/error.h"

#include <stdbool.h>

/* Whether the file begins as safetensors files do, or is an archive of one that does: one that was
 * cut off does, too. What cannot be looked at (tp_err_unread()) does not, and becomes the error. */
bool tp_header_begins(const char *path, struct tp_err *err);

#endif
