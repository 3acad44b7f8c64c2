/* Archives: a finished shard becomes a seekable .zst, frame borders at tensors. */
#ifndef TP_PACK_COMPRESS_H
#define TP_PACK_COMPRESS_H

#include "pack/sink/sink.h"

#define TP_ZST_SUFFIX ".zst"

/* Compresses a finished plain file (file `f` of the sink's plan), open as `from`, NAME in
 * sink->dir and at `plain`, into NAME.zst and removes it. The result is fsynced. Of a single file
 * nothing is removed, and the result is open as sink->archive, also after a failure. */
enum tp_code tp_compress_shard(struct tp_file_sink *sink, uint32_t f, const char *name,
                               const char *plain, int from, struct tp_err *err);

#endif
