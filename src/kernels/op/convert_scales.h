/* MXFP4 read as NVFP4 without loss: the codes are the same, and scales that are powers of two
 * become e4m3 numbers times one global scale (formats/README.md, 13.1).
 *
 * A repack from the one to the other is that of NVFP4 to NVFP4, after the scales of the source
 * were made anew here: so no row knows of it. Knows no files, and finds no global scale.
 */
#ifndef TP_KERNELS_CONVERT_SCALES_H
#define TP_KERNELS_CONVERT_SCALES_H

#include "kernels/op/kernel.h"

/* What scales of `to` hold of powers of two: from 2^tp_convert_scales_min() to
 * 2^TP_CONVERT_SCALES_MAX. */
enum { TP_CONVERT_SCALES_MAX = 8 };
int tp_convert_scales_min(const struct tp_op *to);

/* True when weights of `from` may be taken over into `to` so, if their scales are close enough
 * to each other. */
bool tp_convert_scales_possible(const struct tp_op *from, const struct tp_op *to);

/* Exponents of two of scales: of a block of byte b it is b - 127. */
struct tp_exponents {
    int min, max; /* none: min > max */
};

/* The global scale, as `to` stores it, of blocks of such exponents; 0 where e4m3 scales and one
 * global scale cannot hold all of them. 1 of none. */
float tp_convert_scales_global(const struct tp_op *to, struct tp_exponents exponents);

/* `from` as an NVFP4 operation of the rule of `to`, without a global scale: its scales lie
 * [E,N,K/16], k fastest. */
struct tp_op tp_convert_scales_op(const struct tp_op *from, const struct tp_op *to);

/* Bytes of those scales. */
uint64_t tp_convert_scales_bytes(struct tp_box3 box);

/* Makes them, from args->in of a repack of `from`, for args->global. Scales that the global
 * scale has no room for, of blocks of zeros, become the nearest that there is. NaN stays.
 * args->scratch as for the repack. */
void tp_convert_scales(const struct tp_op *from, const struct tp_op *to, struct tp_args *args,
                       uint8_t *scales);

#endif
