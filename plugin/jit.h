/* CUDA C++ to machine code when it is needed, through NVRTC, which is found at run time; what was
 * made is kept (jit_cache.h). Knows no kernel.
 */
#ifndef PLUGIN_JIT_H
#define PLUGIN_JIT_H

#include "base/error.h"

#include <stddef.h>

/* Machine code, or the text of PTX; freed with free(). */
struct jit_image {
    char *data;
    size_t size;
    int cached; /* it was there */
};

enum jit_kind { JIT_CODE /* of sm_90a */, JIT_PTX };

/* TP_E_UNSUPPORTED: there is no NVRTC, it is too old, or it refuses the source. `name` is for
 * messages. Code is taken from the cache and put there; PTX is always made. */
enum tp_code jit_make(const char *source, const char *name, enum jit_kind kind,
                      struct jit_image *image, struct tp_err *err);

/* Code to the device. An error names both versions: a driver refuses code of a newer major one. */
enum tp_code jit_load(const struct jit_image *image, void **module, const char *what,
                      struct tp_err *err);

/* The text of a file of this directory, which is in the plug-in. */
const char *jit_text(const char *name);

/* Whether there is an NVRTC that is new enough, and its version as text. */
enum tp_code jit_version(char text[32], struct tp_err *err);

#endif
