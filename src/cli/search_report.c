/* Signal to noise ratios with a search and without. Means are those of decibels: each weight
 * counts alike, however large its values are. */
#include "cli/search_report.h"

#include "cli/report.h"

#include <math.h>
#include <string.h>

double tp_search_gain(const struct tp_distance *found, const struct tp_distance *none)
{
    return tp_distance_sqnr(found) - tp_distance_sqnr(none);
}

void tp_search_put(struct tp_writer *w, const struct tp_unit_result *unit)
{
    tp_write(w, tp_str("search", tp_search_name(unit->search)),
             tp_real("snr_db", tp_distance_sqnr(&unit->distance)),
             tp_real("snr_none_db", tp_distance_sqnr(&unit->none)));
    if (unit->weighted)
        tp_write(w, tp_real("weighted_snr_db", tp_distance_sqnr(&unit->weighted_distance)),
                 tp_real("weighted_snr_none_db", tp_distance_sqnr(&unit->weighted_none)));
}

/* The mean of two ratios over the weights where both are numbers. */
struct mean {
    size_t count;
    double found, none; /* NAN: of no weight */
};

struct means {
    size_t weights; /* measured */
    struct mean plain, weighted;
};

static void add(struct mean *mean, const struct tp_distance *found, const struct tp_distance *none)
{
    double a = tp_distance_sqnr(found), b = tp_distance_sqnr(none);
    if (!isfinite(a) || !isfinite(b)) /* of a weight without errors, or of zeros */
        return;
    mean->count++;
    mean->found += a;
    mean->none += b;
}

static void divide(struct mean *mean)
{
    mean->found /= (double)mean->count;
    mean->none /= (double)mean->count;
}

static bool was_measured(const struct tp_unit_result *unit)
{
    return unit->search != TP_SEARCH_NONE && unit->distance.count > 0;
}

static struct means means_of(const struct tp_unit_result *units, size_t count)
{
    struct means means = {0};
    for (size_t u = 0; u < count; u++) {
        if (!was_measured(&units[u]))
            continue;
        means.weights++;
        add(&means.plain, &units[u].distance, &units[u].none);
        if (units[u].weighted)
            add(&means.weighted, &units[u].weighted_distance, &units[u].weighted_none);
    }
    divide(&means.plain);
    divide(&means.weighted);
    return means;
}

static void put_weight(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_unit_result *unit = &((const struct tp_unit_result *)of)[i];
    if (!was_measured(unit))
        return;
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", unit->name));
    tp_search_put(w, unit);
    tp_end(w, '}');
}

void tp_search_put_means(struct tp_writer *w, const struct tp_unit_result *units, size_t count)
{
    struct means means = means_of(units, count);
    bool weighted = false;
    for (size_t u = 0; u < count; u++)
        weighted |= was_measured(&units[u]) && units[u].weighted;
    tp_write(w, tp_real("snr_db", means.plain.found), tp_real("snr_none_db", means.plain.none),
             tp_if(weighted, tp_real("weighted_snr_db", means.weighted.found)),
             tp_if(weighted, tp_real("weighted_snr_none_db", means.weighted.none)),
             tp_list("weights", count, put_weight, units));
}

/* "SNR 19.64 dB, without the search 18.40 dB: +1.24 dB", and the same weighted. */
enum { TEXT = 200 };
static const char *text_of(char text[TEXT], const struct mean *plain, const struct mean *weighted)
{
    int size = snprintf(text, TEXT, "SNR %.2f dB, without the search %.2f dB: %+.2f dB",
                        plain->found, plain->none, plain->found - plain->none);
    if (weighted->count > 0 && size > 0)
        snprintf(text + size, TEXT - (size_t)size, "; weighted %.2f dB, without %.2f dB: %+.2f dB",
                 weighted->found, weighted->none, weighted->found - weighted->none);
    return text;
}

void tp_search_print(const struct tp_unit_result *units, size_t count)
{
    char text[TEXT];
    for (size_t u = 0; u < count; u++) {
        struct means one = means_of(&units[u], 1);
        if (one.plain.count)
            tp_note("%s: %s", units[u].name, text_of(text, &one.plain, &one.weighted));
    }
    struct means all = means_of(units, count);
    if (all.plain.count)
        printf("search: %s (mean of %zu weight%s, a sample of rows)\n",
               text_of(text, &all.plain, &all.weighted), all.plain.count,
               all.plain.count == 1 ? "" : "s");
}
