/* Proof: a consumer's kind of kernel over the stored bytes of a weight, and whether right
 * numbers come out. How fast, beside that.
 *
 * Two proofs. With unit vectors as activations every weight comes out by itself and must equal
 * the decoded one, in bf16. With random activations sums come out, and must be as near to those
 * in fp64 as the kernel's arithmetic allows (prove_reference.h). Nothing here prints.
 */
#ifndef TP_PACK_PROVE_H
#define TP_PACK_PROVE_H

#include "pack/prove/prove_kernels.h"

#include <stdatomic.h>

enum { TP_PROVE_M = 16 }; /* most numbers of rows of one run */

/* The first number that is wrong. A NaN is, too. */
struct tp_prove_wrong {
    const char *kernel;    /* NULL: nothing is wrong */
    bool unit;             /* of a unit vector: the weight (e,n,k); else the sum (e,row,n) */
    uint64_t e, n, k, row, m;
    double expected, got, bound; /* bound: of a sum */
    uint64_t count;        /* how many are wrong in that result */
};

/* One kernel with so many rows. */
struct tp_prove_run {
    struct tp_prove_kernel kernel;
    double microseconds;
    double bound_share; /* largest error over its bound: at most 1 when right */
    double relative;    /* ||error|| / ||expected|| */
};

struct tp_prove_case {
    uint64_t m; /* rows of each expert */
    struct tp_prove_prediction prediction;
    struct tp_sched_cost cost; /* seconds are 0 where the GPU's figures are not known */
    struct tp_prove_run *runs; /* [0] is the predicted one, or what stands for it */
    size_t count, best;
};

struct tp_prove_result {
    const char *name, *format;
    uint32_t kind, rank;
    struct tp_box3 box;
    uint64_t exact;    /* weights that came out right through every kernel used */
    size_t kernels;    /* so many */
    struct tp_prove_wrong wrong;
    struct tp_prove_case cases[TP_PROVE_M];
    size_t case_count;
    bool refused; /* no kernel of the plug-in takes it: the error says why */
};

struct tp_prove_options {
    uint64_t m[TP_PROVE_M];
    size_t m_count;
    bool all;         /* every schedule of the plug-in, or the planner's first ones, not the
                         predicted one alone */
    /* What must come out is what the weight of that name holds there, in any form; NULL: what
     * the proven one decodes to. */
    const struct tp_checkpoint *other;
    const struct tp_weights *others;
    atomic_int *stop; /* ends the run when it is no longer 0; or NULL */
};

/* Proves weight number w of the list. A wrong number is no error: result->wrong says which, and
 * what was not done yet is left out. TP_E_UNSUPPORTED when no kernel of the plug-in takes the
 * weight; TP_E_USAGE or TP_E_INPUT when the other checkpoint has none such. */
enum tp_code tp_prove(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                      size_t w, const struct tp_prover *prover,
                      const struct tp_prove_options *options, struct tp_prove_result *result,
                      struct tp_err *err);
void tp_prove_result_close(struct tp_prove_result *result); /* legal on {0} and twice */

#endif
