/* Folding: the weights of equal layers are one line of a table. */
#ifndef TP_CLI_FOLD_H
#define TP_CLI_FOLD_H

/* The name with the numbers between its dots as asterisks ("layers.*.mlp"), fresh
 * memory; NULL when memory is short. */
char *tp_fold_name(const char *name);

#endif
