/* Fuzz target: one file of importance per input, of any of its three kinds.
 *
 * Besides crashes it looks for entries that are not wholly in the file, for numbers that are
 * no importance, and for weights that are given another size than they have.
 * Build: make fuzz.
 */
#include "pack/source/importance.h"
#include "pack/source/importance_entries.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

/* The file, in memory; a name under which it can be opened. */
static const char *file_of(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("importance", 0);
        must(fd >= 0 && snprintf(path, sizeof path, "/proc/self/fd/%d", fd) > 0);
    }
    must(ftruncate(fd, 0) == 0 && ftruncate(fd, (off_t)size) == 0);
    must(size == 0 || pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

static void explained(enum tp_code code, const struct tp_err *err)
{
    must(code == err->code && err->what[0] && err->hint[0] && err->path[0]);
}

static void read_moments(const struct tp_importance_file *file, struct tp_importance_ref ref,
                         uint64_t k)
{
    struct tp_err err = {0};
    float *to = malloc(k * ref.rank * sizeof *to);
    must(to != NULL);
    enum tp_code code = tp_moments_read(file, ref, k, to, &err);
    if (code)
        explained(code, &err);
    for (uint64_t i = 0; code == TP_OK && i < k * ref.rank; i++)
        must(isfinite(to[i]));
    free(to);
}

/* What a weight of that shape gets; `k` numbers that are importance, or an error. */
static void read_weight(const struct tp_importance_file *file, const char *weight, uint64_t experts,
                        uint64_t k)
{
    for (uint64_t e = 0; e < experts; e++) {
        struct tp_err err = {0};
        struct tp_importance_ref ref;
        float *to = malloc(k * sizeof *to); /* exact: the sanitizer sees overruns */
        must(to != NULL);
        enum tp_code code = tp_importance_find(file, weight, e, experts, k, &ref, &err);
        if (code == TP_OK)
            code = tp_importance_read(file, ref, k, 0, k, to, &err);
        if (code)
            explained(code, &err);
        for (uint64_t i = 0; code == TP_OK && i < k; i++)
            must(isfinite(to[i]) && to[i] >= 0);
        free(to);
        if (code == TP_OK && ref.rank)
            read_moments(file, ref, k);
    }
}

static void read_all(struct tp_importance_file *file)
{
    static const char *const known[] = {"model.layers.0.mlp.down_proj",
                                        "model.layers.1.self_attn.k_proj",
                                        "model.layers.0.mlp.experts.1.up_proj",
                                        "model.layers.0.mlp.experts",
                                        "lm_head",
                                        "model.embed_tokens",
                                        "model.layers.99999999999999999999.mlp.down_proj",
                                        "model.layers.0.x",
                                        "layers.x"};
    struct tp_err err = {0};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tp_importance_claim(file, known[i]);
        read_weight(file, known[i], 1, 4);
        read_weight(file, known[i], 2, 4);
    }
    for (size_t i = 0; i < file->count && i < 16; i++)
        read_weight(file, file->entries[i].name, 1, file->entries[i].count);
    enum tp_code code = tp_importance_all_claimed(file, &err);
    if (code)
        explained(code, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_err err = {0};
    struct tp_importance_file *file;
    enum tp_code code = tp_importance_open(file_of(data, size), &file, &err);
    if (code) {
        must(!file && err.offset <= size + 1);
        explained(code, &err);
        return 0;
    }
    must(file && file->count > 0);
    for (size_t i = 0; i < file->count; i++) {
        const struct tp_importance_entry *entry = &file->entries[i];
        must(entry->count > 0 && entry->offset <= size &&
             entry->count <= (size - entry->offset) / sizeof(float));
        must(!entry->counts || (entry->rows > 0 && entry->counts <= size &&
                                entry->rows <= (size - entry->counts) / sizeof(float)));
        must(tp_names_find(&file->names, entry->name, strlen(entry->name)) == (int64_t)i);
    }
    read_all(file);
    tp_importance_close(file);
    return 0;
}
