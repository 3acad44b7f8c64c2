/* Descriptors of formats whose name, or version, is not known here: read from their text alone.
 *
 * A format made so has the operation, the suffixes and the words of one descriptor, and the layouts
 * of its weight alone; boxes of it are stored as op.c cuts them out of these. It is read, and never
 * written. Strict: what the text says must be known word by word, so that nothing is left out that
 * could change a value, and nothing that it describes is larger than what is stored.
 */
#ifndef TP_PACK_DESCRIPTOR_UNKNOWN_H
#define TP_PACK_DESCRIPTOR_UNKNOWN_H

#include "pack/source/weight_list.h"

#define TP_HINT_DAMAGED                                                                          \
    "its __metadata__ is damaged or was edited: get the file again, or convert the source anew"
#define TP_HINT_NEWER \
    "its format file (--format-file FILE) says what it is, or a newer tilepack wrote it"
/* TP_E_INPUT with the former hint. */
enum tp_code tp_damaged(struct tp_err *err, const char *what);

/* Box, rank and order of rows of a descriptor, of a format that is known or not. */
enum tp_code tp_descriptor_box(const json_t *json, struct tp_weight_form *form,
                               struct tp_err *err);

/* Fills in form->format, which the weights own, op, box and rank. TP_E_UNSUPPORTED where a word or
 * a key is not known, TP_E_INPUT where the text is damaged. */
enum tp_code tp_descriptor_unknown(const json_t *json, struct tp_weights *weights,
                                   struct tp_weight_form *form, struct tp_err *err);

/* Whether a tensor may be output i of such a weight, by its bytes; its dtype is that of the output
 * from then on. */
bool tp_unknown_output_fits(const struct tp_weight_form *form, uint32_t i, enum tp_dtype dtype,
                            uint64_t bytes);

#endif
