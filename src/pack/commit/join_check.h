/* Whether a rank is still what its conversion wrote. */
#ifndef TP_PACK_JOIN_CHECK_H
#define TP_PACK_JOIN_CHECK_H

#include "pack/commit/manifest.h"
#include "pack/run/run_options.h"

/* Hashes the shards of an open rank, and where its small files are `copied` those, and compares
 * them with its manifest. What differs is TP_E_INPUT: its bytes would become those of the whole,
 * with a fresh hash. */
enum tp_code tp_join_check_rank(const struct tp_checkpoint *rank, bool copied,
                                const struct tp_run_options *options, struct tp_err *err);

#endif
