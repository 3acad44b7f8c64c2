/* Boxes: choosing a grid, and the geometry of a box.
 *
 * An expert of 300 rows and 1024 columns, in boxes of 128 x 512 (n_step x k_step, k_count = 2):
 *
 *           k = 0          512         1024
 *     n = 0   +------------+------------+      Boxes are numbered along k, then n, then e.
 *             |     0      |     1      |      Those at the edges are smaller.
 *       128   +------------+------------+
 *             |     2      |     3      |      Where the format stores tiles of 64 x 64 and a
 *       256   +------------+------------+      scale for 1 x 128, the granule is 64 x 128, and
 *       300   |_____4______|_____5______|      both steps are multiples of it.
 *
 * A box is a small weight: kernels get its size and lay its outputs out by the layout of that size.
 * Runs of bytes that lie together in the box lie together in the whole weight, too
 * (tp_layout_embeds()), and are copied to where the layout of the whole has them. For box 3 that
 * begins at the place of element (128, 512), which is tp_box_base().
 *
 * choose() doubles n and halves k until the runs that are read and written are long, the box is
 * about as large as the target, and its work fits the memory. Where the granule is a whole row
 * (gk = 0: one scale for each row) and the rows are too long for that, cut_rows() makes boxes of
 * whole rows that are worked on in panels along k:
 *
 *     row     |  panel 0  |  panel 1  |  panel 2  |     read once for the extrema of each row,
 *             extrema| panel 1 |                        then one by one behind them (box.h)
 *
 * Where the source is packed, too, what has to be read to decode a box is its cover
 * (tp_weight_cover()): the box, widened to granules of the source.
 *
 * The choice never changes the bytes, only how fast they come: any grid whose steps are multiples
 * of the granule gives the same file.
 */
#include "pack/plan/cut/box.h"

#include "base/num.h"
#include "kernels/op/convert_scales.h"
#include "kernels/op/distance.h"
#include "kernels/op/feedback.h"

#include <string.h>

/* Lengths beyond which a longer run gains little: of a system call, and of a copy
 * from memory to memory. */
#define GOOD_CALL UINT64_C(8192)
#define GOOD_COPY UINT64_C(512)
#define SHORT_CALL UINT64_C(256) /* takes longer than to read and turn all twice */
#define FULL UINT64_C(4096) /* what a box with good runs scores */
#define ASSEMBLES (UINT64_C(128) << 20)

static const struct tp_weight *source_of(const struct tp_plan *plan, const struct tp_unit *unit)
{
    return &plan->weights->items[unit->views[0].weight];
}

static enum tp_code merge(uint64_t *n, uint64_t *k, const struct tp_op *op, bool stored,
                          struct tp_err *err)
{
    uint64_t gn = 1, gk = 1;
    enum tp_code code = (stored ? tp_op_stored_granule : tp_op_granule)(op, &gn, &gk, err);
    if (code)
        return code;
    if (!tp_lcm_u64(n, *n, gn))
        return tp_fail(err, TP_E_UNSUPPORTED, "granule does not fit 64 bits");
    if (gk == 0 || *k == 0)
        *k = 0;
    else if (!tp_lcm_u64(k, *k, gk))
        return tp_fail(err, TP_E_UNSUPPORTED, "granule does not fit 64 bits");
    return TP_OK;
}

/* Whether scales of whole rows are taken over as they are, and not found in all of a row. */
static bool keeps_scales(const struct tp_unit_form *form)
{
    bool numbers = form->op.codec == TP_CODEC_FP8 || form->op.codec == TP_CODEC_INT8;
    return form->kind == TP_UNIT_REPACK && numbers;
}

/* Granule of boxes of this unit: of its outputs and of its packed source. 0 as
 * the second: whole rows. */
static enum tp_code granule_of(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t *n,
                               uint64_t *k, struct tp_err *err)
{
    const struct tp_weight *source = source_of(plan, unit);
    enum tp_code code = TP_OK;
    *n = 1;
    *k = unit->form->format ? TP_RUN : 1; /* whole runs: counts of them do not depend on boxes */
    if (unit->form->format)
        code = merge(n, k, &unit->form->op, keeps_scales(unit->form), err);
    if (code == TP_OK && source->form->format)
        code = merge(n, k, &source->form->op, true, err);
    return code;
}

uint64_t tp_box_base(const struct tp_op *op, uint32_t i, struct tp_box3 whole_size,
                     const struct tp_box *box, const struct tp_layout *whole)
{
    const struct tp_op_out *out = &op->out[i];
    uint64_t e = box->e, n = box->n;
    tp_op_fold(op, i, whole_size.n, &e, &n);
    return tp_layout_at(whole, e, out->per_n ? n / out->per_n : 0,
                        out->per_k ? box->k / out->per_k : 0);
}

enum tp_code tp_box_layouts(const struct tp_op *op, uint32_t i, struct tp_box3 whole_size,
                            const struct tp_box *box, struct tp_layout *part,
                            struct tp_layout *whole, uint64_t *base, struct tp_err *err)
{
    enum tp_code code = tp_op_layout(op, i, box->size, part, err);
    if (code || (code = tp_op_whole_layout(op, i, whole_size, whole, err)))
        return code;
    *base = tp_box_base(op, i, whole_size, box, whole);
    return TP_OK;
}

/* Shares of FULL that runs of that length reach. */
static uint64_t score_of(uint64_t run, uint64_t good)
{
    return tp_max_u64(tp_min_u64(run, good) * FULL / good, 1);
}

/* Bytes that lie together in the source of plain values, for a box of that size. */
static uint64_t source_run(const struct tp_unit *unit, bool transposed, struct tp_box3 size)
{
    uint64_t width = tp_dtype_bits(unit->form->dtype) / 8;
    if (transposed) /* columns lie together */
        return size.n == unit->form->box.n ? size.n * size.k * width : size.n * width;
    return size.k == unit->form->box.k ? size.n * size.k * width : size.k * width;
}

/* The worst score among the codes of an operation. 0: the box cannot be stored on its
 * own. */
static uint64_t codes_score(const struct tp_op *op, struct tp_box3 size, struct tp_box3 whole_size,
                            uint64_t good)
{
    uint64_t score = FULL;
    for (uint32_t i = 0; i < op->outs; i++) {
        struct tp_layout part, whole;
        if (!op->out[i].layout)
            continue;
        if (tp_op_layout(op, i, size, &part, NULL) ||
            tp_op_whole_layout(op, i, whole_size, &whole, NULL) || !tp_layout_embeds(&part, &whole))
            return 0;
        uint64_t run = tp_layout_run_length(&part, &whole) * tp_element_bits(op->out[i].element);
        if (op->out[i].role == TP_ROLE_CODES)
            score = tp_min_u64(score, score_of(run / 8, good));
    }
    return score;
}

/* How well a box of that size is read and written: up to FULL, 0 for not at all. */
static uint64_t box_score(const struct tp_plan *plan, const struct tp_unit *unit,
                          struct tp_box3 size, uint64_t assembles)
{
    const struct tp_weight *source = source_of(plan, unit);
    uint64_t expert = unit->form->box.n * unit->form->box.k * tp_dtype_bits(unit->form->dtype) / 8,
             score = FULL;
    if (source->form->format) {
        score = codes_score(&source->form->op, size, source->form->box, GOOD_CALL);
    } else {
        score = score_of(source_run(unit, source->form->transposed, size), GOOD_CALL);
    }
    if (!unit->form->format)
        return tp_min_u64(score,
                          score_of(source_run(unit, unit->form->transposed, size), GOOD_CALL));
    /* Codes take at most half the bytes of the values. */
    uint64_t good = expert / 2 <= assembles ? GOOD_COPY : GOOD_CALL;
    return tp_min_u64(score, codes_score(&unit->form->op, size, unit->form->box, good));
}

struct candidate {
    struct tp_box3 size;
    uint64_t bytes, score;
};

/* Good runs first; then the smallest box of at least the target, or else the
 * largest. */
static bool better(const struct candidate *a, const struct candidate *b, uint64_t target)
{
    if (a->score != b->score)
        return a->score > b->score;
    bool a_large = a->bytes >= target, b_large = b->bytes >= target;
    if (a_large != b_large)
        return a_large;
    return a_large ? a->bytes < b->bytes : a->bytes > b->bytes;
}

/* Steps granule, 2 granules, 4 ... and the whole extent. */
static uint64_t next_step(uint64_t step, uint64_t extent)
{
    return step >= extent ? 0 : tp_min_u64(step * 2, extent);
}

/* Bytes of all outputs of an operation; UINT64_MAX when it cannot be of that size. */
static uint64_t op_bytes(const struct tp_op *op, struct tp_box3 size)
{
    uint64_t total = 0, bytes;
    for (uint32_t i = 0; i < op->outs; i++) {
        if (tp_op_bytes(op, i, size, &bytes, NULL))
            return UINT64_MAX;
        total += bytes;
    }
    return total;
}

/* A search for the W4A8 kernel takes 16 rows at a time, however many the box has: values and
 * codes, of each group scales, magnitudes and what was tried. The reference needs as much. */
static uint64_t strip_bytes(struct tp_box3 size)
{
    return (32 << 10) + 16 * size.n + 21 * size.k + 224 * tp_ceil_div(size.k, 128);
}

/* What rows of the kernels touch of tp_encode_scratch(), which is room for all of them. */
static uint64_t scratch_bytes(const struct tp_op *op, struct tp_box3 size)
{
    uint64_t fed = tp_op_feeds(op) ? tp_feedback_bytes(size.k, op->rank) + /* and the moments */
                                         size.k * op->rank * sizeof(float) : 0;
    if (tp_op_search(op) == TP_SEARCH_W4A8)
        return strip_bytes(size) + tp_search_scratch(op, size) + fed;
    return 32 * (size.n + size.k) + tp_min_u64(size.n, 128) * (2 * size.k + 256) +
           tp_search_scratch(op, size) + fed;
}

/* How far behind the begin of a granule of its packed source view v begins, and each of its boxes
 * with it; granules have so many rows. 0 for plain sources. */
static uint64_t begins_behind(const struct tp_plan *plan, const struct tp_unit *unit, uint32_t v,
                              uint64_t *granule)
{
    struct tp_view view = tp_unit_view(unit, 0, v);
    const struct tp_weight_form *source = plan->weights->items[view.weight].form;
    uint64_t segment = tp_max_u64(tp_op_segment_rows(&source->op, source->box.n), 1), n, k;
    *granule = 1;
    if (!source->format || tp_op_stored_granule(&source->op, &n, &k, NULL))
        return 0;
    *granule = n;
    return view.row % segment % n;
}

/* Rows of a packed source that tp_weight_cover() has for so many of a box: of rows that are
 * gathered, from the first to the last. */
static uint64_t cover_rows(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t rows)
{
    uint64_t max = rows;
    for (uint32_t v = 0; v < unit->form->views_per_expert; v++) {
        struct tp_view view = tp_unit_view(unit, 0, v);
        const struct tp_weight_form *source = plan->weights->items[view.weight].form;
        uint64_t n, before = begins_behind(plan, unit, v, &n), all = source->box.n;
        uint64_t step = tp_max_u64(view.step, tp_form_moves(unit->form) ? 2 : 1);
        if (unit->form->gathers)
            before = n - 1;
        if (rows <= all / step)
            all = rows * step;
        max = tp_max_u64(max, tp_min_u64(tp_round_up(before + all, n), source->box.n));
    }
    return max;
}

/* What of a packed source is read for a box of that size. */
static struct tp_box3 cover_of(const struct tp_plan *plan, const struct tp_unit *unit,
                               struct tp_box3 size)
{
    const struct tp_weight *source = source_of(plan, unit);
    struct tp_box3 cover = {size.e, cover_rows(plan, unit, size.n), size.k};
    uint64_t n, k;
    if (tp_op_stored_granule(&source->form->op, &n, &k, NULL) == TP_OK)
        cover.k = k ? tp_round_up(size.k, k) : source->form->box.k;
    return cover;
}

/* What is taken over has no values and is no strip of them: the stored bytes of both sides, once
 * more where the box is cut out of whole tiles or gathered, the tables of where they lie, and
 * scales that are made anew. */
static uint64_t taken_memory(const struct tp_plan *plan, const struct tp_unit *unit,
                             struct tp_box3 size)
{
    const struct tp_op *from = &source_of(plan, unit)->form->op;
    struct tp_box3 cover = cover_of(plan, unit, size);
    uint64_t total = op_bytes(from, cover), to = op_bytes(&unit->form->op, size), tiles;
    bool exact = cover.n == size.n && cover.k == size.k;
    uint64_t more = unit->form->gathers ? op_bytes(from, size) : 0;
    if (!tp_mul_u64(&tiles, tp_ceil_div(cover.n, size.n), tp_ceil_div(cover.k, size.k)) ||
        !tp_mul_u64(&tiles, to, exact ? 1 : 1 + tiles) || !tp_add_u64(&total, total, more) ||
        !tp_add_u64(&total, total, tiles))
        return UINT64_MAX;
    more = 32 * (cover.n + cover.k) + tp_convert_scales_bytes(cover);
    return tp_add_u64(&total, total, more) ? total : UINT64_MAX;
}

/* Memory for a box of that size: source, values, outputs and scratch. */
static uint64_t box_memory(const struct tp_plan *plan, const struct tp_unit *unit,
                           struct tp_box3 size)
{
    const struct tp_weight *source = source_of(plan, unit);
    if (unit->form->kind == TP_UNIT_REPACK)
        return taken_memory(plan, unit, size);
    uint64_t values = tp_value_bytes(size, unit->form->dtype), total = values, more = 0;
    if (source->form->transposed || unit->form->transposed)
        total += values; /* turned in a copy */
    if (source->form->format) {
        struct tp_box3 cover = cover_of(plan, unit, size);
        struct tp_box3 decoded = unit->form->gathers ? size : cover;
        more = op_bytes(&source->form->op, cover) + scratch_bytes(&source->form->op, decoded) +
               tp_value_bytes(decoded, unit->form->dtype);
        if (unit->form->gathers)
            more += op_bytes(&source->form->op, size);
        total = tp_add_u64(&total, total, more) ? total : UINT64_MAX;
    }
    if (unit->form->only_exact) /* decoded again, from both sides */
        total = tp_add_u64(&total, total, 2 * values) ? total : UINT64_MAX;
    if (unit->form->format) {
        more = op_bytes(&unit->form->op, size);
        total = tp_add_u64(&total, total, more) ? total : UINT64_MAX;
        total =
            tp_add_u64(&total, total, scratch_bytes(&unit->form->op, size)) ? total : UINT64_MAX;
    }
    return total;
}

/* Values are read before they stand beside the extra columns, which are cut off the outputs; the
 * extrema of a row take fewer than 32 bytes. */
static uint64_t panel_memory(const struct tp_plan *plan, const struct tp_unit *unit,
                             struct tp_box3 size, uint64_t extra)
{
    struct tp_box3 wide = {size.e, size.n, size.k + extra};
    return box_memory(plan, unit, wide) + tp_value_bytes(wide, unit->form->dtype) +
           op_bytes(&unit->form->op, wide) + 32 * size.n;
}

/* Whether whole rows may be worked in panels: they are encoded from values, and only their
 * largest one concerns the others. */
static bool has_panels(const struct tp_plan *plan, const struct tp_unit *unit)
{
    uint64_t n, k;
    const struct tp_weight *source = source_of(plan, unit);
    bool rows = source->form->format &&
                (tp_op_stored_granule(&source->form->op, &n, &k, NULL) || k == 0);
    return unit->form->kind == TP_UNIT_ENCODE && !rows &&
           tp_op_search(&unit->form->op) == TP_SEARCH_NONE;
}

/* Rows of a box whose columns, which lie together, are so many bytes; all where there are fewer. */
static uint64_t column_rows(const struct tp_unit *unit, uint64_t bytes, uint64_t granule)
{
    uint64_t rows = bytes / (tp_dtype_bits(unit->form->dtype) / 8);
    return tp_min_u64(tp_round_up(rows, granule), unit->form->box.n);
}

/* Makes a panel smaller until the memory allows it, of multiples of `min`: along the longer side,
 * as a transposed source is read by columns and the codes are written by rows. */
static void fit_panel(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t memory,
                      struct tp_box3 min, uint64_t extra, struct tp_box3 *size)
{
    while ((size->n > min.n || size->k > min.k) &&
           panel_memory(plan, unit, *size, extra) > memory)
        if (size->k <= min.k || (size->n > min.n && size->n > size->k))
            size->n = tp_max_u64(size->n / 2 / min.n * min.n, min.n);
        else
            size->k = tp_round_up(size->k / 2, min.k);
}

/* Boxes of whole rows become boxes in panels where the memory is too small for them, or for enough
 * of their rows: panels are read twice, and few rows of a transposed source in very many calls.
 * Panels of other sources have the rows of a granule: with fewer, what a packed one stores for
 * several rows would be decoded for each. */
static void cut_rows(const struct tp_plan *plan, const struct tp_unit *unit,
                     const struct tp_box_hints *hints, uint64_t granule, struct tp_box3 *step,
                     struct tp_grid *grid)
{
    const struct tp_weight *source = source_of(plan, unit);
    bool turned = !source->form->format && source->form->transposed;
    bool fits = box_memory(plan, unit, *step) <= hints->memory;
    uint64_t n, k, source_k = 1;
    if (!hints->memory || !has_panels(plan, unit) || tp_op_tile(&unit->form->op, &n, &k, NULL) ||
        (fits && (!turned || step->n >= column_rows(unit, SHORT_CALL, granule))) ||
        (source->form->format && tp_op_stored_granule(&source->form->op, &n, &source_k, NULL)))
        return;
    uint64_t extra = TP_ROW_EXTREMA * tp_round_up(64, k); /* 64: aligned for every kernel */
    struct tp_box3 min = {1, tp_min_u64(granule, unit->form->box.n), 0}, size = min;
    if (!tp_lcm_u64(&min.k, extra, source_k))
        return;
    if (turned)
        size.n = column_rows(unit, GOOD_CALL, granule);
    size.k = tp_round_up(step->k / 2, min.k);
    fit_panel(plan, unit, hints->memory, min, extra, &size);
    if (fits && size.n <= step->n)
        return;
    step->n = size.n;
    grid->extra = extra;
    grid->panel = size.k;
}

uint64_t tp_grid_memory(const struct tp_plan *plan, const struct tp_unit *unit,
                        const struct tp_grid *grid)
{
    struct tp_box3 size = {grid->e_step, tp_min_u64(grid->n_step, unit->form->box.n),
                           tp_min_u64(grid->k_step, unit->form->box.k)};
    if (!grid->panel)
        return box_memory(plan, unit, size);
    size.k = grid->panel;
    return panel_memory(plan, unit, size, grid->extra);
}

static bool too_large(const struct tp_plan *plan, const struct tp_unit *unit,
                      const struct candidate *c, const struct tp_box_hints *hints)
{
    return c->bytes > hints->limit ||
           (hints->memory && box_memory(plan, unit, c->size) > hints->memory);
}

static struct tp_box3 choose(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t gn,
                             uint64_t gk, uint64_t rows, const struct tp_box_hints *hints)
{
    uint64_t width = tp_max_u64(tp_dtype_bits(unit->form->dtype), 16) / 8;
    uint64_t first_k = gk ? tp_min_u64(gk, unit->form->box.k) : unit->form->box.k;
    struct candidate best = {{1, tp_min_u64(gn, rows), first_k}, 0, 0};
    best.bytes = best.size.n * best.size.k * width;
    best.score = box_score(plan, unit, best.size, hints->assembles);
    for (uint64_t k = unit->form->box.k; k;
         k = k == first_k ? 0 : tp_max_u64(k / 2 / first_k * first_k, first_k))
        for (uint64_t n = tp_min_u64(gn, rows); n; n = next_step(n, rows)) {
            struct candidate c = {{1, n, k}, n * k * width, 0};
            if (too_large(plan, unit, &c, hints))
                break;
            if (c.bytes > 4 * hints->target && c.bytes > best.bytes && best.score == FULL)
                break;
            c.score = box_score(plan, unit, c.size, hints->assembles);
            if (c.score && better(&c, &best, hints->target))
                best = c;
        }
    if (best.score == 0) /* not embedded anywhere: the whole expert is one box */
        best.size = (struct tp_box3){1, rows, unit->form->box.k};
    return best.size;
}

/* A view of a packed source, or else all rows; each segment that is laid out apart by itself.
 * Views end where segments do. Returns the rows of the longest. */
static uint64_t find_regions(const struct tp_unit *unit, bool packed, struct tp_grid *grid)
{
    uint64_t segment = tp_op_segment_rows(&unit->form->op, unit->form->box.n), longest = 0;
    uint32_t views = packed ? unit->form->views_per_expert : 1;
    for (uint32_t v = 0; v < views; v++) {
        uint64_t rows = packed ? unit->form->view_rows[v] : unit->form->box.n;
        for (uint64_t row = 0; row < rows && grid->regions < TP_MAX_VIEWS; row += segment) {
            grid->region_rows[grid->regions] = tp_min_u64(segment, rows - row);
            longest = tp_max_u64(longest, grid->region_rows[grid->regions++]);
        }
    }
    return longest;
}

enum tp_code tp_unit_boxes(const struct tp_plan *plan, const struct tp_unit *unit,
                           const struct tp_box_hints *hints, struct tp_grid *grid,
                           struct tp_err *err)
{
    uint64_t gn, gk, rows = 0;
    enum tp_code code = granule_of(plan, unit, &gn, &gk, err);
    if (code)
        return code;
    memset(grid, 0, sizeof *grid);
    bool packed = source_of(plan, unit)->form->format != NULL && !unit->form->gathers;
    rows = find_regions(unit, packed, grid);
    struct tp_box3 step = choose(plan, unit, gn, gk, rows, hints);
    if (gk == 0)
        cut_rows(plan, unit, hints, tp_max_u64(gn, 1), &step, grid);
    grid->n_step = tp_max_u64(step.n, 1);
    grid->k_step = tp_max_u64(step.k, 1);
    grid->k_count = tp_ceil_div(unit->form->box.k, grid->k_step);
    for (uint32_t r = 0; r < grid->regions; r++) {
        grid->region_boxes[r] = tp_ceil_div(grid->region_rows[r], grid->n_step);
        grid->expert_boxes += grid->region_boxes[r] * grid->k_count;
    }
    uint64_t expert_bytes =
        unit->form->box.n * unit->form->box.k * tp_dtype_bits(unit->form->dtype) / 8;
    grid->e_step = 1;
    bool global = unit->form->format && tp_op_find(&unit->form->op, TP_ROLE_GLOBAL) >= 0;
    if (grid->expert_boxes == 1 && !packed && !global && !unit->form->gathers &&
        !tp_op_feeds(&unit->form->op) && !grid->panel) /* a call has one global scale */
        grid->e_step = tp_min_u64(tp_max_u64(hints->target / tp_max_u64(expert_bytes, 1), 1),
                                  unit->form->box.e);
    grid->count = tp_ceil_div(unit->form->box.e, grid->e_step) * grid->expert_boxes;
    return TP_OK;
}

/* Whether views begin alike in granules of their sources. */
static bool same_begins(const struct tp_plan *plan, const struct tp_unit *a,
                        const struct tp_unit *b)
{
    uint64_t n;
    bool same = true;
    for (uint32_t v = 0; v < a->form->views_per_expert && same; v++)
        same = tp_unit_view(a, 0, v).row == tp_unit_view(b, 0, v).row ||
               begins_behind(plan, a, v, &n) == begins_behind(plan, b, v, &n);
    return same;
}

bool tp_same_boxes(const struct tp_plan *plan, const struct tp_unit *a, const struct tp_unit *b)
{
    const struct tp_weight *x = &plan->weights->items[a->views[0].weight];
    const struct tp_weight *y = &plan->weights->items[b->views[0].weight];
    if (a->form == b->form && x->form == y->form)
        return !x->form->format || same_begins(plan, a, b);
    return a->form->format == b->form->format && a->form->kind == b->form->kind &&
           a->form->dtype == b->form->dtype &&
           memcmp(&a->form->box, &b->form->box, sizeof a->form->box) == 0 &&
           x->form->format == y->form->format &&
           x->form->transposed == y->form->transposed &&
           memcmp(&a->form->settings, &b->form->settings, sizeof a->form->settings) == 0 &&
           a->form->op.search == b->form->op.search && a->form->op.rank == b->form->op.rank &&
           memcmp(&x->form->box, &y->form->box, sizeof x->form->box) == 0 &&
           a->form->views_per_expert == b->form->views_per_expert &&
           memcmp(a->form->view_rows, b->form->view_rows, sizeof a->form->view_rows) == 0 &&
           tp_row_order_same(&a->form->undo, &b->form->undo) &&
           (!x->form->format || same_begins(plan, a, b));
}

enum tp_code tp_unit_grid(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t target,
                          uint64_t limit, struct tp_grid *grid, struct tp_err *err)
{
    struct tp_box_hints hints = {target, limit, ASSEMBLES, 0};
    return tp_unit_boxes(plan, unit, &hints, grid, err);
}

struct tp_box tp_grid_box(const struct tp_unit *unit, const struct tp_grid *grid, uint64_t i)
{
    struct tp_box box = {.e = i / grid->expert_boxes * grid->e_step};
    uint64_t at = i % grid->expert_boxes, first = 0;
    uint32_t r = 0;
    while (at >= grid->region_boxes[r] * grid->k_count) {
        at -= grid->region_boxes[r] * grid->k_count;
        first += grid->region_rows[r++];
    }
    uint64_t row = at / grid->k_count * grid->n_step;
    box.n = first + row;
    box.k = at % grid->k_count * grid->k_step;
    box.size.e = tp_min_u64(grid->e_step, unit->form->box.e - box.e);
    box.size.n = tp_min_u64(grid->n_step, grid->region_rows[r] - row);
    box.size.k = tp_min_u64(grid->k_step, unit->form->box.k - box.k);
    return box;
}

bool tp_grid_panel(const struct tp_grid *grid, const struct tp_box *box, uint64_t i,
                   struct tp_box *panel)
{
    uint64_t step = grid->panel ? grid->panel : tp_max_u64(box->size.k, 1);
    *panel = *box;
    if (i >= tp_ceil_div(box->size.k, step))
        return false;
    panel->k += i * step;
    panel->size.k = tp_min_u64(step, box->size.k - i * step);
    return true;
}

enum tp_code tp_weight_cover(const struct tp_weight *weight, uint64_t row, uint64_t rows,
                             uint64_t k, uint64_t columns, struct tp_box *cover,
                             struct tp_err *err)
{
    uint64_t gn, gk;
    enum tp_code code = tp_op_stored_granule(&weight->form->op, &gn, &gk, err);
    if (code)
        return code;
    if (gk == 0)
        gk = weight->form->box.k;
    uint64_t segment = tp_op_segment_rows(&weight->form->op, weight->form->box.n);
    uint64_t first = row / segment * segment; /* tiles begin with each segment */
    cover->n = first + (row - first) / gn * gn;
    cover->k = k / gk * gk;
    cover->size.e = 1;
    cover->size.n =
        tp_min_u64(first + tp_round_up(row + rows - first, gn), first + segment) - cover->n;
    cover->size.k = tp_min_u64(tp_round_up(k + columns, gk), weight->form->box.k) - cover->k;
    if (cover->n + cover->size.n < row + rows) {
        tp_err_tensor(err, weight->name);
        return tp_fail(err, TP_E_UNSUPPORTED, "rows from %llu to %llu are of two segments",
                       (unsigned long long)row, (unsigned long long)(row + rows));
    }
    return TP_OK;
}
