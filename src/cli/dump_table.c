/* The table of tensors. Made for 100,000 of them: one pass to find what belongs to what. */
#include "cli/dump.h"
#include "cli/report.h"
#include "cli/table.h"
#include "pack/format/format_keywords.h"
#include "pack/text/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- what is printed ------------------------------------------------------ */

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

/* The listing's next format by name behind `last`, or NULL. */
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

static void put_tensor(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_listing *listing = of;
    const struct tp_checkpoint *ckpt = &listing->source->ckpt;
    const struct tp_tensor *tensor = &ckpt->tensors[listing->tensors[i]];
    const struct tp_owner *owner = &listing->owners[listing->tensors[i]];
    const struct tp_weight *weight = owner->weight;
    char holds[120];
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", tensor->name), tp_str("dtype", tp_dtype_name(tensor->dtype)),
             tp_numbers("shape", tensor->shape, tensor->rank), tp_num("bytes", tensor->bytes),
             tp_num("offset", tensor->offset), tp_str("file", ckpt->files[tensor->file].name),
             tp_cell("holds", tp_holds_text(holds, owner)));
    if (weight)
        tp_write(w, tp_str("format", weight->form->format->name),
                 tp_str("role", tp_role_name(weight->form->op.out[owner->out].role)),
                 tp_str("weight", weight->name));
    tp_end(w, '}');
}

static int print_text(const struct tp_options *o, const struct tp_listing *listing)
{
    static const struct tp_field fields[] = {
        {"tensor", "name", TP_FOLD}, {"dtype", "dtype", TP_LEFT}, {"shape", "shape", TP_LEFT},
        {"bytes", "bytes", TP_RIGHT}, {"holds", "holds", TP_LEFT}, {"file", "file", TP_FOLD},
        {"offset", "offset", TP_RIGHT}};
    size_t file = o->verbose || listing->source->ckpt.file_count > 1; /* one needs no column */
    return tp_table_print(fields, 5 + file + o->verbose, "tensors",
                          tp_list("tensors", listing->count, put_tensor, listing));
}

static void put_file(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_file *file = &((const struct tp_checkpoint *)of)->files[i];
    tp_object(w, NULL, tp_str("name", file->name), tp_num("size", file->size),
              tp_bool("compressed", file->zst));
}

static int print_json(const struct tp_listing *listing)
{
    const struct tp_checkpoint *ckpt = &listing->source->ckpt;
    return tp_json_result(tp_lines("files", ckpt->file_count, put_file, ckpt),
                          tp_lines("tensors", listing->count, put_tensor, listing));
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
