/* The hash that a packed file's header holds of the file. */
#ifndef TP_PACK_FILE_HASH_H
#define TP_PACK_FILE_HASH_H

#include "pack/source/checkpoint.h"

/* Where the header of file f has the digits: an offset in the plain file, or UINT64_MAX. */
enum tp_code tp_file_hash_place(const struct tp_checkpoint *ckpt, uint32_t f, uint64_t *place,
                                struct tp_err *err);

#endif
