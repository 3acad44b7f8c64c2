/* CUDA slots that ask for too much: they fail as "no memory", and what is opened afterwards works.
 * Exit 0 passed, 1 not, 77 no device. (Not for compute-sanitizer, which counts the refused
 * allocation.)
 */
extern "C" {
#include "kernels/cuda/cuda.h"
#include "pack/format/format.h"
}

#include <stdio.h>

/* Too large a slot fails as "no memory", leaves nothing behind, and a smaller one
 * opens afterwards. A call outside its slot's buffers is refused. */
static int check_limits(void)
{
    const struct tp_op *op = &tp_format_find("mxfp8-ct")->op;
    struct tp_cuda_call call = {};
    struct tp_cuda_slot *slot;
    struct tp_err err = {}, second = {}, third = {};
    bool no_memory = false;
    int failed = 0;
    if (tp_cuda_open(0, 64, 64, (uint64_t)1 << 46, &slot, &no_memory, &err) != TP_E_MEMORY ||
        !no_memory || slot != NULL)
        failed += puts("FAIL a slot too large is not refused as out of memory") >= 0;
    if (tp_cuda_open(0, 4096, 1 << 20, 0, &slot, &no_memory, &second) != TP_OK) {
        printf("FAIL a slot after that: %s\n", second.what);
        return failed + 1;
    }
    call.kind = TP_CUDA_ENCODE;
    call.to = op;
    call.args.box = {1, 128, 128};
    call.args.dtype = TP_F32;
    call.args.in[0] = tp_cuda_input(slot);
    call.args.out[0] = tp_cuda_output(slot);
    call.args.out[1] = (uint8_t *)tp_cuda_output(slot) + 65536;
    if (tp_cuda_run(slot, &call, &third) == TP_OK)
        failed += puts("FAIL an input larger than its slot is not refused") >= 0;
    tp_cuda_close(slot);
    tp_cuda_close(NULL);
    return failed;
}

int main(void)
{
    if (tp_cuda_count() == 0) {
        printf("no device: %s\n", tp_cuda_why_none());
        return 77;
    }
    int failed = check_limits();
    printf("%d failures\n", failed);
    return failed != 0;
}
