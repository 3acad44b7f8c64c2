/* Fuzz target: descriptors, a NUL, and units, as a shard's __metadata__ holds them.
 *
 * Beyond not crashing: a weight that is accepted has a name, a known format, sizes that its
 * layouts reach, and origins that add up to its rows. Build: make fuzz.
 */
#include "folder.h"

#include "pack/source/descriptor.h"

static void check(const struct tp_weight *weight)
{
    uint64_t rows = 0;
    must(weight->name && weight->prefix && *weight->prefix && weight->format);
    must(weight->box.e && weight->box.n && weight->box.k && weight->rank >= 2 && weight->rank <= 3);
    for (uint32_t i = 0; i < weight->origins; i++) {
        const struct tp_origin *origin = &weight->origin[i];
        must(origin->name && origin->rank >= 2 && origin->rank <= 3);
        must(origin->row + origin->rows <= origin->shape[origin->rank - 2]);
        rows += origin->rows;
    }
    must(rows == weight->box.n);
    json_t *json = tp_descriptor_json(weight->format, &weight->settings, &weight->search,
                                      &weight->op, weight->box, weight->rank, NULL);
    must(json != NULL);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_weight *items = NULL;
    size_t count = 0, capacity = 0;
    struct tp_err err = {0};
    char *text = calloc(1, size + 2);
    must(text != NULL);
    memcpy(text, data, size);
    const char *units = text + strlen(text) + 1;
    enum tp_code code = tp_descriptors_parse(text, units, &items, &count, &capacity, &err);
    must(code == err.code && (!code || (err.what[0] && err.hint[0])));
    for (size_t i = 0; i < count; i++) {
        if (!code)
            check(&items[i]);
        tp_weight_close(&items[i]);
    }
    free(items);
    free(text);
    return 0;
}
