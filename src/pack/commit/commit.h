/* Committing: a conversion becomes visible whole or not at all.
 *
 * A directory is written as DST.partial, with a journal of finished shards, and renamed at the end;
 * a single file is written beside its name and renamed. What --force replaces changes places with
 * the new output in one step and is then DST.old, which is removed where it is this program's own
 * output as it was written, and kept where it is anything else.
 */
#ifndef TP_PACK_COMMIT_H
#define TP_PACK_COMMIT_H

#include "pack/commit/manifest.h"
#include "pack/plan/unit/request.h"
#include "pack/run/run_options.h"

struct tp_card_use;

/* What becomes of an output that is there. */
enum tp_if_exists {
    TP_EXISTS_COMPARE, /* the same one is done, any other TP_E_EXISTS */
    TP_EXISTS_SKIP,    /* it stays, whatever it is */
    TP_EXISTS_FAIL,    /* TP_E_EXISTS, also where it is the same */
    TP_EXISTS_REPLACE, /* --force */
};

struct tp_convert_options {
    struct tp_run_options run;
    enum tp_if_exists if_exists;
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
    bool already_done; /* nothing was written: the output was there, complete, from the same plan */
    bool skipped;      /* nothing was written: it was there, and TP_EXISTS_SKIP */
    const char *reason; /* of these, a word for programs: commit_again.c */
    bool unlocked;     /* no lock was to be had: nobody else was kept from writing it; set
                          also when it failed */
    size_t resumed;    /* shards taken over from an interrupted run */
    size_t shards;     /* of this part (tp_convert_part), or merged */
    uint64_t bytes_in, bytes_out;
    /* What was replaced is kept there, and why; NULL: nothing is. Also when it failed. */
    char *old;
    char old_why[256];
};
void tp_convert_result_close(struct tp_convert_result *result); /* legal on {0} and twice */

/* Carries out the plan into `output` (a directory, or one .safetensors file when
 * the plan was made for one). `request` is recorded in the manifest. */
enum tp_code tp_convert(const struct tp_plan *plan, const struct tp_request *request,
                        const char *output, const struct tp_convert_options *options,
                        struct tp_convert_result *result, struct tp_err *err);

#endif
