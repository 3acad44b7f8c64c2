/* Values of a region: strips of whole granules are read and decoded, rows cut out
 * of them. Memory is bounded by one strip, whatever the region. */
#include "pack/inspect/inspect.h"

#include "base/num.h"
#include "pack/plan/cut/box.h"
#include "pack/os/buffer.h"
#include "pack/os/os.h"
#include "pack/run/packed_io.h"
#include "pack/source/weight_complete.h"

#include <stdlib.h>
#include <string.h>

enum tp_code tp_inspect_region(const struct tp_subject *subject, struct tp_region *region,
                               struct tp_err *err)
{
    struct tp_box3 box = subject->box;
    if (!box.e || !box.n || !box.k)
        return tp_fail(err, TP_E_USAGE, "the tensor is empty: a dimension is 0");
    if (region->e >= box.e || region->n0 >= box.n || region->k0 >= box.k) {
        char dim = region->e >= box.e ? 'e' : region->n0 >= box.n ? 'n' : 'k';
        uint64_t extent = dim == 'e' ? box.e : dim == 'n' ? box.n : box.k;
        uint64_t begin = dim == 'e' ? region->e : dim == 'n' ? region->n0 : region->k0;
        tp_err_hint(err, "%c is 0 to %llu", dim, (unsigned long long)extent - 1);
        return tp_fail(err, TP_E_USAGE, "%c=%llu is outside of the box [%llu,%llu,%llu]", dim,
                       (unsigned long long)begin, (unsigned long long)box.e,
                       (unsigned long long)box.n, (unsigned long long)box.k);
    }
    region->n1 = tp_min_u64(region->n1, box.n);
    region->k1 = tp_min_u64(region->k1, box.k);
    if (region->n0 < region->n1 && region->k0 < region->k1)
        return TP_OK;
    return tp_refuse(err, TP_E_USAGE, "ranges are BEGIN:END, the end not included",
                     "the range is empty");
}

struct strip {
    struct tp_buffer source[TP_MAX_OUT], values, scratch, row;
};

static void strip_free(struct strip *s)
{
    for (int i = 0; i < TP_MAX_OUT; i++)
        free(s->source[i].data);
    free(s->values.data);
    free(s->scratch.data);
    free(s->row.data);
}

/* All rows and columns of the segment of an expert that row n lies in. */
static struct tp_box whole_segment(const struct tp_weight *weight, uint64_t e, uint64_t n)
{
    uint64_t rows = tp_op_segment_rows(&weight->form->op, weight->form->box.n);
    return (struct tp_box){e, n / rows * rows, 0, {1, rows, weight->form->box.k}};
}

/* Whether the box is stored like a small weight inside of every output. */
static bool is_embedded(const struct tp_weight *weight, const struct tp_box *box)
{
    for (uint32_t i = 0; i < weight->form->op.outs; i++) {
        struct tp_layout part, whole;
        uint64_t base;
        if (weight->form->op.out[i].layout &&
            (tp_box_layouts(&weight->form->op, i, weight->form->box, box, &part, &whole, &base,
                            NULL) ||
             !tp_layout_embeds(&part, &whole)))
            return false;
    }
    return true;
}

/* Reads and decodes the granules around row n; *cover is what s->values holds. */
static enum tp_code decode_strip(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 const struct tp_region *region, uint64_t n, struct strip *s,
                                 struct tp_box *cover, struct tp_err *err)
{
    *cover = (struct tp_box){.e = region->e};
    enum tp_code code =
        tp_weight_cover(weight, n, 1, region->k0, region->k1 - region->k0, cover, err);
    if (code == TP_OK && !is_embedded(weight, cover))
        *cover = whole_segment(weight, region->e, n);
    struct tp_args args = {.box = cover->size, .dtype = TP_F32, .global = weight->global};
    uint64_t bytes = 0;
    if (code == TP_OK && (!tp_mul_u64(&bytes, cover->size.n, cover->size.k) ||
                          !tp_mul_u64(&bytes, bytes, sizeof(float))))
        code = tp_fail(err, TP_E_UNSUPPORTED, "a granule of this weight does not fit memory");
    if (code || (code = tp_packed_read(ckpt, weight, cover, s->source, err)) ||
        (code = tp_buffer_reserve(&s->values, bytes, err)) ||
        (code = tp_buffer_reserve(&s->scratch, tp_decode_scratch(&weight->form->op, cover->size),
                                  err)))
        return code;
    for (uint32_t i = 0; i < weight->form->op.outs; i++)
        args.in[i] = s->source[i].data;
    if ((code = tp_source_scale_luts_check(&weight->form->op, cover->size, args.in, err)))
        return code;
    args.out[0] = s->values.data;
    args.scratch = s->scratch.data;
    tp_decode_find(&weight->form->op, TP_F32)(&weight->form->op, &args);
    return tp_args_check(&args, err);
}

static enum tp_code packed_rows(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                const struct tp_region *region, struct strip *s,
                                tp_row_visit visit, void *arg, struct tp_err *err)
{
    struct tp_box cover = {.n = 1};
    uint64_t count = region->k1 - region->k0;
    double *row = s->row.data;
    enum tp_code code = TP_OK;
    for (uint64_t n = region->n0; n < region->n1 && code == TP_OK; n++) {
        if (cover.size.n == 0 || n >= cover.n + cover.size.n)
            code = decode_strip(ckpt, weight, region, n, s, &cover, err);
        if (code)
            break;
        const float *from = (const float *)s->values.data + (n - cover.n) * cover.size.k +
                            (region->k0 - cover.k);
        for (uint64_t i = 0; i < count; i++)
            row[i] = from[i];
        code = visit(arg, n, row, count, err);
    }
    return code;
}

static void numbers(enum tp_dtype dtype, const uint8_t *from, uint64_t first, uint64_t count,
                    double *row)
{
    unsigned bits = tp_dtype_bits(dtype);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t raw[8] = {0};
        if (bits == 4)
            raw[0] = from[(first + i) / 2] >> ((first + i) % 2 ? 4 : 0) & 15;
        else
            memcpy(raw, from + (first + i) * (bits / 8), bits / 8);
        tp_raw_number(dtype, raw, &row[i]);
    }
}

static enum tp_code plain_rows(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                               const struct tp_region *region, struct strip *s,
                               tp_row_visit visit, void *arg, struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[subject->tensor];
    unsigned bits = tp_dtype_bits(tensor->dtype);
    uint64_t count = region->k1 - region->k0;
    uint8_t none[8] = {0};
    double probe;
    if (bits % 4 || bits > 64 || !tp_raw_number(tensor->dtype, none, &probe))
        return tp_fail(err, TP_E_UNSUPPORTED, "values of %s cannot be shown",
                       tp_dtype_name(tensor->dtype));
    enum tp_code code = tp_buffer_reserve(&s->values, count * bits / 8 + 2, err);
    for (uint64_t n = region->n0; n < region->n1 && code == TP_OK; n++) {
        uint64_t at = (region->e * subject->box.n + n) * subject->box.k + region->k0;
        uint64_t byte = bits == 4 ? at / 2 : at * (bits / 8);
        uint64_t end = bits == 4 ? (at + count + 1) / 2 : byte + count * (bits / 8);
        code = tp_checkpoint_read(ckpt, tensor->file, s->values.data, end - byte,
                                  tensor->offset + byte, err);
        if (code)
            break;
        numbers(tensor->dtype, s->values.data, bits == 4 ? at % 2 : 0, count, s->row.data);
        code = visit(arg, n, s->row.data, count, err);
    }
    return code;
}

enum tp_code tp_inspect_values(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                               const struct tp_region *region, tp_row_visit visit, void *arg,
                               struct tp_err *err)
{
    struct strip s = {.row = {0}};
    enum tp_code code =
        tp_buffer_reserve(&s.row, (region->k1 - region->k0) * sizeof(double), err);
    if (code == TP_OK)
        code = subject->weight
                   ? packed_rows(ckpt, subject->weight, region, &s, visit, arg, err)
                   : plain_rows(ckpt, subject, region, &s, visit, arg, err);
    strip_free(&s);
    return code;
}
