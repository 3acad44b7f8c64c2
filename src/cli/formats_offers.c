/* What loads where, the best first, printed. The facts and their order are those of
 * pack/format/offers.h; nothing is judged here. */
#include "cli/formats_offers.h"

#include "cli/report.h"
#include "pack/format/offers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char meaning[] =
    "\nbits of a weight in a large matrix; SNR: the typical ratio of signal to noise, without a\n"
    "search; 'tilepack compare SRC' measures both on your model. Speed: native multiplies in\n"
    "8 or 4 bits, mixed in 16 bits after widening, decoded is made plain when it is loaded.\n";

/* "sm80 sm86", of a row. */
static void gpus_text(const struct tp_serve *serve, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < json_array_size(serve->gpus) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "",
                                 json_string_value(json_array_get(serve->gpus, i)));
}

static void add_row(struct tp_table *table, const struct tp_offer *offer)
{
    char bits[24], snr[24] = "-", gpus[80];
    snprintf(bits, sizeof bits, "%.3f", offer->bits);
    if (offer->format->snr_db > 0)
        snprintf(snr, sizeof snr, "%.1f", offer->format->snr_db);
    gpus_text(offer->serve, gpus, sizeof gpus);
    const char *cells[] = {offer->format->name, tp_engine_name(offer->serve->engine),
                           bits, snr, tp_speed_name(offer->serve->speed), gpus,
                           offer->serve->line};
    tp_table_row(table, cells);
}

static int print_text(const struct tp_offer *offers, size_t count)
{
    static const struct tp_column columns[] = {
        {"format", false, TP_NARROW_WHOLE}, {"engine", false, TP_NARROW_WHOLE},
        {"bits", true, TP_NARROW_WHOLE},    {"SNR dB", true, TP_NARROW_WHOLE},
        {"speed", false, TP_NARROW_WHOLE},  {"GPUs", false, TP_NARROW_FOLD},
        {"how", false, TP_NARROW_FOLD}};
    if (!count) {
        printf("no format is known to load there; 'tilepack formats' lists all\n");
        return TP_E_DIFF;
    }
    struct tp_table *table = tp_table_new(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++)
        add_row(table, &offers[i]);
    int status = tp_table_end(table);
    if (status == TP_OK)
        fputs(meaning, stdout);
    return status;
}

static int print_json(const struct tp_options *o, const struct tp_offer *offers, size_t count)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct tp_offer *offer = &offers[i];
        json_t *row = json_pack("{s:s, s:s, s:s, s:O, s:s, s:s, s:f}", "format",
                                offer->format->name, "engine",
                                tp_engine_name(offer->serve->engine), "versions",
                                offer->serve->versions, "gpus", offer->serve->gpus, "speed",
                                tp_speed_name(offer->serve->speed), "line", offer->serve->line,
                                "bits", offer->bits);
        if (offer->format->snr_db > 0)
            tp_json_set(row, "snr_db", json_real(offer->format->snr_db));
        tp_json_append(rows, row);
    }
    int status = tp_json_print(json_pack("{s:s?, s:s?, s:o}", "gpu", o->gpu, "engine", o->engine,
                                         "offers", rows));
    return status == TP_OK && !count ? TP_E_DIFF : status;
}

static int unknown_gpu(const char *name)
{
    struct tp_err err = {0};
    char names[400] = "";
    size_t count, used = 0;
    const struct tp_chip *chips = tp_chips(&count);
    for (size_t i = 0; i < count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", chips[i].name);
    tp_err_hint(&err, "known are %sor a compute capability such as sm90", names);
    tp_fail(&err, TP_E_USAGE, "--gpu '%.200s': there is no such GPU", name);
    return tp_report_usage("formats", &err);
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
    enum tp_engine engine = TP_ENGINE_COUNT;
    unsigned sm = o->gpu ? tp_chip_sm(o->gpu) : 0;
    if (o->gpu && !sm)
        return unknown_gpu(o->gpu);
    if (o->engine)
        tp_engine_find(o->engine, &engine); /* the table of options knows no others */
    if (tp_offers(sm, engine, &offers, &count, &err))
        return tp_report_error(&err);
    count = only(offers, count, prefix);
    int status = o->json ? print_json(o, offers, count) : print_text(offers, count);
    free(offers);
    return status;
}
