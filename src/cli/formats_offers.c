/* What is read where, the fastest first, printed. The facts and their order are those of
 * pack/engine/engine.h; nothing is judged here. */
#include "cli/formats_offers.h"

#include "cli/report.h"
#include "cli/session.h"
#include "cli/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char meaning[] =
    "\nbits of a weight in a large matrix; 'tilepack compare SRC' measures what each costs your\n"
    "model. Speed: native multiplies in 8 or 4 bits, mixed in 16 bits after widening, decoded is\n"
    "made plain when it is loaded.\n";

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
    join(line, sizeof line, word, tp_served_command(&reader, "DST", &(struct tp_wish){0}, number, word), " ");
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

static int print_text(const struct tp_offer *offers, size_t count)
{
    static const struct tp_field fields[] = {
        {"format", "format", TP_LEFT}, {"engine", "engine", TP_LEFT},
        {"bits", "bits %.3f", TP_RIGHT}, {"speed", "speed", TP_LEFT}, {"takes", "takes", TP_FOLD},
        {"GPUs", "GPUs", TP_FOLD}, {"how", "line", TP_FOLD}};
    if (!count) {
        printf("no format is known to load there; 'tilepack formats' lists all\n");
        return TP_E_DIFF;
    }
    int status = tp_table_print(fields, sizeof fields / sizeof *fields, "offers",
                                tp_list("offers", count, put_offer, offers));
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
