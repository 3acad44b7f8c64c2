/* Stored descriptors: what a file says about its own packed tensors.
 *
 * Every output file carries, in __metadata__, the descriptors of its packed
 * weights and the list of units that use them; formats/README.md defines both.
 * Equal descriptors are stored once.
 */
#ifndef TP_PACK_DESCRIPTOR_H
#define TP_PACK_DESCRIPTOR_H

#include "pack/plan/plan.h"

#define TP_META_VERSION "tilepack"
#define TP_META_DESCRIPTORS "tilepack.descriptors"
#define TP_META_UNITS "tilepack.units"
#define TP_META_REQUEST "tilepack.request"
#define TP_META_HASH "tilepack.xxh3"
#define TP_DESCRIPTOR_VERSION "1"

/* The descriptor of one packed weight, as a JSON object (new reference). */
json_t *tp_descriptor_json(const struct tp_format *format, const struct tp_settings *settings,
                           const struct tp_op *op, struct tp_box3 box, int rank,
                           struct tp_err *err);

/* Descriptors {"d0": {...}} and units [...] of the units of one file, or of all
 * files (file = UINT32_MAX), as JSON text. Both are the caller's to free. */
enum tp_code tp_descriptors_text(const struct tp_plan *plan, uint32_t file, char **descriptors,
                                 struct tp_text *units, struct tp_err *err);
/* The same of all files, as trees: new references, set on success only. */
enum tp_code tp_descriptors_json(const struct tp_plan *plan, json_t **descriptors, json_t **units,
                                 struct tp_err *err);

/* The reverse: weights (without tensor numbers) of one file's metadata, appended
 * to *items. Text that is not what tp_descriptors_json writes is TP_E_INPUT. */
enum tp_code tp_descriptors_parse(const char *descriptors, const char *units,
                                  struct tp_weight **items, size_t *count, size_t *capacity,
                                  struct tp_err *err);

/* The units behind `weights`, as origins; used for "from" and by unpack. */
enum tp_code tp_unit_origins(const struct tp_plan *plan, const struct tp_unit *unit,
                             struct tp_origin **origins, uint32_t *count, struct tp_err *err);
/* The tensor of that expert: the name with "{e}" replaced. Fresh memory. */
char *tp_origin_name(const struct tp_origin *origin, uint64_t expert, struct tp_err *err);
void tp_origins_free(struct tp_origin *origins, uint32_t count);

#endif
