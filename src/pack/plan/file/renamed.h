/* What readers call the modules of a model: `renamed` of models/README.md.
 */
#ifndef TP_PACK_RENAMED_H
#define TP_PACK_RENAMED_H

#include "base/error.h"
#include "pack/model/model_facts.h"

/* Calls each(state, ...) with every other name that a reader gives the module: of each model with
 * one run of segments replaced, and with all of them. A name ends with a NUL and may come twice.
 * Stops at the first failure of `each`, which it returns. */
typedef enum tp_code (*tp_renamed_fn)(void *state, const char *name, size_t size);
enum tp_code tp_each_renamed(const struct tp_model_facts *facts, const char *name, size_t size,
                             tp_renamed_fn each, void *state, struct tp_err *err);

#endif
