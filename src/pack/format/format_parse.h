/* Reading one embedded format file into a struct tp_format; used by format_list.c. */
#ifndef TP_PACK_FORMAT_PARSE_H
#define TP_PACK_FORMAT_PARSE_H

#include "pack/format/format.h"

/* `text` must outlive the format, and so must what *as points to. What fails leaves nothing behind:
 * *format is zero then. */
enum tp_code tp_format_parse(const char *text, const struct tp_format_as *as,
                             struct tp_format *format, struct tp_err *err);
void tp_format_close(struct tp_format *format); /* legal on {0} and twice */

/* The group size that the "set" of a choice asks for, TP_GROUP_ROW for "row"; 0: none. */
uint64_t tp_format_choice_group(const json_t *set);

#endif
