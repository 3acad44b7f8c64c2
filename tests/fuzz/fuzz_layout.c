/* Fuzz target: a box "E N K" in the first line, a layout's text in the second, another in
 * the third, and an expression in the fourth.
 *
 * Beyond not crashing: what is printed reads back the same; small layouts are walked element
 * by element, and are a bijection exactly where the check says so; coordinates go back;
 * runs of a part inside of a whole cover it once. Build: make fuzz.
 */
#include "folder.h"

#include "base/layout_parse.h"

#include <stdbool.h>

enum { WALKED = 4096 };

struct covered {
    const struct tp_layout *whole;
    uint64_t next, limit;
};

static int cover(void *arg, uint64_t whole_offset, uint64_t part_offset, uint64_t length)
{
    struct covered *covered = arg;
    (void)whole_offset;
    must(part_offset == covered->next && length > 0);
    covered->next += length;
    return covered->next > covered->limit;
}

static bool walk(const struct tp_layout *layout, uint64_t size)
{
    bool seen[WALKED] = {false};
    for (uint64_t e = 0; e < tp_layout_extent(layout, TP_DIM_E); e++)
        for (uint64_t n = 0; n < tp_layout_extent(layout, TP_DIM_N); n++)
            for (uint64_t k = 0; k < tp_layout_extent(layout, TP_DIM_K); k++) {
                uint64_t at = tp_layout_at(layout, e, n, k);
                if (at >= size || seen[at])
                    return false;
                seen[at] = true;
            }
    return true;
}

static void go_back(const struct tp_layout *layout, uint64_t size)
{
    uint64_t coord[TP_DIMS];
    for (uint64_t at = 0; at < size; at++) {
        tp_layout_coord(layout, at, coord);
        must(tp_layout_at(layout, coord[0], coord[1], coord[2]) == at);
    }
}

static void print_and_read(const struct tp_layout *layout, struct tp_box3 box)
{
    char text[4096];
    struct tp_layout again;
    struct tp_err err = {0};
    must(tp_layout_print(layout, text, sizeof text) < sizeof text);
    must(tp_layout_parse(text, box, &again, &err) == TP_OK);
    for (int d = 0; d < TP_DIMS; d++) {
        must(layout->dim[d].modes == again.dim[d].modes);
        for (uint32_t m = 0; m < again.dim[d].modes; m++)
            must(layout->dim[d].size[m] == again.dim[d].size[m] &&
                 layout->dim[d].stride[m] == again.dim[d].stride[m]);
    }
}

static bool try(const char *text, struct tp_box3 box, struct tp_layout *layout)
{
    struct tp_err err = {0};
    uint64_t granule;
    struct tp_layout_expr expr;
    enum tp_code code = tp_layout_parse(text, box, layout, &err);
    must(code == err.code && (code == TP_OK || err.what[0]));
    if (tp_layout_compile(text, &expr, NULL) == TP_OK)
        for (int d = 0; d < TP_DIMS; d++)
            must(tp_layout_granule(&expr, d, &granule, NULL) != TP_OK || granule > 0 || code);
    if (code)
        return false;
    print_and_read(layout, box);
    bool good = tp_layout_check(layout, &err) == TP_OK;
    must(good || err.what[0]);
    uint64_t size = tp_layout_size(layout);
    if (size && size <= WALKED) {
        must(walk(layout, size) == good);
        if (good)
            go_back(layout, size);
    }
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *lines[4], *text = strndup((const char *)data, size);
    unsigned long long e = 0, n = 0, k = 0;
    must(text != NULL);
    lines[0] = text;
    for (int i = 1; i < 4; i++) {
        char *end = strchr(lines[i - 1], '\n');
        lines[i] = end ? end + 1 : lines[i - 1] + strlen(lines[i - 1]);
        if (end)
            *end = '\0';
    }
    sscanf(lines[0], "%llu %llu %llu", &e, &n, &k);
    struct tp_box3 box = {e, n, k};
    struct tp_layout whole, part;
    bool good = try(lines[1], box, &whole);
    if (try(lines[2], box, &part) && good && tp_layout_embeds(&part, &whole)) {
        uint64_t run = tp_layout_run_length(&part, &whole);
        struct covered covered = {&whole, 0, WALKED};
        must(run > 0);
        if (!tp_layout_runs(&part, &whole, 0, cover, &covered))
            must(covered.next == tp_layout_size(&part));
    }
    uint64_t value = 0, again = 0;
    struct tp_err err = {0};
    if (tp_expr_eval(lines[3], box, &value, &err) == TP_OK)
        must(tp_expr_eval(lines[3], box, &again, NULL) == TP_OK && value == again);
    else
        must(err.what[0]);
    free(text);
    return 0;
}
