/* The models that there are: the embedded ones, parsed on first use. Invariant: what was
 * handed out stays as it is.
 */
#include "pack/model/model.h"

#include "pack/text/embedded.h"

#include <string.h>

extern const struct tp_embedded tp_embedded_models[];

static enum tp_code parse(const char *text, void *item, struct tp_err *err)
{
    return tp_model_parse(text, strlen(text), item, err);
}

static void close_item(void *item) { tp_model_close(item); }

static struct tp_embedded_list models = {.files = tp_embedded_models,
                                         .size = sizeof(struct tp_model),
                                         .parse = parse,
                                         .close = close_item,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

const struct tp_model *tp_models(size_t *count) { return tp_embedded_items(&models, count); }

enum tp_code tp_models_check(struct tp_err *err) { return tp_embedded_check(&models, err); }

const struct tp_model *tp_model_find(const char *name) { return tp_embedded_find(&models, name); }
