/* What format files must not say, beside what cannot be read; inside of reading them. */
#ifndef TP_PACK_FORMAT_CHECK_H
#define TP_PACK_FORMAT_CHECK_H

#include "pack/format/format.h"

/* Keys that formats/README.md does not define, anywhere in the file. */
enum tp_code tp_format_check_keys(const json_t *json, struct tp_err *err);

/* The text of a key that must be there; `whose` names the object. */
enum tp_code tp_format_text(const json_t *object, const char *key, const char *whose,
                            const char **text, struct tp_err *err);

/* Scales that are stored for a larger block than they are computed for, with any choice of the
 * parameters; tensors whose shape and layout are of different size. */
enum tp_code tp_format_check(const struct tp_format *format, struct tp_err *err);

#endif
