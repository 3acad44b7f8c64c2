/* Names of unfinished outputs. Knows no file system: 255 bytes is what each of Linux's allows
 * that has no smaller limit of its own.
 */
#include "pack/commit/partial_name.h"

#include "pack/file/leafhash.h"
#include "pack/os/os.h"
#include "pack/sink/compress.h"

#include <string.h>

enum { NAME_BYTES = 255, DIGITS = 16 };
#define END ".partial"
#define FILE_END ".tilepack" END /* by the program's name nobody else's file has it */

/* At most `capacity` bytes of the name, and no half character of UTF-8. */
static int cut_at(const char *name, size_t capacity)
{
    while (capacity && ((unsigned char)name[capacity] & 0xC0) == 0x80)
        capacity--;
    return (int)capacity;
}

char *tp_beside_name(const char *output, const char *before, const char *end, size_t reserved,
                     struct tp_err *err)
{
    const char *slash = strrchr(output, '/'), *base = slash ? slash + 1 : output;
    int above = (int)(base - output);
    size_t size = strlen(base), capacity = NAME_BYTES - strlen(end) - reserved;
    uint8_t hash[TP_HASH_BYTES];
    char digits[TP_HASH_TEXT];
    if (size <= capacity)
        return tp_os_format(err, "%.*s%s%s%s", above, output, before, base, end);
    tp_hash(base, size, hash);
    tp_hash_print(hash, digits);
    return tp_os_format(err, "%.*s%s%.*s-%.*s%s", above, output, before,
                        cut_at(base, capacity - DIGITS - 1), base, DIGITS, digits, end);
}

char *tp_partial_name(const char *output, bool file, struct tp_err *err)
{
    if (!file)
        return tp_beside_name(output, "", END, 0, err);
    /* an archive of a single file lies beside its plain one, under one more suffix */
    return tp_beside_name(output, strchr(output, '/') ? "." : "./.", FILE_END,
                          strlen("." TP_ZST_SUFFIX), err);
}
