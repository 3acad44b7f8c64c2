/* Finding a checkpoint by its name on the Hub: in the cache of downloads on this machine, which
 * huggingface_hub keeps. Goes to no network.
 */
#ifndef TP_PACK_HUB_H
#define TP_PACK_HUB_H

#include "base/error.h"

/* The path to open for what a user typed, in fresh memory: itself, where it exists; the snapshot
 * of a folder "models--ORG--NAME" of the cache, that of refs/main or the only one; the cached
 * snapshot of "ORG/NAME", also as the address of its page. Fails with the code of the open when
 * there is nothing, with what to do: how to download it. */
char *tp_hub_find(const char *typed, struct tp_err *err);

/* The "ORG/NAME" that a path in the cache belongs to, in fresh memory; NULL without an error:
 * it lies elsewhere. */
char *tp_hub_name(const char *path, struct tp_err *err);

/* What completes the download of a path in the cache, in fresh memory: "ORG/NAME", and the commit
 * of its snapshot where refs/main does not lead to it. NULL as above. */
char *tp_hub_download(const char *path, struct tp_err *err);

#endif
