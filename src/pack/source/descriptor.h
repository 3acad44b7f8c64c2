/* Stored descriptors: what a file says about its own packed tensors.
 *
 * Every output file carries, in __metadata__, the descriptors of its packed
 * weights and the list of units that use them; formats/README.md defines both.
 * Equal descriptors are stored once.
 */
#ifndef TP_PACK_DESCRIPTOR_H
#define TP_PACK_DESCRIPTOR_H

#include "pack/source/weight_list.h"

#define TP_META_VERSION "tilepack"
#define TP_META_DESCRIPTORS "tilepack.descriptors"
#define TP_META_UNITS "tilepack.units"
#define TP_META_REQUEST "tilepack.request"
#define TP_META_HASH "tilepack.xxh3"
#define TP_DESCRIPTOR_VERSION "1"

/* The descriptor of one packed weight, as a JSON object (new reference). */
json_t *tp_descriptor_json(const struct tp_format *format, const struct tp_settings *settings,
                           const struct tp_search_choice *search, const struct tp_op *op,
                           struct tp_box3 box, int rank, struct tp_err *err);

/* Whether descriptors of that version (TP_META_VERSION of the file, NULL: it has none) can be read:
 * by formats/README.md a reader refuses one that it does not know. */
enum tp_code tp_descriptors_version(const char *version, struct tp_err *err);

/* Weights (without tensor numbers) of one file's metadata, appended to the items. Text
 * that is not what a conversion writes is TP_E_INPUT. */
enum tp_code tp_descriptors_parse(const char *descriptors, const char *units,
                                  struct tp_weights *weights, struct tp_err *err);

#endif
