/* The files of a checkpoint's directory that are no shard, index or config.json: which of them
 * are copied along, and which are left out.
 */
#ifndef TP_PACK_CKPT_OTHERS_H
#define TP_PACK_CKPT_OTHERS_H

#include "pack/os/os.h"
#include "pack/source/checkpoint.h"

/* The path of a name of the directory, in fresh memory. */
char *tp_ckpt_path(const struct tp_checkpoint *ckpt, const char *name, struct tp_err *err);

/* Whether a name is that of a shard: .safetensors, or .safetensors.zst. */
bool tp_ckpt_is_shard(const char *name);

/* Whether one of ckpt->copy matches it. */
bool tp_ckpt_is_asked(const struct tp_checkpoint *ckpt, const char *name);

/* Fills ckpt->others and ckpt->left from the names of the directory. `shards` are the checkpoint's,
 * as far as they are known by their names. */
enum tp_code tp_ckpt_others(struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                            const char *const *shards, size_t count, struct tp_err *err);

#endif
