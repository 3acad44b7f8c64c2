/* How the scales of a weight are searched, beside its format's settings: the words of the
 * command line, of recipes and of descriptors (formats/README.md, section 14). Knows
 * neither files of importance nor plans.
 */
#ifndef TP_PACK_SEARCH_CHOICE_H
#define TP_PACK_SEARCH_CHOICE_H

#include "kernels/op/kernel.h"
#include "pack/file/leafhash.h"

#include <jansson.h>

/* {0}: no search. Compared by memcmp(). */
struct tp_search_choice {
    uint8_t search;     /* enum tp_search */
    uint8_t is_signed;  /* negative scales are allowed */
    uint8_t importance; /* enum tp_importance */
    uint8_t hash[16];   /* FILE: of the numbers that were used, else zeros */
};

/* What the user says. Words are NULL where nothing was said. */
struct tp_search_words {
    const char *search;     /* none, mse or w4a8; NULL: none */
    bool is_signed;
    const char *importance; /* none, magnitude, or the path of a file */
};

/* The choice that the words make for a codec. TP_E_USAGE where they contradict each other
 * or the codec. What is not said of importance is magnitude for int4, else none. */
enum tp_code tp_search_choice_make(const struct tp_search_words *words, enum tp_codec codec,
                                   struct tp_search_choice *choice, struct tp_err *err);

/* Puts the choice into an operation that will encode. */
void tp_search_choice_op(const struct tp_search_choice *choice, struct tp_op *op);

const char *tp_search_name(unsigned search);
/* "none", "magnitude", or for a file "file". */
const char *tp_importance_word(unsigned importance);

/* Parameter `i` of a descriptor (formats/README.md, section 14.6): its key, and its value, which may
 * lie in `text`. NULL behind the last one; there is none without a search. */
enum { TP_SEARCH_PARAMS = 3 };
const char *tp_search_choice_param(const struct tp_search_choice *choice, unsigned i,
                                   char text[TP_HASH_TEXT], const char **value);
/* Adds them all. */
void tp_search_choice_describe(const struct tp_search_choice *choice, json_t *params);

/* Takes one parameter of a descriptor. False: it is none of a search, or a wrong one. */
bool tp_search_choice_read(const char *key, const char *value, struct tp_search_choice *choice);

/* Whether a codec can have such a choice. */
bool tp_search_choice_fits(const struct tp_search_choice *choice, const struct tp_op *op);

/* TP_E_USAGE for a choice that the codec has, but not with these blocks: w4a8 is of groups of
 * 128 columns alone. */
enum tp_code tp_search_choice_check(const struct tp_search_choice *choice, const struct tp_op *op,
                                    struct tp_err *err);

#endif
