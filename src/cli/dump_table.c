/* The table of tensors. Made for 100,000 of them: one pass to find what belongs
 * to what, and JSON written as it goes instead of as one tree. */
#include "cli/dump.h"
#include "cli/escape.h"
#include "cli/report.h"
#include "pack/format/format_parse.h"
#include "pack/text/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tp_box_text(char text[TP_BOX_TEXT], const struct tp_weight *weight)
{
    uint64_t shape[3] = {weight->box.e, weight->box.n, weight->box.k};
    text[0] = 'W';
    tp_shape_text(text + 1, shape + (weight->rank == 2), (uint32_t)weight->rank);
    return text;
}

json_t *tp_shape_json(const uint64_t *shape, uint32_t rank)
{
    json_t *json = json_array();
    for (uint32_t d = 0; d < rank; d++)
        json_array_append_new(json, json_integer((json_int_t)shape[d]));
    return json;
}

json_t *tp_number_json(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

/* For every tensor the packed weight that it is an output of. */
struct owner {
    const struct tp_weight *weight;
    uint32_t out;
};

static struct owner *find_owners(const struct tp_source *source, struct tp_err *err)
{
    struct owner *owners = calloc(source->ckpt.tensor_count + 1, sizeof *owners);
    if (!owners)
        tp_fail(err, TP_E_MEMORY, "no memory for the table");
    for (size_t w = 0; owners && w < source->weights.count; w++) {
        const struct tp_weight *weight = &source->weights.items[w];
        for (uint32_t i = 0; weight->format && i < weight->op.outs; i++)
            if (weight->tensor[i] != TP_NO_TENSOR)
                owners[weight->tensor[i]] = (struct owner){weight, i};
    }
    return owners;
}

/* ---- text --------------------------------------------------------------- */

/* "w4a8-cutlass: 14 weights", for each format there is. */
static void print_formats(const struct tp_source *source)
{
    size_t count;
    const struct tp_format *formats = tp_formats(&count);
    for (size_t f = 0; f < count; f++) {
        size_t weights = 0;
        for (size_t w = 0; w < source->weights.count; w++)
            weights += source->weights.items[w].format == &formats[f];
        if (weights)
            printf("; %s: %zu weight%s", formats[f].name, weights, weights == 1 ? "" : "s");
    }
}

static void print_total(const struct tp_source *source)
{
    char human[TP_HUMAN];
    uint64_t bytes = 0;
    for (size_t t = 0; t < source->ckpt.tensor_count; t++)
        bytes += source->ckpt.tensors[t].bytes;
    printf("\n%zu tensor%s, %s in %zu file%s", source->ckpt.tensor_count,
           source->ckpt.tensor_count == 1 ? "" : "s", tp_human_bytes(human, bytes),
           source->ckpt.file_count, source->ckpt.file_count == 1 ? "" : "s");
    print_formats(source);
    putchar('\n');
}

static int print_text(const struct tp_options *o, const struct tp_source *source,
                      const struct owner *owners)
{
    static const struct tp_column columns[] = {
        {"tensor", false, true}, {"dtype", false, false}, {"shape", false, false},
        {"bytes", true, false},  {"holds", false, false}, {"file", false, true},
        {"offset", true, false}};
    size_t file = o->verbose || source->ckpt.file_count > 1; /* one file needs no column */
    struct tp_table *table = tp_table_new(columns, 5 + file + o->verbose);
    for (size_t t = 0; t < source->ckpt.tensor_count; t++) {
        const struct tp_tensor *tensor = &source->ckpt.tensors[t];
        const struct tp_weight *weight = owners[t].weight;
        char shape[TP_SHAPE_TEXT], bytes[TP_DIGITS], offset[TP_DIGITS], holds[120] = "";
        tp_put_u64(bytes, tensor->bytes);
        tp_put_u64(offset, tensor->offset);
        if (weight)
            stpcpy(stpcpy(stpcpy(holds, weight->format->name), " "),
                   tp_role_name(weight->op.out[owners[t].out].role));
        const char *cells[] = {tensor->name, tp_dtype_name(tensor->dtype),
                               tp_shape_text(shape, tensor->shape, tensor->rank), bytes, holds,
                               source->ckpt.files[tensor->file].name, offset};
        tp_table_row(table, cells);
    }
    int status = tp_table_end(table);
    if (status == TP_OK)
        print_total(source);
    return status;
}

/* ---- JSON --------------------------------------------------------------- */

static enum tp_code add_files(const struct tp_source *source, struct tp_text *text,
                              struct tp_err *err)
{
    enum tp_code code = tp_text_addf(text, err, "{\n  \"version\": 1,\n  \"files\": [");
    for (size_t f = 0; f < source->ckpt.file_count && code == TP_OK; f++) {
        const struct tp_file *file = &source->ckpt.files[f];
        if ((code = tp_text_addf(text, err, "%s\n    {\"name\": ", f ? "," : "")) == TP_OK &&
            (code = tp_text_add_json(text, file->name, err)) == TP_OK)
            code = tp_text_addf(text, err, ", \"size\": %llu, \"compressed\": %s}",
                                (unsigned long long)file->size, file->zst ? "true" : "false");
    }
    return code ? code : tp_text_addf(text, err, "\n  ],\n  \"tensors\": [");
}

static enum tp_code add_owner(struct tp_text *text, const struct owner *owner, struct tp_err *err)
{
    tp_text_add_word(text, ", \"format\": \"", err);
    tp_text_add_word(text, owner->weight->format->name, err);
    tp_text_add_word(text, "\", \"role\": \"", err);
    tp_text_add_word(text, tp_role_name(owner->weight->op.out[owner->out].role), err);
    tp_text_add_word(text, "\", \"weight\": ", err);
    return tp_text_add_json(text, owner->weight->name, err);
}

/* The first failure stays in *err. */
static enum tp_code add_tensor(struct tp_text *text, const struct tp_source *source, size_t t,
                               const struct owner *owner, struct tp_err *err)
{
    const struct tp_tensor *tensor = &source->ckpt.tensors[t];
    char shape[TP_SHAPE_TEXT];
    tp_text_add_word(text, t ? ",\n    {\"name\": " : "\n    {\"name\": ", err);
    tp_text_add_json(text, tensor->name, err);
    tp_text_add_word(text, ", \"dtype\": \"", err);
    tp_text_add_word(text, tp_dtype_name(tensor->dtype), err);
    tp_text_add_word(text, "\", \"shape\": ", err);
    tp_text_add_word(text, tp_shape_text(shape, tensor->shape, tensor->rank), err);
    tp_text_add_number(text, ", \"bytes\": ", tensor->bytes, err);
    tp_text_add_number(text, ", \"offset\": ", tensor->offset, err);
    tp_text_add_word(text, ", \"file\": ", err);
    tp_text_add_json(text, source->ckpt.files[tensor->file].name, err);
    if (owner->weight)
        add_owner(text, owner, err);
    tp_text_add_word(text, "}", err);
    return err->code;
}

/* Files first, so that one with a name that JSON cannot hold is reported alone. */
static int print_json(const struct tp_source *source, const struct owner *owners)
{
    struct tp_text text = {0};
    struct tp_err err = {0};
    enum tp_code code = add_files(source, &text, &err);
    for (size_t t = 0; t < source->ckpt.tensor_count && code == TP_OK; t++) {
        tp_print_json(stdout, text.data, text.size);
        text.size = 0;
        code = add_tensor(&text, source, t, &owners[t], &err);
    }
    if (code == TP_OK) {
        tp_print_json(stdout, text.data, text.size);
        printf("\n  ]\n}\n");
    }
    tp_text_free(&text);
    return code ? tp_report_error(&err) : TP_OK;
}

int tp_dump_table(const struct tp_options *o, const struct tp_source *source)
{
    struct tp_err err = {0};
    struct owner *owners = find_owners(source, &err);
    if (!owners)
        return tp_report_error(&err);
    int status = o->json ? print_json(source, owners) : print_text(o, source, owners);
    free(owners);
    return status;
}
