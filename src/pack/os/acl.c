/* Reading an access control list; see acl.h. Asks nobody for one. Invariant: no bit of a mode is
 * added. */
#include "pack/os/acl.h"

enum { VERSION = 2, HEAD = 4, ENTRY = 8 };
enum tag { USER = 2, GROUP_OBJ = 4, GROUP = 8 };

static unsigned u16(const uint8_t *bytes) { return bytes[0] | (unsigned)bytes[1] << 8; }

mode_t tp_acl_least(const uint8_t *list, size_t size, mode_t mode)
{
    enum { ALL = 7 };
    const mode_t mask = mode >> 3 & ALL;
    mode_t users = ALL, groups = ALL, group = 0;
    if (size < HEAD || size > TP_ACL_MAX_BYTES || (size - HEAD) % ENTRY || u16(list) != VERSION ||
        u16(list + 2) != 0)
        return mode & 0700;
    for (const uint8_t *entry = list + HEAD; entry < list + size; entry += ENTRY) {
        mode_t allowed = u16(entry + 2) & ALL;
        enum tag tag = u16(entry);
        if (tag == USER)
            users &= allowed & mask;
        else if (tag == GROUP)
            groups &= allowed & mask;
        else if (tag == GROUP_OBJ)
            group = allowed;
    }
    return mode & (0700 | (group & users) << 3 | (users & groups));
}
