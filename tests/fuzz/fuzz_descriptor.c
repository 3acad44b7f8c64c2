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
    must(weight->name && weight->form->separator && weight->form->format);
    must(weight->form->box.e && weight->form->box.n && weight->form->box.k &&
         weight->form->rank >= 2 && weight->form->rank <= 3);
    for (uint32_t i = 0; i < weight->origins; i++) {
        const struct tp_origin *origin = &weight->origin[i];
        must(origin->name && origin->rank >= 2 && origin->rank <= 3);
        must(origin->row + origin->rows <= origin->shape[origin->rank - 2]);
        rows += origin->rows;
    }
    must(rows == weight->form->box.n);
    json_t *json =
        tp_descriptor_json(weight->form->format, &weight->form->settings, &weight->form->search,
                           &weight->form->op, weight->form->box, weight->form->rank, NULL);
    must(json != NULL);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_weights weights = {0};
    struct tp_err err = {0};
    char *text = calloc(1, size + 2);
    must(text != NULL);
    memcpy(text, data, size);
    const char *units = text + strlen(text) + 1;
    enum tp_code code = tp_descriptors_parse(text, units, &weights, &err);
    must(code == err.code && (!code || (err.what[0] && err.hint[0])));
    for (size_t i = 0; i < weights.count && !code; i++)
        check(&weights.items[i]);
    tp_weights_close(&weights);
    free(text);
    return 0;
}
