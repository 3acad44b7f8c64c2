/* A format for each set of weights, so that the expected error of their outputs is least within a
 * budget of bits for each weight: `tilepack recipe`.
 *
 * Each format is planned for the whole checkpoint, and the errors of its weights are measured on the
 * sample of estimate.h. A set (weight_sets.h) may take a format if the plan converts all of its
 * weights to it and the engine reads them; as it is, it has no error. Weights that no format can be
 * made of are no part of it: they stay as they are, and count in no figure.
 *
 * What a set costs in a format, with W' what the format makes of a weight W[N,K]:
 *
 *     g * sum over n, k of h[k] (W' - W)^2 [n,k]
 *
 * of the sample, times values of the weight for each of the sample. h[K] are the mean squares of
 * what W is multiplied with, and g is the mean square of the gradients of its outputs, both out of
 * the file of importance. A file without any gradients: g = 1. No file: h[k] = 1, too.
 *
 * The sum over h is the error that is expected in the sum of squares of the outputs for one token.
 * With g it is about what a token's predictions lose: their divergence is half of the square of the
 * change of each output times its gradient, when that is taken of the logarithm of the probability
 * of a token that the model itself predicts (the diagonal of Fisher's information). Errors of
 * several outputs, and of several weights, are taken as independent.
 *
 * The figures do not depend on the number of threads, and neither does the choice (share_out.h).
 */
#ifndef TP_PACK_RECIPE_H
#define TP_PACK_RECIPE_H

#include "pack/check/values.h"
#include "pack/plan/file/served.h"
#include "pack/recipe/share_out.h"
#include "pack/recipe/weight_sets.h"
#include "pack/run/run_options.h"

/* One that sets may take. */
struct tp_recipe_format {
    const char *name;
    const struct tp_format *format; /* NULL: as the weights are */
    struct tp_request request;      /* that makes it of all weights; of the caller */
    /* What was found out: */
    size_t sets;      /* that may take it */
    size_t taken;     /* that do */
    char *refused;    /* why the engine does not read the first weight that it does not; or NULL */
};

struct tp_recipe_wish {
    double bits;                /* for each weight of the sets, at most; scales count */
    struct tp_wish served;      /* of an engine */
    const char *importance;     /* a file, or NULL */
    const struct tp_run_options *run; /* of the sample: jobs and stop */
};

struct tp_recipe {
    struct tp_recipe_format *format; /* of the caller */
    size_t formats;
    struct tp_weight_sets sets;
    struct tp_share_set *choices; /* of each set, by the number of the format */
    uint32_t *taken;              /* of each set, a format */
    struct tp_share share;
    uint64_t values, budget; /* of all sets: weights, and bytes at most */
    bool gradients;          /* the file of importance has some */
    size_t left;             /* weights that stay as they are, as no format can be made of them */
};

/* Into a zeroed recipe, which is to be closed also after an error. Errors: TP_E_UNSUPPORTED where
 * the source is quantized, nothing can be converted, or the budget is too small; those of the files
 * and of plans. */
enum tp_code tp_recipe_choose(const struct tp_side *source, const struct tp_recipe_wish *wish,
                              struct tp_recipe_format *format, size_t formats,
                              struct tp_recipe *recipe, struct tp_err *err);
void tp_recipe_close(struct tp_recipe *recipe); /* legal on {0} and twice */

/* Bits for each weight of so many bytes of so many weights. */
static inline double tp_bits_of(uint64_t bytes, uint64_t values)
{
    return 8 * (double)bytes / (double)(values ? values : 1);
}

#endif
