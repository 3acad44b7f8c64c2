/* Scale bytes of packed weights, and whether their blocks hold anything; see source_bytes.h.
 * Padding is not looked at: what lies where is asked of the layouts.
 *
 * Invariant: whatever the size of the weight, PAGES pages of each output are in memory, and of each
 * column an offset. Those of the columns that are looked at together have places of their own, but
 * where a single column is larger than PAGES pages.
 */
#include "pack/source/source_bytes.h"

#include "base/num.h"
#include "kernels/op/word_bits.h"
#include "pack/os/os.h"
#include "pack/source/weight_complete.h"

#include <stdlib.h>

enum { PAGES = 64, PAGE_BYTES = 1 << 16, NO_PAGE = 0 };

/* One output, of which the pages that were looked at last are in memory. */
struct stored {
    const struct tp_op_out *out;
    const struct tp_tensor *tensor;
    struct tp_layout layout;
    unsigned bits;
    uint64_t *at_k; /* offset of each stored column */
    uint64_t columns;
    uint64_t max_span; /* how far apart columns may lie that are looked at together */
    unsigned page_bits; /* 2^page_bits elements are a page, of whole words: bits may be moved */
    uint8_t *data;
    uint64_t page[PAGES]; /* the number of the page that lies there, plus 1; or NO_PAGE */
};

static void stored_close(struct stored *stored)
{
    free(stored->data);
    free(stored->at_k);
}

/* The elements from the first to the last coordinate of n and k. */
static uint64_t span(const struct tp_layout *layout)
{
    uint64_t elements = 1;
    for (int d = TP_DIM_N; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout->dim[d].modes; m++)
            elements += (layout->dim[d].size[m] - 1) * layout->dim[d].stride[m];
    return elements;
}

/* How far apart the rows lie that come back to the same pages while they are looked at one after
 * the other: those nearer to each other than the columns of one row are. */
static uint64_t rows_between(const struct tp_layout *layout)
{
    const struct tp_layout_dim *n = &layout->dim[TP_DIM_N], *k = &layout->dim[TP_DIM_K];
    uint64_t farthest = 0, inner = 0, all = 0;
    for (uint32_t m = 0; m < k->modes; m++)
        farthest = tp_max_u64(farthest, k->stride[m]);
    for (uint32_t m = 0; m < n->modes; m++) {
        all += (n->size[m] - 1) * n->stride[m];
        inner = n->stride[m] < farthest ? all : inner;
    }
    return inner;
}

static enum tp_code stored_open(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                int i, struct stored *stored, struct tp_err *err)
{
    const struct tp_op *op = &weight->form->op;
    stored->out = &op->out[i];
    stored->tensor = &ckpt->tensors[weight->tensor[i]];
    stored->bits = tp_element_bits(op->out[i].element);
    enum tp_code code =
        tp_op_whole_layout(op, (uint32_t)i, weight->form->box, &stored->layout, err);
    if (code)
        return code;
    /* of a small expert no more than that is read */
    uint64_t bytes = TP_WORD_BITS / 8, wanted = span(&stored->layout) * stored->bits / 8;
    while (bytes < wanted && bytes < PAGE_BYTES)
        bytes *= 2;
    while (stored->bits << stored->page_bits < bytes * 8)
        stored->page_bits++;
    /* elements no farther apart than this lie in PAGES pages, each of which has its own place */
    uint64_t together = (uint64_t)(PAGES - 1) << stored->page_bits;
    stored->max_span = together - tp_min_u64(rows_between(&stored->layout), together);
    stored->columns = tp_ceil_div(weight->form->box.k, stored->out->per_k);
    stored->at_k = tp_os_zalloc(stored->columns, sizeof *stored->at_k, err);
    stored->data = tp_os_alloc(PAGES * bytes, err);
    for (uint64_t c = 0; stored->at_k && c < stored->columns; c++)
        stored->at_k[c] = tp_layout_dim_at(&stored->layout.dim[TP_DIM_K], c);
    return stored->at_k && stored->data ? TP_OK : TP_E_MEMORY;
}

/* Brings the page to its place. */
static enum tp_code read_page(const struct tp_checkpoint *ckpt, struct stored *stored,
                              uint64_t page, struct tp_err *err)
{
    uint64_t place = page % PAGES, bytes = ((uint64_t)stored->bits << stored->page_bits) / 8;
    uint64_t begin = page * bytes;
    stored->page[place] = NO_PAGE;
    enum tp_code code = tp_checkpoint_read(ckpt, stored->tensor->file,
                                           stored->data + place * bytes,
                                           tp_min_u64(bytes, stored->tensor->bytes - begin),
                                           stored->tensor->offset + begin, err);
    if (code)
        tp_err_tensor(err, stored->tensor->name);
    else
        stored->page[place] = page + 1;
    return code;
}

/* Element `at`, of 4 or 8 bits. */
static inline enum tp_code load(const struct tp_checkpoint *ckpt, struct stored *stored,
                                uint64_t at, uint8_t *value, struct tp_err *err)
{
    uint64_t page = at >> stored->page_bits, place = page % PAGES;
    enum tp_code code = TP_OK;
    if (stored->page[place] != page + 1)
        code = read_page(ckpt, stored, page, err);
    if (code == TP_OK)
        *value = tp_bits_load(stored->out->word_bits, stored->data,
                              (place << stored->page_bits) +
                                  (at & ((UINT64_C(1) << stored->page_bits) - 1)), stored->bits);
    return code;
}

/* Offset of row n of what the layouts count as expert e, that of its first column. */
static uint64_t row_at(const struct stored *stored, uint64_t e, uint64_t n)
{
    return tp_layout_dim_at(&stored->layout.dim[TP_DIM_E], e) +
           tp_layout_dim_at(&stored->layout.dim[TP_DIM_N], n / tp_max_u64(stored->out->per_n, 1));
}

struct reader {
    const struct tp_checkpoint *ckpt;
    const struct tp_weight *weight;
    bool held;
    bool counts[256]; /* bytes that are numbers */
    struct stored scales, codes;
};

/* Whether any of the codes [k0, k1) of a row is not zero; the sign does not count. */
static enum tp_code holds_any(struct reader *r, uint64_t row, uint64_t k0, uint64_t k1, bool *any,
                              struct tp_err *err)
{
    enum tp_code code = TP_OK;
    uint8_t value = 0;
    for (uint64_t k = k0; k < k1 && !(value & 7) && code == TP_OK; k++)
        code = load(r->ckpt, &r->codes, row + r->codes.at_k[k], &value, err);
    *any = value & 7;
    return code;
}

/* The scales [c0, c1) of row n of what the layouts count as expert e. */
static enum tp_code add_row(struct reader *r, uint64_t e, uint64_t n, uint64_t c0, uint64_t c1,
                            struct tp_byte_range *range, struct tp_err *err)
{
    uint64_t row = row_at(&r->scales, e, n), codes = r->held ? row_at(&r->codes, e, n) : 0;
    uint64_t per_k = r->scales.out->per_k, k = r->weight->form->box.k;
    enum tp_code code = TP_OK;
    for (uint64_t c = c0; c < c1 && code == TP_OK; c++) {
        uint8_t byte = 0;
        if ((code = load(r->ckpt, &r->scales, row + r->scales.at_k[c], &byte, err)))
            return code;
        bool outside = byte < range->min || byte > range->max;
        bool any = outside && r->counts[byte];
        if (any && r->held)
            code = holds_any(r, codes, c * per_k, tp_min_u64((c + 1) * per_k, k), &any, err);
        if (code || !any)
            continue;
        range->min = byte < range->min ? byte : range->min;
        range->max = byte > range->max ? byte : range->max;
    }
    return code;
}

static void find_numbers(struct reader *r)
{
    const struct tp_op *op = &r->weight->form->op;
    enum tp_element element = op->out[tp_op_find(op, TP_ROLE_SCALE)].element;
    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        r->counts[b] = tp_source_scale_finite(element, &byte) &&
                       !(element == TP_ELEM_E4M3 && byte >= 0x80);
    }
}

/* How many scales of a row, from c0 on, are looked at before those of the next row: as many as have
 * their elements, `each` to a scale, in memory for all rows, so that no page is read again for each
 * row; and at least one. */
static uint64_t columns_together(const struct stored *stored, uint64_t c0, uint64_t each)
{
    uint64_t k = c0 * each, min = UINT64_MAX, max = 0;
    for (; k < stored->columns; k++) {
        min = tp_min_u64(min, stored->at_k[k]);
        max = tp_max_u64(max, stored->at_k[k]);
        if (max - min > stored->max_span)
            break;
    }
    uint64_t end = k < stored->columns ? k / each : tp_ceil_div(k, each);
    return tp_max_u64(end, c0 + 1) - c0;
}

static uint64_t columns_at_once(const struct reader *r, uint64_t c0)
{
    uint64_t max = columns_together(&r->scales, c0, 1);
    return r->held ? tp_min_u64(max, columns_together(&r->codes, c0, r->scales.out->per_k)) : max;
}

static enum tp_code add_rows(struct reader *r, const struct tp_expert_rows *rows,
                             struct tp_byte_range *range, struct tp_err *err)
{
    const struct tp_op *op = &r->weight->form->op;
    uint32_t codes = (uint32_t)tp_op_find(op, TP_ROLE_CODES);
    enum tp_code code = TP_OK;
    for (uint64_t c = 0, max; c < r->scales.columns && code == TP_OK; c += max) {
        max = columns_at_once(r, c);
        for (uint64_t i = 0; i < rows->rows && code == TP_OK; i++) {
            uint64_t e = rows->expert, n = rows->row + i * tp_max_u64(rows->step, 1);
            tp_op_fold(op, codes, r->weight->form->box.n, &e, &n);
            code = add_row(r, e, n, c, c + max, range, err);
        }
    }
    return code;
}

enum tp_code tp_source_bytes(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                             const struct tp_expert_rows *rows, bool held,
                             struct tp_byte_range *range, struct tp_err *err)
{
    const struct tp_op *op = &weight->form->op;
    struct reader r = {.ckpt = ckpt, .weight = weight, .held = held};
    find_numbers(&r);
    enum tp_code code =
        stored_open(ckpt, weight, tp_op_find(op, TP_ROLE_SCALE), &r.scales, err);
    if (code == TP_OK && held)
        code = stored_open(ckpt, weight, tp_op_find(op, TP_ROLE_CODES), &r.codes, err);
    if (code == TP_OK)
        code = add_rows(&r, rows, range, err);
    stored_close(&r.scales);
    stored_close(&r.codes);
    return code;
}
