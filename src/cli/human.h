/* Sizes, times and shapes as people read them. Each function writes its text into the caller's
 * array and returns that. Knows nothing of what is printed or where.
 */
#ifndef TP_CLI_HUMAN_H
#define TP_CLI_HUMAN_H

#include "base/layout.h"

#include <stdint.h>
#include <stdio.h>

/* "1.48 GB", "512 B": powers of 1000, three digits. */
enum { TP_HUMAN = 24 };
const char *tp_human_bytes(char text[TP_HUMAN], uint64_t bytes);
/* "12 ms", "3.4 s", "2:05", "1:02:03". */
const char *tp_human_seconds(char text[TP_HUMAN], double seconds);

/* "[4,256,32]" */
enum { TP_SHAPE_TEXT = 200 };
const char *tp_shape_text(char text[TP_SHAPE_TEXT], const uint64_t *shape, uint32_t rank);
/* The same of a weight: [E,N,K], or of rank 2 [N,K]. */
const char *tp_box_text(char text[TP_SHAPE_TEXT], const struct tp_box3 *box, int rank);
/* "4x256x32" */
const char *tp_times_text(char text[TP_SHAPE_TEXT], const struct tp_box3 *box, int rank);

#endif
