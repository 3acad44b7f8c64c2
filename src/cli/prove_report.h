/* What `tilepack prove` found out, and its two printed forms. */
#ifndef TP_CLI_PROVE_REPORT_H
#define TP_CLI_PROVE_REPORT_H

#include "pack/prove/prove.h"
#include "pack/text/text.h"

#include <stdbool.h>

struct tp_proofs {
    const char *path;
    const struct tp_prover *prover;
    struct tp_prove_result *items;
    size_t count;
    size_t left;      /* weights that no kernel reads, or that it refuses */
    bool tune;
    double seconds;
};

/* Weights among them with a wrong number. */
size_t tp_proofs_wrong(const struct tp_proofs *proofs);

/* The best schedules by shape and number of rows, as JSON for the manifest. Free the text in any
 * case. */
enum tp_code tp_prove_schedules(const struct tp_proofs *proofs, struct tp_text *text,
                                struct tp_err *err);

/* One JSON object, or: a table, a line for each wrong weight, and a summary. Returns the exit
 * status, TP_E_DIFF when a number is wrong. */
int tp_prove_print(const struct tp_proofs *proofs, bool json);

#endif
