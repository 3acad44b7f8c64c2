/* What a checkpoint directory holds: index, shards, config and the other files.
 * Internal to checkpoint_open.c: looks at names and file types, opens no shard.
 */
#ifndef TP_PACK_CKPT_DIR_H
#define TP_PACK_CKPT_DIR_H

#include "pack/source/checkpoint.h"
#include "pack/source/index.h"

struct tp_ckpt_shard {
    char *name; /* without .zst */
    char *path; /* of the file that exists */
};

struct tp_ckpt_dir {
    struct tp_index index;         /* empty without an index file */
    char *index_path;              /* NULL: there is none */
    struct tp_ckpt_shard *shards;  /* sorted by name */
    size_t shard_count;
    uint32_t *shard_of;            /* index.shards -> shards */
};

/* Reads the directory of ckpt->path into *dir, and config and others into *ckpt.
 * Fails unless it is clear which files are the checkpoint. *dir is to be closed in
 * any case, *ckpt by its owner. */
enum tp_code tp_ckpt_dir_read(struct tp_checkpoint *ckpt, struct tp_ckpt_dir *dir,
                              struct tp_err *err);
/* "...-00001-of-00003.safetensors": one of several, which needs an index. */
bool tp_ckpt_is_part(const char *name);
void tp_ckpt_dir_close(struct tp_ckpt_dir *dir); /* legal on {0} and twice */

/* TP_E_UNSUPPORTED: it is what `convert --tp` of 0.1.0 wrote. */
enum tp_code tp_ckpt_fail_rank(struct tp_err *err);

/* "x.safetensors.zst" -> "x.safetensors", other names as they are; fresh memory. */
char *tp_ckpt_plain_name(const char *name, struct tp_err *err);

#endif
