/* The tile, drawn in text: memory in the order of its bytes, and which elements
 * of W lie there. Works from the layout alone, so it draws formats that do not
 * exist yet.
 *
 * A cell is one run: the elements along the layout's fastest mode. Short runs
 * are set side by side, long ones (a whole row or column) get a line each.
 */
#include "base/num.h"
#include "cli/dump.h"
#include "cli/table.h"
#include "cli/report.h"

#include <stdio.h>
#include <string.h>

enum {
    SHORT_RUN = 16,  /* longest run that is a cell */
    MIN_BYTES = 64, /* drawn at least, where there is so much */
    MAX_BYTES = 512,
    LONG_LINES = 4,
    LINE = 92, /* columns, or as many as the terminal has */
    CELL = 160, PART = 44,
};

struct mode {
    uint64_t size, stride;
    int dim;
    bool last; /* counts tiles, is no part of one */
};

struct drawing {
    struct tp_layout layout;
    struct mode modes[TP_DIMS * TP_LAYOUT_MODES]; /* of more than one element, fastest first */
    int count;
    uint64_t count_of[TP_DIMS]; /* stored elements inside of the logical box */
    uint64_t run;               /* elements of a cell */
    uint64_t tile;              /* elements of the first tile */
    unsigned bits;
    const struct tp_op *op;     /* the tile is that of its output i */
    uint32_t i;
};

static void collect_modes(struct drawing *d)
{
    for (int dim = 0; dim < TP_DIMS; dim++)
        for (uint32_t m = 0; m < d->layout.dim[dim].modes; m++) {
            struct mode mode = {d->layout.dim[dim].size[m], d->layout.dim[dim].stride[m], dim,
                                m + 1 == d->layout.dim[dim].modes};
            int at = d->count;
            if (mode.size == 1)
                continue;
            for (; at > 0 && d->modes[at - 1].stride > mode.stride; at--)
                d->modes[at] = d->modes[at - 1];
            d->modes[at] = mode;
            d->count++;
        }
    d->run = d->count ? d->modes[0].size : 1;
    d->tile = 1;
    for (int i = 0; i < d->count && !d->modes[i].last; i++)
        d->tile *= d->modes[i].size;
}

static bool inside(const struct drawing *d, uint64_t offset)
{
    uint64_t coord[TP_DIMS];
    tp_layout_coord(&d->layout, offset, coord);
    return coord[0] < d->count_of[0] && coord[1] < d->count_of[1] && coord[2] < d->count_of[2];
}

/* "3,0-3": row 3, columns 0 to 3; "3,0-1+2": two more elements are padding. */
static void cell_text(const struct drawing *d, uint64_t offset, char text[CELL], bool *padded)
{
    uint64_t first[TP_DIMS], real = 0;
    int dim = d->count ? d->modes[0].dim : TP_DIM_K;
    char part[TP_DIMS][PART];
    while (real < d->run && inside(d, offset + real))
        real++;
    if (real == 0) {
        strcpy(text, "pad");
        return;
    }
    tp_layout_coord(&d->layout, offset, first);
    tp_op_unfold(d->op, d->i, d->count_of[1] * tp_max_u64(d->op->segments, 1), &first[0],
                 &first[1]);
    for (int i = 0; i < TP_DIMS; i++)
        if (i == dim && real > 1)
            snprintf(part[i], sizeof part[i], "%llu-%llu", (unsigned long long)first[i],
                     (unsigned long long)(first[i] + real - 1));
        else
            snprintf(part[i], sizeof part[i], "%llu", (unsigned long long)first[i]);
    snprintf(text, CELL, "%s%s%s,%s", dim == TP_DIM_E ? part[0] : "",
             dim == TP_DIM_E ? "," : "", part[1], part[2]);
    if (real < d->run) {
        *padded = true;
        snprintf(text + strlen(text), CELL - strlen(text), "+%llu",
                 (unsigned long long)(d->run - real));
    }
}

static const char *dim_label(char *text, size_t size, char name, uint32_t per)
{
    if (per == 1)
        snprintf(text, size, "%c", name);
    else if (per == 0)
        snprintf(text, size, "0");
    else
        snprintf(text, size, "%c/%u", name, per);
    return text;
}

/* "16 x 32", the extent of the first tile in elements of W; false without tiles. */
static bool tile_text(const struct drawing *d, const struct tp_op_out *out, char text[CELL])
{
    uint64_t extent[TP_DIMS] = {1, out->per_n, out->per_k};
    bool tiled = false;
    for (int i = 0; i < d->count && !d->modes[i].last; i++) {
        extent[d->modes[i].dim] *= d->modes[i].size;
        tiled = true;
    }
    snprintf(text, CELL, "%llu x %llu", (unsigned long long)extent[1],
             (unsigned long long)extent[2]);
    return tiled;
}

static void print_legend(const struct drawing *d, const struct tp_op_out *out, bool cells)
{
    char n[24], k[24], tile[CELL];
    dim_label(n, sizeof n, 'n', out->per_n);
    dim_label(k, sizeof k, 'k', out->per_k);
    if (tile_text(d, out, tile))
        printf("  the first tile, %s (n x k), in the order of its bytes; ", tile);
    else
        printf("  in the order of the bytes; ");
    printf("a %s is (%s, %s) of ", cells ? "cell" : "line", n, k);
    if (d->run == 1)
        printf("one element");
    else
        printf("%llu elements", (unsigned long long)d->run);
    if (d->bits > 8)
        printf(" of %u bytes", d->bits / 8);
    if (d->bits == 4)
        printf(",\n  two to a byte, the first in the low half");
    printf(":\n");
}

/* How many equal lines of cells fit: cells per line, a power of two. */
static uint64_t cells_per_line(const struct drawing *d, uint64_t cells, size_t width)
{
    uint64_t line = 1, max = tp_min_u64(tp_terminal_width(), LINE);
    while (line * 2 <= cells && 8 + line * 2 * (width + 2) <= max && line < 16)
        line *= 2;
    return line * d->run * d->bits % 8 ? 1 : line;
}

static void print_cells(const struct drawing *d, uint64_t elements)
{
    uint64_t cells = tp_max_u64(elements / d->run, 1);
    size_t width = 0;
    bool padded = false, any_pad = false;
    char text[CELL];
    for (uint64_t c = 0; c < cells; c++) {
        cell_text(d, c * d->run, text, &padded);
        any_pad |= strcmp(text, "pad") == 0;
        width = strlen(text) > width ? strlen(text) : width;
    }
    uint64_t line = cells_per_line(d, cells, width);
    for (uint64_t c = 0; c < cells; c++) {
        cell_text(d, c * d->run, text, &padded);
        if (c % line == 0)
            printf("  %5llu ", (unsigned long long)(c * d->run * d->bits / 8));
        bool last = c % line == line - 1 || c + 1 == cells;
        printf(" %-*s%s", last ? 0 : (int)width, text, last ? "\n" : " ");
    }
    if (cells * d->run < tp_layout_size(&d->layout))
        printf("  %5s  ...\n", "");
    if (padded)
        printf("  +1, +2, ...: as many elements more are padding\n");
    if (any_pad)
        printf("  pad: all of it is padding\n");
}

static void print_long_runs(const struct drawing *d)
{
    uint64_t runs = tp_layout_size(&d->layout) / d->run;
    bool padded = false;
    char text[CELL];
    for (uint64_t r = 0; r < runs && r < LONG_LINES; r++) {
        cell_text(d, r * d->run, text, &padded);
        printf("  %5llu  %s\n", (unsigned long long)(r * d->run * d->bits / 8), text);
    }
    if (runs > LONG_LINES)
        printf("  %5s  ...\n", "");
    if (padded)
        printf("  +N: N more elements are padding\n");
}

/* Where tiles, rows and experts begin: the modes outside of what was drawn. */
static void print_steps(const struct drawing *d, const struct tp_op_out *out)
{
    const char names[] = "enk";
    for (int i = 0; i < d->count; i++) {
        const struct mode *mode = &d->modes[i];
        uint64_t inner = 1, per = mode->dim == TP_DIM_N ? out->per_n : out->per_k;
        if (!mode->last || (d->tile == 1 && i == 0))
            continue;
        for (uint32_t m = 0; m + 1 < d->layout.dim[mode->dim].modes; m++)
            inner *= d->layout.dim[mode->dim].size[m];
        inner *= mode->dim == TP_DIM_E ? 1 : per;
        if (mode->dim == TP_DIM_E && d->op->out[d->i].per_n)
            inner /= tp_max_u64(d->op->segments, 1);
        printf("  %c + %llu is %llu bytes further\n", names[mode->dim], (unsigned long long)inner,
               (unsigned long long)(mode->stride * d->bits / 8));
    }
}

enum tp_code tp_tile_of(const struct tp_weight *weight, uint32_t i, struct tp_tile *tile,
                        struct tp_err *err)
{
    struct drawing d = {.bits = tp_element_bits(weight->form->op.out[i].element),
                        .op = &weight->form->op, .i = i};
    enum tp_code code = tp_op_whole_layout(&weight->form->op, i, weight->form->box, &d.layout, err);
    if (code)
        return code;
    collect_modes(&d);
    *tile = (struct tp_tile){d.run, d.tile, tp_layout_size(&d.layout), d.bits};
    return TP_OK;
}

int tp_dump_tile(const struct tp_weight *weight, uint32_t i)
{
    const struct tp_op_out *out = &weight->form->op.out[i];
    struct drawing d = {.bits = tp_element_bits(out->element), .op = &weight->form->op, .i = i};
    struct tp_err err = {0};
    uint64_t per_n, per_k;
    if (!out->layout)
        return TP_OK;
    if (tp_op_whole_layout(&weight->form->op, i, weight->form->box, &d.layout, &err))
        return tp_report_error(&err);
    tp_inspect_per(weight, i, &per_n, &per_k);
    uint64_t segments = out->per_n ? tp_max_u64(d.op->segments, 1) : 1;
    d.count_of[0] = weight->form->box.e * segments;
    d.count_of[1] = tp_ceil_div(weight->form->box.n / segments, per_n);
    d.count_of[2] = tp_ceil_div(weight->form->box.k, per_k);
    collect_modes(&d);
    bool cells = d.run <= SHORT_RUN;
    print_legend(&d, out, cells);
    if (cells) {
        uint64_t min = MIN_BYTES * 8 / d.bits, max = MAX_BYTES * 8 / d.bits;
        uint64_t elements = tp_max_u64(d.tile, min / d.run * d.run);
        elements = tp_min_u64(tp_min_u64(elements, max), tp_layout_size(&d.layout));
        print_cells(&d, elements);
    } else {
        print_long_runs(&d);
    }
    print_steps(&d, out);
    return TP_OK;
}
