/* The recipe's text, the tables and JSON of `tilepack recipe`. Prints what was chosen; chooses
 * nothing. */
#include "cli/recipe_report.h"

#include "cli/facts.h"
#include "cli/human.h"
#include "cli/report.h"
#include "cli/table.h"

#include <string.h>

enum { KIND = 300 };

const struct tp_share_choice *tp_recipe_choice(const struct tp_recipe *recipe, size_t s, size_t f)
{
    return &recipe->choices[s].choice[f];
}

bool tp_recipe_uniform(const struct tp_recipe *recipe, size_t format, uint64_t *bytes,
                       double *error)
{
    *bytes = 0;
    *error = 0;
    for (size_t s = 0; s < recipe->sets.count; s++) {
        const struct tp_share_choice *choice = tp_recipe_choice(recipe, s, format);
        if (recipe->taken[s] < recipe->formats && !choice->can)
            return false;
        *bytes += choice->bytes;
        *error += choice->cost;
    }
    return true;
}

void tp_recipe_kind(const struct tp_weight_set *set, char *text, size_t size)
{
    char number[30];
    snprintf(number, sizeof number, ".%lld.", (long long)set->layer);
    const char *at = set->layer < 0 ? NULL : strstr(set->name, number);
    if (at)
        snprintf(text, size, "%.*s.*%s", (int)(at - set->name), set->name,
                 at + strlen(number) - 1);
    else
        snprintf(text, size, "%s", set->name);
}

/* What set s may take, and ends with. */
static const struct tp_recipe_format *format_of(const struct tp_recipe *recipe, size_t s)
{
    return recipe->taken[s] < recipe->formats ? &recipe->format[recipe->taken[s]] : NULL;
}

static double set_bits(const struct tp_recipe *recipe, size_t s, size_t f)
{
    return tp_bits_of(tp_recipe_choice(recipe, s, f)->bytes, recipe->sets.item[s].values);
}

/* ---- the recipe ---------------------------------------------------------------------- */

static enum tp_code add_comment(const struct tp_recipe *recipe, size_t s, struct tp_text *text,
                                struct tp_err *err)
{
    const uint32_t taken = recipe->taken[s];
    enum tp_code code =
        tp_text_addf(text, err, "%s: %.4g bits, error %.4g", recipe->sets.item[s].name,
                     set_bits(recipe, s, taken), tp_recipe_choice(recipe, s, taken)->cost);
    for (size_t f = 0; f < recipe->formats && code == TP_OK; f++)
        if (f != taken && tp_recipe_choice(recipe, s, f)->can)
            code = tp_text_addf(text, err, "; %s: %.4g bits, %.4g", recipe->format[f].name,
                                set_bits(recipe, s, f), tp_recipe_choice(recipe, s, f)->cost);
    return code;
}

static enum tp_code add_rule(const struct tp_recipe *recipe, size_t s, const char *before,
                             struct tp_text *text, struct tp_err *err)
{
    const struct tp_recipe_format *format = format_of(recipe, s);
    struct tp_text comment = {0};
    enum tp_code code = add_comment(recipe, s, &comment, err);
    if (code == TP_OK)
        code = tp_text_addf(text, err, "%s\n  {\"match\": ", before);
    if (code == TP_OK)
        code = tp_text_add_json(text, recipe->sets.item[s].pattern, err);
    if (code == TP_OK)
        code = format->format ? tp_text_addf(text, err, ", \"to\": \"%s\"", format->name)
                              : tp_text_add_word(text, ", \"keep\": true", err);
    if (code == TP_OK)
        code = tp_text_add_word(text, ",\n   \"comment\": ", err);
    if (code == TP_OK)
        code = tp_text_add_json(text, comment.data, err);
    if (code == TP_OK)
        code = tp_text_add_word(text, "}", err);
    tp_text_free(&comment);
    return code;
}

static const char *weighed(const struct tp_recipe_report *report)
{
    if (!report->wish->importance)
        return "errors are those of weights, as without --importance all inputs count alike";
    return report->recipe->gradients
               ? "errors are those expected of outputs times their gradients, by the file of "
                 "importance"
               : "errors are those expected of outputs, by the file of importance, which has no "
                 "gradients";
}

enum tp_code tp_recipe_text(const struct tp_recipe_report *report, struct tp_text *text,
                            struct tp_err *err)
{
    const struct tp_recipe *recipe = report->recipe;
    const char *before = "";
    enum tp_code code = tp_text_addf(
        text, err, "{\n \"comment\": \"tilepack recipe --bits %.6g: %.4f bits for each of %llu "
        "weights; %s\",\n \"rules\": [", report->wish->bits,
        tp_bits_of(recipe->share.bytes, recipe->values), (unsigned long long)recipe->values,
        weighed(report));
    for (size_t s = 0; s < recipe->sets.count && code == TP_OK; s++) {
        if (!format_of(recipe, s))
            continue;
        code = add_rule(recipe, s, before, text, err);
        before = ",";
    }
    return code ? code : tp_text_add_word(text, "\n ]\n}\n", err);
}

/* ---- the fields ---------------------------------------------------------------------- */

static void put_choice(struct tp_writer *w, size_t f, const void *of)
{
    const struct tp_recipe_report *report = ((const void *const *)of)[0];
    const size_t s = *(const size_t *)((const void *const *)of)[1];
    const struct tp_recipe *recipe = report->recipe;
    const struct tp_share_choice *choice = tp_recipe_choice(recipe, s, f);
    tp_object(w, NULL, tp_str("format", recipe->format[f].name), tp_bool("possible", choice->can),
              tp_if(choice->can, tp_num("bytes", choice->bytes)),
              tp_if(choice->can, tp_real("error", choice->cost)));
}

static void put_set(struct tp_writer *w, size_t s, const void *of)
{
    const struct tp_recipe_report *report = of;
    const struct tp_recipe *recipe = report->recipe;
    const struct tp_weight_set *set = &recipe->sets.item[s];
    const struct tp_recipe_format *format = format_of(recipe, s);
    const void *const choices[] = {report, &s};
    if (!format)
        return;
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", set->name), tp_str("match", set->pattern),
             tp_if(set->layer >= 0, tp_num("layer", (uint64_t)(set->layer >= 0 ? set->layer : 0))),
             tp_num("weights", set->weights), tp_num("values", set->values),
             tp_str("format", format->name),
             tp_real("bits", set_bits(recipe, s, recipe->taken[s])),
             tp_real("error", tp_recipe_choice(recipe, s, recipe->taken[s])->cost),
             tp_list("choices", recipe->formats, put_choice, choices));
    tp_end(w, '}');
}

static void put_format(struct tp_writer *w, size_t f, const void *of)
{
    const struct tp_recipe *recipe = ((const struct tp_recipe_report *)of)->recipe;
    const struct tp_recipe_format *format = &recipe->format[f];
    uint64_t bytes;
    double error;
    const bool all = tp_recipe_uniform(recipe, f, &bytes, &error);
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("format", format->name), tp_num("possible", format->sets),
             tp_num("sets", format->taken),
             tp_if(all, tp_real("bits", tp_bits_of(bytes, recipe->values))),
             tp_if(all, tp_real("error", error)),
             tp_if(format->refused, tp_str("refused", format->refused)));
    tp_cellf(w, "bits_", all ? "%.3f" : "-", tp_bits_of(bytes, recipe->values));
    tp_cellf(w, "error_", all ? "%.4g" : "-", error);
    tp_end(w, '}');
}

static int print_json(const struct tp_recipe_report *report)
{
    const struct tp_recipe *recipe = report->recipe;
    const struct tp_wish *served = &report->wish->served;
    return tp_json_result(
        tp_str("source", report->source), tp_str("recipe", report->output),
        tp_str("engine", served->engine->name), tp_real("asked", report->wish->bits),
        tp_real("bits", tp_bits_of(recipe->share.bytes, recipe->values)),
        tp_num("bytes", recipe->share.bytes), tp_num("values", recipe->values),
        tp_real("expected_error", recipe->share.cost), tp_real("bound", recipe->share.bound),
        tp_bool("least", recipe->share.least),
        tp_if(report->wish->importance, tp_str("importance", report->wish->importance)),
        tp_num("left", recipe->left),
        tp_list("formats", recipe->formats, put_format, report),
        tp_list("sets", recipe->sets.count, put_set, report),
        tp_real("seconds", report->seconds));
}

/* ---- text ---------------------------------------------------------------------------- */

static int print_formats(const struct tp_recipe_report *report)
{
    static const struct tp_field fields[] = {
        {"format", "format", TP_LEFT}, {"sets", "sets", TP_RIGHT},
        {"of", "possible", TP_RIGHT}, {"bits, if of all", "bits_", TP_RIGHT},
        {"error", "error_", TP_RIGHT}};
    return tp_table_print(fields, sizeof fields / sizeof *fields, "formats",
                          tp_list("formats", report->recipe->formats, put_format, report));
}

/* The first set of this one's kind. */
static bool is_first(const struct tp_recipe *recipe, size_t s, const char *kind)
{
    char other[KIND];
    for (size_t i = 0; i < s; i++) {
        tp_recipe_kind(&recipe->sets.item[i], other, sizeof other);
        if (format_of(recipe, i) && strcmp(other, kind) == 0)
            return false;
    }
    return true;
}

/* "20 nvfp4-ct, 12 mxfp8-ct" of all sets of the kind. */
static void count_kind(const struct tp_recipe *recipe, const char *kind, char *text, size_t size)
{
    size_t used = 0, count[TP_SHARE_CHOICES] = {0};
    char other[KIND];
    for (size_t i = 0; i < recipe->sets.count; i++) {
        tp_recipe_kind(&recipe->sets.item[i], other, sizeof other);
        if (strcmp(other, kind) == 0)
            count[recipe->taken[i]]++;
    }
    text[0] = '\0';
    for (size_t f = 0; f < recipe->formats; f++)
        if (count[f] && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%zu %s", used ? ", " : "",
                                     count[f], recipe->format[f].name);
}

static void put_kind(struct tp_writer *w, size_t s, const void *of)
{
    const struct tp_recipe *recipe = ((const struct tp_recipe_report *)of)->recipe;
    char kind[KIND], counts[400];
    tp_recipe_kind(&recipe->sets.item[s], kind, sizeof kind);
    if (!format_of(recipe, s) || !is_first(recipe, s, kind))
        return;
    count_kind(recipe, kind, counts, sizeof counts);
    tp_object(w, NULL, tp_str("kind", kind), tp_str("counts", counts));
}

static int print_kinds(const struct tp_recipe_report *report)
{
    static const struct tp_field fields[] = {{"layers", "kind", TP_CUT},
                                             {"formats", "counts", TP_FOLD}};
    return tp_table_print(fields, sizeof fields / sizeof *fields, "kinds",
                          tp_list("kinds", report->recipe->sets.count, put_kind, report));
}

static void print_refusals(const struct tp_recipe_report *report)
{
    char text[1200];
    for (size_t f = 0; f < report->recipe->formats; f++) {
        const struct tp_recipe_format *format = &report->recipe->format[f];
        if (!format->refused)
            continue;
        snprintf(text, sizeof text, "%s does not read all of it in %s: %.800s.",
                 report->wish->served.engine->title, format->name, format->refused);
        tp_print_wrapped(stdout, text, 0, 2);
    }
}

static int print_text(const struct tp_recipe_report *report)
{
    const struct tp_recipe *recipe = report->recipe;
    char size[TP_HUMAN], took[TP_HUMAN];
    int status = print_formats(report);
    putchar('\n');
    if (status == TP_OK)
        status = print_kinds(report);
    if (status)
        return status;
    putchar('\n');
    tp_print_text(stdout, report->output);
    printf(": %.4f bits of %.6g for each weight, %s; error %.4g", tp_bits_of(recipe->share.bytes,
           recipe->values), report->wish->bits, tp_human_bytes(size, recipe->share.bytes),
           recipe->share.cost);
    printf("%s; %s\n", recipe->share.least ? ", the least there is" : "",
           tp_human_seconds(took, report->seconds));
    printf("%s\n", weighed(report));
    if (recipe->left)
        printf("%zu weights stay as they are, and count in no figure\n", recipe->left);
    print_refusals(report);
    return TP_OK;
}

int tp_recipe_print(const struct tp_recipe_report *report, bool json)
{
    return json ? print_json(report) : print_text(report);
}
