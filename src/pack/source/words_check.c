/* Reading words, and comparing them with what their expressions give; see words_check.h.
 *
 * Invariant: what is found is said once, of the first word.
 */
#include "pack/source/words_check.h"

#include "base/layout_parse.h"
#include "pack/os/os.h"
#include "pack/source/source_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first word that is not what its expression gives. */
static void find_word(const struct tp_format_out *out, struct tp_box3 box, const uint8_t *data,
                      uint64_t bytes, char what[TP_WORD_TEXT])
{
    size_t width = tp_dtype_bits(out->dtype) / 8;
    uint64_t count = out->word_count ? bytes / width : 0;
    for (uint64_t at = 0; at < count && !*what; at++) {
        uint64_t expected = 0, stored = 0;
        const char *word = out->words[at % out->word_count];
        if (tp_expr_eval_at(word, box, at, &expected, NULL))
            continue;
        memcpy(&stored, data + at * width, width);
        if (stored != expected)
            snprintf(what, TP_WORD_TEXT, "word %llu is %llu, not %s = %llu",
                     (unsigned long long)at, (unsigned long long)stored, word,
                     (unsigned long long)expected);
    }
}

/* The first column of a group that there is not. */
static enum tp_code find_order(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                               const struct tp_tensor *tensor, char what[TP_WORD_TEXT],
                               struct tp_err *err)
{
    struct tp_err why = {0};
    bool trivial;
    enum tp_code code = tp_source_words_ordered(ckpt, weight, tensor, true, &trivial, &why);
    if (code == TP_E_INPUT) {
        snprintf(what, TP_WORD_TEXT, "%.*s", TP_WORD_TEXT - 1, why.what);
        return TP_OK;
    }
    if (code && err)
        *err = why;
    return code;
}

enum tp_code tp_words_check(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                            uint32_t out, char what[TP_WORD_TEXT], struct tp_err *err)
{
    enum tp_role role = weight->form->op.out[out].role;
    *what = '\0';
    if (weight->tensor[out] == TP_NO_TENSOR ||
        (role != TP_ROLE_WORDS && role != TP_ROLE_ORDER))
        return TP_OK;
    const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[out]];
    if (role == TP_ROLE_ORDER)
        return find_order(ckpt, weight, tensor, what, err);
    uint8_t *data = tp_os_alloc((size_t)tensor->bytes + 1, err);
    if (!data)
        return TP_E_MEMORY;
    enum tp_code code = tp_checkpoint_read(ckpt, tensor->file, data, tensor->bytes,
                                           tensor->offset, err);
    bool own = weight->form->format->op.out[out].role == TP_ROLE_WORDS || weight->origin;
    if (code == TP_OK && own) /* zero points of other tools may say the same otherwise */
        find_word(&weight->form->format->out[out], weight->form->box, data, tensor->bytes, what);
    free(data);
    return code;
}
