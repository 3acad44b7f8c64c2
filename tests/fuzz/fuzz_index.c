/* Fuzz target: one index (model.safetensors.index.json) per input.
 *
 * Besides crashes it looks for shard names that could lead out of a directory.
 * Build: make fuzz.
 */
#include "pack/source/index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_err err = {0};
    struct tp_index index;
    char *text = malloc(size ? size : 1); /* exact: the sanitizer sees overreads */
    must(text != NULL);
    memcpy(text, data, size);
    enum tp_code code = tp_index_parse(text, size, &index, &err);
    free(text);
    must(code == err.code);
    if (code) {
        must(err.what[0] && err.hint[0] && err.offset <= size + 1 && !index.entries);
        return 0;
    }
    for (size_t i = 0; i < index.shard_count; i++) {
        const char *name = index.shards[i];
        must(name[0] && !strchr(name, '/') && strcmp(name, "..") != 0 && strcmp(name, ".") != 0);
        must(i == 0 || strcmp(index.shards[i - 1], name) < 0);
    }
    for (size_t i = 0; i < index.count; i++) {
        must(index.entries[i].shard < index.shard_count && index.sorted[i] < index.count);
        must(i == 0 || strcmp(index.entries[index.sorted[i - 1]].name,
                              index.entries[index.sorted[i]].name) < 0);
    }
    tp_index_close(&index);
    return 0;
}
