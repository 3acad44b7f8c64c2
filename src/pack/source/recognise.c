/* Packed weights of other tools: which stored form of which quantizer a tensor of codes is of.
 *
 * A form is known by the names, dtypes and shapes of its tensors; where several fit, by what
 * config.json says and by markers. Invariant: a weight is taken with all of its tensors or not at
 * all.
 */
#include "pack/source/recognise.h"

#include "kernels/op/traits.h"
#include "pack/os/os.h"
#include "pack/text/json_tree.h"

#include <stdlib.h>
#include <string.h>

/* The tensor whose name begins as that of `codes` does and ends in `suffix`, or NULL. */
static const struct tp_tensor *find_sibling(const struct tp_finder *f,
                                            const struct tp_tensor *codes, size_t prefix_size,
                                            const char *suffix)
{
    return tp_finder_near(f, tp_finder_index(f, codes), codes->name, prefix_size, suffix);
}

/* The dtypes in which readers and writers store the same scale; U8 is one of them
 * where scales are not integers of another kind. */
static bool element_of(enum tp_dtype dtype, enum tp_element *element)
{
    switch (dtype) {
    case TP_F32: *element = TP_ELEM_F32; return true;
    case TP_BF16: *element = TP_ELEM_BF16; return true;
    case TP_F16: *element = TP_ELEM_F16; return true;
    case TP_F8_E8M0:
    case TP_U8: *element = TP_ELEM_E8M0; return true;
    default: return false;
    }
}

/* A global scale of one number is a scalar, or [1]. Not in FP8, where that tells formats apart. */
static bool is_scalar_global(const struct tp_tensor *tensor, const struct tp_op *op, uint32_t i,
                             uint32_t rank)
{
    return rank == 0 && op->out[i].role == TP_ROLE_GLOBAL && op->codec != TP_CODEC_FP8 &&
           tensor->rank == 1 && tensor->shape[0] == 1;
}

/* Whether a scale may have that dtype instead of the format's. One byte to a row is no scale
 * of the row: a weight in blocks of 32 whose K is 32 looks alike. */
static bool other_scale(struct tp_weight *weight, uint32_t i, enum tp_dtype dtype)
{
    struct tp_op_out *out = &weight->form->op.out[i];
    enum tp_dtype own = weight->form->format->out[i].dtype;
    bool fp8 = weight->form->op.codec == TP_CODEC_FP8, integer = tp_op_is_int(&weight->form->op);
    if ((out->role != TP_ROLE_SCALE && !tp_op_per_tensor(&weight->form->op)) ||
        (own == TP_U8 && dtype != TP_F8_E8M0) || (own != TP_U8 && !fp8 && !integer) ||
        !element_of(dtype, &out->element) ||
        ((integer || out->per_k == 0) && out->element == TP_ELEM_E8M0))
        return false;
    weight->form->op.scale_rule = tp_codec_scale_rule(weight->form->op.codec, out->element);
    return true;
}

/* Whether output i of the format is there for the weight; fills tensor[i] and
 * adapts the element of a scale stored in another float type. */
static bool match_output(const struct tp_finder *f, struct tp_weight *weight, uint32_t i,
                         const struct tp_tensor *codes, size_t prefix_size)
{
    const struct tp_format *format = weight->form->format;
    const struct tp_tensor *tensor = find_sibling(f, codes, prefix_size, format->out[i].suffix);
    struct tp_op_out *out = &weight->form->op.out[i];
    uint64_t shape[TP_MAX_RANK];
    uint32_t rank;
    weight->tensor[i] = tp_finder_index(f, tensor);
    if (!tensor && format->out[i].optional)
        out->role = TP_ROLE_WORDS;
    if (!tensor)
        return out->role == TP_ROLE_WORDS; /* nothing in them that the shape does not say */
    bool convolution = out->role == TP_ROLE_CODES && tensor->rank == 4 &&
                       format->out[i].rank < 4; /* as its box has it */
    if (f->used[weight->tensor[i]] ||
        tp_format_shape(format, i, weight->form->box, weight->form->rank, shape, &rank, NULL) ||
        (!convolution && !tp_same_shape(tensor, shape, rank) &&
         !is_scalar_global(tensor, &weight->form->op, i, rank)))
        return false;
    return tensor->dtype == format->out[i].dtype || other_scale(weight, i, tensor->dtype);
}

/* How long the parts are, if `all` is cut into `count` of them: as said, where that agrees, else
 * evenly. 0: neither. */
static uint64_t part_of(uint64_t all, uint64_t count, uint64_t said)
{
    if (said && count == (all + said - 1) / said)
        return said;
    return count && all % count == 0 ? all / count : 0;
}

/* The format for the sizes of groups that the scales' shape gives: format itself when it has none
 * of its own, NULL when there are none that fit. */
static const struct tp_format *with_sizes(const struct tp_finder *f,
                                          const struct tp_format *format,
                                          const struct tp_tensor *codes, size_t prefix_size)
{
    int s = tp_op_find(&format->op, TP_ROLE_SCALE), rank;
    struct tp_box3 box;
    if (!format->group)
        return format;
    const struct tp_format_out *out = &format->out[s];
    const struct tp_tensor *scale = find_sibling(f, codes, prefix_size, out->suffix);
    uint32_t skip = scale ? out->rank - scale->rank : 0;
    if (!scale || skip > 1 || out->group_dim < (int)skip ||
        !tp_format_box_of(format, codes->shape, codes->rank, &box, &rank))
        return NULL;
    uint64_t groups = scale->shape[out->group_dim - (int)skip];
    struct tp_format_as as = {.spelled = format->spelled, .rows = format->row_group};
    as.columns = part_of(box.k, groups, format->row_group ? f->block[1] : 0);
    if (groups == 1 && box.k > TP_GROUP_MAX && !format->row_group)
        as.columns = TP_GROUP_ROW; /* which has pieces */
    if (format->row_group)
        as.rows = part_of(box.n, scale->shape[out->row_dim - (int)skip], f->block[0]);
    return as.columns && as.rows <= TP_GROUP_MAX && (as.rows || !format->row_group)
               ? tp_format_as(format, &as, NULL)
               : NULL;
}

/* The length of the name before the joint, or 0 when the tensor's name is not that
 * of codes with that suffix. */
static size_t base_of(const struct tp_quantizer_form *form, const char *name)
{
    size_t size = strlen(name), suffix = strlen(form->suffix);
    if (size <= suffix || memcmp(name + size - suffix, form->suffix, suffix) != 0)
        return 0; /* so of most */
    size_t separator = strlen(form->separator), base = form->base ? strlen(form->base) : 0;
    size -= suffix;
    if (size <= separator)
        return 0;
    size -= separator;
    return strncmp(name + size, form->separator, separator) == 0 && base <= size &&
                   strncmp(name + size - base, form->base ? form->base : "", base) == 0
               ? size
               : 0;
}

/* Whether a tensor of the weight's own name may be a scale: what it is called says so. */
static bool has_scale(const struct tp_finder *f, const struct tp_tensor *codes, size_t base)
{
    for (int step = -1; step <= 1; step += 2)
        for (size_t i = tp_finder_index(f, codes) + (size_t)step;
             i < f->ckpt->tensor_count &&
             strncmp(f->ckpt->tensors[i].name, codes->name, base) == 0;
             i += (size_t)step)
            if (strstr(f->ckpt->tensors[i].name + base, "scale"))
                return true;
    return false;
}

/* ---- markers ------------------------------------------------------------- */

/* "layers" of the JSON text that the metadata of the tensor's file has under that key, or NULL. */
static const json_t *metadata_marks(struct tp_finder *f, const struct tp_quantizer *q,
                                    const struct tp_tensor *codes)
{
    json_error_t where;
    if (!q->marker_meta)
        return NULL;
    if (!f->marks || f->marked != codes->file) {
        const char *text = tp_st_meta(&f->ckpt->files[codes->file].header, q->marker_meta);
        json_decref(f->marks);
        f->marks = text ? tp_json_load(text, strlen(text), &where) : NULL;
        f->marked = codes->file;
    }
    return json_object_get(f->marks, "layers");
}

/* What the marker says of the weight: fresh memory, or NULL where there is none. */
static enum tp_code read_marker(struct tp_finder *f, const struct tp_quantizer *q,
                                const struct tp_tensor *codes, size_t base, char **says)
{
    enum { MARKER = 4096 };
    char text[MARKER], name[2048];
    const struct tp_tensor *tensor = find_sibling(f, codes, base + 1, q->marker);
    json_error_t where;
    json_t *own = NULL;
    const json_t *before = NULL;
    *says = NULL;
    if (tensor && tensor->bytes <= sizeof text) {
        enum tp_code code = tp_checkpoint_read(f->ckpt, tensor->file, text, tensor->bytes,
                                               tensor->offset, f->err);
        if (code)
            return code;
        before = own = tp_json_load(text, tensor->bytes, &where);
    } else if (!tensor && base < sizeof name) {
        memcpy(name, codes->name, base);
        name[base] = '\0';
        before = json_object_get(metadata_marks(f, q, codes), name);
    }
    const char *word = json_string_value(json_object_get(before, q->marker_key));
    if (word)
        *says = tp_os_copy(f->err, word);
    json_decref(own);
    return word && !*says ? TP_E_MEMORY : TP_OK;
}

/* The kinds of tp_finder.tried. */
enum kind { NAMED, OTHERS, MARKING };

static bool is_of_kind(const struct tp_finder *f, const struct tp_quantizer *q, enum kind kind)
{
    bool named = kind != MARKING && tp_words_have(&q->method, f->method);
    return kind == MARKING ? q->marker != NULL : kind == NAMED ? named : !named && !q->described;
}

static enum tp_code sort_quantizers(struct tp_finder *f)
{
    size_t count, tried = 0;
    const struct tp_quantizer *const *all = tp_quantizers(&count);
    if (!(f->tried = tp_os_alloc((3 * count + 1) * sizeof *f->tried, f->err)))
        return TP_E_MEMORY;
    for (int kind = NAMED; kind <= MARKING; kind++)
        for (size_t q = 0; q < count; q++)
            if (is_of_kind(f, all[q], (enum kind)kind)) {
                f->tried[tried++] = all[q];
                f->tried_count[kind]++;
            }
    return TP_OK;
}

/* *count of them, in their order. */
static const struct tp_quantizer *const *of_kind(const struct tp_finder *f, enum kind kind,
                                                 size_t *count)
{
    const struct tp_quantizer **first = f->tried;
    for (int before = NAMED; before < (int)kind; before++)
        first += f->tried_count[before];
    *count = f->tried_count[kind];
    return first;
}

/* The quantizer whose marker is beside the codes, or NULL, and what it says: fresh memory. */
static enum tp_code find_marker(struct tp_finder *f, const struct tp_tensor *codes,
                                const struct tp_quantizer **by, char **says)
{
    size_t count;
    const struct tp_quantizer *const *all = of_kind(f, MARKING, &count);
    const char *dot = strrchr(codes->name, '.');
    enum tp_code code = TP_OK;
    *says = NULL;
    for (size_t q = 0; q < count && dot && !*says && !code; q++) {
        *by = all[q];
        code = read_marker(f, *by, codes, (size_t)(dot - codes->name), says);
    }
    return code;
}

/* ---- forms --------------------------------------------------------------- */

/* A packed stack lies as its form has it, as far as that can be told. */
static bool stack_agrees(const struct tp_finder *f, const struct tp_quantizer_form *form,
                         const struct tp_tensor *codes, const struct tp_weight_form *is)
{
    const uint64_t n = is->box.n, k = is->box.k;
    const uint64_t sizes[2] = {form->transposed ? k : n, form->transposed ? n : k};
    enum tp_stack_layout layout;
    bool interleaved;
    if (is->rank != 3 || form->separator[0] == '.')
        return !form->transposed;
    const uint64_t factor[2] = {sizes[0] / codes->shape[1], sizes[1] / codes->shape[2]};
    if (!tp_finder_stack(f, codes, sizes, factor, &layout, &interleaved))
        return !form->transposed;
    return layout == (form->transposed ? TP_STACK_EKN : TP_STACK_ENK);
}

static bool match_format(const struct tp_finder *f, const struct tp_quantizer_form *form,
                         const struct tp_format *format, const struct tp_tensor *codes,
                         size_t base, struct tp_weight *weight)
{
    const struct tp_format *own = format; /* whose config says a group size, too */
    size_t prefix = base + strlen(form->separator);
    for (size_t i = 0; i < form->absent.count; i++)
        if (find_sibling(f, codes, prefix, form->absent.item[i]))
            return false;
    if ((form->alone && has_scale(f, codes, base)) ||
        !(format = with_sizes(f, format, codes, prefix)) ||
        (format->activations != TP_ACTIVATIONS_UNSAID && format->group != own->group))
        return false;
    struct tp_weight_form *is = weight->form;
    memset(is, 0, sizeof *is); /* what lies between the members is compared, too */
    *weight = (struct tp_weight){.form = is, .global = 1}; /* where none is stored */
    is->format = format;
    is->as = form;
    is->op = format->op;
    is->separator = form->separator[0];
    is->transposed = form->transposed;
    int scale = tp_op_find(&is->op, TP_ROLE_SCALE);
    if (tp_op_is_int(&is->op) && scale >= 0)
        is->op.scale_rule = tp_codec_scale_rule(is->op.codec, is->op.out[scale].element);
    if (!tp_format_box_of(format, codes->shape, codes->rank, &is->box, &is->rank))
        return false;
    for (uint32_t i = 0; i < format->op.outs; i++)
        if (!match_output(f, weight, i, codes, prefix))
            return false;
    return stack_agrees(f, form, codes, is);
}

/* Formats of the same integers differ in what becomes of activations. Where config.json does not
 * say it, those that leave them plain are known by their descriptors only. */
static bool activations_agree(const struct tp_finder *f, const struct tp_format *format)
{
    if (format->activations == TP_ACTIVATIONS_UNSAID || !tp_op_is_int(&format->op))
        return true;
    return f->activations ? f->activations >> format->activations & 1
                          : format->activations != TP_ACTIVATIONS_PLAIN;
}

/* What is being looked for: forms of quantizers that config.json names or of the others, with codes
 * of as many bits as it says or of others, and never of `not_bits`. */
struct turn {
    bool named, agrees;
    uint32_t not_bits;
    const struct tp_quantizer *by; /* of a marker, which says that; or NULL */
    const char *says;
};

/* Whether the weight with these codes is of that form. */
static enum tp_code match_form(struct tp_finder *f, const struct turn *turn,
                               const struct tp_quantizer_form *form,
                               const struct tp_tensor *codes, struct tp_weight *weight,
                               bool *found)
{
    const struct tp_format *format = NULL;
    if (codes->dtype != form->dtype) /* so of most, with many tensors */
        return TP_OK;
    bool marked = turn->says ? form->marker && strcmp(form->marker, turn->says) == 0
                             : !form->marker;
    size_t base = marked ? base_of(form, codes->name) : 0;
    enum tp_code code = base ? tp_quantizer_format(form, &format, f->err) : TP_OK;
    if (code || !format || format->bits == turn->not_bits || !activations_agree(f, format) ||
        (format->bits && (f->bits >> format->bits & 1) != turn->agrees) ||
        (!format->bits && turn->agrees))
        return code;
    *found = match_format(f, form, format, codes, base, weight);
    return TP_OK;
}

static enum tp_code try_quantizers(struct tp_finder *f, const struct turn *turn,
                                   const struct tp_tensor *tensor, struct tp_weight *weight,
                                   bool *found)
{
    size_t count;
    const struct tp_quantizer *const *all = of_kind(f, turn->named ? NAMED : OTHERS, &count);
    for (size_t q = 0; q < count; q++) {
        if (turn->says && all[q] != turn->by)
            continue;
        for (uint32_t n = 0; n < all[q]->forms; n++) {
            enum tp_code code = match_form(f, turn, &all[q]->form[n], tensor, weight, found);
            if (*found)
                weight->form->by = all[q];
            if (code || *found)
                return code;
        }
    }
    return TP_OK;
}

/* The first form of which the weight with these codes is: those of the quantizers that config.json
 * names come first, of them those with codes of as many bits as it says. Kernel-ready formats are
 * known by their descriptors only. `marked`: what a marker says. */
static enum tp_code first_match(struct tp_finder *f, const struct turn *marked,
                                const struct tp_tensor *tensor, uint32_t not_bits,
                                struct tp_weight *weight, bool *found)
{
    enum tp_code code = TP_OK;
    *found = false;
    for (int i = 0; i < 4 && !code && !*found; i++) {
        const struct turn turn = {i < 2, i % 2 == 0, not_bits, marked->by, marked->says};
        code = try_quantizers(f, &turn, tensor, weight, found);
    }
    return code;
}

/* The tensor of a stored shape, or NULL. */
static const struct tp_tensor *stored_shape(const struct tp_finder *f,
                                            const struct tp_weight *weight)
{
    const struct tp_weight_form *form = weight->form;
    for (uint32_t i = 0; i < form->op.outs; i++)
        if (form->op.out[i].role == TP_ROLE_WORDS && form->format->out[i].dtype == TP_I64 &&
            weight->tensor[i] != TP_NO_TENSOR)
            return &f->ckpt->tensors[weight->tensor[i]];
    return NULL;
}

/* Integers of 4 and of 8 bits lie in the same words: where both fit, config.json decides if it
 * has one of the widths only, else the K that weight_shape says. */
static enum tp_code resolve_width(struct tp_finder *f, const struct turn *marked,
                                  const struct tp_tensor *tensor, struct tp_weight *weight)
{
    struct tp_weight_form form = {0};
    struct tp_weight other = {.form = &form};
    uint32_t bits = weight->form->format->bits;
    bool found = false;
    enum tp_code code = TP_OK;
    if (tp_op_is_int(&weight->form->op))
        code = first_match(f, marked, tensor, bits, &other, &found);
    if (code || !found)
        return code;
    const struct tp_tensor *shape = stored_shape(f, weight);
    bool both = f->bits >> bits & f->bits >> form.format->bits & 1;
    weight->form->any_width = !shape;
    weight->form->unsaid_width = !shape && both;
    if (!shape || ((f->bits >> bits ^ f->bits >> form.format->bits) & 1))
        return TP_OK;
    int64_t sizes[2];
    code = tp_checkpoint_read(f->ckpt, shape->file, sizes, sizeof sizes,
                                           shape->offset, f->err);
    if (code)
        tp_err_tensor(f->err, shape->name);
    if (code || sizes[1] == (int64_t)weight->form->box.k)
        return code;
    weight->form->any_width = sizes[1] != (int64_t)form.box.k;
    weight->form->unsaid_width = weight->form->any_width && both;
    if (!weight->form->any_width) {
        memcpy(weight->form, &form, sizeof form); /* with what lies between the members */
        other.form = weight->form;
        *weight = other;
    }
    return TP_OK;
}

enum tp_code tp_finder_recognise(struct tp_finder *f, const struct tp_tensor *tensor)
{
    struct tp_weight_form form = {0};
    struct tp_weight weight = {.form = &form};
    struct turn marked = {.by = NULL};
    enum tp_stack_layout layout;
    char *says;
    bool found = false, interleaved = false;
    enum tp_code code = f->tried ? TP_OK : sort_quantizers(f);
    if (code || (code = find_marker(f, tensor, &marked.by, &says)))
        return code;
    marked.says = says;
    code = first_match(f, &marked, tensor, UINT32_MAX, &weight, &found);
    if (code == TP_OK && found)
        code = resolve_width(f, &marked, tensor, &weight);
    free(says);
    if (code || !found)
        return code;
    tp_finder_no_tensors(&weight);
    form.dtype = TP_BF16;
    const uint64_t sizes[2] = {form.box.n, form.box.k}, one[2] = {1, 1};
    if (form.rank == 3)
        tp_finder_stack(f, tensor, sizes, one, &layout, &interleaved);
    form.interleaved = form.rank == 3 && (form.as->interleaved || interleaved);
    return tp_finder_add(f, &weight, tensor->name, base_of(form.as, tensor->name));
}
