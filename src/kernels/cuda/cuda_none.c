/* The device half of cuda.h in builds without nvcc: there is no device, and asking
 * for one says why. Empty when CUDA is compiled in. */
#include "kernels/cuda/cuda.h"

#ifndef TP_HAVE_CUDA

#pragma GCC diagnostic ignored "-Wunused-parameter" /* nothing is done with any */

static enum tp_code none(struct tp_err *err)
{
    return tp_fail(err, TP_E_MEMORY, "this build has no CUDA");
}

const struct tp_row_set tp_rows_cuda = {0};

int tp_cuda_count(void) { return 0; }

const char *tp_cuda_why_none(void) { return "this build has no CUDA"; }

enum tp_code tp_cuda_query(int device, struct tp_cuda_device *info, struct tp_err *err)
{
    return none(err);
}

enum tp_code tp_cuda_open(int device, uint64_t input_bytes, uint64_t output_bytes,
                          uint64_t scratch_bytes, struct tp_cuda_slot **slot, bool *no_memory,
                          struct tp_err *err)
{
    *slot = NULL;
    *no_memory = false;
    return none(err);
}

void *tp_cuda_input(struct tp_cuda_slot *slot) { return NULL; }

void *tp_cuda_output(struct tp_cuda_slot *slot) { return NULL; }

enum tp_code tp_cuda_run(struct tp_cuda_slot *slot, struct tp_cuda_call *call,
                         struct tp_err *err)
{
    return none(err);
}

void tp_cuda_close(struct tp_cuda_slot *slot) {}

enum tp_code tp_cuda_enter(int device, int *before, struct tp_err *err)
{
    *before = 0;
    return none(err);
}

enum tp_code tp_cuda_leave(int before, struct tp_err *err) { return none(err); }

enum tp_code tp_cuda_copier_open(int device, void *after, unsigned workers, unsigned slots,
                                 uint64_t slot_bytes, struct tp_cuda_copier **copier,
                                 struct tp_err *err)
{
    *copier = NULL;
    return none(err);
}

enum tp_code tp_cuda_copier_begin(struct tp_cuda_copier *copier, struct tp_err *err)
{
    return none(err);
}

enum tp_code tp_cuda_copier_take(struct tp_cuda_copier *copier, unsigned worker, unsigned i,
                                 void **slot, struct tp_err *err)
{
    return none(err);
}

enum tp_code tp_cuda_copier_copy(struct tp_cuda_copier *copier, unsigned worker, void *to,
                                 const void *from, uint64_t bytes, struct tp_err *err)
{
    return none(err);
}

enum tp_code tp_cuda_copier_record(struct tp_cuda_copier *copier, unsigned worker, unsigned i,
                                   struct tp_err *err)
{
    return none(err);
}

enum tp_code tp_cuda_copier_finish(struct tp_cuda_copier *copier, unsigned worker,
                                   struct tp_err *err)
{
    return none(err);
}

void tp_cuda_copier_rest(struct tp_cuda_copier *copier) {}

bool tp_cuda_copier_fits(const struct tp_cuda_copier *copier, int device, unsigned workers,
                         unsigned slots, uint64_t slot_bytes)
{
    return false;
}

enum tp_code tp_cuda_copier_again(struct tp_cuda_copier *copier, void *after, struct tp_err *err)
{
    return none(err);
}

void tp_cuda_copier_close(struct tp_cuda_copier *copier) {}

#endif
