/* What the machine has, as far as this process may use it. */
#ifndef TP_PACK_MACHINE_H
#define TP_PACK_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of memory: of the machine, or the limit of a cgroup of this process (version 1 or 2) where
 * that is less. `root`: where /proc and /sys are, "" but in tests. */
uint64_t tp_machine_memory(const char *root);

/* The name of the first GPU of NVIDIA that the driver lists, "NVIDIA H200"; false: there is none.
 * `root` as above. */
bool tp_machine_gpu(const char *root, char *name, size_t size);

#endif
