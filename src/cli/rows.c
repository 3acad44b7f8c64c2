/* The writer of tables. Keeps, of what it is told, what a column shows, until the row ends: what
 * belongs to an outer object stays for its next row. Computes nothing. */
#include "cli/rows.h"

#include "cli/human.h"
#include "pack/os/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void row_begin(struct tp_writer *w, const char *key, char bracket)
{
    struct tp_row_writer *rows = (struct tp_row_writer *)w;
    rows->inside[w->depth] = key;
    if (bracket == '[' && rows->list && strcmp(key, rows->list) == 0)
        rows->row = w->depth + 1;
}

static void end_row(struct tp_row_writer *rows)
{
    const char *cells[TP_MOST_FIELDS];
    for (size_t i = 0; i < rows->count; i++)
        cells[i] = rows->cells[i].text ? rows->cells[i].text : "-";
    tp_table_row(rows->table, cells);
}

static void row_end(struct tp_writer *w, char bracket)
{
    struct tp_row_writer *rows = (struct tp_row_writer *)w;
    if (bracket == ']' && rows->list && rows->row == w->depth + 1)
        rows->row = 0;
    if (bracket == ']' || rows->inside[w->depth])
        return; /* no element of a list */
    if (rows->row == w->depth)
        end_row(rows);
    for (size_t i = 0; i < rows->count; i++)
        if (rows->cells[i].depth >= w->depth) {
            free(rows->cells[i].text);
            rows->cells[i].text = NULL;
        }
}

/* NULL, or behind the name in a column's key, which names this member of the innermost object. */
static const char *behind(const char *column, const char *object, const char *key)
{
    size_t size = object ? strlen(object) : 0;
    if (object && (strncmp(column, object, size) || column[size++] != '.'))
        return NULL;
    column += size;
    size = strlen(key);
    return strncmp(column, key, size) || (column[size] && column[size] != ' ') ? NULL
                                                                             : column + size;
}

static char *cell_text(const struct tp_member *member, const char *how, struct tp_err *err)
{
    char text[TP_SHAPE_TEXT];
    switch (member->kind) {
    case TP_MEMBER_TEXT:
    case TP_MEMBER_CELL: return tp_os_copy(err, member->text);
    case TP_MEMBER_NUM: tp_put_u64(text, member->num); break;
    case TP_MEMBER_NUMBERS: tp_shape_text(text, member->of, (uint32_t)member->count); break;
    case TP_MEMBER_REAL:
        if (isfinite(member->real)) {
            snprintf(text, sizeof text, how + 1, member->real);
            break;
        } /* fall through */
    default: return NULL;
    }
    return tp_os_copy(err, text);
}

static void row_member(struct tp_writer *w, const struct tp_member *member)
{
    struct tp_row_writer *rows = (struct tp_row_writer *)w;
    const char *object = rows->inside[w->depth], *how;
    if (!member->key || (rows->row && w->depth > rows->row + (object != NULL)))
        return; /* of a list, or deep below the row */
    for (size_t i = 0; i < rows->count; i++)
        if ((how = behind(rows->fields[i].key, object, member->key))) {
            free(rows->cells[i].text);
            rows->cells[i].text = cell_text(member, how, &w->err);
            rows->cells[i].depth = w->depth;
        }
}

void tp_rows_open(struct tp_row_writer *rows, const struct tp_field *fields, size_t count,
                  const char *list)
{
    struct tp_column columns[TP_MOST_FIELDS];
    for (size_t i = 0; i < count; i++)
        columns[i] = (struct tp_column){fields[i].title, fields[i].how & TP_RIGHT,
                                        fields[i].how & TP_CUT    ? TP_NARROW_CUT
                                        : fields[i].how & TP_FOLD ? TP_NARROW_FOLD
                                                                  : TP_NARROW_WHOLE};
    *rows = (struct tp_row_writer){.w = {row_begin, row_end, row_member}, .fields = fields,
                                   .count = count, .list = list, .row = !list,
                                   .table = tp_table_new(columns, count)};
}

int tp_rows_end(struct tp_row_writer *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free(rows->cells[i].text);
    if (rows->w.err.code)
        tp_table_fail(rows->table);
    return tp_table_end(rows->table);
}
