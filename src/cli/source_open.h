/* Opening a checkpoint with its weights, and what memory that and all that follows may take.
 */
#ifndef TP_CLI_SOURCE_OPEN_H
#define TP_CLI_SOURCE_OPEN_H

#include "cli/options.h"
#include "pack/run/run_options.h"
#include "pack/source/weights.h"

/* An open checkpoint. {0} is closed. */
struct tp_source {
    struct tp_checkpoint ckpt;
    struct tp_weights weights;
};
/* `o`: of who copies its files (--strict, --follow-links, --copy); NULL: it is only read. For
 * readers: packed weights whose format is not known are read by their descriptors. */
enum tp_code tp_source_open(const char *path, const struct tp_options *o, struct tp_source *source,
                            struct tp_err *err);
/* The same for who makes something of it, with what the user says of the model (NULL: nothing);
 * formats must be known. */
enum tp_code tp_source_open_as(const char *path, const struct tp_options *o,
                               const struct tp_model_choice *choice, struct tp_source *source,
                               struct tp_err *err);
void tp_source_close(struct tp_source *source);

/* From now on headers, names, trees of JSON and the plan count against --max-memory. */
void tp_limit_memory(const struct tp_options *o);
/* The plan is made: the work is divided by pack/run/budget.c, whose memory this sets. */
void tp_limit_work(const struct tp_options *o, struct tp_run_options *run);

#endif
