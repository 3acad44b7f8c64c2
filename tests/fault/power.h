/* A model of a disk that loses power: what a log of calls may have left behind.
 *
 * What was fsynced is there. Of later writes each block of 512 bytes is there, or
 * not, or holds garbage; of later changes to a directory a prefix is there. Data
 * and directories are independent of each other, which is more than any journaling
 * file system does to its users, and what POSIX allows.
 */
#ifndef TEST_FAULT_POWER_H
#define TEST_FAULT_POWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Everything below `root` is modelled; what is there now is on the disk already. */
void power_start(const char *root);
size_t power_events(void);
/* Replaces the contents of the root by what a power cut after `events` events may
 * have left; `seed` chooses. */
void power_cut(size_t events, uint64_t seed);
void power_end(void);

/* The log; called by world.c with its lock held. */
void power_open(int fd, const char *path, int flags);
void power_close(int fd);
void power_write(int fd, const void *data, size_t size, off_t offset);
void power_extend(int fd, off_t size);
void power_truncate(int fd, off_t size);
void power_fsync(int fd);
void power_rename(const char *from, const char *to, bool exchange);
void power_mkdir(const char *path);
void power_remove(const char *path);

#endif
