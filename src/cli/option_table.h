/* The command line as data: one table of commands and one of options, from which
 * parsing, --help, shell completions and the option lists of the man pages come.
 *
 * A new option is one field in `struct tp_options` and one row in option_table.c; a new command
 * a word in TP_COMMANDS, a row, and its function in a cmd_*.c.
 */
#ifndef TP_CLI_OPTION_TABLE_H
#define TP_CLI_OPTION_TABLE_H

#include "cli/option_value.h"

/* Every command: TP_CMD_CONVERT, carried out by tp_cmd_convert() (cmd.h). Helpers come last, HELP
 * first among them. */
#define TP_COMMANDS(X) \
    X(SUGGEST, suggest) X(CONVERT, convert) X(VERIFY, verify) X(COMPARE, compare) X(DUMP, dump) \
    X(RECIPE, recipe) X(PLAN, plan) X(UNPACK, unpack) X(DIFF, diff) X(MERGE, merge) X(DIGEST, digest) \
    X(FORMATS, formats) X(MODELS, models) X(QUANTIZERS, quantizers) X(ENGINES, engines) \
    X(SCHEDULE, schedule) X(PROVE, prove) X(BENCH, bench) X(HELP, help) \
    X(COMPLETIONS, completions) X(MAN_OPTIONS, man_options)

enum tp_command {
#define X(constant, function) TP_CMD_##constant,
    TP_COMMANDS(X)
#undef X
    TP_CMD_COUNT,
};

struct tp_strings { /* a repeatable option, in the order given */
    const char **item;
    size_t count;
};

/* Fields are named after the options. Strings belong to argv or the environment;
 * one that was not given is NULL, or the default its row in the table states. */
struct tp_options {
    enum tp_command command;
    struct tp_strings arg; /* operands: SRC, PATH, TENSOR, ... as the command's row says */

    /* every command */
    bool help, json, quiet, verbose;
    const char *color; /* "auto", "always", "never" */
    unsigned progress_fd;  /* 0 = not given */
    const char *progress; /* "auto", "bar", "plain", "none" */

    /* convert, plan, unpack, merge */
    const char *output, *to, *recipe, *dtype, *source, *model_file;
    const char *stacks;     /* "enk", "ekn"; NULL: as sizes and names tell */
    const char *merged;     /* "keep", "convert" */
    const char *plain;      /* "keep", "convert" */
    struct tp_strings set, include, exclude, weights_only, format_file, quantizer_file, engine_file;
    struct tp_strings copy; /* globs of files that go along */
    bool no_stack, strict, follow_links, requantize, dry_run, force, discard;
    const char *if_exists;  /* "skip", "fail", "replace"; NULL: compare */
    const char *digest;     /* "none", "sha256" */
    const char *search;     /* "none", "mse", "w4a8" */
    bool is_signed;
    const char *importance; /* "magnitude", "none", or a file; NULL: as the format likes */
    const char *nonfinite; /* "refuse", "keep" */
    uint64_t shard_size;   /* bytes */
    unsigned zstd;         /* compression level, 0 = plain files */
    unsigned tp;           /* tensor-parallel ranks, 1 = the whole */
    struct tp_opt_part part;

    /* resources; jobs is resolved: --jobs, else $TILEPACK_JOBS, else usable CPUs */
    unsigned jobs;
    const char *device;    /* auto | cpu | cuda | cuda:all | cuda:I[,I...] */
    uint64_t max_memory;   /* bytes of host memory in all; 0: the default */
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

    /* prove; m as above */
    bool tune, write;

    /* formats, convert, plan; gpu as above */
    const char *engine;
    unsigned gpus; /* tensor-parallel ranks, 0 = not given */
    bool expert_parallel, no_sample, all;

    /* compare, dump */
    struct tp_strings compared; /* --to of compare */
    bool full, fold, tree;
    const char *html, *svg;

    /* recipe */
    const char *bits, *formats;
};

#define TP_ALL_WEIGHTS ".*" /* a pattern that matches every name */

enum tp_option_kind { /* and the field's type */
    TP_OPT_FLAG,     /* bool */
    TP_OPT_STRING,   /* const char * */
    TP_OPT_CHOICE,   /* const char *, one of `words` */
    TP_OPT_LIST,     /* struct tp_strings */
    TP_OPT_UNSIGNED, /* unsigned, within [min, max] */
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
    TP_COMPLETE_MODEL,   /* a file of models */
    TP_COMPLETE_ENGINE,  /* one of engines */
    TP_COMPLETE_SETTING, /* key=value of the format that --to names */
    TP_COMPLETE_TENSOR,  /* of the checkpoint that is the operand before */
    TP_COMPLETE_COMMAND,
    TP_COMPLETE_GPU,
    TP_COMPLETE_CHIP,    /* a GPU to serve on */
    TP_COMPLETE_WORDS,   /* the row's `words` */
};

struct tp_option {
    const char *heading; /* opens a group of convert's options; NULL: the group goes on */
    const char *name; /* without the dashes */
    char letter;      /* 0 = none */
    const char *value; /* name of its value, NULL for a flag */
    enum tp_option_kind kind;
    uint32_t commands; /* bit 1 << command */
    size_t field;      /* offset in struct tp_options */
    const char *initial; /* value when not given, as text; NULL = none */
    const char *alone;   /* what --x without a value is; one is given as --x=VALUE then; or NULL */
    uint64_t min, max;   /* UNSIGNED, SIZE */
    bool hidden;
    enum tp_complete complete;
    const char *words;   /* "refuse|keep" */
    const char *(*check)(const char *value, const char **hint); /* of option_value.h */
    const char *help;    /* one line, for --help, completions and the man page */
    const char *more;    /* further sentences, for the man page only; may be NULL */
};

struct tp_operand {
    const char *name; /* NULL ends the list */
    enum tp_complete complete;
    const char *words;
};

enum { TP_MAX_OPERANDS = 2 };

enum tp_group { /* of commands, in the order of 'tilepack --help', which leaves out helpers */
    TP_GROUP_START,
    TP_GROUP_CHECKPOINTS,
    TP_GROUP_KNOWN,
    TP_GROUP_KERNELS,
    TP_GROUP_HELPERS,
};

struct tp_command_row {
    const char *name, *synopsis; /* synopsis: what follows the name */
    const char *line;            /* what it does, one line */
    const char *about;           /* a paragraph for --help */
    const char *examples;        /* lines "command\n", each ended by \n */
    struct tp_operand operand[TP_MAX_OPERANDS + 1];
    size_t min, max; /* number of operands; the last one repeats up to `max` */
    enum tp_group group;
    const char *no_output; /* the hint when --output is missing; NULL: none is needed */
};

extern const struct tp_command_row tp_command_rows[TP_CMD_COUNT];
extern const struct tp_option tp_option_rows[];
extern const size_t tp_option_count;

static inline bool tp_option_applies(const struct tp_option *row, enum tp_command command)
{
    return row->commands >> command & 1;
}

/* A helper: completions and the like. */
static inline bool tp_command_is_hidden(enum tp_command command)
{
    return tp_command_rows[command].group == TP_GROUP_HELPERS;
}

/* A word of other programs, and the command or option of ours that does it (NULL: none does). */
struct tp_synonym {
    const char *typed, *ours;
    const char *hint; /* NULL: the usual one */
};
const struct tp_synonym *tp_command_synonym(const char *typed); /* NULL: no such word */
const struct tp_synonym *tp_option_synonym(const char *typed);

/* The command's option of this name of `size` bytes or, where there is one, this letter; or
 * NULL. */
const struct tp_option *tp_option_find(enum tp_command command, const char *name, size_t size,
                                       char letter);

#endif
