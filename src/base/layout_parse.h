/* Layouts as text: the grammar of formats/README.md, section 2.
 *
 *     (E,(8,2,N/16),(4,4,2,K/32)):(N*K,(64,4,512),(1,16,8,32*N))
 *
 * with exactly three top-level modes, for e, n and k. A mode is one size or a list of sizes,
 * fastest first; the strides have the same nesting. Sizes and strides are expressions over E N K S,
 * integers, + - *, exact /, ceil(a,b) and align(a,b). A printed layout holds only numbers and
 * parses to itself. Only who reads files includes this: what runs knows compiled layouts.
 */
#ifndef TP_BASE_LAYOUT_PARSE_H
#define TP_BASE_LAYOUT_PARSE_H

#include "base/layout.h"

/* Text that is no layout, or one of more than TP_STEPS different steps, is TP_E_INPUT. */
enum tp_code tp_layout_compile(const char *text, struct tp_layout_expr *expr,
                               struct tp_err *err);

/* Compiles the text and evaluates it for `box`. */
enum tp_code tp_layout_parse(const char *text, struct tp_box3 box, struct tp_layout *layout,
                             struct tp_err *err);

/* Evaluates one expression of the grammar above, e.g. "align(N,4)*2".
 * Overflow, inexact division and unknown names are TP_E_INPUT. */
enum tp_code tp_expr_eval(const char *text, struct tp_box3 box, uint64_t *value,
                          struct tp_err *err);

/* The same of a weight of so many segments. */
enum tp_code tp_expr_eval_of(const char *text, struct tp_box3 box, uint64_t segments,
                             uint64_t *value, struct tp_err *err);

/* tp_expr_eval() with one more name, I, which is `index`. */
enum tp_code tp_expr_eval_at(const char *text, struct tp_box3 box, uint64_t index,
                             uint64_t *value, struct tp_err *err);

#endif
