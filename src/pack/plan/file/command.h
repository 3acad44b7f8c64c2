/* A request as the command that makes it. */
#ifndef TP_PACK_COMMAND_H
#define TP_PACK_COMMAND_H

#include "pack/plan/unit/request.h"
#include "pack/text/text.h"

/* Appends "tilepack convert SRC -o DST --to FORMAT ...", without an end of the line. Files that
 * the request came from are "FILE". */
enum tp_code tp_command_text(const struct tp_request *request, const char *src, const char *dst,
                             struct tp_text *text, struct tp_err *err);

#endif
