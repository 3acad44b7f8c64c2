/* Layout words, shapes and orders of columns: what they must be follows from the weight's size. */
#ifndef TP_PACK_WORDS_CHECK_H
#define TP_PACK_WORDS_CHECK_H

#include "pack/source/checkpoint.h"
#include "pack/source/weight.h"

/* Reads output `out` of a weight if it is layout words or an order of columns; *what (a text, else
 * "") says which one is not what its expression gives, or names a group that there is not. */
enum { TP_WORD_TEXT = 400 };
enum tp_code tp_words_check(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                            uint32_t out, char what[TP_WORD_TEXT], struct tp_err *err);

#endif
