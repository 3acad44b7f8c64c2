/* Whether engines read what a plan makes: they may load its format, and refuse it all the same. */
#ifndef TP_PACK_UNSUPPORTED_BY_ENGINE_H
#define TP_PACK_UNSUPPORTED_BY_ENGINE_H

#include "pack/plan/unit/plan.h"
#include "pack/text/text.h"

/* One sentence, without its full stop: `before` the name, in quotes, and `after` it. */
struct tp_unsupported_by_engine {
    struct tp_text name;        /* of a module or weight; empty: nothing speaks against the plan */
    const char *before, *after; /* static */
    const struct tp_serve *rows[TP_MAX_SERVES]; /* without a name: what serves the output, of the
                                                   format of its first weight that has such rows */
    size_t row_count;           /* 0: nothing is known */
};

/* Of a plan that makes what engines serve, finds, into a zeroed one,
 * - a stack of experts in a format that engines read one by one: no engine has a name for
 *   it. Stacks whose rows are interleaved are written so, and what --no-stack or --include asks
 * for;
 * - or single experts, of --no-stack, in a format that engines read in stacks;
 * - or experts in a format that engines read of linear layers alone, or these in one for experts;
 * - or experts without the activation scales that their kernels take;
 * - else a module whose experts are not all of one format, some of them plain perhaps: vLLM has one
 *   method for all of them. */
enum tp_code tp_plan_unsupported_by_engine(const struct tp_plan *plan,
                                           struct tp_unsupported_by_engine *found,
                                           struct tp_err *err);

void tp_unsupported_by_engine_close(
    struct tp_unsupported_by_engine *found); /* legal on {0} and twice */

#endif
