/* The parts of `tilepack dump`; each prints one kind of answer and returns the
 * exit status. */
#ifndef TP_CLI_DUMP_H
#define TP_CLI_DUMP_H

#include "cli/human.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/inspect/inspect.h"

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

/* --svg, --html: the layout of the subject's weight as a picture. */
int tp_dump_picture(const struct tp_options *o, const struct tp_source *source,
                    const struct tp_subject *subject);

/* An element as stored: the number that its bytes are, most significant digit first; the
 * eight multiples of a group scale are no number: in the order of the bytes. Returns text. */
enum { TP_STORED_TEXT = 40 };
const char *tp_stored_text(char text[TP_STORED_TEXT], const struct tp_spot *spot, bool is_group8);

/* What of an output is drawn: elements in one run along one dimension, in the first tile, in
 * all (padding included), and bits of each. The output has a layout. */
struct tp_tile {
    uint64_t run, elements, total;
    unsigned bits;
};
enum tp_code tp_tile_of(const struct tp_weight *weight, uint32_t out, struct tp_tile *tile,
                        struct tp_err *err);

/* Draws the beginning of an output in memory order: what lies at which byte. */
int tp_dump_tile(const struct tp_weight *weight, uint32_t out);

#endif
