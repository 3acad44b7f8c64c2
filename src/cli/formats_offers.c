/* What loads where, the best first, printed. The facts and their order are those of
 * pack/format/offers.h; nothing is judged here. */
#include "cli/formats_offers.h"

#include "cli/report.h"
#include "cli/table.h"
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

static void put_offer(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_offer *offer = &((const struct tp_offer *)of)[i];
    const struct tp_serve *serve = offer->serve;
    const double snr = offer->format->snr_db;
    char gpus[80];
    gpus_text(serve, gpus, sizeof gpus);
    tp_object(w, NULL, tp_str("format", offer->format->name),
              tp_str("engine", tp_engine_name(serve->engine)),
              tp_str("versions", serve->versions), tp_json("gpus", serve->gpus),
              tp_str("speed", tp_speed_name(serve->speed)), tp_str("line", serve->line),
              tp_real("bits", offer->bits), tp_if(snr > 0, tp_real("snr_db", snr)),
              tp_cell("GPUs", gpus));
}

static int print_text(const struct tp_offer *offers, size_t count)
{
    static const struct tp_field fields[] = {
        {"format", "format", TP_LEFT}, {"engine", "engine", TP_LEFT},
        {"bits", "bits %.3f", TP_RIGHT}, {"SNR dB", "snr_db %.1f", TP_RIGHT},
        {"speed", "speed", TP_LEFT}, {"GPUs", "GPUs", TP_FOLD}, {"how", "line", TP_FOLD}};
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
