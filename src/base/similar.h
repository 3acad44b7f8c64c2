/* How unlike two short names are, for "did you mean": commands, options, formats, tensors. */
#ifndef TP_BASE_SIMILAR_H
#define TP_BASE_SIMILAR_H

/* The name most like what was typed, of those that were tried; NULL when a suggestion
 * would be a guess. Begins as {typed}. */
struct tp_nearest {
    const char *typed, *name;
    unsigned cost;
};
void tp_nearest_try(struct tp_nearest *nearest, const char *name);

#endif
