/* One box: read -> decode, encode or take over -> write.
 *
 * tp_context_box() takes the first of these ways that fits the box:
 *
 *     box of                                way                  what happens
 *     rows too long for the memory          convert_panels()     extrema of rows, then each panel
 *     a unit that becomes plain values      load_values()        read, decode if packed, write
 *     plain values                          convert_values()     read, encode, write
 *     rows from several places, repacked    convert_gathered()   gather codes, repack, write
 *     a packed source with equal borders    convert_packed()     read, repack or requantize, write
 *     the same, borders inside its tiles    convert_cut()        repack whole tiles, cut, write
 *     packed, but codes must change         convert_values()     decode what covers the box, crop,
 *                                                                encode, write
 *
 * For example rows 100 to 227 of an FP8 weight with scales for 128 x 128, to be stored as NVFP4:
 * the source's tiles begin at rows 0 and 128, so the box's cover is rows 0 to 255. They are read,
 * decoded to plain values, cropped to 128 rows in ctx->cropped, and encoded.
 *
 * Files, layouts and kernels come together only here. packed_io.c reads and writes the bytes;
 * compute.c decides whether the CPU or a GPU does the work.
 */
#include "pack/run/context.h"

#include "base/num.h"
#include "kernels/op/traits.h"
#include "pack/run/gather_rows.h"
#include "pack/run/row_extrema.h"
#include "pack/run/same_values.h"
#include "pack/source/invariants.h"
#include "pack/source/weight_complete.h"

#include <string.h>

void tp_context_close(struct tp_context *ctx)
{
    tp_compute_close(&ctx->compute);
    tp_buffer_free(&ctx->panel);
    tp_buffer_free(&ctx->cropped);
    tp_buffer_free(&ctx->importance);
    tp_buffer_free(&ctx->extrema);
    tp_moments_free(&ctx->moments);
}

/* A box as its packed source sees it: rows of one view, widened to what can be
 * decoded on its own. */
struct source_box {
    const struct tp_weight *weight;
    struct tp_box want, cover;
    bool exact; /* nothing had to be widened */
};

static enum tp_code source_of(struct tp_context *ctx, const struct tp_unit *unit,
                              const struct tp_box *box, struct source_box *source)
{
    uint64_t row, rows;
    struct tp_view view = tp_unit_view_at(unit, box->e, box->n, &row, &rows);
    source->weight = &ctx->plan->weights->items[view.weight];
    source->want = *box;
    source->want.e = view.expert;
    source->want.n = row;
    source->cover = source->want;
    enum tp_code code = tp_weight_cover(source->weight, row, box->size.n, box->k, box->size.k,
                                        &source->cover, &ctx->err);
    source->exact = memcmp(&source->cover, &source->want, sizeof source->cover) == 0;
    return code;
}

/* What is wanted, counted from the begin of what is read. */
static struct tp_box part_of(const struct source_box *source)
{
    struct tp_box part = source->want;
    part.e = 0;
    part.n -= source->cover.n;
    part.k -= source->cover.k;
    return part;
}

static bool is_plain(const struct tp_context *ctx, const struct tp_unit *unit)
{
    return !ctx->plan->weights->items[unit->views[0].weight].form->format;
}

static enum tp_code begin(struct tp_context *ctx, uint64_t in_bytes, uint64_t out_bytes)
{
    return tp_compute_begin(&ctx->compute, in_bytes, out_bytes, &ctx->err);
}

/* An operation at the size of a box; NULL with ctx->err set. */
static const struct tp_op_at *at_size(struct tp_context *ctx, const struct tp_op *op,
                                      struct tp_box3 size)
{
    return tp_ops_at(&ctx->ops, op, size, false, &ctx->err);
}

/* The code of a failure that is in ctx->err; never TP_OK. */
static enum tp_code failed(const struct tp_context *ctx)
{
    return ctx->err.code ? ctx->err.code : TP_E_INPUT;
}

/* A kernel multiplies by any of the eight scales of a group, and what is taken over is one. */
static enum tp_code check_scale_luts(struct tp_context *ctx, const struct tp_weight *weight,
                                     const struct tp_op *op, struct tp_box3 box,
                                     const void *const data[])
{
    enum tp_code code = tp_source_scale_luts_check(op, box, data, &ctx->err);
    if (code)
        tp_weight_attribute_error(ctx->plan->ckpt, weight, &ctx->err);
    return code;
}

/* Reads the packed source of a box, which is `at` that size; args->in are its outputs. */
static enum tp_code read_source(struct tp_context *ctx, const struct source_box *source,
                                const struct tp_op_at *at, struct tp_args *args)
{
    void *buffers[TP_MAX_OUT] = {0};
    tp_op_allocate(at, ctx->compute.in, buffers);
    enum tp_code code =
        tp_packed_read_into(ctx->plan->ckpt, source->weight, &source->cover, &ctx->ops,
                            ctx->options->invariants, buffers, &ctx->err);
    args->from_at = at;
    memcpy(args->in, buffers, sizeof buffers);
    return code ? code
                : check_scale_luts(ctx, source->weight, &source->weight->form->op,
                                   source->cover.size, args->in);
}

/* Cuts the wanted rows and columns out of decoded values of a larger cover. */
static enum tp_code crop(struct tp_context *ctx, const struct source_box *source, uint64_t width,
                         const void *decoded)
{
    const struct tp_box *cover = &source->cover, *want = &source->want;
    uint64_t row = want->size.k * width;
    enum tp_code code = tp_buffer_reserve(&ctx->cropped, want->size.n * row, &ctx->err);
    for (uint64_t n = 0; n < want->size.n && code == TP_OK; n++)
        memcpy((uint8_t *)ctx->cropped.data + n * row,
               (const uint8_t *)decoded +
                   ((want->n - cover->n + n) * cover->size.k + want->k - cover->k) * width,
               row);
    return code;
}

/* Decodes the rows of run r that are in a box, each to its place in ctx->cropped. Each view by
 * itself: what its weight has one of for all rows is not that of the others. */
static enum tp_code load_share(struct tp_context *ctx, const struct tp_unit *unit,
                               const struct tp_box *box, uint64_t r)
{
    struct tp_row_run run = tp_unit_run(unit, box->e, r);
    struct tp_share share = tp_rows_share(box, &run);
    struct tp_view view = tp_unit_view(unit, box->e, run.view);
    struct tp_box part = {.k = box->k, .size = {1, share.count, box->size.k}};
    struct tp_args args = {.dtype = unit->form->dtype, .box = part.size, .global = 1};
    uint64_t out_bytes = tp_value_bytes(part.size, unit->form->dtype);
    uint64_t row = tp_value_bytes((struct tp_box3){1, 1, box->size.k}, unit->form->dtype);
    void *buffers[TP_MAX_OUT] = {0};
    struct tp_dense_op dense;
    struct tp_op_at at;
    enum tp_code code;
    if (share.count == 0)
        return TP_OK;
    tp_dense_op(&ctx->plan->weights->items[view.weight].form->op, &dense);
    if ((code = tp_op_at(&dense.op, part.size, false, &at, &ctx->err)) ||
        (code = begin(ctx, at.total, out_bytes)))
        return code;
    tp_op_allocate(&at, ctx->compute.in, buffers);
    args.from_at = &at;
    if ((code = tp_rows_gather_share(ctx->plan, &view, &part, &share, &dense.op, buffers,
                                     &ctx->err)))
        return code;
    memcpy(args.in, buffers, sizeof buffers);
    const uint8_t *from = args.out[0] = tp_arena_allocate(ctx->compute.out, out_bytes);
    if ((code = check_scale_luts(ctx, &ctx->plan->weights->items[view.weight], &dense.op, part.size,
                                 args.in)) ||
        (code = tp_compute_decode(&ctx->compute, &dense.op, &args, &ctx->err)))
        return code;
    uint8_t *to = ctx->cropped.data;
    for (uint64_t j = 0; j < share.count; j++)
        memcpy(to + (share.to + j * share.pitch) * row, from + j * row, row);
    return TP_OK;
}

static enum tp_code load_gathered(struct tp_context *ctx, const struct tp_unit *unit,
                                  const struct tp_box *box, const void **values)
{
    uint64_t bytes = tp_value_bytes(box->size, unit->form->dtype);
    enum tp_code code = tp_buffer_reserve(&ctx->cropped, bytes, &ctx->err);
    for (uint64_t r = 0; r < tp_unit_runs(unit) && code == TP_OK; r++)
        code = load_share(ctx, unit, box, r);
    *values = ctx->cropped.data;
    return code;
}

/* The values of a box, wherever they come from: plain, or decoded and cut. */
static enum tp_code load_values(struct tp_context *ctx, const struct tp_unit *unit,
                                const struct tp_box *box, const void **values)
{
    struct source_box source;
    struct tp_args args = {.dtype = unit->form->dtype, .global = 1};
    const struct tp_op_at *at;
    enum tp_code code;
    if (is_plain(ctx, unit)) {
        if ((code = begin(ctx, tp_value_bytes(box->size, unit->form->dtype), 0)))
            return code;
        void *to = tp_arena_allocate(ctx->compute.in, tp_value_bytes(box->size, unit->form->dtype));
        *values = to;
        return tp_values_read(ctx->plan, unit, box, to, &ctx->err);
    }
    if (unit->form->gathers)
        return load_gathered(ctx, unit, box, values);
    if ((code = source_of(ctx, unit, box, &source)))
        return code;
    at = at_size(ctx, &source.weight->form->op, source.cover.size);
    if (!at) /* as failed(), which clang's analyser does not look into from here */
        return ctx->err.code ? ctx->err.code : TP_E_INPUT;
    if ((code = begin(ctx, at->total, tp_value_bytes(source.cover.size, unit->form->dtype))) ||
        (code = read_source(ctx, &source, at, &args)))
        return code;
    args.box = source.cover.size;
    args.out[0] =
        tp_arena_allocate(ctx->compute.out, tp_value_bytes(source.cover.size, unit->form->dtype));
    if ((code = tp_compute_decode(&ctx->compute, &source.weight->form->op, &args, &ctx->err)))
        return code;
    *values = args.out[0];
    if (source.exact)
        return TP_OK;
    code = crop(ctx, &source, tp_dtype_bits(unit->form->dtype) / 8, args.out[0]);
    *values = ctx->cropped.data;
    return code;
}

static bool is_before(const uint64_t a[TP_DIMS], const uint64_t b[TP_DIMS])
{
    unsigned d = 0;
    while (d + 1 < TP_DIMS && a[d] == b[d])
        d++;
    return a[d] < b[d];
}

/* How many values of a unit are NaN or infinite, and where the first of them is, in whatever order
 * its boxes have them. */
static enum tp_code count_nonfinite(struct tp_context *ctx, const struct tp_unit *unit,
                                    uint64_t *count, uint64_t first[TP_DIMS])
{
    enum tp_code code = TP_OK;
    for (uint64_t i = 0; code == TP_OK && i < ctx->grid->count; i++) {
        struct tp_box all = tp_grid_box(unit, ctx->grid, i), box;
        for (uint64_t p = 0; code == TP_OK && tp_grid_panel(ctx->grid, &all, p, &box); p++) {
            struct tp_value_stats stats;
            const void *values;
            if ((code = load_values(ctx, unit, &box, &values)))
                break;
            tp_value_stats(unit->form->dtype, values, box.size.e * box.size.n * box.size.k, &stats);
            uint64_t at[TP_DIMS] = {[TP_DIM_E] = box.e, [TP_DIM_N] = box.n, [TP_DIM_K] = box.k};
            at[TP_DIM_E] += stats.first_nonfinite / (box.size.n * box.size.k);
            at[TP_DIM_N] += stats.first_nonfinite / box.size.k % box.size.n;
            at[TP_DIM_K] += stats.first_nonfinite % box.size.k;
            if (stats.nonfinite && (!*count || is_before(at, first)))
                memcpy(first, at, sizeof at);
            *count += stats.nonfinite;
        }
    }
    return code;
}

/* The report of bad input: counts over the whole unit, not just this box. */
static enum tp_code refuse_nonfinite(struct tp_context *ctx, const struct tp_unit *unit)
{
    uint64_t count = 0, total = unit->form->box.e * unit->form->box.n * unit->form->box.k;
    uint64_t first[TP_DIMS] = {0};
    enum tp_code code = count_nonfinite(ctx, unit, &count, first);
    if (code)
        return code;
    uint64_t row, rows;
    struct tp_view view = tp_unit_view_at(unit, first[TP_DIM_E], first[TP_DIM_N], &row, &rows);
    const struct tp_weight *weight = &ctx->plan->weights->items[view.weight];
    const struct tp_tensor *tensor = &ctx->plan->ckpt->tensors[weight->tensor[0]];
    tp_err_path(&ctx->err, ctx->plan->ckpt->files[tensor->file].path);
    if (!count && tp_op_is_int(&unit->form->op)) {
        tp_err_hint(&ctx->err, "--set scales=bf16 has one");
        return tp_fail(&ctx->err, TP_E_INPUT, "some of its values are so large that F16 has no "
                       "scale for them");
    }
    if (!count && tp_codecs[unit->form->op.codec].is_number) {
        tp_err_hint(&ctx->err, "--nonfinite keep stores infinity; --exclude leaves it as it is");
        return tp_fail(&ctx->err, TP_E_INPUT, "some of its values are so large that they are "
                       "infinite in the type that this format stores");
    }
    if (!count && (tp_op_needs(&unit->form->op) & (TP_NEED_FACTOR | TP_NEED_INT_FACTOR))) {
        tp_err_hint(&ctx->err, "--exclude leaves it as it is");
        return tp_fail(&ctx->err, TP_E_INPUT, "some of its values are so large that a scale, "
                       "times the power of two that this format multiplies it by, is infinite");
    }
    if (!count) { /* tp_mx_ct(): the only other rule that refuses finite values */
        tp_err_hint(&ctx->err, "--set scale=rceil and scale=floor have one");
        return tp_fail(&ctx->err, TP_E_INPUT, "some of its finite values are 1.75 * 2^127 or "
                       "more, for which scale=ct has no scale");
    }
    tp_err_hint(&ctx->err, unit->form->kind == TP_UNIT_REPACK
                                ? "--nonfinite keep takes it over as it is"
                            : weight->form->format
                                ? "--nonfinite keep converts it as the format's library would"
                                : "--nonfinite keep converts it as the format's library would; "
                                  "--exclude leaves it as it is");
    return tp_fail(&ctx->err, TP_E_INPUT,
                   "%llu of %llu values are NaN or infinite, the first at e=%llu n=%llu k=%llu, "
                   "from row %llu of '%.300s'",
                   (unsigned long long)count, (unsigned long long)total,
                   (unsigned long long)first[TP_DIM_E], (unsigned long long)first[TP_DIM_N],
                   (unsigned long long)first[TP_DIM_K], (unsigned long long)row, tensor->name);
}

static enum tp_code check_scales(struct tp_context *ctx, const struct source_box *source,
                                 const struct tp_op *op, const struct tp_unit_form *form,
                                 const struct tp_args *args)
{
    const struct tp_op *to = &form->op;
    enum tp_code code = TP_OK;
    if (!ctx->options->keep_nonfinite)
        code = tp_source_scales_check(op, tp_op_is_int(op), source->cover.size, args->in,
                                      &ctx->err);
    if (code == TP_OK)
        code = tp_source_scales_fit(op, to, form->only_exact, source->cover.size, args->in,
                                    &ctx->err);
    if (code == TP_OK)
        code = tp_source_zeros_fit(op, to, source->cover.size, args->in, &ctx->err);
    if (code)
        tp_weight_attribute_error(ctx->plan->ckpt, source->weight, &ctx->err);
    return code;
}

/* What is taken over is met by no encode, which would tell of its codes. */
static enum tp_code check_taken(struct tp_context *ctx, const struct tp_unit *unit,
                                const struct source_box *source, const struct tp_op *op,
                                const struct tp_args *args)
{
    struct tp_box part = part_of(source);
    bool finite = true;
    enum tp_code code = check_scales(ctx, source, op, unit->form, args);
    if (code == TP_OK && !ctx->options->keep_nonfinite)
        code = tp_source_codes_finite(op, source->cover.size, &part, args->in, &finite,
                                      &ctx->err);
    return code || finite ? code : refuse_nonfinite(ctx, unit);
}

/* Packed source, nothing to cut: from packed to packed in one call, so that on a
 * GPU the values never leave it. */
static enum tp_code convert_packed(struct tp_context *ctx, const struct tp_unit *unit,
                                   const struct source_box *source, struct tp_args *args)
{
    const struct tp_op_at *from = at_size(ctx, &source->weight->form->op, source->cover.size);
    const struct tp_op_at *to = at_size(ctx, &unit->form->op, args->box);
    enum tp_code code;
    if (!from || !to)
        return failed(ctx);
    if ((code = begin(ctx, from->total, to->total)) ||
        (code = read_source(ctx, source, from, args)))
        return code;
    tp_op_allocate(to, ctx->compute.out, args->out);
    args->to_at = to;
    if (unit->form->kind == TP_UNIT_REPACK &&
        (code = check_taken(ctx, unit, source, &source->weight->form->op, args)))
        return code;
    if (unit->form->kind == TP_UNIT_REPACK)
        return tp_compute_repack(&ctx->compute, &source->weight->form->op, &unit->form->op, args,
                                 &ctx->err);
    return tp_compute_requantize(&ctx->compute, &source->weight->form->op, &unit->form->op,
                                 unit->form->dtype, args, &ctx->err);
}

/* Codes taken over of rows that begin inside a tile of their source: whole tiles are
 * taken over, then cut. The plan has seen to it that the format can be cut there. */
static enum tp_code convert_cut(struct tp_context *ctx, const struct tp_unit *unit,
                                const struct source_box *source, struct tp_args *args)
{
    struct tp_box inside = part_of(source);
    struct tp_args whole = *args;
    const struct tp_op_at *from = at_size(ctx, &source->weight->form->op, source->cover.size);
    const struct tp_op_at *to = at_size(ctx, &unit->form->op, source->cover.size);
    const struct tp_op_at *cut = at_size(ctx, &unit->form->op, args->box);
    enum tp_code code;
    if (!from || !to || !cut)
        return failed(ctx);
    whole.box = source->cover.size;
    whole.to_at = to;
    if ((code = begin(ctx, from->total, to->total + cut->total)) ||
        (code = read_source(ctx, source, from, &whole)))
        return code;
    tp_op_allocate(to, ctx->compute.out, whole.out);
    tp_op_allocate(cut, ctx->compute.out, args->out);
    if ((code = check_taken(ctx, unit, source, &source->weight->form->op, &whole)) ||
        (code = tp_compute_repack(&ctx->compute, &source->weight->form->op, &unit->form->op,
                                  &whole, &ctx->err)))
        return code;
    args->flags |= whole.flags;
    return tp_packed_cut(&unit->form->op, whole.box, &inside, whole.out, args->out, &ctx->err);
}

/* Plain values, or decoded ones that had to be cut. */
static enum tp_code convert_values(struct tp_context *ctx, const struct tp_unit *unit,
                                   const struct tp_box *box, struct tp_args *args)
{
    uint64_t in_bytes = tp_value_bytes(box->size, unit->form->dtype);
    const void *values = NULL;
    bool plain = is_plain(ctx, unit);
    const struct tp_op_at *at;
    enum tp_code code = TP_OK;
    if (!plain)
        code = load_values(ctx, unit, box, &values); /* ends in ctx->cropped */
    if (code)
        return code;
    if (!(at = at_size(ctx, &unit->form->op, box->size)))
        return failed(ctx);
    if ((code = begin(ctx, in_bytes, at->total)))
        return code;
    void *to = tp_arena_allocate(ctx->compute.in, in_bytes);
    if (plain)
        code = tp_values_read(ctx->plan, unit, box, to, &ctx->err);
    else
        memcpy(to, values, in_bytes);
    args->dtype = unit->form->dtype;
    args->in[0] = to;
    if (code)
        return code;
    tp_op_allocate(at, ctx->compute.out, args->out);
    args->to_at = at;
    return tp_compute_encode(&ctx->compute, &unit->form->op, args, &ctx->err);
}

/* Codes taken over of rows that do not lie side by side in their source. The plan has seen to it
 * that their weights have the same of what there is one of for all rows. */
static enum tp_code convert_gathered(struct tp_context *ctx, const struct tp_unit *unit,
                                     const struct tp_box *box, struct tp_args *args)
{
    struct source_box source = {.want = {.size = box->size}, .cover = {.size = box->size},
        .weight = &ctx->plan->weights->items[unit->views[0].weight]};
    void *buffers[TP_MAX_OUT] = {0};
    const struct tp_op_at *to = at_size(ctx, &unit->form->op, box->size);
    struct tp_dense_op dense;
    struct tp_op_at from;
    enum tp_code code;
    if (!to)
        return failed(ctx);
    tp_dense_op(&source.weight->form->op, &dense);
    if ((code = tp_op_at(&dense.op, box->size, false, &from, &ctx->err)) ||
        (code = begin(ctx, from.total, to->total)))
        return code;
    tp_op_allocate(&from, ctx->compute.in, buffers);
    tp_op_allocate(to, ctx->compute.out, args->out);
    if ((code = tp_rows_gather(ctx->plan, unit, box, &dense.op, buffers, &ctx->err)))
        return code;
    memcpy(args->in, buffers, sizeof buffers);
    if ((code = check_scale_luts(ctx, source.weight, &dense.op, box->size, args->in)) ||
        (code = check_taken(ctx, unit, &source, &dense.op, args)))
        return code;
    return tp_compute_repack(&ctx->compute, &dense.op, &unit->form->op, args, &ctx->err);
}

/* From a packed source, by the shortest way that the box allows. */
static enum tp_code convert_from_packed(struct tp_context *ctx, const struct tp_unit *unit,
                                        const struct tp_box *box, struct tp_args *args)
{
    struct source_box source;
    if (unit->form->gathers)
        return (unit->form->kind == TP_UNIT_REPACK ? convert_gathered : convert_values)(
            ctx, unit, box, args);
    enum tp_code code = source_of(ctx, unit, box, &source);
    if (code)
        return code;
    if (source.exact)
        return convert_packed(ctx, unit, &source, args);
    if (unit->form->kind == TP_UNIT_REPACK)
        return convert_cut(ctx, unit, &source, args);
    return convert_values(ctx, unit, box, args);
}

static enum tp_code convert(struct tp_context *ctx, const struct tp_unit *unit,
                            const struct tp_box *box, struct tp_args *args)
{
    enum tp_code code = tp_box_importance(ctx->plan, unit, box, &ctx->importance,
                                          &args->importance, &ctx->err);
    if (code || (code = tp_box_moments(ctx->plan, unit, box, args->importance, &ctx->moments,
                                       &args->fed, &ctx->err)))
        return code;
    code = is_plain(ctx, unit) ? convert_values(ctx, unit, box, args)
                               : convert_from_packed(ctx, unit, box, args);
    if (code == TP_OK && (args->flags & TP_SAW_NONFINITE) && !ctx->options->keep_nonfinite)
        code = refuse_nonfinite(ctx, unit);
    return code;
}

/* Hands the box to the observer, with the source's values where there are any. */
static enum tp_code observe(struct tp_context *ctx, uint32_t u, uint64_t index,
                            const struct tp_box *box, const struct tp_args *args)
{
    const struct tp_unit *unit = &ctx->plan->units[u];
    struct tp_observed seen = {u, index, *box, TP_DTYPE_NONE, NULL, args->out, args->global,
                               ctx->options->shared_budget};
    if (!ctx->options->observe)
        return TP_OK;
    if (unit->form->kind == TP_UNIT_ENCODE && is_plain(ctx, unit)) {
        seen.dtype = unit->form->dtype;
        seen.values = args->in[0];
    }
    return ctx->options->observe(ctx->options->observe_arg, &seen, &ctx->err);
}

/* ---- rows in panels (box.h) --------------------------------------------------------- */

/* Finds the extrema of the rows of a box, panel by panel, in ctx->extrema. */
static enum tp_code find_extrema(struct tp_context *ctx, const struct tp_unit *unit,
                                 const struct tp_box *box)
{
    struct tp_box panel;
    uint64_t capacity = box->size.n * sizeof(struct tp_row_extrema);
    enum tp_code code = tp_buffer_reserve(&ctx->extrema, capacity, &ctx->err);
    if (code == TP_OK)
        memset(ctx->extrema.data, 0, capacity);
    for (uint64_t i = 0; code == TP_OK && tp_grid_panel(ctx->grid, box, i, &panel); i++) {
        const void *values;
        if ((code = load_values(ctx, unit, &panel, &values)) == TP_OK)
            tp_row_extrema(unit->form->dtype, values, panel.size.n, panel.size.k,
                           unit->form->op.block_k, ctx->extrema.data);
    }
    return code;
}

/* Encodes a panel behind its extra columns and cuts them off: args->out are its outputs. */
static enum tp_code convert_panel(struct tp_context *ctx, const struct tp_unit *unit,
                                  const struct tp_box *panel, uint64_t extra,
                                  struct tp_args *args)
{
    const struct tp_op *op = &unit->form->op;
    struct tp_box3 wide = {panel->size.e, panel->size.n, panel->size.k + extra};
    struct tp_args whole = {.box = wide, .dtype = unit->form->dtype};
    struct tp_box inside = {.k = extra, .size = panel->size};
    uint64_t bytes = tp_value_bytes(panel->size, unit->form->dtype);
    const void *values;
    enum tp_code code;
    if ((code = load_values(ctx, unit, panel, &values)) ||
        (code = tp_buffer_reserve(&ctx->panel, bytes, &ctx->err)))
        return code;
    memcpy(ctx->panel.data, values, bytes); /* where they are is needed now */
    const struct tp_op_at *at = at_size(ctx, op, wide), *cut = at_size(ctx, op, panel->size);
    if (!at || !cut)
        return failed(ctx);
    if ((code = begin(ctx, tp_value_bytes(wide, unit->form->dtype), at->total + cut->total)))
        return code;
    void *to = tp_arena_allocate(ctx->compute.in, tp_value_bytes(wide, unit->form->dtype));
    tp_row_widen(unit->form->dtype, ctx->panel.data, panel->size.n, panel->size.k,
                 ctx->extrema.data, extra, to);
    whole.in[0] = to;
    whole.to_at = at;
    tp_op_allocate(at, ctx->compute.out, whole.out);
    tp_op_allocate(cut, ctx->compute.out, args->out);
    if ((code = tp_compute_encode(&ctx->compute, op, &whole, &ctx->err)))
        return code;
    if ((whole.flags & TP_SAW_NONFINITE) && !ctx->options->keep_nonfinite)
        return refuse_nonfinite(ctx, unit);
    args->box = panel->size;
    args->in[0] = ctx->panel.data;
    return tp_packed_cut(op, wide, &inside, whole.out, args->out, &ctx->err);
}

static enum tp_code convert_panels(struct tp_context *ctx, uint32_t u, uint64_t index,
                                   const struct tp_box *box)
{
    const struct tp_grid *grid = ctx->grid;
    const struct tp_unit *unit = &ctx->plan->units[u];
    uint64_t panels = tp_ceil_div(box->size.k, grid->panel);
    struct tp_box panel;
    enum tp_code code = find_extrema(ctx, unit, box);
    for (uint64_t i = 0; code == TP_OK && tp_grid_panel(grid, box, i, &panel); i++) {
        struct tp_args args = {0};
        if ((code = convert_panel(ctx, unit, &panel, grid->extra, &args)) == TP_OK &&
            (code = tp_packed_write(unit, &panel, index + i == 0, args.out, &ctx->ops,
                                    ctx->sink, &ctx->err)) == TP_OK)
            code = observe(ctx, u, index * panels + i, &panel, &args);
    }
    return code;
}

/* Compares what the box became with its source's values, which lie in ctx->panel. */
static enum tp_code check_values(struct tp_context *ctx, const struct tp_unit *unit,
                                 const struct tp_box *box, const struct tp_args *made)
{
    const struct tp_unit_form *form = unit->form;
    struct tp_args args = {.box = box->size, .dtype = form->dtype, .global = made->global};
    enum tp_code code =
        tp_buffer_reserve(&ctx->cropped, tp_value_bytes(box->size, form->dtype), &ctx->err);
    memcpy(args.in, made->out, sizeof args.in);
    args.out[0] = ctx->cropped.data;
    if (code || (code = tp_compute_decode_on_host(&ctx->compute, &form->op, &args, &ctx->err)) ||
        (code = tp_same_values(form->dtype, ctx->panel.data, args.out[0], box, form->format->name,
                               &ctx->err)) == TP_OK)
        return code;
    tp_weight_attribute_error(ctx->plan->ckpt, &ctx->plan->weights->items[unit->views[0].weight],
                              &ctx->err);
    return code;
}

/* Converts the box, and before it is written fails where values are others then and must not be. */
static enum tp_code convert_checked(struct tp_context *ctx, const struct tp_unit *unit,
                                    const struct tp_box *box, struct tp_args *args)
{
    const uint64_t bytes = tp_value_bytes(box->size, unit->form->dtype);
    const void *values;
    enum tp_code code;
    if (!unit->form->only_exact || unit->form->kind != TP_UNIT_ENCODE)
        return convert(ctx, unit, box, args);
    if ((code = load_values(ctx, unit, box, &values)) ||
        (code = tp_buffer_reserve(&ctx->panel, bytes, &ctx->err)))
        return code;
    memcpy(ctx->panel.data, values, bytes); /* what is read next may lie where they are */
    code = convert(ctx, unit, box, args);
    return code ? code : check_values(ctx, unit, box, args);
}

/* A packed weight has them where a scale is one, or so large that a value is. */
static void note_nonfinite(const struct tp_context *ctx, uint32_t u, const struct tp_box *box,
                           const void *values)
{
    struct tp_value_stats stats;
    if (!ctx->options->nonfinite)
        return;
    tp_value_stats(ctx->plan->units[u].form->dtype, values,
                   box->size.e * box->size.n * box->size.k, &stats);
    atomic_fetch_add(&ctx->options->nonfinite[u], stats.nonfinite);
}

enum tp_code tp_context_box(struct tp_context *ctx, uint32_t u, const struct tp_grid *grid,
                            uint64_t index, float global)
{
    const struct tp_unit *unit = &ctx->plan->units[u];
    struct tp_box box = tp_grid_box(unit, grid, index);
    struct tp_args args = {.box = box.size, .global = global, .scale_shift = unit->scale_shift};
    const void *values;
    enum tp_code code;
    ctx->grid = grid;
    if (grid->panel) {
        code = convert_panels(ctx, u, index, &box);
    } else if (unit->form->kind == TP_UNIT_PLAIN) {
        if ((code = load_values(ctx, unit, &box, &values)) == TP_OK)
            note_nonfinite(ctx, u, &box, values);
        if (code == TP_OK)
            code = tp_values_write(unit, &box, values, ctx->sink, &ctx->err);
    } else if ((code = convert_checked(ctx, unit, &box, &args)) == TP_OK) {
        code = tp_packed_write(unit, &box, index == 0, args.out, &ctx->ops, ctx->sink,
                               &ctx->err);
    }
    if (code == TP_OK && !grid->panel)
        code = observe(ctx, u, index, &box, &args);
    if (code)
        tp_err_tensor(&ctx->err, unit->name);
    return code;
}

enum tp_code tp_context_stats(struct tp_context *ctx, uint32_t u, const struct tp_grid *grid,
                              uint64_t index, float *amax)
{
    const struct tp_unit *unit = &ctx->plan->units[u];
    struct tp_box box = tp_grid_box(unit, grid, index);
    struct tp_value_stats stats;
    const void *values;
    enum tp_code code = load_values(ctx, unit, &box, &values);
    if (code) {
        tp_err_tensor(&ctx->err, unit->name);
        return code;
    }
    tp_value_stats(unit->form->dtype, values, box.size.e * box.size.n * box.size.k, &stats);
    *amax = stats.amax;
    return TP_OK;
}

/* A packed weight that is copied gets a fresh hash: what is known of it must be so. */
static enum tp_code check_copied(struct tp_context *ctx, const struct tp_tensor *tensor,
                                 const void *data, uint64_t offset, uint64_t size)
{
    struct tp_invariants *invariants = ctx->options->invariants;
    if (!invariants)
        return TP_OK;
    enum tp_code code = tp_invariants_check(invariants, tensor->file, data, size,
                                            tensor->offset + offset, &ctx->err);
    return code ? code : tp_invariants_refuse(invariants, &ctx->err);
}

enum tp_code tp_context_copy(struct tp_context *ctx, uint32_t o, uint64_t offset, uint64_t size)
{
    const struct tp_output *output = &ctx->plan->outputs[o];
    const struct tp_tensor *tensor = &ctx->plan->ckpt->tensors[output->source];
    void *data = tp_compute_bytes(&ctx->compute, size, &ctx->err);
    enum tp_code code = data ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK &&
        (code = tp_checkpoint_read(ctx->plan->ckpt, tensor->file, data, size,
                                   tensor->offset + offset, &ctx->err)) == TP_OK &&
        (code = check_copied(ctx, tensor, data, offset, size)) == TP_OK)
        code = ctx->sink->write(ctx->sink, output->file, o, offset, data, size, &ctx->err);
    if (code)
        tp_err_tensor(&ctx->err, output->name);
    return code;
}
