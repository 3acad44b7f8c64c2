/* The quantizers that there are: the embedded ones, parsed on first use. Invariant: what was handed
 * out stays as it is.
 */
#include "pack/quantizer/quantizer.h"

#include "pack/text/embedded.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

extern const struct tp_embedded tp_embedded_quantizers[];

static enum tp_code parse(const char *text, void *item, struct tp_err *err)
{
    return tp_quantizer_parse(text, strlen(text), item, err);
}

static void close_item(void *item) { tp_quantizer_close(item); }

static struct tp_embedded_list quantizers = {.files = tp_embedded_quantizers,
                                             .size = sizeof(struct tp_quantizer),
                                             .parse = parse,
                                             .close = close_item,
                                             .lock = PTHREAD_MUTEX_INITIALIZER};

const struct tp_quantizer *const *tp_quantizers(size_t *count)
{
    return (const struct tp_quantizer *const *)tp_embedded_all(&quantizers, count, NULL);
}

enum tp_code tp_quantizers_check(struct tp_err *err)
{
    return tp_embedded_check(&quantizers, err);
}

enum tp_code tp_quantizer_add(const char *text, size_t size, struct tp_err *err)
{
    return tp_embedded_add(&quantizers, text, size, err);
}

enum tp_code tp_quantizer_format(const struct tp_quantizer_form *form,
                                 const struct tp_format **format, struct tp_err *err)
{
    /* Each tensor of codes is compared with many forms: a format is found by name once. */
    struct tp_quantizer_form *own = (struct tp_quantizer_form *)(uintptr_t)form;
    if ((*format = atomic_load(&own->is)))
        return TP_OK;
    enum tp_code code = tp_format_get(form->format, format, err);
    if (code == TP_OK && *format && form->spelled) {
        const struct tp_format_as as = {.columns = (*format)->group, .rows = (*format)->row_group,
                                        .spelled = form->spelled};
        *format = tp_format_as(*format, &as, err);
        code = *format ? TP_OK : TP_E_MEMORY;
    }
    if (code == TP_OK)
        atomic_store(&own->is, *format);
    return code;
}
