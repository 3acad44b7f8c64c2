/* The models that there are: the embedded ones, parsed on first use. Invariant: what was
 * handed out stays as it is.
 */
#include "pack/model/model.h"

#include "pack/os/os.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Written by scripts/embed.sh: rows ended by {NULL, NULL}. */
struct tp_embedded {
    const char *name, *text;
};
extern const struct tp_embedded tp_embedded_models[];

static struct tp_model *models;
static size_t model_count;
static struct tp_err models_err;
static pthread_once_t models_once = PTHREAD_ONCE_INIT;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tp_model *)a)->name, ((const struct tp_model *)b)->name);
}

static void load_models(void)
{
    size_t total = 0;
    while (tp_embedded_models[total].name)
        total++;
    models = tp_os_zalloc(total, sizeof *models, &models_err);
    for (size_t i = 0; models && i < total; i++) {
        struct tp_err err = {0};
        const char *text = tp_embedded_models[i].text;
        if (tp_model_parse(text, strlen(text), &models[model_count], &err) == TP_OK) {
            model_count++;
            continue;
        }
        tp_err_path(&err, tp_embedded_models[i].name);
        if (models_err.code == TP_OK)
            models_err = err;
    }
    if (models)
        qsort(models, model_count, sizeof *models, by_name);
}

const struct tp_model *tp_models(size_t *count)
{
    pthread_once(&models_once, load_models);
    *count = model_count;
    return models;
}

enum tp_code tp_models_check(struct tp_err *err)
{
    pthread_once(&models_once, load_models);
    if (err && err->code == TP_OK)
        *err = models_err;
    return models_err.code;
}

const struct tp_model *tp_model_find(const char *name)
{
    size_t count;
    const struct tp_model *all = tp_models(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}
