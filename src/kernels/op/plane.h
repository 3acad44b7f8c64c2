/* Internal to src/kernels: one stored output (or input of a repack) seen through
 * its layout: where element (e,n,k) lies, and how codes and scales are stored.
 *
 * Used by the reference for everything and by fast rows for the few bytes (scales
 * at edges and in odd places) that need no speed. Memory is the caller's.
 */
#ifndef TP_KERNELS_PLANE_H
#define TP_KERNELS_PLANE_H

#include "kernels/op/kernel.h"

struct tp_plane {
    uint8_t *data; /* NULL: absent */
    enum tp_element element;
    uint64_t per_n, per_k; /* elements of W per stored element */
    struct tp_layout_dim e;
    uint64_t base;               /* offset of the expert being worked on */
    const uint8_t *word_bits; /* see struct tp_op_out */
    const uint64_t *at_n, *at_k; /* by element of W, without its last so many bits */
    unsigned shift_n, shift_k;
    uint8_t to_stored[16], to_code[16];
    uint8_t zero_point;   /* canonical code of an integer zero: 8, or 128 with INT8 */
    bool is_f16, is_f32;  /* scales of integers are such numbers, else bf16 */
    float min;            /* of F32 scales, see struct tp_op_out */
    int factor;           /* the same, of any float */
    unsigned scale_shift; /* of E5M3: see struct tp_args */
    uint64_t bytes;
    uint8_t fill;
};

/* Opens the first output of that role; `data` are args->in or args->out. The offset
 * tables are taken from *scratch, which moves on. Absent when the operation has no such
 * output or its pointer is NULL. A layout that cannot be evaluated for args->box sets
 * TP_FAILED in args->flags: the caller then ends before it uses the plane. */
struct tp_plane tp_plane_open(const struct tp_op *op, enum tp_role role, struct tp_args *args,
                              void *const data[], void **scratch);

/* The same for a caller who asks only for rows that are multiples of `n_every`. */
struct tp_plane tp_plane_open_every(const struct tp_op *op, enum tp_role role,
                                    struct tp_args *args, uint64_t n_every, void *const data[],
                                    void **scratch);

/* Writes the fill byte everywhere; nothing if absent. */
void tp_plane_fill(const struct tp_plane *plane);

/* Chooses the expert that tp_plane_at() speaks of; nothing if absent. */
void tp_plane_enter(struct tp_plane *plane, uint64_t e);

/* Offset of the stored element that covers element (n,k) of this expert. */
static inline uint64_t tp_plane_at(const struct tp_plane *plane, uint64_t n, uint64_t k)
{
    return plane->base + plane->at_n[n >> plane->shift_n] + plane->at_k[k >> plane->shift_k];
}

/* Codes in canonical form (codec.h), scales as the codec's bits; loading any
 * float as the scale of integers rounds it to bf16, or to F16 if the plane is `half`. */
void tp_store_code(const struct tp_plane *plane, uint64_t at, uint8_t code);
uint8_t tp_load_code(const struct tp_plane *plane, uint64_t at);
void tp_store_scale(const struct tp_plane *plane, enum tp_codec codec, uint64_t at,
                    uint32_t bits);
/* Whether a finite number is stored as one by an output whose numbers are multiplied. */
bool tp_factor_fits(const struct tp_op_out *out, float value);
uint32_t tp_load_scale(const struct tp_plane *plane, enum tp_codec codec, uint64_t at);
float tp_load_f32(const struct tp_plane *plane, uint64_t at);

/* A zero point, counted as canonical codes are. Where it is stored as minus its product with the
 * scale, `scale` is that number; what is read back is the nearest integer, or the zero point where
 * the scale is 0 or no number. */
void tp_store_zero(const struct tp_plane *plane, uint64_t at, int zero, float scale);
int tp_load_zero(const struct tp_plane *plane, uint64_t at, float scale);
/* Whether tp_store_zero() would store the same number for what tp_load_zero() makes of it: files of
 * others may hold anything. */
bool tp_zero_is_whole(const struct tp_plane *plane, uint64_t at, float scale);

/* One weight of dtype F32, BF16 or F16. */
float tp_load_value(const void *values, enum tp_dtype dtype, uint64_t i);

#endif
