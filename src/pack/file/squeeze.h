/* Long texts that are needed again later, compressed in memory meanwhile: headers of output files
 * are a tenth of their size. Not for files: see zst.h.
 */
#ifndef TP_PACK_SQUEEZE_H
#define TP_PACK_SQUEEZE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct tp_squeezed { /* {0} is empty */
    char *data;
    size_t size;  /* compressed */
    size_t plain;
};

/* Replaces nothing: *squeezed must be empty. TP_E_MEMORY alone can go wrong. */
enum tp_code tp_squeeze(const char *text, size_t size, struct tp_squeezed *squeezed,
                        struct tp_err *err);

/* Hands out the text in pieces, from its beginning to its end. */
typedef enum tp_code (*tp_squeezed_take)(void *arg, const char *piece, size_t size,
                                         uint64_t offset, struct tp_err *err);
enum tp_code tp_squeezed_each(const struct tp_squeezed *squeezed, tp_squeezed_take take, void *arg,
                              struct tp_err *err);
/* All of the text, NUL-terminated, in fresh memory. */
char *tp_squeezed_text(const struct tp_squeezed *squeezed, struct tp_err *err);
void tp_squeezed_free(struct tp_squeezed *squeezed); /* legal on {0} and twice */

#endif
