/* Loading: parts of a checkpoint's tensors, read by several threads through a bounded ring of
 * host memory into memory that the caller allocated, on the host or on a device.
 *
 * Reads no more of the files than the pages in which the parts lie; with `verify`, every byte
 * of each file that holds one of them, once. Knows no kernels and makes no bytes.
 */
#ifndef TP_PACK_LOAD_H
#define TP_PACK_LOAD_H

#include "pack/load/load_cut.h"
#include "pack/load/load_target.h"

struct tp_load_options {
    const struct tp_load_target *target;
    unsigned threads;    /* at least 1, at most TP_LOAD_THREADS are started */
    uint64_t ring_bytes; /* of all slots together; at least TP_LOAD_MIN is taken */
    bool verify;         /* files are hashed, and compared with the hash of their header */
};

enum { TP_LOAD_THREADS = 64, TP_LOAD_SLOTS = 2 };
#define TP_LOAD_MIN (TP_LOAD_SLOTS * UINT64_C(1048576)) /* of one thread */

/* Returns when every part is in its place, or with the first failure, when nothing is written
 * any more: the contents of all `to` are then undefined. TP_E_USAGE for a box that is not inside
 * of its tensor, TP_E_INPUT for a file that was truncated or changed since it was opened,
 * TP_E_DIFF for one whose hash is wrong, TP_E_UNSUPPORTED for a box that does not begin and
 * end with bytes (sub-byte dtypes) and, with `verify`, for files without a hash. */
enum tp_code tp_load(const struct tp_checkpoint *ckpt, const struct tp_load_part *parts,
                     size_t count, const struct tp_load_options *options, struct tp_err *err);

#endif
