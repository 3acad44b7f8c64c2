/* Drawing a layout. What a cell is comes from pack/inspect alone, so a picture cannot say
 * anything else than --at and --offset. */
#include "cli/picture.h"

#include "base/num.h"
#include "cli/dump.h"
#include "cli/page.h"
#include "pack/format/format_keywords.h"

#include <string.h>

enum {
    CELL_W = 40, CELL_H = 22, ADDRESS = 56, HEAD = 44, GAP = 24, MARGIN = 16, FOOT = 24,
    LINE_CELLS = 16, SCALE_CELLS = 8, /* of a line: codes and scales fit beside each other */
    MAX_CELLS = 1024, MAX_SCALES = 128, MIN_CELLS = 64,
    LETTER = 6, /* width of one, about */
    LONG_RUN = 64, LONG_LINES = 16,
};

/* ---- what is drawn --------------------------------------------------------- */

static enum tp_code choose_lines(const struct tp_weight *weight, struct tp_picture_part *part,
                                 struct tp_err *err)
{
    struct tp_tile tile = {.bits = tp_element_bits(weight->form->op.out[part->out].element),
                           .run = 1, .elements = 1, .total = 1};
    bool codes = weight->form->op.out[part->out].role == TP_ROLE_CODES;
    enum tp_code code = weight->form->op.out[part->out].layout
                            ? tp_tile_of(weight, part->out, &tile, err) : TP_OK;
    if (code)
        return code;
    uint64_t max = codes ? MAX_CELLS : MAX_SCALES;
    part->bits = tile.bits;
    part->elements = tile.total;
    part->per_line = tp_min_u64(codes ? LINE_CELLS : SCALE_CELLS, tile.total);
    part->line_step = part->per_line;
    if (codes && tile.run > LONG_RUN) {
        part->line_step = tile.run;
        part->lines = tp_min_u64(tile.total / tile.run, LONG_LINES);
        return TP_OK;
    }
    uint64_t cells = tp_min_u64(tp_max_u64(tile.elements, MIN_CELLS), max);
    part->lines = tp_ceil_div(tp_min_u64(cells, tile.total), part->per_line);
    return TP_OK;
}

/* What a tensor is called behind the name of its weight, or all of its name. */
static const char *short_name(const struct tp_picture *picture, const struct tp_picture_part *part)
{
    const char *name = picture->source->ckpt.tensors[picture->weight->tensor[part->out]].name;
    size_t size = strlen(picture->weight->name);
    bool behind = !strncmp(name, picture->weight->name, size) && name[size] == '.';
    return behind ? name + size + 1 : name;
}

/* Codes at the left, all others below each other at the right. */
static void place_part(struct tp_picture *picture, struct tp_picture_part *part, double *right_y)
{
    bool codes = picture->weight->form->op.out[part->out].role == TP_ROLE_CODES;
    double width = ADDRESS + CELL_W * (double)part->per_line + 30; /* "..." behind a line */
    double title = LETTER * (double)tp_min_u64(strlen(short_name(picture, part)) + 30, 150);
    double height = HEAD + CELL_H * (double)part->lines + FOOT;
    part->x = codes ? MARGIN : MARGIN + ADDRESS + CELL_W * LINE_CELLS + 30 + GAP;
    part->y = codes ? MARGIN : *right_y;
    if (!codes)
        *right_y += height;
    width = title > width ? title : width;
    if (part->x + width + MARGIN > picture->width)
        picture->width = part->x + width + MARGIN;
    if (part->y + height > picture->height)
        picture->height = part->y + height;
}

enum tp_code tp_picture_open(struct tp_picture *picture, const struct tp_source *source,
                             const struct tp_weight *weight, struct tp_err *err)
{
    double right_y = MARGIN;
    *picture = (struct tp_picture){.source = source, .weight = weight,
                                   .columns = tp_min_u64(weight->form->box.k, 256)};
    for (uint32_t i = 0; i < weight->form->op.outs; i++) {
        if (weight->tensor[i] == TP_NO_TENSOR || weight->form->op.out[i].role == TP_ROLE_WORDS)
            continue;
        struct tp_picture_part *part = &picture->part[picture->parts++];
        part->out = i;
        enum tp_code code = choose_lines(weight, part, err);
        if (code)
            return code;
        place_part(picture, part, &right_y);
    }
    return TP_OK;
}

/* ---- one cell -------------------------------------------------------------- */

/* A hue for each of 16 rows, the darker the further right in W. */
static void fill_of(const struct tp_picture *picture, const struct tp_stored *item, char text[40])
{
    double shade = (double)(item->k0 % picture->columns) / (double)picture->columns;
    if (item->padding)
        snprintf(text, 40, "#d0d0d0");
    else
        snprintf(text, 40, "hsl(%.1f,65%%,%.1f%%)", (double)(item->n0 % 16) * 22.5,
                 88 - 30 * shade);
}

static void label_of(const struct tp_op_out *out, const struct tp_stored *item, char text[60])
{
    if (item->padding)
        snprintf(text, 60, "pad");
    else
        snprintf(text, 60, "%llu,%llu",
                 (unsigned long long)(out->per_n ? item->n0 / out->per_n : 0),
                 (unsigned long long)(out->per_k ? item->k0 / out->per_k : 0));
}

static void put_attributes(FILE *out, const struct tp_op_out *op, const struct tp_stored *item,
                           const struct tp_element_info *info)
{
    char stored[TP_STORED_TEXT];
    fprintf(out, " data-byte=\"%llu\" data-offset=\"%llu\" data-stored=\"%s\"",
            (unsigned long long)item->spot.byte, (unsigned long long)item->spot.offset,
            tp_stored_text(stored, &item->spot, op->role == TP_ROLE_GROUP8));
    if (item->spot.bits == 4)
        fprintf(out, " data-half=\"%s\"", item->spot.nibble ? "high" : "low");
    if (item->padding) {
        fputs(" data-padding=\"1\"", out);
        return;
    }
    fprintf(out, " data-e=\"%llu\" data-e1=\"%llu\" data-n=\"%llu\" data-n1=\"%llu\" "
            "data-k=\"%llu\" data-k1=\"%llu\"", (unsigned long long)item->e0,
            (unsigned long long)item->e1, (unsigned long long)item->n0,
            (unsigned long long)item->n1, (unsigned long long)item->k0,
            (unsigned long long)item->k1);
    if (info->has_value)
        fprintf(out, " data-value=\"%.9g\"", info->value);
}

static enum tp_code draw_cell(struct tp_picture *picture, const struct tp_picture_part *part,
                              const struct tp_subject *subject, const struct tp_stored *item,
                              double x, double y, FILE *out, struct tp_err *err)
{
    const struct tp_op_out *op = &picture->weight->form->op.out[part->out];
    struct tp_element_info info = {.value = item->spot.value, .has_value = true};
    char fill[40], label[60];
    enum tp_code code = TP_OK;
    if (!item->padding && op->role == TP_ROLE_CODES)
        code = tp_inspect_at(&picture->source->ckpt, subject, item->e0, item->n0, item->k0,
                             &info, err);
    if (code)
        return code;
    fill_of(picture, item, fill);
    label_of(op, item, label);
    fprintf(out, "<g class=\"cell\" data-role=\"%s\"", tp_role_name(op->role));
    put_attributes(out, op, item, &info);
    fprintf(out, "><rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" fill=\"%s\" "
            "stroke=\"#fff\"/><text x=\"%.0f\" y=\"%.0f\" font-size=\"10\" "
            "text-anchor=\"middle\" style=\"fill:#111\">%s</text>", x, y, CELL_W, CELL_H, fill,
            x + CELL_W / 2.0, y + 15, label);
    if (!item->padding)
        fprintf(out, "<title>%s n=%llu k=%llu, byte %llu: %.9g</title>", tp_role_name(op->role),
                (unsigned long long)item->n0, (unsigned long long)item->k0,
                (unsigned long long)item->spot.byte, info.value);
    fputs("</g>\n", out);
    picture->cells++;
    return TP_OK;
}

/* ---- a tensor -------------------------------------------------------------- */

static enum tp_code draw_line(struct tp_picture *picture, const struct tp_picture_part *part,
                              const struct tp_subject *subject, uint64_t line, FILE *out,
                              struct tp_err *err)
{
    uint64_t first = line * part->line_step;
    uint64_t end = tp_min_u64(first + part->per_line, part->elements);
    double y = part->y + HEAD + CELL_H * (double)line;
    fprintf(out, "<text class=\"dim\" font-size=\"11\" x=\"%.0f\" y=\"%.0f\" "
            "text-anchor=\"end\">%llu</text>\n", part->x + ADDRESS - 8, y + 15,
            (unsigned long long)(first * part->bits / 8));
    for (uint64_t at = first; at < end;) {
        struct tp_byte_info info;
        enum tp_code code = tp_inspect_byte(&picture->source->ckpt, subject, at * part->bits / 8,
                                            &info, err);
        for (unsigned i = 0; i < info.count && at < end && code == TP_OK; i++, at++)
            code = draw_cell(picture, part, subject, &info.item[i],
                             part->x + ADDRESS + CELL_W * (double)(at - first), y, out, err);
        if (code)
            return code;
    }
    if (part->line_step > part->per_line)
        fprintf(out, "<text class=\"dim\" x=\"%.0f\" y=\"%.0f\">...</text>\n",
                part->x + ADDRESS + CELL_W * (double)part->per_line + 8, y + 15);
    return TP_OK;
}

static void draw_head(const struct tp_picture *picture, const struct tp_picture_part *part,
                      FILE *out)
{
    const struct tp_op_out *op = &picture->weight->form->op.out[part->out];
    fprintf(out, "<text x=\"%.0f\" y=\"%.0f\" font-weight=\"600\">%s</text>\n"
            "<text class=\"dim\" font-size=\"11\" x=\"%.0f\" y=\"%.0f\">", part->x,
            part->y + 12, tp_role_name(op->role), part->x, part->y + 30);
    tp_page_text(out, short_name(picture, part));
    fprintf(out, ": %s; at the left the byte</text>\n", tp_element_name(op->element));
}

static enum tp_code draw_part(struct tp_picture *picture, const struct tp_picture_part *part,
                              FILE *out, struct tp_err *err)
{
    struct tp_subject subject = {.tensor = picture->weight->tensor[part->out],
                                 .weight = picture->weight, .out = part->out,
                                 .box = picture->weight->form->box};
    enum tp_code code = TP_OK;
    draw_head(picture, part, out);
    for (uint64_t line = 0; line < part->lines && code == TP_OK; line++)
        code = draw_line(picture, part, &subject, line, out, err);
    if (part->lines * part->line_step < part->elements)
        fprintf(out, "<text class=\"dim\" x=\"%.0f\" y=\"%.0f\">...</text>\n",
                part->x + ADDRESS, part->y + HEAD + CELL_H * (double)part->lines + 14);
    return code;
}

enum tp_code tp_picture_draw(struct tp_picture *picture, FILE *out, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    picture->cells = 0;
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"system-ui,sans-serif\" font-size=\"13\">\n"
            "<style>.cell:hover rect,.cell.on rect{stroke:#111;stroke-width:2}</style>\n",
            picture->width, picture->height, picture->width, picture->height);
    for (unsigned i = 0; i < picture->parts && code == TP_OK; i++)
        code = draw_part(picture, &picture->part[i], out, err);
    fputs("</svg>\n", out);
    return code;
}
