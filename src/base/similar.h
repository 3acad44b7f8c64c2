/* "Did you mean": finds the name most like what was typed, of commands, options, formats or
 * tensors.
 */
#ifndef TP_BASE_SIMILAR_H
#define TP_BASE_SIMILAR_H

/* Begins as {typed}. After tp_nearest_try() of every name, `name` is the nearest one, or NULL when
 * none is near enough to be more than a guess. */
struct tp_nearest {
    const char *typed, *name;
    unsigned cost; /* of `name`: lower is nearer */
};
void tp_nearest_try(struct tp_nearest *nearest, const char *name);

#endif
