/* Tables: lines of cells, columns as wide as their widest cell. A table is a writer (writer.h):
 * each column names the member that it shows. On a terminal columns are narrowed as they say so
 * that a line fits its width; anywhere else every row is one line.
 */
#ifndef TP_CLI_TABLE_H
#define TP_CLI_TABLE_H

#include "cli/writer.h"

/* Numbers stand to the right. What becomes of a column on a terminal that is too narrow: its cells
 * are cut in the middle, or go on in further lines, broken between words. */
enum { TP_LEFT = 0, TP_RIGHT = 1, TP_CUT = 2, TP_FOLD = 4 };

struct tp_field {
    const char *title;
    /* Of a row, or of what the row is in: of the weight, say, that has such cases. "plan.waves" is
     * of the object "plan" of a row. A real number has its printf() format behind it: "us %.1f". */
    const char *key;
    int how;
};

enum { TP_MAX_FIELDS = 16 };
struct tp_table {
    struct tp_writer w;
    const struct tp_field *fields;
    size_t count;
    struct { /* of the row that is written */
        char *text;
        size_t depth; /* of the object that has it */
    } cells[TP_MAX_FIELDS];
    const char *list; /* the key of the list whose elements are the rows */
    size_t row;       /* their depth, while they are written */
    const char *inside[TP_MAX_FIELDS]; /* keys of the objects and lists that have begun */
    char *kept; /* the cells of all rows, one behind the other */
    size_t used, capacity, rows, width[TP_MAX_FIELDS];
    bool ascii; /* all cells are: a byte is a column */
};

/* Begins a table of which the elements of `list` are the rows; NULL: what is outside of all
 * others. Where nothing is known, "-" stands. */
void tp_table_open(struct tp_table *table, const struct tp_field *fields, size_t count,
                   const char *list);
/* Memory was short for its rows: as if for one of the table's own. */
void tp_table_fail(struct tp_table *table);
/* Prints it on stdout and frees. Returns TP_OK or, after reporting it, TP_E_MEMORY. */
int tp_table_end(struct tp_table *table);

/* All of it at once, of what one member holds: tp_list("weights", count, put_weight, of). */
int tp_table_print(const struct tp_field *fields, size_t count, const char *list,
                   struct tp_member of);

size_t tp_terminal_width(void); /* in columns, of standard output; SIZE_MAX: it is no terminal */

#endif
