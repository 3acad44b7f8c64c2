/* `dump --fold` and `--tree`: tensors whose names differ in numbers only, of layers and
 * experts, are one line. Sorts what is listed by the parts of the folded names, so that what
 * belongs together stands together; 100,000 tensors are no effort.
 */
#include "cli/dump.h"
#include "cli/fold.h"
#include "cli/table.h"
#include "pack/format/format_keywords.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *tp_holds_text(char text[120], const struct tp_owner *owner)
{
    const struct tp_weight *weight = owner->weight;
    *text = '\0';
    if (weight)
        stpcpy(stpcpy(stpcpy(text, weight->form->format->name), " "),
               tp_role_name(weight->form->op.out[owner->out].role));
    return text;
}

/* A tensor under its folded name. */
struct entry {
    char *key;
    const struct tp_tensor *tensor;
    char holds[120];
};

/* ---- order ---------------------------------------------------------------- */

/* As strcmp(), but a dot comes before all else: names below a name follow it. */
static int compare_keys(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    int left = *a == '.' ? 1 : *a ? 2 + (unsigned char)*a : 0;
    int right = *b == '.' ? 1 : *b ? 2 + (unsigned char)*b : 0;
    return left - right;
}

/* Entries of one line differ in nothing but their numbers. */
static int compare_lines(const struct entry *a, const struct entry *b)
{
    int by = compare_keys(a->key, b->key);
    if (!by)
        by = (int)a->tensor->dtype - (int)b->tensor->dtype;
    if (!by)
        by = (int)a->tensor->rank - (int)b->tensor->rank;
    if (!by)
        by = memcmp(a->tensor->shape, b->tensor->shape,
                    a->tensor->rank * sizeof *a->tensor->shape);
    return by ? by : strcmp(a->holds, b->holds);
}

static int by_line(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int by = compare_lines(a, b);
    return by ? by : (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* ---- lines ---------------------------------------------------------------- */

/* `count` entries of one line under that name. */
static void put_line(struct tp_table *table, const char *name, const struct entry *first,
                     size_t count)
{
    char bytes[TP_HUMAN];
    const struct tp_tensor *tensor = first->tensor;
    tp_object(&table->w, NULL, tp_str("name", name), tp_num("count", count),
              tp_str("dtype", tp_dtype_name(tensor->dtype)),
              tp_numbers("shape", tensor->shape, tensor->rank),
              tp_str("size", tp_human_bytes(bytes, count * tensor->bytes)),
              tp_str("holds", first->holds));
}

static size_t line_length(const struct entry *entries, size_t count)
{
    size_t length = 1;
    while (length < count && compare_lines(&entries[0], &entries[length]) == 0)
        length++;
    return length;
}

static void add_lines(struct tp_table *table, const struct entry *entries, size_t count)
{
    for (size_t i = 0, length; i < count; i += length) {
        length = line_length(&entries[i], count - i);
        put_line(table, entries[i].key, &entries[i], length);
    }
}

/* ---- the tree --------------------------------------------------------------- */

enum { MAX_DEPTH = 64, LINE = 1024 };

struct tree {
    struct tp_table *table;
    char line[LINE]; /* being put together, its indentation included */
};

/* The number in a name that the star number `star` of its folded name stands for. */
static uint64_t number_at(const char *name, unsigned star)
{
    for (const char *at = name; *at; at++)
        if (isdigit((unsigned char)*at) && (at == name || at[-1] == '.') && !star--)
            return strtoull(at, NULL, 10);
    return 0;
}

static unsigned stars_before(const char *key, size_t end)
{
    unsigned stars = 0;
    for (size_t i = 0; i < end; i++)
        stars += key[i] == '*' && (i == 0 || key[i - 1] == '.');
    return stars;
}

/* Appends a part of the folded name, with "0-31" for the star that it begins with. */
static void add_part(struct tree *tree, const struct entry *entries, size_t count, size_t at,
                     size_t size)
{
    size_t used = strlen(tree->line);
    const char *part = entries->key + at;
    if (used == LINE - 1) /* a name from a file may have any number of parts */
        return;
    if (*part == '*') {
        unsigned star = stars_before(entries->key, at);
        uint64_t min = UINT64_MAX, max = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t number = number_at(entries[i].tensor->name, star);
            min = number < min ? number : min;
            max = number > max ? number : max;
        }
        used += (size_t)snprintf(tree->line + used, LINE - used, "%llu",
                                 (unsigned long long)min);
        if (max > min && used < LINE)
            used += (size_t)snprintf(tree->line + used, LINE - used, "-%llu",
                                     (unsigned long long)max);
        part++;
        size--;
    }
    if (used < LINE)
        snprintf(tree->line + used, LINE - used, "%.*s", (int)size, part);
}

/* How many of the entries share the part of the first one's name that begins at `at`. */
static size_t same_part(const struct entry *entries, size_t count, size_t at, size_t size)
{
    size_t same = 1;
    while (same < count && strncmp(entries[0].key + at, entries[same].key + at, size) == 0 &&
           (entries[same].key[at + size] == '.' || !entries[same].key[at + size]))
        same++;
    return same;
}

static void add_branch(struct tree *tree, const struct entry *entries, size_t count, size_t at,
                       unsigned depth);

/* One name of the tree, whose entries share the key up to `at` + `size`: those that end there
 * are lines, the others stand below. A name with only one below it shares its line. */
static void add_node(struct tree *tree, const struct entry *entries, size_t count, size_t at,
                     size_t size, unsigned depth)
{
    size_t ends = 0, indent = 2 * depth;
    snprintf(tree->line, LINE, "%*s", (int)indent, "");
    add_part(tree, entries, count, at, size);
    while (entries[0].key[at + size] &&
           same_part(entries, count, at + size + 1,
                     strcspn(entries[0].key + at + size + 1, ".")) == count) {
        at += size + 1;
        size = strcspn(entries[0].key + at, ".");
        strncat(tree->line, ".", LINE - strlen(tree->line) - 1);
        add_part(tree, entries, count, at, size);
    }
    while (ends < count && !entries[ends].key[at + size])
        ends++;
    for (size_t i = 0, length; i < ends; i += length) {
        length = line_length(&entries[i], ends - i);
        put_line(tree->table, tree->line, &entries[i], length);
    }
    if (!ends)
        tp_object(&tree->table->w, NULL, tp_str("name", tree->line), tp_str("count", ""),
                  tp_str("dtype", ""), tp_str("shape", ""), tp_str("size", ""),
                  tp_str("holds", ""));
    if (ends < count)
        add_branch(tree, entries + ends, count - ends, at + size + 1, depth + 1);
}

static void add_branch(struct tree *tree, const struct entry *entries, size_t count, size_t at,
                       unsigned depth)
{
    if (depth == MAX_DEPTH) { /* a name from a file may have any number of dots */
        add_lines(tree->table, entries, count);
        return;
    }
    for (size_t i = 0, same; i < count; i += same) {
        size_t size = strcspn(entries[i].key + at, ".");
        same = same_part(&entries[i], count - i, at, size);
        add_node(tree, &entries[i], same, at, size, depth);
    }
}

/* ---- all ------------------------------------------------------------------ */

static int print_entries(const struct entry *entries, size_t count, bool tree)
{
    const struct tp_field fields[] = {
        {"tensor", "name", tree ? TP_CUT : TP_FOLD}, {"count", "count", TP_RIGHT},
        {"dtype", "dtype", TP_LEFT}, {"shape", "shape", TP_LEFT}, {"size", "size", TP_RIGHT},
        {"holds", "holds", TP_LEFT}};
    struct tp_table table;
    struct tree all = {.table = &table};
    tp_table_open(&table, fields, sizeof fields / sizeof *fields, NULL);
    if (tree)
        add_branch(&all, entries, count, 0, 0);
    else
        add_lines(&table, entries, count);
    return tp_table_end(&table);
}

int tp_dump_fold(const struct tp_listing *listing, bool tree)
{
    const struct tp_checkpoint *ckpt = &listing->source->ckpt;
    struct entry *entries = calloc(listing->count + 1, sizeof *entries);
    struct tp_err err = {0};
    bool whole = entries != NULL;
    int status;
    for (size_t i = 0; i < listing->count && whole; i++) {
        entries[i].tensor = &ckpt->tensors[listing->tensors[i]];
        tp_holds_text(entries[i].holds, &listing->owners[listing->tensors[i]]);
        whole = (entries[i].key = tp_fold_name(entries[i].tensor->name)) != NULL;
    }
    if (whole) {
        qsort(entries, listing->count, sizeof *entries, by_line);
        status = print_entries(entries, listing->count, tree);
    } else {
        tp_fail(&err, TP_E_MEMORY, "no memory for the table");
        status = tp_report_error(&err);
    }
    for (size_t i = 0; entries && i < listing->count; i++)
        free(entries[i].key);
    free(entries);
    return status;
}
