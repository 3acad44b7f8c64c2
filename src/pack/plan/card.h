/* The model card of an output: README.md with the metadata of the Hub in front. */
#ifndef TP_PACK_CARD_H
#define TP_PACK_CARD_H

#include "pack/plan/plan.h"
#include "pack/plan/request.h"
#include "pack/text/text.h"

/* Appends the card of what the plan makes. `source` is the text of the source's card (NULL:
 * there is none): its metadata is kept, less what says which model it was made of where that is
 * known now, and its text follows. The same plan, request and source give the same card. */
enum tp_code tp_card_text(const struct tp_plan *plan, const struct tp_request *request,
                          const char *source, struct tp_text *text, struct tp_err *err);

#endif
