/* The command line as data: one table of commands and one of options, from which
 * parsing, --help, shell completions and the option lists of the man pages come.
 *
 * A new option is one field in `struct tp_options` and one row in option_table.c.
 * Nothing here prints, exits, or looks at a file; a value's form is checked, its
 * meaning (is there such a format?) is the command's business.
 */
#ifndef TP_CLI_OPTIONS_H
#define TP_CLI_OPTIONS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tp_command {
    TP_CMD_CONVERT,
    TP_CMD_PLAN,
    TP_CMD_DUMP,
    TP_CMD_VERIFY,
    TP_CMD_UNPACK,
    TP_CMD_DIFF,
    TP_CMD_FORMATS,
    TP_CMD_SCHEDULE,
    TP_CMD_BENCH,
    TP_CMD_MERGE,
    TP_CMD_JOIN,
    TP_CMD_HELP,
    TP_CMD_COMPLETIONS,
    TP_CMD_MAN_OPTIONS,
    TP_CMD_COUNT,
};

/* Value of a number option that was not given and has no default. */
#define TP_UNSET UINT64_MAX

struct tp_strings { /* a repeatable option, in the order given */
    const char **item;
    size_t count;
};

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

/* Fields are named after the options. Strings belong to argv or the environment;
 * one that was not given is NULL, or the default its row in the table states. */
struct tp_options {
    enum tp_command command;
    struct tp_strings arg; /* operands: SRC, PATH, TENSOR, ... as the command's row says */

    /* every command */
    bool help, json, quiet, verbose;
    const char *color; /* "auto", "always", "never" */

    /* convert, plan, unpack, join, merge */
    const char *output, *to, *recipe, *dtype, *source;
    struct tp_strings set, include, exclude;
    bool no_stack, strict, requantize, dry_run, force, discard;
    const char *nonfinite; /* "refuse", "keep" */
    uint64_t shard_size;   /* bytes */
    unsigned zstd;         /* compression level, 0 = plain files */
    unsigned tp;           /* tensor-parallel ranks, 1 = not cut */
    struct tp_opt_part part;

    /* resources; jobs is resolved: --jobs, else $TILEPACK_JOBS, else usable CPUs */
    unsigned jobs;
    const char *device;    /* auto | cpu | cuda | cuda:all | cuda:I[,I...] */
    uint64_t max_memory;   /* bytes of host memory in all */
    uint64_t gpu_memory;   /* bytes per device, 0 = what is free */

    /* dump, verify */
    struct tp_opt_at at;
    uint64_t offset; /* TP_UNSET when not given */
    struct tp_opt_values values;
    uint64_t expert; /* TP_UNSET when not given */
    const char *against;

    /* schedule, bench */
    struct tp_strings shape, format;
    const char *kernel, *m, *gpu, *groups, *cases;
    unsigned sms, num_groups; /* 0 = not given */
    bool why;
};

/* Parses the arguments behind the command's name. *o is overwritten; free it in
 * every case. A failure is TP_E_USAGE with a hint (TP_E_MEMORY when memory is
 * short). With --help, missing operands and options are no failure. */
enum tp_code tp_options_parse(enum tp_command command, int argc, char *const *argv,
                              struct tp_options *o, struct tp_err *err);
void tp_options_free(struct tp_options *o); /* legal on {0} and twice */

/* The command of that name; fails with a suggestion when there is none. */
enum tp_code tp_command_find(const char *name, enum tp_command *command, struct tp_err *err);

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

/* ------------------------------------------------------------ the tables -- */

enum tp_option_kind { /* and the field's type */
    TP_OPT_FLAG,     /* bool */
    TP_OPT_STRING,   /* const char * */
    TP_OPT_CHOICE,   /* const char *, one of `words` */
    TP_OPT_LIST,     /* struct tp_strings */
    TP_OPT_UNSIGNED, /* unsigned, within [min, max] */
    TP_OPT_LEVEL,    /* unsigned, only as --x=N; --x alone is the default */
    TP_OPT_NUMBER,   /* uint64_t */
    TP_OPT_SIZE,     /* uint64_t bytes, at least min */
    TP_OPT_AT,       /* struct tp_opt_at */
    TP_OPT_VALUES,   /* struct tp_opt_values */
    TP_OPT_PART,     /* struct tp_opt_part */
};

enum tp_complete {
    TP_COMPLETE_NONE,
    TP_COMPLETE_PATH,    /* file or directory */
    TP_COMPLETE_FORMAT,  /* a format that can be written */
    TP_COMPLETE_ANY_FORMAT,
    TP_COMPLETE_SETTING, /* key=value of any format */
    TP_COMPLETE_COMMAND,
    TP_COMPLETE_GPU,
    TP_COMPLETE_WORDS,   /* the row's `words` */
};

struct tp_option {
    const char *name; /* without the dashes */
    char letter;      /* 0 = none */
    const char *value; /* name of its value, NULL for a flag */
    enum tp_option_kind kind;
    uint32_t commands; /* bit 1 << command */
    size_t field;      /* offset in struct tp_options */
    const char *initial; /* value when not given, as text; NULL = none */
    uint64_t min, max;   /* UNSIGNED, LEVEL, SIZE */
    bool hidden;
    enum tp_complete complete;
    const char *words;   /* "refuse|keep" */
    const char *(*check)(const char *value); /* NULL, or why the value is refused */
    const char *help;    /* one line, for --help, completions and the man page */
    const char *more;    /* further sentences, for the man page only; may be NULL */
};

struct tp_operand {
    const char *name; /* NULL ends the list */
    enum tp_complete complete;
    const char *words;
};

enum { TP_MAX_OPERANDS = 2 };

struct tp_command_row {
    const char *name, *synopsis; /* synopsis: what follows the name */
    const char *line;            /* what it does, one line */
    const char *about;           /* a paragraph for --help */
    const char *examples;        /* lines "command\n", each ended by \n */
    struct tp_operand operand[TP_MAX_OPERANDS + 1];
    size_t least, most; /* number of operands; the last one repeats up to `most` */
    bool hidden;
};

extern const struct tp_command_row tp_command_rows[TP_CMD_COUNT];
extern const struct tp_option tp_option_rows[];
extern const size_t tp_option_count;

static inline bool tp_option_applies(const struct tp_option *row, enum tp_command command)
{
    return row->commands >> command & 1;
}

#endif
