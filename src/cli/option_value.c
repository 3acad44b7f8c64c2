/* Option values: text to numbers, and checks of a value's form. Knows no table
 * and prints nothing. A value is taken whole or refused, never partly read. */
#include "cli/option_value.h"

#include "base/num.h"
#include "pack/text/pattern.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Reads digits at *text; false when there are none or they overflow. */
static bool take_digits(const char **text, unsigned base, uint64_t *value)
{
    const char *p = *text;
    uint64_t v = 0;
    for (;; p++) {
        unsigned digit;
        if (*p >= '0' && *p <= '9')
            digit = (unsigned)(*p - '0');
        else if (base == 16 && isxdigit((unsigned char)*p))
            digit = (unsigned)(tolower((unsigned char)*p) - 'a') + 10;
        else
            break;
        if (!tp_mul_u64(&v, v, base) || !tp_add_u64(&v, v, digit))
            return false;
    }
    if (p == *text)
        return false;
    *text = p;
    *value = v;
    return true;
}

bool tp_parse_u64(const char *text, uint64_t *value)
{
    unsigned base = 10;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        base = 16;
        text += 2;
    }
    return take_digits(&text, base, value) && !*text;
}

bool tp_parse_u64_list(const char *text, uint64_t *values, size_t max, size_t *count)
{
    for (size_t n = 0; n < max; n++) {
        if (!take_digits(&text, 10, &values[n]))
            return false;
        *count = n + 1;
        if (!*text)
            return true;
        if (*text++ != ',')
            return false;
    }
    return false;
}

static bool unit_of(const char *text, uint64_t *unit)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        {"", 1}, {"B", 1},
        {"k", 1000u}, {"M", 1000000u}, {"G", 1000000000u}, {"T", 1000000000000u},
        {"Ki", 1ull << 10}, {"Mi", 1ull << 20}, {"Gi", 1ull << 30}, {"Ti", 1ull << 40},
        {"kB", 1000u}, {"MB", 1000000u}, {"GB", 1000000000u}, {"TB", 1000000000000u},
        {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40},
    };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcasecmp(text, units[i].name)) {
            *unit = units[i].bytes;
            return true;
        }
    return false;
}

bool tp_parse_size(const char *text, uint64_t *bytes)
{
    uint64_t whole, unit, part = 0, scale = 1;
    if (!take_digits(&text, 10, &whole))
        return false;
    if (*text == '.') {
        const char *first = ++text;
        if (!take_digits(&text, 10, &part) || text - first > 6)
            return false; /* more digits could overflow below, and mean nothing */
        for (; first < text; first++)
            scale *= 10;
    }
    if (text[0] == ' ' && text[1])
        text++; /* "2 GB" */
    if (!unit_of(text, &unit) || (unit == 1 && scale != 1))
        return false;
    return tp_mul_u64(bytes, whole, unit) && tp_add_u64(bytes, *bytes, part * unit / scale);
}

static bool environment_u64(const char *name, uint64_t *value)
{
    const char *text = getenv(name);
    return text && tp_parse_u64(text, value);
}

/* A Slurm array need neither begin at 0 nor step by 1. */
static bool slurm_part(unsigned count, struct tp_opt_part *part)
{
    uint64_t id, min = 0, max, step = 1;
    if (!environment_u64("SLURM_ARRAY_TASK_ID", &id) ||
        !environment_u64("SLURM_ARRAY_TASK_MAX", &max))
        return false;
    environment_u64("SLURM_ARRAY_TASK_MIN", &min);
    environment_u64("SLURM_ARRAY_TASK_STEP", &step);
    if (!step || id < min || id > max || (id - min) % step || max - min > UINT32_MAX - 1)
        return false;
    part->index = (unsigned)((id - min) / step) + 1;
    part->count = count ? count : (unsigned)((max - min) / step) + 1;
    return part->index <= part->count;
}

bool tp_part_from_environment(unsigned count, struct tp_opt_part *part)
{
    uint64_t index;
    if (slurm_part(count, part))
        return true;
    if (!count || !environment_u64("JOB_COMPLETION_INDEX", &index) || index >= count)
        return false;
    *part = (struct tp_opt_part){(unsigned)index + 1, count};
    return true;
}

/* Where memory is short, the request says so: it compiles the pattern again. */
const char *tp_check_pattern(const char *value, const char **hint)
{
    static struct tp_err err;
    struct tp_matcher matcher = {0};
    struct tp_pattern pattern;
    struct tp_pattern_origin origin = {NULL, -1, TP_E_USAGE};
    err = (struct tp_err){0};
    enum tp_code code =
        tp_pattern_compile(&matcher, value, TP_PATTERN_SEARCH, origin, &pattern, &err);
    tp_pattern_free(&pattern);
    tp_matcher_close(&matcher);
    if (code != TP_E_USAGE)
        return NULL;
    *hint = err.hint;
    return err.what;
}

const char *tp_check_setting(const char *value, const char **hint)
{
    (void)hint;
    const char *equals = strchr(value, '=');
    return equals && equals != value && equals[1] ? NULL : "it is not of the form KEY=VALUE";
}

const char *tp_check_device(const char *value, const char **hint)
{
    (void)hint;
    uint64_t devices[64];
    size_t count;
    if (!strcmp(value, "auto") || !strcmp(value, "cpu") || !strcmp(value, "cuda") ||
        !strcmp(value, "cuda:all"))
        return NULL;
    if (strncmp(value, "cuda:", 5) != 0 || !tp_parse_u64_list(value + 5, devices, 64, &count))
        return "it is not one of auto, cpu, cuda, cuda:all, cuda:I[,I...]";
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (devices[i] == devices[j])
                return "it names a device twice";
    return NULL;
}

const char *tp_check_bits(const char *value, const char **hint)
{
    char *end;
    const double bits = strtod(value, &end);
    *hint = "5, or 4.75: bits for each weight";
    const bool plain = end > value && !*end && strspn(value, "0123456789.") == strlen(value);
    return plain && bits >= 1 && bits <= 32 ? NULL : "it is no number from 1 to 32";
}

const char *tp_check_descriptor(const char *value, const char **hint)
{
    uint64_t fd;
    if (!tp_parse_u64(value, &fd) || fd > INT_MAX)
        return NULL; /* the limits of the row say it */
    *hint = "the program that starts this one opens it and passes it on";
    int flags = fcntl((int)fd, F_GETFL);
    if (flags < 0)
        return "there is no such open descriptor";
    return (flags & O_ACCMODE) == O_RDONLY ? "the descriptor is open for reading only" : NULL;
}
