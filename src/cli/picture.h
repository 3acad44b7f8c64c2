/* The layout of a packed weight as a picture (SVG): memory in the order of its bytes, a cell
 * for each stored element, coloured by the row and column of W that it belongs to; codes at
 * the left, scales beside them. Every cell carries what `dump --at` says of it, as attributes
 * data-e, -n, -k (the first element that it belongs to, and data-n1, -k1 behind the last),
 * -byte (in the tensor), -half, -offset (in the file), -stored and -value.
 */
#ifndef TP_CLI_PICTURE_H
#define TP_CLI_PICTURE_H

#include "pack/inspect/inspect.h"

#include <stdio.h>

/* The cells of a tensor that are drawn, line by line. */
struct tp_picture_part {
    uint32_t out;        /* of the weight */
    unsigned bits;       /* of an element */
    uint64_t elements;   /* stored ones */
    uint64_t per_line, lines;
    uint64_t line_step;  /* elements from the begin of a line to that of the next */
    double x, y;         /* where it stands */
};

struct tp_picture {
    const struct tp_source *source;
    const struct tp_weight *weight;
    struct tp_picture_part part[TP_MAX_OUT];
    unsigned parts;
    double width, height;
    uint64_t columns; /* of W, that the shades of colours are spread over */
    size_t cells;     /* drawn so far */
};

/* Chooses what is drawn: the first tile of each tensor, or, where rows lie in one piece, the
 * begins of the first rows of codes. */
enum tp_code tp_picture_open(struct tp_picture *picture, const struct tp_source *source,
                             const struct tp_weight *weight, struct tp_err *err);

/* Writes <svg>...</svg>. Reads the elements that it draws. */
enum tp_code tp_picture_draw(struct tp_picture *picture, FILE *out, struct tp_err *err);

#endif
