/* Joining: the ranks that `convert --tp` wrote become the checkpoint that a
 * conversion without ranks would have written, byte for byte in every file.
 */
#ifndef TP_PACK_JOIN_H
#define TP_PACK_JOIN_H

#include "pack/commit/commit.h"

struct tp_join;

/* Opens PATH (the directory with rank_0, rank_1, ...) and plans the whole. What is
 * missing or does not belong together is TP_E_INPUT, a path that is no such
 * directory TP_E_USAGE. `flags`: those of tp_checkpoint_open() for each rank. */
enum tp_code tp_join_open(const char *path, unsigned flags, struct tp_join **join,
                          struct tp_err *err);
void tp_join_close(struct tp_join *join); /* NULL is fine */

const struct tp_plan *tp_join_plan(const struct tp_join *join);
unsigned tp_join_ranks(const struct tp_join *join);
/* What lies beside the ranks has no hash of its own: 0.1.0 wrote it. */
bool tp_join_unchecked(const struct tp_join *join);

/* Writes the whole into a directory. Each rank's shards are hashed first, and what is rebuilt
 * (index, config, copies) is compared with the hashes of the whole conversion before it becomes
 * visible; what differs is TP_E_INPUT. */
enum tp_code tp_join_run(struct tp_join *join, const char *output,
                         const struct tp_convert_options *options,
                         struct tp_convert_result *result, struct tp_err *err);

#endif
