/* The page of `tilepack compare`: a picture of size against error, and the same tables. It
 * holds no script. Invariant: names of files reach it through tp_page_text() alone. */
#include "cli/compare_report.h"
#include "cli/human.h"
#include "cli/page.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 900, HEIGHT = 520, LEFT = 60, RIGHT = 200, TOP = 20, BOTTOM = 50 };
enum { LINE = 15, MAX_MARKS = 64, SHOWN = 50 };

/* The part of the plane that is drawn. */
struct frame {
    double max_bytes, min_db, max_db;
};

static struct frame frame_of(const struct tp_candidates *all)
{
    struct frame frame = {.max_bytes = (double)all->bytes, .min_db = INFINITY};
    for (size_t i = 0; i < all->count; i++) {
        const struct tp_cost *c = &all->items[i];
        if (c->refused || !c->sum.measured)
            continue;
        frame.max_bytes = fmax(frame.max_bytes, (double)c->bytes);
        frame.min_db = fmin(frame.min_db, c->ranks[0].db);
        frame.max_db = fmax(frame.max_db, c->sum.mean_db);
    }
    frame.min_db = isfinite(frame.min_db) ? fmin(10 * floor(frame.min_db / 10), 0) : 0;
    frame.max_db = 10 * ceil(fmax(frame.max_db, 10) / 10);
    return frame;
}

static double x_of(const struct frame *frame, double bytes)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * bytes / fmax(frame->max_bytes, 1);
}

static double y_of(const struct frame *frame, double db)
{
    return HEIGHT - BOTTOM -
           (HEIGHT - TOP - BOTTOM) * (db - frame->min_db) / (frame->max_db - frame->min_db);
}

static void draw_axes(FILE *out, const struct frame *frame)
{
    char text[TP_HUMAN];
    int steps = (int)((frame->max_db + 0.5 - frame->min_db) / 10);
    for (int i = 0; i <= steps; i++) {
        double db = frame->min_db + 10 * i, y = y_of(frame, db);
        fprintf(out, "<line class=\"rule\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
                "<text class=\"dim\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f dB</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, db);
    }
    for (int i = 0; i <= 4; i++) {
        double bytes = frame->max_bytes * i / 4, x = x_of(frame, bytes);
        fprintf(out, "<text class=\"dim\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                x, HEIGHT - BOTTOM + 20, tp_human_bytes(text, (uint64_t)bytes));
    }
    fprintf(out, "<text class=\"dim\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">size of the "
            "checkpoint; the line goes down to the worst weight</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
}

/* What is drawn of one format: its dot, and its label at the right. */
struct before {
    const struct tp_cost *candidate;
    double x, y, worst_y, label_y;
};

static int by_height(const void *left, const void *right)
{
    const struct before *a = left, *b = right;
    return (a->y > b->y) - (a->y < b->y);
}

/* Labels in the order of their dots, none on another, and all inside. */
static void place_labels(struct before marks[], size_t count)
{
    double limit = HEIGHT - BOTTOM;
    qsort(marks, count, sizeof *marks, by_height);
    for (size_t i = 0; i < count; i++)
        marks[i].label_y = i ? fmax(marks[i].y, marks[i - 1].label_y + LINE) : marks[i].y;
    for (size_t i = count; i-- > 0; limit -= LINE)
        marks[i].label_y = fmin(marks[i].label_y, limit);
}

/* A dot at the mean, a line to the worst weight, and one to the name. */
static void draw_mark(FILE *out, const struct before *before)
{
    double end = WIDTH - RIGHT + 24;
    fprintf(out,
            "<g><line class=\"rule\" stroke-width=\"3\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
            "y2=\"%.1f\"/><line class=\"rule\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
            "<circle class=\"dot\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\">"
            "%s%s</text></g>\n",
            before->x, before->x, before->y, before->worst_y, before->x, before->y, end,
            before->label_y, before->x, before->y, end + 4, before->label_y + 4,
            before->candidate->format->name, before->candidate->sum.losing ? " (!)" : "");
}

static void draw_candidates(FILE *out, const struct tp_candidates *all, const struct frame *frame)
{
    struct before marks[MAX_MARKS] = {0};
    size_t count = 0;
    for (size_t i = 0; i < all->count && count < MAX_MARKS; i++) {
        const struct tp_cost *c = &all->items[i];
        if (!c->refused && c->sum.measured)
            marks[count++] = (struct before){.candidate = c, .x = x_of(frame, (double)c->bytes),
                                             .y = y_of(frame, c->sum.mean_db),
                                             .worst_y = y_of(frame, c->ranks[0].db)};
    }
    place_labels(marks, count);
    for (size_t i = 0; i < count; i++)
        draw_mark(out, &marks[i]);
}

static void draw(FILE *out, const struct tp_candidates *all)
{
    struct frame frame = frame_of(all);
    fprintf(out, "<div class=\"wide\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"signal to noise ratio "
            "against size\">\n", WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_axes(out, &frame);
    draw_candidates(out, all, &frame);
    fputs("</svg></div>\n", out);
}

static void put_row(FILE *out, const struct tp_candidates *all, const struct tp_cost *c)
{
    char size[TP_HUMAN];
    fprintf(out, "<tr><td><code>%s</code>%s</td>", c->format->name,
            c->weights_only ? " (only with --weights-only)" : "");
    if (c->refused) {
        fputs("<td colspan=\"8\">", out);
        tp_page_text(out, c->refused);
        fputs("</td></tr>\n", out);
        return;
    }
    fprintf(out, "<td class=\"n\">%s</td><td class=\"n\">%.3f</td><td class=\"n\">%zu</td>"
            "<td class=\"n\">%.3f</td>", tp_human_bytes(size, c->bytes),
            (double)c->bytes / (double)(all->bytes ? all->bytes : 1), c->sum.weights, c->sum.bits);
    if (c->sum.measured) {
        fprintf(out, "<td class=\"n\">%.2f</td><td class=\"n\">%.2f</td><td class=\"n\">%.2f%s</td>"
                "<td>", c->sum.mean_db, c->ranks[0].db, 100 * c->sum.most_lost,
                c->sum.losing ? " (!)" : "");
        tp_page_text(out, c->units[c->sum.worst].name);
        fputs("</td>", out);
    } else {
        fputs("<td class=\"n\">-</td><td class=\"n\">-</td><td class=\"n\">-</td><td></td>", out);
    }
    fputs("</tr>\n", out);
}

static void put_worst(FILE *out, const struct tp_cost *c)
{
    if (!c->rank_count)
        return;
    fprintf(out, "<details><summary><code>%s</code></summary>\n<table><tr><th>weight</th>"
            "<th class=\"n\">SNR dB</th><th class=\"n\">relative</th><th class=\"n\">max abs</th>"
            "<th class=\"n\">lost %%</th></tr>\n", c->format->name);
    for (size_t r = 0; r < c->rank_count && r < SHOWN; r++) {
        const struct tp_unit_result *unit = &c->units[c->ranks[r].unit];
        fputs("<tr><td><code>", out);
        tp_page_text(out, unit->name);
        fprintf(out, "</code></td><td class=\"n\">%.2f</td><td class=\"n\">%.5f</td>"
                "<td class=\"n\">%.3g</td><td class=\"n\">%.2f</td></tr>\n", c->ranks[r].db,
                tp_distance_relative(&unit->distance), unit->distance.max_abs,
                100 * tp_distance_lost(&unit->distance));
    }
    fputs("</table></details>\n", out);
}

void tp_compare_page(const struct tp_candidates *all, FILE *out)
{
    char size[TP_HUMAN];
    tp_page_head(out, "Formats compared");
    fputs("<p><code>", out);
    tp_page_text(out, all->source);
    fprintf(out, "</code>, %s. Errors are those of %s; SNR is the mean over the weights of the "
            "ratio of signal to noise. Lost are runs of eight neighbouring values of a row that "
            "became zero, of the weight that lost most; (!): more than healthy weights do.</p>\n",
            tp_human_bytes(size, all->bytes),
            all->full ? "all values" : "a sample of each weight");
    draw(out, all);
    fputs("<h2>Formats</h2>\n<div class=\"wide\"><table><tr><th>format</th><th class=\"n\">size"
          "</th><th class=\"n\">share</th><th class=\"n\">weights</th><th class=\"n\">bits</th>"
          "<th class=\"n\">SNR dB</th><th class=\"n\">worst dB</th><th class=\"n\">lost %</th>"
          "<th>the worst</th></tr>\n", out);
    for (size_t i = 0; i < all->count; i++)
        put_row(out, all, &all->items[i]);
    fputs("</table></div>\n<h2>The worst weights of each</h2>\n", out);
    for (size_t i = 0; i < all->count; i++)
        put_worst(out, &all->items[i]);
    tp_page_foot(out);
}
