/* Parts: one plan carried out by several processes, on one machine or many, that
 * share nothing but the output's folder.
 *
 * The unit of work is a whole shard. Which part writes which shard follows from the
 * plan alone, so nothing has to be agreed upon; a part that dies is simply started
 * again. In DST.partial each part I of P has a journal (.tilepack-journal.I-of-P,
 * which is also its lock) and a note of what it does (.tilepack-plan.I-of-P).
 * tp_merge() proves all shards and commits, with the result of a single process.
 */
#ifndef TP_PACK_PARTS_H
#define TP_PACK_PARTS_H

#include "pack/commit/commit.h"

struct tp_share {
    unsigned index, count; /* 1 <= index <= count */
};

/* owner[f] becomes the part, 1..count, that writes file f of the plan: the largest
 * file first, each to the part with the fewest bytes so far (ties: lowest numbers). */
enum tp_code tp_parts_assign(const struct tp_plan *plan, unsigned count, unsigned *owner,
                             struct tp_err *err);

/* What one part has to do. */
struct tp_share_work {
    size_t shards;
    uint64_t bytes_in, bytes_out; /* as the run reports them, and on the disk */
};
enum tp_code tp_share_work(const struct tp_plan *plan, struct tp_share share,
                           struct tp_share_work *work, struct tp_err *err);

/* Writes the shards of one part into OUTPUT.partial; the output must be a directory.
 * Finished shards of an earlier run of the same part are proven and taken over.
 * TP_E_USAGE when the folder holds another conversion, or parts of another plan. */
enum tp_code tp_convert_part(const struct tp_plan *plan, const struct tp_request *request,
                             const char *output, struct tp_share share,
                             const struct tp_convert_options *options,
                             struct tp_convert_result *result, struct tp_err *err);

/* What the parts noted in OUTPUT.partial. */
struct tp_parts {
    bool already_done;  /* there are no parts, but a complete OUTPUT */
    unsigned count;
    unsigned zstd;      /* level, 0 = plain */
    char *source;       /* path of the source, without links, where a part read it */
    char *request;      /* JSON for tp_request_parse() */
    uint8_t hash[TP_HASH_BYTES]; /* of the plan */
};

/* Reads and compares all notes. TP_E_USAGE when there are none, TP_E_INPUT when they
 * are of different plans. An OUTPUT that was complete before loses what an earlier
 * merge had no time to remove; what that replaced goes only with `force`. */
enum tp_code tp_parts_read(const char *output, bool force, struct tp_parts *parts,
                           struct tp_err *err);
void tp_parts_close(struct tp_parts *parts); /* legal on {0} and twice */

/* Proves every shard by its hash and commits. `plan` was made again from the source
 * and the noted request. TP_E_INPUT names the parts that are missing, and a shard
 * that is not what its part wrote. */
enum tp_code tp_merge(const struct tp_plan *plan, const struct tp_request *request,
                      const struct tp_parts *parts, const char *output,
                      const struct tp_convert_options *options,
                      struct tp_convert_result *result, struct tp_err *err);

#endif
