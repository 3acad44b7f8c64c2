/* One format tried on a checkpoint: planned, judged, and given its place on the GPUs. */
#ifndef TP_PACK_TRIAL_H
#define TP_PACK_TRIAL_H

#include "pack/suggest/suggestion.h"

struct tp_trial {
    const struct tp_suggest_wish *wish;
    bool packed, experts; /* the source has such weights */
    uint64_t room;
    struct tp_request request;
    struct tp_plan plan;
    struct tp_suggestion made; /* as far as it is known; owned until it is taken */
    char *why;                 /* it does not work; or NULL */
    bool useless;              /* nothing to convert, or not what the advice needs */
    uint64_t too_large;        /* the least bytes on a GPU, of one that is read but does not fit */
    unsigned gpus;             /* that such a one takes, the fewest */
    bool runs;                 /* it is read on all GPUs, whether or not it fits */
};

/* Plans the format of an advice (NULL: the source as it is); `lossy`: with --requantize and the
 * search that plain weights have. Where it is not useless and has no `why`
 * the plan is one that convert carries out, and has its way, bytes and bits. */
enum tp_code tp_trial_plan(struct tp_trial *trial, const struct tp_checkpoint *ckpt,
                           const struct tp_weights *weights, bool lossy, struct tp_err *err);

/* Finds the place of a plan: on all GPUs, or on the largest number of them that can be. Without a
 * `why` and with too_large 0 there is one. */
enum tp_code tp_trial_place(struct tp_trial *trial, struct tp_err *err);

void tp_trial_close(struct tp_trial *trial); /* legal on {0} and twice */
void tp_suggestion_close(struct tp_suggestion *made);

#endif
