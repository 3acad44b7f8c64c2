/* --max-memory before the work begins: headers, names and the plan are what it limits, and what
 * does not fit is refused with a figure that is enough. The work itself is divided by
 * pack/run/budget.c.
 */
#ifndef TP_CLI_PLAN_MEMORY_H
#define TP_CLI_PLAN_MEMORY_H

#include "cli/session.h"

/* Limits the heap until the source is opened: a recipe counts, its text, tree and rules, and a file
 * of importance. `request`: what is known of it so far. */
void tp_limit_request(const struct tp_options *o, const struct tp_request *request);

/* Opens the source of a conversion with the heap limited, and leaves it so. */
enum tp_code tp_source_open_limited(const struct tp_options *o, const char *path,
                                    const struct tp_request *request, struct tp_source *source,
                                    struct tp_err *err);

/* Limits the heap until packed weights are open and planned. */
void tp_limit_unpack(const struct tp_options *o, const char *path);

#endif
