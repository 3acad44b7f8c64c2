/* One suggestion, and what it is asked for. */
#ifndef TP_PACK_SUGGESTION_H
#define TP_PACK_SUGGESTION_H

#include "pack/plan/file/card.h"
#include "pack/plan/file/served.h"
#include "pack/run/run_options.h"

struct tp_suggest_wish {
    const struct tp_engine *engine; /* with advices */
    const struct tp_chip *chip;
    unsigned gpus;                     /* at least 1 */
    bool unmeasured;                   /* no values are read for errors */
    const struct tp_run_options *run;  /* of the sample: jobs, memory and stop */
};

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
    struct tp_format_search said;          /* the search that convert has to be told */
    uint64_t bytes;                        /* of all tensors */
    double bits;                           /* for each value of packed weights */
    struct tp_placement place;
    struct tp_wish wish;                   /* that it was asked with */
    struct tp_served served;
    char *note;                            /* why it is not tensor parallel over all GPUs; NULL: it
                                              is */
    struct tp_card_use cost;               /* without names of weights */
};

#endif
