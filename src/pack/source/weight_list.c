/* A list of weights. Invariant: a form stays where it is until the list is closed. */
#include "pack/source/weight_list.h"

#include "pack/format/format_parse.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

struct tp_weight_form *tp_weights_form(struct tp_weights *weights,
                                       const struct tp_weight_form *form, struct tp_err *err)
{
    if (!weights->forms)
        weights->forms = tp_os_zalloc(1, sizeof *weights->forms, err);
    return weights->forms ? tp_shared_keep(weights->forms, form, sizeof *form, err) : NULL;
}

void tp_weights_close(struct tp_weights *weights)
{
    for (size_t i = 0; i < weights->count + weights->biases; i++)
        tp_weight_close(&weights->items[i]);
    free(weights->items);
    free(weights->other);
    tp_store_close(&weights->names);
    if (weights->forms)
        tp_shared_close(weights->forms);
    free(weights->forms);
    while (weights->unknown) {
        struct tp_unknown *item = weights->unknown;
        weights->unknown = item->next;
        tp_format_close(&item->format);
        free(item);
    }
    memset(weights, 0, sizeof *weights);
}
