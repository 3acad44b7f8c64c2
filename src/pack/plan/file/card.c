/* Writing the card. It says nothing of the machine, the time or the parts of a conversion, so that
 * all ways to one output give one card.
 *
 * The metadata is YAML between two lines "---". It is taken over as text, line by line: only
 * what stands at the beginning of a line is understood.
 */
#include "pack/plan/file/card.h"

#include "kernels/op/distance.h"
#include "pack/plan/file/command.h"
#include "pack/plan/file/served.h"
#include "pack/source/hub.h"

#include <stdlib.h>
#include <string.h>

static const char heading[] = "## The card of the source\n\n";
static const char marker[] = "<!-- made by tilepack -->\n";

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static bool is_fence(const char *line)
{
    const char *end = strncmp(line, "---", 3) == 0 ? line + 3 + strspn(line + 3, " \r") : "-";
    return *end == '\n' || !*end;
}

/* The text behind the metadata, which is [*begin, *end). Blank lines may stand before it, as
 * huggingface_hub has it. */
static const char *body_of(const char *card, const char **begin, const char **end)
{
    const char *fence = card + strspn(card, " \t\r\n");
    *begin = *end = card;
    if (!is_fence(fence))
        return card;
    const char *first = next_line(fence), *line = first;
    while (*line && !is_fence(line))
        line = next_line(line);
    if (!*line)
        return card;
    *begin = first;
    *end = line;
    return next_line(line);
}

/* Lines of a key that is written anew, its list and what it folds included. */
static bool replaces(const char *line, bool before)
{
    if (strncmp(line, "base_model:", 11) == 0 || strncmp(line, "base_model_relation:", 20) == 0)
        return true;
    return before && (*line == ' ' || *line == '-' || *line == '\t');
}

static enum tp_code add_metadata(const char *begin, const char *end, const char *base,
                                 struct tp_text *text, struct tp_err *err)
{
    if (begin == end && !base)
        return TP_OK;
    enum tp_code code = tp_text_add_word(text, "---\n", err);
    bool replaced = false;
    for (const char *line = begin; line < end && code == TP_OK; line = next_line(line)) {
        replaced = base && replaces(line, replaced);
        if (!replaced)
            code = tp_text_add(text, line, (size_t)(next_line(line) - line), err);
    }
    if (code == TP_OK && base)
        code = tp_text_addf(text, err, "base_model: %s\nbase_model_relation: quantized\n", base);
    return code ? code : tp_text_add_word(text, "---\n", err);
}

bool tp_card_is_of(const struct tp_card_use *use, const struct tp_format *format)
{
    return use->format == format ||
           (use->format && format && strcmp(use->format->name, format->name) == 0);
}

enum tp_code tp_card_uses(const struct tp_plan *plan, struct tp_card_use **uses, size_t *count,
                          struct tp_err *err)
{
    size_t capacity = 0, at = 0;
    *uses = NULL;
    *count = 0;
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_format *format = plan->units[u].form->format;
        if (at >= *count || !tp_card_is_of(&(*uses)[at], format)) /* mostly as the one before */
            for (at = 0; at < *count && !tp_card_is_of(&(*uses)[at], format); at++)
                continue;
        if (at == *count) {
            enum tp_code code = tp_os_grow((void **)uses, &capacity, at + 1, sizeof **uses, err);
            if (code)
                return code;
            (*uses)[(*count)++] = (struct tp_card_use){.format = format};
        }
        (*uses)[at].count++;
    }
    return TP_OK;
}

static enum tp_code add_formats(const struct tp_plan *plan, const struct tp_card_use *uses,
                                size_t count, struct tp_text *text, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < count && code == TP_OK; i++) {
        const struct tp_format *format = uses[i].format;
        char readers[300];
        if (format)
            code = tp_text_addf(text, err, "* %zu weights in `%s`: %s; read by %s\n",
                                uses[i].count, format->name, format->title,
                                tp_format_readers(format, readers, sizeof readers));
        else
            code = tp_text_addf(text, err, "* %zu weights made plain\n", uses[i].count);
    }
    return code ? code : tp_text_addf(text, err, "* %zu tensors kept\n* %llu bytes of weights, "
                                      "from %llu\n", plan->kept_count,
                                      (unsigned long long)plan->bytes_out,
                                      (unsigned long long)plan->bytes_in);
}

/* Names come from files: one that might mean something in Markdown is not shown. */
static bool is_plain(const char *name)
{
    return !name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                              "_.-")];
}

static enum tp_code add_error(const struct tp_card_use *use, struct tp_text *text,
                              struct tp_err *err)
{
    enum tp_code code =
        tp_text_addf(text, err, "| `%s` | %zu of %zu | %.4f | %.2f dB | %.2f dB", use->format->name,
                     use->measured, use->count, use->relative, use->mean_db, use->worst_db);
    if (code == TP_OK && is_plain(use->worst))
        code = tp_text_addf(text, err, " in `%s`", use->worst);
    return code ? code : tp_text_addf(text, err, " | %.2f %% |\n", 100 * use->most_lost);
}

/* What the ratio does not show. */
static enum tp_code add_losing(const struct tp_card_use *use, struct tp_text *text,
                               struct tp_err *err)
{
    if (!use->losing)
        return TP_OK;
    bool plain = is_plain(use->loser);
    return tp_text_addf(text, err, "\n**Warning:** %zu of the weights in `%s`, most of all %s%s%s, "
                        "lost more than %g %% of these runs, as healthy weights do not: their few "
                        "largest columns take the scales of the others.\n", use->losing,
                        use->format->name, plain ? "`" : "", plain ? use->loser : "one",
                        plain ? "`" : "", 100 * TP_LOST_LIMIT);
}

/* Weights that are taken over, by what that loses. */
static enum tp_code add_repacked(const struct tp_plan *plan, struct tp_text *text,
                                 struct tp_err *err)
{
    static const char *const what[] = {
        [TP_LOSS_NONE] = "codes and scales: they lose nothing.",
        [TP_LOSS_GLOBAL] = "codes and scales, and the reciprocals of its global scales, rounded to "
                           "fp32; that is not in the table.",
        [TP_LOSS_SCALES] = "codes, and its scales rounded to another type; that is not in the "
                           "table."};
    size_t count[TP_LOSS_VALUES + 1] = {0};
    enum tp_code code = TP_OK;
    for (size_t u = 0; u < plan->unit_count; u++)
        if (plan->units[u].form->kind == TP_UNIT_REPACK)
            count[tp_unit_loss(plan, &plan->units[u])]++;
    for (size_t loss = 0; loss < TP_LOSS_VALUES && code == TP_OK; loss++)
        if (count[loss])
            code = tp_text_addf(text, err, "\n%zu weights have the source's %s\n", count[loss],
                                what[loss]);
    return code;
}

static enum tp_code add_errors(const struct tp_plan *plan, const struct tp_card_use *uses,
                               size_t count, struct tp_text *text, struct tp_err *err)
{
    bool head = false;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < count && code == TP_OK; i++) {
        if (!uses[i].measured)
            continue;
        if (!head)
            code = tp_text_add_word(text, "\nErrors against the source, of a sample of each weight "
                                    "(rows and columns spread over it, quantized on their own). "
                                    "The ratio of signal to noise is the mean over the weights; "
                                    "the relative error is the root of the mean of squares. Lost "
                                    "are runs of eight neighbouring values of a row that became "
                                    "zero, of the weight that lost most:\n\n"
                                    "| format | weights | relative error | signal to noise | the "
                                    "worst weight | lost |\n|---|--:|--:|--:|---|--:|\n", err);
        head = true;
        if (code == TP_OK)
            code = add_error(&uses[i], text, err);
    }
    for (size_t i = 0; i < count && code == TP_OK; i++)
        code = add_losing(&uses[i], text, err);
    return code ? code : add_repacked(plan, text, err);
}

/* Why no server reads it. */
static enum tp_code add_unserved(const struct tp_served *served, struct tp_text *text,
                                 struct tp_err *err)
{
    const struct tp_reader *first = tp_served_refusal(served, &(struct tp_wish){0});
    struct tp_text why = {0};
    if (!first) {
        enum tp_code code = tp_served_why(served, &(struct tp_wish){0}, &why, err);
        if (code == TP_OK)
            code = tp_text_addf(text, err, "\nServing: %s.\n", why.data);
        tp_text_free(&why);
        return code;
    }
    bool plain = is_plain(first->name.data);
    return tp_text_addf(text, err, "\n%s (%s) does not read it: %s%s%s%s.\n", first->engine->title,
                        first->engine->version, plain ? "`" : "",
                        plain ? first->name.data : "one layer", plain ? "`" : "", first->why.data);
}

static enum tp_code add_command(const struct tp_reader *reader, struct tp_text *text,
                                struct tp_err *err)
{
    const struct tp_engine *engine = reader->engine;
    const char *word[TP_MAX_COMMAND];
    char number[12];
    size_t words = tp_served_command(reader, "DST", &(struct tp_wish){0}, number, word);
    enum tp_code code = tp_text_addf(text, err, "\nTo serve it with %s (%s):\n\n```\n%s%s",
                                     engine->title, engine->version,
                                     engine->install ? engine->install : "",
                                     engine->install ? "\n" : "");
    for (size_t i = 0; i < words && code == TP_OK; i++)
        code = tp_text_addf(text, err, "%s%s", i ? " " : "", word[i]);
    if (code == TP_OK && engine->how)
        code = tp_text_add_word(text, engine->how, err);
    return code ? code : tp_text_add_word(text, "\n```\n", err);
}

static enum tp_code add_serving(const struct tp_plan *plan, struct tp_text *text,
                                struct tp_err *err)
{
    struct tp_served served = {0};
    enum tp_code code = tp_plan_served(plan, &(struct tp_wish){0}, &served, err);
    if (code == TP_OK && served.written && !served.server)
        code = add_unserved(&served, text, err);
    for (size_t i = 0; i < served.count && !served.why && code == TP_OK; i++)
        if (served.reader[i].gpus && served.reader[i].engine->kind != TP_ENGINE_KERNELS)
            code = add_command(&served.reader[i], text, err);
    tp_served_close(&served);
    return code;
}

/* The source's own text; of a card of ours, that of the card that it kept. */
static enum tp_code add_body(const char *body, struct tp_text *text, struct tp_err *err)
{
    const char *ours = strstr(body, marker), *kept = ours ? strstr(ours, heading) : NULL;
    if (ours)
        body = kept ? kept + strlen(heading) : "";
    body += strspn(body, "\r\n");
    if (!*body)
        return TP_OK;
    enum tp_code code = tp_text_addf(text, err, "\n%s", heading);
    return code ? code : tp_text_add_word(text, body, err);
}

enum tp_code tp_card_text(const struct tp_plan *plan, const struct tp_request *request,
                          const struct tp_card_use *uses, size_t count, const char *source,
                          struct tp_text *text, struct tp_err *err)
{
    const char *begin = "", *end = begin, *body = source ? body_of(source, &begin, &end) : "";
    char *base = tp_hub_name(plan->ckpt->path, err);
    const char *made = request->restore ? "unpacked" : "quantized", *from = base ? base : "SRC";
    enum tp_code code = err->code ? err->code : add_metadata(begin, end, base, text, err);
    if (code == TP_OK)
        code = tp_text_addf(text, err, "\n%s# %s %s by tilepack\n\nThe weights were %s, the other "
                            "files are those of the source.\n\n", marker, base ? base : "Weights",
                            made, made);
    if (code == TP_OK && (code = add_formats(plan, uses, count, text, err)) == TP_OK &&
        (code = add_errors(plan, uses, count, text, err)) == TP_OK)
        code = tp_text_add_word(text, "\n```\n", err);
    if (code == TP_OK && (code = tp_command_text(request, from, "DST", text, err)) == TP_OK)
        code = tp_text_addf(text, err, "\n```\n\n`tilepack verify DST --against %s` derives every "
                            "byte again, and prints the error of all values of each weight.\n",
                            from);
    if (code == TP_OK)
        code = add_serving(plan, text, err);
    if (code == TP_OK)
        code = add_body(body, text, err);
    free(base);
    return code;
}
