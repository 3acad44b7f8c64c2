/* Committing: a conversion becomes visible whole or not at all.
 *
 * A directory is written as DST.partial, with a journal of finished shards, and
 * renamed at the end; a single file is written beside its name and renamed. The
 * old content, if --force replaces it, stays until the new one is complete.
 */
#ifndef TP_PACK_COMMIT_H
#define TP_PACK_COMMIT_H

#include "pack/commit/manifest.h"
#include "pack/plan/request.h"
#include "pack/run/run_options.h"

struct tp_card_use;

struct tp_convert_options {
    struct tp_run_options run;
    bool force;    /* replace what is in the way */
    unsigned zstd; /* write .safetensors.zst at this level; 0 = plain */
    bool discard;  /* write nothing (benchmarks) */
    /* Shards of an interrupted run are there: how many, of how many, and the bytes that the run
     * will not report. With run.progress_arg; or NULL. */
    void (*resumed)(void *arg, size_t shards, size_t of, uint64_t bytes);
    /* Fills what the uses of the plan's formats lose (plan/card.h), for the card: what follows from
     * the plan alone (tp_estimate_card()); or NULL, and the card says nothing of it. */
    enum tp_code (*errors)(const struct tp_plan *plan, const struct tp_run_options *run,
                           struct tp_card_use *uses, size_t count, struct tp_err *err);
};

struct tp_convert_result {
    bool already_done; /* the output was there, complete, from the same plan */
    bool unlocked;     /* no lock was to be had: nobody else was kept from writing it; set
                          also when it failed */
    size_t resumed;    /* shards taken over from an interrupted run */
    size_t shards;     /* of this part (tp_convert_part), or merged */
    uint64_t bytes_in, bytes_out;
};

/* Carries out the plan into `output` (a directory, or one .safetensors file when
 * the plan was made for one). `request` is recorded in the manifest. */
enum tp_code tp_convert(const struct tp_plan *plan, const struct tp_request *request,
                        const char *output, const struct tp_convert_options *options,
                        struct tp_convert_result *result, struct tp_err *err);

#endif
