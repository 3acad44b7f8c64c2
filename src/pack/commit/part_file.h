/* The directory of a part, and the file in it that says what it is. */
#ifndef TP_PACK_PART_FILE_H
#define TP_PACK_PART_FILE_H

#include "pack/commit/commit_build.h"
#include "pack/commit/parts.h"

/* The directory of a part; that of {0, 0} is what the names of all begin with. Fresh memory. */
char *tp_part_path(const char *output, struct tp_share share, struct tp_err *err);
/* Writes the file of a part whose shards c->journal names. */
enum tp_code tp_part_write(struct tp_commit *c);
/* Reads that of the part in `path`; part->share stays 0. On failure *part is closed. */
enum tp_code tp_part_read(const char *path, struct tp_done_part *part, struct tp_err *err);
/* Whether nothing is left in it of a part that was being removed: then the directory goes, too. */
bool tp_part_is_empty(const char *path);
/* Removes the shards, the file, and the directory, if nothing else is in it. */
enum tp_code tp_part_remove(const struct tp_done_part *part, struct tp_err *err);
void tp_part_close(struct tp_done_part *part); /* legal on {0} and twice */

#endif
