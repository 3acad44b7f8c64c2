/* Constants; see constant.h. Invariant: a constant that was set can be made, so that no run ends
 * because of one.
 */
#include "pack/plan/unit/constant.h"

#include "base/num.h"

#include <string.h>

enum tp_code tp_constant_bytes(const struct tp_constant *constant, uint64_t from, void *to,
                               uint64_t size, struct tp_err *err)
{
    const struct tp_unit_form *form = constant->form;
    if (!constant->made)
        return tp_format_constant(form->format, constant->output, form->box, from, to, size, err);
    memcpy(to, (const uint8_t *)constant->made + from, size);
    return TP_OK;
}

/* Whether the words can be made; they are not kept. */
static enum tp_code try_words(const struct tp_constant *words, uint64_t bytes, struct tp_err *err)
{
    uint8_t chunk[TP_CONSTANT_CHUNK];
    enum tp_code code = TP_OK;
    for (uint64_t at = 0; at < bytes && code == TP_OK; at += sizeof chunk)
        code = tp_constant_bytes(words, at, chunk, tp_min_u64(sizeof chunk, bytes - at), err);
    return code;
}

enum tp_code tp_output_constant(struct tp_store *store, const struct tp_unit_form *form,
                                uint32_t i, struct tp_output *output, uint64_t *kept,
                                struct tp_err *err)
{
    struct tp_constant constant = {.form = form, .output = i};
    bool keeps = kept && output->bytes <= TP_CONSTANTS_KEPT - *kept;
    void *made = keeps ? tp_store_zalloc(store, output->bytes, 1, err) : NULL;
    if (keeps && !made)
        return TP_E_MEMORY;
    enum tp_code code = keeps ? tp_constant_bytes(&constant, 0, made, output->bytes, err)
                              : try_words(&constant, output->bytes, err);
    if (keeps)
        *kept += output->bytes;
    constant.made = made;
    output->constant = tp_store_copy(store, &constant, sizeof constant, err);
    return code || output->constant ? code : TP_E_MEMORY;
}
