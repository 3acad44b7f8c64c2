/* Formats: the facts of the files of formats/, each parsed once from the copy embedded in
 * the binary, and of files that the user names (--format-file). See formats/README.md
 * for the meaning of every key; this header is its shape in memory.
 */
#ifndef TP_PACK_FORMAT_H
#define TP_PACK_FORMAT_H

#include "base/row_order.h"
#include "kernels/op/kernel.h"

#include <jansson.h>

enum { TP_MAX_PARAMS = 6, TP_MAX_CHOICES = 8, TP_MAX_RANK = 6, TP_MAX_RULES = 6 };
#define TP_GROUP_ROW UINT64_MAX /* a whole row is one group, whatever its K */
#define TP_GROUP_MAX UINT64_C(65536) /* columns; a group of more is worked on as a whole row */
enum { TP_MAX_ALIASES = 2 };

/* How the scales of plain weights are searched where nothing is said; {0}: not at all. `is_signed`:
 * negative scales are allowed. */
struct tp_format_search {
    enum tp_search search;
    bool is_signed;
};

/* One --set key=value: the first choice is the default. A choice changes fields
 * of the operation ("set") and of the reader's config ("config"). A choice is shown by
 * its name; a name or an alias of one choice is no other choice's. */
struct tp_param {
    const char *key;
    const char *choices[TP_MAX_CHOICES];                     /* names */
    const char *aliases[TP_MAX_CHOICES][TP_MAX_ALIASES + 1]; /* taken as well; ended by NULL */
    const char *stored[TP_MAX_CHOICES]; /* what stored files say: the name, or an alias */
    const json_t *set[TP_MAX_CHOICES], *config[TP_MAX_CHOICES]; /* or NULL */
    const char *warns[TP_MAX_CHOICES]; /* what is to be known where nobody chose it, or NULL */
    bool unsearched[TP_MAX_CHOICES]; /* with it scales are searched only where that is said */
    uint32_t count;
    const char *help;
    const json_t *experts; /* names of choices of which the first that fits is the default for
                              experts, or NULL */
    bool later; /* other files of this version were written without it: its default is not stored */
};

/* Whether what is stored of settings names the choice. */
bool tp_param_is_stored(const struct tp_param *param, uint32_t choice);

/* "N % 16 == 0, because ..." */
struct tp_shape_rule {
    char dim; /* 'N' or 'K' */
    uint64_t multiple, min; /* of at least so much; 0: of any size */
    const char *why;
    int when_param, when_choice; /* applies with this choice only; when_param -1: always */
    bool experts;                /* applies to weights of experts only; of `need`, to stacks */
};

struct tp_format_out {
    const char *suffix;  /* "weight_packed": the tensor is S.weight_packed */
    enum tp_dtype dtype; /* as stored in safetensors */
    uint32_t rank;
    char *shape[TP_MAX_RANK]; /* expressions of E,N,K, "let" names expanded */
    char *layout;        /* as the file has it, "let" names expanded; NULL: none */
    bool keep_e;         /* a 2-D weight keeps its leading E dimension */
    bool optional;       /* sources: the tensor may be missing */
    int group_dim;       /* dimension of `shape` that is K/G or ceil(K,G), or -1 */
    int row_dim;         /* dimension of `shape` that is ceil(N,R), or -1 */
    char *words[TP_MAX_RANK]; /* what is written is this row again and again: expressions, in
                                 which I is the number of the word. TP_ROLE_WORDS, and ZERO and
                                 ORDER of formats that are written */
    uint32_t word_count;
};

enum { TP_MAX_INPUT_SUFFIX = 40 };
/* Activation scales, where the format's kernels take some. */
struct tp_format_inputs {
    const char *suffix; /* of the tensor, as of an output; NULL: there are none */
    bool single;        /* one number, otherwise one for each expert */
    bool largest;       /* of all experts, otherwise each expert has its own */
    const char *why;    /* without them a weight is refused: the reason; NULL: it is not */
    float range;        /* the largest value that a kernel's activations have at a scale of 1 */
};

enum tp_experts { TP_EXPERTS_STACK, TP_EXPERTS_SPLIT };
/* In which order the rows of gate and up of an expert stand. */
enum tp_rows { TP_ROWS_GATE_UP, TP_ROWS_UP_GATE };

/* Weights for which a format may be another one: gate and up of experts in two segments, the
 * first matrix of experts in one (without a gate, or with interleaved rows), the last one (of
 * experts without a gate: that of the others, unless it is told apart), and matrices that are no
 * experts, where it then takes less room. */
enum tp_part {
    TP_PART_ANY,
    TP_PART_GATED,
    TP_PART_UP,
    TP_PART_DOWN,
    TP_PART_WIDE,
    TP_PART_DOWN_UNGATED,
    TP_PARTS
};

/* What becomes of activations, as "input_activations" of a group of compressed-tensors says. */
enum tp_activations {
    TP_ACTIVATIONS_UNSAID, /* there is no group */
    TP_ACTIVATIONS_PLAIN,
    TP_ACTIVATIONS_FP8,
    TP_ACTIVATIONS_OTHER
};
/* What a member of config_groups, or the "group" of a format's config, says; NULL: UNSAID. */
enum tp_activations tp_activations_of(const json_t *group);

struct tp_format {
    const char *name, *title, *about, *source;
    int version;
    bool input_only;        /* read, never written (gptq, awq, ...) */
    struct tp_op op;        /* with default parameters */
    struct tp_format_search searched;
    struct tp_format_out out[TP_MAX_OUT];
    uint32_t params;
    struct tp_param param[TP_MAX_PARAMS];
    uint32_t needs, wants;  /* bytes undefined otherwise / the consumer wants more */
    struct tp_shape_rule need[TP_MAX_RULES], want[TP_MAX_RULES];
    enum tp_experts experts;
    enum tp_rows rows;      /* of weights that hold gate and up */
    bool keeps_interleaved; /* where rows of gate and up are interleaved in the source, they stay
                               so */
    const struct tp_format *variant[TP_PARTS]; /* what it is for such weights, or NULL: the same */
    enum tp_part part;      /* it is that variant of another one */
    const struct tp_format *bias;  /* what it is for the bias of a weight: W[E,N,1]; NULL: a bias is
                                      copied as it is */
    bool is_bias;           /* it is the `bias` of another one */
    struct tp_format_inputs inputs;
    const json_t *config;   /* "config" of the file, or NULL */
    const char *separator;  /* between a weight's name and the suffixes: "." if not given */
    uint32_t bits;          /* of a code, as config.json would say it */
    uint64_t group;         /* with any group size: the value of G or TP_GROUP_ROW, else 0 */
    uint64_t row_group;     /* with blocks of any number of rows: the value of R, else 0 */
    const json_t *spelled;  /* its outputs have names, dtypes or shapes of a quantizer's instead of
                               its file's (struct tp_format_as), or NULL */
    enum tp_activations activations; /* as its config says */
    bool unknown;           /* made of a stored descriptor, whose name or version is not one of
                               ours: read, by the layouts of that weight alone */
    bool added;             /* of a user's file */
    const char *text;       /* of the file */
    const json_t *json;     /* the whole file */
};

/* The format of that name, parsed on first use (thread-safe), never freed; *format NULL: there is
 * none. */
enum tp_code tp_format_get(const char *name, const struct tp_format **format,
                           struct tp_err *err);
/* The same of a format that was got before, or after tp_formats_check(): NULL when unknown. */
const struct tp_format *tp_format_find(const char *name);

/* All formats, sorted by name. An embedded file that breaks the rules of formats/README.md is left
 * out. There are none while memory for them is short. tp_formats_check() reports either: after its
 * success none is missing. Who converts has no use for all of them. */
const struct tp_format *const *tp_formats(size_t *count);
enum tp_code tp_formats_check(struct tp_err *err);

enum { TP_FORMAT_NAME = 255, TP_FORMAT_MAX = 1 << 20 }; /* bytes of a name, and of a file */
/* Whether it is one of a user's file, of whatever group size. */
bool tp_format_is_added(const struct tp_format *format);

/* Adds the format of a user's file, before others ask for formats. TP_E_USAGE where one has that
 * name, TP_E_INPUT where the file breaks the rules. */
enum tp_code tp_format_add(const char *text, size_t size, struct tp_err *err);

/* A format in other sizes or in another spelling than its file's. */
struct tp_format_as {
    uint64_t columns, rows; /* G (or TP_GROUP_ROW) and R in place of those of its "let"; 0: as
                               there */
    const json_t *spelled;  /* by role, members in place of those of its outputs; it lives as long
                               as the process. NULL: as there */
};
/* That format, made once and never freed. NULL + TP_E_MEMORY, or what is wrong with it. */
const struct tp_format *tp_format_as(const struct tp_format *format, const struct tp_format_as *as,
                                     struct tp_err *err);
/* The format, as it is spelled, with groups of so many columns (or TP_GROUP_ROW); it must have
 * G. */
const struct tp_format *tp_format_grouped(const struct tp_format *format, uint64_t group,
                                          struct tp_err *err);

/* The format as it is for such a weight. */
const struct tp_format *tp_format_for(const struct tp_format *format, enum tp_part part);
/* The word of a part in format files and descriptors: "gated", "up", ...; NULL of ANY. */
const char *tp_part_name(enum tp_part part);

/* What the format, of whatever group size, is for the bias of a weight, or NULL. */
const struct tp_format *tp_format_bias(const struct tp_format *format);

/* Chosen values, index by format->param. {0} is all defaults. */
struct tp_settings {
    uint8_t choice[TP_MAX_PARAMS];
    struct tp_row_order rows; /* of one weight: what no rule chooses */
};

/* The choice of that name or alias, or -1. */
int tp_param_find(const struct tp_param *param, const char *word);

/* Applies "key=value" to the settings (format_set.c); a choice of a group size replaces *format by
 * the one of that size, with the same parameters. TP_E_USAGE names the legal ones. */
enum tp_code tp_format_set(const struct tp_format **format, const char *key_value,
                           struct tp_settings *settings, struct tp_err *err);

/* Chooses that zero points are stored, where the format has that choice. */
void tp_format_keep_zeros(const struct tp_format *format, struct tp_settings *settings);

/* The parameter whose choice takes the format's search away, or format->params. */
uint32_t tp_format_unsearched(const struct tp_format *format, const struct tp_settings *settings);
/* The format's search, as far as no choice takes it away. */
struct tp_format_search tp_format_search(const struct tp_format *format,
                                         const struct tp_settings *settings);

/* The operation for these settings. */
void tp_format_op(const struct tp_format *format, const struct tp_settings *settings,
                  struct tp_op *op);

/* Checks the shape: the first rule of `need` (or `want`) it breaks, or NULL. `expert`:
 * the weight is one of experts. */
const struct tp_shape_rule *tp_format_broken_need(const struct tp_format *format,
                                                  const struct tp_settings *settings,
                                                  struct tp_box3 box, bool stack);
const struct tp_shape_rule *tp_format_broken_want(const struct tp_format *format,
                                                  const struct tp_settings *settings,
                                                  struct tp_box3 box, bool expert);

/* Dtype of the values between decoding a packed source, whose original values were
 * of that dtype, and encoding: what a parameter says ("via"), else the original
 * one where decoding gives it (BF16), else F32. So the result equals that of
 * converting what `unpack` writes. */
enum tp_dtype tp_format_via(const struct tp_format *format, const struct tp_settings *settings,
                            enum tp_dtype original);

/* Dtype of output i of an operation of the format: a parameter may choose that of scales. */
enum tp_dtype tp_format_dtype(const struct tp_format *format, const struct tp_op *op, uint32_t i);

/* Shape of output i for a weight of rank 2 (no leading E) or 3. */
enum tp_code tp_format_shape(const struct tp_format *format, uint32_t i, struct tp_box3 box,
                             int weight_rank, uint64_t shape[TP_MAX_RANK], uint32_t *rank,
                             struct tp_err *err);

/* Bytes [from, from + bytes), whole words, of output i that follows from the size alone (layout
 * words, a stored shape), repeated over E. */
enum tp_code tp_format_constant(const struct tp_format *format, uint32_t i, struct tp_box3 box,
                                uint64_t from, void *to, uint64_t bytes, struct tp_err *err);

/* The inverse: the weight that a stored codes tensor of that shape belongs to; of four dimensions,
 * a convolution, it is a matrix with a row for each output channel. False when the shape cannot be
 * one of this format. */
bool tp_format_box_of(const struct tp_format *format, const uint64_t *shape, uint32_t rank,
                      struct tp_box3 *box, int *weight_rank);

#endif
