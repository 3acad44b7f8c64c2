/* How unlike two short names are, for "did you mean": commands, options, formats. */
#ifndef TP_BASE_SIMILAR_H
#define TP_BASE_SIMILAR_H

enum { TP_UNLIKE = 80 };

/* The less, the more alike; TP_UNLIKE when a suggestion would be a guess. */
unsigned tp_name_distance(const char *typed, const char *name);

#endif
