/* The plug-in with the kernels: where it is found, and the device that it was opened on.
 */
#ifndef TP_PACK_PROVE_LOAD_H
#define TP_PACK_PROVE_LOAD_H

#include "base/error.h"
#include "pack/schedule/gpus.h"
#include "pack/prove/tilepack_prove.h"

/* {0} is closed. */
struct tp_prover {
    void *library;
    const struct tilepack_prove_plugin *plugin;
    struct tilepack_prove_device device;
    const struct tp_gpu *gpu; /* what is known of the device; NULL: nothing */
};

/* Loads the plug-in and opens GPU number `index`. The plug-in is the file that
 * $TILEPACK_PROVE names, else libtilepack_prove.so beside the program, in ../lib from there, or
 * where the system looks for libraries. TP_E_UNSUPPORTED when there is none, it is of another
 * version, or the GPU is of a generation that its kernels do not run on; TP_E_MEMORY when there
 * is no usable GPU. */
enum tp_code tp_prover_open(uint32_t index, struct tp_prover *prover, struct tp_err *err);
void tp_prover_close(struct tp_prover *prover); /* legal on {0} and twice */

/* Fresh memory of the device; NULL + TP_E_MEMORY. */
void *tp_prover_alloc(const struct tp_prover *prover, uint64_t bytes, struct tp_err *err);

/* What the plug-in answered, as an error: TP_OK when `status` is 0, TP_E_UNSUPPORTED when it is
 * that, TP_E_MEMORY for all else. */
enum tp_code tp_prover_check(int status, const char *message, struct tp_err *err);

#endif
