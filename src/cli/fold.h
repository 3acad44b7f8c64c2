/* Folding: things that are alike, and whose names differ in their numbers only, as the weights of
 * equal layers, are one line of a table.
 */
#ifndef TP_CLI_FOLD_H
#define TP_CLI_FOLD_H

#include "cli/table.h"
#include "pack/check/values.h"

#include <stdbool.h>
#include <stddef.h>

/* The name with the numbers between its dots as asterisks ("layers.*.mlp"), fresh
 * memory; NULL when memory is short. */
char *tp_fold_name(const char *name);

struct tp_line {
    const char *name; /* of the first thing that it stands for */
    char *key;        /* the same, folded */
    size_t first, count;
    /* the worst figures among them; `unknown`: of one there is none */
    double max_abs, relative, sqnr, lost;
    double gain, weighted_gain; /* of a search, in dB; NAN without one */
    bool unknown;
};

struct tp_lines { /* {0} is empty; the caller sets `fold` */
    bool fold;
    bool failed; /* memory was short */
    struct tp_line *items;
    size_t count, capacity;
};

/* Takes up thing `i` of `all`: into one of the latest lines whose first thing is `same`, or as a
 * new line. Returns it, valid until the next is; NULL when memory is short. The
 * name has to be there until the lines are printed. */
struct tp_line *tp_lines_add(struct tp_lines *lines, const char *name, const void *all, size_t i,
                             bool (*same)(const void *all, size_t first, size_t i));
void tp_line_measured(struct tp_line *line, const struct tp_distance *distance);

/* Prints the lines as a table, and frees them: of each "name", "count", "max_abs", "relative", and
 * what `put` writes. Returns as tp_table_end(). */
int tp_lines_print(struct tp_lines *lines, const struct tp_field *fields, size_t count,
                   void (*put)(struct tp_writer *w, const struct tp_line *line, const void *all),
                   const void *all);

#endif
