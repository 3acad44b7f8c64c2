/* The parts of `tilepack dump`; each prints one kind of answer and returns the
 * exit status. */
#ifndef TP_CLI_DUMP_H
#define TP_CLI_DUMP_H

#include "cli/human.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/inspect/inspect.h"

#include <jansson.h>

/* For a tensor the packed weight that it is an output of; NULL: of none. */
struct tp_owner {
    const struct tp_weight *weight;
    uint32_t out;
};

/* The tensors that are listed, by index, and for each tensor its owner. */
struct tp_listing {
    const struct tp_source *source;
    struct tp_owner *owners; /* of all tensors */
    uint32_t *tensors;
    size_t count;
};

/* The table of all tensors, or of those whose name, or whose weight's name, `pattern`
 * matches (NULL: of all). --fold and --tree take names of equal layers together. */
int tp_dump_table(const struct tp_options *o, const struct tp_source *source,
                  const char *pattern);

/* "w4a8-cutlass codes", or "" */
const char *tp_holds_text(char text[120], const struct tp_owner *owner);

/* --fold and --tree: the table, without the line below it. */
int tp_dump_fold(const struct tp_listing *listing, bool tree);

/* Whether an operand stands for several tensors: "re:" or "glob:" in front of it, or a glob's
 * characters in it. */
bool tp_is_pattern(const char *operand);

/* One tensor, or all tensors of one packed weight (`whole`). */
int tp_dump_tensor(const struct tp_options *o, const struct tp_source *source,
                   const struct tp_subject *subject, bool whole);

/* --at, --offset, --values. */
int tp_dump_at(const struct tp_options *o, const struct tp_source *source,
               const struct tp_subject *subject);
int tp_dump_byte(const struct tp_options *o, const struct tp_source *source,
                 const struct tp_subject *subject);
int tp_dump_values(const struct tp_options *o, const struct tp_source *source,
                   const struct tp_subject *subject);

/* Draws the beginning of an output in memory order: what lies at which byte. */
int tp_dump_tile(const struct tp_weight *weight, uint32_t out);

enum { TP_BOX_TEXT = TP_SHAPE_TEXT + 1 };
/* "W[4,256,32]" of a weight, without E for a 2-D one. */
const char *tp_box_text(char text[TP_BOX_TEXT], const struct tp_weight *weight);
json_t *tp_shape_json(const uint64_t *shape, uint32_t rank);

/* A number, or "NaN", "Infinity", "-Infinity", which JSON has no numbers for. */
json_t *tp_number_json(double value);

#endif
