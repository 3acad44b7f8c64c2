/* Packed sources while planning: what is read of them beforehand, and why one of
 * them is refused.
 *
 * Invariant: after tp_plan_check_sources() every chosen packed weight can be decoded, and every
 * matrix whose type is none of plain numbers is part of a weight, or beside one, or of integers
 * that are no codes, or excluded.
 */
#include "pack/plan/unit/build.h"

#include "base/num.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/source/source_config.h"
#include "pack/source/source_transforms.h"
#include "pack/source/unused_siblings.h"
#include "pack/source/weight_complete.h"
#include "pack/text/json_tree.h"

#include <stdio.h>
#include <string.h>

/* Whether its type is none that plain numbers of a matrix have. */
static bool is_narrow(const struct tp_tensor *tensor)
{
    return tensor->rank >= 2 && tensor->bytes && tensor->dtype != TP_BOOL &&
           tp_dtype_bits(tensor->dtype) <= 32 && !tp_dtype_is_float(tensor->dtype);
}

static bool is_integer(enum tp_dtype dtype)
{
    return dtype == TP_U8 || dtype == TP_I8 || dtype == TP_I16 || dtype == TP_U16 ||
           dtype == TP_I32 || dtype == TP_U32;
}

/* Whether all its integers are flags, or indices that leave half of their bits alone: codes that
 * are packed in words, or point into a code book of their own size, do not. */
static enum tp_code are_small(const struct tp_builder *b, const struct tp_tensor *tensor,
                              bool *small)
{
    uint8_t piece[1 << 14];
    unsigned width = tp_dtype_bits(tensor->dtype) / 8;
    uint32_t limit = width == 1 ? 2 : UINT32_C(1) << 4 * width;
    *small = true;
    for (uint64_t at = 0, size; at < tensor->bytes && *small; at += size) {
        size = tp_min_u64(sizeof piece, tensor->bytes - at);
        enum tp_code code = tp_checkpoint_read(b->plan->ckpt, tensor->file, piece, size,
                                               tensor->offset + at, b->err);
        if (code) {
            tp_err_tensor(b->err, tensor->name);
            return code;
        }
        for (uint64_t i = 0; i < size && *small; i += width) {
            uint32_t value = 0;
            memcpy(&value, piece + i, width); /* negative ones are large */
            *small = value < limit;
        }
    }
    return TP_OK;
}

/* The length of the name of its module, with the dot. */
static size_t module_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot + 1 - name) : 0;
}

/* The name of a tensor of the same module, or below the tensor's own name, less that of the
 * module; NULL: it is another's. */
static const char *beside(const struct tp_tensor *tensor, const struct tp_tensor *other)
{
    size_t module = module_of(tensor->name), own = strlen(tensor->name);
    if (strncmp(tensor->name, other->name, module) != 0 || other == tensor)
        return NULL;
    bool below = strncmp(tensor->name, other->name, own) == 0 && other->name[own] == '.';
    return below || !strchr(other->name + module, '.') ? other->name + module : NULL;
}

/* Whether codes are read with what has that name. */
static bool is_companion(const char *name)
{
    static const char *const words[] = {"scale", "zero", "shape", "codebook", "centroid", "absmax"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

enum { NEAR = 64 }; /* neighbours by name that may be beside a tensor, on either side */

/* The first and the last tensor, by name, that is looked at. */
static void neighbours(const struct tp_builder *b, const struct tp_tensor *tensor,
                       const struct tp_tensor **first, const struct tp_tensor **last)
{
    const struct tp_tensor *all = b->plan->ckpt->tensors;
    size_t at = (size_t)(tensor - all), behind = b->plan->ckpt->tensor_count - 1 - at;
    *first = tensor - tp_min_u64(NEAR, at);
    *last = tensor + tp_min_u64(NEAR, behind);
}

static bool has_companion(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    const struct tp_tensor *first, *last;
    neighbours(b, tensor, &first, &last);
    for (const struct tp_tensor *other = first; other <= last; other++) {
        const char *name = beside(tensor, other);
        if (name && is_companion(name))
            return true;
    }
    return false;
}

static enum tp_code judge(struct tp_builder *b, uint32_t t)
{
    const struct tp_tensor *tensor = &b->plan->ckpt->tensors[t];
    bool small = is_integer(tensor->dtype) &&
                 tp_name_integers(&b->plan->weights->facts, tensor->name);
    enum tp_code code = TP_OK;
    if (!small && is_integer(tensor->dtype) && !has_companion(b, tensor))
        code = are_small(b, tensor, &small);
    b->unread[t] = small ? TP_UNREAD_INTEGERS : TP_UNREAD_CODES;
    b->quantized |= !small;
    return code;
}

/* Makes room for what is found, and finds what stands beside packed weights. */
static enum tp_code find_spares(struct tp_builder *b)
{
    const struct tp_checkpoint *ckpt = b->plan->ckpt;
    const struct tp_weights *weights = b->plan->weights;
    b->unread = tp_os_zalloc(ckpt->tensor_count, sizeof *b->unread, b->err);
    for (uint32_t w = 0; w < weights->count && b->unread; w++)
        for (uint32_t t = tp_source_unused(ckpt, &weights->items[w], 0); t != TP_NO_TENSOR;
             t = tp_source_unused(ckpt, &weights->items[w], t + 1))
            b->unread[t] = TP_UNREAD_SPARE;
    return b->unread ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_plan_find_unread(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code = TP_OK;
    for (uint32_t w = 0; w < weights->count && !b->quantized; w++)
        b->quantized = weights->items[w].form->format != NULL;
    for (size_t i = 0; i < weights->other_count && code == TP_OK; i++) {
        uint32_t t = weights->other[i];
        if (!is_narrow(&b->plan->ckpt->tensors[t]))
            continue;
        if (!b->unread)
            code = find_spares(b);
        if (code == TP_OK && !b->unread[t])
            code = judge(b, t);
    }
    return code;
}

const char *tp_plan_shape_text(const struct tp_tensor *tensor, char text[TP_PLAN_SHAPE])
{
    size_t size = 0;
    *text = '\0';
    for (uint32_t d = 0; d < tensor->rank; d++)
        size += (size_t)snprintf(text + size, TP_PLAN_SHAPE - size, "%s%llu", d ? "," : "",
                                 (unsigned long long)tensor->shape[d]);
    return text;
}

/* "with the tensors beside it (scales, qzeros) ": of those that codes have beside them, some. */
enum { COMPANIONS = 200 };

static const char *companions(const struct tp_builder *b, const struct tp_tensor *tensor,
                              char text[COMPANIONS])
{
    const struct tp_tensor *first, *last;
    size_t used = 0;
    neighbours(b, tensor, &first, &last);
    *text = '\0';
    for (size_t i = 1, all = (size_t)(last - first); i <= all && used + 64 < COMPANIONS; i++) {
        const char *name = beside(tensor, tensor + i <= last ? tensor + i : last - i);
        if (name && is_companion(name))
            used += (size_t)snprintf(text + used, COMPANIONS - used, "%s%.40s",
                                     used ? ", " : "with the tensors beside it (", name);
    }
    if (used)
        snprintf(text + used, COMPANIONS - used, ") ");
    return text;
}

/* What config.json calls it: "; config.json says \"aqlm\"". */
static enum tp_code said_method(const struct tp_builder *b, char *text, size_t size, bool *said)
{
    json_t *config;
    enum tp_code code = tp_source_config(b->plan->ckpt, &config, b->err);
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    *text = '\0';
    *said = config != NULL;
    if (method)
        snprintf(text, size, "; config.json says \"quant_method\": \"%.100s\"", method);
    json_decref(config);
    return code;
}

/* Codes of no format that is read: an error. */
static enum tp_code refuse_codes(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    char shape[TP_PLAN_SHAPE], with[COMPANIONS], method[160];
    bool said, may_stay = b->choices && !b->request->repack_only;
    enum tp_code code = tp_source_named_check(b->plan->ckpt, b->err);
    if (code || (code = said_method(b, method, sizeof method, &said)))
        return code;
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    tp_err_hint(b->err, "`tilepack formats --all` lists what is read; start from the model that it "
                "was made of%s", may_stay && !said ? ", or --exclude leaves the tensor as it is" : "");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s [%s] looks like the codes of a quantized weight, "
                   "but %sit is of no format that is read here%s",
                   tp_dtype_name(tensor->dtype), tp_plan_shape_text(tensor, shape),
                   companions(b, tensor, with), method);
}

/* The first codes that are not read and, for `excluded`, are; NULL: there are none. */
static enum tp_code find_codes(const struct tp_builder *b, bool excluded,
                               const struct tp_tensor **found)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code = TP_OK;
    *found = NULL;
    for (size_t i = 0; i < weights->other_count && code == TP_OK && b->unread && !*found; i++) {
        const struct tp_tensor *tensor = &b->plan->ckpt->tensors[weights->other[i]];
        bool is = false;
        if (b->unread[weights->other[i]] != TP_UNREAD_CODES)
            continue;
        code = tp_request_excludes(b->request, tensor->name, &is, b->err);
        if (is == excluded)
            *found = tensor;
    }
    return code;
}

enum tp_code tp_plan_check_excluded(const struct tp_builder *b)
{
    const struct tp_tensor *tensor;
    char shape[TP_PLAN_SHAPE], method[160];
    bool said = false;
    enum tp_code code = find_codes(b, true, &tensor);
    if (code == TP_OK && tensor && (b->plan->unit_count || b->plan->drops))
        code = said_method(b, method, sizeof method, &said);
    if (code || !said)
        return code;
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    tp_err_hint(b->err, "start from the model that it was made of");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s [%s] looks like the codes of a quantized weight, "
                   "and excluded it would lose the quantization_config by which it is read%s",
                   tp_dtype_name(tensor->dtype), tp_plan_shape_text(tensor, shape), method);
}

/* What stands beside a weight and says nothing is not copied: another form would read it. */
static void leave_spares(struct tp_builder *b, const struct tp_weight *weight)
{
    for (uint32_t t = tp_source_unused(b->plan->ckpt, weight, 0); t != TP_NO_TENSOR;
         t = tp_source_unused(b->plan->ckpt, weight, t + 1))
        tp_plan_leave_out(b, &b->plan->ckpt->tensors[t]);
}

/* Whether a weight becomes another. */
static bool changes(const struct tp_builder *b, uint32_t w)
{
    return b->choices ? b->choices[w].rule != NULL
                      : b->request->restore && tp_weight_at(b, w)->form->format;
}

/* What is changed has no word for inputs that are transformed, and what config.json says of all
 * weights is written anew. */
static enum tp_code check_transforms(const struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code = TP_OK;
    bool any = false;
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++) {
        if (!changes(b, w))
            continue;
        if (!any)
            code = tp_source_transforms_check(b->plan->ckpt, b->err);
        if (code == TP_OK && weights->items[w].form->format)
            code = tp_source_beside_check(b->plan->ckpt, &weights->items[w], b->err);
        any = true;
    }
    return code;
}

enum tp_code tp_plan_check_sources(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    const struct tp_tensor *codes;
    uint64_t before = tp_json_failures();
    enum tp_code code = find_codes(b, false, &codes);
    if (code == TP_OK && codes)
        code = refuse_codes(b, codes);
    if (code == TP_OK) /* excluded codes are what was to be found */
        code = find_codes(b, true, &codes);
    if (code == TP_OK)
        code = tp_source_config_check(b->plan->ckpt, weights, !codes, b->err);
    if (code == TP_OK)
        code = check_transforms(b);
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        if (!b->choices || b->choices[w].rule) {
            code = tp_weight_complete(b->plan->ckpt, weights, w, b->err);
            if (code == TP_OK)
                leave_spares(b, &weights->items[w]);
        }
    return tp_json_check(before, code, b->err);
}

enum tp_code tp_plan_refuse(const struct tp_builder *b, const struct tp_unit *unit,
                            const char *reason)
{
    const struct tp_weight *weight = tp_weight_at(b, unit->views[0].weight);
    uint32_t codes = weight->tensor[tp_op_find(&weight->form->op, TP_ROLE_CODES)];
    char source[128];
    tp_err_tensor(b->err, unit->name);
    tp_err_path(b->err, b->plan->ckpt->files[b->plan->ckpt->tensors[codes].file].path);
    tp_err_hint(b->err, "--exclude leaves it as it is");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s cannot be converted to %s: %s",
                   tp_weight_source(weight, source, sizeof source), unit->form->format->name,
                   reason);
}
