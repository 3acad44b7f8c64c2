/* Which formats are worth making of a checkpoint for one engine and GPU, where they fit, and what
 * they cost: `tilepack suggest`. What is preferred stands in the engines' files ("suggest"), who
 * reads it and on how many GPUs is the verdict of served.h. Reads headers and a sample of values.
 */
#ifndef TP_PACK_SUGGEST_H
#define TP_PACK_SUGGEST_H

#include "pack/plan/file/card.h"
#include "pack/plan/file/served.h"
#include "pack/run/run_options.h"

/* How a suggestion is served. */
struct tp_placement {
    unsigned ranks;     /* tensor parallel */
    bool whole_experts; /* which divide experts by their number */
    uint64_t bytes;     /* of weights on each GPU */
};

enum tp_suggest_way {
    TP_SUGGEST_AS_IS,       /* nothing is converted: the engine reads the source */
    TP_SUGGEST_EXACT,       /* codes and values are taken over */
    TP_SUGGEST_CODES,       /* codes are taken over, their scales are rounded */
    TP_SUGGEST_ROUNDED,     /* plain weights are quantized, or packed ones as convert lets them */
    TP_SUGGEST_REQUANTIZED, /* packed ones with --requantize */
};

struct tp_suggestion {
    const struct tp_engine_advice *advice; /* NULL: the source as it is */
    const struct tp_format *format;        /* of it, the one with most bytes */
    const struct tp_engine_row *row;       /* that reads it there */
    enum tp_suggest_way way;
    bool searched;                         /* with the advice's search */
    uint64_t bytes;                        /* of all tensors */
    double bits;                           /* for each value of packed weights */
    struct tp_placement place;
    struct tp_wish wish;                   /* that it was asked with */
    struct tp_served served;
    char *note;                            /* why it is not tensor parallel over all GPUs; NULL: it
                                              is */
    struct tp_card_use cost;               /* without the name of the worst weight */
};

/* One that was looked at and is none. */
struct tp_passed_over {
    const struct tp_engine_advice *advice; /* NULL: the source as it is */
    const struct tp_format *format;
    char *why;
    uint64_t bytes; /* on each GPU, of one that is too large; else 0 */
    unsigned gpus;  /* that such a one takes; 0: more than 64, or no such number of them */
};

enum { TP_SUGGESTIONS = 3 };
struct tp_suggestions {
    struct tp_suggestion row[TP_SUGGESTIONS]; /* the preferred one first */
    size_t count;
    struct tp_passed_over *other;
    size_t others, capacity;
    char form[128];      /* what the source is: "BF16", "gptq" */
    uint64_t bytes;      /* of its tensors */
    uint64_t rank_bytes; /* on each of the GPUs, tensor parallel */
    const struct tp_passed_over *least; /* where nothing fits: that of the fewest GPUs; or NULL */
    uint64_t memory;     /* of a GPU, and ... */
    uint64_t room;       /* ... what weights may take of it */
};

struct tp_suggest_wish {
    const struct tp_engine *engine; /* with advices */
    const struct tp_chip *chip;
    unsigned gpus;                     /* at least 1 */
    bool unmeasured;                   /* no values are read for errors */
    const struct tp_run_options *run;  /* of the sample: jobs, memory and stop */
};

/* Into a zeroed result, which is to be closed also after an error. None that fits is no error. */
enum tp_code tp_suggest(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                        const struct tp_suggest_wish *wish, struct tp_suggestions *out,
                        struct tp_err *err);
void tp_suggestions_close(struct tp_suggestions *out); /* legal on {0} and twice */

#endif
