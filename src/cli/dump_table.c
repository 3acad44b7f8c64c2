/* The table of tensors. Made for 100,000 of them: one pass to find what belongs
 * to what, and JSON written as it goes instead of as one tree. */
#include "cli/dump.h"
#include "cli/escape.h"
#include "cli/report.h"
#include "pack/format/format_words.h"
#include "pack/text/pattern.h"
#include "pack/text/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tp_box_text(char text[TP_BOX_TEXT], const struct tp_weight *weight)
{
    uint64_t shape[3] = {weight->form->box.e, weight->form->box.n, weight->form->box.k};
    text[0] = 'W';
    tp_shape_text(text + 1, shape + (weight->form->rank == 2), (uint32_t)weight->form->rank);
    return text;
}

json_t *tp_shape_json(const uint64_t *shape, uint32_t rank)
{
    json_t *json = json_array();
    for (uint32_t d = 0; d < rank; d++)
        tp_json_append(json, json_integer((json_int_t)shape[d]));
    return json;
}

json_t *tp_number_json(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

static enum tp_code find_owners(struct tp_listing *listing, struct tp_err *err)
{
    const struct tp_source *source = listing->source;
    listing->owners = calloc(source->ckpt.tensor_count + 1, sizeof *listing->owners);
    listing->tensors = calloc(source->ckpt.tensor_count + 1, sizeof *listing->tensors);
    if (!listing->owners || !listing->tensors)
        return tp_fail(err, TP_E_MEMORY, "no memory for the table");
    for (size_t w = 0; w < source->weights.count; w++) {
        const struct tp_weight *weight = &source->weights.items[w];
        bool said = weight->form->format && !weight->form->unsaid_width;
        for (uint32_t i = 0; said && i < weight->form->op.outs; i++)
            if (weight->tensor[i] != TP_NO_TENSOR)
                listing->owners[weight->tensor[i]] = (struct tp_owner){weight, i};
    }
    return TP_OK;
}

/* ---- which are listed ------------------------------------------------------ */

bool tp_is_pattern(const char *operand)
{
    return strpbrk(operand, "*?[") || !strncmp(operand, "re:", 3) ||
           !strncmp(operand, "glob:", 5);
}

/* A glob for the whole name unless it says that it is a regular expression. */
static enum tp_code compile(struct tp_matcher *matcher, const char *operand,
                            struct tp_pattern *pattern, struct tp_err *err)
{
    struct tp_pattern_origin origin = {"the pattern", -1, TP_E_USAGE};
    struct tp_err why = {0};
    char glob[TP_PATTERN_LENGTH + 8];
    bool named = !strncmp(operand, "glob:", 5), regex = !strncmp(operand, "re:", 3);
    int size = snprintf(glob, sizeof glob, "%s%s", named || regex ? "" : "glob:",
                        operand + (regex ? 3 : 0));
    if (size < 0 || (size_t)size >= sizeof glob)
        return tp_fail(err, TP_E_USAGE, "the pattern is too long");
    enum tp_code code = tp_pattern_compile(matcher, glob, TP_PATTERN_SEARCH, origin, pattern, &why);
    if (code) {
        why.hint[0] = '\0'; /* it is of options, where a regular expression stands bare */
        tp_err_hint(&why, "a pattern is a glob with *, ? and sets such as [a-z] and [!a-z], or a "
                          "regular expression as in Python behind 're:'");
        *err = why;
    }
    return code;
}

/* By the tensor's name, or by its weight's. */
static enum tp_code add_matching(struct tp_listing *listing, struct tp_matcher *matcher,
                                 const struct tp_pattern *pattern, struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = &listing->source->ckpt;
    for (size_t t = 0; t < ckpt->tensor_count; t++) {
        const struct tp_weight *weight = listing->owners[t].weight;
        bool matches;
        enum tp_code code = tp_pattern_match(matcher, pattern, ckpt->tensors[t].name, &matches,
                                             err);
        if (code == TP_OK && !matches && weight)
            code = tp_pattern_match(matcher, pattern, weight->name, &matches, err);
        if (code)
            return code;
        if (matches)
            listing->tensors[listing->count++] = (uint32_t)t;
    }
    return TP_OK;
}

static enum tp_code choose(struct tp_listing *listing, const char *operand, struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = &listing->source->ckpt;
    struct tp_matcher matcher = {0};
    struct tp_pattern pattern = {0};
    while (!operand && listing->count < ckpt->tensor_count) {
        listing->tensors[listing->count] = (uint32_t)listing->count;
        listing->count++;
    }
    if (!operand)
        return TP_OK;
    enum tp_code code = compile(&matcher, operand, &pattern, err);
    if (code == TP_OK)
        code = add_matching(listing, &matcher, &pattern, err);
    tp_pattern_free(&pattern);
    tp_matcher_close(&matcher);
    if (code || listing->count)
        return code;
    tp_err_path(err, ckpt->path);
    tp_err_hint(err, "'tilepack dump %s' lists the tensors", ckpt->path);
    return tp_fail(err, TP_E_USAGE, "no tensor or weight matches '%.200s'", operand);
}

/* ---- text --------------------------------------------------------------- */

/* The weights of a format with a listed tensor of codes. */
static size_t weights_of(const struct tp_listing *listing, const struct tp_format *format)
{
    size_t weights = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const struct tp_owner *owner = &listing->owners[listing->tensors[i]];
        const struct tp_format *own = owner->weight ? owner->weight->form->format : NULL;
        weights += own && !own->is_bias && strcmp(own->name, format->name) == 0 &&
                   owner->weight->form->op.out[owner->out].role == TP_ROLE_CODES;
    }
    return weights;
}

/* Of the formats of what is listed, the first by name behind `last`, or NULL. */
static const struct tp_format *format_behind(const struct tp_listing *listing, const char *last)
{
    const struct tp_format *next = NULL;
    for (size_t i = 0; i < listing->count; i++) {
        const struct tp_owner *owner = &listing->owners[listing->tensors[i]];
        const struct tp_format *own = owner->weight ? owner->weight->form->format : NULL;
        if (own && (!last || strcmp(own->name, last) > 0) &&
            (!next || strcmp(own->name, next->name) < 0))
            next = own;
    }
    return next;
}

/* "w4a8-cutlass: 14 weights", for each format. */
static void print_formats(const struct tp_listing *listing)
{
    const struct tp_format *format = format_behind(listing, NULL);
    for (; format; format = format_behind(listing, format->name)) {
        size_t weights = weights_of(listing, format);
        if (weights)
            printf("; %s: %zu weight%s", format->name, weights, weights == 1 ? "" : "s");
    }
}

static void print_total(const struct tp_listing *listing)
{
    const struct tp_checkpoint *ckpt = &listing->source->ckpt;
    char human[TP_HUMAN];
    uint64_t bytes = 0;
    for (size_t i = 0; i < listing->count; i++)
        bytes += ckpt->tensors[listing->tensors[i]].bytes;
    printf("\n%zu tensor%s, %s in %zu file%s", listing->count, listing->count == 1 ? "" : "s",
           tp_human_bytes(human, bytes), ckpt->file_count, ckpt->file_count == 1 ? "" : "s");
    print_formats(listing);
    putchar('\n');
}

static int print_text(const struct tp_options *o, const struct tp_listing *listing)
{
    static const struct tp_column columns[] = {
        {"tensor", false, TP_NARROW_FOLD}, {"dtype", false, TP_NARROW_WHOLE},
        {"shape", false, TP_NARROW_WHOLE}, {"bytes", true, TP_NARROW_WHOLE},
        {"holds", false, TP_NARROW_WHOLE}, {"file", false, TP_NARROW_FOLD},
        {"offset", true, TP_NARROW_WHOLE}};
    const struct tp_checkpoint *ckpt = &listing->source->ckpt;
    size_t file = o->verbose || ckpt->file_count > 1; /* one file needs no column */
    struct tp_table *table = tp_table_new(columns, 5 + file + o->verbose);
    for (size_t i = 0; i < listing->count; i++) {
        const struct tp_tensor *tensor = &ckpt->tensors[listing->tensors[i]];
        char shape[TP_SHAPE_TEXT], bytes[TP_DIGITS], offset[TP_DIGITS], holds[120];
        tp_put_u64(bytes, tensor->bytes);
        tp_put_u64(offset, tensor->offset);
        const char *cells[] = {tensor->name, tp_dtype_name(tensor->dtype),
                               tp_shape_text(shape, tensor->shape, tensor->rank), bytes,
                               tp_holds_text(holds, &listing->owners[listing->tensors[i]]),
                               ckpt->files[tensor->file].name, offset};
        tp_table_row(table, cells);
    }
    return tp_table_end(table);
}

/* ---- JSON --------------------------------------------------------------- */

static enum tp_code add_files(const struct tp_source *source, struct tp_text *text,
                              struct tp_err *err)
{
    enum tp_code code = tp_text_addf(text, err, "{\n  \"version\": 1,\n  \"files\": [");
    for (size_t f = 0; f < source->ckpt.file_count && code == TP_OK; f++) {
        const struct tp_file *file = &source->ckpt.files[f];
        if ((code = tp_text_addf(text, err, "%s\n    {\"name\": ", f ? "," : "")) == TP_OK &&
            (code = tp_add_json_text(text, file->name, err)) == TP_OK)
            code = tp_text_addf(text, err, ", \"size\": %llu, \"compressed\": %s}",
                                (unsigned long long)file->size, file->zst ? "true" : "false");
    }
    return code ? code : tp_text_addf(text, err, "\n  ],\n  \"tensors\": [");
}

static enum tp_code add_owner(struct tp_text *text, const struct tp_owner *owner,
                              struct tp_err *err)
{
    tp_text_add_word(text, ", \"format\": \"", err);
    tp_text_add_word(text, owner->weight->form->format->name, err);
    tp_text_add_word(text, "\", \"role\": \"", err);
    tp_text_add_word(text, tp_role_name(owner->weight->form->op.out[owner->out].role), err);
    tp_text_add_word(text, "\", \"weight\": ", err);
    return tp_add_json_text(text, owner->weight->name, err);
}

/* The first failure stays in *err. */
static enum tp_code add_tensor(struct tp_text *text, const struct tp_listing *listing, size_t i,
                               struct tp_err *err)
{
    const struct tp_source *source = listing->source;
    const struct tp_tensor *tensor = &source->ckpt.tensors[listing->tensors[i]];
    const struct tp_owner *owner = &listing->owners[listing->tensors[i]];
    char shape[TP_SHAPE_TEXT];
    tp_text_add_word(text, i ? ",\n    {\"name\": " : "\n    {\"name\": ", err);
    tp_add_json_text(text, tensor->name, err);
    tp_text_add_word(text, ", \"dtype\": \"", err);
    tp_text_add_word(text, tp_dtype_name(tensor->dtype), err);
    tp_text_add_word(text, "\", \"shape\": ", err);
    tp_text_add_word(text, tp_shape_text(shape, tensor->shape, tensor->rank), err);
    tp_text_add_number(text, ", \"bytes\": ", tensor->bytes, err);
    tp_text_add_number(text, ", \"offset\": ", tensor->offset, err);
    tp_text_add_word(text, ", \"file\": ", err);
    tp_add_json_text(text, source->ckpt.files[tensor->file].name, err);
    if (owner->weight)
        add_owner(text, owner, err);
    tp_text_add_word(text, "}", err);
    return err->code;
}

/* Printed as a whole: where memory ends, or a name is none that JSON can hold, nothing is. */
static int print_json(const struct tp_listing *listing)
{
    struct tp_text text = {0};
    struct tp_err err = {0};
    enum tp_code code = add_files(listing->source, &text, &err);
    for (size_t i = 0; i < listing->count && code == TP_OK; i++)
        code = add_tensor(&text, listing, i, &err);
    if (code == TP_OK) {
        tp_print_json(stdout, text.data, text.size);
        printf("\n  ]\n}\n");
    }
    tp_text_free(&text);
    return code ? tp_report_error(&err) : TP_OK;
}

int tp_dump_table(const struct tp_options *o, const struct tp_source *source,
                  const char *pattern)
{
    struct tp_listing listing = {.source = source};
    struct tp_err err = {0};
    int status;
    if (find_owners(&listing, &err) || choose(&listing, pattern, &err)) {
        status = tp_report_error(&err);
    } else if (o->json) {
        status = print_json(&listing);
    } else {
        status = o->fold || o->tree ? tp_dump_fold(&listing, o->tree) : print_text(o, &listing);
        if (status == TP_OK)
            print_total(&listing);
    }
    free(listing.owners);
    free(listing.tensors);
    return status;
}
