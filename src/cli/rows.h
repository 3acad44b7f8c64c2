/* Tables whose rows are what a writer is told: each column names the member that it shows.
 */
#ifndef TP_CLI_ROWS_H
#define TP_CLI_ROWS_H

#include "cli/report.h"
#include "cli/writer.h"

enum { TP_LEFT = 0, TP_RIGHT = 1, TP_CUT = 2, TP_FOLD = 4 };

struct tp_field {
    const char *title;
    /* Of a row, or of what the row is in: of the weight, say, that has such cases. "plan.waves" is
     * of the object "plan" of a row. A real number has its printf() format behind it: "us %.1f". */
    const char *key;
    int how; /* to the right, and what becomes of it on a narrow terminal */
};

enum { TP_MOST_FIELDS = 16 };
struct tp_row_writer {
    struct tp_writer w;
    struct tp_table *table;
    const struct tp_field *fields;
    size_t count;
    struct {
        char *text;
        size_t depth; /* of what has it */
    } cells[TP_MOST_FIELDS];
    const char *list; /* the key of the list whose elements are the rows */
    size_t row;       /* their depth, while they are written */
    const char *inside[TP_MOST_FIELDS]; /* keys of the objects and lists that have begun */
};

/* Begins a table of which the elements of `list` are the rows; NULL: what is outside of all
 * others. Where nothing is known, "-" stands. */
void tp_rows_open(struct tp_row_writer *rows, const struct tp_field *fields, size_t count,
                  const char *list);
/* Prints it; a status as of tp_table_end(). */
int tp_rows_end(struct tp_row_writer *rows);

#endif
