/* Modules that the source's quantization_config lists as not quantized: they stay
 * as they are unless somebody asks for them by name.
 *
 * Every method has a list of that kind, under one of a few keys, and its readers
 * match the entries a little differently. Here one rule serves all of them; it is
 * defined in formats/README.md, section 11.
 */
#ifndef TP_PACK_SOURCE_IGNORE_H
#define TP_PACK_SOURCE_IGNORE_H

#include "pack/os/store.h"
#include "pack/source/checkpoint.h"
#include "pack/text/name_set.h"
#include "pack/text/pattern.h"

#include <jansson.h>

/* An entry with '*', or one of too many components to be looked up. */
struct tp_ignore_wild {
    const char *text; /* as it is in the list */
    const char *bounded; /* with a '.' on either side */
    struct tp_pattern_origin origin;
};

/* {0} is a valid list of nothing. */
struct tp_source_ignore {
    const struct tp_checkpoint *ckpt;
    struct tp_names exact; /* entries that are whole components in a row */
    struct tp_ignore_wild *wild;
    size_t wilds, wild_capacity;
    struct tp_store store; /* texts */
    struct tp_matcher matcher; /* counts the steps of the wild ones, too */
    struct tp_pattern *regex; /* entries with "re:" */
    size_t regexes, regex_capacity;
    char *bounded; /* the module that is asked for, with a '.' on either side */
    size_t bounded_capacity;
};

/* Reads the lists of ckpt's config.json; ckpt has to live as long. TP_E_INPUT for an
 * entry "re:..." that is no regular expression or beyond the limits of pattern.h. Close
 * it after a failure, too. TP_E_MEMORY; where JSON could not be had for lack of memory,
 * only tp_json_check() tells. */
enum tp_code tp_source_ignore_open(const struct tp_checkpoint *ckpt,
                                   struct tp_source_ignore *ignore, struct tp_err *err);
/* Whether an entry stands for the module, which is a weight's name without ".weight".
 * TP_E_INPUT or TP_E_MEMORY as of tp_pattern_match(). */
enum tp_code tp_source_ignores(struct tp_source_ignore *ignore, const char *module, bool *ignored,
                               struct tp_err *err);
void tp_source_ignore_close(struct tp_source_ignore *ignore); /* legal on {0} and twice */

#endif
