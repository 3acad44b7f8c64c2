/* Quantizes a matrix in memory, says where one element went, and decodes it again.
 *
 *     cc c_quantize.c -ltilepack -o c_quantize
 *     ./c_quantize [FORMAT [N K]]
 */
#include <tilepack.h>

#include <stdio.h>
#include <stdlib.h>

static char message[400];

static void check(int status)
{
    if (status != TILEPACK_OK) {
        fprintf(stderr, "c_quantize: %s\n", message);
        exit(status);
    }
}

static void *memory(uint64_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        exit(TILEPACK_E_MEMORY);
    return p;
}

int main(int argc, char **argv)
{
    const char *format = argc > 1 ? argv[1] : "mxfp8-blocked";
    uint64_t n = argc > 3 ? strtoull(argv[2], NULL, 10) : 256;
    uint64_t k = argc > 3 ? strtoull(argv[3], NULL, 10) : 512, at_n = n / 2, at_k = k / 2;
    tilepack_weight *weight;
    check(tilepack_weight_new(format, NULL, 1, n, k, &weight, message, sizeof message));

    float *values = memory(n * k * sizeof *values), *back = memory(n * k * sizeof *back);
    for (uint64_t i = 0; i < n * k; i++)
        values[i] = (float)(i * 7919 % 1000) * 1e-3f - 0.5f;

    void *tensor[TILEPACK_MAX_TENSORS];
    const void *packed[TILEPACK_MAX_TENSORS];
    for (size_t i = 0; i < tilepack_weight_tensors(weight); i++) {
        packed[i] = tensor[i] = memory(tilepack_weight_bytes(weight, i));
        printf("%-20s %-8s %10llu bytes\n", tilepack_weight_suffix(weight, i),
               tilepack_weight_dtype(weight, i),
               (unsigned long long)tilepack_weight_bytes(weight, i));
    }
    check(tilepack_quantize(weight, TILEPACK_F32, values, tensor, NULL, message, sizeof message));
    check(tilepack_decode(weight, packed, TILEPACK_F32, back, message, sizeof message));

    tilepack_layout *layout;
    check(tilepack_layout_new(tilepack_weight_layout(weight, 0), 1, n, k, &layout, message,
                              sizeof message));
    printf("W[%llu,%llu] = %g became %g, code number %llu of the first tensor\n",
           (unsigned long long)at_n, (unsigned long long)at_k, values[at_n * k + at_k],
           back[at_n * k + at_k],
           (unsigned long long)tilepack_layout_at(layout, 0, at_n, at_k));

    for (size_t i = 0; i < tilepack_weight_tensors(weight); i++)
        free(tensor[i]);
    tilepack_layout_free(layout);
    tilepack_weight_free(weight);
    free(values);
    free(back);
    return 0;
}
