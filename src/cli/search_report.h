/* What a search of scales gained, printed: the lines of `convert`, the fields of JSON that
 * `convert` and `verify --against` share.
 */
#ifndef TP_CLI_SEARCH_REPORT_H
#define TP_CLI_SEARCH_REPORT_H

#include "cli/writer.h"
#include "pack/check/verify_values.h"

/* By how many decibels the signal to noise ratio is better than without the search. */
double tp_search_gain(const struct tp_distance *found, const struct tp_distance *none);

/* Writes search, snr_db, snr_none_db and, with a file's importance, weighted_snr_db and
 * weighted_snr_none_db of a weight. */
void tp_search_put(struct tp_writer *w, const struct tp_unit_result *unit);

/* Writes the means of those figures over the weights of a conversion that were measured
 * (null: of none), and "weights", those weights. */
void tp_search_put_means(struct tp_writer *w, const struct tp_unit_result *units, size_t count);

/* One line with the means on stdout, under --verbose one for each weight on stderr.
 * Nothing when nothing was measured. */
void tp_search_print(const struct tp_unit_result *units, size_t count);

#endif
