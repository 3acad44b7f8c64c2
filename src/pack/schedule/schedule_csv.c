/* Tables of planner cases: reads rows with the input columns of one of the two
 * DeepGEMM tables, plans each, writes the rows with every column.
 *
 * It does not quote or unquote: a table holds numbers and plain words. Input
 * fields are written back as they were read, so a full table that is planned
 * again differs from itself only where the plan differs.
 */
#include "pack/schedule/schedule.h"

#include <stdio.h>
#include <string.h>

enum { MAX_COLUMNS = 32, MAX_INPUTS = 10 };

struct field {
    const char *text;
    size_t size;
};

struct table {
    const char *inputs[MAX_INPUTS];
    size_t input_count;
    const char *outputs; /* the rest of the header, from "status" on */
    size_t output_count; /* columns after status */
};

static const struct table tables[] = {
    [TP_SCHED_TABLE_2025] =
        {{"m", "n", "k", "num_groups", "num_sms", "is_grouped_contiguous", "is_grouped_masked",
          "is_fp32_out", "is_wgrad"},
         9,
         "status,num_min_sms,block_m,block_n,num_stages,num_tma_multicast,"
         "is_tma_multicast_on_a,smem_size,swizzle_mode,block_n_padding",
         9},
    [TP_SCHED_TABLE_NEWEST] =
        {{"arch", "gemm_type", "kernel", "m", "n", "k", "num_groups", "num_sms", "cd_dtype",
          "with_accumulation"},
         10,
         "status,out_num_sms,block_m,block_n,block_k,cluster_m,cluster_n,swap_ab,num_stages,"
         "smem_size,swizzle_cd_mode,num_threads",
         11},
};

struct reader {
    const char *next, *end;
    const char *path;
    uint64_t line;
    enum tp_sched_table which;
    size_t columns;            /* of the header */
    size_t column[MAX_INPUTS]; /* where each input column stands in a row */
};

/* Splits the next line into at most MAX_COLUMNS fields; false at the end. Blank
 * lines are skipped; a surplus field shows as count MAX_COLUMNS + 1. */
static bool next_row(struct reader *reader, struct field fields[MAX_COLUMNS], size_t *count)
{
    while (reader->next < reader->end) {
        const char *line = reader->next;
        const char *stop = memchr(line, '\n', (size_t)(reader->end - line));
        reader->next = stop ? stop + 1 : reader->end;
        stop = stop ? stop : reader->end;
        reader->line++;
        if (stop > line && stop[-1] == '\r')
            stop--;
        if (stop == line)
            continue;
        *count = 0;
        for (const char *at = line; at <= stop && *count <= MAX_COLUMNS;) {
            const char *comma = memchr(at, ',', (size_t)(stop - at));
            const char *to = comma ? comma : stop;
            if (*count < MAX_COLUMNS)
                fields[*count] = (struct field){at, (size_t)(to - at)};
            ++*count;
            at = to + 1;
        }
        return true;
    }
    return false;
}

static bool is(struct field field, const char *text)
{
    return field.size == strlen(text) && memcmp(field.text, text, field.size) == 0;
}

static enum tp_code fail(const struct reader *reader, struct tp_err *err, const char *column,
                         struct field field, const char *want)
{
    enum tp_code code = tp_fail(err, TP_E_INPUT, "line %llu, column %s: '%.*s' is not %s",
                                (unsigned long long)reader->line, column,
                                (int)(field.size < 40 ? field.size : 40), field.text, want);
    tp_err_path(err, reader->path);
    return code;
}

/* Finds the columns of table `which`; false with the missing name. */
static bool map_columns(struct reader *reader, const struct field *fields, size_t count,
                        enum tp_sched_table which, const char **missing)
{
    const struct table *table = &tables[which];
    for (size_t i = 0; i < table->input_count; i++) {
        size_t at = 0;
        while (at < count && !is(fields[at], table->inputs[i]))
            at++;
        if (at == count) {
            *missing = table->inputs[i];
            return false;
        }
        reader->column[i] = at;
    }
    reader->which = which;
    reader->columns = count;
    return true;
}

static enum tp_code read_header(struct reader *reader, struct tp_err *err)
{
    struct field fields[MAX_COLUMNS];
    size_t count = 0;
    const char *missing = "m";
    if (next_row(reader, fields, &count)) {
        if (count > MAX_COLUMNS)
            count = MAX_COLUMNS;
        bool newest = false;
        for (size_t i = 0; i < count; i++)
            newest = newest || is(fields[i], "gemm_type");
        if (map_columns(reader, fields, count,
                        newest ? TP_SCHED_TABLE_NEWEST : TP_SCHED_TABLE_2025, &missing))
            return TP_OK;
    }
    enum tp_code code =
        tp_fail(err, TP_E_INPUT, "the header line has no column '%s'", missing);
    tp_err_path(err, reader->path);
    tp_err_hint(err, "the columns are listed in tilepack-schedule(1)");
    return code;
}

static enum tp_code number(const struct reader *reader, const char *column, struct field field,
                           uint64_t min, uint64_t max, uint64_t *value, struct tp_err *err)
{
    *value = 0;
    bool good = field.size >= 1 && field.size <= 10;
    for (size_t i = 0; good && i < field.size; i++) {
        good = field.text[i] >= '0' && field.text[i] <= '9';
        *value = *value * 10 + (uint64_t)(field.text[i] - '0');
    }
    if (good && *value >= min && *value <= max)
        return TP_OK;
    return fail(reader, err, column, field,
                max == 1 ? "0 or 1"
                         : min ? "a number of 1..2147483647" : "a number of 0..2147483647");
}

static enum tp_code word(const struct reader *reader, const char *column, struct field field,
                         const char *const *words, const char *want, uint64_t *index,
                         struct tp_err *err)
{
    for (uint64_t i = 0; words[i]; i++)
        if (is(field, words[i])) {
            *index = i;
            return TP_OK;
        }
    return fail(reader, err, column, field, want);
}

/* The value of input column i of a row, as a number or as the index of its word. */
static enum tp_code value_of(const struct reader *reader, size_t i, struct field field,
                             uint64_t *value, struct tp_err *err)
{
    static const char *const arches[] = {"9", "10", NULL};
    static const char *const types[] = {"normal", "m_contiguous", "m_masked", NULL};
    static const char *const kernels[] = {"1d2d", "1d1d", NULL};
    static const char *const dtypes[] = {"bf16", "f32", NULL};
    const char *name = tables[reader->which].inputs[i];
    if (strcmp(name, "arch") == 0)
        return word(reader, name, field, arches, "9 or 10", value, err);
    if (strcmp(name, "gemm_type") == 0)
        return word(reader, name, field, types, "normal, m_contiguous or m_masked", value, err);
    if (strcmp(name, "kernel") == 0)
        return word(reader, name, field, kernels, "1d2d or 1d1d", value, err);
    if (strcmp(name, "cd_dtype") == 0)
        return word(reader, name, field, dtypes, "bf16 or f32", value, err);
    bool flag = strncmp(name, "is_", 3) == 0 || strcmp(name, "with_accumulation") == 0;
    bool may_be_0 = flag || strcmp(name, "k") == 0;
    return number(reader, name, field, may_be_0 ? 0 : 1, flag ? 1 : INT32_MAX, value, err);
}

static void set_problem(enum tp_sched_table which, const uint64_t *v, struct tp_sched_problem *p)
{
    if (which == TP_SCHED_TABLE_2025)
        *p = (struct tp_sched_problem){.kernel = TP_SCHED_DEEPGEMM_2025, .arch = 9, .m = v[0],
                                       .n = v[1], .k = v[2], .groups = v[3], .sms = v[4],
                                       .contiguous = v[5], .masked = v[6], .fp32_out = v[7],
                                       .wgrad = v[8]};
    else
        *p = (struct tp_sched_problem){.kernel = TP_SCHED_DEEPGEMM, .arch = v[0] ? 10 : 9,
                                       .contiguous = v[1] == 1, .masked = v[1] == 2,
                                       .one_d = v[2], .m = v[3], .n = v[4], .k = v[5],
                                       .groups = v[6], .sms = v[7], .fp32_out = v[8],
                                       .accumulate = v[9]};
    p->experts = p->groups;
}

static enum tp_code write_plan(enum tp_sched_table which, const struct tp_sched_plan *plan,
                               struct tp_text *out, struct tp_err *err)
{
    const struct tp_sched_config *c = &plan->config[0];
    typedef unsigned long long ull;
    if (plan->count == 0) {
        static const char commas[] = ",,,,,,,,,,,";
        return tp_text_addf(out, err, "assert%.*s\n", (int)tables[which].output_count, commas);
    }
    if (which == TP_SCHED_TABLE_2025)
        return tp_text_addf(out, err, "ok,%llu,%llu,%llu,%llu,%llu,%d,%llu,%llu,%llu\n",
                            (ull)c->sms, (ull)c->block_m, (ull)c->block_n, (ull)c->stages,
                            (ull)(c->cluster_m * c->cluster_n), c->multicast_on_a, (ull)c->smem,
                            (ull)c->swizzle, (ull)c->padding);
    return tp_text_addf(out, err,
                        "ok,%llu,%llu,%llu,%llu,%llu,%llu,%d,%llu,%llu,%llu,%llu\n",
                        (ull)c->sms, (ull)c->block_m, (ull)c->block_n, (ull)c->block_k,
                        (ull)c->cluster_m, (ull)c->cluster_n, c->swap_ab, (ull)c->stages,
                        (ull)c->smem, (ull)c->swizzle, (ull)c->threads);
}

static enum tp_code plan_row(const struct reader *reader, const struct field *fields,
                             size_t count, struct tp_text *out, struct tp_err *err)
{
    const struct table *table = &tables[reader->which];
    uint64_t values[MAX_INPUTS] = {0};
    if (count != reader->columns) {
        tp_fail(err, TP_E_INPUT, "line %llu has %zu fields, the header has %zu",
                (unsigned long long)reader->line, count, reader->columns);
        tp_err_path(err, reader->path);
        return TP_E_INPUT;
    }
    for (size_t i = 0; i < table->input_count; i++) {
        struct field field = fields[reader->column[i]];
        enum tp_code code = value_of(reader, i, field, &values[i], err);
        if (!code)
            code = tp_text_addf(out, err, "%.*s,", (int)field.size, field.text);
        if (code)
            return code;
    }
    struct tp_sched_problem problem;
    struct tp_sched_plan plan;
    set_problem(reader->which, values, &problem);
    enum tp_code code = tp_sched_plan(&problem, 1, &plan, err);
    if (code) {
        tp_err_path(err, reader->path);
        tp_err_hint(err, "the row is line %llu", (unsigned long long)reader->line);
        if (code == TP_E_USAGE && err) /* wrong in a file is wrong input */
            err->code = TP_E_INPUT;
        return code == TP_E_USAGE ? TP_E_INPUT : code;
    }
    return write_plan(reader->which, &plan, out, err);
}

enum tp_code tp_sched_csv(const char *text, size_t size, const char *path,
                          enum tp_sched_table *which, struct tp_text *out, struct tp_err *err)
{
    struct reader reader = {.next = text, .end = text + size, .path = path};
    enum tp_code code = read_header(&reader, err);
    if (code)
        return code;
    *which = reader.which;
    const struct table *table = &tables[reader.which];
    for (size_t i = 0; !code && i < table->input_count; i++)
        code = tp_text_addf(out, err, "%s,", table->inputs[i]);
    if (!code)
        code = tp_text_addf(out, err, "%s\n", table->outputs);
    struct field fields[MAX_COLUMNS];
    size_t count = 0;
    while (!code && next_row(&reader, fields, &count))
        code = plan_row(&reader, fields, count, out, err);
    return code;
}
