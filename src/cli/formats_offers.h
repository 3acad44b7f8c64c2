/* `tilepack formats --gpu NAME --engine NAME`: what loads there, the smallest first. */
#ifndef TP_CLI_FORMATS_OFFERS_H
#define TP_CLI_FORMATS_OFFERS_H

#include "cli/options.h"

/* Text or JSON on stdout, of formats whose names begin with `prefix` (NULL: of all).
 * TP_E_DIFF when there are none. */
int tp_print_offers(const struct tp_options *o, const char *prefix);

#endif
