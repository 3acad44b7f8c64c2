/* Patterns of modules' names: a run of whole segments, "self_attn.q_proj", "*norm*", "^visual",
 * "gate$". A '*' stands for any characters but a dot, '^' for the name's beginning, '$' for its
 * end. Pure functions.
 */
#ifndef TP_PACK_MODULE_PATTERN_H
#define TP_PACK_MODULE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_module_pattern {
    const char *text; /* as written */
    uint64_t pairs;   /* of tp_module_pairs(): a name without one of them does not match */
};

/* False: the text is no pattern. */
bool tp_module_pattern_of(const char *text, struct tp_module_pattern *pattern);

/* The pairs of letters side by side in a name, a bit for those of one hash. Large checkpoints ask
 * millions of times: most patterns have a pair that a name lacks. */
uint64_t tp_module_pairs(const char *module, size_t size);

/* Where in the module's name, of these pairs, a run of segments begins that the pattern stands
 * for; NULL: nowhere. */
const char *tp_module_find(const struct tp_module_pattern *pattern, const char *module, size_t size,
                           uint64_t pairs);
/* Whether one of the patterns stands for such a run. */
bool tp_modules_match(const struct tp_module_pattern *patterns, size_t count, const char *module,
                      size_t size);

#endif
