/* One tensor, or one packed weight: header facts, descriptor, tile. */
#include "base/layout_parse.h"
#include "base/num.h"
#include "cli/dump.h"
#include "cli/report.h"
#include "kernels/op/codec.h"
#include "kernels/op/traits.h"
#include "pack/format/format_keywords.h"
#include "pack/source/descriptor.h"
#include "pack/text/json_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text --------------------------------------------------------------- */

/* The parameters that a search adds to the descriptor. */
static void print_search(const struct tp_search_choice *search)
{
    char text[TP_HASH_TEXT];
    const char *key, *value;
    for (unsigned i = 0; (key = tp_search_choice_param(search, i, text, &value)) != NULL; i++)
        printf("%s%s=%s", i ? " " : "\n  scales searched with ", key, value);
}

static void print_weight(const struct tp_weight *weight)
{
    char text[TP_SHAPE_TEXT];
    printf("%s", tp_style("1"));
    tp_print_text(stdout, weight->name);
    printf("%s: %s, W%s", tp_style("0"), weight->form->format->name,
           tp_box_text(text, &weight->form->box, weight->form->rank));
    if (weight->origins)
        printf(" from %s", tp_dtype_name(weight->form->dtype));
    else
        printf(", known by its tensors (no descriptor is stored)");
    printf("\n  codec %s, a scale for each block of %ux%u (n x k)",
           tp_codec_name(weight->form->op.codec), weight->form->op.block_n,
           weight->form->op.block_k);
    for (uint32_t p = 0; p < weight->form->format->params && weight->origins; p++)
        printf("%s%s=%s", p ? " " : "\n  set with ", weight->form->format->param[p].key,
               weight->form->format->param[p].choices[weight->form->settings.choice[p]]);
    print_search(&weight->form->search);
    const struct tp_row_order *rows = &weight->form->settings.rows;
    if (rows->kind)
        printf("\n  rows in the order %s of %u heads", tp_row_kinds[rows->kind], rows->heads);
    if (rows->groups)
        printf(" in groups of %u", (unsigned)rows->heads / rows->groups);
    putchar('\n');
    for (uint32_t i = 0; i < weight->origins; i++) {
        const struct tp_origin *origin = &weight->origin[i];
        printf("  %s", i ? "and      " : "made from ");
        tp_print_text(stdout, origin->name);
        printf(" %s", tp_shape_text(text, origin->shape, origin->rank));
        if (origin->rows != origin->shape[origin->rank - 2])
            printf(", rows %llu to %llu%s", (unsigned long long)origin->row,
                   (unsigned long long)(origin->row + (origin->rows - 1) *
                                                          tp_max_u64(origin->step, 1)),
                   origin->step > 1 ? ", every second" : "");
        if (origin->expert >= 0)
            printf(", expert %lld", (long long)origin->expert);
        if (origin->transposed)
            printf(", stored as [E,K,N]");
        putchar('\n');
    }
}

static void print_facts(const struct tp_source *source, uint32_t t)
{
    const struct tp_tensor *tensor = &source->ckpt.tensors[t];
    const struct tp_file *file = &source->ckpt.files[tensor->file];
    char shape[TP_SHAPE_TEXT];
    printf("%s", tp_style("1"));
    tp_print_text(stdout, tensor->name);
    printf("%s\n  %s %s, %llu bytes at %llu of ", tp_style("0"), tp_dtype_name(tensor->dtype),
           tp_shape_text(shape, tensor->shape, tensor->rank), (unsigned long long)tensor->bytes,
           (unsigned long long)tensor->offset);
    tp_print_text(stdout, file->name);
    printf("%s\n", file->zst ? " (unpacked)" : "");
}

static void print_values_of_nibbles(const struct tp_weight *weight, const struct tp_op_out *out)
{
    if (tp_element_bits(out->element) != 4)
        return;
    printf("  nibbles 0 to 15 are");
    for (unsigned stored = 0; stored < 16; stored++) {
        unsigned code = stored;
        if (tp_elements[out->element].has_table)
            for (code = 0; weight->form->op.table[code] != stored;)
                code++;
        printf(" %g", tp_codec_code_value(&weight->form->op, (uint8_t)code));
    }
    putchar('\n');
}

static int print_output(const struct tp_source *source, const struct tp_weight *weight,
                        uint32_t i)
{
    const struct tp_op_out *out = &weight->form->op.out[i];
    struct tp_layout layout;
    struct tp_err err = {0};
    char text[512];
    print_facts(source, weight->tensor[i]);
    printf("  %s: %s", tp_role_name(out->role), tp_element_name(out->element));
    if (out->role == TP_ROLE_GROUP8)
        printf(", the group scale g as the eight bytes -8g, -7g, ... -1g");
    bool words = weight->form->format->op.out[i].role == TP_ROLE_WORDS;
    for (uint32_t w = 0; words && w < weight->form->format->out[i].word_count; w++) {
        uint64_t word = 0;
        if (tp_expr_eval(weight->form->format->out[i].words[w], weight->form->box, &word, &err))
            return tp_report_error(&err);
        printf("%s%llu", w ? ", " : ", always ", (unsigned long long)word);
    }
    putchar('\n');
    print_values_of_nibbles(weight, out);
    if (!out->layout)
        return TP_OK;
    if (tp_op_whole_layout(&weight->form->op, i, weight->form->box, &layout, &err))
        return tp_report_error(&err);
    tp_layout_print(&layout, text, sizeof text);
    printf("  layout %s in %s, padding 0x%02X\n", text,
           tp_element_bits(out->element) == 4 ? "nibbles"
           : tp_element_bits(out->element) == 8 ? "bytes"
                                                : tp_element_name(out->element),
           out->fill);
    return tp_dump_tile(weight, i);
}

static int print_text(const struct tp_source *source, const struct tp_subject *subject, bool whole)
{
    const struct tp_weight *weight = subject->weight;
    int status = TP_OK;
    if (!weight) {
        print_facts(source, subject->tensor);
        printf("  not packed; rows of %llu in order\n", (unsigned long long)subject->box.k);
        return TP_OK;
    }
    print_weight(weight);
    for (uint32_t i = 0; i < weight->form->op.outs && status == TP_OK; i++)
        if (weight->tensor[i] != TP_NO_TENSOR && (whole || i == subject->out)) {
            putchar('\n');
            status = print_output(source, weight, i);
        }
    return status;
}

/* ---- JSON --------------------------------------------------------------- */

static void put_tensor(struct tp_writer *w, const struct tp_source *source, uint32_t t,
                       const char *key, const char *role)
{
    const struct tp_tensor *tensor = &source->ckpt.tensors[t];
    tp_object(w, key, tp_str("name", tensor->name), tp_str("dtype", tp_dtype_name(tensor->dtype)),
              tp_numbers("shape", tensor->shape, tensor->rank), tp_num("bytes", tensor->bytes),
              tp_num("offset", tensor->offset),
              tp_str("file", source->ckpt.files[tensor->file].name),
              tp_if(role, tp_str("role", role)));
}

static void put_origin(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_origin *origin = &((const struct tp_weight *)of)->origin[i];
    tp_object(w, NULL, tp_str("name", origin->name), tp_num("row", origin->row),
              tp_num("rows", origin->rows), tp_numbers("shape", origin->shape, origin->rank),
              tp_if(origin->step > 1, tp_num("step", origin->step)),
              tp_if(origin->expert >= 0, tp_num("expert", (uint64_t)origin->expert)),
              tp_if(origin->transposed, tp_bool("transposed", true)));
}

static void put_weight(struct tp_writer *w, const struct tp_source *source,
                       const struct tp_weight *weight, struct tp_err *err)
{
    const struct tp_weight_form *form = weight->form;
    const uint64_t before = tp_json_failures();
    json_t *descriptor = tp_descriptor_json(form->format, &form->settings, &form->search,
                                            &form->op, form->box, form->rank, err);
    tp_json_check(before, err->code, err);
    char *prefix = tp_weight_prefix(weight, err);
    tp_begin(w, "weight", '{');
    tp_write(w, tp_str("name", weight->name), tp_str("prefix", prefix ? prefix : ""),
             tp_bool("described", weight->origins > 0),
             tp_str("dtype", tp_dtype_name(form->dtype)),
             tp_list("from", weight->origins, put_origin, weight));
    tp_begin(w, "tensors", '[');
    for (uint32_t i = 0; i < form->op.outs; i++)
        if (weight->tensor[i] != TP_NO_TENSOR)
            put_tensor(w, source, weight->tensor[i], NULL, tp_role_name(form->op.out[i].role));
    tp_end(w, ']');
    tp_write(w, tp_json("descriptor", descriptor));
    tp_end(w, '}');
    json_decref(descriptor);
    free(prefix);
}

static int print_json(const struct tp_source *source, const struct tp_subject *subject)
{
    struct tp_err err = {0};
    struct tp_writer w;
    tp_json_open(&w);
    put_tensor(&w, source, subject->tensor, "tensor", NULL);
    if (subject->weight)
        put_weight(&w, source, subject->weight, &err);
    if (err.code == TP_OK)
        return tp_json_close(&w);
    tp_text_free(&w.text);
    return tp_report_error(&err);
}

int tp_dump_tensor(const struct tp_options *o, const struct tp_source *source,
                   const struct tp_subject *subject, bool whole)
{
    return o->json ? print_json(source, subject) : print_text(source, subject, whole);
}
