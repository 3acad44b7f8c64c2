/* Reading argv with the tables of option_table.c. Checks the form of every value
 * and that required operands are there; knows no format, file or device.
 * Invariant: after TP_OK every field holds its default or a checked value. */
#include "cli/options.h"

#include "base/isa.h"
#include "base/similar.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    struct tp_options *o;
    int argc, at;
    char *const *argv;
    struct tp_err *err;
};

/* ------------------------------------------------------------ suggestions -- */

static const char *nearest_option(const char *typed, enum tp_command command)
{
    struct tp_nearest nearest = {.typed = typed};
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *row = &tp_option_rows[i];
        if (tp_option_applies(row, command) && !row->hidden)
            tp_nearest_try(&nearest, row->name);
    }
    return nearest.name;
}

/* Fails with "unknown WHAT 'TYPED'" and the name that was meant, if any: ours for a word of other
 * programs, else the nearest. `dashes` stand before both. */
static enum tp_code unknown(struct tp_err *err, const char *what, const char *dashes,
                            const char *typed, const struct tp_synonym *synonym, const char *near)
{
    const char *meant = synonym ? synonym->ours : near;
    if (synonym && synonym->hint)
        tp_err_hint(err, "%s", synonym->hint);
    return meant ? tp_fail(err, TP_E_USAGE, "unknown %s '%s%s' (did you mean '%s%s'?)", what,
                           dashes, typed, dashes, meant)
                 : tp_fail(err, TP_E_USAGE, "unknown %s '%s%s'", what, dashes, typed);
}

enum tp_code tp_command_find(const char *name, enum tp_command *command, struct tp_err *err)
{
    struct tp_nearest nearest = {.typed = name};
    for (unsigned i = 0; i < TP_CMD_COUNT; i++) {
        if (!strcmp(name, tp_command_rows[i].name)) {
            *command = (enum tp_command)i;
            return TP_OK;
        }
        if (!tp_command_is_hidden((enum tp_command)i))
            tp_nearest_try(&nearest, tp_command_rows[i].name);
    }
    enum tp_code code = unknown(err, "command", "", name, tp_command_synonym(name), nearest.name);
    tp_err_hint(err, "'tilepack --help' lists the commands");
    return code;
}

const struct tp_option *tp_option_find(enum tp_command command, const char *name, size_t size,
                                       char letter)
{
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *row = &tp_option_rows[i];
        if (tp_option_applies(row, command) &&
            (letter ? row->letter == letter
                    : name && strlen(row->name) == size && strncmp(row->name, name, size) == 0))
            return row;
    }
    return NULL;
}

/* ----------------------------------------------------------------- values -- */

static void *field(const struct parser *p, const struct tp_option *row)
{
    return (char *)p->o + row->field;
}

static enum tp_code refuse(struct parser *p, const struct tp_option *row, const char *value,
                           const char *why)
{
    bool longer = strlen(value) > 200; /* a whole file's text, perhaps */
    return tp_fail(p->err, TP_E_USAGE, "--%s '%.200s%s': %s", row->name, value,
                   longer ? "..." : "", why);
}

static enum tp_code append(struct parser *p, struct tp_strings *list, const char *value)
{
    if (!list->item) { /* no list is longer than argv */
        list->item = calloc((size_t)p->argc + 1, sizeof *list->item);
        if (!list->item)
            return tp_fail(p->err, TP_E_MEMORY, "no memory for the command line");
    }
    list->item[list->count++] = value;
    return TP_OK;
}

static enum tp_code set_choice(struct parser *p, const struct tp_option *row, const char *value)
{
    char why[200];
    size_t length = strlen(value);
    for (const char *word = row->words; word; word = strchr(word, '|')) {
        word += *word == '|';
        if (length && !strncmp(word, value, length) && (!word[length] || word[length] == '|')) {
            *(const char **)field(p, row) = value;
            return TP_OK;
        }
    }
    snprintf(why, sizeof why, "it is not one of %s", row->words);
    for (char *bar = why; (bar = strchr(bar, '|'));)
        *bar = ' ';
    return refuse(p, row, value, why);
}

static enum tp_code set_unsigned(struct parser *p, const struct tp_option *row,
                                 const char *value)
{
    char why[100];
    uint64_t number;
    if (tp_parse_u64(value, &number) && number >= row->min && number <= row->max) {
        *(unsigned *)field(p, row) = (unsigned)number;
        return TP_OK;
    }
    snprintf(why, sizeof why, "it is not a number from %llu to %llu",
             (unsigned long long)row->min, (unsigned long long)row->max);
    return refuse(p, row, value, why);
}

static enum tp_code set_size(struct parser *p, const struct tp_option *row, const char *value)
{
    uint64_t bytes;
    if (!tp_parse_size(value, &bytes))
        return refuse(p, row, value, "it is not a size such as 5GB or 5G (5 * 1000^3), or "
                                     "512MiB (512 * 1024^2)");
    if (bytes < row->min)
        return refuse(p, row, value, "it is too small");
    *(uint64_t *)field(p, row) = bytes;
    return TP_OK;
}

static enum tp_code set_at(struct parser *p, const struct tp_option *row, const char *value)
{
    uint64_t v[3];
    size_t count;
    if (!tp_parse_u64_list(value, v, 3, &count) || count < 2)
        return refuse(p, row, value, "it is not of the form [E,]N,K");
    *(struct tp_opt_at *)field(p, row) =
        (struct tp_opt_at){true, count == 3 ? v[0] : 0, v[count - 2], v[count - 1]};
    return TP_OK;
}

/* One of "a:b", "a:", ":b", ":" up to `end`. */
static bool read_range(const char *text, const char *end, uint64_t *begin, uint64_t *stop)
{
    char part[64];
    if ((size_t)(end - text) >= sizeof part)
        return false;
    memcpy(part, text, (size_t)(end - text));
    part[end - text] = 0;
    char *colon = strchr(part, ':');
    if (!colon)
        return false;
    *colon = 0;
    *begin = 0;
    *stop = UINT64_MAX;
    return (!*part || tp_parse_u64(part, begin)) &&
           (!colon[1] || tp_parse_u64(colon + 1, stop)) && *begin < *stop;
}

static enum tp_code set_values(struct parser *p, const struct tp_option *row, const char *value)
{
    struct tp_opt_values v = {.set = true};
    const char *comma = strchr(value, ',');
    if (!comma || !read_range(value, comma, &v.n0, &v.n1) ||
        !read_range(comma + 1, value + strlen(value), &v.k0, &v.k1))
        return refuse(p, row, value, "it is not of the form N0:N1,K0:K1 with N0 < N1, K0 < K1");
    *(struct tp_opt_values *)field(p, row) = v;
    return TP_OK;
}

static enum tp_code set_part(struct parser *p, const struct tp_option *row, const char *value)
{
    struct tp_opt_part *part = field(p, row);
    const char *slash = strchr(value, '/');
    char index[24] = "";
    uint64_t i = 0, count = 0;
    size_t length = slash ? (size_t)(slash - value) : strlen(value);
    if (length < sizeof index)
        snprintf(index, sizeof index, "%.*s", (int)length, value);
    if (slash && (!tp_parse_u64(slash + 1, &count) || count < 1 || count > 1000000))
        return refuse(p, row, value, "it is not of the form I/P with 1 <= I <= P");
    if (!strcmp(index, "auto")) {
        if (tp_part_from_environment((unsigned)count, part))
            return TP_OK;
        return refuse(p, row, value, slash
                      ? "neither a Slurm array nor a Kubernetes Indexed Job says which part"
                      : "no Slurm array job says which part of how many");
    }
    if (!slash || !tp_parse_u64(index, &i) || i < 1 || i > count)
        return refuse(p, row, value, "it is not of the form I/P with 1 <= I <= P");
    *part = (struct tp_opt_part){(unsigned)i, (unsigned)count};
    return TP_OK;
}

/* A second value without a word would leave the first one's user in doubt; only what has a
 * default may be given again. */
static enum tp_code set_string(struct parser *p, const struct tp_option *row, const char *value)
{
    const char **at = field(p, row);
    if (!*value)
        return refuse(p, row, value, "it is empty");
    if (*at && !row->initial && strcmp(*at, value) != 0)
        return tp_fail(p->err, TP_E_USAGE, "--%s is given twice: '%.200s' and '%.200s'", row->name,
                       *at, value);
    *at = value;
    return TP_OK;
}

static enum tp_code set_value(struct parser *p, const struct tp_option *row, const char *value)
{
    const char *hint = NULL, *why = row->check ? row->check(value, &hint) : NULL;
    if (why) {
        if (hint)
            tp_err_hint(p->err, "%s", hint);
        return refuse(p, row, value, why);
    }
    switch (row->kind) {
    case TP_OPT_FLAG:
        *(bool *)field(p, row) = true;
        return TP_OK;
    case TP_OPT_STRING:
        return set_string(p, row, value);
    case TP_OPT_LIST:
        if (!*value)
            return refuse(p, row, value, "it is empty");
        return append(p, field(p, row), value);
    case TP_OPT_CHOICE:
        return set_choice(p, row, value);
    case TP_OPT_UNSIGNED:
        return set_unsigned(p, row, value);
    case TP_OPT_NUMBER:
        if (!tp_parse_u64(value, field(p, row)))
            return refuse(p, row, value, "it is not a number");
        if (*(uint64_t *)field(p, row) == TP_UNSET)
            return refuse(p, row, value, "it is beyond what a file can hold");
        return TP_OK;
    case TP_OPT_SIZE:
        return set_size(p, row, value);
    case TP_OPT_AT:
        return set_at(p, row, value);
    case TP_OPT_VALUES:
        return set_values(p, row, value);
    case TP_OPT_PART:
        return set_part(p, row, value);
    }
    return TP_OK;
}

/* ------------------------------------------------------------------- argv -- */

/* The commands that do have the option, for the message. */
static void list_owners(const char *name, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        for (size_t i = 0; i < tp_option_count; i++)
            if (!strcmp(tp_option_rows[i].name, name) && !tp_option_rows[i].hidden &&
                tp_option_applies(&tp_option_rows[i], (enum tp_command)c) && used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                         tp_command_rows[c].name);
}

static enum tp_code unknown_option(struct parser *p, const char *name)
{
    char owners[200];
    const struct tp_synonym *synonym = tp_option_synonym(name);
    if (synonym && !tp_option_find(p->o->command, synonym->ours, strlen(synonym->ours), '\0'))
        synonym = NULL;
    list_owners(name, owners, sizeof owners);
    if (*owners && !synonym)
        return tp_fail(p->err, TP_E_USAGE, "unknown option '--%s' (it belongs to %s)", name,
                       owners);
    return unknown(p->err, "option", "--", name, synonym, nearest_option(name, p->o->command));
}

static enum tp_code take_long(struct parser *p, const char *text)
{
    char name[64];
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), text);
    const struct tp_option *row = tp_option_find(p->o->command, text, length, '\0');
    if (!row)
        return unknown_option(p, name);
    if (row->kind == TP_OPT_FLAG) {
        if (equals)
            return tp_fail(p->err, TP_E_USAGE, "option '--%s' takes no value", name);
        return set_value(p, row, "");
    }
    if (equals)
        return set_value(p, row, equals + 1);
    if (row->alone)
        return set_value(p, row, row->alone);
    if (p->at == p->argc)
        return tp_fail(p->err, TP_E_USAGE, "option '--%s' needs a value: --%s %s", name, name,
                       row->value);
    return set_value(p, row, p->argv[p->at++]);
}

static enum tp_code take_letters(struct parser *p, const char *letters)
{
    for (; *letters; letters++) {
        const struct tp_option *row = tp_option_find(p->o->command, NULL, 0, *letters);
        if (!row)
            return tp_fail(p->err, TP_E_USAGE, "unknown option '-%c'", *letters);
        if (row->kind != TP_OPT_FLAG) {
            if (letters[1])
                return set_value(p, row, letters + 1);
            if (p->at == p->argc)
                return tp_fail(p->err, TP_E_USAGE, "option '-%c' needs a value: -%c %s",
                               *letters, *letters, row->value);
            return set_value(p, row, p->argv[p->at++]);
        }
        enum tp_code code = set_value(p, row, "");
        if (code)
            return code;
    }
    return TP_OK;
}

static enum tp_code take_operand(struct parser *p, const char *text)
{
    const struct tp_command_row *row = &tp_command_rows[p->o->command];
    if (p->o->arg.count == row->max) {
        if (row->no_output && !p->o->output)
            tp_err_hint(p->err, "the output is named by an option: -o %s", text);
        return tp_fail(p->err, TP_E_USAGE, "unexpected argument '%s'", text);
    }
    if (!*text)
        return tp_fail(p->err, TP_E_USAGE, "an argument is empty");
    if (!strcmp(text, "-") && row->operand[p->o->arg.count].complete == TP_COMPLETE_PATH)
        return tp_refuse(p->err, TP_E_USAGE,
                         "name a file or directory; one that is called '-' is ./-",
                         "'-' would be standard input, but checkpoints are not read in the order "
                         "of their bytes");
    return append(p, &p->o->arg, text);
}

static enum tp_code take_all(struct parser *p)
{
    enum tp_code code = TP_OK;
    bool only_operands = false;
    while (p->at < p->argc && !code) {
        const char *text = p->argv[p->at++];
        if (only_operands || text[0] != '-' || !text[1])
            code = take_operand(p, text);
        else if (text[1] != '-')
            code = take_letters(p, text + 1);
        else if (text[2])
            code = take_long(p, text + 2);
        else
            only_operands = true;
    }
    return code;
}

/* --------------------------------------------------------------- defaults -- */

static unsigned usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return (unsigned)CPU_COUNT(&set);
}

static enum tp_code set_jobs(struct parser *p)
{
    uint64_t jobs;
    const char *text = getenv("TILEPACK_JOBS");
    if (p->o->jobs)
        return TP_OK;
    if (!text || !*text) {
        p->o->jobs = usable_cpus();
        return TP_OK;
    }
    if (!tp_parse_u64(text, &jobs) || jobs < 1 || jobs > 1024)
        return tp_fail(p->err, TP_E_USAGE,
                       "TILEPACK_JOBS '%s': it is not a number from 1 to 1024", text);
    p->o->jobs = (unsigned)jobs;
    return TP_OK;
}

/* Read by pack/run/budget.c, in decimal; here only because a wrong one would count as 0. */
static enum tp_code check_cache(struct parser *p)
{
    uint64_t bytes;
    const char *text = getenv("TILEPACK_CACHE");
    if (!text || (!text[strspn(text, "0123456789")] && (!*text || tp_parse_u64(text, &bytes))))
        return TP_OK;
    return tp_fail(p->err, TP_E_USAGE, "TILEPACK_CACHE '%s': it is not a number of bytes", text);
}

/* Read by base/isa.c, and with a word that is none it would take nothing away. */
static enum tp_code check_disabled(struct parser *p)
{
    const char *list = getenv("TILEPACK_DISABLE");
    for (size_t size; list && *list; list += size) {
        size = strcspn(list, ", ");
        bool known = size == 0;
        for (int isa = 0; isa < TP_ISA_COUNT && !known; isa++) {
            const char *name = tp_isa_name((enum tp_isa)isa);
            known = strlen(name) == size && strncmp(name, list, size) == 0;
        }
        if (!known)
            return tp_fail(p->err, TP_E_USAGE, "TILEPACK_DISABLE '%.*s': it is not one of avx2, "
                           "avx512, neon, cuda", (int)size, list);
        size += strspn(list + size, ", ");
    }
    return TP_OK;
}

/* The environment's default for --device, taken before the command line is read. */
static enum tp_code set_device(struct parser *p)
{
    const char *text = getenv("TILEPACK_DEVICE");
    if (!text || !*text)
        return TP_OK;
    const char *hint = NULL, *why = tp_check_device(text, &hint);
    p->o->device = text;
    return why ? tp_fail(p->err, TP_E_USAGE, "TILEPACK_DEVICE '%s': %s", text, why) : TP_OK;
}

/* Defaults are of all rows, so that every field is what the header says. */
static void set_defaults(struct parser *p)
{
    p->o->offset = p->o->expert = TP_UNSET;
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *row = &tp_option_rows[i];
        if (row->initial)
            set_value(p, row, row->initial);
    }
}

static enum tp_code need(struct parser *p, const char *what, const char *hint)
{
    tp_fail(p->err, TP_E_USAGE, "%s", what);
    tp_err_hint(p->err, "%s", hint);
    return TP_E_USAGE;
}

static enum tp_code check_together(struct parser *p)
{
    const struct tp_options *o = p->o;
    const struct tp_command_row *row = &tp_command_rows[o->command];
    if (o->arg.count < row->min) {
        const char *name = row->operand[o->arg.count].name;
        return tp_fail(p->err, TP_E_USAGE, "%s is missing", name);
    }
    if (o->quiet && o->verbose)
        return tp_fail(p->err, TP_E_USAGE, "--quiet and --verbose exclude each other");
    bool makes = o->command == TP_CMD_CONVERT || o->command == TP_CMD_PLAN;
    if (makes && !o->to && !o->recipe)
        return need(p, "no format is given",
                    "--to FORMAT or --recipe FILE; 'tilepack formats' lists the formats");
    if (o->to && o->recipe)
        return need(p, "--to and --recipe exclude each other",
                    "a last rule of the recipe that matches every name does what --to does");
    if (o->recipe && o->set.count)
        return need(p, "--set and --recipe exclude each other",
                    "a rule of the recipe carries its own parameters");
    if (o->recipe && (o->search || o->is_signed || o->importance))
        return need(p, "--search, --signed and --importance go with --to",
                    "give the rules of the recipe \"search\", \"signed\", \"importance\"");
    if (o->command == TP_CMD_VERIFY && o->importance && !o->against)
        return need(p, "--importance goes with --against",
                    "--against SRC derives the weights again, and needs it");
    if (o->command == TP_CMD_RECIPE && (!o->bits || !o->formats))
        return need(p, o->bits ? "no formats are given" : "no budget is given",
                    o->bits ? "--formats nvfp4-ct,mxfp8-ct,bf16, say"
                            : "--bits 5, say: at most so many for each weight, scales included");
    if (o->write && !o->tune)
        return need(p, "--write goes with --tune", "--tune times the schedules that it keeps");
    if (o->output && !strcmp(o->output, "-"))
        return need(p, "'-' would be standard output, but an output is not written in the order "
                    "of its bytes", "name a file or directory; one that is called '-' is ./-");
    if (row->no_output && !o->output && !o->dry_run && !o->discard)
        return need(p, "no output is given", row->no_output);
    if (o->command == TP_CMD_SCHEDULE && !o->arg.count && !o->shape.count && !o->cases)
        return need(p, "no weights are given", "PATH, --shape N,K or --cases FILE");
    return TP_OK;
}

enum tp_code tp_options_parse(enum tp_command command, int argc, char *const *argv,
                              struct tp_options *o, struct tp_err *err)
{
    struct parser p = {.o = o, .argc = argc, .argv = argv, .err = err};
    *o = (struct tp_options){.command = command};
    set_defaults(&p);
    enum tp_code code = set_device(&p);
    if (!code)
        code = take_all(&p);
    if (!code && !o->help) {
        code = check_together(&p);
        if (!code && (code = set_jobs(&p)) == TP_OK)
            code = check_cache(&p);
        if (code == TP_OK)
            code = check_disabled(&p);
    }
    if (code == TP_E_USAGE)
        tp_err_hint(err, "'tilepack %s --help' lists what it takes",
                    tp_command_rows[command].name);
    return code;
}

static void free_strings(struct tp_strings *list)
{
    free(list->item);
    *list = (struct tp_strings){0};
}

void tp_options_free(struct tp_options *o)
{
    free_strings(&o->arg);
    for (size_t i = 0; i < tp_option_count; i++)
        if (tp_option_rows[i].kind == TP_OPT_LIST)
            free_strings((struct tp_strings *)((char *)o + tp_option_rows[i].field));
}
