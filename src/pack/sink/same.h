/* A sink that compares: whether the files of a plan are, where the run looks, what it would write.
 * Knows the files by the plan, and so needs no memory for what is in them.
 */
#ifndef TP_PACK_SAME_H
#define TP_PACK_SAME_H

#include "pack/sink/sink.h"

#include <stdatomic.h>

struct tp_same_file;

struct tp_same_sink {
    struct tp_sink sink;
    const struct tp_plan *plan;
    struct tp_same_file *files;
    atomic_bool differs; /* a file, a byte of a header, or one that the run made */
};
/* Opens the plan's files in `directory`, archives of them with `zstd`. One that is not there, or
 * has another size, fails: TP_E_INPUT, or as opening it does. */
enum tp_code tp_same_sink_open(struct tp_same_sink *sink, const struct tp_plan *plan,
                               const char *directory, bool zstd, struct tp_err *err);
void tp_same_sink_close(struct tp_same_sink *sink); /* legal on {0} and after a failure */

#endif
