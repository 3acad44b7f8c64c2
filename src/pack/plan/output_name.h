/* Names of output tensors. A plan may have millions of outputs, so what a name is made of, its
 * unit's name, the joint and a suffix of the format, is put together when it is needed; only
 * names that are there anyway (those of kept tensors, or equal to the source's), or that are
 * longer than most, are texts of their own.
 */
#ifndef TP_PACK_OUTPUT_NAME_H
#define TP_PACK_OUTPUT_NAME_H

#include "pack/plan/plan.h"

/* Room for a name that is put together, NUL included. */
enum { TP_OUTPUT_NAME = 512 };

/* The output's name: its own text, or made in `text`. The plan must have the output's unit. */
const char *tp_output_name(const struct tp_plan *plan, const struct tp_output *output,
                           char text[TP_OUTPUT_NAME]);

/* The same in memory of the store where it is made; NULL + TP_E_MEMORY. */
const char *tp_output_name_in(const struct tp_plan *plan, const struct tp_output *output,
                              struct tp_store *store, struct tp_err *err);

/* What strcmp() says of the names of two outputs. */
int tp_output_name_order(const struct tp_plan *plan, const struct tp_output *a,
                         const struct tp_output *b);

/* Settles the name of an output that has its unit and its number there: a text of its own where
 * it needs one. */
enum tp_code tp_output_set_name(struct tp_plan *plan, struct tp_output *output,
                                struct tp_err *err);

#endif
