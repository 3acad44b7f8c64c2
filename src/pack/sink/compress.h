/* Archives: a finished shard becomes a seekable .zst, frame borders at tensors. */
#ifndef TP_PACK_COMPRESS_H
#define TP_PACK_COMPRESS_H

#include "pack/sink/sink.h"

#define TP_ZST_SUFFIX ".zst"

/* Compresses a finished plain file (file `f` of the sink's plan), NAME in sink->dir and at
 * `plain`, into NAME.zst and removes it. The result is fsynced. */
enum tp_code tp_compress_shard(const struct tp_file_sink *sink, uint32_t f, const char *name,
                               const char *plain, struct tp_err *err);

#endif
