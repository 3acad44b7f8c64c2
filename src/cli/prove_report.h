/* What `tilepack prove` found out, and its two printed forms. */
#ifndef TP_CLI_PROVE_REPORT_H
#define TP_CLI_PROVE_REPORT_H

#include "pack/prove/prove.h"

#include <jansson.h>

struct tp_proofs {
    const char *path;
    const struct tp_prover *prover;
    struct tp_prove_result *items;
    size_t count;
    size_t left;      /* weights that no kernel reads */
    bool tune;
    double seconds;
};

/* Weights among them with a wrong number. */
size_t tp_proofs_wrong(const struct tp_proofs *proofs);

/* The best schedules by shape and number of rows, as they stand in the manifest; NULL when
 * memory is short. */
json_t *tp_prove_schedules(const struct tp_proofs *proofs);

/* A table, a line for each wrong weight, and a summary. Returns the exit status, TP_E_DIFF when
 * a number is wrong. */
int tp_prove_print_text(const struct tp_proofs *proofs);

/* One JSON object. The same status. */
int tp_prove_print_json(const struct tp_proofs *proofs);

#endif
