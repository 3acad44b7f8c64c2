/* Verifying what `convert --tp` wrote, as a whole. */
#ifndef TP_PACK_VERIFY_RANKS_H
#define TP_PACK_VERIFY_RANKS_H

#include "pack/check/verify.h"

/* Whether PATH is a directory of ranks, and no checkpoint itself. False and an error: it could not
 * be looked at. */
bool tp_verify_is_ranks(const char *path, struct tp_err *err);

/* How many ranks the conversion had, from what lies beside them; they may be missing. */
enum tp_code tp_verify_count_ranks(const char *path, unsigned *count, struct tp_err *err);

/* tp_verify() of each rank, and with a `source` (or NULL) tp_verify_against(), all in one
 * report, whose files are named "rank_0/..."; and whether they can be joined. Its units are the
 * whole weights, once. *unchecked: what lies beside the ranks has no hash of its own. */
enum tp_code tp_verify_ranks(const char *path, const struct tp_side *source,
                             const struct tp_verify_options *options,
                             struct tp_verify_report *report, bool *unchecked,
                             struct tp_err *err);

#endif
