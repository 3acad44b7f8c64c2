/* The models that there are: the embedded ones, parsed on first use. Invariant: what was
 * handed out stays as it is.
 */
#include "pack/model/model.h"

#include "pack/text/embedded.h"

#include <pthread.h>
#include <string.h>

extern const struct tp_embedded tp_embedded_models[];

static struct tp_embedded_list models;
static pthread_once_t models_once = PTHREAD_ONCE_INIT;

static enum tp_code parse(const char *text, void *item, struct tp_err *err)
{
    return tp_model_parse(text, strlen(text), item, err);
}

static void load_models(void)
{
    tp_embedded_parse(tp_embedded_models, sizeof(struct tp_model), parse, &models);
}

const struct tp_model *tp_models(size_t *count)
{
    pthread_once(&models_once, load_models);
    *count = models.count;
    return models.items;
}

enum tp_code tp_models_check(struct tp_err *err)
{
    pthread_once(&models_once, load_models);
    if (err && err->code == TP_OK)
        *err = models.err;
    return models.err.code;
}

const struct tp_model *tp_model_find(const char *name)
{
    pthread_once(&models_once, load_models);
    return tp_embedded_find(&models, sizeof(struct tp_model), name);
}
