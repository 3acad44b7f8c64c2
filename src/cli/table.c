/* Text tables: all cells are kept, then printed in columns. They are kept in one text, so that
 * 100,000 rows cost little.
 * Invariant: on anything but a terminal every cell is printed whole, in one line. */
#include "cli/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    GAP = 2,
    LEAST = 12, /* width below which no column is narrowed */
    MOST = 32,  /* columns */
};

struct tp_table {
    struct tp_column columns[MOST];
    size_t width[MOST];
    size_t count, rows;
    char *cells; /* behind each other: each its size, a uint32_t, and its bytes */
    size_t used, capacity;
    bool ascii; /* all cells are: a byte is a column */
    bool failed;
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

static struct cell title_of(const struct tp_column *column)
{
    const char *title = column->title ? column->title : "";
    return (struct cell){title, (uint32_t)strlen(title)};
}

struct tp_table *tp_table_new(const struct tp_column *columns, size_t count)
{
    struct tp_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->ascii = true;
    table->count = count < MOST ? count : MOST;
    for (size_t i = 0; i < table->count; i++) {
        struct cell title = title_of(&columns[i]);
        table->columns[i] = columns[i];
        table->width[i] = text_width(title.text, title.size);
        table->ascii &= table->width[i] == title.size;
    }
    return table;
}

static bool add_part(const char *text, size_t size, void *to)
{
    enum { FIRST = 1 << 16 };
    struct tp_table *table = to;
    if (table->capacity - table->used < size) {
        size_t capacity = table->capacity ? 2 * table->capacity + size : FIRST + size;
        char *cells = realloc(table->cells, capacity);
        table->failed |= !cells;
        if (!cells)
            return false;
        table->cells = cells;
        table->capacity = capacity;
    }
    memcpy(table->cells + table->used, text, size);
    table->used += size;
    return true;
}

/* Appends one cell; its width. */
static size_t add_cell(struct tp_table *table, const char *cell)
{
    size_t begin = table->used, length = strlen(cell);
    uint32_t size = 0;
    table->failed |= length > UINT32_MAX / TP_ESCAPED;
    if (table->failed || !add_part((char *)&size, sizeof size, table) ||
        !tp_escape_parts(cell, length, false, add_part, table))
        return 0;
    const char *text = table->cells + begin + sizeof size;
    size = (uint32_t)(table->used - begin - sizeof size);
    memcpy(table->cells + begin, &size, sizeof size);
    size_t width = text_width(text, size);
    table->ascii &= width == size;
    return width;
}

/* Takes the cell at *at and steps behind it. */
static struct cell next_cell(const char **at)
{
    struct cell cell = {.text = *at + sizeof cell.size};
    memcpy(&cell.size, *at, sizeof cell.size);
    *at += sizeof cell.size + cell.size;
    return cell;
}

void tp_table_row(struct tp_table *table, const char *const *cells)
{
    if (!table || table->failed)
        return;
    for (size_t i = 0; i < table->count; i++) {
        size_t width = add_cell(table, cells[i] ? cells[i] : "");
        if (width > table->width[i])
            table->width[i] = width;
    }
    table->rows++;
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
            if (table->columns[i].narrow && table->width[i] > LEAST &&
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
    if (table->columns[column].right && own < width) {
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
            if (table->columns[i].narrow == TP_NARROW_FOLD)
                line = next_line(&cells[i], table->width[i]);
            else
                cells[i].size = 0;
            pad = print_cell(table, i, line, pad);
            more |= cells[i].size > 0;
        }
        putchar('\n');
    }
}

static void print_titles(const struct tp_table *table)
{
    size_t pad = 0;
    fputs(tp_style("1"), stdout);
    for (size_t i = 0; i < table->count; i++)
        pad = print_cell(table, i, title_of(&table->columns[i]), pad);
    puts(tp_style("0"));
}

static void print_all(const struct tp_table *table)
{
    const char *at = table->cells;
    if (table->columns[0].title)
        print_titles(table);
    for (size_t row = 0; row < table->rows; row++) {
        struct cell cells[MOST];
        for (size_t i = 0; i < table->count; i++)
            cells[i] = next_cell(&at);
        print_row(table, cells);
    }
}

void tp_table_fail(struct tp_table *table)
{
    if (table)
        table->failed = true;
}

int tp_table_end(struct tp_table *table)
{
    struct tp_err err = {0};
    bool failed = !table || table->failed;
    if (!failed) {
        fit(table);
        print_all(table);
    }
    if (table)
        free(table->cells);
    free(table);
    if (!failed)
        return TP_OK;
    tp_fail(&err, TP_E_MEMORY, "no memory for the table");
    return tp_report_error(&err);
}
