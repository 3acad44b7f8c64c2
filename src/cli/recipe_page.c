/* The page of `tilepack recipe`: error against bits, and the formats of layers over the depth of the
 * model. It holds no script. Invariant: names of files reach it through tp_page_text() alone. */
#include "cli/recipe_report.h"

#include "cli/page.h"
#include "pack/os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 860, HEIGHT = 420, LEFT = 70, RIGHT = 150, TOP = 20, BOTTOM = 40 };
enum { CELL = 12, ROW = 18, NAMES = 330, KIND = 300, MAX_KINDS = 200 };

/* The part of the plane that is drawn; errors by their logarithms. */
struct frame {
    double min_bits, max_bits, min_error, max_error;
};

static double x_of(const struct frame *frame, double bits)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (bits - frame->min_bits) /
                      fmax(frame->max_bits - frame->min_bits, 1e-9);
}

static double y_of(const struct frame *frame, double error)
{
    const double from = log10(frame->min_error), to = log10(frame->max_error);
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) *
                                 (log10(fmax(error, frame->min_error)) - from) / (to - from);
}

/* An error of 0 has no logarithm: it is at the lower edge. */
static struct frame frame_of(const struct tp_recipe *recipe, const struct tp_share_point *line,
                             size_t count)
{
    const struct tp_share_point *last = &line[count - 1];
    struct frame frame = {floor(tp_bits_of(line[0].bytes, recipe->values)),
                          ceil(tp_bits_of(last->bytes, recipe->values)), INFINITY, line[0].cost};
    for (size_t i = 0; i < count; i++)
        if (line[i].cost > 1e-6 * line[0].cost)
            frame.min_error = fmin(frame.min_error, line[i].cost);
    if (!(frame.max_error > 0))
        frame.min_error = frame.max_error = 1;
    frame.min_error = pow(10, floor(log10(frame.min_error)));
    frame.max_error = 10 * pow(10, floor(log10(frame.max_error)));
    return frame;
}

static void draw_axes(FILE *out, const struct frame *frame)
{
    const int last_bits = (int)frame->max_bits, last_power = (int)lround(log10(frame->max_error));
    for (int bits = (int)frame->min_bits; bits <= last_bits; bits++)
        fprintf(out, "<text class=\"dim\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%d</text>\n",
                x_of(frame, bits), HEIGHT - BOTTOM + 18, bits);
    for (int power = (int)lround(log10(frame->min_error)); power <= last_power; power++) {
        const double y = y_of(frame, pow(10, power));
        fprintf(out, "<line class=\"rule\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text "
                "class=\"dim\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">1e%+03d</text>\n", LEFT,
                WIDTH - RIGHT, y, y, LEFT - 8, y + 4, power);
    }
    fprintf(out, "<text class=\"dim\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">bits for each weight"
            "</text>\n", (WIDTH - RIGHT + LEFT) / 2, HEIGHT - 4);
}

static void draw_dot(FILE *out, const struct frame *frame, double bits, double error,
                     const char *name)
{
    fprintf(out, "<circle class=\"dot\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"/><text x=\"%.1f\" "
            "y=\"%.1f\">%s</text>\n", x_of(frame, bits), y_of(frame, error), x_of(frame, bits) + 8,
            y_of(frame, error) - 4, name);
}

static void draw_line(FILE *out, const struct tp_recipe *recipe, const struct tp_share_point *line,
                      size_t count)
{
    const struct frame frame = frame_of(recipe, line, count);
    uint64_t bytes;
    double error;
    fprintf(out, "<div class=\"wide\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"error against bits\">\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_axes(out, &frame);
    fputs("<polyline fill=\"none\" stroke=\"var(--mark)\" points=\"", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%.1f,%.1f ", x_of(&frame, tp_bits_of(line[i].bytes, recipe->values)),
                y_of(&frame, line[i].cost));
    fputs("\"/>\n", out);
    for (size_t f = 0; f < recipe->formats; f++)
        if (tp_recipe_uniform(recipe, f, &bytes, &error))
            draw_dot(out, &frame, tp_bits_of(bytes, recipe->values), error,
                     recipe->format[f].name);
    draw_dot(out, &frame, tp_bits_of(recipe->share.bytes, recipe->values), recipe->share.cost,
             "this recipe");
    fputs("</svg></div>\n", out);
}

/* ---- layers -------------------------------------------------------------------------- */

/* How dark a format is: the more bits, the darker. */
static double shade_of(const struct tp_recipe *recipe, size_t f)
{
    return recipe->formats < 2 ? 1 : 0.2 + 0.8 * (double)f / (double)(recipe->formats - 1);
}

static void draw_set(FILE *out, const struct tp_recipe *recipe, size_t s, size_t row)
{
    const struct tp_weight_set *set = &recipe->sets.item[s];
    const uint32_t f = recipe->taken[s];
    fprintf(out, "<rect x=\"%lld\" y=\"%zu\" width=\"%d\" height=\"%d\" fill=\"var(--mark)\" "
            "fill-opacity=\"%.2f\"><title>", NAMES + CELL * (long long)(set->layer < 0 ? 0
            : set->layer), ROW * row, CELL - 1, ROW - 2, shade_of(recipe, f));
    tp_page_text(out, set->name);
    fprintf(out, ": %s, error %.4g</title></rect>\n", recipe->format[f].name,
            tp_recipe_choice(recipe, s, f)->cost);
}

/* A kind has a row, in the order of the first set of each. */
struct kinds {
    char name[MAX_KINDS][KIND];
    size_t count;
    int64_t layers;
};

static size_t row_of(struct kinds *kinds, const struct tp_weight_set *set)
{
    char kind[KIND];
    size_t row = 0;
    tp_recipe_kind(set, kind, sizeof kind);
    while (row < kinds->count && strcmp(kinds->name[row], kind) != 0)
        row++;
    if (row == kinds->count && row < MAX_KINDS)
        memcpy(kinds->name[kinds->count++], kind, sizeof kind);
    kinds->layers = set->layer > kinds->layers ? set->layer : kinds->layers;
    return row;
}

static void draw_layers(FILE *out, const struct tp_recipe *recipe, struct kinds *kinds)
{
    for (size_t s = 0; s < recipe->sets.count; s++)
        row_of(kinds, &recipe->sets.item[s]);
    const long long width = NAMES + CELL * (long long)(kinds->layers + 1);
    fprintf(out, "<h2>Layers</h2>\n<p class=\"dim\">From the first to the last; the darker, the "
            "later a format stands in --formats.</p>\n<div class=\"wide\"><svg "
            "xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%zu\" role=\"img\" "
            "aria-label=\"formats of layers\">\n", width, ROW * kinds->count);
    for (size_t row = 0; row < kinds->count; row++) {
        fprintf(out, "<text x=\"0\" y=\"%zu\">", ROW * row + 13);
        tp_page_text(out, kinds->name[row]);
        fputs("</text>\n", out);
    }
    for (size_t s = 0; s < recipe->sets.count; s++) {
        const size_t row = row_of(kinds, &recipe->sets.item[s]);
        if (recipe->taken[s] < recipe->formats && row < MAX_KINDS)
            draw_set(out, recipe, s, row);
    }
    fputs("</svg></div>\n", out);
}

static void put_formats(FILE *out, const struct tp_recipe *recipe)
{
    fputs("<h2>Formats</h2>\n<table><tr><th>format</th><th class=\"n\">sets</th><th class=\"n\">bits, "
          "if of all</th><th class=\"n\">error</th></tr>\n", out);
    for (size_t f = 0; f < recipe->formats; f++) {
        uint64_t bytes;
        double error;
        fprintf(out, "<tr><td><code>%s</code></td><td class=\"n\">%zu</td>", recipe->format[f].name,
                recipe->format[f].taken);
        if (tp_recipe_uniform(recipe, f, &bytes, &error))
            fprintf(out, "<td class=\"n\">%.3f</td><td class=\"n\">%.4g</td></tr>\n",
                    tp_bits_of(bytes, recipe->values), error);
        else
            fputs("<td class=\"n\">-</td><td class=\"n\">-</td></tr>\n", out);
    }
    fputs("</table>\n", out);
}

enum tp_code tp_recipe_page(const struct tp_recipe_report *report, FILE *out, struct tp_err *err)
{
    const struct tp_recipe *recipe = report->recipe;
    struct tp_share_point *line = NULL;
    size_t count = 0;
    struct kinds *kinds = tp_os_zalloc(1, sizeof *kinds, err);
    enum tp_code code = kinds ? tp_share_line(recipe->choices, recipe->sets.count, &line, &count,
                                              err) : TP_E_MEMORY;
    if (code == TP_OK) {
        tp_page_head(out, "A recipe");
        fputs("<p><code>", out);
        tp_page_text(out, report->source);
        fprintf(out, "</code> in %.4f bits for each weight, of %.6g. The line is what recipes reach "
                "at best; error 0 is at its lower edge.</p>\n",
                tp_bits_of(recipe->share.bytes, recipe->values), report->wish->bits);
        draw_line(out, recipe, line, count);
        put_formats(out, recipe);
        draw_layers(out, recipe, kinds);
        tp_page_foot(out);
    }
    free(line);
    free(kinds);
    return code;
}
