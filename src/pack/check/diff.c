/* Diff: pairs what the two sides hold by name, then compares pair by pair.
 *
 * What a side holds: packed weights that the other side has packed under the same
 * name, the plain tensors that all other weights are or stand for, and the tensors
 * that are no weights.
 */
#include "pack/check/diff.h"

#include "base/num.h"
#include "kernels/op/distance.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"
#include "pack/plan/unit/origin.h"
#include "pack/plan/unit/build.h"
#include "pack/run/budget.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK (UINT64_C(1) << 20)

/* One thing to compare: a unit, or a tensor that is no weight. */
struct entry {
    const char *name;
    const struct tp_unit *unit;     /* NULL: a tensor */
    const struct tp_tensor *tensor; /* of a plain weight too */
    const char *form;
    bool packed;                    /* some of it is stored packed */
};

struct side {
    const struct tp_side *in;
    struct tp_plan plain;     /* units of plain tensors; kept_units: packed pairs */
    struct entry *entries;    /* by name */
    size_t count;
    bool *paired;             /* per weight: compared as a packed unit */
    bool *unused;             /* per tensor: stands beside a weight and says nothing */
};

struct diff {
    struct side a, b;
    const struct tp_diff_options *options;
    struct tp_diff *out;
    struct tp_buffer *bytes; /* two for all tensors: freed each time they leave holes in the heap */
    struct tp_err *err;
};

/* Zero points, act-order and config.json say what the codes mean: without them a weight of
 * another tool would be decoded as what it is not. */
static enum tp_code check_sources(struct side *s, struct tp_err *err)
{
    struct tp_request request = {0};
    struct tp_builder builder = {.plan = &s->plain, .request = &request, .left_out = s->unused,
                                 .err = err};
    enum tp_code code = tp_plan_check_sources(&builder);
    if (code)
        tp_err_path(err, s->in->ckpt->path);
    return code;
}

/* ---- pairing packed weights -------------------------------------------------- */

static int by_weight_name(const void *x, const void *y, void *items)
{
    const struct tp_weight *weights = items;
    return strcmp(weights[*(const uint32_t *)x].name, weights[*(const uint32_t *)y].name);
}

static enum tp_code packed_by_name(const struct side *s, uint32_t **list, size_t *count,
                                   struct tp_err *err)
{
    const struct tp_weights *weights = s->in->weights;
    *count = 0;
    if (!(*list = tp_os_zalloc(weights->count + 1, sizeof **list, err)))
        return TP_E_MEMORY;
    for (uint32_t w = 0; w < weights->count; w++)
        if (weights->items[w].form->format)
            (*list)[(*count)++] = w;
    qsort_r(*list, *count, sizeof **list, by_weight_name, weights->items);
    return TP_OK;
}

static bool same_origin(const struct tp_origin *a, const struct tp_origin *b)
{
    return strcmp(a->name, b->name) == 0 && a->row == b->row && a->rows == b->rows &&
           tp_max_u64(a->step, 1) == tp_max_u64(b->step, 1) && a->expert == b->expert &&
           a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* Whether row n of one is row n of the other: some formats store up before gate. */
static enum tp_code same_rows(const struct diff *d, uint32_t a, uint32_t b, bool *same)
{
    struct tp_origin *lists[2] = {NULL, NULL};
    uint32_t counts[2] = {0, 0};
    enum tp_code code = tp_weight_origins(&d->a.plain, a, &lists[0], &counts[0], d->err);
    if (code == TP_OK)
        code = tp_weight_origins(&d->b.plain, b, &lists[1], &counts[1], d->err);
    *same = code == TP_OK && counts[0] == counts[1] &&
            tp_row_order_same(&d->a.in->weights->items[a].form->settings.rows,
                              &d->b.in->weights->items[b].form->settings.rows);
    for (uint32_t i = 0; *same && i < counts[0]; i++)
        *same = same_origin(&lists[0][i], &lists[1][i]);
    for (int s = 0; s < 2; s++)
        tp_origins_free(lists[s], counts[s]);
    return code;
}

static void pair_none(struct diff *d)
{
    memset(d->a.paired, 0, d->a.in->weights->count * sizeof *d->a.paired);
    memset(d->b.paired, 0, d->b.in->weights->count * sizeof *d->b.paired);
}

/* Marks weights that are packed on both sides under one name and of one shape. None, where the
 * rows of one are others on the other side: a plain tensor may have become several weights, and
 * is there only if none of them is compared as it is packed. */
static enum tp_code pair_packed(struct diff *d)
{
    uint32_t *a = NULL, *b = NULL;
    size_t a_count = 0, b_count = 0, j = 0;
    bool same = true;
    enum tp_code code = packed_by_name(&d->a, &a, &a_count, d->err);
    if (code == TP_OK)
        code = packed_by_name(&d->b, &b, &b_count, d->err);
    for (size_t i = 0; i < a_count && code == TP_OK && same; i++) {
        const struct tp_weight *x = &d->a.in->weights->items[a[i]];
        while (j < b_count && strcmp(d->b.in->weights->items[b[j]].name, x->name) < 0)
            j++;
        if (j == b_count)
            break;
        const struct tp_weight *y = &d->b.in->weights->items[b[j]];
        if (strcmp(x->name, y->name) == 0 &&
            memcmp(&x->form->box, &y->form->box, sizeof x->form->box) == 0 &&
            x->form->rank == y->form->rank) {
            d->a.paired[a[i]] = d->b.paired[b[j]] = true;
            code = same_rows(d, a[i], b[j], &same);
        }
    }
    if (!same)
        pair_none(d);
    free(a);
    free(b);
    return code;
}

/* ---- what a side holds -------------------------------------------------------- */

static const char *unit_form(const struct side *s, const struct tp_unit *unit)
{
    const struct tp_weight *weight = &s->in->weights->items[unit->views[0].weight];
    return weight->form->format ? weight->form->format->name : tp_dtype_name(weight->form->stored);
}

static void add_unit_entry(struct side *s, const struct tp_unit *unit)
{
    const struct tp_weight *weight = &s->in->weights->items[unit->views[0].weight];
    s->entries[s->count++] = (struct entry){
        .name = unit->name, .unit = unit, .form = unit_form(s, unit),
        .packed = weight->form->format != NULL,
        .tensor = weight->form->format ? NULL : &s->in->ckpt->tensors[weight->tensor[0]],
    };
}

static int by_name(const void *x, const void *y)
{
    return strcmp(((const struct entry *)x)->name, ((const struct entry *)y)->name);
}

/* Units of the weights; those that are paired stay as they are packed. */
static enum tp_code list_side(struct diff *d, struct side *s)
{
    struct tp_request request = {0};
    struct tp_builder builder = {.plan = &s->plain, .request = &request, .left_out = s->unused,
                                 .err = d->err};
    const struct tp_weights *weights = s->in->weights;
    enum tp_code code = tp_plan_plain_units(&builder, TP_F32, true, s->paired);
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        if (s->paired[w])
            code = tp_plan_keep_weight(&builder, w, NULL);
    size_t max = s->plain.unit_count + s->plain.kept_unit_count + weights->other_count;
    if (code == TP_OK && !(s->entries = tp_os_zalloc(max + 1, sizeof *s->entries, d->err)))
        code = TP_E_MEMORY;
    if (code)
        return code;
    for (size_t u = 0; u < s->plain.unit_count; u++)
        add_unit_entry(s, &s->plain.units[u]);
    for (size_t u = 0; u < s->plain.kept_unit_count; u++)
        add_unit_entry(s, &s->plain.kept_units[u]);
    for (size_t i = 0; i < weights->other_count; i++) {
        const struct tp_tensor *tensor = &s->in->ckpt->tensors[weights->other[i]];
        if (s->unused[weights->other[i]])
            continue;
        s->entries[s->count++] = (struct entry){.name = tensor->name, .tensor = tensor,
                                                .form = tp_dtype_name(tensor->dtype)};
    }
    qsort(s->entries, s->count, sizeof *s->entries, by_name);
    return TP_OK;
}

/* A bias that is packed: [N], or [E,N] of a stack, to all who read it. */
static bool is_bias(const struct entry *e)
{
    return e->unit && (e->unit->form->flat ||
                       (e->unit->form->format && e->unit->form->format->is_bias));
}

static uint32_t entry_shape(const struct entry *e, uint64_t shape[TP_ST_MAX_RANK])
{
    if (!e->unit) {
        memcpy(shape, e->tensor->shape, TP_ST_MAX_RANK * sizeof *shape);
        return e->tensor->rank;
    }
    uint32_t rank = 0;
    if (e->unit->form->rank == 3)
        shape[rank++] = e->unit->form->box.e;
    shape[rank++] = e->unit->form->box.n;
    if (!is_bias(e))
        shape[rank++] = e->unit->form->box.k;
    return rank;
}

/* ---- comparing ---------------------------------------------------------------- */

/* Whether `bytes` of the two tensors are equal; counts those that are not. */
static enum tp_code compare_bytes(const struct diff *d, const struct tp_tensor *a,
                                  const struct tp_tensor *b, uint64_t *differing, uint64_t *first)
{
    struct tp_buffer *x = &d->bytes[0], *y = &d->bytes[1];
    enum tp_code code = tp_buffer_reserve(x, CHUNK, d->err);
    *differing = *first = 0;
    if (code == TP_OK)
        code = tp_buffer_reserve(y, CHUNK, d->err);
    for (uint64_t at = 0; at < a->bytes && code == TP_OK; at += CHUNK) {
        uint64_t size = tp_min_u64(CHUNK, a->bytes - at);
        const uint8_t *p = x->data, *q = y->data;
        if ((code = tp_checkpoint_read(d->a.in->ckpt, a->file, x->data, size, a->offset + at,
                                       d->err)) ||
            (code = tp_checkpoint_read(d->b.in->ckpt, b->file, y->data, size, b->offset + at,
                                       d->err)))
            break;
        if (memcmp(p, q, size) == 0)
            continue;
        for (uint64_t i = 0; i < size; i++)
            if (p[i] != q[i] && (*differing)++ == 0)
                *first = at + i;
    }
    return code;
}

/* Float tensors that are no matrices: norms, biases. */
static enum tp_code compare_vectors(const struct diff *d, const struct tp_tensor *a,
                                    const struct tp_tensor *b, struct tp_distance *distance)
{
    const struct tp_tensor *tensors[] = {a, b};
    const struct tp_side *sides[] = {d->a.in, d->b.in};
    struct tp_buffer raw = {0}, values[2] = {0};
    uint64_t step = CHUNK / sizeof(float), count = a->bytes * 8 / tp_dtype_bits(a->dtype);
    enum tp_code code = tp_buffer_reserve(&raw, CHUNK, d->err);
    *distance = (struct tp_distance){0};
    for (int s = 0; s < 2 && code == TP_OK; s++)
        code = tp_buffer_reserve(&values[s], CHUNK, d->err);
    for (uint64_t at = 0; at < count && code == TP_OK; at += step) {
        uint64_t size = tp_min_u64(step, count - at);
        for (int s = 0; s < 2 && code == TP_OK; s++) {
            uint64_t width = tp_dtype_bits(tensors[s]->dtype) / 8;
            code = tp_checkpoint_read(sides[s]->ckpt, tensors[s]->file, raw.data, size * width,
                                      tensors[s]->offset + at * width, d->err);
            if (code == TP_OK)
                tp_widen(tensors[s]->dtype, raw.data, size, values[s].data);
        }
        struct tp_distance part;
        if (code == TP_OK) {
            tp_distance_of(TP_F32, values[0].data, values[1].data, size, size, &part);
            tp_distance_add(distance, &part, at);
        }
    }
    tp_buffer_free(&raw);
    tp_buffer_free(&values[0]);
    tp_buffer_free(&values[1]);
    return code;
}

/* Whether an int weight has scales finer than bf16, to which they are rounded where its rule of
 * scales says so. */
static bool has_fine_scales(const struct tp_op *op)
{
    int s = tp_op_find(op, TP_ROLE_SCALE);
    return tp_op_is_int(op) && s >= 0 && op->out[s].element != TP_ELEM_BF16;
}

/* Equal bytes mean equal values, whichever program wrote them. */
static bool same_form(const struct tp_op *a, const struct tp_op *b)
{
    struct tp_op as_b = *a;
    if (has_fine_scales(a) && has_fine_scales(b))
        as_b.scale_rule = b->scale_rule;
    return tp_op_same(&as_b, b);
}

/* Packed alike, all the same tensors with equal bytes: no need to decode them. */
static enum tp_code equal_operands(const struct diff *d, const struct tp_unit *a,
                                   const struct tp_unit *b, bool *equal)
{
    const struct tp_weight *x = &d->a.in->weights->items[a->views[0].weight];
    const struct tp_weight *y = &d->b.in->weights->items[b->views[0].weight];
    enum tp_code code = TP_OK;
    *equal = same_form(&x->form->op, &y->form->op);
    for (uint32_t i = 0; *equal && i < x->form->op.outs && code == TP_OK; i++) {
        uint64_t differing, first;
        if (x->tensor[i] == TP_NO_TENSOR || y->tensor[i] == TP_NO_TENSOR) {
            *equal = x->tensor[i] == y->tensor[i]; /* what is optional says something, too */
            continue;
        }
        const struct tp_tensor *p = &d->a.in->ckpt->tensors[x->tensor[i]];
        const struct tp_tensor *q = &d->b.in->ckpt->tensors[y->tensor[i]];
        *equal = p->bytes == q->bytes && p->dtype == q->dtype;
        if (*equal && (code = compare_bytes(d, p, q, &differing, &first)) == TP_OK)
            *equal = differing == 0;
    }
    return code;
}

/* Scales that were rounded when the values were compared: other bytes are a difference. */
static enum tp_code compare_scales(const struct diff *d, const struct tp_unit *a,
                                   const struct tp_unit *b, struct tp_diff_item *item)
{
    const struct tp_weight *x = &d->a.in->weights->items[a->views[0].weight];
    const struct tp_weight *y = &d->b.in->weights->items[b->views[0].weight];
    bool rounded = x->form->op.scale_rule == TP_INT_SCALE_BF16 ||
                   y->form->op.scale_rule == TP_INT_SCALE_BF16;
    if (!rounded || !has_fine_scales(&x->form->op) || !same_form(&x->form->op, &y->form->op))
        return TP_OK;
    int s = tp_op_find(&x->form->op, TP_ROLE_SCALE);
    const struct tp_tensor *p = &d->a.in->ckpt->tensors[x->tensor[s]];
    const struct tp_tensor *q = &d->b.in->ckpt->tensors[y->tensor[s]];
    if (p->bytes != q->bytes || p->dtype != q->dtype)
        return TP_OK;
    enum tp_code code = compare_bytes(d, p, q, &item->bytes, &item->first_byte);
    if (item->bytes)
        item->kind = TP_DIFF_SCALES;
    return code;
}

static enum tp_code compare_units(const struct diff *d, const struct entry *a,
                                  const struct entry *b, struct tp_diff_item *item)
{
    bool equal = false, as_packed = a->packed && b->packed && a->unit->form->format &&
                                    b->unit->form->format;
    enum tp_code code = TP_OK;
    if (!a->packed && !b->packed && a->tensor->dtype == b->tensor->dtype) {
        code = compare_bytes(d, a->tensor, b->tensor, &item->bytes, &item->first_byte);
        equal = item->bytes == 0;
    } else if (as_packed) {
        code = equal_operands(d, a->unit, b->unit, &equal);
    }
    if (code || equal)
        return code;
    item->numeric = true;
    code = tp_compare_units(d->a.in, a->unit, d->b.in, b->unit, d->options->jobs, d->options->stop,
                            &item->distance, d->err);
    item->kind = item->distance.differing || item->bytes ? TP_DIFF_VALUES : TP_DIFF_SAME;
    if (code == TP_OK && as_packed && item->kind == TP_DIFF_SAME)
        code = compare_scales(d, a->unit, b->unit, item);
    return code;
}

static enum tp_code compare_tensors(const struct diff *d, const struct tp_tensor *a,
                                    const struct tp_tensor *b, struct tp_diff_item *item)
{
    enum tp_code code = TP_OK;
    if (a->dtype == b->dtype) {
        code = compare_bytes(d, a, b, &item->bytes, &item->first_byte);
        item->kind = item->bytes ? TP_DIFF_VALUES : TP_DIFF_SAME;
        if (code || !item->bytes)
            return code;
    }
    if (tp_dtype_is_float(a->dtype) && tp_dtype_is_float(b->dtype)) {
        item->numeric = true;
        code = compare_vectors(d, a, b, &item->distance);
    }
    return code;
}

static int by_bias_name(const void *name, const void *weight)
{
    return strcmp(name, ((const struct tp_weight *)weight)->name);
}

/* *e, a plain tensor or matrix, as the unit that it is when it is a bias; else it is none. */
static enum tp_code as_bias(struct side *s, struct entry *e, struct tp_unit *unit,
                            struct tp_err *err)
{
    const struct tp_weights *weights = s->in->weights;
    const struct tp_weight *biases = weights->items + weights->count;
    const struct tp_weight *found =
        weights->biases ? bsearch(e->name, biases, weights->biases, sizeof *biases, by_bias_name)
                        : NULL;
    e->unit = found ? unit : NULL;
    return !found ? TP_OK
                  : tp_unit_of_weight(&s->plain, unit, TP_UNIT_PLAIN,
                                      (uint32_t)(found - weights->items), err);
}

/* A bias that is packed, with one that is plain. */
static enum tp_code compare_bias(struct diff *d, struct entry a, struct entry b,
                                 struct tp_diff_item *item)
{
    struct tp_unit unit;
    enum tp_code code = is_bias(&a) ? as_bias(&d->b, &b, &unit, d->err)
                                    : as_bias(&d->a, &a, &unit, d->err);
    item->kind = TP_DIFF_DTYPE;
    return code || !a.unit || !b.unit ? code : compare_units(d, &a, &b, item);
}

/* A pair of one name: shapes, then dtypes, then contents. */
static enum tp_code compare(struct diff *d, const struct entry *a, const struct entry *b,
                            struct tp_diff_item *item)
{
    enum tp_code code;
    if (item->rank_a != item->rank_b ||
        memcmp(item->shape_a, item->shape_b, item->rank_a * sizeof *item->shape_a) != 0) {
        item->kind = TP_DIFF_SHAPE;
        return TP_OK;
    }
    if (is_bias(a) != is_bias(b))
        return compare_bias(d, *a, *b, item);
    if (a->unit && b->unit)
        code = compare_units(d, a, b, item);
    else if (a->tensor && b->tensor)
        code = compare_tensors(d, a->tensor, b->tensor, item);
    else { /* a weight here, and there a tensor that is none */
        item->kind = TP_DIFF_DTYPE;
        return TP_OK;
    }
    if (!a->packed && !b->packed && a->tensor->dtype != b->tensor->dtype)
        item->kind = TP_DIFF_DTYPE;
    return code;
}

static bool same_tensor_shape(const struct tp_tensor *a, const struct tp_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* Plain on both sides, but with rows and columns exchanged on one, where other weights are packed
 * and leave less to tell them by: the tensors are what is compared. */
static bool turned(const struct entry *a, const struct entry *b)
{
    return a->unit && b->unit && !a->packed && !b->packed &&
           a->unit->form->transposed != b->unit->form->transposed &&
           same_tensor_shape(a->tensor, b->tensor);
}

static enum tp_code add(struct diff *d, const struct entry *a, const struct entry *b)
{
    struct entry as_tensors[2];
    if (a && b && turned(a, b)) {
        as_tensors[0] = *a;
        as_tensors[1] = *b;
        as_tensors[0].unit = as_tensors[1].unit = NULL;
        a = &as_tensors[0];
        b = &as_tensors[1];
    }
    struct tp_diff *out = d->out;
    enum tp_code code = tp_os_grow((void **)&out->items, &out->capacity, out->count + 1,
                                   sizeof *out->items, d->err);
    if (code)
        return code;
    struct tp_diff_item *item = &out->items[out->count];
    *item = (struct tp_diff_item){
        .kind = a && b ? TP_DIFF_SAME : a ? TP_DIFF_ONLY_A : TP_DIFF_ONLY_B,
    };
    if (a) {
        item->form_a = a->form;
        item->rank_a = entry_shape(a, item->shape_a);
        item->name = tp_os_format(d->err, "%s", a->name);
    }
    if (b) {
        item->form_b = b->form;
        item->rank_b = entry_shape(b, item->shape_b);
        if (!a)
            item->name = tp_os_format(d->err, "%s", b->name);
    }
    if (!item->name)
        return TP_E_MEMORY;
    out->count++;
    if (a && b && (code = compare(d, a, b, item)))
        tp_err_tensor(d->err, item->name);
    out->differing += item->kind != TP_DIFF_SAME;
    return code;
}

static uint64_t bytes_of(const struct side *s, const struct entry *e)
{
    if (!e->unit)
        return e->tensor->bytes;
    const struct tp_weight *weight = &s->in->weights->items[e->unit->views[0].weight];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < TP_MAX_OUT; i++)
        if (weight->tensor[i] != TP_NO_TENSOR)
            bytes += s->in->ckpt->tensors[weight->tensor[i]].bytes;
    return tp_min_u64(bytes, e->unit->form->box.e * e->unit->form->box.n * e->unit->form->box.k *
                                 sizeof(float));
}

static void report_total(const struct diff *d)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < d->a.count; i++)
        bytes += bytes_of(&d->a, &d->a.entries[i]);
    if (d->options->total)
        d->options->total(d->options->progress_arg, bytes);
}

static enum tp_code compare_all(struct diff *d)
{
    size_t i = 0, j = 0;
    enum tp_code code = TP_OK;
    report_total(d);
    while ((i < d->a.count || j < d->b.count) && code == TP_OK) {
        int order = i == d->a.count   ? 1
                    : j == d->b.count ? -1
                                      : strcmp(d->a.entries[i].name, d->b.entries[j].name);
        const struct entry *a = order <= 0 ? &d->a.entries[i++] : NULL;
        const struct entry *b = order >= 0 ? &d->b.entries[j++] : NULL;
        if ((code = tp_stopped(d->options->stop, d->err)))
            return code;
        code = add(d, a, b);
        if (a && d->options->progress)
            d->options->progress(d->options->progress_arg, bytes_of(&d->a, a), a->name);
    }
    return code;
}

static void close_side(struct side *s)
{
    tp_plan_close(&s->plain);
    free(s->entries);
    free(s->paired);
    free(s->unused);
}

enum tp_code tp_diff(const struct tp_side *a, const struct tp_side *b,
                     const struct tp_diff_options *options, struct tp_diff *diff,
                     struct tp_err *err)
{
    struct tp_buffer bytes[2] = {{0}};
    struct diff d = {.a = {.in = a, .plain = {.ckpt = a->ckpt, .weights = a->weights}},
                     .b = {.in = b, .plain = {.ckpt = b->ckpt, .weights = b->weights}},
                     .options = options, .out = diff, .bytes = bytes, .err = err};
    *diff = (struct tp_diff){0};
    tp_budget_compare(a->ckpt, b->ckpt);
    d.a.paired = tp_os_zalloc(a->weights->count + 1, sizeof *d.a.paired, err);
    d.b.paired = tp_os_zalloc(b->weights->count + 1, sizeof *d.b.paired, err);
    d.a.unused = tp_os_zalloc(a->ckpt->tensor_count + 1, sizeof *d.a.unused, err);
    d.b.unused = tp_os_zalloc(b->ckpt->tensor_count + 1, sizeof *d.b.unused, err);
    enum tp_code code = d.a.paired && d.b.paired && d.a.unused && d.b.unused
                            ? check_sources(&d.a, err) : TP_E_MEMORY;
    if (code == TP_OK && (code = check_sources(&d.b, err)) == TP_OK)
        code = pair_packed(&d);
    if (code == TP_OK && (code = list_side(&d, &d.a)))
        tp_err_path(err, a->ckpt->path);
    if (code == TP_OK && (code = list_side(&d, &d.b)))
        tp_err_path(err, b->ckpt->path);
    if (code == TP_OK)
        code = compare_all(&d);
    close_side(&d.a);
    close_side(&d.b);
    tp_buffer_free(&bytes[0]);
    tp_buffer_free(&bytes[1]);
    if (code)
        tp_diff_close(diff);
    return code;
}

void tp_diff_close(struct tp_diff *diff)
{
    for (size_t i = 0; i < diff->count; i++)
        free(diff->items[i].name);
    free(diff->items);
    *diff = (struct tp_diff){0};
}
