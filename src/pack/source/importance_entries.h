/* The entries of an open file of importance; inside of importance.c and importance_files.c.
 */
#ifndef TP_PACK_IMPORTANCE_ENTRIES_H
#define TP_PACK_IMPORTANCE_ENTRIES_H

#include "base/error.h"
#include "pack/text/name_set.h"

#define TP_IMPORTANCE_MAX UINT64_C(1000000) /* entries of a file */

/* One tensor of the file. */
struct tp_importance_entry {
    char *name;      /* without ".weight" */
    uint64_t offset; /* of its numbers, fp32 or `half` as wide, bf16 */
    bool half;
    uint64_t count;
    uint64_t columns; /* of a row, as the file says; 0: it does not */
    uint64_t counts; /* where fp32 divisors stand, one for each row, or 0 */
    uint64_t rows;   /* of the divisors */
    float divisor;   /* of all its numbers: 1, or that of the older imatrix */
    bool claimed;
    uint32_t rank;   /* of moments, "NAME.v": numbers for each column; 0: it is importance */
    size_t moments;  /* of importance: 1 + the entry of the moments beside it, or 0 */
    bool largest;    /* "NAME.amax": largest magnitudes of inputs, one or one for each expert */
    bool gradient;   /* "NAME.gradient": mean squares of gradients of outputs, alike */
};

struct tp_importance_file {
    char *path;
    int fd;
    uint64_t size;
    struct tp_importance_entry *entries;
    size_t count, capacity;
    struct tp_names names; /* numbered like the entries */
    bool gradients;        /* some entry is one */
};

/* Adds an entry whose name is the first `size` bytes, without ".weight" at their end. Numbers
 * outside of the file, and a second entry of that name, are TP_E_INPUT. */
enum tp_code tp_importance_add(struct tp_importance_file *file, const char *name, size_t size,
                               const struct tp_importance_entry *entry, struct tp_err *err);

#endif
