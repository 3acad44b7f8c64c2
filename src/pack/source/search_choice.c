/* Choices of a scale search, to words and back. */
#include "pack/source/search_choice.h"

#include "base/suffix.h"
#include "kernels/op/traits.h"
#include "pack/text/json_tree.h"

#include <string.h>

static const char *const importance_names[] = {"none", "magnitude", "file"};

const char *tp_search_name(unsigned search) { return tp_search_names[search]; }
const char *tp_importance_word(unsigned importance) { return importance_names[importance]; }

static enum tp_code make_search(const struct tp_search_words *words,
                                struct tp_search_choice *choice, struct tp_err *err)
{
    int search = words->search ? tp_word_of(words->search, tp_search_names, 3) : TP_SEARCH_NONE;
    if (search < 0) {
        tp_err_hint(err, "it takes none, mse and w4a8");
        return tp_fail(err, TP_E_USAGE, "search '%s' is no known one", words->search);
    }
    choice->search = (uint8_t)search;
    choice->is_signed = words->is_signed;
    if (search != TP_SEARCH_NONE || (!words->is_signed && !words->importance))
        return TP_OK;
    tp_err_hint(err, "choose a search: mse, or w4a8 for int4");
    return tp_fail(err, TP_E_USAGE, "%s says how to search, but there is no search",
                   words->is_signed ? "signed" : "importance");
}

enum tp_code tp_search_choice_make(const struct tp_search_words *words, enum tp_codec codec,
                                   struct tp_search_choice *choice, struct tp_err *err)
{
    const char *importance = words->importance;
    *choice = (struct tp_search_choice){0};
    enum tp_code code = make_search(words, choice, err);
    if (code || choice->search == TP_SEARCH_NONE)
        return code;
    if (choice->search == TP_SEARCH_W4A8 && !tp_codecs[codec].searches_rows) {
        tp_err_hint(err, "search mse suits this format");
        return tp_fail(err, TP_E_USAGE, "search w4a8 is only for int4 formats");
    }
    if (choice->is_signed && !tp_codecs[codec].searches_rows) {
        tp_err_hint(err, "leave it out: a search goes without it");
        return tp_fail(err, TP_E_USAGE, "signed is only for int4 formats: other scales have no "
                       "sign");
    }
    if (!importance)
        importance = importance_names[tp_codecs[codec].searches_rows ? TP_IMPORTANCE_MAGNITUDE
                                                              : TP_IMPORTANCE_NONE];
    int word = tp_word_of(importance, importance_names, TP_IMPORTANCE_FILE);
    choice->importance = (uint8_t)(word < 0 ? TP_IMPORTANCE_FILE : word);
    return TP_OK;
}

void tp_search_choice_op(const struct tp_search_choice *choice, struct tp_op *op)
{
    op->search = choice->search;
    op->search_signed = choice->is_signed;
    op->importance = choice->importance;
}

const char *tp_search_choice_param(const struct tp_search_choice *choice, unsigned i,
                                   char text[TP_HASH_TEXT], const char **value)
{
    static const char *const keys[TP_SEARCH_PARAMS] = {"search", "signed", "importance"};
    const bool file = choice->importance == TP_IMPORTANCE_FILE;
    if (choice->search == TP_SEARCH_NONE || i >= TP_SEARCH_PARAMS)
        return NULL;
    tp_hash_print(choice->hash, text);
    *value = i == 0   ? tp_search_names[choice->search]
             : i == 1 ? (choice->is_signed ? "yes" : "no")
                      : (file ? text : importance_names[choice->importance]);
    return keys[i];
}

void tp_search_choice_describe(const struct tp_search_choice *choice, json_t *params)
{
    char text[TP_HASH_TEXT];
    const char *key, *value;
    for (unsigned i = 0; (key = tp_search_choice_param(choice, i, text, &value)) != NULL; i++)
        tp_json_set(params, key, json_string(value));
}

bool tp_search_choice_read(const char *key, const char *value, struct tp_search_choice *choice)
{
    int word = -1;
    if (strcmp(key, "search") == 0) {
        word = tp_word_of(value, tp_search_names, 3);
        choice->search = (uint8_t)word;
        return word > TP_SEARCH_NONE;
    }
    if (strcmp(key, "signed") == 0) {
        choice->is_signed = strcmp(value, "yes") == 0;
        return choice->is_signed || strcmp(value, "no") == 0;
    }
    if (strcmp(key, "importance") != 0)
        return false;
    word = tp_word_of(value, importance_names, TP_IMPORTANCE_FILE);
    choice->importance = (uint8_t)(word < 0 ? TP_IMPORTANCE_FILE : word);
    return word >= 0 || tp_hash_parse(value, strlen(value), choice->hash);
}

/* What only the W4A8 kernel has is of its groups of 128. */
static bool groups_fit(const struct tp_search_choice *choice, const struct tp_op *op)
{
    return choice->search != TP_SEARCH_W4A8 || op->block_k == 128;
}

bool tp_search_choice_fits(const struct tp_search_choice *choice, const struct tp_op *op)
{
    if (choice->search == TP_SEARCH_NONE)
        return !choice->is_signed && choice->importance == TP_IMPORTANCE_NONE;
    if (tp_codecs[op->codec].searches_rows)
        return groups_fit(choice, op);
    return choice->search == TP_SEARCH_MSE && !choice->is_signed &&
           tp_codecs[op->codec].searches;
}

enum tp_code tp_search_choice_check(const struct tp_search_choice *choice, const struct tp_op *op,
                                    struct tp_err *err)
{
    if (groups_fit(choice, op))
        return TP_OK;
    tp_err_hint(err, "search mse suits every group size");
    return tp_fail(err, TP_E_USAGE, "search w4a8 is only for groups of 128: the kernel that it is "
                   "for has no others");
}
