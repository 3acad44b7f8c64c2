/* Finding a file's own hash: the header's text is read again, as what was parsed has lost its
 * offsets.
 */
#include "pack/source/file_hash.h"

#include "pack/os/os.h"
#include "pack/source/descriptor.h"

#include <stdlib.h>
#include <string.h>

enum tp_code tp_file_hash_place(const struct tp_checkpoint *ckpt, uint32_t f, uint64_t *place,
                                struct tp_err *err)
{
    static const char marker[] = "\"" TP_META_HASH "\":\"";
    const struct tp_file *file = &ckpt->files[f];
    size_t size = (size_t)file->header.data_start;
    *place = UINT64_MAX;
    if (!tp_st_meta(&file->header, TP_META_HASH))
        return TP_OK;
    char *text = tp_os_alloc(size, err);
    if (!text)
        return TP_E_MEMORY;
    enum tp_code code = tp_checkpoint_read(ckpt, f, text, size, 0, err);
    const char *found = code ? NULL : memmem(text, size, marker, strlen(marker));
    if (found)
        *place = (uint64_t)(found - text) + strlen(marker);
    free(text);
    return code;
}
