/* The engines that there are: the embedded ones, parsed on first use, and a user's own. Invariant:
 * what was handed out stays as it is.
 */
#include "pack/engine/engine.h"

#include "pack/text/embedded.h"

#include <string.h>

extern const struct tp_embedded tp_embedded_engines[];

static enum tp_code parse(const char *text, void *item, struct tp_err *err)
{
    return tp_engine_parse(text, strlen(text), item, err);
}

static void close_item(void *item) { tp_engine_close(item); }

static struct tp_embedded_list engines = {.files = tp_embedded_engines,
                                          .size = sizeof(struct tp_engine),
                                          .parse = parse,
                                          .close = close_item,
                                          .lock = PTHREAD_MUTEX_INITIALIZER};

const struct tp_engine *const *tp_engines(size_t *count)
{
    return (const struct tp_engine *const *)tp_embedded_all(&engines, count, NULL);
}

enum tp_code tp_engines_check(struct tp_err *err) { return tp_embedded_check(&engines, err); }

const struct tp_engine *tp_engine_find(const char *name)
{
    const void *item;
    return tp_embedded_find(&engines, name, &item, NULL) == TP_OK ? item : NULL;
}

enum tp_code tp_engine_add(const char *text, size_t size, struct tp_err *err)
{
    return tp_embedded_add(&engines, text, size, err);
}
