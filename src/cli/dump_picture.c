/* `dump --svg` and `--html`: the picture of a weight's layout as a file, alone or in a page
 * that says more of the cell under the pointer. */
#include "cli/dump.h"
#include "cli/page.h"
#include "cli/picture.h"
#include "cli/report.h"


/* Has no character that markup takes for itself, so that the page is well-formed XML, too. */
static const char script[] =
    "(function () {\n"
    "    var what = document.getElementById('what');\n"
    "    var cells = Array.from(document.querySelectorAll('.cell'));\n"
    "    function covers(a, b) {\n"
    "        return ['e', 'n', 'k'].every(function (d) {\n"
    "            return Number(b[d + '1']) > Number(a[d]) ? Number(a[d + '1']) > Number(b[d]) : "
    "false;\n"
    "        });\n"
    "    }\n"
    "    function range(name, from, to) {\n"
    "        return ' ' + name + '=' + from + (to - from > 1 ? '..' + (to - 1) : '');\n"
    "    }\n"
    "    function show(cell) {\n"
    "        var d = cell.dataset, text = d.role + ':';\n"
    "        if (d.padding) text += ' padding';\n"
    "        else text += range('e', d.e, d.e1) + range('n', d.n, d.n1) + range('k', d.k, d.k1);\n"
    "        text += ', ' + (d.half ? d.half + ' half of ' : '') + 'byte ' + d.byte + ' (' +\n"
    "            d.offset + ' of the file), stored ' + d.stored;\n"
    "        if (d.value) text += ', value ' + d.value;\n"
    "        what.textContent = text;\n"
    "        cells.forEach(function (other) {\n"
    "            other.classList.toggle('on', other === cell ? true : covers(d, other.dataset));\n"
    "        });\n"
    "    }\n"
    "    var at = -1;\n"
    "    function point(event) {\n"
    "        var cell = event.target.closest('.cell');\n"
    "        if (cell) show(cells[at = cells.indexOf(cell)]);\n"
    "    }\n"
    "    document.addEventListener('mouseover', point);\n"
    "    document.addEventListener('click', point);\n"
    "    document.addEventListener('keydown', function (event) {\n"
    "        var step = {ArrowRight: 1, ArrowLeft: -1}[event.key];\n"
    "        if (!step || !cells[at + step]) return;\n"
    "        show(cells[at += step]);\n"
    "        event.preventDefault();\n"
    "    });\n"
    "})();\n";

static void put_lead(FILE *out, const struct tp_weight *weight)
{
    char box[TP_SHAPE_TEXT];
    fprintf(out, "<p><code>%s</code>, W%s. The bytes of the file follow each other from left to right, "
            "line by line. A cell is a stored element, and its numbers say which: row n and column "
            "k of W, or of a scale the block. Each row n has a colour (sixteen of them, then "
            "again), and the colour is darker where k is larger.</p>\n"
            "<p id=\"what\"><b>Point at a cell, or touch it, or press the arrow keys: here stands "
            "what it holds, and the codes and scales that belong together are marked.</b></p>\n",
            weight->form->format->name, tp_box_text(box, &weight->form->box, weight->form->rank));
}

/* The picture alone, or in a page. */
static enum tp_code write_file(struct tp_picture *picture, const char *path, bool html,
                               struct tp_err *err)
{
    struct tp_page page;
    enum tp_code code = tp_page_open(&page, path, html ? ".html" : ".svg",
                                     tp_checkpoint_file_mode(&picture->source->ckpt), err);
    if (code)
        return code;
    if (html) {
        tp_page_head(page.file, picture->weight->name);
        put_lead(page.file, picture->weight);
        fputs("<div class=\"wide full\">", page.file);
    }
    code = tp_picture_draw(picture, page.file, err);
    if (html) {
        fprintf(page.file, "</div>\n<script>\n%s</script>\n", script);
        tp_page_foot(page.file);
    }
    return tp_page_close(&page, code, err);
}

static int report(const struct tp_options *o, const struct tp_picture *picture)
{
    const char *paths[] = {o->svg, o->html};
    if (o->json)
        return tp_json_result(tp_str("weight", picture->weight->name),
                              tp_str("format", picture->weight->form->format->name),
                              tp_str("svg", o->svg), tp_str("html", o->html),
                              tp_num("cells", picture->cells));
    for (int i = 0; i < 2; i++)
        if (paths[i]) {
            tp_print_text(stdout, paths[i]);
            printf(": %zu cells of %s\n", picture->cells, picture->weight->form->format->name);
        }
    return TP_OK;
}

int tp_dump_picture(const struct tp_options *o, const struct tp_source *source,
                    const struct tp_subject *subject)
{
    struct tp_picture picture;
    struct tp_err err = {0};
    if (!subject->weight) {
        tp_err_tensor(&err, source->ckpt.tensors[subject->tensor].name);
        tp_fail(&err, TP_E_USAGE, "it is not packed: rows in order are no picture");
        return tp_report_error(&err);
    }
    enum tp_code code = tp_picture_open(&picture, source, subject->weight, &err);
    if (code == TP_OK && o->svg)
        code = write_file(&picture, o->svg, false, &err);
    if (code == TP_OK && o->html)
        code = write_file(&picture, o->html, true, &err);
    return code ? tp_report_error(&err) : report(o, &picture);
}
