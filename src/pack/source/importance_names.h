/* Names under which a file of importance may hold a weight: its own, the one that llama.cpp
 * gives it, and those of the weights that multiply the same activations.
 */
#ifndef TP_PACK_IMPORTANCE_NAMES_H
#define TP_PACK_IMPORTANCE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TP_IMPORTANCE_NAME = 1024 };

/* Name i = 0, 1, ... of a weight, without ".weight", the best first; false when there are no
 * more. *expert is the row that the weight has in an entry of that name which holds all
 * experts of a layer, or -1. *known_only: the entry belongs to the weight, but its numbers
 * are not those of the weight's columns. */
struct tp_importance_name {
    char text[TP_IMPORTANCE_NAME];
    int64_t expert;
    bool known_only;
};
bool tp_importance_name(const char *weight, uint32_t i, struct tp_importance_name *name);

#endif
