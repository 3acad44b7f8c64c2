/* Layouts: CuTe shape:stride maps from logical (e,n,k) to a storage offset.
 *
 * A symbolic layout is text such as
 *     (E,(8,2,N/16),(4,4,2,K/32)):(N*K,(64,4,512),(1,16,8,32*N))
 * with exactly three top-level modes, for e, n and k. A mode is one size or a
 * list of sizes, fastest first; the strides have the same nesting. Sizes and
 * strides are expressions over E N K S, integers, + - *, exact /, ceil(a,b) and
 * align(a,b); S is how many stretches of rows the weight is made of, 1 unless it
 * is said (tp_layout_parse_of). Evaluated for given E,N,K it becomes a `struct tp_layout`, whose
 * printed form holds only numbers and parses to itself.
 *
 * Offsets are in the layout's unit (nibble, byte, element), which the owner of
 * the layout knows. A stored layout is a bijection from its box onto [0,size).
 * This module knows no file and no format.
 */
#ifndef TP_BASE_LAYOUT_H
#define TP_BASE_LAYOUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TP_DIM_E, TP_DIM_N, TP_DIM_K, TP_DIMS };
enum { TP_LAYOUT_MODES = 6 }; /* most modes that one dimension may have */

/* Logical size of a weight: experts, output features, input features. */
struct tp_box3 {
    uint64_t e, n, k;
};

/* A box inside of a weight. */
struct tp_box {
    uint64_t e, n, k; /* its first coordinate */
    struct tp_box3 size;
};

struct tp_layout_dim {
    uint32_t modes; /* 1..TP_LAYOUT_MODES */
    uint64_t size[TP_LAYOUT_MODES];
    uint64_t stride[TP_LAYOUT_MODES];
};

struct tp_layout {
    struct tp_layout_dim dim[TP_DIMS];
};

/* Evaluates one expression of the grammar above, e.g. "align(N,4)*2".
 * Overflow, inexact division and unknown names are TP_E_INPUT. */
enum tp_code tp_expr_eval(const char *text, struct tp_box3 box, uint64_t *value,
                          struct tp_err *err);

/* The same of a weight of so many stretches. */
enum tp_code tp_expr_eval_of(const char *text, struct tp_box3 box, uint64_t stretches,
                             uint64_t *value, struct tp_err *err);

/* tp_expr_eval() with one more name, I, which is `index`. */
enum tp_code tp_expr_eval_at(const char *text, struct tp_box3 box, uint64_t index,
                             uint64_t *value, struct tp_err *err);

/* Parses `text` and evaluates it for `box`. Checks sizes >= 1, equal nesting
 * and that offsets fit 63 bits; does not check that it is a bijection. */
enum tp_code tp_layout_parse(const char *text, struct tp_box3 box, struct tp_layout *layout,
                             struct tp_err *err);

/* The same of a weight of so many stretches. */
enum tp_code tp_layout_parse_of(const char *text, struct tp_box3 box, uint64_t stretches,
                                struct tp_layout *layout, struct tp_err *err);

/* Fails unless the layout is a bijection from its box onto [0,size). */
enum tp_code tp_layout_check(const struct tp_layout *layout, struct tp_err *err);

/* Number of coordinates along one dimension, and in all. */
uint64_t tp_layout_extent(const struct tp_layout *layout, int dim);
uint64_t tp_layout_size(const struct tp_layout *layout);

/* Offset contributed by coordinate x of one dimension. The offset of (e,n,k) is
 * the sum over the three dimensions. */
uint64_t tp_layout_dim_at(const struct tp_layout_dim *dim, uint64_t x);
uint64_t tp_layout_at(const struct tp_layout *layout, uint64_t e, uint64_t n, uint64_t k);

/* The coordinate stored at `offset` < size, of a checked (bijective) layout. */
void tp_layout_coord(const struct tp_layout *layout, uint64_t offset, uint64_t coord[TP_DIMS]);

/* Writes the numeric text; returns its length, which is >= size if cut off. */
size_t tp_layout_print(const struct tp_layout *layout, char *text, size_t size);

/* The granule of a symbolic layout along one dimension: a box that begins at a
 * multiple of it and is as long as a multiple of it (or ends at the tensor's
 * end) is stored like a small tensor of its own. It is the product of the
 * dimension's constant sizes, times the align() units in its last mode. */
enum tp_code tp_layout_granule(const char *text, int dim, uint64_t *granule, struct tp_err *err);

/* Contiguous runs shared by a box stored on its own and inside the whole.
 * `part` is the layout evaluated for the box alone, `whole` the one of the full
 * tensor, `base` the offset in `whole` of the box's first coordinate. Calls
 * visit(arg, whole_offset, part_offset, length) for maximal runs in order of
 * part_offset; stops at the first non-zero return, which it returns. */
typedef int (*tp_run_visit)(void *arg, uint64_t whole_offset, uint64_t part_offset,
                            uint64_t length);
int tp_layout_runs(const struct tp_layout *part, const struct tp_layout *whole, uint64_t base,
                   tp_run_visit visit, void *arg);

/* Length of the runs that tp_layout_runs() would visit, without visiting. */
uint64_t tp_layout_run_length(const struct tp_layout *part, const struct tp_layout *whole);

/* False when `part` is not embedded in `whole` mode by mode, so that runs are
 * not defined (the caller then takes the whole tensor as one box). */
bool tp_layout_embeds(const struct tp_layout *part, const struct tp_layout *whole);

#endif
