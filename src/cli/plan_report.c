/* Printing a plan. Equal lines of many layers are folded unless --verbose. */
#include "cli/plan_report.h"

#include "cli/fold.h"
#include "cli/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *shape_text(char *text, size_t size, const uint64_t *shape, uint32_t rank)
{
    size_t at = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < rank && at < size; d++)
        at += (size_t)snprintf(text + at, size - at, "%s%llu", d ? "," : "",
                               (unsigned long long)shape[d]);
    if (at < size)
        snprintf(text + at, size - at, "]");
    return text;
}

static const char *box_text(char *text, size_t size, const struct tp_unit *unit)
{
    uint64_t shape[3] = {unit->box.e, unit->box.n, unit->box.k};
    return shape_text(text, size, unit->rank == 3 ? shape : shape + 1, (uint32_t)unit->rank);
}

static uint64_t unit_bytes(const struct tp_plan *plan, const struct tp_unit *unit)
{
    uint64_t bytes = 0;
    uint32_t outs = unit->format ? unit->op.outs : 1;
    for (uint32_t i = 0; i < outs; i++)
        bytes += plan->outputs[unit->output[i]].bytes;
    return bytes;
}

/* What was found, before it is converted: "BF16", "gptq (groups of 128)". */
static const char *unit_source(const struct tp_plan *plan, const struct tp_unit *unit, char *text,
                               size_t size)
{
    return tp_weight_source(&plan->weights->items[unit->parts[0].weight], text, size);
}

static json_t *unit_json(const struct tp_plan *plan, const struct tp_unit *unit)
{
    json_t *outputs = json_array();
    uint32_t outs = unit->format ? unit->op.outs : 1;
    for (uint32_t i = 0; i < outs; i++) {
        const struct tp_output *output = &plan->outputs[unit->output[i]];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < output->rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)output->shape[d]));
        json_array_append_new(outputs,
                              json_pack("{s:s,s:s,s:o,s:I,s:s,s:I}", "name", output->name, "dtype",
                                        tp_dtype_name(output->dtype), "shape", shape, "bytes",
                                        (json_int_t)output->bytes, "file",
                                        plan->files[output->file].name, "offset",
                                        (json_int_t)output->offset));
    }
    json_t *json = json_pack("{s:s,s:[I,I,I],s:i,s:s,s:o}", "name", unit->name, "box",
                             (json_int_t)unit->box.e, (json_int_t)unit->box.n,
                             (json_int_t)unit->box.k, "rank", unit->rank, "dtype",
                             tp_dtype_name(unit->original), "outputs", outputs);
    char source[128];
    json_object_set_new(json, "source",
                        json_string(unit_source(plan, unit, source, sizeof source)));
    if (unit->format)
        json_object_set_new(json, "format", json_string(unit->format->name));
    if (unit->warning)
        json_object_set_new(json, "warning", json_string(unit->warning));
    return json;
}

static int print_json(const struct tp_plan *plan)
{
    json_t *units = json_array(), *kept = json_array(), *files = json_array();
    for (size_t u = 0; u < plan->unit_count; u++)
        json_array_append_new(units, unit_json(plan, &plan->units[u]));
    for (size_t k = 0; k < plan->kept_count; k++) {
        const struct tp_kept *item = &plan->kept[k];
        json_t *json = json_pack("{s:s}", "name", plan->ckpt->tensors[item->tensor].name);
        if (item->reason)
            json_object_set_new(json, "reason", json_string(item->reason));
        json_array_append_new(kept, json);
    }
    for (size_t f = 0; f < plan->file_count; f++)
        json_array_append_new(files, json_pack("{s:s,s:I}", "name", plan->files[f].name, "size",
                                               (json_int_t)plan->files[f].size));
    return tp_json_print(json_pack("{s:I,s:I,s:o,s:o,s:o}", "bytes_in", (json_int_t)plan->bytes_in,
                                   "bytes_out", (json_int_t)plan->bytes_out, "files", files,
                                   "units", units, "kept", kept));
}

/* Lines that are equal but for the numbers in the name ("layers.3.") are shown
 * once, with their count. */
enum { CELLS = 4 }; /* of a line, after name and count */

struct line {
    char *key, *name, *cells[CELLS];
    size_t count;
};

struct lines {
    struct line *items;
    size_t count, capacity;
    bool fold;
};

static bool same_cells(const struct line *line, const char *const cells[CELLS])
{
    for (int i = 0; i < CELLS; i++)
        if (strcmp(line->cells[i], cells[i]) != 0)
            return false;
    return true;
}

static void add_line(struct lines *lines, const char *name, const char *const cells[CELLS])
{
    char *key = tp_fold_name(name);
    bool complete = true;
    for (size_t i = lines->count; lines->fold && key && i > 0 && lines->count - i < 64; i--) {
        struct line *line = &lines->items[i - 1];
        if (strcmp(line->key, key) == 0 && same_cells(line, cells)) {
            line->count++;
            free(key);
            return;
        }
    }
    if (lines->count == lines->capacity) {
        size_t capacity = lines->capacity ? 2 * lines->capacity : 64;
        struct line *items = realloc(lines->items, capacity * sizeof *items);
        if (!items) {
            free(key);
            return;
        }
        lines->items = items;
        lines->capacity = capacity;
    }
    struct line *line = &lines->items[lines->count];
    *line = (struct line){.key = key, .name = strdup(name), .count = 1};
    for (int i = 0; i < CELLS; i++)
        complete &= (line->cells[i] = strdup(cells[i])) != NULL;
    lines->count += line->name && complete;
}

static int print_lines(struct lines *lines, const struct tp_column *columns, size_t column_count)
{
    struct tp_table *table = tp_table_new(columns, column_count);
    for (size_t i = 0; i < lines->count; i++) {
        struct line *line = &lines->items[i];
        char count[24];
        snprintf(count, sizeof count, "%zu", line->count);
        const char *cells[] = {line->count > 1 ? line->key : line->name, count, line->cells[0],
                               line->cells[1], line->cells[2], line->cells[3]};
        tp_table_row(table, cells);
        free(line->key);
        free(line->name);
        for (int c = 0; c < CELLS; c++)
            free(line->cells[c]);
    }
    free(lines->items);
    return tp_table_end(table);
}

static int print_units(const struct tp_plan *plan, bool fold)
{
    static const struct tp_column columns[] = {{"weight", false, true}, {"count", true, false},
                                               {"shape", false, false}, {"from", false, false},
                                               {"to", false, false}, {"bytes each", true, false}};
    struct lines lines = {.fold = fold};
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        char shape[80], source[128], bytes[TP_HUMAN];
        const char *cells[CELLS] = {box_text(shape, sizeof shape, unit),
                                    unit_source(plan, unit, source, sizeof source),
                                    unit->format ? unit->format->name : tp_dtype_name(unit->dtype),
                                    tp_human_bytes(bytes, unit_bytes(plan, unit))};
        add_line(&lines, unit->name, cells);
    }
    return print_lines(&lines, columns, 6);
}

static int print_kept(const struct tp_plan *plan, bool fold)
{
    static const struct tp_column columns[] = {{"kept", false, true}, {"count", true, false},
                                               {"shape", false, false}, {"dtype", false, false},
                                               {"why", false, false}};
    struct lines lines = {.fold = fold};
    for (size_t k = 0; k < plan->kept_count; k++) {
        const struct tp_tensor *tensor = &plan->ckpt->tensors[plan->kept[k].tensor];
        char shape[120];
        const char *cells[CELLS] = {shape_text(shape, sizeof shape, tensor->shape, tensor->rank),
                                    tp_dtype_name(tensor->dtype),
                                    plan->kept[k].reason ? plan->kept[k].reason
                                                         : "not a weight matrix",
                                    ""};
        add_line(&lines, tensor->name, cells);
    }
    return print_lines(&lines, columns, 5);
}

int tp_plan_print(const struct tp_plan *plan, const struct tp_options *o)
{
    char in[TP_HUMAN], out[TP_HUMAN];
    if (o->json)
        return print_json(plan);
    int status = plan->unit_count ? print_units(plan, !o->verbose) : TP_OK;
    if (status == TP_OK && plan->kept_count) {
        printf("%s", plan->unit_count ? "\n" : "");
        status = print_kept(plan, !o->verbose);
    }
    printf("\n%zu weights converted, %zu tensors kept; %s -> %s in %zu file%s\n", plan->unit_count,
           plan->kept_count, tp_human_bytes(in, plan->bytes_in),
           tp_human_bytes(out, plan->bytes_out), plan->file_count, plan->file_count == 1 ? "" : "s");
    return status;
}

/* Nothing to do because it is done: worth a word, as the user asked for more. */
static void warn_same(const struct tp_plan *plan)
{
    size_t same = 0;
    for (size_t u = 0; u < plan->kept_unit_count; u++)
        same += plan->kept_units[u].format != NULL;
    for (size_t k = 0; k < plan->kept_count && same; k++)
        if (plan->kept[k].reason && strcmp(plan->kept[k].reason, TP_REASON_SAME) == 0) {
            const struct tp_unit *unit = &plan->kept_units[plan->kept[k].unit];
            tp_warn("%s is in the format %s already: nothing is converted, its tensors are copied",
                    plan->ckpt->path, unit->format->name);
            return;
        }
    tp_warn("%s: no weight is converted, all tensors are copied; the plan (--dry-run) says why",
            plan->ckpt->path);
}

void tp_plan_warn(const struct tp_plan *plan)
{
    const char *seen[32];
    size_t count = 0;
    if (!plan->unit_count)
        warn_same(plan);
    for (size_t u = 0; u < plan->unit_count; u++) {
        const char *warning = plan->units[u].warning;
        size_t i = 0, alike = 0;
        while (warning && i < count && seen[i] != warning)
            i++;
        if (!warning || i < count || count == sizeof seen / sizeof *seen)
            continue;
        seen[count++] = warning;
        for (size_t v = u; v < plan->unit_count; v++)
            alike += plan->units[v].warning == warning;
        tp_warn("%s%s: the bytes are right, but %s", plan->units[u].name,
                alike > 1 ? " and others" : "", warning);
    }
}
