/* Outputs whose bytes are known when the plan is made: words that follow from the size of a weight,
 * and numbers that the plan made. The words of a row of millions of columns are megabytes, so they
 * are made where they are written, chunk by chunk; only a few are kept.
 */
#ifndef TP_PACK_CONSTANT_H
#define TP_PACK_CONSTANT_H

#include "pack/plan/unit/plan.h"

enum {
    TP_CONSTANT_CHUNK = 16 << 10, /* whole words of any size */
    TP_CONSTANTS_KEPT = 1 << 20,  /* enough for the forms of most models */
};

struct tp_constant {
    const void *made;                /* all bytes, memory of the plan; NULL: words */
    const struct tp_unit_form *form; /* words: of its output number `output` */
    uint32_t output;
};

/* Sets the output's constant, memory of the store: that of output i of such a unit. The form stays
 * for as long. Fails where one of its words would not fit. *kept: bytes that are kept so far, which
 * it adds to where there is room; NULL: none are. */
enum tp_code tp_output_constant(struct tp_store *store, const struct tp_unit_form *form,
                                uint32_t i, struct tp_output *output, uint64_t *kept,
                                struct tp_err *err);

/* Bytes [from, from + size), whole words, of a constant. */
enum tp_code tp_constant_bytes(const struct tp_constant *constant, uint64_t from, void *to,
                               uint64_t size, struct tp_err *err);

#endif
