/* What an algorithm of the CPU, a cpu_<algorithm>.inc, tells of its rows. It is compiled for one
 * instruction set at a time, to an object of its own, by a cpu_<isa>.c, which sets ISA, ISA_NAME
 * and ISA_OWN() and includes the vectors; it ends with its tables and the set that holds them.
 */
#ifndef TP_KERNELS_CPU_ROWS_H
#define TP_KERNELS_CPU_ROWS_H

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/distance.h"
#include "kernels/op/floats.h"
#include "kernels/op/op_at.h"
#include "kernels/op/place.h"
#include "kernels/op/place_bits.h"
#include "kernels/op/plane.h"
#include "kernels/op/row_set.h"
#include "kernels/op/scalar.h"
#include "kernels/op/search.h"
#include "kernels/op/search_scalar.h"
#include "kernels/op/word_bits.h"

#include <math.h>

/* Every algorithm, in the order in which their rows are tried: those for any layout last. */
#define CPU_ALGORITHMS(X)                                                                     \
    X(fp8) X(fp8_row) X(mx) X(nwise) X(int4) X(fp4) X(search_int4) X(search_w4a8)             \
    X(search_mxfp4) X(search_nvfp4) X(feedback) X(int) X(decode) X(repack) X(distance)        \
    X(place) X(place_move)

/* The set of an algorithm's rows, of this instruction set. */
#define ISA_ROWS(algorithm) ISA_OWN(tp_rows_##algorithm)
#define ISA_DECLARE(algorithm) extern const struct tp_row_set ISA_ROWS(algorithm);
#define ISA_LISTED(algorithm) &ISA_ROWS(algorithm),
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ENCODE_ROWS .encode = encode_table, .encodes = COUNT(encode_table)
#define DECODE_ROWS .decode = decode_table, .decodes = COUNT(decode_table)
#define REPACK_ROWS .repack = repack_table, .repacks = COUNT(repack_table)

/* `heeds`: TP_NEED_... bits, see struct tp_encode_row. */
#define ENCODE(codec, dtype, code, scale, accepts, function, name, search, heeds)          \
    {TP_CODEC_##codec, TP_##dtype, TP_PLACE_##code, TP_PLACE_##scale, accepts, ISA, function, \
     name "_" ISA_NAME, TP_SEARCH_##search, heeds}
#define SEARCH3(codec, code, scale, accepts, function, name, search)                          \
    ENCODE(codec, BF16, code, scale, accepts, function##_bf16, name "_bf16", search, 0),      \
        ENCODE(codec, F16, code, scale, accepts, function##_f16, name "_f16", search, 0),     \
        ENCODE(codec, F32, code, scale, accepts, function##_f32, name "_f32", search, 0)
#define ENCODE3(codec, code, scale, accepts, function, name) \
    SEARCH3(codec, code, scale, accepts, function, name, NONE)

/* The same function for every type of values. */
#define SAME3(codec, code, accepts, function, name, search, heeds)                                \
    ENCODE(codec, BF16, code, EVERY, accepts, function, name "_bf16", search, heeds),             \
        ENCODE(codec, F16, code, EVERY, accepts, function, name "_f16", search, heeds),           \
        ENCODE(codec, F32, code, EVERY, accepts, function, name "_f32", search, heeds)

#define DECODE_ROW(codec, dtype, code, scale, accepts, function, name, heeds)                \
    {TP_CODEC_##codec, TP_##dtype, TP_PLACE_##code, TP_PLACE_##scale, accepts, ISA, function, \
     name "_" ISA_NAME, heeds}

#define REPACK_ROW(codec, from, to, from_scale, to_scale, accepts, function, name, heeds) \
    {TP_CODEC_##codec, TP_PLACE_##from, TP_PLACE_##to, TP_PLACE_##from_scale,            \
     TP_PLACE_##to_scale, accepts, ISA, function, name "_" ISA_NAME, heeds}

#endif
