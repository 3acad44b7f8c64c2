/* Looking into a checkpoint: from an element of a weight to the bytes that hold
 * it, from a byte back to what it holds, and the values of a region. Reads no
 * more than the bytes it is asked about (for a region: the granules it touches).
 * Prints nothing; `tilepack dump` is a printer of these answers.
 *
 * A tensor that is no output of a packed weight is looked at as a row-major
 * matrix [E,N,K]: its last dimension is K, the one before it N, all others
 * together E. A packed weight of another tool must have passed tp_weight_complete()
 * before its elements, bytes or values are asked for.
 */
#ifndef TP_PACK_INSPECT_H
#define TP_PACK_INSPECT_H

#include "pack/source/weights.h"

/* What is looked at: one tensor, and the packed weight it belongs to. */
struct tp_subject {
    uint32_t tensor;                /* index in the checkpoint */
    const struct tp_weight *weight; /* packed; NULL: a tensor of its own */
    uint32_t out;                   /* with `weight`: which of its outputs `tensor` is */
    struct tp_box3 box;             /* of the weight, or of the tensor as a matrix */
    /* Found by the name of a tensor of the source: its rows from from_row on, from_rows of them,
     * lie in the weight from row from_n of expert from_e on; 0 of them: it is all of it. */
    uint64_t from_e, from_row, from_rows, from_n;
    bool from_one; /* its name says which expert it is */
    bool apart; /* named by a tensor of the source whose rows lie in several places here */
};

/* Finds a tensor by its name, or a weight by its name or prefix, or by that of a tensor of the
 * source that it was made from (then the tensor is the one of its codes). The end of a name,
 * from a dot on, is enough where only one ends so. TP_E_USAGE, naming the nearest names,
 * otherwise. */
enum tp_code tp_inspect_find(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                             const char *name, struct tp_subject *subject, struct tp_err *err);

/* Expert e and row n of the tensor that was named become those of the weight, as they lie.
 * TP_E_USAGE when it has none of that number there, or its name says the expert and e is not 0. */
enum tp_code tp_inspect_own(const struct tp_subject *subject, uint64_t *e, uint64_t *n,
                            struct tp_err *err);

/* Rows [*n0, *n1) of the weight, as they lie, become those of its source. False: these do not
 * follow one another there. */
bool tp_inspect_rows(const struct tp_subject *subject, uint64_t *n0, uint64_t *n1);

/* The subject of one tensor, by index. */
struct tp_subject tp_inspect_tensor(const struct tp_checkpoint *ckpt,
                                    const struct tp_weights *weights, uint32_t tensor);

/* Number of stored elements of W along n and k for one element of output `out`:
 * per_n and per_k with 0 replaced by the whole extent. */
void tp_inspect_per(const struct tp_weight *weight, uint32_t out, uint64_t *per_n,
                    uint64_t *per_k);

/* One stored element. */
struct tp_spot {
    uint32_t tensor;   /* index in the checkpoint; TP_NO_TENSOR: not stored */
    uint64_t index;    /* its offset, in elements, in the tensor's data */
    uint64_t byte;     /* its first byte in the tensor's data */
    uint64_t offset;   /* the same from the beginning of the (plain) file */
    unsigned bits;     /* 4 to 64 */
    const uint8_t *word_bits; /* how bits are moved (word_bits.h), or NULL */
    unsigned nibble;   /* of 4 bits: 0 the low half of the byte, 1 the high half */
    bool spread;       /* of 4 bits: only the lowest lies there, the others elsewhere in the word */
    uint8_t raw[8];    /* as stored, little-endian; a nibble in the low half of raw[0] */
    double value;      /* as a number of its own: q of a code, the scale as the decoder takes
                          it (of the eight multiples: minus the last), NaN when it is none */
};

/* Everything that W[e,n,k] is made of. spot[i] is output i of the weight; words
 * are no part of it. A tensor of its own has spot[0] only. */
struct tp_element_info {
    uint64_t e, n, k;
    uint64_t stored_n; /* the row as it lies, where n is that of the source */
    uint32_t spots;
    struct tp_spot spot[TP_MAX_OUT];
    int code;      /* canonical code, -1 for a tensor of its own */
    int multiple;  /* W4A8: index of the byte among the eight that the code picks; -1: none */
    double value;  /* as the consumer's kernel computes it */
    bool has_value; /* false for elements that are no numbers (C64) */
};

/* TP_E_USAGE, naming the legal range, when (e,n,k) lies outside of the box. */
enum tp_code tp_inspect_at(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                           uint64_t e, uint64_t n, uint64_t k, struct tp_element_info *info,
                           struct tp_err *err);

/* What one byte of the subject's tensor holds: one stored element, or two nibbles
 * (the low one first). */
struct tp_stored {
    struct tp_spot spot;
    unsigned byte_of; /* which byte of the element it is */
    bool padding;     /* outside of the logical box */
    uint8_t fill;     /* what padding holds */
    int word;         /* of a tensor of constants: which one; else -1 */
    bool as_stored;   /* n0 and n1 are as rows lie, whose order no range of the source's has */
    /* The elements of W that it belongs to, ends not included. */
    uint64_t e0, e1, n0, n1, k0, k1;
};

struct tp_byte_info {
    uint64_t byte, offset; /* in the tensor's data, and in the file */
    uint8_t value;
    unsigned count;        /* 1 or 2 */
    struct tp_stored item[2];
};

/* TP_E_USAGE when the tensor has no such byte. */
enum tp_code tp_inspect_byte(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                             uint64_t byte, struct tp_byte_info *info, struct tp_err *err);

/* Visits the values of rows [n0,n1) and columns [k0,k1) of expert e, row by row.
 * Ends beyond the box are cut to it; a begin outside is TP_E_USAGE. Memory is
 * bounded by one granule of rows. Stops at the first code that is not TP_OK. */
struct tp_region {
    uint64_t e, n0, n1, k0, k1;
};
typedef enum tp_code (*tp_row_visit)(void *arg, uint64_t n, const double *values, uint64_t count,
                                     struct tp_err *err);
enum tp_code tp_inspect_region(const struct tp_subject *subject, struct tp_region *region,
                               struct tp_err *err); /* cuts it and checks it */
enum tp_code tp_inspect_values(const struct tp_checkpoint *ckpt, const struct tp_subject *subject,
                               const struct tp_region *region, tp_row_visit visit, void *arg,
                               struct tp_err *err);

/* Number of a stored element of that type; false when it is none. */
bool tp_raw_number(enum tp_dtype dtype, const uint8_t raw[8], double *value);

#endif
