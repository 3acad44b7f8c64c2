/* Engines: the facts of the files of engines/, one for each engine and version that reads what is
 * written here, and the rules in them. See engines/README.md for the meaning of every key; this
 * header is its shape in memory. It knows no checkpoint and no plan.
 */
#ifndef TP_PACK_ENGINE_H
#define TP_PACK_ENGINE_H

#include "pack/engine/gpu.h"
#include "pack/format/format.h"
#include "pack/model/model_facts.h"

/* The best first: a program that serves a checkpoint, a library that loads one, and kernels, which
 * a loader of one's own hands the tensors to. */
enum tp_engine_kind { TP_ENGINE_SERVER, TP_ENGINE_LIBRARY, TP_ENGINE_KERNELS };

/* What the multiplication gains, the best first. */
enum tp_speed {
    TP_SPEED_NATIVE,  /* the tensor cores multiply in 8 or 4 bits */
    TP_SPEED_MIXED,   /* in 16 bits, the kernel widens the codes: less memory traffic only */
    TP_SPEED_DECODED, /* made plain when loaded: saves disk and transfer only */
};

/* What it does with a weight that a rule is about. */
enum tp_verdict {
    TP_VERDICT_REFUSED, /* it does not load */
    TP_VERDICT_WRONG,   /* it loads other values, and says nothing */
    TP_VERDICT_KEPT,    /* the same, and so such weights stay plain by default */
};

/* Some formats, on some GPUs. */
struct tp_engine_row {
    const char **format, **gpu;
    size_t formats, gpus;
    int speed;          /* enum tp_speed */
    const char *kernel; /* that runs there, or NULL */
    unsigned takes;     /* bits of uses */
    int basis;          /* 0: it was run, 1: documents say so */
    const char *how;    /* what a caller does, or NULL */
    const char **before, **behind; /* words of the command: in front of it, at its end */
    size_t befores, behinds;
};

/* Which weights a rule is about, what it says, and what happens to them. What is missing does not
 * restrict it. */
struct tp_engine_rule {
    const char **model, **but; /* names of files of models */
    const char **type, **format, **gpu;
    size_t models, buts, types, formats, gpus;
    struct tp_module_pattern *module;
    size_t modules;
    unsigned of;       /* bits of uses; 0: all */
    const json_t *set; /* settings of the format, or NULL */
    int dim;           /* of sizes: 0 N, 1 K, which is to be in multiples ... */
    uint64_t multiple; /* ... of this, or where that is 0 of the format's blocks */
    bool divided;      /* only where ranks divide that dimension */
    int verdict;       /* enum tp_verdict */
    const char *says;
};

/* What it asks of the rows of what it loads as one: of each part but the last, or of the whole. */
struct tp_engine_merge {
    const char **format;
    size_t formats;
    struct tp_module_pattern *module; /* none: every one */
    size_t modules;
    uint64_t multiple;
    bool whole;
    const char *says;
};

/* Models that were run, in some formats. */
struct tp_engine_run {
    const char **model, **format;
    size_t models, formats;
    const char *says;
};

/* What a recommendation asks of the source. */
enum tp_advice_needs {
    TP_ADVICE_CODES = 1,      /* its codes are taken over */
    TP_ADVICE_CALIBRATED = 2, /* it has activation scales */
};

/* What is recommended on some GPUs: the first of these formats that it reads there. */
struct tp_engine_advice {
    const char **format, **gpu;
    size_t formats, gpus;
    unsigned needs;      /* enum tp_advice_needs, as bits */
    const char **set;    /* "key=value", as --set takes them */
    size_t sets;
    const char *reason;  /* one sentence, without its full stop */
    const char **source; /* where that is said */
    size_t sources;
};

/* Modules that it loads as one. */
enum tp_alike { TP_ALIKE_EXPERTS = 1, TP_ALIKE_FUSED = 2 };

struct tp_engine {
    const char *name, *title, *version;
    int kind;            /* enum tp_engine_kind */
    const char **source; /* where the facts come from */
    size_t sources;
    const char **serve, **parallel; /* words of the command, with DST, and those for N ranks */
    size_t serves, parallels;
    const char **whole; /* words with which ranks divide experts by their number alone */
    size_t wholes;
    uint64_t memory;    /* how many hundredths of a GPU's memory weights may take, or 0 */
    const char *how;     /* in words, of a library */
    const char *install; /* what else has to be there, or NULL */
    const char *package; /* of Python, as config.json names it, or NULL */
    unsigned alike;      /* enum tp_alike, as bits: what it takes in one format, or none of it */
    struct tp_module_pattern *skip; /* what it does not load at all */
    size_t skips;
    const char **naming; /* "TYPE TEXT TEXT": what files of such models say, and what it says */
    size_t namings;
    const char **reorder; /* "TYPE MODULE": where kernels have rows in an order of models/ */
    size_t reorders;
    struct tp_engine_row *row;
    size_t rows;
    struct tp_engine_rule *plain, *size, *family;
    size_t plains, sizes, families;
    struct tp_engine_merge *merge;
    size_t merges;
    struct tp_engine_run *run;
    size_t runs;
    struct tp_engine_advice *advice; /* the preferred one first */
    size_t advices;
    json_t *json; /* the whole file, which owns all texts */
};

/* All engines, sorted by name; see tp_embedded_all(). */
const struct tp_engine *const *tp_engines(size_t *count);
enum tp_code tp_engines_check(struct tp_err *err);
const struct tp_engine *tp_engine_find(const char *name);

/* Adds a user's file, before others ask for engines: its text is copied. TP_E_USAGE where one has
 * that name, TP_E_INPUT where the file breaks the rules. */
enum tp_code tp_engine_add(const char *text, size_t size, struct tp_err *err);

/* Reads one file into *engine. What fails leaves nothing behind. */
enum tp_code tp_engine_parse(const char *text, size_t size, struct tp_engine *engine,
                             struct tp_err *err);
void tp_engine_close(struct tp_engine *engine); /* legal on {0} and twice */

const char *tp_speed_name(int speed);
const char *tp_engine_kind_name(int kind);
const char *tp_use_list(unsigned uses, char *text, size_t size); /* "linear, experts" */

/* ---- who reads a format -------------------------------------------------------------- */

bool tp_row_has(const struct tp_engine_row *row, const char *format);
bool tp_engine_reads(const struct tp_engine *engine, const char *format); /* some row has it */
/* The row that has the format on GPUs of that compute capability (0: on any) and of which the speed
 * is the best: the first of these; NULL: there is none. */
const struct tp_engine_row *tp_engine_best_row(const struct tp_engine *engine, const char *format,
                                          unsigned sm);

/* "vLLM 0.33, SGLang 0.5" or, where nothing else reads it, "callers of DeepGEMM"; "" where nobody
 * does. What is cut ends with a comma less. */
const char *tp_format_readers(const struct tp_format *format, char *text, size_t size);

/* Bits for each weight of a 4096 x 4096 matrix, scales and all else included. */
double tp_format_bits(const struct tp_format *format);

/* The engine that loads the format with a package of Python, `package`, or NULL. */
const struct tp_engine *tp_packaged_engine(const char *format);

/* A format in an engine: one of its rows. */
struct tp_offer {
    const struct tp_format *format;
    const struct tp_engine *engine;
    const struct tp_engine_row *row;
    double bits; /* for each weight of a 4096 x 4096 matrix, all included */
};

/* All pairs of a format that is written and a row that has it on a GPU of that compute capability
 * (0: on any), of `engine` or with NULL of all. With a capability an engine has one row for a
 * format, the fastest one. Sorted: what a caller has to load comes last, then by bits, speed and
 * name. Free with free(). */
enum tp_code tp_offers(unsigned sm, const struct tp_engine *engine, struct tp_offer **offers,
                       size_t *count, struct tp_err *err);

/* Writes the names of the formats that are written and begin with `typed`, in letters of
 * any case, into `text`: those that engines load first, with the engines. Returns how many there
 * are; *one is the first of them. */
size_t tp_format_candidates(const char *typed, const struct tp_format **one, char *text,
                            size_t size);

/* The name of the format, of those that are written or of all, that is most like what was typed;
 * NULL when a suggestion would be a guess. */
const char *tp_format_nearest(const char *typed, bool written);

/* ---- the rules ----------------------------------------------------------------------- */

/* A weight as rules see it. */
struct tp_asked {
    const struct tp_model_facts *facts;
    const char *name;
    enum tp_use use;
    const struct tp_format *format;     /* any of its variants, and ... */
    const struct tp_settings *settings; /* ... what was chosen; NULL: that is not known yet */
    uint64_t size[2], block[2];         /* N and K of a rank, and of a block; 0: all of it */
    bool divided[2];
};

/* Whether the rule is about the model and the format: what holds for many weights alike. */
bool tp_rule_concerns(const struct tp_engine_rule *rule, const struct tp_model_facts *facts,
                      const char *format);
/* Whether one that does is about the weight; and whether the weight breaks it, if it is of
 * sizes. */
bool tp_rule_hits(const struct tp_engine_rule *rule, const struct tp_asked *asked);
bool tp_rule_breaks(const struct tp_engine_rule *rule, const struct tp_asked *asked);

/* What engines ask of the weights of a model in one format: found once, asked of many. {0}: of
 * none yet. */
struct tp_engine_asks {
    const struct tp_format *format;
    const struct tp_engine_rule **keep; /* with the verdict KEPT, of engines that read it */
    const struct tp_engine_merge **merge;
    size_t keeps, merges;
};
/* Finds it, unless it is known. TP_E_MEMORY. */
enum tp_code tp_engine_asks_of(struct tp_engine_asks *asks, const struct tp_model_facts *facts,
                               const struct tp_format *format, struct tp_err *err);
void tp_engine_asks_close(struct tp_engine_asks *asks); /* legal on {0} and twice */

/* What the first engine asks of the rows of weights of that name, or NULL. */
const struct tp_engine_merge *tp_engine_merges(const struct tp_engine_asks *asks, const char *name);

/* Why weights of that name stay plain by default: what the first rule says, or NULL. */
const char *tp_engine_keeps(const struct tp_engine_asks *asks, const char *name);

#endif
