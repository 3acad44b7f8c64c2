/* POSIX access control lists as Linux stores them (system.posix_acl_access): what the mode of a file
 * that has one does not say.
 */
#ifndef TP_PACK_ACL_H
#define TP_PACK_ACL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Longer lists are taken for those that nobody but the owner is in. */
enum { TP_ACL_MAX_BYTES = 4096 };

/* What is left of a mode that gives nothing to whom the list keeps it from: to the group what the
 * group and each user in the list has, to others what each user and group in it has. Those of the
 * mode's group that come with a list are its mask, which may be more than the group has. Users and
 * groups whom the list gives more get no more. A list that is none leaves what is the owner's.
 * Source: acl(5), "ACCESS CHECK ALGORITHM"; linux/posix_acl_xattr.h. */
mode_t tp_acl_least(const uint8_t *list, size_t size, mode_t mode);

#endif
