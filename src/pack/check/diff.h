/* Comparing two checkpoints by what their tensors are, whatever they are stored as.
 *
 * A packed weight is compared with a packed one of the same name and shape as a
 * unit; all others by the plain tensors that they stand for. Reads in boxes.
 */
#ifndef TP_PACK_DIFF_H
#define TP_PACK_DIFF_H

#include "pack/check/values.h"

enum tp_diff_kind {
    TP_DIFF_SAME,     /* equal (values, where the forms of storage differ) */
    TP_DIFF_ONLY_A,
    TP_DIFF_ONLY_B,
    TP_DIFF_DTYPE,    /* plain tensors of different dtypes; values compared as well */
    TP_DIFF_SHAPE,
    TP_DIFF_VALUES,   /* or bytes, where elements are no numbers */
    TP_DIFF_SCALES,   /* bytes of stored scales, which are rounded in values, and those equal */
};

/* One tensor, or one packed weight, of A or B or both. */
struct tp_diff_item {
    enum tp_diff_kind kind;
    char *name;
    const char *form_a, *form_b; /* format or dtype; NULL: not there */
    uint64_t shape_a[TP_ST_MAX_RANK], shape_b[TP_ST_MAX_RANK];
    uint32_t rank_a, rank_b;
    bool numeric;                /* `distance` holds */
    struct tp_distance distance; /* `first` is the index of the element */
    uint64_t bytes, first_byte;  /* of one dtype: how many bytes differ, and the first */
};

struct tp_diff {
    struct tp_diff_item *items; /* by name */
    size_t count, capacity;
    size_t differing;           /* items that are not TP_DIFF_SAME */
};

struct tp_diff_options {
    unsigned jobs;
    atomic_int *stop; /* or NULL */
    void (*progress)(void *arg, uint64_t bytes, const char *item); /* or NULL */
    void (*total)(void *arg, uint64_t bytes); /* all that will be reported; or NULL */
    void *progress_arg;                       /* of both */
};

enum tp_code tp_diff(const struct tp_side *a, const struct tp_side *b,
                     const struct tp_diff_options *options, struct tp_diff *diff,
                     struct tp_err *err);
void tp_diff_close(struct tp_diff *diff); /* legal on {0} and twice */

#endif
