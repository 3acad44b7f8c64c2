/* Lines of equal layers. Only so many of the latest are looked through that a checkpoint of
 * 100,000 tensors that all differ costs little. */
#include "cli/fold.h"

#include "pack/os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

char *tp_fold_name(const char *name)
{
    char *key = strdup(name), *to = key;
    for (const char *at = name; key && *at;) {
        if (*at >= '0' && *at <= '9' && (at == name || at[-1] == '.')) {
            *to++ = '*';
            while (*at >= '0' && *at <= '9')
                at++;
        } else {
            *to++ = *at++;
        }
    }
    if (key)
        *to = '\0';
    return key;
}

static struct tp_line *find(const struct tp_lines *lines, const char *key, const void *all,
                            size_t i, bool (*same)(const void *all, size_t first, size_t i))
{
    enum { LATEST = 64 };
    for (size_t n = lines->count; n > 0 && lines->count - n < LATEST; n--) {
        struct tp_line *line = &lines->items[n - 1];
        if (same(all, line->first, i) && strcmp(line->key, key) == 0)
            return line;
    }
    return NULL;
}

struct tp_line *tp_lines_add(struct tp_lines *lines, const char *name, const void *all, size_t i,
                             bool (*same)(const void *all, size_t first, size_t i))
{
    char *key = lines->fold ? tp_fold_name(name) : strdup(name);
    struct tp_line *line = lines->fold && key ? find(lines, key, all, i, same) : NULL;
    if (line) {
        free(key);
        line->count++;
        return line;
    }
    if (key && tp_os_grow((void **)&lines->items, &lines->capacity, lines->count + 1,
                          sizeof *line, NULL) == TP_OK) {
        line = &lines->items[lines->count++];
        *line = (struct tp_line){.name = name, .key = key, .first = i, .count = 1, .sqnr = INFINITY,
                                 .gain = NAN, .weighted_gain = NAN};
        return line;
    }
    free(key);
    lines->failed = true;
    return NULL;
}

void tp_line_measured(struct tp_line *line, const struct tp_distance *distance)
{
    double relative = tp_distance_relative(distance);
    line->max_abs = fmax(line->max_abs, distance->max_abs);
    line->relative = fmax(line->relative, relative);
    line->lost = fmax(line->lost, tp_distance_lost(distance));
    line->sqnr = fmin(line->sqnr, tp_distance_sqnr(distance));
    line->unknown |= isnan(relative);
}

static void put_line(struct tp_writer *w, const struct tp_line *line)
{
    tp_write(w, tp_str("name", line->count > 1 ? line->key : line->name),
             tp_num("count", line->count));
    if (!line->unknown || line->relative > 0)
        tp_write(w, tp_real("max_abs", line->max_abs), tp_real("relative", line->relative));
}

int tp_lines_print(struct tp_lines *lines, const struct tp_field *fields, size_t count,
                   void (*put)(struct tp_writer *w, const struct tp_line *line, const void *all),
                   const void *all)
{
    struct tp_table table;
    tp_table_open(&table, fields, count, NULL);
    for (size_t i = 0; i < lines->count; i++) {
        tp_begin(&table.w, NULL, '{');
        put_line(&table.w, &lines->items[i]);
        put(&table.w, &lines->items[i], all);
        tp_end(&table.w, '}');
        free(lines->items[i].key);
    }
    free(lines->items);
    if (lines->failed)
        tp_table_fail(&table);
    return tp_table_end(&table);
}
