/* The page of `tilepack compare`: a picture of size against error, and the same tables. It
 * holds no script. Invariant: names of files reach it through tp_page_text() alone. */
#include "cli/compare_report.h"
#include "cli/human.h"
#include "cli/page.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 980, HEIGHT = 700, LEFT = 60, RIGHT = 280, TOP = 20, BOTTOM = 50 };
enum { LINE = 15, NEAR = 3, MAX_MARKS = (HEIGHT - TOP - BOTTOM) / LINE, SHOWN = 50 };

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

/* One dot, with its label at the right: formats of one codec that have the same size and error, as
 * layouts of the same numbers have. */
struct mark {
    const struct tp_cost *first;
    double x, y, worst_y, label_y;
    size_t others; /* formats beside the first */
};

struct marks {
    struct mark item[MAX_MARKS];
    size_t count;
};

/* Whether two are the same within a few pixels. */
static bool is_same(double a, double b)
{
    return lround(a / NEAR) == lround(b / NEAR);
}

static bool belongs(const struct mark *mark, const struct mark *one)
{
    return mark->first->format->op.codec == one->first->format->op.codec &&
           !mark->first->sum.losing == !one->first->sum.losing && is_same(mark->x, one->x) &&
           is_same(mark->y, one->y) && is_same(mark->worst_y, one->worst_y);
}

/* false: nothing was measured of it. */
static bool mark_of(const struct tp_cost *c, const struct frame *frame, struct mark *mark)
{
    if (c->refused || !c->sum.measured)
        return false;
    *mark = (struct mark){.first = c, .x = x_of(frame, (double)c->bytes),
                          .y = y_of(frame, c->sum.mean_db), .worst_y = y_of(frame, c->ranks[0].db)};
    return true;
}

static struct marks find_marks(const struct tp_candidates *all, const struct frame *frame)
{
    struct marks marks = {0};
    for (size_t i = 0; i < all->count && marks.count < MAX_MARKS; i++) {
        struct mark one;
        size_t at = 0;
        if (!mark_of(&all->items[i], frame, &one))
            continue;
        while (at < marks.count && !belongs(&marks.item[at], &one))
            at++;
        if (at < marks.count)
            marks.item[at].others++;
        else
            marks.item[marks.count++] = one;
    }
    return marks;
}

static int by_height(const void *left, const void *right)
{
    const struct mark *a = left, *b = right;
    return (a->y > b->y) - (a->y < b->y);
}

/* Labels in the order of their dots, none on another, and all inside: LINE * count is no more than
 * the frame is high. */
static void place_labels(struct marks *marks, double limit)
{
    struct mark *mark = marks->item;
    qsort(mark, marks->count, sizeof *mark, by_height);
    for (size_t i = 0; i < marks->count; i++)
        mark[i].label_y = i ? fmax(mark[i].y, mark[i - 1].label_y + LINE) : mark[i].y;
    for (size_t i = marks->count; i-- > 0; limit -= LINE)
        mark[i].label_y = fmin(mark[i].label_y, limit);
}

/* The names of all formats of a mark, which the pointer over it shows. */
static void put_names(FILE *out, const struct tp_candidates *all, const struct frame *frame,
                      const struct mark *mark)
{
    const char *between = "<title>";
    for (size_t i = 0; i < all->count; i++) {
        struct mark one;
        if (!mark_of(&all->items[i], frame, &one) || !belongs(mark, &one))
            continue;
        fprintf(out, "%s%s", between, one.first->format->name);
        between = ", ";
    }
    fputs("</title>", out);
}

/* A dot at the mean, a line to the worst weight, and one to the name. */
static void draw_mark(FILE *out, const struct mark *mark)
{
    double end = WIDTH - RIGHT + 24;
    fprintf(out,
            "<line class=\"rule\" stroke-width=\"3\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
            "y2=\"%.1f\"/><line class=\"rule\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
            "<circle class=\"dot\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"/><text class=\"name\" "
            "x=\"%.1f\" y=\"%.1f\">%s", mark->x, mark->x, mark->y, mark->worst_y, mark->x, mark->y,
            end, mark->label_y, mark->x, mark->y, end + 4, mark->label_y + 4,
            mark->first->format->name);
    if (mark->others)
        fprintf(out, " and %zu more", mark->others);
    fprintf(out, "%s</text>", mark->first->sum.losing ? " (!)" : "");
}

static void draw(FILE *out, const struct tp_candidates *all)
{
    struct frame frame = frame_of(all);
    struct marks marks = find_marks(all, &frame);
    place_labels(&marks, HEIGHT - BOTTOM);
    fprintf(out, "<div class=\"wide\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" style=\"max-width:100%%;height:auto\" role=\"img\" "
            "aria-label=\"signal to noise ratio against size\">\n", WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_axes(out, &frame);
    for (size_t i = 0; i < marks.count; i++) {
        fputs("<g>", out);
        put_names(out, all, &frame, &marks.item[i]);
        draw_mark(out, &marks.item[i]);
        fputs("</g>\n", out);
    }
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
