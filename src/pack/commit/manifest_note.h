/* Adding to the manifest of a finished checkpoint what was found out later.
 */
#ifndef TP_PACK_MANIFEST_NOTE_H
#define TP_PACK_MANIFEST_NOTE_H

#include "base/error.h"
#include "pack/file/leafhash.h"

#define TP_MANIFEST_NEW "tilepack.json.new" /* while it is written */

/* Sets the top-level key of DIRECTORY/tilepack.json to `value`, one JSON value as text; all else
 * stays byte for byte, but for the manifest's hash of itself. The file is replaced in one step.
 * TP_E_INPUT when it is not as it was written: a hash over damage would hide it. */
enum tp_code tp_manifest_note(const char *directory, const char *key, const char *value,
                              struct tp_err *err);

/* Which files the source of the open manifest were: beside its text, which says nothing of times
 * and machines, as an extended attribute. Not there where the file system has none, where it was
 * copied without, and where this user may not write it: "". */
void tp_manifest_note_source(int fd, const char id[TP_HASH_TEXT]);
void tp_manifest_noted_source(int fd, char id[TP_HASH_TEXT]);

#endif
