/* What the user asked for: the part of the command line that decides the bytes.
 *
 * A request is recorded with the result (as JSON), so that `verify --against`
 * can make the same plan again.
 */
#ifndef TP_PACK_REQUEST_H
#define TP_PACK_REQUEST_H

#include "pack/format/format.h"
#include "pack/model/model_facts.h"
#include "pack/source/search_choice.h"

#include "pack/text/pattern.h"

/* One rule of a recipe: weights whose name matches go to `format`, or are kept. */
struct tp_rule {
    struct tp_pattern pattern; /* without text: for every name */
    bool optional;  /* may match nothing */
    bool used;      /* matched something in this plan */
    bool left;      /* matched a weight that its quantizer left plain, and that stays so */
    bool plain;     /* converts such ones, too ("plain": "convert") */
    bool follows;   /* some source has choices of its own for what was not set (exact.c) */
    const struct tp_format *format; /* NULL: keep */
    struct tp_settings settings;
    uint32_t set;   /* parameters that the user has set, a bit each */
    struct tp_rule *base; /* the rule of the request that this one is, with other settings */
    struct tp_search_choice search;
    struct tp_search_choice unsaid; /* that of plain weights, where none was asked for */
    bool unsearched; /* it is not the format's, which a choice of a parameter takes away */
};

struct tp_request {
    struct tp_rule *rules; /* first match wins; `--to` alone is one rule that matches all */
    size_t rule_count;
    bool recipe;           /* rules come from a file: only what they name is converted */
    struct tp_pattern *include, *exclude, *unscale;
    size_t include_count, exclude_count, unscale_count;
    struct tp_matcher matcher; /* of all patterns */
    bool no_stack;         /* leave per-expert matrices apart */
    bool strict;           /* a weight that cannot be converted is an error */
    bool keep_nonfinite;
    bool outline;          /* the plan is only printed: no headers, offsets or hash */
    bool headers_only;     /* and no values are read: where they decide, see plan.scales_unread */
    bool requantize;       /* allow lossy inputs */
    bool weights_only;     /* activation scales are neither needed nor carried over; of names that
                              `unscale` matches they are not carried over */
    bool bare;             /* they are carried over, but a format may lack them (compare) */
    bool recorded;         /* of a conversion that was begun, and so allowed: see requantize */
    bool merged;           /* convert what the reader cannot merge (--merged convert) */
    bool plain;            /* convert what the source's quantizer left plain (--plain convert) */
    struct tp_model_choice models; /* what is said of the model; `own` belongs to the request */
    bool restore;          /* unpack: plain weights of `dtype`, TP_DTYPE_NONE: as they were */
    enum tp_dtype dtype;
    bool repack_only;      /* packed weights only, their codes taken over (unpack --to) */
    uint64_t shard_size;   /* bytes; 0 = the default */
    bool digests;          /* the manifest has the SHA-256 of every file */
    char *importance_path;      /* of the rules whose search.importance is FILE, or NULL */
    struct tp_importance_file *importance; /* that file, once opened */
    char **inputs; /* paths of the files that it was read from: a recipe, a model, importance */
    size_t input_count;
};
#define TP_DEFAULT_SHARD_SIZE UINT64_C(5000000000)

/* Whether it says a parameter: each, but where others follow the source those that were set. */
bool tp_rule_says(const struct tp_rule *rule, uint32_t param);

/* Builders; on failure the request stays valid and is closed by the caller. Patterns are
 * of the kind TP_PATTERN_SEARCH. */
enum tp_code tp_request_to(struct tp_request *request, const char *format,
                           const char *const *settings, size_t setting_count, struct tp_err *err);
/* The search of what tp_request_to() named: without words that of the format, for plain weights.
 * Without a call there is none. The file of importance is opened by
 * tp_request_importance(). */
enum tp_code tp_request_search(struct tp_request *request, const struct tp_search_words *words,
                               struct tp_err *err);
/* Opens the file of numbers that weights are searched with: the one that was named with
 * --importance or in the recipe (NULL), or this one. Nothing to do without a rule that wants
 * one. */
enum tp_code tp_request_importance(struct tp_request *request, const char *path,
                                   struct tp_err *err);
#define TP_RECIPE_MAX_BYTES (UINT64_C(16) << 20)
/* The rules of a recipe; a relative path of a file of importance begins in its folder. */
enum tp_code tp_request_recipe(struct tp_request *request, const char *path, struct tp_err *err);
enum tp_code tp_request_include(struct tp_request *request, const char *pattern,
                                struct tp_err *err);
enum tp_code tp_request_exclude(struct tp_request *request, const char *pattern,
                                struct tp_err *err);
/* The activation scales of weights whose name matches are left out (--weights-only=REGEX). */
enum tp_code tp_request_unscale(struct tp_request *request, const char *pattern,
                                struct tp_err *err);
/* The user's own file of the model, which all of its facts come from. */
enum tp_code tp_request_model(struct tp_request *request, const char *path, struct tp_err *err);
/* The layout of stacks: "enk" or "ekn"; NULL: not said. */
enum tp_code tp_request_stacks(struct tp_request *request, const char *word, struct tp_err *err);
/* Whether a pattern of --include or --exclude matches the name. TP_E_MEMORY, or the code of a
 * pattern that costs too much. */
enum tp_code tp_request_includes(struct tp_request *request, const char *name,
                                 bool *matches, struct tp_err *err);
enum tp_code tp_request_excludes(struct tp_request *request, const char *name,
                                 bool *matches, struct tp_err *err);
/* The same of activation scales that are left out, of all or by such a pattern. */
enum tp_code tp_request_unscales(struct tp_request *request, const char *name,
                                 bool *matches, struct tp_err *err);
/* The same of one of the patterns of --include. */
enum tp_code tp_request_include_matches(struct tp_request *request, size_t i,
                                        const char *name, bool *matches, struct tp_err *err);
void tp_request_close(struct tp_request *request); /* legal on {0} and twice */

/* One more file that the request was read from, which an output must not replace. */
enum tp_code tp_request_input(struct tp_request *request, const char *path, struct tp_err *err);

/* The request as a JSON object (new reference): as far as it decides the bytes of weights,
 * and with what concerns the manifest alone; and back. */
json_t *tp_request_json(const struct tp_request *request);
json_t *tp_request_record(const struct tp_request *request);
enum tp_code tp_request_parse(const char *json, struct tp_request *request, struct tp_err *err);

#endif
