/* Compiled kernels in $XDG_CACHE_HOME/tilepack/kernels, or ~/.cache/tilepack/kernels, under the
 * SHA-256 of all that they were made of. Each file ends with the SHA-256 of what is before, so that
 * a damaged one is as none. A file appears whole, by rename; processes need no lock: they would
 * write the same. Where nothing can be read or written, or where others may write, nothing is kept,
 * and that is no error.
 */
#ifndef PLUGIN_JIT_CACHE_H
#define PLUGIN_JIT_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* `parts`: texts, NULL behind the last; they are what the kernel is known by. */
bool jit_cache_read(const char *const *parts, char **data, size_t *size);
void jit_cache_write(const char *const *parts, const char *data, size_t size);

#endif
