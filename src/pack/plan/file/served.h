/* Who reads what a plan makes, on which GPUs, or why nobody does: by the rules of the engines'
 * files (pack/engine/engine.h), before a byte is written.
 */
#ifndef TP_PACK_SERVED_H
#define TP_PACK_SERVED_H

#include "pack/plan/file/wish.h"
#include "pack/plan/unit/plan.h"
#include "pack/text/text.h"

enum { TP_MAX_COMMAND = 24 };
/* An engine that has rows for a format of the plan. */
struct tp_reader {
    const struct tp_engine *engine;
    uint32_t gpus;     /* on which it reads all of it (gpu.h); 0: it does not */
    bool documents;    /* something of that was not run */
    const struct tp_engine_row *row[8]; /* by which it reads the plan, as far as they say words */
    size_t rows;
    struct tp_text name; /* where it does not: the first weight or module, or nothing, ... */
    struct tp_text why;  /* ... and what is said of it, without a full stop */
    const char *warns;   /* what a rule says of weights that it would refuse or misread, or NULL */
};

struct tp_served {
    struct tp_reader *reader; /* servers first, then libraries and kernels; of each kind those first
                                 that read it, and of these those that were run */
    size_t count;
    const struct tp_reader *server; /* of the readers, that which it is to be served with: the one
                                       asked for, else the first server of which that was run; or
                                       NULL */
    char *why;                      /* of the model, not of a weight: why no server finds out what
                                       it is, or serves it on so many ranks; or NULL */
    bool written;                   /* formats of engines are written: there is something to say */
    unsigned sm;                    /* of the wish */
};

/* Into a zeroed one. Close it also after an error. */
enum tp_code tp_plan_served(const struct tp_plan *plan, const struct tp_wish *wish,
                            struct tp_served *served, struct tp_err *err);
void tp_served_close(struct tp_served *served); /* legal on {0} and twice */

/* Of each unit of the plan by itself whether the wish's engine, which is named, does not read it:
 * into refused[], of plan->unit_count; and why it does not read the first of these, one sentence
 * without its full stop, into the empty text. */
enum tp_code tp_plan_refused(const struct tp_plan *plan, const struct tp_wish *wish,
                             bool *refused, struct tp_text *why, struct tp_err *err);

/* The server that does not read it, or the wished engine if it does not, whose reason is the
 * verdict; NULL where there is a server, or no such, or the reason is one of the model. */
const struct tp_reader *tp_served_refusal(const struct tp_served *served,
                                          const struct tp_wish *wish);
/* Why no server takes it, or not the wished engine: one sentence, without its full stop, into the
 * empty text. */
enum tp_code tp_served_why(const struct tp_served *served, const struct tp_wish *wish,
                           struct tp_text *text, struct tp_err *err);
/* TP_E_UNSUPPORTED where it wishes something that is not so. */
enum tp_code tp_served_check(const struct tp_served *served, const struct tp_wish *wish,
                             struct tp_err *err);

/* The words of the command, with `output` for DST and for N the wish's ranks, written into
 * `number`. */
size_t tp_served_command(const struct tp_reader *reader, const char *output,
                         const struct tp_wish *wish, char number[12],
                         const char *word[TP_MAX_COMMAND]);

#endif
