/* Packed weights of other tools, by the forms of quantizers. */
#ifndef TP_PACK_RECOGNISE_H
#define TP_PACK_RECOGNISE_H

#include "pack/source/finder.h"

/* Adds the packed weight of another tool whose codes are in this tensor, if it is one. After
 * tp_quantizers_check(). */
enum tp_code tp_finder_recognise(struct tp_finder *f, const struct tp_tensor *tensor);

#endif
