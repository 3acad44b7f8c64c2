/* Files below a directory in which this process writes: what has the name of one may be a link,
 * which is not followed.
 *
 * Directories are descriptors; `path` is the whole path, which ends in the name, for messages. With
 * AT_FDCWD the name is a path, of which links above the file are the user's choice, and are
 * followed.
 */
#ifndef TP_PACK_BELOW_H
#define TP_PACK_BELOW_H

#include "pack/os/os.h"

/* Opens the directory `path`, which must be one and no link: TP_E_USAGE otherwise. *fd is -1 on
 * failure. */
enum tp_code tp_below_open_dir(const char *path, int *fd, struct tp_err *err);

/* Makes the directory NAME unless it is there. The folders above it are there. It gets this mode,
 * which is always its owner's to use, less the umask. */
enum tp_code tp_below_mkdir(int dir, const char *name, mode_t mode, const char *path,
                            struct tp_err *err);

/* Opens a file that is there. `flags` are those of open(2); O_NOFOLLOW is added. A link is
 * TP_E_USAGE. */
enum tp_code tp_below_open(int dir, const char *name, int flags, const char *path, int *fd,
                           struct tp_err *err);

/* Opens a plain file that is there for reading. Anything else, at which an open may wait for ever
 * (a pipe), is TP_E_INPUT, a link TP_E_USAGE. *fd is -1 on failure. */
enum tp_code tp_below_open_regular(int dir, const char *name, const char *path, int *fd,
                                   struct stat *st, struct tp_err *err);

/* Makes a new file for reading and writing; what had its name is removed first. It gets what this
 * mode says of reading and writing, which is always its owner's, less the umask. */
enum tp_code tp_below_create(int dir, const char *name, mode_t mode, const char *path, int *fd,
                             struct tp_err *err);

/* The same with these bytes, on the disk, and closed. */
enum tp_code tp_below_write(int dir, const char *name, mode_t mode, const char *path,
                            const void *data, size_t size, struct tp_err *err);

/* Opens, or makes, a file that stays over several runs: a journal, a lock. TP_E_USAGE when it
 * is no plain file. */
enum tp_code tp_below_open_own(int dir, const char *name, mode_t mode, const char *path, int *fd,
                               struct tp_err *err);

/* Whole small file, as tp_os_slurp(). */
enum tp_code tp_below_slurp(int dir, const char *name, const char *path, uint64_t limit,
                            char **data, size_t *size, struct tp_err *err);

/* Names in the directory that is open. */
enum tp_code tp_below_list(int dir, const char *path, struct tp_os_list *list, struct tp_err *err);

/* Removes a file or a link; one that is gone is fine. */
enum tp_code tp_below_remove(int dir, const char *name, const char *path, struct tp_err *err);

/* True for a directory, and no link to one. False and an error: it could not be looked at. */
bool tp_below_is_dir(const char *path, struct tp_err *err);

#endif
