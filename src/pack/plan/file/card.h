/* The model card of an output: README.md with the metadata of the Hub in front. */
#ifndef TP_PACK_CARD_H
#define TP_PACK_CARD_H

#include "pack/plan/unit/plan.h"
#include "pack/plan/unit/request.h"
#include "pack/text/text.h"

/* The weights of one format in a plan, and what they lose. */
struct tp_card_use {
    const struct tp_format *format; /* NULL: made plain */
    size_t count;
    /* What a sample of them loses; zero where it is not measured: */
    size_t measured;                /* weights; 0: the rest is not valid */
    double relative, mean_db, worst_db;
    const char *worst;              /* name of the weight with worst_db; of the plan */
    double most_lost;               /* the largest share of runs that became zero, and the */
    const char *loser;              /* name of that weight; NULL: none loses any */
    size_t losing;                  /* weights that lose more than healthy ones do */
};

/* Whether a unit of `format` is one of them: what lays gate and up out in a way of its own is of
 * the same name. */
bool tp_card_is_of(const struct tp_card_use *use, const struct tp_format *format);

/* The formats of a plan in the order of the first unit of each, in fresh memory. */
enum tp_code tp_card_uses(const struct tp_plan *plan, struct tp_card_use **uses, size_t *count,
                          struct tp_err *err);

/* Appends the card of what the plan makes. `source` is the text of the source's card (NULL:
 * there is none): its metadata is kept, less what says which model it was made of where that is
 * known now, and its text follows. The same plan, request, uses and source give the same card. */
enum tp_code tp_card_text(const struct tp_plan *plan, const struct tp_request *request,
                          const struct tp_card_use *uses, size_t count, const char *source,
                          struct tp_text *text, struct tp_err *err);

#endif
