/* Packed sources while planning: what is read of them beforehand, and why one of
 * them is refused.
 *
 * Invariant: after tp_plan_check_sources() every chosen packed weight can be
 * decoded, and tensors that look packed but were not recognised are an error.
 */
#include "pack/plan/plan_build.h"

#include "base/suffix.h"
#include "pack/os/os.h"
#include "pack/source/source_check.h"
#include "pack/source/source_config.h"

#include <stdio.h>
#include <string.h>

/* Codes of a quantized weight, by name and type. */
static bool looks_packed(const struct tp_tensor *tensor)
{
    static const char *const suffixes[] = {".qweight", ".weight_packed", "_proj_blocks"};
    if (tensor->rank < 2)
        return false;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (tp_ends_with(tensor->name, suffixes[i]))
            return true;
    return tp_ends_with(tensor->name, ".weight") && !tp_dtype_is_float(tensor->dtype) &&
           tensor->dtype != TP_BOOL && tp_dtype_bits(tensor->dtype) <= 32;
}

/* Codes of no format that is read: an error, unless they are excluded. */
static enum tp_code refuse_unknown(const struct tp_builder *b, const struct tp_tensor *tensor)
{
    char shape[TP_ST_MAX_RANK * 24] = "";
    bool excluded;
    enum tp_code code = tp_request_excludes(b->request, tensor->name, &excluded, b->err);
    if (code || excluded)
        return code;
    for (uint32_t d = 0; d < tensor->rank; d++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%llu", d ? "," : "",
                 (unsigned long long)tensor->shape[d]);
    tp_err_tensor(b->err, tensor->name);
    tp_err_path(b->err, b->plan->ckpt->files[tensor->file].path);
    tp_err_hint(b->err, "`tilepack formats` lists what is read (of GPTQ and AWQ: 4 bits); "
                        "--exclude leaves the tensor as it is");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s [%s] looks like the codes of a quantized weight, "
                   "but with the tensors beside it it is of no format that is read here",
                   tp_dtype_name(tensor->dtype), shape);
}

enum tp_code tp_plan_check_sources(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code =
        tp_source_config_check(b->plan->ckpt, weights, b->choices != NULL, b->err);
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        if (!b->choices || b->choices[w].rule)
            code = tp_source_check(b->plan->ckpt, weights, w, b->err);
    for (size_t i = 0; i < weights->other_count && code == TP_OK && b->choices; i++) {
        const struct tp_tensor *tensor = &b->plan->ckpt->tensors[weights->other[i]];
        if (looks_packed(tensor))
            code = refuse_unknown(b, tensor);
    }
    return code;
}

/* Which way round the global scale is. */
static const char *global_kind(const struct tp_op *op)
{
    return op->rule == TP_NVFP4_CT ? "a divisor" : "a multiplier";
}

/* Whether each block of `to` lies in one block of `from`; 0 is a block as long as the weight. */
static bool lies_within(uint32_t to, uint32_t from)
{
    return from == 0 || (to != 0 && from % to == 0);
}

/* FP8 and MXFP8 made of floats of no more bits, in blocks that are no coarser: what is lost is
 * little, and it is measured. */
static bool loses_little(const struct tp_op *from, const struct tp_op *to)
{
    return !tp_op_is_int(from) &&
           (to->codec == TP_CODEC_FP8 || to->codec == TP_CODEC_MXFP8) &&
           lies_within(to->block_n, from->block_n) && lies_within(to->block_k, from->block_k);
}

/* What NVFP4 lacks to be taken over as NVFP4. */
static const char *other_global(const struct tp_builder *b, const struct tp_weight *weight,
                                const struct tp_op *to, char *text, size_t size)
{
    tp_err_hint(b->err, "--set scale=%s takes it over as it is; --requantize quantizes again",
                weight->form->op.rule == TP_NVFP4_CT ? "ct" : "modelopt");
    snprintf(text, size, "its global scale is %s, that of the result %s",
             global_kind(&weight->form->op), global_kind(to));
    return text;
}

const char *tp_plan_lossy_reason(const struct tp_builder *b, const struct tp_weight *weight,
                                 const struct tp_unit *unit, char *text, size_t size)
{
    const struct tp_op *from = &weight->form->op, *to = &unit->form->op;
    if (from->codec == TP_CODEC_NVFP4 && to->codec == TP_CODEC_NVFP4)
        return other_global(b, weight, to, text, size);
    if (loses_little(from, to) || (b->request->recorded && from->codec != TP_CODEC_INT4))
        return NULL; /* recorded: 0.1.0 asked for --requantize with int4 only */
    tp_err_hint(b->err, "--requantize decodes it and quantizes again, and prints the error that "
                        "costs; --exclude leaves it as it is");
    if (from->codec != TP_CODEC_INT4)
        snprintf(text, size, "it is quantized already, and has to be decoded and quantized again "
                 "for that");
    else if (to->codec != TP_CODEC_INT4 || !weight->lossy)
        snprintf(text, size, "an int4 weight has to be decoded and quantized again for that");
    else
        snprintf(text, size, "%s", weight->lossy);
    return text;
}

const char *tp_plan_global_reason(const struct tp_builder *b, const struct tp_unit *unit,
                                  char *text, size_t size)
{
    const struct tp_weight *items = b->plan->weights->items;
    uint64_t views = unit->form->box.e * unit->form->views_per_expert;
    if (unit->form->kind != TP_UNIT_REPACK || unit->form->views_per_expert == 1 ||
        tp_op_find(&unit->form->op, TP_ROLE_GLOBAL) < 0)
        return NULL;
    for (uint64_t i = 0; i < views; i++) {
        uint64_t first = i / unit->form->views_per_expert * unit->form->views_per_expert;
        const struct tp_weight *x = &items[unit->views[first].weight];
        const struct tp_weight *y = &items[unit->views[i].weight];
        if (x->global == y->global)
            continue;
        snprintf(text, size, "the global scales of %s and %s differ (%.9g and %.9g), and the "
                 "result has one for both", x->name, y->name, (double)x->global,
                 (double)y->global);
        return text;
    }
    return NULL;
}

enum tp_code tp_plan_refuse(const struct tp_builder *b, const struct tp_unit *unit,
                            const char *reason)
{
    const struct tp_weight *weight = &b->plan->weights->items[unit->views[0].weight];
    uint32_t codes = weight->tensor[tp_op_find(&weight->form->op, TP_ROLE_CODES)];
    char source[128];
    tp_err_tensor(b->err, unit->name);
    tp_err_path(b->err, b->plan->ckpt->files[b->plan->ckpt->tensors[codes].file].path);
    tp_err_hint(b->err, "--exclude leaves it as it is");
    return tp_fail(b->err, TP_E_UNSUPPORTED, "%s cannot be converted to %s: %s",
                   tp_weight_source(weight, source, sizeof source), unit->form->format->name,
                   reason);
}
