/* Tensors beside a weight that its format does not read; see unused_siblings.h. They are judged by
 * their names; zero points and column orders also by whether they say anything. A tensor that is
 * named as scales are counts as scales, even if no format reads its shape or dtype.
 *
 * Invariant: the names are those of the format files, so a new form of sources needs no line here.
 */
#include "pack/source/unused_siblings.h"

#include "pack/quantizer/quantizer.h"
#include "pack/source/source_words.h"

#include <string.h>

/* What a tensor of that name is in the forms that are known by their tensors, and says of values,
 * as lists of words do not. *role: where they agree on it; zero points stored less one are none
 * that can be 0. Formats of forms are parsed here, when weights of other tools are completed. */
static bool is_known(const char *suffix, enum tp_role *role)
{
    size_t count;
    const struct tp_quantizer *const *all = tp_quantizers(&count);
    bool known = false;
    for (size_t q = 0; q < count; q++)
        for (uint32_t n = 0; n < all[q]->forms; n++) {
            const struct tp_format *format;
            if (tp_quantizer_format(&all[q]->form[n], &format, NULL) || !format)
                continue;
            for (uint32_t i = 0; i < format->op.outs; i++) {
                enum tp_role is = format->op.out[i].role;
                if (is == TP_ROLE_CODES || is == TP_ROLE_WORDS ||
                    strcmp(format->out[i].suffix, suffix) != 0)
                    continue;
                if (format->op.zero_add && is != TP_ROLE_ORDER)
                    is = TP_ROLE_SCALE;
                *role = known && *role != is ? TP_ROLE_SCALE : is;
                known = true;
            }
        }
    return known;
}

/* The suffix, if the name is that of a tensor of the weight, or NULL. */
static const char *suffix_of(const struct tp_weight *weight, size_t base_length, const char *name)
{
    return strncmp(name, weight->name, base_length) == 0 &&
                   name[base_length] == weight->form->separator
               ? name + base_length + 1
               : NULL;
}

static bool is_read(const struct tp_weight *weight, size_t tensor)
{
    for (uint32_t i = 0; i < weight->form->op.outs; i++)
        if (weight->tensor[i] == tensor)
            return true;
    return false;
}

static enum tp_code refuse(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                           const struct tp_tensor *unused, struct tp_err *err)
{
    const char *read = "its codes"; /* no format is without scales, or the like */
    char source[128];
    for (uint32_t i = weight->form->op.outs; i-- > 0;)
        if (weight->tensor[i] != TP_NO_TENSOR &&
            weight->form->format->op.out[i].role != TP_ROLE_CODES &&
            weight->form->format->op.out[i].role != TP_ROLE_WORDS)
            read = ckpt->tensors[weight->tensor[i]].name;
    tp_err_tensor(err, weight->name);
    tp_err_path(err, ckpt->files[unused->file].path);
    tp_err_hint(err, "leave the one that the weight was made with in the file, without the other; "
                     "--exclude leaves the weight as it is");
    return tp_fail(err, TP_E_UNSUPPORTED, "as %s it has %s, but %s stands beside it, too: nothing "
                   "says with which of them its codes are to be read",
                   tp_weight_source(weight, source, sizeof source), read, unused->name);
}

/* The first tensor of its name, and so the first of those that may stand beside it. */
static uint32_t first_of(const struct tp_checkpoint *ckpt, const struct tp_weight *weight)
{
    uint32_t first = weight->tensor[tp_op_find(&weight->form->op, TP_ROLE_CODES)];
    size_t base_length = strlen(weight->name); /* names are sorted: siblings are near */
    while (first > 0 && suffix_of(weight, base_length, ckpt->tensors[first - 1].name))
        first--;
    return first;
}

uint32_t tp_source_unused(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                          uint32_t from)
{
    size_t base_length = strlen(weight->name);
    const char *suffix;
    enum tp_role role;
    if (!weight->form->format || weight->origin)
        return TP_NO_TENSOR;
    for (uint32_t t = from ? from : first_of(ckpt, weight);
         t < ckpt->tensor_count && (suffix = suffix_of(weight, base_length, ckpt->tensors[t].name));
         t++)
        if (!is_read(weight, t) && is_known(suffix, &role))
            return t;
    return TP_NO_TENSOR;
}

static enum tp_code says_nothing(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 const struct tp_tensor *unused, bool *nothing, struct tp_err *err)
{
    const struct tp_weight_form *form = weight->form;
    enum tp_role role = TP_ROLE_SCALE;
    *nothing = false;
    is_known(unused->name + strlen(weight->name) + 1, &role);
    if (role == TP_ROLE_ZERO && !tp_op_is_int(&form->op))
        return tp_source_bytes_zero(ckpt, unused, nothing, err);
    if (role == TP_ROLE_ORDER && unused->dtype == TP_I32 && unused->bytes / 4 == form->box.k)
        return tp_source_words_ordered(ckpt, weight, unused, false, nothing, err);
    return TP_OK;
}

enum tp_code tp_source_check_unused(const struct tp_checkpoint *ckpt,
                                    const struct tp_weight *weight, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (uint32_t t = tp_source_unused(ckpt, weight, 0); t != TP_NO_TENSOR && code == TP_OK;
         t = tp_source_unused(ckpt, weight, t + 1)) {
        bool nothing;
        code = says_nothing(ckpt, weight, &ckpt->tensors[t], &nothing, err);
        if (code == TP_OK && !nothing)
            code = refuse(ckpt, weight, &ckpt->tensors[t], err);
    }
    return code;
}
