/* Which formats are worth making of a checkpoint for one engine and GPU, where they fit, and what
 * they cost: `tilepack suggest`. What is preferred stands in the engines' files ("suggest"), who
 * reads it and on how many GPUs is the verdict of served.h. Reads headers and a sample of values.
 */
#ifndef TP_PACK_SUGGEST_H
#define TP_PACK_SUGGEST_H

#include "pack/suggest/suggestion.h"

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
    uint64_t rank_bytes; /* on each of the GPUs, tensor parallel; 0: it does not run on so many */
    const struct tp_passed_over *least; /* where nothing fits: that of the fewest GPUs; or NULL */
    uint64_t memory;     /* of a GPU, and ... */
    uint64_t room;       /* ... what weights may take of it */
};

/* Into a zeroed result, which is to be closed also after an error. None that fits is no error. */
enum tp_code tp_suggest(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                        const struct tp_suggest_wish *wish, struct tp_suggestions *out,
                        struct tp_err *err);
void tp_suggestions_close(struct tp_suggestions *out); /* legal on {0} and twice */

#endif
