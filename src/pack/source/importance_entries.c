/* Adding entries: each is wholly inside of the file, and has a name of its own. */
#include "pack/source/importance_entries.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <string.h>

enum tp_code tp_importance_add(struct tp_importance_file *file, const char *name, size_t size,
                               const struct tp_importance_entry *entry, struct tp_err *err)
{
    uint64_t bytes, end;
    uint32_t number;
    if (size > 7 && memcmp(name + size - 7, ".weight", 7) == 0)
        size -= 7;
    enum tp_code code = tp_os_grow((void **)&file->entries, &file->capacity, file->count + 1,
                                   sizeof *file->entries, err);
    char *own = code ? NULL : tp_os_join(err, name, size, "");
    if (!own)
        return TP_E_MEMORY;
    file->entries[file->count] = *entry;
    file->entries[file->count++].name = own;
    tp_err_tensor(err, own);
    if (entry->count == 0 || !tp_mul_u64(&bytes, entry->count, entry->half ? 2 : sizeof(float)) ||
        !tp_add_u64(&end, entry->offset, bytes) || end > file->size)
        return tp_fail(err, TP_E_INPUT, "its %llu numbers are not all in the file, which is "
                       "truncated or damaged", (unsigned long long)entry->count);
    if ((code = tp_names_add(&file->names, own, size, &number, err)))
        return code;
    if (number + 1 != file->count)
        return tp_fail(err, TP_E_INPUT, "the file has two entries of this name");
    if (err)
        err->tensor[0] = '\0';
    return TP_OK;
}
