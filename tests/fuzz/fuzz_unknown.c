/* Fuzz target: descriptors of formats that are not known, a NUL, and units, as a shard's
 * __metadata__ holds them.
 *
 * Beyond not crashing: a weight that is accepted can be decoded, whole and in boxes, with the
 * memory of what is stored, and every way gives the same values. Build: make fuzz.
 */
#include "folder.h"

#include "base/num.h"
#include "kernels/op/op_at.h"
#include "pack/source/descriptor.h"

#include <math.h>

enum { MAX_ELEMENTS = 1 << 14 }; /* elements of a weight, and of a layout, that are decoded */

/* Every element has a place of its own inside of the tensor. */
static bool check_places(const struct tp_weight_form *form)
{
    const uint64_t rows = tp_op_segment_rows(&form->op, form->box.n);
    bool small = form->box.e * form->box.n * form->box.k <= MAX_ELEMENTS;
    for (uint32_t i = 0; i < form->op.outs; i++) {
        const struct tp_op_out *out = &form->op.out[i];
        struct tp_layout whole;
        struct tp_err err = {0};
        uint64_t bytes;
        if (!out->layout)
            continue;
        must(tp_op_whole_layout(&form->op, i, form->box, &whole, &err) == TP_OK);
        must(tp_op_layout_bytes(&form->op, i, &whole, &bytes, &err) == TP_OK);
        uint64_t e = form->box.e - 1, n = form->box.n - 1, k = form->box.k - 1;
        tp_op_fold(&form->op, i, form->box.n, &e, &n);
        must(n < rows || !out->per_n);
        n = out->per_n ? n / out->per_n : 0;
        k = out->per_k ? k / out->per_k : 0;
        must(e < tp_layout_extent(&whole, TP_DIM_E) && n < tp_layout_extent(&whole, TP_DIM_N) &&
             k < tp_layout_extent(&whole, TP_DIM_K));
        must((tp_layout_at(&whole, e, n, k) + 1) * tp_element_bits(out->element) <= 8 * bytes);
        small &= tp_layout_size(&whole) <= MAX_ELEMENTS;
    }
    return small;
}

/* Bytes of each output of a box, the same for the same size. */
static void take(const struct tp_op *op, const struct tp_op_at *at, struct tp_args *args)
{
    for (uint32_t i = 0; i < op->outs; i++) {
        uint8_t *data = calloc(1, at->bytes[i] + 64);
        must(data != NULL);
        for (uint64_t b = 0; b < at->bytes[i] && op->out[i].role != TP_ROLE_ORDER; b++)
            data[b] = (uint8_t)(37 * b + 11 * i + b / 7);
        args->in[i] = op->out[i].role == TP_ROLE_WORDS ? NULL : data;
        if (op->out[i].role == TP_ROLE_WORDS)
            free(data);
    }
}

/* A box by the reference, and by the row that there is. */
static void decode(const struct tp_op *op, struct tp_box3 box)
{
    struct tp_err err = {0};
    struct tp_op_at at;
    float *a = calloc(box.n * box.k, sizeof *a), *b = calloc(box.n * box.k, sizeof *b);
    must(a && b);
    if (tp_op_at(op, box, false, &at, &err)) {
        free(a);
        free(b);
        return; /* which commands say */
    }
    struct tp_args args = {.box = box, .dtype = TP_F32, .global = 1.5f};
    take(op, &at, &args);
    args.scratch = calloc(1, tp_encode_scratch(op, box));
    must(args.scratch != NULL);
    args.out[0] = a;
    tp_decode_ref(op, &args);
    args.out[0] = b;
    args.from_at = &at;
    tp_decode_find(op, TP_F32)(op, &args);
    must(!(args.flags & TP_FAILED));
    for (uint64_t i = 0; i < box.n * box.k; i++)
        must(memcmp(&a[i], &b[i], sizeof *a) == 0 || (isnan(a[i]) && isnan(b[i])));
    for (uint32_t i = 0; i < op->outs; i++)
        free((void *)(uintptr_t)args.in[i]);
    free(args.scratch);
    free(a);
    free(b);
}

static void check(const struct tp_weight *weight)
{
    const struct tp_weight_form *form = weight->form;
    const struct tp_op *op = &form->op;
    struct tp_box3 box = {1, tp_op_segment_rows(op, form->box.n), form->box.k};
    uint64_t n, k;
    must(form->format && weight->name);
    if (!form->format->unknown || !check_places(form))
        return;
    decode(op, box);
    if (tp_op_stored_granule(op, &n, &k, NULL))
        return;
    box.n = tp_min_u64(box.n, tp_max_u64(n, 1));
    box.k = k ? tp_min_u64(box.k, k) : box.k;
    decode(op, box);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_weights weights = {.takes_unknown = true};
    struct tp_err err = {0};
    char *text = calloc(1, size + 2);
    must(text != NULL);
    memcpy(text, data, size);
    const char *units = text + strlen(text) + 1;
    enum tp_code code = tp_descriptors_parse(text, units, &weights, &err);
    must(code == err.code && (!code || (err.what[0] && err.hint[0])));
    for (size_t i = 0; i < weights.count && !code; i++)
        check(&weights.items[i]);
    tp_weights_close(&weights);
    free(text);
    return 0;
}
