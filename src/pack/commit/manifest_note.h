/* Adding to the manifest of a finished checkpoint what was found out later.
 */
#ifndef TP_PACK_MANIFEST_NOTE_H
#define TP_PACK_MANIFEST_NOTE_H

#include "base/error.h"

#define TP_MANIFEST_NEW "tilepack.json.new" /* while it is written */

/* Sets the top-level key of DIRECTORY/tilepack.json to `value`, one JSON value as text; all else
 * stays byte for byte, but for the manifest's hash of itself. The file is replaced in one step.
 * TP_E_INPUT when it is not as it was written: a hash over damage would hide it. */
enum tp_code tp_manifest_note(const char *directory, const char *key, const char *value,
                              struct tp_err *err);

#endif
