/* The table, the reasons and the commands of `tilepack suggest`. Judges nothing. */
#include "cli/suggest_report.h"

#include "cli/facts.h"
#include "cli/human.h"
#include "cli/report.h"
#include "cli/shell_word.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

static const char *const ways[] = {
    [TP_SUGGEST_AS_IS] = "as it is",
    [TP_SUGGEST_EXACT] = "exact",
    [TP_SUGGEST_CODES] = "codes",
    [TP_SUGGEST_ROUNDED] = "rounded",
    [TP_SUGGEST_REQUANTIZED] = "requantized",
};

/* ---- commands ------------------------------------------------------------------------ */

enum { MAX_WORDS = 40 };
struct words {
    const char *word[MAX_WORDS];
    size_t count;
    char output[600], gpus[12], ranks[12];
};

static void add(struct words *words, const char *word)
{
    if (words->count < MAX_WORDS)
        words->word[words->count++] = word;
}

static void add_option(struct words *words, const char *option, const char *value)
{
    add(words, option);
    add(words, value);
}

/* "tilepack convert SRC -o DST --to FORMAT ...", which says the condition too. */
static void convert_words(const struct tp_suggest_report *report, const struct tp_suggestion *row,
                          struct words *words)
{
    const struct tp_engine_advice *advice = row->advice;
    add(words, "tilepack");
    add_option(words, "convert", report->source);
    add_option(words, "-o", words->output);
    add_option(words, "--to", row->format->name);
    for (size_t i = 0; i < advice->sets; i++)
        add_option(words, "--set", advice->set[i]);
    if (row->said.search)
        add_option(words, "--search", tp_search_name(row->said.search));
    if (row->said.is_signed)
        add(words, "--signed");
    if (row->way == TP_SUGGEST_REQUANTIZED)
        add(words, "--requantize");
    add_option(words, "--engine", report->wish->engine->name);
    add_option(words, "--gpu", report->wish->chip->name);
    snprintf(words->gpus, sizeof words->gpus, "%u", row->place.ranks);
    if (row->place.ranks > 1)
        add_option(words, "--gpus", words->gpus);
    if (row->place.whole_experts)
        add(words, "--expert-parallel");
}

static void make_words(const struct tp_suggest_report *report, const struct tp_suggestion *row,
                       struct words *convert, struct words *serve)
{
    *convert = *serve = (struct words){0};
    snprintf(convert->output, sizeof convert->output, "%.400s-%s", report->base,
             row->format->name);
    if (row->advice)
        convert_words(report, row, convert);
    serve->count = tp_served_command(row->served.server,
                                     row->advice ? convert->output : report->source, &row->wish,
                                     serve->ranks, serve->word);
}

static int print_words(const struct words *words)
{
    struct tp_text line = {0};
    struct tp_err err = {0};
    for (size_t i = 0; i < words->count; i++) {
        tp_text_add_word(&line, i ? " " : "     ", &err);
        if (words->word[i][0] == '-' && words->word[i] != words->output)
            tp_text_add_word(&line, words->word[i], &err);
        else
            tp_add_shell_word(&line, words->word[i], &err);
    }
    if (!err.code && words->count) {
        tp_print_text(stdout, line.data);
        putchar('\n');
    }
    tp_text_free(&line);
    return err.code ? tp_report_error(&err) : TP_OK;
}

/* ---- the fields ---------------------------------------------------------------------- */

static void put_word(struct tp_writer *w, size_t i, const void *of)
{
    tp_write(w, tp_str(NULL, ((const struct words *)of)->word[i]));
}

static void place_text(const struct tp_placement *place, char *text, size_t size)
{
    snprintf(text, size, "%u%s", place->ranks, place->whole_experts ? " (experts whole)" : "");
}

static void put_cost(struct tp_writer *w, const struct tp_suggestion *row)
{
    const struct tp_card_use *cost = &row->cost;
    tp_cellf(w, "lost", cost->measured ? "%.2f" : "-", 100 * cost->most_lost);
    if (cost->measured)
        tp_cellf(w, "cost", "%.1f %%", 100 * cost->relative);
    else
        tp_write(w, tp_cell("cost", row->way < TP_SUGGEST_CODES ? "none" : "-"));
    if (!cost->measured)
        return;
    tp_object(w, "error", tp_real("relative", cost->relative), tp_real("snr_db", cost->mean_db),
              tp_real("worst_db", cost->worst_db), tp_num("weights", cost->measured),
              tp_real("most_lost", cost->most_lost), tp_num("losing", cost->losing));
}

static const char *reason_of(const struct tp_suggest_report *report,
                             const struct tp_suggestion *row, char *text, size_t size)
{
    if (row->advice)
        return row->advice->reason;
    snprintf(text, size, "%s reads it as it is%s, so nothing is rounded again",
             report->wish->engine->title,
             row->served.server->documents ? ", by its documents" : "");
    return text;
}

static void put_commands(struct tp_writer *w, const struct tp_suggest_report *report,
                         const struct tp_suggestion *row)
{
    struct words convert, serve;
    make_words(report, row, &convert, &serve);
    tp_write(w, convert.count ? tp_list("convert", convert.count, put_word, &convert)
                              : tp_null("convert"),
             tp_list("serve", serve.count, put_word, &serve),
             tp_if(row->served.server->engine->install,
                   tp_str("install", row->served.server->engine->install)));
}

static void put_row(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_suggest_report *report = of;
    const struct tp_suggestion *row = &report->found->row[i];
    char size[TP_HUMAN], each[TP_HUMAN], place[60], reason[200];
    place_text(&row->place, place, sizeof place);
    tp_begin(w, NULL, '{');
    tp_write(w, tp_cell("mark", i ? "" : "*"), tp_bool("preferred", i == 0),
             tp_str("format", row->format->name), tp_str("source", ways[row->way]),
             tp_real("bits", row->bits), tp_num("bytes", row->bytes),
             tp_num("bytes_per_gpu", row->place.bytes), tp_num("gpus", row->place.ranks),
             tp_bool("expert_parallel", row->place.whole_experts),
             tp_str("speed", tp_speed_name(row->row->speed)), tp_str("kernel", row->row->kernel),
             tp_str("basis", row->served.server->documents ? "documents" : "run"),
             tp_str("reason", reason_of(report, row, reason, sizeof reason)),
             tp_if(row->note, tp_str("note", row->note)), tp_cell("place", place),
             tp_cell("size", tp_human_bytes(size, row->bytes)),
             tp_cell("each", tp_human_bytes(each, row->place.bytes)));
    put_cost(w, row);
    put_commands(w, report, row);
    tp_end(w, '}');
}

static void put_other(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_passed_over *other = &((const struct tp_suggestions *)of)->other[i];
    tp_object(w, NULL, tp_str("format", other->format->name),
              tp_if(other->why, tp_str("why", other->why)),
              tp_if(!other->why, tp_num("bytes_per_gpu", other->bytes)),
              tp_if(!other->why && other->gpus, tp_num("gpus", other->gpus)));
}

static int print_json(const struct tp_suggest_report *report)
{
    const struct tp_suggestions *found = report->found;
    const struct tp_suggest_wish *wish = report->wish;
    struct tp_writer w;
    tp_json_open(&w);
    tp_write(&w, tp_str("source", report->source), tp_str("form", found->form),
             tp_num("bytes", found->bytes),
             tp_if(found->rank_bytes, tp_num("bytes_per_gpu", found->rank_bytes)),
             tp_str("engine", wish->engine->name),
             tp_str("engine_version", wish->engine->version));
    tp_object(&w, "gpu", tp_str("name", wish->chip->name), tp_num("memory", found->memory),
              tp_num("for_weights", found->room), tp_num("count", wish->gpus),
              tp_if(wish->chip->which, tp_str("taken_as", wish->chip->which)));
    tp_write(&w, tp_list("suggestions", found->count, put_row, report),
             tp_list("others", found->others, put_other, found),
             tp_if(found->least, tp_num("gpus_needed", found->least ? found->least->gpus : 0)),
             tp_real("seconds", report->seconds));
    int status = tp_json_close(&w);
    return status == TP_OK && !found->count ? TP_E_DIFF : status;
}

/* ---- text ---------------------------------------------------------------------------- */

static void print_head(const struct tp_suggest_report *report)
{
    const struct tp_suggestions *found = report->found;
    const struct tp_suggest_wish *wish = report->wish;
    char size[TP_HUMAN], each[TP_HUMAN], memory[TP_HUMAN], room[TP_HUMAN];
    tp_print_text(stdout, report->source);
    printf(": %s, %s, for %s (%s)\n", found->form, tp_human_bytes(size, found->bytes),
           wish->engine->title, wish->engine->version);
    printf("%u x %s: %s each, of which weights may take %s\n", wish->gpus, wish->chip->name,
           tp_human_bytes(memory, found->memory), tp_human_bytes(room, found->room));
    if (found->rank_bytes)
        printf("as it is: %s on each GPU%s\n", tp_human_bytes(each, found->rank_bytes),
               found->rank_bytes > found->room ? ", which does not fit" : "");
    else
        printf("as it is: %s\n", size);
    if (wish->chip->which)
        printf("%s is taken as the one of %s\n", wish->chip->name, wish->chip->which);
    putchar('\n');
}

static int print_table(const struct tp_suggest_report *report)
{
    static const struct tp_field fields[] = {
        {" ", "mark", TP_LEFT},      {"format", "format", TP_LEFT}, {"bits", "bits %.2f", TP_RIGHT},
        {"size", "size", TP_RIGHT},  {"each GPU", "each", TP_RIGHT}, {"GPUs", "place", TP_LEFT},
        {"error", "cost", TP_RIGHT}, {"lost %", "lost", TP_RIGHT}, {"source", "source", TP_LEFT}, {"speed", "speed", TP_LEFT}};
    return tp_table_print(fields, sizeof fields / sizeof *fields, "suggestions",
                          tp_list("suggestions", report->found->count, put_row, report));
}

static int print_row(const struct tp_suggest_report *report, const struct tp_suggestion *row)
{
    struct words convert, serve;
    char text[1200], reason[200];
    make_words(report, row, &convert, &serve);
    const char *before = row == report->found->row ? "*" : " ";
    snprintf(text, sizeof text, "%s: %s%s%s%s.", row->format->name,
             reason_of(report, row, reason, sizeof reason), row->row->kernel ? " (" : "",
             row->row->kernel ? row->row->kernel : "", row->row->kernel ? ")" : "");
    printf("\n%s ", before);
    tp_print_wrapped(stdout, text, 2, 2);
    if (row->note) {
        snprintf(text, sizeof text, "Not tensor parallel over %u: %.900s.", report->wish->gpus,
                 row->note);
        printf("  ");
        tp_print_wrapped(stdout, text, 2, 2);
    }
    if (row->cost.losing) {
        snprintf(text, sizeof text, "Of %zu of %zu measured weights more runs of values became "
                 "zero than healthy ones lose, which the error does not show: 'tilepack compare' "
                 "names them.", row->cost.losing, row->cost.measured);
        printf("  ");
        tp_print_wrapped(stdout, text, 2, 2);
    }
    int status = print_words(&convert);
    if (status == TP_OK)
        status = print_words(&serve);
    if (status == TP_OK && row->served.server->engine->install)
        printf("      (it needs: %s)\n", row->served.server->engine->install);
    return status;
}

static void print_other(const struct tp_suggest_report *report, const struct tp_passed_over *other)
{
    char text[1200], each[TP_HUMAN], gpus[60] = "no number of them up to 64 serves it";
    if (other->gpus)
        snprintf(gpus, sizeof gpus, "it takes %u of them", other->gpus);
    if (other->why)
        snprintf(text, sizeof text, "%s: %.1000s", other->format->name, other->why);
    else
        snprintf(text, sizeof text, "%s: %s on %s, %s", other->format->name,
                 tp_human_bytes(each, other->bytes),
                 report->wish->gpus > 1 ? "each GPU" : "one GPU", gpus);
    printf("  ");
    tp_print_wrapped(stdout, text, 2, 4);
}

static void print_none(const struct tp_suggest_report *report)
{
    const struct tp_passed_over *least = report->found->least;
    if (least)
        printf("nothing fits; on %u of these GPUs %s does\n", least->gpus, least->format->name);
    else
        printf("nothing is suggested\n");
}

static int print_text(const struct tp_suggest_report *report)
{
    const struct tp_suggestions *found = report->found;
    int status = TP_OK;
    print_head(report);
    if (found->count)
        status = print_table(report);
    else
        print_none(report);
    for (size_t i = 0; i < found->count && status == TP_OK; i++)
        status = print_row(report, &found->row[i]);
    if (found->others)
        printf("\nnot suggested:\n");
    for (size_t i = 0; i < found->others && status == TP_OK; i++)
        print_other(report, &found->other[i]);
    return status == TP_OK && !found->count ? TP_E_DIFF : status;
}

int tp_suggest_print(const struct tp_suggest_report *report, bool json)
{
    return json ? print_json(report) : print_text(report);
}
