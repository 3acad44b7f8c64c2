/* Layouts: CuTe shape:stride maps from logical (e,n,k) to a storage offset.
 *
 * A layout has three modes, for e, n and k, of one size or a list of sizes each, fastest first,
 * and strides nested alike. `struct tp_layout` holds its numbers for a weight of one size.
 * `struct tp_layout_expr` holds sizes and strides as arithmetic over E, N and K before a size is
 * known: it is compiled from text once (layout_parse.h) and evaluated for each size of a box in a
 * few dozen steps, so that code which moves bytes never parses text.
 *
 * Offsets are in the layout's unit (nibble, byte, element), which the owner of
 * the layout knows. A stored layout is a bijection from its box onto [0,size).
 * This module knows no file and no format.
 */
#ifndef TP_BASE_LAYOUT_H
#define TP_BASE_LAYOUT_H

#include "base/c_linkage.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

TP_C_BEGIN

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

/* One step of arithmetic: a number, one of E, N, K, S and I, or an operator on two steps before
 * it. CEIL(a,b) is the quotient rounded up, ALIGN(a,b) is a rounded up to a multiple of b, DIV is
 * exact. S is how many segments of rows a weight is made of, I an index. */
enum tp_step_kind {
    TP_STEP_NUMBER, TP_STEP_E, TP_STEP_N, TP_STEP_K, TP_STEP_S, TP_STEP_I,
    TP_STEP_ADD, TP_STEP_SUB, TP_STEP_MUL, TP_STEP_DIV, TP_STEP_CEIL, TP_STEP_ALIGN,
};
struct tp_step {
    uint8_t kind, a, b; /* a and b: of an operator */
    uint64_t number;
};

enum { TP_STEPS = 96 }; /* most steps of one layout */
struct tp_steps {
    uint32_t count;
    struct tp_step step[TP_STEPS];
};

/* What steps are evaluated for. */
struct tp_step_values {
    struct tp_box3 box;
    uint64_t segments, index;
};

/* The value of each step. False, and in *why the reason, where one is out of range. */
bool tp_steps_run(const struct tp_steps *steps, const struct tp_step_values *of,
                  uint64_t value[TP_STEPS], const char **why);

struct tp_layout_expr {
    uint8_t modes[TP_DIMS]; /* 1..TP_LAYOUT_MODES */
    uint8_t size[TP_DIMS][TP_LAYOUT_MODES], stride[TP_DIMS][TP_LAYOUT_MODES]; /* by step */
    bool pairs[TP_DIMS];    /* neighbours in memory are neighbours along this dimension */
    bool probed;            /* `pairs` could be found out */
    uint64_t granule[TP_DIMS]; /* see tp_layout_granule(); 0: none */
    struct tp_steps steps;
};

/* Elements in rows, k fastest, one for each block of n x k; k is 0 for whole rows (and so is
 * `row` 1). A static initializer, and the same at run time. */
#define TP_LAYOUT_ROWS(n, k, row)                                                                \
    {                                                                                            \
        .modes = {1, 1, 1}, .size = {{0}, {5}, {6}}, .stride = {{7}, {6}, {8}},                  \
        .pairs = {[TP_DIM_N] = (row) != 0, [TP_DIM_K] = (row) == 0}, .probed = true,             \
        .granule = {1, 1, 1},                                                                    \
        .steps = {9, {{TP_STEP_E, 0, 0, 0}, {TP_STEP_N, 0, 0, 0}, {TP_STEP_K, 0, 0, 0},          \
                      {TP_STEP_NUMBER, 0, 0, n}, {TP_STEP_NUMBER, 0, 0, k},                      \
                      {TP_STEP_CEIL, 1, 3, 0}, {(row) ? TP_STEP_DIV : TP_STEP_CEIL,              \
                                                (row) ? 3 : 2, (row) ? 3 : 4, 0},                \
                      {TP_STEP_MUL, 5, 6, 0}, {TP_STEP_NUMBER, 0, 0, 1}}},                       \
    }
struct tp_layout_expr tp_layout_rows(uint32_t per_n, uint32_t per_k);
extern const struct tp_layout_expr tp_layout_dense; /* (E,N,K):(N*K,K,1) */

/* Evaluates it for a box, of a weight of so many segments. Checks sizes >= 1 and that offsets
 * fit 63 bits; does not check that it is a bijection. */
enum tp_code tp_layout_eval(const struct tp_layout_expr *expr, struct tp_box3 box,
                            uint64_t segments, struct tp_layout *layout, struct tp_err *err);

/* Whether both were compiled of the same arithmetic. */
bool tp_layout_expr_same(const struct tp_layout_expr *a, const struct tp_layout_expr *b);

/* The granule along one dimension: a box that begins at a multiple of it and is as long as a
 * multiple of it (or ends at the tensor's end) is stored like a small tensor of its own. It is the
 * product of the dimension's constant sizes, times the align() units in its last mode. */
enum tp_code tp_layout_granule(const struct tp_layout_expr *expr, int dim, uint64_t *granule,
                               struct tp_err *err);

/* Fills in `granule`, `pairs` and `probed` of what else is there. `units[d]`: which steps are
 * align() in the sizes of dimension d, as bits of a mask of TP_STEPS. */
struct tp_step_set {
    uint64_t bits[(TP_STEPS + 63) / 64];
};
void tp_layout_probe(struct tp_layout_expr *expr, const struct tp_step_set units[TP_DIMS]);

/* Sizes >= 1, and offsets that fit 63 bits; else *why. */
bool tp_layout_in_range(const struct tp_layout *layout, const char **why);

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

TP_C_END

#endif
