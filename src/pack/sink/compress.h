/* Archives: a finished shard becomes a seekable .zst, frame borders at tensors. */
#ifndef TP_PACK_COMPRESS_H
#define TP_PACK_COMPRESS_H

#include "pack/plan/plan.h"

#define TP_ZST_SUFFIX ".zst"

/* Compresses the finished plain file at `plain` (file `f` of the plan) into
 * `plain`.zst and removes it. The result is fsynced. */
enum tp_code tp_compress_shard(const struct tp_plan *plan, uint32_t f, const char *plain,
                               unsigned level, unsigned threads, struct tp_err *err);

#endif
