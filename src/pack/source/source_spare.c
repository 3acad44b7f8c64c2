/* What stands beside a weight and is not read; see source_spare.h. Names alone are judged: scales
 * of a shape or a dtype that nobody reads are scales all the same.
 *
 * Invariant: the names are those of the format files, so a new form of sources needs no line here.
 */
#include "pack/source/source_spare.h"

#include <string.h>

/* Whether the output has that name, and says something of values: lists of words do not. */
static bool is_companion(const struct tp_format *format, uint32_t i, const char *suffix)
{
    const struct tp_format_out *out = &format->out[i];
    enum tp_role role = format->op.out[i].role;
    if (role == TP_ROLE_CODES || role == TP_ROLE_WORDS)
        return false;
    bool same = strcmp(suffix, out->suffix) == 0;
    for (int a = 0; a < TP_MAX_ALSO && out->also[a] && !same; a++)
        same = strcmp(suffix, out->also[a]) == 0;
    return same;
}

/* Whether a form that is known by its tensors has such a one beside its codes. */
static bool is_known(const char *suffix)
{
    size_t count;
    const struct tp_format *formats = tp_formats(&count);
    for (size_t f = 0; f < count; f++)
        for (uint32_t i = 0; i < formats[f].op.outs; i++)
            if (!formats[f].described_only && (formats[f].config || formats[f].input_only) &&
                is_companion(&formats[f], i, suffix))
                return true;
    return false;
}

/* The suffix, if the name is that of a tensor of the weight, or NULL. */
static const char *suffix_of(const struct tp_weight *weight, size_t stem, const char *name)
{
    return strncmp(name, weight->name, stem) == 0 && name[stem] == weight->form->joint
               ? name + stem + 1
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
                           const struct tp_tensor *spare, struct tp_err *err)
{
    const char *read = "its codes"; /* no format is without scales, or the like */
    char source[128];
    for (uint32_t i = weight->form->op.outs; i-- > 0;)
        if (weight->tensor[i] != TP_NO_TENSOR &&
            is_companion(weight->form->format, i, weight->form->format->out[i].suffix))
            read = ckpt->tensors[weight->tensor[i]].name;
    tp_err_tensor(err, weight->name);
    tp_err_path(err, ckpt->files[spare->file].path);
    tp_err_hint(err, "leave the one that the weight was made with in the file, without the other; "
                     "--exclude leaves the weight as it is");
    return tp_fail(err, TP_E_UNSUPPORTED, "as %s it has %s, but %s stands beside it, too: nothing "
                   "says with which of them its codes are to be read",
                   tp_weight_source(weight, source, sizeof source), read, spare->name);
}

enum tp_code tp_source_spare_check(const struct tp_checkpoint *ckpt,
                                   const struct tp_weight *weight, struct tp_err *err)
{
    uint32_t codes = weight->tensor[tp_op_find(&weight->form->op, TP_ROLE_CODES)];
    size_t stem = strlen(weight->name), first = codes; /* names are sorted: siblings are near */
    const char *suffix;
    while (first > 0 && suffix_of(weight, stem, ckpt->tensors[first - 1].name))
        first--;
    for (size_t t = first; t < ckpt->tensor_count; t++) {
        if (!(suffix = suffix_of(weight, stem, ckpt->tensors[t].name)))
            return TP_OK;
        if (!is_read(weight, t) && is_known(suffix))
            return refuse(ckpt, weight, &ckpt->tensors[t], err);
    }
    return TP_OK;
}
