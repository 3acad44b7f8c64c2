/* Values of options as text: numbers, sizes, places, shares, and the checks that rows of
 * option_table.c refer to. Pure functions, but for the environment of an array job.
 */
#ifndef TP_CLI_OPTION_VALUE_H
#define TP_CLI_OPTION_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value of a number option that was not given and has no default. */
#define TP_UNSET UINT64_MAX

struct tp_opt_at { /* --at [e,]n,k */
    bool set;
    uint64_t e, n, k; /* e = 0 when left out */
};

struct tp_opt_values { /* --values n0:n1,k0:k1, ends not included */
    bool set;
    uint64_t n0, n1, k0, k1; /* a missing begin is 0, a missing end UINT64_MAX */
};

struct tp_opt_part { /* --part I/P: share I of P, 1 <= index <= count */
    unsigned index, count; /* count 0 = not given, the whole job */
};

/* "5GB", "512MiB", "1.5GB", "4096": bytes. Units B, kB MB GB TB (powers of 1000)
 * and KiB MiB GiB TiB (of 1024); any case for the letters. False when malformed
 * or larger than 2^64-1. */
bool tp_parse_size(const char *text, uint64_t *bytes);

/* A decimal or 0x hexadecimal number that fills the text; false otherwise. */
bool tp_parse_u64(const char *text, uint64_t *value);

/* "1,64,4096": at most `max` numbers into values, *count of them. */
bool tp_parse_u64_list(const char *text, uint64_t *values, size_t max, size_t *count);

/* Share of an array job, from SLURM_ARRAY_TASK_{ID,MIN,MAX,STEP} or a Kubernetes
 * Indexed Job's JOB_COMPLETION_INDEX (which needs `count`, the number of parts;
 * 0 = take Slurm's own). False when the environment does not say. */
bool tp_part_from_environment(unsigned count, struct tp_opt_part *part);

/* Checks of a value's form. Each returns NULL, or why the value is refused; *hint, NULL before
 * the call, may say what to do about it. Both are valid until the next call. */
const char *tp_check_pattern(const char *value, const char **hint); /* TP_PATTERN_SEARCH */
const char *tp_check_setting(const char *value, const char **hint); /* key=value */
/* auto, cpu, cuda, cuda:all, cuda:0,2 */
const char *tp_check_device(const char *value, const char **hint);
const char *tp_check_bits(const char *value, const char **hint); /* from 1 to 32, as 4.75 */
const char *tp_check_descriptor(const char *value, const char **hint); /* one that is open */

#endif
