/* Text tables: all cells are kept, then printed in columns. One memory block of
 * text and one of offsets, so that 100,000 rows cost little.
 * Invariant: on anything but a terminal every cell is printed whole. */
#include "cli/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct tp_table {
    struct tp_column *columns;
    size_t count, rows;
    char *text; /* cells behind each other, each ended by 0 */
    size_t used, capacity;
    size_t *width;
    bool failed;
};

enum {
    GAP = 2,
    LEAST = 12, /* width below which no column is cut */
    MOST = 32,  /* columns */
};

/* Code points; what a terminal shows for the names that checkpoints have. */
static size_t text_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

struct tp_table *tp_table_new(const struct tp_column *columns, size_t count)
{
    struct tp_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->count = count < MOST ? count : MOST;
    table->columns = calloc(MOST, sizeof *columns);
    table->width = calloc(MOST, sizeof *table->width);
    table->failed = !table->columns || !table->width;
    for (size_t i = 0; i < table->count && !table->failed; i++) {
        table->columns[i] = columns[i];
        table->width[i] = columns[i].title ? text_width(columns[i].title) : 0;
    }
    return table;
}

static bool reserve(struct tp_table *table, size_t more)
{
    if (table->capacity - table->used >= more)
        return true;
    size_t capacity = (table->used + more) * 2;
    char *text = realloc(table->text, capacity);
    if (!text)
        return false;
    table->text = text;
    table->capacity = capacity;
    return true;
}

/* Appends one cell with control characters escaped; its width, or SIZE_MAX. */
static size_t add_cell(struct tp_table *table, const char *cell)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t length = strlen(cell);
    if (!reserve(table, length * 4 + 1))
        return SIZE_MAX;
    char *at = table->text + table->used, *first = at;
    for (; *cell; cell++) {
        unsigned char c = (unsigned char)*cell;
        if (c >= 0x20 && c != 0x7F) {
            *at++ = (char)c;
            continue;
        }
        *at++ = '\\';
        *at++ = 'x';
        *at++ = digits[c >> 4];
        *at++ = digits[c & 15];
    }
    *at++ = 0;
    table->used += (size_t)(at - first);
    return text_width(first);
}

void tp_table_row(struct tp_table *table, const char *const *cells)
{
    if (!table || table->failed)
        return;
    for (size_t i = 0; i < table->count; i++) {
        size_t width = add_cell(table, cells[i] ? cells[i] : "");
        if (width == SIZE_MAX) {
            table->failed = true;
            return;
        }
        if (width > table->width[i])
            table->width[i] = width;
    }
    table->rows++;
}

static size_t terminal_width(void)
{
    struct winsize size;
    if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
        return size.ws_col;
    return SIZE_MAX;
}

/* Cuts the widest column that may be cut, again and again, until lines fit. */
static void fit(struct tp_table *table)
{
    size_t limit = terminal_width(), total = 0;
    for (size_t i = 0; i < table->count; i++)
        total += table->width[i] + (i ? GAP : 0);
    while (total > limit) {
        size_t widest = SIZE_MAX;
        for (size_t i = 0; i < table->count; i++)
            if (table->columns[i].elide && table->width[i] > LEAST &&
                (widest == SIZE_MAX || table->width[i] > table->width[widest]))
                widest = i;
        if (widest == SIZE_MAX)
            return;
        table->width[widest]--;
        total--;
    }
}

/* The first code points of text, as bytes. */
static size_t prefix(const char *text, size_t points)
{
    size_t at = 0;
    while (text[at]) {
        if (((unsigned char)text[at] & 0xC0) != 0x80 && !points--)
            break;
        at++;
    }
    return at;
}

/* Prints one cell behind `pad` blanks that are still owed; returns the blanks owed
 * to the next one, so that no line ends in blanks. */
static size_t print_cell(const char *cell, const struct tp_column *column, size_t width,
                         size_t pad)
{
    size_t own = text_width(cell);
    if (!own)
        return pad + width + GAP;
    if (column->right && own < width) {
        pad += width - own;
        width = own;
    }
    printf("%*s", (int)pad, "");
    if (own > width) { /* names differ at their ends: keep more of the end */
        size_t head = (width - 3) / 3, tail = width - 3 - head;
        printf("%.*s...%s", (int)prefix(cell, head), cell, cell + prefix(cell, own - tail));
        return GAP;
    }
    fputs(cell, stdout);
    return width - own + GAP;
}

static void print_row(const struct tp_table *table, const char *const *cells)
{
    size_t pad = 0;
    for (size_t i = 0; i < table->count; i++)
        pad = print_cell(cells[i], &table->columns[i], table->width[i], pad);
}

static void print_all(const struct tp_table *table)
{
    const char *cell = table->text, *cells[MOST];
    if (table->columns[0].title) {
        for (size_t i = 0; i < table->count; i++)
            cells[i] = table->columns[i].title ? table->columns[i].title : "";
        fputs(tp_style("1"), stdout);
        print_row(table, cells);
        printf("%s\n", tp_style("0"));
    }
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t i = 0; i < table->count; i++) {
            cells[i] = cell;
            cell += strlen(cell) + 1;
        }
        print_row(table, cells);
        fputc('\n', stdout);
    }
}

int tp_table_end(struct tp_table *table)
{
    struct tp_err err = {0};
    bool failed = !table || table->failed;
    if (!failed) {
        fit(table);
        print_all(table);
    }
    if (table) {
        free(table->columns);
        free(table->width);
        free(table->text);
        free(table);
    }
    if (!failed)
        return TP_OK;
    tp_fail(&err, TP_E_MEMORY, "no memory for the table");
    return tp_report_error(&err);
}
