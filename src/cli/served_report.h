/* What engines make of a plan, printed: the verdict before the work, and the command after it. */
#ifndef TP_CLI_SERVED_REPORT_H
#define TP_CLI_SERVED_REPORT_H

#include "cli/writer.h"
#include "pack/plan/file/served.h"

/* A verdict, and what it is of. */
struct tp_serving {
    struct tp_wish wish;
    struct tp_served served;
    const char *output; /* the directory that is written, or "DST" */
};

/* "read by ACME (1.2) on sm80 and later", or who does not and why, as lines on stdout; nothing
 * where no packed weight is written. Of messages before the work there is none either where no
 * server finds out what it is. Returns the exit status. */
int tp_serving_print(const struct tp_serving *serving, bool message);

/* A warning for each reader that would refuse or misread weights by a rule, but for the one whose
 * reason the verdict is. */
void tp_serving_warn(const struct tp_serving *serving);

/* Writes "serve" with the command and what has to be installed, or "unserved" with the reason, and
 * "readers". */
void tp_serving_put(struct tp_writer *w, const struct tp_serving *serving);

/* "serve it: vllm serve DST", as a shell takes it, and a line with what has to be installed. */
int tp_serving_print_command(const struct tp_serving *serving);

#endif
