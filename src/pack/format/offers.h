/* Which formats to choose from: what loads where, the best first, and which names a
 * mistyped one may have meant.
 */
#ifndef TP_PACK_OFFERS_H
#define TP_PACK_OFFERS_H

#include "pack/format/format.h"

/* One format in one engine. */
struct tp_offer {
    const struct tp_format *format;
    const struct tp_serve *serve; /* a row of the format */
    double bits;                  /* for each weight of a 4096 x 4096 matrix, all included */
};

/* All pairs of a format that is written and an engine that serves it on a GPU of that
 * compute capability (0: on any), of `engine` or with TP_ENGINE_COUNT of all. With a
 * capability an engine has one row for a format, the fastest one. Sorted: what engines load
 * before what needs a loader of one's own, then by speed, by decreasing typical ratio of
 * signal to noise in whole dB, by increasing bits, by name. Free with free(). */
enum tp_code tp_offers(unsigned sm, enum tp_engine engine, struct tp_offer **offers,
                       size_t *count, struct tp_err *err);

/* Writes the names of the formats that are written and begin with `typed`, in letters of
 * any case, into `text`: those that engines load first, with the engines. Returns how many there
 * are; *one is the first of them. */
size_t tp_format_candidates(const char *typed, const struct tp_format **one, char *text,
                            size_t size);

/* The name of the format, of those that are written or of all, that is most like what was typed;
 * NULL when a suggestion would be a guess. */
const char *tp_format_nearest(const char *typed, bool written);

#endif
