/* The index of a sharded checkpoint: model.safetensors.index.json and its like, read without
 * a JSON tree. Says which shard each tensor is in; opens nothing.
 */
#ifndef TP_PACK_INDEX_H
#define TP_PACK_INDEX_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TP_INDEX_END ".safetensors.index.json" /* behind the stem: "model.safetensors.index.json" */
#define TP_INDEX_MAX_TENSORS UINT64_C(2000000) /* of a checkpoint: those of a weight are several */
#define TP_INDEX_MAX_BYTES (UINT64_C(256) << 20)

struct tp_index_entry {
    const char *name; /* tensor, NUL-terminated UTF-8 in the arena */
    uint32_t shard;   /* index into shards */
};

struct tp_index {
    struct tp_index_entry *entries; /* in file order, names unique */
    size_t count;
    uint32_t *sorted;    /* numbers of the entries in byte order of their names */
    const char **shards; /* as written in the index, sorted, unique */
    size_t shard_count;
    char *arena;
};

/* What loaders look for, the first one first: "model", then those of diffusers and of Mistral. */
#define TP_STEMS 3
extern const char *const tp_stem[TP_STEMS];
/* That of a file's name: what it begins with, or "model". */
const char *tp_stem_of(const char *name);
/* Whether it names an index: NAME.safetensors.index.json, or of a variant of the weights
 * NAME.safetensors.index.fp16.json. */
bool tp_index_is(const char *name);

/* Parses the text of an index. Top-level keys other than weight_map are checked
 * as JSON and ignored; no key of weight_map or of the top level may come twice.
 * Every shard name passes tp_index_shard_name(). More than TP_INDEX_MAX_TENSORS
 * tensors are TP_E_UNSUPPORTED, all other failures TP_E_INPUT with tensor and
 * file offset. On failure *index is closed. `text` may be freed afterwards. */
enum tp_code tp_index_parse(const char *text, uint64_t size, struct tp_index *index,
                            struct tp_err *err);
void tp_index_close(struct tp_index *index); /* legal on {0} and twice */

/* NULL when `name` may name a shard: one plain file name ending in .safetensors
 * or .safetensors.zst, so that no index can lead out of its directory.
 * Otherwise why not. */
const char *tp_index_shard_name(const char *name);

#endif
