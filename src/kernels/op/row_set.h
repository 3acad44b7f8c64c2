/* Rows by the set: those of one algorithm and instruction set, all of the host's, the GPU's.
 * Which row an operation gets is judged here alone, for hosts and devices alike.
 */
#ifndef TP_KERNELS_ROW_SET_H
#define TP_KERNELS_ROW_SET_H

#include "base/c_linkage.h"
#include "kernels/op/distance.h"
#include "kernels/op/feedback.h"
#include "kernels/op/kernel.h"

TP_C_BEGIN

/* The first row that fits is taken, so the best come first; `any_*` serve what no row
 * fits (NULL: nothing does), as far as they heed what it needs. */
struct tp_row_set {
    const struct tp_encode_row *encode;
    const struct tp_repack_row *repack;
    const struct tp_decode_row *decode;
    size_t encodes, repacks, decodes;
    tp_encode_fn any_encode;
    tp_repack_fn any_repack;
    tp_decode_fn any_decode;
    uint32_t any_heeds; /* TP_NEED_... bits */
    struct tp_distance_row distance; /* {0} in most sets: an instruction set has one row of it */
    struct tp_feedback_column_row feedback; /* the same */
};

/* The most rows of each kind that one instruction set of the host has. */
enum { TP_SET_ROWS = 128 };

/* The sets of an instruction set, one for each algorithm, up to a NULL: none where the compiler's
 * target has no such instructions. */
extern const struct tp_row_set *const tp_rows_avx512[], *const tp_rows_avx2[],
    *const tp_rows_neon[];

/* Empty where CUDA is left out. */
extern const struct tp_row_set tp_rows_cuda;

/* Every compiled row of the host, with the reference for the rest (kernels/rows.c). */
const struct tp_row_set *tp_host_rows(void);

/* What a set has for an operation: a row that fits, else its `any_*`. */
tp_encode_fn tp_row_set_encode(const struct tp_row_set *set, const struct tp_op *op,
                               enum tp_dtype dtype);
tp_repack_fn tp_row_set_repack(const struct tp_row_set *set, const struct tp_op *from,
                               const struct tp_op *to);
tp_decode_fn tp_row_set_decode(const struct tp_row_set *set, const struct tp_op *op,
                               enum tp_dtype dtype);

/* The distances of an instruction set's sets, up to a NULL; NULL when they have none, or it is
 * not enabled on this machine. */
tp_distance_fn tp_row_sets_distance(const struct tp_row_set *const *sets);
tp_feedback_column_fn tp_row_sets_feedback(const struct tp_row_set *const *sets); /* the same */

/* What kernels of a device heed: any other operation is the host's alone. */
enum { TP_DEVICE_HEEDS = TP_NEED_SCALE_MIN };
static inline bool tp_device_can(const struct tp_op *op)
{
    return (tp_op_needs(op) & ~(uint32_t)TP_DEVICE_HEEDS) == 0;
}

/* Whether a row does this operation, and is enabled on this machine (tp_isa_enabled()). */
bool tp_encode_row_fits(const struct tp_encode_row *row, const struct tp_op *op,
                        enum tp_dtype dtype);
bool tp_repack_row_fits(const struct tp_repack_row *row, const struct tp_op *from,
                        const struct tp_op *to);
bool tp_decode_row_fits(const struct tp_decode_row *row, const struct tp_op *op,
                        enum tp_dtype dtype);

/* Where an operation's codes and scales lie; W4A8's scales are its group scales. */
enum tp_place tp_code_place(const struct tp_op *op);
enum tp_place tp_scale_place(const struct tp_op *op);

TP_C_END

#endif
