/* What the machine has, as far as this process may use it. */
#ifndef TP_PACK_MACHINE_H
#define TP_PACK_MACHINE_H

#include <stdint.h>

/* Bytes of memory: of the machine, or the limit of a cgroup of this process (version 1 or 2) where
 * that is less. `root`: where /proc and /sys are, "" but in tests. */
uint64_t tp_machine_memory(const char *root);

#endif
