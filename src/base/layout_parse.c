/* Layouts and expressions: text to steps; see layout_parse.h.
 *
 * One recursive-descent parser reads both. Equal steps are one step, so that what a format says
 * twice is computed once.
 */
#include "base/layout_parse.h"

#include "base/num.h"

#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 32 }; /* of expressions in one another: the parser's stack is bounded */

struct parser {
    const char *start, *at;
    struct tp_steps *steps;
    struct tp_step_set *units; /* align() steps of the sizes that are read, or NULL */
    unsigned depth;
    bool has_index;            /* I is a name */
    struct tp_err *err;
};

static enum tp_code parse_sum(struct parser *p, uint8_t *step);

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

/* *step: the number of that step, which is there already or is added. */
static enum tp_code add(struct parser *p, enum tp_step_kind kind, uint8_t a, uint8_t b,
                        uint64_t number, uint8_t *step)
{
    struct tp_steps *steps = p->steps;
    uint32_t i = 0;
    for (; i < steps->count; i++) {
        const struct tp_step *s = &steps->step[i];
        if (s->kind == kind && s->a == a && s->b == b && s->number == number)
            break;
    }
    if (i == TP_STEPS)
        return bad(p, "it is too long");
    steps->step[i] = (struct tp_step){(uint8_t)kind, a, b, number};
    steps->count = i < steps->count ? steps->count : i + 1;
    *step = (uint8_t)i;
    return TP_OK;
}

static enum tp_code parse_number(struct parser *p, uint8_t *step)
{
    uint64_t value = 0;
    while (isdigit((unsigned char)*p->at)) {
        if (!tp_mul_u64(&value, value, 10) ||
            !tp_add_u64(&value, value, (uint64_t)(*p->at - '0')))
            return bad(p, "number does not fit 64 bits");
        p->at++;
    }
    return add(p, TP_STEP_NUMBER, 0, 0, value, step);
}

/* ceil(a,b) and align(a,b); the name is already read. */
static enum tp_code parse_call(struct parser *p, bool is_align, uint8_t *step)
{
    uint8_t a, b;
    enum tp_code code;
    if ((code = expect(p, '(')) || (code = parse_sum(p, &a)) || (code = expect(p, ',')) ||
        (code = parse_sum(p, &b)) || (code = expect(p, ')')))
        return code;
    code = add(p, is_align ? TP_STEP_ALIGN : TP_STEP_CEIL, a, b, 0, step);
    if (code == TP_OK && is_align && p->units)
        p->units->bits[*step / 64] |= UINT64_C(1) << *step % 64;
    return code;
}

static enum tp_code parse_atom(struct parser *p, uint8_t *step)
{
    static const char names[] = "ENKSI"; /* in the order of their steps */
    skip_space(p);
    if (isdigit((unsigned char)*p->at))
        return parse_number(p, step);
    const char *name = *p->at ? strchr(names, *p->at) : NULL;
    if (name && (*name != 'I' || p->has_index)) {
        p->at++;
        return add(p, (enum tp_step_kind)(TP_STEP_E + (name - names)), 0, 0, 0, step);
    }
    if (strncmp(p->at, "ceil", 4) == 0 || strncmp(p->at, "align", 5) == 0) {
        bool is_align = *p->at == 'a';
        p->at += is_align ? 5 : 4;
        return parse_call(p, is_align, step);
    }
    if (!accept(p, '('))
        return bad(p, "expected a number, E, N, K, S, ceil, align or '('");
    enum tp_code code = parse_sum(p, step);
    return code ? code : expect(p, ')');
}

/* Operators of one line bind alike, from left to right. */
static enum tp_code parse_chain(struct parser *p, const char operators[2],
                                const enum tp_step_kind kinds[2],
                                enum tp_code (*operand)(struct parser *p, uint8_t *step),
                                uint8_t *step)
{
    enum tp_code code = operand(p, step);
    while (code == TP_OK) {
        uint8_t right;
        int which = accept(p, operators[0]) ? 0 : accept(p, operators[1]) ? 1 : -1;
        if (which < 0)
            break;
        if ((code = operand(p, &right)) == TP_OK)
            code = add(p, kinds[which], *step, right, 0, step);
    }
    return code;
}

static enum tp_code parse_product(struct parser *p, uint8_t *step)
{
    static const enum tp_step_kind kinds[] = {TP_STEP_MUL, TP_STEP_DIV};
    return parse_chain(p, "*/", kinds, parse_atom, step);
}

static enum tp_code parse_sum(struct parser *p, uint8_t *step)
{
    static const enum tp_step_kind kinds[] = {TP_STEP_ADD, TP_STEP_SUB};
    if (p->depth == MAX_DEPTH)
        return bad(p, "expressions are nested too deeply");
    p->depth++;
    enum tp_code code = parse_chain(p, "+-", kinds, parse_product, step);
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

static enum tp_code parse_modes(struct parser *p, uint8_t steps[], uint8_t *count)
{
    enum tp_code code = TP_OK;
    skip_space(p);
    *count = 0;
    if (*p->at != '(' || !is_list(p->at)) {
        *count = 1;
        return parse_sum(p, &steps[0]);
    }
    p->at++;
    do {
        if (*count == TP_LAYOUT_MODES)
            return bad(p, "too many modes in one dimension");
        if ((code = parse_sum(p, &steps[(*count)++])))
            return code;
    } while (accept(p, ','));
    return expect(p, ')');
}

static enum tp_code parse_half(struct parser *p, struct tp_step_set units[],
                               uint8_t steps[][TP_LAYOUT_MODES], uint8_t counts[])
{
    enum tp_code code = expect(p, '(');
    for (int d = 0; d < TP_DIMS && code == TP_OK; d++) {
        p->units = units ? &units[d] : NULL;
        if (d == 0 || (code = expect(p, ',')) == TP_OK)
            code = parse_modes(p, steps[d], &counts[d]);
    }
    return code ? code : expect(p, ')');
}

enum tp_code tp_layout_compile(const char *text, struct tp_layout_expr *expr, struct tp_err *err)
{
    struct parser p = {.start = text, .at = text, .steps = &expr->steps, .err = err};
    struct tp_step_set units[TP_DIMS] = {{{0}}};
    uint8_t strides[TP_DIMS];
    enum tp_code code;
    memset(expr, 0, sizeof *expr);
    if ((code = parse_half(&p, units, expr->size, expr->modes)) || (code = expect(&p, ':')) ||
        (code = parse_half(&p, NULL, expr->stride, strides)))
        return code;
    skip_space(&p);
    if (*p.at)
        return bad(&p, "text after the layout");
    if (memcmp(strides, expr->modes, sizeof strides) != 0)
        return bad(&p, "shape and stride are nested differently");
    tp_layout_probe(expr, units);
    return TP_OK;
}

enum tp_code tp_layout_parse(const char *text, struct tp_box3 box, struct tp_layout *layout,
                             struct tp_err *err)
{
    struct tp_layout_expr expr;
    enum tp_code code = tp_layout_compile(text, &expr, err);
    return code ? code : tp_layout_eval(&expr, box, 1, layout, err);
}

static enum tp_code evaluate(const char *text, const struct tp_step_values *of, bool has_index,
                             uint64_t *value, struct tp_err *err)
{
    struct tp_steps steps = {.count = 0};
    struct parser p = {.start = text, .at = text, .steps = &steps, .has_index = has_index,
                       .err = err};
    uint64_t values[TP_STEPS];
    const char *why;
    uint8_t step;
    enum tp_code code = parse_sum(&p, &step);
    skip_space(&p);
    if (code || *p.at)
        return code ? code : bad(&p, "text after the expression");
    if (!tp_steps_run(&steps, of, values, &why))
        return tp_fail(err, TP_E_INPUT, "'%s': %s", text, why);
    *value = values[step];
    return TP_OK;
}

enum tp_code tp_expr_eval(const char *text, struct tp_box3 box, uint64_t *value,
                          struct tp_err *err)
{
    return tp_expr_eval_of(text, box, 1, value, err);
}

enum tp_code tp_expr_eval_of(const char *text, struct tp_box3 box, uint64_t segments,
                             uint64_t *value, struct tp_err *err)
{
    const struct tp_step_values of = {box, segments, 0};
    return evaluate(text, &of, false, value, err);
}

enum tp_code tp_expr_eval_at(const char *text, struct tp_box3 box, uint64_t index,
                             uint64_t *value, struct tp_err *err)
{
    const struct tp_step_values of = {box, 1, index};
    return evaluate(text, &of, true, value, err);
}
