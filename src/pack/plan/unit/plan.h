/* The plan: every unit, output tensor, file and offset, before a byte is written.
 *
 * A unit is one logical W[E,N,K] assembled from views of source weights, and the
 * outputs made from it. After planning only input/output, memory or the device
 * can fail. The plan's hash identifies request and source, so an interrupted run
 * knows whether its files still count.
 */
#ifndef TP_PACK_PLAN_H
#define TP_PACK_PLAN_H

#include "pack/file/leafhash.h"
#include "pack/os/store.h"
#include "pack/plan/unit/request.h"
#include "pack/source/importance.h"
#include "pack/source/weights.h"

enum { TP_MAX_VIEWS = 4 }; /* of a weight's rows: gate and up, or q, k and v */

/* Rows of a source weight's expert that become rows of the unit. */
struct tp_view {
    uint32_t weight;
    uint32_t step; /* rows from one to the next: 2 where gate and up are interleaved; 0 is 1 */
    uint64_t expert, row;
};

enum tp_unit_kind {
    TP_UNIT_ENCODE, /* values -> codec (a packed source is decoded first) */
    TP_UNIT_REPACK, /* codes and scales taken over */
    TP_UNIT_PLAIN,  /* packed source -> values */
};

/* What many units have in common: a model has a few forms, and may have 1,000,000 units. */
struct tp_unit_form {
    struct tp_box3 box;
    const struct tp_format *format; /* NULL: plain */
    struct tp_op op;
    struct tp_search_choice search; /* what its descriptor says; `op` has it when it encodes */
    struct tp_settings settings;
    enum tp_unit_kind kind;
    int rank;
    enum tp_dtype dtype;    /* of the values that enter encode, or that PLAIN writes */
    enum tp_dtype original; /* dtype of the original values, recorded for unpack */
    uint32_t outs;
    uint32_t views_per_expert;
    uint64_t view_rows[TP_MAX_VIEWS];
    const char *warning;    /* what the consumer's kernel wants in addition, or NULL */
    char separator;         /* between its name and the output suffixes; '\0': none */
    struct tp_row_order order, undo; /* of the one view's rows: they are put into `order`, and those
                               of a packed source lie in `undo`; {0} both where no row moves */
    bool repeats;           /* only the views of expert 0 are there: those of the others are of the
                               same weights and rows, so many experts on */
    bool interleaved;       /* its rows come from the views by turns, not one view after the
                               other */
    bool gathers;           /* its rows do not lie side by side in the packed source: they are put
                               together first (run/gather_rows.h) */
    bool transposed;        /* plain units: written as [E,K,N] */
    bool flat;              /* plain units: a bias, written as [N] or [E,N] */
    bool unweighted;        /* searched without: the file has no numbers for it */
    bool only_exact;        /* the run compares what it makes with the source, and stops at the
                               first value (of what is taken over: scale) that is another one */
    bool needless_search;   /* a search was asked for, but its scales are the best already */
    bool unsearched;        /* none was, and a setting takes the format's away */
    bool inputs;            /* activation scales lie beside it (inputs.c) */
    bool ordered;           /* kept GPTQ of another tool: in act-order */
    bool version2;          /* and its zero points are stored as they are, not less one; */
    bool unversioned;       /* which config.json alone says */
};

struct tp_unit {
    const char *name;          /* for messages and rules; of the plan, or the weight's */
    struct tp_unit_form *form; /* shared, and not to be changed, once the unit is in a plan */
    struct tp_view *views;     /* tp_unit_views() of them: see tp_unit_view(); of the plan */
    struct tp_importance_ref *importance; /* of each expert, when a file's numbers are used */
    uint32_t output[TP_MAX_OUT]; /* index into plan.outputs */
    uint32_t file;
    uint8_t use;               /* enum tp_use */
    uint8_t scale_shift;       /* of E5M3 scales that are taken over: tp_args.scale_shift */
    uint32_t stats;            /* group that shares a global scale, or UINT32_MAX; of a stack
                                  that of expert 0, the others follow */
};

/* What a unit that is made of a packed weight may lose. */
enum tp_loss {
    TP_LOSS_NONE,
    TP_LOSS_STOPS,  /* nothing, or the run stops: only the numbers tell (tp_unit_form.only_exact) */
    TP_LOSS_GLOBAL, /* all is taken over, but the global scale is the source's reciprocal */
    TP_LOSS_SCALES, /* codes are taken over, scales are rounded to another type */
    TP_LOSS_VALUES, /* decoded and quantized again */
};

struct tp_output {
    const char *name;        /* of the plan, or the checkpoint's */
    const uint64_t *shape;   /* the same */
    const struct tp_constant *constant; /* where its bytes come from if they are of no source
                                           (constant.h), or NULL; of the plan */
    uint64_t bytes;
    uint64_t offset;    /* from the beginning of the file */
    uint32_t file;
    uint32_t unit;      /* UINT32_MAX: a kept tensor */
    uint32_t source;    /* kept: the checkpoint's tensor, or of those that the plan made
                           ckpt->tensor_count and their number; else which output of the unit */
    uint8_t rank, dtype; /* enum tp_dtype */
};

#define TP_REASON_SAME "already in this format"
#define TP_REASON_LEFT "left plain by its quantizer"
#define TP_REASON_LISTED "not quantized in the source" /* and one of its lists says so */

struct tp_kept {
    uint32_t tensor;
    uint32_t unit; /* into plan.kept_units when it belongs to a packed weight, else UINT32_MAX */
    const char *reason; /* of the plan; NULL: not a weight at all */
    bool integers;      /* no weight, but integers that are no codes of one */
    const struct tp_output *made; /* a tensor that the plan made of that one and others, with its
                                     bytes as its constant; NULL: copied. Of the plan */
};

struct tp_plan_file {
    char *name;
    char *header;              /* header_size bytes: all before the data, hash digits zero */
    uint8_t header_hash[TP_HASH_BYTES];
    uint64_t header_size; /* = where data starts */
    uint64_t hash_at;     /* offset of the 32 hash digits */
    uint64_t size;
    uint32_t first_output, output_count; /* outputs are sorted by file, then offset */
    uint32_t first_unit, unit_count;     /* into plan.units_by_file */
};

/* A value over several units: the amax behind a shared global scale. Several 2-D
 * units, or one expert of a stacked one. */
struct tp_stats_group {
    uint32_t first_unit, unit_count; /* into plan.stats_units */
    float given;                     /* the global scale, where the plan knows it; else 0 */
};

/* Tensors of the source that nothing would read in the output. */
struct tp_left_out {
    size_t count, ends;
    const char *end[8]; /* of their names, the first of those that differ; of the checkpoint */
};

struct tp_plan {
    const struct tp_checkpoint *ckpt;
    const struct tp_weights *weights;
    const struct tp_importance_file *importance; /* of the request, which outlives the plan */
    const char *idle_exclude; /* a pattern of --exclude that matches no name; of the request */
    struct tp_unit *units;
    size_t unit_count;
    struct tp_output *outputs;
    size_t output_count;
    struct tp_kept *kept; /* tensors of one packed weight stand together */
    size_t kept_count;
    size_t made_count; /* tensors that the plan made */
    struct tp_unit *kept_units; /* packed weights that are copied: for descriptors and config */
    size_t kept_unit_count;
    struct tp_plan_file *files;
    size_t file_count;
    struct tp_store store;   /* names, views, shapes, constants */
    struct tp_shared forms;  /* struct tp_unit_form */
    bool restores;    /* packed weights become plain ones (tp_plan_unpack) */
    bool drops;       /* activation scales of the source are left out */
    bool scales_unread; /* whether the source's scales can be taken over was not looked at */
    struct tp_left_out left;
    bool single_file; /* one file of the user's name instead of a directory */
    struct tp_stats_group *groups;
    uint32_t *stats_units;
    size_t group_count;
    const struct tp_unit **units_by_file; /* per file its units, then its kept ones */
    uint64_t bytes_in, bytes_out; /* of tensor data */
    uint8_t hash[16]; /* of the source's identity with times, and all headers */
    uint8_t id[16];   /* the same without times: equal on another machine's copy */
};

/* Makes the plan that converts `ckpt` as the request says, and completes packed weights
 * (weight_complete.h). Single-file output
 * (`file_name` given) puts everything into one file of that name. */
enum tp_code tp_plan_convert(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                             struct tp_request *request, const char *file_name,
                             struct tp_plan *plan, struct tp_err *err);

/* Makes the plan that restores plain weights of `dtype` (TP_DTYPE_NONE: each its
 * original) with the names of the source. */
enum tp_code tp_plan_unpack(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                            enum tp_dtype dtype, uint64_t shard_size, const char *file_name,
                            struct tp_plan *plan, struct tp_err *err);

/* TP_E_INPUT where what descriptors say of the plain tensors that weights were made from cannot be,
 * as tp_plan_unpack() finds. `whole`: nor where a tensor is not covered by them, for a directory,
 * which is no part of a checkpoint. */
enum tp_code tp_plan_check_origins(const struct tp_checkpoint *ckpt,
                                   const struct tp_weights *weights, bool whole,
                                   struct tp_err *err);

/* The packed weight as it is, as a unit of that kind of the plan. */
enum tp_code tp_unit_of_weight(struct tp_plan *plan, struct tp_unit *unit, enum tp_unit_kind kind,
                               uint32_t w, struct tp_err *err);
void tp_plan_close(struct tp_plan *plan); /* legal on {0} and twice */

/* Where the file has the numbers of that expert of a unit, as of the tensor that its first rows come
 * from; nowhere is no error. */
enum tp_code tp_unit_importance(const struct tp_plan *plan, const struct tp_importance_file *file,
                                const struct tp_unit *unit, uint64_t expert,
                                struct tp_importance_ref *ref, struct tp_err *err);

/* The mean over its rows of the mean squares of the gradients of that expert's outputs; -1: the file
 * does not have all of them. */
enum tp_code tp_unit_gradient(const struct tp_plan *plan, const struct tp_importance_file *file,
                              const struct tp_unit *unit, uint64_t expert, float *square,
                              struct tp_err *err);

enum tp_loss tp_unit_loss(const struct tp_plan *plan, const struct tp_unit *unit);
void tp_unit_close(struct tp_unit *unit); /* its memory, but the plan's; legal on {0} */

/* Views that the unit has in memory: of all weights that it is made of. */
uint64_t tp_unit_views(const struct tp_unit *unit);
/* View p of expert e. */
struct tp_view tp_unit_view(const struct tp_unit *unit, uint64_t e, uint32_t p);
/* The part that row n of expert e comes from, and its row there. */
struct tp_view tp_unit_view_at(const struct tp_unit *unit, uint64_t e, uint64_t n, uint64_t *row,
                               uint64_t *rows_left);

/* The order of the unit's rows, and that of its source's: what moves. */
void tp_form_reorder(struct tp_unit_form *form, const struct tp_row_order *order,
                     const struct tp_row_order *source);
bool tp_form_moves(const struct tp_unit_form *form);
/* How often its rows, or those of its views, go on in one step on both sides, and a run of them:
 * the first row of `unit`, from each to the next one there, the same in the view, how many. */
struct tp_row_run {
    uint64_t to, pitch, first, step, count;
    uint32_t view;
};
uint64_t tp_unit_runs(const struct tp_unit *unit);
struct tp_row_run tp_unit_run(const struct tp_unit *unit, uint64_t e, uint64_t r);

#endif
