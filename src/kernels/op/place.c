/* Tables of offsets by block; see place.h. Pure functions of a layout's numbers. */
#include "kernels/op/place.h"

#include "base/num.h"
#include "kernels/op/row_set.h"

enum { LEAST_ROWS = 64, LEAST_COLUMNS = 64 };

/* What a dimension repeats after: the product of all sizes but the last. */
static uint64_t period(const struct tp_layout_dim *dim)
{
    uint64_t product = 1;
    for (uint32_t m = 0; m + 1 < dim->modes; m++)
        product *= dim->size[m];
    return product;
}

struct tp_place_grid tp_place_grid_of(const struct tp_layout *layout)
{
    return (struct tp_place_grid){period(&layout->dim[TP_DIM_N]), period(&layout->dim[TP_DIM_K])};
}

/* The multiple of `unit` that reaches `least`, but not much more than `size`. */
static uint64_t enlarge(uint64_t unit, uint64_t least, uint64_t size)
{
    uint64_t wanted = tp_min_u64(least, tp_round_up(size, unit));
    return unit >= wanted ? unit : wanted / unit * unit;
}

bool tp_place_grid_grow(struct tp_place_grid *grid, struct tp_box3 box)
{
    if (grid->rows > TP_PLACE_ROWS || grid->columns > TP_PLACE_CODES)
        return false;
    const uint64_t most = TP_PLACE_CODES / grid->columns;
    grid->rows = enlarge(grid->rows, tp_min_u64(LEAST_ROWS, most), box.n);
    if (grid->columns < LEAST_COLUMNS && grid->rows * LEAST_COLUMNS <= TP_PLACE_CODES)
        grid->columns = enlarge(grid->columns, LEAST_COLUMNS, box.k);
    return grid->rows * grid->columns <= TP_PLACE_CODES;
}

struct mode {
    uint64_t size, stride;
    uint32_t step; /* in the block's own order */
};
enum { MODES = 2 * TP_LAYOUT_MODES };

/* The modes that `count` coordinates of a dimension go through; false: they end within one. */
static bool add_modes(const struct tp_layout_dim *dim, uint64_t count, uint32_t step,
                      struct mode mode[MODES], uint32_t *modes)
{
    for (uint32_t m = 0; m < dim->modes; m++) {
        uint64_t size = m + 1 == dim->modes ? count : dim->size[m];
        if (count % size != 0)
            return false;
        if (size > 1)
            mode[(*modes)++] = (struct mode){size, dim->stride[m], step};
        count /= size;
        step *= (uint32_t)size;
    }
    return true;
}

static void sort_by_stride(struct mode *mode, uint32_t modes)
{
    for (uint32_t i = 1; i < modes; i++)
        for (uint32_t j = i; j > 0 && mode[j].stride < mode[j - 1].stride; j--) {
            struct mode other = mode[j];
            mode[j] = mode[j - 1];
            mode[j - 1] = other;
        }
}

/* Where each place of a run lies in the block's own order: each size of a mode repeats those before
 * it. A box has tables of its own, so to divide for every entry would be felt. */
static void fill_length(const struct mode *mode, uint32_t modes, uint16_t *from)
{
    uint64_t filled = 1;
    from[0] = 0;
    for (uint32_t m = 0; m < modes; m++)
        for (uint64_t period = filled, end = period * mode[m].size; filled < end; filled++)
            from[filled] = (uint16_t)(from[filled - period] + mode[m].step);
}

/* The same of the runs, and where they lie in the output. */
static void fill_runs(const struct mode *mode, uint32_t modes, struct tp_place_run *run)
{
    uint64_t filled = 1;
    run[0] = (struct tp_place_run){0, 0};
    for (uint32_t m = 0; m < modes; m++)
        for (uint64_t period = filled, end = period * mode[m].size; filled < end; filled++) {
            run[filled].at = run[filled - period].at + mode[m].stride;
            run[filled].from = run[filled - period].from + mode[m].step;
        }
}

static void *take(void **scratch, size_t bytes)
{
    void *at = *scratch;
    *scratch = (uint8_t *)at + (bytes + 63) / 64 * 64;
    return at;
}

/* Bytes of 4-bit codes have both halves from one run. */
static bool whole_bytes(const struct mode *outer, uint32_t modes, uint64_t length)
{
    bool even = length % 2 == 0;
    for (uint32_t m = 0; m < modes; m++)
        even &= outer[m].stride % 2 == 0;
    return even;
}

/* How many codes follow each other in a run as in a row of so many columns. */
static uint32_t span_of(const struct mode *mode, uint32_t modes, uint64_t columns)
{
    uint64_t span = 1;
    for (uint32_t m = 0; m < modes && mode[m].step == span && span < columns; m++)
        span *= mode[m].size;
    return (uint32_t)span;
}

bool tp_place_block_open(const struct tp_layout *layout, unsigned bits,
                         struct tp_place_grid size, struct tp_place_block *block,
                         void **scratch)
{
    struct mode mode[MODES];
    uint32_t modes = 0, inner = 0;
    uint64_t length = 1, count = size.rows * size.columns;
    if (!add_modes(&layout->dim[TP_DIM_N], size.rows, (uint32_t)size.columns, mode, &modes) ||
        !add_modes(&layout->dim[TP_DIM_K], size.columns, 1, mode, &modes))
        return false;
    sort_by_stride(mode, modes);
    while (inner < modes && mode[inner].stride == length)
        length *= mode[inner++].size;
    if (count > TP_PLACE_CODES || count / length > TP_PLACE_RUNS ||
        (bits < 8 && !whole_bytes(mode + inner, modes - inner, length)))
        return false;
    uint16_t *from = take(scratch, 2 * length);
    struct tp_place_run *run = take(scratch, count / length * sizeof *run);
    fill_length(mode, inner, from);
    fill_runs(mode + inner, modes - inner, run);
    *block = (struct tp_place_block){(uint32_t)length, (uint32_t)(count / length),
                                     span_of(mode, inner, size.columns), from, run};
    return true;
}

/* How scales are stored is put on behind the rows, or codes are moved, and not both. */
enum { STORED_SCALES = TP_NEED_FACTOR | TP_NEED_E5M3, TAKEN = TP_NEED_REFERENCE | TP_NEED_LEAST };

static bool is_flat(uint32_t needs)
{
    const uint32_t more = needs & ~(uint32_t)TAKEN;
    return more == TP_NEED_MOVED || !(more & ~(uint32_t)STORED_SCALES);
}

static bool stores_scales(const struct tp_op *op) { return tp_op_needs(op) & STORED_SCALES; }

bool tp_flat_possible(const struct tp_op *op)
{
    int codes = tp_op_find(op, TP_ROLE_CODES), scale = tp_op_find(op, TP_ROLE_SCALE);
    if (codes < 0 || tp_op_find(op, TP_ROLE_GROUP8) >= 0 || !is_flat(tp_op_needs(op)))
        return false;
    if (tp_op_per_tensor(op))
        return true;
    return scale >= 0 && op->block_n >= 1 && op->block_n <= TP_PLACE_ROWS &&
           op->out[scale].per_n >= 1 && op->out[scale].per_n <= TP_PLACE_ROWS &&
           (op->out[scale].per_k == 0 || op->out[scale].per_k >= TP_PLACE_LEAST_GROUP);
}

bool tp_flat_differs(const struct tp_op *op)
{
    enum tp_place codes = tp_code_place(op), scale = tp_scale_place(op);
    if (codes == TP_PLACE_ANY || codes == TP_PLACE_COL || stores_scales(op))
        return true;
    return !tp_op_per_tensor(op) && (scale == TP_PLACE_ANY || scale == TP_PLACE_COL);
}

size_t tp_flat_bytes(struct tp_box3 box)
{
    return (size_t)(TP_PLACE_ROWS * (box.k + 4 * (box.k / TP_PLACE_LEAST_GROUP + 1)) + 4 * 64);
}

/* Numbers as the codec makes them. */
static void plain_scales(struct tp_op *op)
{
    for (uint32_t i = 0; i < op->outs; i++) {
        struct tp_op_out *out = &op->out[i];
        if (out->element == TP_ELEM_E5M3)
            out->element = TP_ELEM_E4M3;
        else if (out->role == TP_ROLE_SCALE && out->factor != 0)
            out->element = TP_ELEM_F32;
        out->factor = 0;
    }
}

void tp_flat_of(const struct tp_op *op, struct tp_flat *flat)
{
    int codes = tp_op_find(op, TP_ROLE_CODES), scale = tp_op_find(op, TP_ROLE_SCALE);
    flat->op = *op;
    if (stores_scales(op))
        plain_scales(&flat->op);
    flat->op.out[codes].layout = &tp_layout_dense;
    flat->op.out[codes].place = TP_PLACE_ROW;
    for (uint8_t i = 0; i < 16; i++)
        flat->op.table[i] = i;
    if (scale < 0)
        return;
    flat->layout = tp_layout_rows(op->out[scale].per_n, op->out[scale].per_k);
    flat->op.out[scale].layout = &flat->layout;
    flat->op.out[scale].place = TP_PLACE_ROW;
    flat->op.out[scale].least = 0;
}
