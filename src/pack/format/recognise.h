/* By what a packed weight of another tool is known before its format is read: one row for each
 * output of the forms that are known by their tensors. The rows are made of the format files when
 * the program is built (scripts/recognise.awk); a test compares them with the formats.
 */
#ifndef TP_PACK_RECOGNISE_H
#define TP_PACK_RECOGNISE_H

#include "pack/format/format.h"

struct tp_recognised {
    const char *format;             /* its name */
    const char *suffix, *also[TP_MAX_ALSO]; /* of the tensor; others that sources use, or NULL */
    const char *joint, *stem;       /* see struct tp_format */
    enum tp_role role;
    enum tp_dtype dtype;
    enum tp_codec codec;
    uint32_t bits;
    bool has_config, stored_less;   /* zero points are stored less 1 */
    enum tp_activations activations;
};

/* In the order in which they are tried: those with a config first, then by name and output; ended
 * by a row whose format is NULL. */
extern const struct tp_recognised tp_recognised[];

#endif
