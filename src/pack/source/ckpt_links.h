/* Where the links of a checkpoint may lead. */
#ifndef TP_PACK_CKPT_LINKS_H
#define TP_PACK_CKPT_LINKS_H

#include "pack/source/checkpoint.h"

/* Resolves a path of a checkpoint: *real (free with free()) is the file without links. It must
 * lie in the directory `root`, or be a link into the blobs of the Hub's cache, whose snapshots
 * have no other files: "../../blobs/HASH", for a checkpoint in a subfolder with more "../".
 * Otherwise TP_E_INPUT, with `hint`. */
enum tp_code tp_ckpt_inside(const char *root, const char *path, const char *hint, char **real,
                            struct tp_err *err);

/* Resolves a file that is only copied, as strictly as the checkpoint was opened; *real stays
 * NULL where it is no link, or any is followed. */
enum tp_code tp_ckpt_other(const struct tp_checkpoint *ckpt, const char *path, char **real,
                           struct tp_err *err);

#define TP_STRICT_LINK_HINT "replace the link by the file itself, or do without the strict check"

#endif
