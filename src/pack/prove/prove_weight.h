/* A packed weight as operands of its kernel: which kernel reads it, its stored bytes on the
 * device, and the bf16 numbers that must come back for unit vectors.
 */
#ifndef TP_PACK_PROVE_WEIGHT_H
#define TP_PACK_PROVE_WEIGHT_H

#include "pack/inspect/inspect.h"
#include "pack/prove/prove_load.h"
#include "pack/prove/prove_reference.h"

/* The kind of kernel that reads the weight (enum tilepack_prove_kind), or 0: there is none, as
 * formats and blocks are. */
uint32_t tp_prove_kind(const struct tp_weight *weight);

/* {0} holds nothing. */
struct tp_prove_weight {
    const struct tp_prover *prover;
    void *codes, *groups, *scales; /* as in tilepack_prove_operands */
    uint64_t codes_bytes, groups_bytes, scales_bytes; /* of all experts */
    void *expected; /* bf16, [e][k][n] */
};

/* Where the values are taken from that must come out: the weight itself, decoded, or the same
 * one of another checkpoint. */
struct tp_prove_truth {
    const struct tp_checkpoint *ckpt;
    struct tp_subject subject;
};

/* Reads the weight's bytes expert by expert and puts them on the device; reads the true values
 * for `expected`, and row by row for the reference. A NaN or an infinity among these is
 * TP_E_INPUT: such a weight has no right result. */
enum tp_code tp_prove_weight_open(const struct tp_checkpoint *ckpt,
                                  const struct tp_weights *weights, size_t number,
                                  const struct tp_prove_truth *truth,
                                  const struct tp_prover *prover,
                                  struct tp_prove_reference *reference,
                                  struct tp_prove_weight *w, struct tp_err *err);
void tp_prove_weight_close(struct tp_prove_weight *w); /* legal on {0} and twice */

#endif
