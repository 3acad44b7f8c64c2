/* Scale bytes of packed weights, read expert by expert; see source_bytes.h. Padding is not looked
 * at: what lies where is asked of the layouts.
 */
#include "pack/source/source_bytes.h"

#include "base/num.h"
#include "kernels/op/word_bits.h"
#include "pack/os/os.h"
#include "pack/source/source_check.h"

#include <stdlib.h>

/* One output of one expert (or of one of its stretches) in memory. */
struct slab {
    const struct tp_op_out *out;
    struct tp_layout layout;
    uint8_t *data;
    uint64_t first; /* element of the tensor with which `data` begins */
    uint64_t *at_k; /* offset of each stored column */
    uint64_t columns;
};

static void slab_close(struct slab *slab)
{
    free(slab->data);
    free(slab->at_k);
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

static enum tp_code slab_columns(struct slab *slab, uint64_t k, struct tp_err *err)
{
    slab->columns = tp_ceil_div(k, slab->out->per_k);
    slab->at_k = tp_os_zalloc(slab->columns, sizeof *slab->at_k, err);
    for (uint64_t c = 0; slab->at_k && c < slab->columns; c++)
        slab->at_k[c] = tp_layout_dim_at(&slab->layout.dim[TP_DIM_K], c);
    return slab->at_k ? TP_OK : TP_E_MEMORY;
}

/* Reads output i of what the layout counts as expert e. Bits may be moved in words: it begins
 * and ends with whole ones. */
static enum tp_code slab_read(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                              int i, uint64_t e, struct slab *slab, struct tp_err *err)
{
    const struct tp_op *op = &weight->form->op;
    const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[i]];
    unsigned bits = tp_element_bits(op->out[i].element), word = TP_WORD_BITS / bits;
    *slab = (struct slab){.out = &op->out[i]};
    enum tp_code code =
        tp_op_whole_layout(op, (uint32_t)i, weight->form->box, &slab->layout, err);
    if (code || (code = slab_columns(slab, weight->form->box.k, err)))
        return code;
    uint64_t from = tp_layout_dim_at(&slab->layout.dim[TP_DIM_E], e);
    slab->first = from / word * word;
    uint64_t begin = slab->first * bits / 8;
    uint64_t end = tp_ceil_div(from + span(&slab->layout), word) * word * bits / 8;
    end = tp_min_u64(end, tensor->bytes);
    if (!(slab->data = tp_os_alloc(end - begin, err)))
        return TP_E_MEMORY;
    code = tp_checkpoint_read(ckpt, tensor->file, slab->data, end - begin, tensor->offset + begin,
                              err);
    if (code)
        tp_err_tensor(err, tensor->name);
    return code;
}

/* Offset in the slab of stored row n, that of its first column. */
static uint64_t slab_row(const struct slab *slab, uint64_t e, uint64_t n)
{
    return tp_layout_dim_at(&slab->layout.dim[TP_DIM_E], e) +
           tp_layout_dim_at(&slab->layout.dim[TP_DIM_N], n) - slab->first;
}

/* Whether any of the codes [k0, k1) of a row is not zero; the sign does not count. */
static bool holds_any(const struct slab *codes, uint64_t row, uint64_t k0, uint64_t k1)
{
    for (uint64_t k = k0; k < k1; k++)
        if (tp_bits_load(codes->out->word_bits, codes->data, row + codes->at_k[k], 4) & 7)
            return true;
    return false;
}

struct reader {
    const struct tp_checkpoint *ckpt;
    const struct tp_weight *weight;
    bool held;
    bool counts[256]; /* bytes that are numbers */
    uint64_t entered; /* the expert of the slabs, plus 1 */
    struct slab scales, codes;
};

static enum tp_code enter(struct reader *r, uint64_t e, struct tp_err *err)
{
    const struct tp_op *op = &r->weight->form->op;
    if (r->entered == e + 1)
        return TP_OK;
    slab_close(&r->scales);
    slab_close(&r->codes);
    r->scales = r->codes = (struct slab){0};
    r->entered = e + 1;
    enum tp_code code =
        slab_read(r->ckpt, r->weight, tp_op_find(op, TP_ROLE_SCALE), e, &r->scales, err);
    if (code == TP_OK && r->held)
        code = slab_read(r->ckpt, r->weight, tp_op_find(op, TP_ROLE_CODES), e, &r->codes, err);
    return code;
}

/* Row n of what the layouts count as expert e. */
static void add_row(const struct reader *r, uint64_t e, uint64_t n, struct tp_byte_range *range)
{
    uint64_t row = slab_row(&r->scales, e, n / tp_max_u64(r->scales.out->per_n, 1));
    uint64_t codes = r->held ? slab_row(&r->codes, e, n) : 0;
    uint64_t per_k = r->scales.out->per_k, k = r->weight->form->box.k;
    for (uint64_t c = 0; c < r->scales.columns; c++) {
        int byte = r->scales.data[row + r->scales.at_k[c]];
        bool outside = byte < range->least || byte > range->most;
        if (!outside || !r->counts[byte] ||
            (r->held && !holds_any(&r->codes, codes, c * per_k, tp_min_u64((c + 1) * per_k, k))))
            continue;
        range->least = byte < range->least ? byte : range->least;
        range->most = byte > range->most ? byte : range->most;
    }
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

enum tp_code tp_source_bytes(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                             const struct tp_expert_rows *rows, bool held,
                             struct tp_byte_range *range, struct tp_err *err)
{
    const struct tp_op *op = &weight->form->op;
    struct reader r = {.ckpt = ckpt, .weight = weight, .held = held};
    enum tp_code code = TP_OK;
    find_numbers(&r);
    for (uint64_t i = 0; i < rows->rows && code == TP_OK; i++) {
        uint64_t e = rows->expert, n = rows->row + i * tp_max_u64(rows->step, 1);
        tp_op_fold(op, (uint32_t)tp_op_find(op, TP_ROLE_CODES), weight->form->box.n, &e, &n);
        if ((code = enter(&r, e, err)) == TP_OK)
            add_row(&r, e, n, range);
    }
    slab_close(&r.scales);
    slab_close(&r.codes);
    return code;
}
