/* Inside of planning: shared by convert.c and unpack.c (the whole of it), by what becomes of
 * weights here: select.c (which weights, to what), sources.c, exact.c (which choices of the
 * format), loss.c (taken over or not), sets.c (all or none), units.c (parts and stacks), draft.c
 * (one unit), experts.c, biases.c, inputs.c, stats.c, convert_scales.c, restore.c (plain again),
 * unique_sources.c (nothing twice), and by outputs.c, files.c and headers.c of ../file.
 */
#ifndef TP_PACK_PLAN_BUILD_H
#define TP_PACK_PLAN_BUILD_H

#include "pack/engine/engine.h"
#include "pack/plan/unit/plan.h"
#include "pack/source/source_ignore.h"
#include "pack/text/name_set.h"

struct tp_stack_name;

/* What happens to one source weight. */
struct tp_choice {
    struct tp_rule *rule;  /* NULL: kept, for `reason` */
    const char *reason;    /* of the plan */
    bool refused;          /* kept although asked for: an error under --strict */
    bool done;             /* belongs to a unit already */
};

/* Shapes, bytes and constants of the outputs of units of one form: a model has a few forms, and
 * may have 100,000 units of each. */
struct tp_unit_sizes {
    const struct tp_unit_form *form;   /* NULL: not in use */
    struct tp_output out[TP_MAX_OUT];  /* without a shape: not known yet */
};
enum { TP_KNOWN_SIZES = 16 };

struct tp_builder {
    struct tp_plan *plan;
    struct tp_request *request;
    struct tp_choice *choices; /* per weight; freed when the units are made */
    bool *left_out;            /* per tensor of the checkpoint: it is not copied
                                  (tp_plan_leave_out()); freed when the units are made */
    struct tp_engine_asks asks; /* of the format of the weight that was looked at last */
    struct tp_shared rules;    /* struct tp_rule: with choices that follow the source (exact.c) */
    struct tp_name_key *packed_biases; /* weights that are biases, by name (biases.c) */
    size_t packed_bias_count;
    struct tp_names with_gate, with_up, interleaved; /* experts, by their prefix: what their first
                                                        matrix holds (experts.c) */
    const char *last_reason;   /* many weights are kept for the same one */
    const struct tp_rule *last_rule; /* many units are made by the same one, ... */
    struct tp_op last_op;            /* ... which is this operation */
    uint8_t *unread;           /* enum tp_unread per tensor of the checkpoint; NULL: none is */
    bool quantized;            /* there are packed weights, or tensors that look like theirs */
    struct tp_source_ignore ignore; /* what the source lists as not quantized */
    size_t unit_capacity, output_capacity, kept_capacity, kept_unit_capacity, file_capacity;
    struct tp_err *err;
    bool checks;        /* tensors that weights were made from are put together and not kept */
    size_t file_begins; /* first output of the file that is being filled */
    struct tp_unit_sizes sizes[TP_KNOWN_SIZES]; /* the latest kinds, for outputs.c */
    uint32_t next_sizes;
    uint64_t constants; /* bytes of them that are kept */
};

static inline const struct tp_weight *tp_weight_at(const struct tp_builder *b, uint32_t w)
{
    return &b->plan->weights->items[w];
}

/* The name that patterns see: "X.q_proj.weight", also for packed sources. It is the
 * tensor's own, or written into `buffer`. NULL + TP_E_UNSUPPORTED when too long. */
enum { TP_FULL_NAME = 2048 };
const char *tp_weight_full_name(const struct tp_plan *plan, uint32_t weight,
                                char buffer[TP_FULL_NAME], struct tp_err *err);

/* Keeps a weight, with a printf'ed reason; the first reason stays. */
enum tp_code tp_choice_keep(struct tp_builder *b, uint32_t weight, bool refused, const char *fmt,
                            ...) __attribute__((format(printf, 4, 5)));

/* Fills choices from the request: patterns, defaults, orientation. */
enum tp_code tp_plan_select(struct tp_builder *b);

/* Keeps, with a reason, what engines load as one matrix or as one layer of experts with a
 * weight that cannot be converted, and what the format's reader cannot merge. */
enum tp_code tp_plan_keep_sets(struct tp_builder *b);

/* Makes units of the chosen weights: stacks experts, splits stacks, checks
 * shapes. Weights left over are kept. */
enum tp_code tp_plan_units(struct tp_builder *b);

/* Sets how the unit comes of its source (kind, dtype): encoded, or taken over. Returns why it
 * does not (with the hint set), as when packed weights would be quantized again without
 * --requantize; that needs none where 8-bit floats of blocks within its own blocks are made of
 * floats. NULL: it does. (loss.c) */
const char *tp_plan_unit_kind(const struct tp_builder *b, struct tp_unit *unit,
                              const struct tp_rule *rule, char *text, size_t size);

/* exact.c: what a take-over of codes of the one form into the other loses. */
enum tp_loss tp_repack_loss(const struct tp_op *from, const struct tp_op *to);
/* Whether values of the one form may all be numbers of the other: those of fewer bits, where both
 * have powers of two as scales, if the scales of a block lie close enough to each other. And
 * whether scales that are rounded when codes are taken over may be numbers of their new type. Only
 * the numbers tell, so the run looks (tp_unit_form.only_exact). */
bool tp_numbers_decide(const struct tp_op *from, const struct tp_op *to);
bool tp_scales_decide(const struct tp_op *from, const struct tp_op *to);
/* Whether codes of such a weight can be taken over. */
bool tp_form_fits(const struct tp_weight_form *weight, const struct tp_op *to);
/* Gives the parameters whose bits are set in `open` the choices that lose least of such a weight, the
 * first ones in the order of the file; those that hold already stay where nothing is lost. */
enum tp_code tp_exact_choice(const struct tp_weight_form *from, uint32_t open,
                             const struct tp_format **format, struct tp_settings *settings,
                             enum tp_loss *loss, struct tp_err *err);
/* The first choice of one parameter with which the shape of the unit suits its format, and *key;
 * NULL: there is none. */
const char *tp_need_choice(const struct tp_unit_form *form, const char **key);
/* Puts rules with such choices in the place of those that were chosen for packed weights, where the
 * user has set nothing else. Sources are checked. */
enum tp_code tp_plan_follow_sources(struct tp_builder *b);

/* The rule of the request that it is, perhaps with choices that follow a source; NULL of NULL. */
struct tp_rule *tp_rule_asked(struct tp_rule *rule);

/* Whether there is a choice of scales in the rule's format, and it is asked for. */
bool tp_rule_searches(const struct tp_rule *rule);

/* Fails when the request's file of importance has entries that fit no weight. */
enum tp_code tp_plan_check_importance(struct tp_builder *b);

/* The largest magnitude of what these rows are multiplied with, as the request's file of importance
 * says; 0: it does not. */
enum tp_code tp_plan_largest_input(struct tp_builder *b, const struct tp_unit *unit,
                                   struct tp_view view, float *largest);

/* Determines how the unit's scales are searched: as the rule says when it is encoded (a
 * codec may have no use for it), as those of its source were when it is taken over. */
enum tp_code tp_plan_search(struct tp_builder *b, struct tp_unit *unit,
                            const struct tp_rule *rule);

/* Fails for a packed weight that was chosen but cannot be converted for `reason`:
 * to keep it would leave a checkpoint of two kinds. */
enum tp_code tp_plan_refuse(const struct tp_builder *b, const struct tp_unit *unit,
                            const char *reason);

/* Matrices that are of no weight, and whose types are no plain numbers. */
enum tp_unread {
    TP_UNREAD_NONE,
    TP_UNREAD_SPARE,    /* beside a packed weight, and says nothing of it */
    TP_UNREAD_INTEGERS, /* indices or flags, by the model's file or by their values */
    TP_UNREAD_CODES,    /* of a quantized weight, as far as can be told */
};
/* Finds them, and whether the source is quantized. */
enum tp_code tp_plan_find_unread(struct tp_builder *b);

/* Reads what headers do not say of the chosen packed weights (weight_complete.h) and
 * refuses tensors that look packed but are of no format that is read. */
enum tp_code tp_plan_check_sources(struct tp_builder *b);

/* Refuses such ones that are excluded, where what describes them is replaced. The units are
 * made. */
enum tp_code tp_plan_check_excluded(const struct tp_builder *b);

/* "64,128" for a message about a tensor. Returns `text`. */
enum { TP_PLAN_SHAPE = TP_ST_MAX_RANK * 24 };
const char *tp_plan_shape_text(const struct tp_tensor *tensor, char text[TP_PLAN_SHAPE]);

/* Groups of units that share a global scale: plan.groups and the units' `stats`. */
enum tp_code tp_plan_stats(struct tp_builder *b);

/* The global scales of MXFP4 that is taken over as NVFP4, one for each of their groups; with
 * --requantize sets that cannot be are encoded. */
enum tp_code tp_plan_convert_scales(struct tp_builder *b);

/* Finds out of experts what the last matrix of them does not tell (experts.c). */
enum tp_code tp_plan_find_experts(struct tp_builder *b);
/* Packed stacks of gpt-oss, whose rows of gate and up are interleaved (and the down_proj beside
 * them): known by "gate_up_proj_blocks" and what became of it, or by the model's file. They stay
 * one stack in that order, to which the model's biases belong. */
bool tp_plan_is_interleaved(const struct tp_weight *weight);
/* Whether "P.w2" is the last matrix of experts whose rows are interleaved, in a format that says
 * so. */
bool tp_plan_is_last_interleaved(const struct tp_builder *b, const char *name);
/* Whether "P.w2" is the last matrix of experts that have no gate. */
bool tp_plan_is_last_ungated(const struct tp_builder *b, const char *name);
/* Whether a stack of that name holds two matrices of each expert, gate and up: a packed one may
 * have been made of experts without a gate. */
bool tp_plan_is_gated(const struct tp_weight *weight, const struct tp_stack_name *stack);

/* Biases (biases.c): finds the packed ones. */
enum tp_code tp_plan_find_biases(struct tp_builder *b);
/* Why a weight cannot be converted because of the bias beside it, or NULL. */
const char *tp_plan_bias_reason(const struct tp_builder *b, const struct tp_unit *unit, char *text,
                                size_t size);
/* The unit of the bias beside the weight, plain or packed, with *form, which is complete but for
 * what tp_plan_unit_kind() sets; without views where it has none, or its format does not say what
 * becomes of it. The tensors that it is made of are left out. */
enum tp_code tp_plan_bias_of(struct tp_builder *b, const struct tp_unit *of, struct tp_unit *unit,
                             struct tp_unit_form *form);
/* Whether a packed weight is a bias. */
bool tp_plan_is_bias(const struct tp_weight *weight);
/* Packed biases become plain ones again where the format copies a bias as it is. */
enum tp_code tp_plan_restore_biases(struct tp_builder *b);

/* Activation scales (inputs.c). Adds the tensor of those of the unit's parts, where its format
 * has one, and sets form->inputs; fails where the format wants them and the source has none. */
enum tp_code tp_plan_add_inputs(struct tp_builder *b, struct tp_unit *unit);
/* Sets form->inputs of packed weights that are copied with theirs. */
enum tp_code tp_plan_note_inputs(struct tp_builder *b);
/* Fails where some experts of a layer have them and others have not. The units are complete. */
enum tp_code tp_plan_check_inputs(const struct tp_builder *b);
/* They are not copied; `carried`: in another form they are. */
void tp_plan_leave_inputs(struct tp_builder *b, uint32_t weight, bool carried);
/* What says how a weight of another tool was stored, or is of its calibration, is not copied. */
void tp_plan_leave_beside(struct tp_builder *b, uint32_t weight);

/* Appends a unit (moved), with a shared form that equals its own; frees it on failure. */
enum tp_code tp_plan_add_unit(struct tp_builder *b, struct tp_unit *unit);

/* Appends to plan.kept; `unit` and `reason` as in struct tp_kept. */
enum tp_code tp_plan_add_kept(struct tp_builder *b, uint32_t tensor, uint32_t unit,
                              const char *reason);

/* Keeps all tensors of a weight; a packed one keeps its descriptor with it. Nothing, where its
 * first tensor is left out. */
enum tp_code tp_plan_keep_weight(struct tp_builder *b, uint32_t weight, const char *reason);

/* A tensor of the checkpoint is not copied: a unit is made of it, or nobody would read it beside
 * one. NULL does nothing. */
void tp_plan_leave_out(struct tp_builder *b, const struct tp_tensor *tensor);
bool tp_plan_is_left_out(const struct tp_builder *b, const struct tp_tensor *tensor);

/* Adds a plain unit (kind TP_UNIT_PLAIN, no format) for every tensor that the
 * weights stood for before they were packed: experts apart, stacks whole again.
 * With `all`, plain weights become units of their own as well. skip[w] leaves
 * weights out (NULL: none). `dtype` of the values, or TP_DTYPE_NONE: BF16 if that
 * was the original, else F32. */
enum tp_code tp_plan_plain_units(struct tp_builder *b, enum tp_dtype dtype, bool all,
                                 const bool *skip);

/* Appends the outputs of a unit, or of one kept tensor, to plan.outputs; file and offset
 * are not set. */
enum tp_code tp_plan_unit_outputs(struct tp_builder *b, uint32_t unit);
enum tp_code tp_plan_kept_output(struct tp_builder *b, const struct tp_kept *kept);

/* Fails when a tensor of the source belongs to two weights of the units, or is copied besides: a
 * mistake of the plan (TP_E_UNSUPPORTED). Units and kept are complete. Time and memory (4 bytes
 * each) are linear in the tensors. */
enum tp_code tp_plan_check_unique_sources(const struct tp_plan *plan, struct tp_err *err);

/* Outputs, files, headers and hash of a plan whose units and kept are complete. */
enum tp_code tp_plan_files(struct tp_builder *b, const char *file_name);

/* Offsets, headers and hash of a plan whose outputs are in their order. */
enum tp_code tp_plan_headers(struct tp_builder *b);

void tp_builder_close(struct tp_builder *b);

#endif
