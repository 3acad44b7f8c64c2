/* Parts: one plan carried out by several processes, on one machine or many, that
 * share nothing but the folder that the output lies in.
 *
 * The unit of work is a whole shard. Which part writes which shard follows from the plan
 * alone, so nothing has to be agreed upon. Part I of P is a directory of its own beside the
 * output, OUTPUT.part-I-of-P, which is written and renamed as every output is, and so is locked
 * and goes on when it was interrupted. It holds shards and one file that says which. tp_merge()
 * makes of all parts what a single process makes.
 */
#ifndef TP_PACK_PARTS_H
#define TP_PACK_PARTS_H

#include "pack/commit/commit.h"

struct tp_share {
    unsigned index, count; /* 1 <= index <= count */
};

/* Whether the part writes file f of the plan: shards are about of one size, and dealt in turn. */
static inline bool tp_share_has(struct tp_share share, size_t f)
{
    return f % share.count == share.index - 1;
}

/* What one part has to do. */
struct tp_share_work {
    size_t shards;
    uint64_t bytes_in, bytes_out; /* as the run reports them, and on the disk */
};
enum tp_code tp_share_work(const struct tp_plan *plan, struct tp_share share,
                           struct tp_share_work *work, struct tp_err *err);

/* Writes one part of `output`, which must be a directory. TP_E_USAGE when it is there and of
 * another plan; with options->force it is made anew. */
enum tp_code tp_convert_part(const struct tp_plan *plan, const struct tp_request *request,
                             const char *output, struct tp_share share,
                             const struct tp_convert_options *options,
                             struct tp_convert_result *result, struct tp_err *err);

/* A part that is complete, as its own file says it. */
struct tp_done_part {
    struct tp_share share;
    char *path;         /* of its directory */
    unsigned zstd;      /* level, 0 = plain */
    char *source;       /* its path without links, where the part read it; "": no UTF-8 */
    char *request;      /* JSON for tp_request_parse() */
    uint8_t hash[TP_HASH_BYTES];      /* of the plan */
    uint8_t source_id[TP_HASH_BYTES]; /* tp_commit_source_id() */
    char *journal;      /* its text: shards and their hashes */
};

/* The complete parts of one output, which are of one plan. */
struct tp_parts {
    bool already_done; /* there are none, but a complete output */
    const char *reason; /* of that, a word for programs */
    struct tp_done_part *items;
    size_t count;
};

/* TP_E_USAGE when there are none, TP_E_INPUT when they are of different plans. */
enum tp_code tp_parts_read(const char *output, struct tp_parts *parts, struct tp_err *err);
void tp_parts_close(struct tp_parts *parts); /* legal on {0} and twice */

/* Makes the output of the parts and removes them. `plan` was made again from the source and the
 * request of the parts. TP_E_INPUT names those that are missing. A shard that is not what its
 * part wrote is made again: result->resumed counts the others. */
enum tp_code tp_merge(const struct tp_plan *plan, const struct tp_request *request,
                      const struct tp_parts *parts, const char *output,
                      const struct tp_convert_options *options,
                      struct tp_convert_result *result, struct tp_err *err);

#endif
