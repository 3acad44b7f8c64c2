/* Fuzz target: one safetensors file per input, header and data.
 *
 * Besides crashes it looks for headers that are accepted but do not hold what
 * pack/file/safetensors.h promises, and for headers that change when written again.
 * Build: make fuzz; or, with any compiler, with tests/fuzz/replay.c and libtilepack.a to run
 * files.
 */
#include "pack/file/safetensors.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void check(const struct tp_st_header *h, uint64_t file_size)
{
    uint64_t at = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct tp_st_tensor *t = &h->tensors[i];
        uint64_t bits = tp_dtype_bits(t->dtype);
        must(bits > 0 && t->rank <= TP_ST_MAX_RANK && t->begin == at && t->end >= at);
        for (uint32_t k = 0; k < t->rank; k++)
            must(tp_mul_u64(&bits, bits, t->shape[k]) || t->end == t->begin);
        must(t->end == t->begin || (t->end - t->begin) * 8 == bits);
        must(strlen(t->name) < h->data_start);
        at = t->end;
    }
    must(h->data_start + at == file_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_err err = {0};
    struct tp_st_header header, again;
    uint64_t length;
    if (size < 8 || tp_st_header_size(data, size, &length, &err))
        return 0;
    char *text = malloc((size_t)length); /* exact: the sanitizer sees overreads */
    must(text != NULL);
    memcpy(text, data + 8, (size_t)length);
    enum tp_code code = tp_st_parse(text, length, size, &header, &err);
    free(text);
    must(code == err.code);
    if (code) {
        must(err.what[0] && err.hint[0] && err.offset <= size + 1 && !header.tensors);
        return 0;
    }
    check(&header, size);
    struct tp_text out = {0};
    must(!tp_st_write_header(header.tensors, header.count, header.meta, header.meta_count, 8, &out,
                             &err));
    uint64_t data_size = size - header.data_start;
    must(!tp_st_parse(out.data + 8, out.size - 8, out.size + data_size, &again, &err));
    must(again.count == header.count && again.meta_count == header.meta_count);
    for (size_t i = 0; i < header.count; i++) {
        const struct tp_st_tensor *a = &header.tensors[i], *b = &again.tensors[i];
        must(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank);
        must(memcmp(a->shape, b->shape, sizeof a->shape) == 0 && a->end == b->end);
    }
    for (size_t i = 0; i < header.meta_count; i++)
        must(strcmp(header.meta[i].key, again.meta[i].key) == 0 &&
             strcmp(header.meta[i].value, again.meta[i].value) == 0);
    tp_text_free(&out);
    tp_st_close(&again);
    tp_st_close(&header);
    return 0;
}
