/* Tables. Of what it is told a table keeps what a column shows until the row ends; what belongs to
 * an outer object stays for its next row. All rows are kept, in one text, so that 100,000 of them
 * cost little, then printed in columns. Computes nothing but widths.
 * Invariant: on anything but a terminal every cell is printed whole, in one line. */
#include "cli/table.h"

#include "base/num.h"
#include "cli/human.h"
#include "cli/report.h"
#include "pack/os/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    GAP = 2,
    MIN_WIDTH = 12, /* width below which no column is narrowed */
};

struct cell {
    const char *text;
    uint32_t size;
};

/* Code points; what a terminal shows for the names that checkpoints have. */
static size_t text_width(const char *text, size_t size)
{
    size_t width = 0;
    for (size_t i = 0; i < size; i++)
        width += ((unsigned char)text[i] & 0xC0) != 0x80;
    return width;
}

/* ---- what is kept ------------------------------------------------------------- */

static bool add_part(const char *text, size_t size, void *to)
{
    enum { FIRST = 1 << 16 };
    struct tp_table *table = to;
    if (table->capacity - table->used < size) {
        size_t capacity = table->capacity ? 2 * table->capacity + size : FIRST + size;
        char *kept = realloc(table->kept, capacity);
        if (!kept)
            return false;
        table->kept = kept;
        table->capacity = capacity;
    }
    memcpy(table->kept + table->used, text, size);
    table->used += size;
    return true;
}

/* Appends one cell: its size, a uint32_t, and its bytes. */
static void add_cell(struct tp_table *table, size_t column, const char *cell)
{
    size_t begin = table->used, length = strlen(cell);
    uint32_t size = 0;
    if (table->w.err.code || length > UINT32_MAX / TP_ESCAPED ||
        !add_part((char *)&size, sizeof size, table) ||
        !tp_escape_parts(cell, length, false, add_part, table)) {
        tp_table_fail(table);
        return;
    }
    size = (uint32_t)(table->used - begin - sizeof size);
    memcpy(table->kept + begin, &size, sizeof size);
    size_t width = text_width(table->kept + begin + sizeof size, size);
    table->ascii &= width == size;
    table->width[column] = tp_max_u64(table->width[column], width);
}

static void table_begin(struct tp_writer *w, const char *key, char bracket)
{
    struct tp_table *table = (struct tp_table *)w;
    table->inside[w->depth] = key;
    if (bracket == '[' && table->list && strcmp(key, table->list) == 0)
        table->row = w->depth + 1;
}

static void table_end(struct tp_writer *w, char bracket)
{
    struct tp_table *table = (struct tp_table *)w;
    if (bracket == ']' && table->list && table->row == w->depth + 1)
        table->row = 0;
    if (bracket == ']' || table->inside[w->depth])
        return; /* no element of a list */
    for (size_t i = 0; i < table->count && table->row == w->depth; i++)
        add_cell(table, i, table->cells[i].text ? table->cells[i].text : "-");
    table->rows += table->row == w->depth;
    for (size_t i = 0; i < table->count; i++)
        if (table->cells[i].depth >= w->depth) {
            free(table->cells[i].text);
            table->cells[i].text = NULL;
        }
}

/* NULL, or behind the name in a column's key, which names this member of the innermost object. */
static const char *behind(const char *column, const char *object, const char *key)
{
    if (*column != (object ? *object : *key))
        return NULL; /* so of most */
    size_t size = object ? strlen(object) : 0;
    if (object && (strncmp(column, object, size) != 0 || column[size++] != '.'))
        return NULL;
    column += size;
    size = strlen(key);
    return strncmp(column, key, size) != 0 || (column[size] && column[size] != ' ') ? NULL
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

static void table_member(struct tp_writer *w, const struct tp_member *member)
{
    struct tp_table *table = (struct tp_table *)w;
    const char *object = table->inside[w->depth], *how;
    if (!member->key || (table->row && w->depth > table->row + (object != NULL)))
        return; /* of a list, or deep below the row */
    for (size_t i = 0; i < table->count; i++)
        if ((how = behind(table->fields[i].key, object, member->key))) {
            free(table->cells[i].text);
            table->cells[i].text = cell_text(member, how, &w->err);
            table->cells[i].depth = w->depth;
        }
}

void tp_table_open(struct tp_table *table, const struct tp_field *fields, size_t count,
                   const char *list)
{
    *table = (struct tp_table){.w = {.begin = table_begin, .end = table_end,
                                     .member = table_member},
                               .fields = fields, .count = count, .list = list, .row = !list,
                               .ascii = true};
    for (size_t i = 0; i < count; i++)
        table->width[i] = strlen(fields[i].title);
}

void tp_table_fail(struct tp_table *table)
{
    tp_fail(&table->w.err, TP_E_MEMORY, "no memory for the table");
}

/* ---- what is printed ------------------------------------------------------------ */

/* Takes the cell at *at and steps behind it. */
static struct cell next_cell(const char **at)
{
    struct cell cell = {.text = *at + sizeof cell.size};
    memcpy(&cell.size, *at, sizeof cell.size);
    *at += sizeof cell.size + cell.size;
    return cell;
}

size_t tp_terminal_width(void)
{
    struct winsize size;
    if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
        return size.ws_col;
    return SIZE_MAX;
}

/* Narrows the widest column that may be, again and again, until lines fit. */
static void fit(struct tp_table *table)
{
    size_t limit = tp_terminal_width(), total = 0;
    for (size_t i = 0; i < table->count; i++)
        total += table->width[i] + (i ? GAP : 0);
    while (total > limit) {
        size_t widest = SIZE_MAX;
        for (size_t i = 0; i < table->count; i++)
            if (table->fields[i].how & (TP_CUT | TP_FOLD) && table->width[i] > MIN_WIDTH &&
                (widest == SIZE_MAX || table->width[i] > table->width[widest]))
                widest = i;
        if (widest == SIZE_MAX)
            return;
        table->width[widest]--;
        total--;
    }
}

/* The first code points of a cell, as bytes. */
static size_t prefix(struct cell cell, size_t points)
{
    size_t at = 0;
    for (; at < cell.size; at++)
        if (((unsigned char)cell.text[at] & 0xC0) != 0x80 && !points--)
            break;
    return at;
}

/* Prints one cell behind `pad` blanks that are still owed; returns the blanks owed
 * to the next one, so that no line ends in blanks. */
static size_t print_cell(const struct tp_table *table, size_t column, struct cell cell, size_t pad)
{
    size_t own = table->ascii ? cell.size : text_width(cell.text, cell.size);
    size_t width = table->width[column];
    if (!own)
        return pad + width + GAP;
    if (table->fields[column].how & TP_RIGHT && own < width) {
        pad += width - own;
        width = own;
    }
    while (pad--)
        putchar_unlocked(' ');
    if (own > width) { /* names differ at their ends: keep more of the end */
        size_t head = (width - 3) / 3, tail = width - 3 - head, skip = prefix(cell, own - tail);
        fwrite_unlocked(cell.text, 1, prefix(cell, head), stdout);
        fputs("...", stdout);
        fwrite_unlocked(cell.text + skip, 1, cell.size - skip, stdout);
        return GAP;
    }
    fwrite_unlocked(cell.text, 1, cell.size, stdout);
    return width - own + GAP;
}

/* Takes from the cell what a line of its folded column holds: words, or a part of one that
 * is too long. */
static struct cell next_line(struct cell *cell, size_t width)
{
    struct cell line = *cell;
    size_t fits = prefix(*cell, width), skip = 0;
    if (fits < cell->size) {
        while (fits > 0 && cell->text[fits] != ' ')
            fits--;
        skip = fits > 0;
        if (!fits)
            fits = prefix(*cell, width);
    }
    line.size = (uint32_t)fits;
    cell->text += fits + skip;
    cell->size -= (uint32_t)(fits + skip);
    return line;
}

/* One row, in as many lines as its folded cells need. */
static void print_row(const struct tp_table *table, struct cell cells[])
{
    for (bool more = true; more;) {
        size_t pad = 0;
        more = false;
        for (size_t i = 0; i < table->count; i++) {
            struct cell line = cells[i];
            if (table->fields[i].how & TP_FOLD)
                line = next_line(&cells[i], table->width[i]);
            else
                cells[i].size = 0;
            pad = print_cell(table, i, line, pad);
            more |= cells[i].size > 0;
        }
        putchar('\n');
    }
}

static void print_all(const struct tp_table *table)
{
    const char *at = table->kept;
    struct cell cells[TP_MAX_FIELDS];
    size_t pad = 0;
    fputs(tp_style("1"), stdout);
    for (size_t i = 0; i < table->count; i++) {
        const char *title = table->fields[i].title;
        pad = print_cell(table, i, (struct cell){title, (uint32_t)strlen(title)}, pad);
    }
    puts(tp_style("0"));
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t i = 0; i < table->count; i++)
            cells[i] = next_cell(&at);
        print_row(table, cells);
    }
}

int tp_table_end(struct tp_table *table)
{
    if (!table->w.err.code) {
        fit(table);
        print_all(table);
    }
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i].text);
    free(table->kept);
    return table->w.err.code ? tp_report_error(&table->w.err) : TP_OK;
}

int tp_table_print(const struct tp_field *fields, size_t count, const char *list,
                   struct tp_member of)
{
    struct tp_table table;
    tp_table_open(&table, fields, count, list);
    tp_write(&table.w, of);
    return tp_table_end(&table);
}
