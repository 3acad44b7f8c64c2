/* What is read where, the smallest first, printed. The facts and their order are those of
 * pack/engine/engine.h; nothing is judged here. */
#include "cli/formats_offers.h"

#include "base/suffix.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char meaning[] =
    "\nbits of a weight in a large matrix. Speed: native multiplies in 8 or 4 bits, mixed in 16\n"
    "bits after widening, decoded is made plain when it is loaded. 'tilepack suggest SRC --gpu\n"
    "NAME' says which to make of a model, and what it costs.\n";

static void join(char *text, size_t size, const char *const *words, size_t count,
                 const char *between)
{
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? between : "", words[i]);
}

static void put_offer(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_offer *offer = &((const struct tp_offer *)of)[i];
    const struct tp_engine_row *row = offer->row;
    const struct tp_reader reader = {.engine = offer->engine, .row = {row}, .rows = 1};
    const char *word[TP_MAX_COMMAND];
    char gpus[80], line[400], takes[80], number[12];
    join(gpus, sizeof gpus, row->gpu, row->gpus, " ");
    const struct tp_wish alone = {0};
    join(line, sizeof line, word, tp_served_command(&reader, "DST", &alone, number, word), " ");
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("format", offer->format->name), tp_str("engine", offer->engine->name),
              tp_str("version", offer->engine->version),
              tp_str("speed", tp_speed_name(row->speed)),
              tp_str("takes", tp_use_list(row->takes, takes, sizeof takes)),
              tp_str("basis", row->basis ? "documents" : "run"),
              tp_str("line", *line ? line : row->how ? row->how : offer->engine->how),
              tp_if(offer->engine->install, tp_str("install", offer->engine->install)),
              tp_real("bits", offer->bits), tp_cell("GPUs", gpus));
    tp_begin(w, "gpus", '[');
    for (size_t g = 0; g < row->gpus; g++)
        tp_write(w, tp_str(NULL, row->gpu[g]));
    tp_end(w, ']');
    tp_end(w, '}');
}

/* All offers, and in which of them a text shows a format: the first. */
struct shown {
    const struct tp_offer *offer;
    size_t count;
};

static bool is_first(const struct shown *all, size_t i)
{
    for (size_t before = 0; before < i; before++)
        if (all->offer[before].format == all->offer[i].format)
            return false;
    return true;
}

/* Adds a word that the list does not have. */
static void add_once(const char **list, size_t *count, size_t most, const char *word)
{
    if (tp_word_of(word, list, *count) < 0 && *count < most)
        list[(*count)++] = word;
}

/* A format once: in which engines, at which speeds, the best one first, and on which GPUs. */
static void put_format(struct tp_writer *w, size_t i, const void *of)
{
    const struct shown *all = of;
    const struct tp_offer *first = &all->offer[i];
    const char *engine[16], *speed[4];
    size_t engines = 0, speeds = 0;
    unsigned uses = 0;
    uint32_t sms = 0;
    char names[200], words[60], gpus[120], takes[80];
    if (!is_first(all, i))
        return;
    for (size_t j = i; j < all->count; j++) {
        const struct tp_offer *offer = &all->offer[j];
        if (offer->format != first->format)
            continue;
        add_once(engine, &engines, TP_COUNT(engine), offer->engine->name);
        add_once(speed, &speeds, TP_COUNT(speed), tp_speed_name(offer->row->speed));
        uses |= offer->row->takes;
        sms |= tp_sms_of(offer->row->gpu, offer->row->gpus, 0);
    }
    join(names, sizeof names, engine, engines, ", ");
    join(words, sizeof words, speed, speeds, ", ");
    tp_sms_text(sms, 0, gpus, sizeof gpus);
    tp_object(w, NULL, tp_cell("format", first->format->name), tp_cell("engines", names),
              tp_real("bits", first->bits), tp_cell("speeds", words),
              tp_cell("takes", tp_use_list(uses, takes, sizeof takes)),
              tp_cell("GPUs", gpus));
}

static int print_text(const struct tp_offer *offers, size_t count)
{
    static const struct tp_field fields[] = {
        {"format", "format", TP_LEFT}, {"bits", "bits %.3f", TP_RIGHT},
        {"speed", "speeds", TP_LEFT},  {"takes", "takes", TP_FOLD},
        {"GPUs", "GPUs", TP_FOLD},     {"engines", "engines", TP_FOLD}};
    const struct shown all = {offers, count};
    if (!count) {
        printf("no format is known to load there; 'tilepack formats --all' lists all\n");
        return TP_E_DIFF;
    }
    int status = tp_table_print(fields, sizeof fields / sizeof *fields, "offers",
                                tp_list("offers", count, put_format, &all));
    if (status == TP_OK)
        fputs(meaning, stdout);
    return status;
}

static int print_json(const struct tp_options *o, const struct tp_offer *offers, size_t count)
{
    int status = tp_json_result(tp_str("gpu", o->gpu), tp_str("engine", o->engine),
                                tp_list("offers", count, put_offer, offers));
    return status == TP_OK && !count ? TP_E_DIFF : status;
}

/* Keeps the offers of formats whose names begin so. */
static size_t only(struct tp_offer *offers, size_t count, const char *prefix)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!prefix || strncasecmp(offers[i].format->name, prefix, strlen(prefix)) == 0)
            offers[kept++] = offers[i];
    return kept;
}

int tp_print_offers(const struct tp_options *o, const char *prefix)
{
    struct tp_err err = {0};
    struct tp_offer *offers;
    size_t count;
    struct tp_wish wish;
    enum tp_code code = tp_wish_from(o, &wish, &err);
    if (code)
        return code == TP_E_USAGE ? tp_report_usage("formats", &err) : tp_report_error(&err);
    if (tp_offers(wish.sm, wish.engine, &offers, &count, &err))
        return tp_report_error(&err);
    count = only(offers, count, prefix);
    int status = o->json ? print_json(o, offers, count) : print_text(offers, count);
    free(offers);
    return status;
}
