/* `tilepack formats`: the facts of the format files as this binary holds them. */
#include "cli/cmd.h"
#include "cli/facts.h"
#include "cli/formats_offers.h"
#include "cli/report.h"
#include "cli/table.h"
#include "pack/engine/engine.h"
#include "pack/format/format.h"
#include "pack/format/format_keywords.h"
#include "pack/source/search_choice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- text: the list ----------------------------------------------------- */

/* Begins with `prefix`, in letters of any case; all formats with NULL. */
static bool is_listed(const struct tp_format *format, const char *prefix)
{
    return !prefix || strncasecmp(format->name, prefix, strlen(prefix)) == 0;
}

static int print_list(const char *prefix)
{
    static const struct tp_field fields[] = {{"name", "name", TP_LEFT},
                                             {"read by", "read by", TP_FOLD},
                                             {"what it is", "title", TP_FOLD}};
    struct tp_table table;
    char text[300];
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    tp_table_open(&table, fields, 3, NULL);
    for (size_t i = 0; i < count; i++)
        if (is_listed(formats[i], prefix))
            tp_object(&table.w, NULL, tp_str("name", formats[i]->name),
                      tp_str("read by", formats[i]->input_only
                                            ? "(read, not written)"
                                            : tp_format_readers(formats[i], text, sizeof text)),
                      tp_str("title", formats[i]->title));
    int status = tp_table_end(&table);
    if (status == TP_OK)
        printf("\n'tilepack formats NAME' shows one of them in full.\n");
    return status;
}

/* ---- text: the list by number format ------------------------------------- */

/* What people choose among: formats that are written, and that something reads. */
static bool is_offered(const struct tp_format *format)
{
    char text[300];
    return !format->input_only && *tp_format_readers(format, text, sizeof text);
}

/* "  interchange   w4a16-ct, gptq": those of a codec that have words for config.json, or that have
 * none. */
static int print_kind(enum tp_codec codec, bool interchange)
{
    struct tp_text names = {0};
    struct tp_err err = {0};
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t i = 0; i < count; i++)
        if (formats[i]->op.codec == codec && !formats[i]->config == !interchange &&
            is_offered(formats[i]))
            tp_text_addf(&names, &err, "%s%s", names.size ? ", " : "", formats[i]->name);
    if (!err.code && names.size) {
        printf("  %-14s", interchange ? "interchange" : "kernel-ready");
        tp_print_wrapped(stdout, names.data, 16, 16);
    }
    tp_text_free(&names);
    return err.code ? tp_report_error(&err) : TP_OK;
}

static int print_groups(void)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    int status = TP_OK;
    for (size_t i = 0; i < count && status == TP_OK; i++) {
        enum tp_codec codec = formats[i]->op.codec;
        size_t first = 0;
        while (formats[first]->op.codec != codec || !is_offered(formats[first]))
            if (++first > i)
                break;
        if (first != i)
            continue;
        printf("%s%s%s\n", tp_style("1"), tp_codec_name(codec), tp_style("0"));
        status = print_kind(codec, true);
        if (status == TP_OK)
            status = print_kind(codec, false);
    }
    printf("\n'tilepack suggest SRC --gpu NAME' says which to make of a model, 'tilepack formats\n"
           "NAME' shows one in full, and --all lists each with what reads it, those that are only\n"
           "read and those that nothing reads too.\n");
    return status;
}

/* ---- text: one format --------------------------------------------------- */

static void print_aliases(const struct tp_param *param)
{
    for (uint32_t c = 0; c < param->count; c++)
        for (uint32_t a = 0; param->aliases[c][a]; a++)
            printf("%*s%s is another name of %s\n", TP_FACT_INDENT, "", param->aliases[c][a],
                   param->choices[c]);
}

static void print_params(const struct tp_format *format)
{
    for (uint32_t p = 0; p < format->params; p++) {
        const struct tp_param *param = &format->param[p];
        printf("%s  --set %s=", p ? "" : "\nparameters\n", param->key);
        for (uint32_t c = 0; c < param->count; c++)
            printf("%s%s", c ? "|" : "", param->choices[c]);
        printf("   (default %s)\n%*s", param->choices[0], TP_FACT_INDENT, "");
        tp_print_wrapped(stdout, param->help, TP_FACT_INDENT, TP_FACT_INDENT);
        print_aliases(param);
    }
}

static void print_rules(const struct tp_format *format, const char *title,
                        const struct tp_shape_rule *rules, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct tp_shape_rule *rule = &rules[i];
        char text[640];
        int n = snprintf(text, sizeof text, "%c in multiples of %llu", rule->dim,
                         (unsigned long long)rule->multiple);
        if (rule->when_param >= 0)
            n += snprintf(text + n, sizeof text - (size_t)n, " (with %s=%s)",
                          format->param[rule->when_param].key,
                          format->param[rule->when_param].choices[rule->when_choice]);
        snprintf(text + n, sizeof text - (size_t)n, ": %s", rule->why);
        tp_print_fact(i ? "" : title, text);
    }
}

static const char *per_text(char *text, size_t size, const struct tp_op_out *out)
{
    if (out->per_n == 1 && out->per_k == 1)
        snprintf(text, size, "one for each element of W");
    else if (out->per_k == 0 || out->per_n == 0)
        snprintf(text, size, "one for %s of W",
                 out->per_n ? "each row" : out->per_k ? "each column" : "all");
    else
        snprintf(text, size, "one for each block of %ux%u (n x k) elements of W", out->per_n,
                 out->per_k);
    return text;
}

static void print_words(const json_t *words)
{
    printf("    words     ");
    for (size_t w = 0; w < json_array_size(words); w++)
        printf("%s%s", w ? ", " : "", json_string_value(json_array_get(words, w)));
    putchar('\n');
}

/* The layout as the format file writes it, "let" names included. */
static const char *layout_of(const struct tp_format *format, uint32_t i)
{
    const json_t *output = json_array_get(json_object_get(format->json, "outputs"), i);
    return json_string_value(json_object_get(output, "layout"));
}

static void print_output(const struct tp_format *format, uint32_t i)
{
    const struct tp_op_out *op = &format->op.out[i];
    const struct tp_format_out *out = &format->out[i];
    const json_t *output = json_array_get(json_object_get(format->json, "outputs"), i);
    const json_t *shape = json_object_get(output, "shape");
    const char *layout = layout_of(format, i);
    char per[120];
    printf("  %sS%s%s%s  %s [", tp_style("1"), format->separator, out->suffix, tp_style("0"),
           tp_dtype_name(out->dtype));
    for (size_t d = 0; d < json_array_size(shape); d++)
        printf("%s%s", d ? ", " : "", json_string_value(json_array_get(shape, d)));
    printf("]%s%s\n", out->keep_e ? " (E is kept for a 2-D weight)" : "",
           out->optional ? " (may be missing)" : "");
    printf("    holds     %s", tp_role_name(op->role));
    if (op->role == TP_ROLE_WORDS)
        printf(", the same numbers for every expert\n");
    else
        printf(": %s, %s\n", tp_element_name(op->element), per_text(per, sizeof per, op));
    if (out->word_count)
        print_words(json_object_get(output, "words"));
    if (layout)
        printf("    layout    %s\n    padding   0x%02X\n", layout, op->fill);
}

static void print_table(const struct tp_format *format)
{
    const struct tp_op *op = &format->op;
    if (op->codec != TP_CODEC_INT4)
        return;
    printf("\ncode table: the stored nibble of each value\n  value ");
    for (int q = -8; q < 8; q++)
        printf("%4d", q);
    printf("\n  stored");
    for (int c = 0; c < 16; c++)
        printf("%4x", op->table[c]);
    putchar('\n');
}

static void print_let(const struct tp_format *format)
{
    const char *name;
    json_t *value;
    bool first = true;
    json_object_foreach(json_object_get(format->json, "let"), name, value)
    {
        printf("%s%s = %s", first ? "  with " : ", ", name, json_string_value(value));
        first = false;
    }
    if (!first)
        putchar('\n');
}

static void print_outputs(const struct tp_format *format)
{
    print_let(format);
    for (uint32_t i = 0; i < format->op.outs; i++)
        print_output(format, i);
}

static const char *experts_text(const struct tp_format *format)
{
    if (format->experts != TP_EXPERTS_STACK)
        return "one weight for each expert and projection";
    return format->rows == TP_ROWS_UP_GATE
               ? "stacked: w13_ = [up; gate] along N, and w2_ (--no-stack: apart)"
               : "stacked: w13_ = [gate; up] along N, and w2_ (--no-stack: apart)";
}

/* What the format is for some weights. `of`: begins what they are. */
static void print_variants(const struct tp_format *format, const char *of)
{
    static const char *const whose[TP_PARTS] = {
        [TP_PART_GATED] = "of weights that hold gate and up, each laid out as an expert; S = 2",
        [TP_PART_UP] =
            "of the first matrix of experts that have no gate, or whose rows are interleaved",
        [TP_PART_DOWN] = "of the last matrix of experts (w2)",
        [TP_PART_WIDE] = "of a matrix, where it then takes less room",
        [TP_PART_DOWN_UNGATED] = "of the last matrix of experts that have no gate"};
    for (int part = TP_PART_GATED; part < TP_PARTS; part++)
        if (format->variant[part]) {
            printf("\n%s%s:\n", of, whose[part]);
            print_outputs(format->variant[part]);
        }
}

/* What becomes of the activation scales of a source. */
static const char *inputs_text(const struct tp_format *format, char *text, size_t size)
{
    const struct tp_format_inputs *inputs = &format->inputs;
    snprintf(text, size, "a source's scales become %s, %s%s%s", inputs->suffix,
             inputs->largest ? "the largest of all experts" : "the largest of an expert's parts",
             inputs->why ? "; needed (or --weights-only): " : "", inputs->why ? inputs->why : "");
    return text;
}

/* By default, of plain weights. */
static void print_search(const struct tp_format *format)
{
    char text[80];
    snprintf(text, sizeof text, "%s%s for plain weights (--search none: as the original library)",
             tp_search_name(format->searched.search),
             format->searched.is_signed ? ", signed" : "");
    if (format->searched.search)
        tp_print_fact("search", text);
}

static int print_one(const struct tp_format *format)
{
    char text[400];
    printf("%s%s%s: %s\n\n", tp_style("1"), format->name, tp_style("0"), format->title);
    tp_print_wrapped(stdout, format->about, 0, 0);
    putchar('\n');
    tp_print_fact("read by", tp_format_readers(format, text, sizeof text));
    tp_print_fact("source", format->source);
    snprintf(text, sizeof text, "%s, a scale for each block of %ux%u (n x k)",
             tp_codec_name(format->op.codec), format->op.block_n, format->op.block_k);
    tp_print_fact("codec", text);
    print_search(format);
    if (format->group)
        tp_print_fact("groups", "any size G that the tensors' shapes give; numbers below are for "
                             "the usual one");
    if (!format->input_only)
        tp_print_fact("experts", experts_text(format));
    if (format->inputs.suffix)
        tp_print_fact("activations", inputs_text(format, text, sizeof text));
    tp_print_fact("direction", format->input_only ? "read, not written" : "read and written");
    print_rules(format, "needs", format->need, format->needs);
    print_rules(format, "wants", format->want, format->wants);
    print_params(format);
    printf("\noutputs, for W[E,N,K]; a 2-D weight has E = 1 and shapes without E;\n"
           "S is the weight's name without .weight\n");
    print_outputs(format);
    print_variants(format, "");
    if (format->bias) {
        printf("\nof a bias, which is W[E,N,1]:\n");
        print_outputs(format->bias);
        print_variants(format->bias, "of a bias, ");
    }
    print_table(format);
    return TP_OK;
}

/* ---- JSON --------------------------------------------------------------- */

static int print_json(const struct tp_format *one, const char *prefix)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    struct tp_writer w;
    tp_json_open(&w);
    tp_begin(&w, "formats", '[');
    for (size_t i = 0; i < count; i++)
        if (one ? one == formats[i] : is_listed(formats[i], prefix))
            tp_write(&w, tp_json(NULL, formats[i]->json));
    tp_end(&w, ']');
    return tp_json_close(&w);
}

static int unknown(const char *name)
{
    struct tp_err err = {0};
    const char *near = tp_format_nearest(name, false);
    tp_err_hint(&err, "'tilepack formats' lists them");
    if (near)
        tp_fail(&err, TP_E_USAGE, "there is no format '%s' (did you mean '%s'?)", name, near);
    else
        tp_fail(&err, TP_E_USAGE, "there is no format '%s'", name);
    return tp_report_usage("formats", &err);
}

static bool any_listed(const char *prefix)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t i = 0; i < count; i++)
        if (is_listed(formats[i], prefix))
            return true;
    return false;
}

int tp_cmd_formats(const struct tp_options *o)
{
    const char *name = o->arg.count ? o->arg.item[0] : NULL;
    struct tp_err err = {0};
    if (tp_formats_check(&err) || tp_engines_check(&err))
        return tp_report_error(&err);
    const struct tp_format *format = name ? tp_format_find(name) : NULL;
    if (name && !any_listed(name))
        return unknown(name);
    if (o->gpu || o->engine)
        return tp_print_offers(o, name);
    if (o->json)
        return print_json(format, name);
    if (format)
        return print_one(format);
    bool any = o->all || o->format_file.count; /* nothing may read a format of the user's */
    return name || any ? print_list(name) : print_groups();
}
