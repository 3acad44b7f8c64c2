/* Layouts: parsing, evaluation and the index functions.
 *
 * One recursive-descent parser reads both expressions and layouts. Offsets are
 * separable: the offset of (e,n,k) is the sum of one term per dimension, because
 * every mode belongs to one dimension. Embedding and runs are in layout_runs.c.
 */
#include "base/layout.h"

#include "base/num.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 32 }; /* of expressions in one another: the parser's stack is bounded */

struct parser {
    const char *start, *at;
    struct tp_box3 box;
    uint64_t stretches; /* what S stands for */
    uint64_t align;    /* least common multiple of the align() units seen */
    unsigned depth;
    const uint64_t *index; /* what I stands for, or NULL */
    struct tp_err *err;
};

static enum tp_code parse_sum(struct parser *p, uint64_t *value);

static enum tp_code bad(struct parser *p, const char *why)
{
    return tp_fail(p->err, TP_E_INPUT, "layout '%s', at '%.20s': %s", p->start, p->at, why);
}

static void skip_space(struct parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static bool accept(struct parser *p, char c)
{
    skip_space(p);
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}

static enum tp_code expect(struct parser *p, char c)
{
    char why[] = "expected ' '";
    why[10] = c;
    return accept(p, c) ? TP_OK : bad(p, why);
}

static enum tp_code parse_number(struct parser *p, uint64_t *value)
{
    *value = 0;
    while (isdigit((unsigned char)*p->at)) {
        if (!tp_mul_u64(value, *value, 10) ||
            !tp_add_u64(value, *value, (uint64_t)(*p->at - '0')))
            return bad(p, "number does not fit 64 bits");
        p->at++;
    }
    return TP_OK;
}

/* ceil(a,b) and align(a,b); the name is already read. */
static enum tp_code parse_call(struct parser *p, bool is_align, uint64_t *value)
{
    uint64_t a, b;
    enum tp_code code;
    if ((code = expect(p, '(')) || (code = parse_sum(p, &a)) || (code = expect(p, ',')) ||
        (code = parse_sum(p, &b)) || (code = expect(p, ')')))
        return code;
    if (b == 0)
        return bad(p, "second argument is zero");
    if (!is_align) {
        *value = tp_ceil_div(a, b);
        return TP_OK;
    }
    if (!tp_lcm_u64(&p->align, p->align, b) || !tp_align_u64(value, a, b))
        return bad(p, "align() does not fit 64 bits");
    return TP_OK;
}

static enum tp_code parse_atom(struct parser *p, uint64_t *value)
{
    skip_space(p);
    if (isdigit((unsigned char)*p->at))
        return parse_number(p, value);
    if (*p->at == 'E' || *p->at == 'N' || *p->at == 'K') {
        char name = *p->at++;
        *value = name == 'E' ? p->box.e : name == 'N' ? p->box.n : p->box.k;
        return TP_OK;
    }
    if (*p->at == 'S') {
        p->at++;
        *value = p->stretches;
        return TP_OK;
    }
    if (*p->at == 'I' && p->index) {
        p->at++;
        *value = *p->index;
        return TP_OK;
    }
    if (strncmp(p->at, "ceil", 4) == 0 || strncmp(p->at, "align", 5) == 0) {
        bool is_align = *p->at == 'a';
        p->at += is_align ? 5 : 4;
        return parse_call(p, is_align, value);
    }
    if (!accept(p, '('))
        return bad(p, "expected a number, E, N, K, S, ceil, align or '('");
    enum tp_code code = parse_sum(p, value);
    return code ? code : expect(p, ')');
}

static enum tp_code parse_product(struct parser *p, uint64_t *value)
{
    enum tp_code code = parse_atom(p, value);
    while (code == TP_OK) {
        uint64_t right;
        if (accept(p, '*')) {
            if ((code = parse_atom(p, &right)) == TP_OK && !tp_mul_u64(value, *value, right))
                code = bad(p, "product does not fit 64 bits");
        } else if (accept(p, '/')) {
            if ((code = parse_atom(p, &right)) == TP_OK && (right == 0 || *value % right != 0))
                code = bad(p, "division is not exact");
            else if (code == TP_OK)
                *value /= right;
        } else {
            break;
        }
    }
    return code;
}

static enum tp_code parse_sum(struct parser *p, uint64_t *value)
{
    if (p->depth == MAX_DEPTH)
        return bad(p, "expressions are nested too deeply");
    p->depth++;
    enum tp_code code = parse_product(p, value);
    while (code == TP_OK) {
        uint64_t right;
        if (accept(p, '+')) {
            if ((code = parse_product(p, &right)) == TP_OK && !tp_add_u64(value, *value, right))
                code = bad(p, "sum does not fit 64 bits");
        } else if (accept(p, '-')) {
            if ((code = parse_product(p, &right)) == TP_OK && !tp_sub_u64(value, *value, right))
                code = bad(p, "difference is negative");
        } else {
            break;
        }
    }
    p->depth--;
    return code;
}

/* One dimension's sizes or strides: an expression, or a parenthesised list of
 * them. "(a)*b" begins with '(' too; only a comma at this depth makes a list. */
static bool is_list(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        if (*at == '(')
            depth++;
        else if (*at == ')' && --depth == 0)
            return false;
        else if (*at == ',' && depth == 1)
            return true;
    }
    return false;
}

static enum tp_code parse_modes(struct parser *p, uint64_t values[], uint32_t *count)
{
    enum tp_code code = TP_OK;
    skip_space(p);
    *count = 0;
    if (*p->at != '(' || !is_list(p->at)) {
        *count = 1;
        return parse_sum(p, &values[0]);
    }
    p->at++;
    do {
        if (*count == TP_LAYOUT_MODES)
            return bad(p, "too many modes in one dimension");
        if ((code = parse_sum(p, &values[(*count)++])))
            return code;
    } while (accept(p, ','));
    return expect(p, ')');
}

static enum tp_code parse_half(struct parser *p, uint64_t values[][TP_LAYOUT_MODES],
                               uint32_t counts[])
{
    enum tp_code code = expect(p, '(');
    for (int d = 0; d < TP_DIMS && code == TP_OK; d++)
        if (d == 0 || (code = expect(p, ',')) == TP_OK)
            code = parse_modes(p, values[d], &counts[d]);
    return code ? code : expect(p, ')');
}

/* Sizes must be positive and the largest offset must fit 63 bits. */
static enum tp_code check_range(struct parser *p, const struct tp_layout *layout)
{
    uint64_t last = 0, count = 1;
    for (int d = 0; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout->dim[d].modes; m++) {
            uint64_t size = layout->dim[d].size[m], span;
            if (size == 0)
                return bad(p, "a mode has size zero");
            if (!tp_mul_u64(&span, size - 1, layout->dim[d].stride[m]) ||
                !tp_add_u64(&last, last, span) || !tp_mul_u64(&count, count, size) ||
                last > INT64_MAX || count > INT64_MAX)
                return bad(p, "offsets do not fit 63 bits");
        }
    return TP_OK;
}

static enum tp_code evaluate(struct parser *p, uint64_t *value)
{
    enum tp_code code = parse_sum(p, value);
    skip_space(p);
    return code ? code : *p->at ? bad(p, "text after the expression") : TP_OK;
}

enum tp_code tp_expr_eval(const char *text, struct tp_box3 box, uint64_t *value,
                          struct tp_err *err)
{
    return tp_expr_eval_of(text, box, 1, value, err);
}

enum tp_code tp_expr_eval_of(const char *text, struct tp_box3 box, uint64_t stretches,
                             uint64_t *value, struct tp_err *err)
{
    struct parser p = {.start = text, .at = text, .box = box, .stretches = stretches, .align = 1,
                       .err = err};
    return evaluate(&p, value);
}

enum tp_code tp_expr_eval_at(const char *text, struct tp_box3 box, uint64_t index,
                             uint64_t *value, struct tp_err *err)
{
    struct parser p = {.start = text, .at = text, .box = box, .stretches = 1, .align = 1,
                       .index = &index, .err = err};
    return evaluate(&p, value);
}

enum tp_code tp_layout_parse(const char *text, struct tp_box3 box, struct tp_layout *layout,
                             struct tp_err *err)
{
    return tp_layout_parse_of(text, box, 1, layout, err);
}

enum tp_code tp_layout_parse_of(const char *text, struct tp_box3 box, uint64_t stretches,
                                struct tp_layout *layout, struct tp_err *err)
{
    struct parser p = {.start = text, .at = text, .box = box, .stretches = stretches, .align = 1,
                       .err = err};
    uint64_t sizes[TP_DIMS][TP_LAYOUT_MODES], strides[TP_DIMS][TP_LAYOUT_MODES];
    uint32_t size_count[TP_DIMS], stride_count[TP_DIMS];
    enum tp_code code;
    if ((code = parse_half(&p, sizes, size_count)) || (code = expect(&p, ':')) ||
        (code = parse_half(&p, strides, stride_count)))
        return code;
    skip_space(&p);
    if (*p.at)
        return bad(&p, "text after the layout");
    for (int d = 0; d < TP_DIMS; d++) {
        if (size_count[d] != stride_count[d])
            return bad(&p, "shape and stride are nested differently");
        layout->dim[d].modes = size_count[d];
        memcpy(layout->dim[d].size, sizes[d], sizeof sizes[d][0] * size_count[d]);
        memcpy(layout->dim[d].stride, strides[d], sizeof strides[d][0] * size_count[d]);
    }
    return check_range(&p, layout);
}

enum tp_code tp_layout_granule(const char *text, int dim, uint64_t *granule, struct tp_err *err)
{
    /* Any box serves to walk the text; this one divides by every power of two
     * and small factor that a format uses. */
    static const struct tp_box3 probe = {1, 1u << 20, 1u << 20};
    struct parser p = {.start = text, .at = text, .box = probe, .stretches = 1, .align = 1,
                       .err = err};
    enum tp_code code = expect(&p, '(');
    *granule = 1;
    for (int d = 0; d <= dim && code == TP_OK; d++) {
        uint64_t values[TP_LAYOUT_MODES];
        uint32_t count;
        if (d && (code = expect(&p, ',')))
            break;
        p.align = 1;
        if ((code = parse_modes(&p, values, &count)) || d != dim)
            continue;
        for (uint32_t m = 0; m + 1 < count; m++)
            if (!tp_mul_u64(granule, *granule, values[m]))
                return bad(&p, "granule does not fit 64 bits");
        if (!tp_lcm_u64(granule, *granule, p.align))
            return bad(&p, "granule does not fit 64 bits");
        if (!*granule) /* as 1-E is for one expert */
            return bad(&p, "a size may be 0");
    }
    return code;
}

struct mode {
    uint64_t size, stride;
};

/* All modes of more than one element, by ascending stride. */
static int sorted_modes(const struct tp_layout *layout, struct mode modes[])
{
    int count = 0;
    for (int d = 0; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout->dim[d].modes; m++) {
            struct mode mode = {layout->dim[d].size[m], layout->dim[d].stride[m]};
            if (mode.size == 1)
                continue;
            int at = count++;
            for (; at > 0 && modes[at - 1].stride > mode.stride; at--)
                modes[at] = modes[at - 1];
            modes[at] = mode;
        }
    return count;
}

enum tp_code tp_layout_check(const struct tp_layout *layout, struct tp_err *err)
{
    struct mode modes[TP_DIMS * TP_LAYOUT_MODES];
    int count = sorted_modes(layout, modes);
    uint64_t next = 1;
    for (int i = 0; i < count; i++) {
        if (modes[i].stride != next)
            return tp_fail(err, TP_E_INPUT,
                           "layout is not a bijection: expected a mode of stride %llu, found %llu",
                           (unsigned long long)next, (unsigned long long)modes[i].stride);
        next *= modes[i].size; /* fits: tp_layout_parse checked the whole size */
    }
    return TP_OK;
}

uint64_t tp_layout_extent(const struct tp_layout *layout, int dim)
{
    uint64_t extent = 1;
    for (uint32_t m = 0; m < layout->dim[dim].modes; m++)
        extent *= layout->dim[dim].size[m];
    return extent;
}

uint64_t tp_layout_size(const struct tp_layout *layout)
{
    uint64_t size = 1;
    for (int d = 0; d < TP_DIMS; d++)
        size *= tp_layout_extent(layout, d);
    return size;
}

uint64_t tp_layout_dim_at(const struct tp_layout_dim *dim, uint64_t x)
{
    uint64_t offset = 0;
    for (uint32_t m = 0; m + 1 < dim->modes; m++) {
        offset += x % dim->size[m] * dim->stride[m];
        x /= dim->size[m];
    }
    return offset + x * dim->stride[dim->modes - 1];
}

uint64_t tp_layout_at(const struct tp_layout *layout, uint64_t e, uint64_t n, uint64_t k)
{
    return tp_layout_dim_at(&layout->dim[TP_DIM_E], e) +
           tp_layout_dim_at(&layout->dim[TP_DIM_N], n) +
           tp_layout_dim_at(&layout->dim[TP_DIM_K], k);
}

void tp_layout_coord(const struct tp_layout *layout, uint64_t offset, uint64_t coord[TP_DIMS])
{
    for (int d = 0; d < TP_DIMS; d++) {
        uint64_t weight = 1; /* of this mode's digit within the coordinate */
        coord[d] = 0;
        for (uint32_t m = 0; m < layout->dim[d].modes; m++) {
            uint64_t size = layout->dim[d].size[m], stride = layout->dim[d].stride[m];
            if (size > 1)
                coord[d] += offset / stride % size * weight;
            weight *= size;
        }
    }
}

static void put(char *text, size_t size, size_t *length, const char *part)
{
    for (; *part; part++, ++*length)
        if (*length + 1 < size)
            text[*length] = *part;
    if (size)
        text[*length < size ? *length : size - 1] = '\0';
}

static void put_modes(char *text, size_t size, size_t *length, const uint64_t *values,
                      uint32_t count)
{
    char number[24];
    if (count > 1)
        put(text, size, length, "(");
    for (uint32_t m = 0; m < count; m++) {
        snprintf(number, sizeof number, "%s%llu", m ? "," : "", (unsigned long long)values[m]);
        put(text, size, length, number);
    }
    if (count > 1)
        put(text, size, length, ")");
}

size_t tp_layout_print(const struct tp_layout *layout, char *text, size_t size)
{
    size_t length = 0;
    for (int half = 0; half < 2; half++) {
        put(text, size, &length, half ? ":(" : "(");
        for (int d = 0; d < TP_DIMS; d++) {
            const struct tp_layout_dim *dim = &layout->dim[d];
            if (d)
                put(text, size, &length, ",");
            put_modes(text, size, &length, half ? dim->stride : dim->size, dim->modes);
        }
        put(text, size, &length, ")");
    }
    return length;
}
