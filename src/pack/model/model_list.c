/* The models that there are: the embedded ones, each parsed when it is asked for. Invariant: what
 * was handed out stays as it is.
 */
#include "pack/model/model.h"

#include "base/suffix.h"
#include "pack/text/embedded.h"

#include <stdio.h>
#include <string.h>

extern const struct tp_embedded tp_embedded_models[];

static enum tp_code parse(const char *text, void *item, struct tp_err *err)
{
    return tp_model_parse(text, strlen(text), item, err);
}

static struct tp_embedded_list models = {.files = tp_embedded_models,
                                         .size = sizeof(struct tp_model),
                                         .parse = parse,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

const struct tp_model *const *tp_models(size_t *count, struct tp_err *err)
{
    return (const struct tp_model *const *)tp_embedded_all(&models, count, err);
}

enum tp_code tp_model_get(const char *name, const struct tp_model **model, struct tp_err *err)
{
    const void *item;
    enum tp_code code = tp_embedded_find(&models, name, &item, err);
    *model = item;
    return code;
}

/* A file without the word between quotes is no model of that: it is not parsed. */
enum tp_code tp_model_of(const char *word, bool architecture, const struct tp_model **model,
                         struct tp_err *err)
{
    enum tp_code code = TP_OK;
    char quoted[160];
    int size = snprintf(quoted, sizeof quoted, "\"%s\"", word);
    *model = NULL;
    if (!*word || size >= (int)sizeof quoted)
        return TP_OK;
    for (size_t i = 0; tp_embedded_models[i].name && !*model && code == TP_OK; i++) {
        const void *item;
        if (!strstr(tp_embedded_models[i].text, quoted) ||
            (code = tp_embedded_get(&models, i, &item, err)))
            continue;
        const struct tp_model *found = item;
        if ((architecture ? tp_word_of(word, found->architecture, found->architectures)
                          : tp_word_of(word, found->type, found->types)) >= 0)
            *model = found;
    }
    return code;
}
