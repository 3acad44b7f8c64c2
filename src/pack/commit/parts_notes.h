/* Names and notes of parts, shared by parts_convert.c and merge.c. */
#ifndef TP_PACK_PARTS_NOTES_H
#define TP_PACK_PARTS_NOTES_H

#include "pack/commit/parts.h"

/* "KIND.I-of-P", in fresh memory. */
char *tp_part_file(const char *kind, struct tp_share share, struct tp_err *err);
/* Whether `name` is that of a part's note, and whose. */
bool tp_part_of_name(const char *name, struct tp_share *share);
#define TP_PART_NEW ".new" /* behind a note's name while it is written */
/* Whether it is the name of a part's note or journal. */
bool tp_part_owns(const char *name);
/* Reads one note; `count` is not in it and stays 0. On failure *parts is closed. */
enum tp_code tp_part_read(int dir, const char *directory, const char *name, struct tp_parts *parts,
                          struct tp_err *err);
/* Why two notes are not of the same plan, or NULL. */
const char *tp_parts_differ(const struct tp_parts *a, const struct tp_parts *b);

#endif
