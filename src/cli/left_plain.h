/* What is left of the source: weights that its quantizer left plain, and that stay so, and tensors
 * beside weights that are left out, as nothing would read them.
 */
#ifndef TP_CLI_LEFT_PLAIN_H
#define TP_CLI_LEFT_PLAIN_H

#include "cli/writer.h"
#include "pack/plan/unit/plan.h"

/* The line "left plain by its quantizer: 8 (mtp.*)", or nothing. The names are the shortest that no
 * packed weight is under, with '*' for numbers where that is so of all of them. And the line
 * "left out, as no reader of the output takes it: 26 tensors (*.input_scale)". */
void tp_left_plain_print(const struct tp_plan *plan);

/* Writes "left_plain": {"weights": 8, "names": ["mtp.*"]} and
 * "left_out_tensors": {"tensors": 26, "ends": [".input_scale"]}, or nothing. */
void tp_left_plain_put(struct tp_writer *w, const struct tp_plan *plan);

#endif
