/* Verifying what `convert --tp` wrote, as a whole. */
#ifndef TP_PACK_VERIFY_RANKS_H
#define TP_PACK_VERIFY_RANKS_H

#include "pack/check/verify.h"

/* Whether PATH is a directory of ranks, and no checkpoint itself. */
bool tp_verify_is_ranks(const char *path);

/* tp_verify() of each rank, all in one report, whose files are named "rank_0/..."; and whether
 * they can be joined. *unchecked: what lies beside them has no hash of its own. */
enum tp_code tp_verify_ranks(const char *path, const struct tp_verify_options *options,
                             struct tp_verify_report *report, bool *unchecked,
                             struct tp_err *err);

#endif
