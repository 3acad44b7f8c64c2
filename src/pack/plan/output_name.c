/* Names of output tensors, put together when they are needed. Which outputs there are is
 * plan_outputs.c's business.
 *
 * Invariant: an output without a text of its own has a unit of a format, and its name fits.
 */
#include "pack/plan/output_name.h"

#include "base/num.h"
#include "pack/plan/plan_build.h"

#include <string.h>

/* A name as what it is made of; a whole one has neither joint nor suffix. */
struct parts {
    const char *name, *suffix;
    char joint;
};

static struct parts parts_of(const struct tp_plan *plan, const struct tp_output *output)
{
    if (output->name)
        return (struct parts){.name = output->name, .suffix = ""};
    const struct tp_unit *unit = &plan->units[output->unit];
    return (struct parts){unit->name, unit->form->format->out[output->source].suffix,
                          unit->form->joint};
}

/* Bytes of the whole, NUL included. */
static size_t size_of(const struct parts *parts)
{
    return strlen(parts->name) + 1 + strlen(parts->suffix) + 1;
}

static const char *put_together(const struct parts *parts, char *text)
{
    size_t size = strlen(parts->name);
    memcpy(text, parts->name, size);
    text[size] = parts->joint;
    strcpy(text + size + 1, parts->suffix);
    return text;
}

const char *tp_output_name(const struct tp_plan *plan, const struct tp_output *output,
                           char text[TP_OUTPUT_NAME])
{
    struct parts parts = parts_of(plan, output);
    return output->name ? output->name : put_together(&parts, text);
}

static const char *in_store(const struct parts *parts, struct tp_store *store, struct tp_err *err)
{
    char *text = tp_store_text(store, size_of(parts), err);
    return text ? put_together(parts, text) : NULL;
}

const char *tp_output_name_in(const struct tp_plan *plan, const struct tp_output *output,
                              struct tp_store *store, struct tp_err *err)
{
    struct parts parts = parts_of(plan, output);
    return output->name ? output->name : in_store(&parts, store, err);
}

/* Byte `at` of the whole, which must not be behind its end; `size` bytes are the first part. A
 * whole name ends with its joint. */
static unsigned char byte_at(const struct parts *parts, size_t size, size_t at)
{
    if (at < size)
        return (unsigned char)parts->name[at];
    return (unsigned char)(at == size ? parts->joint : parts->suffix[at - size - 1]);
}

int tp_output_name_order(const struct tp_plan *plan, const struct tp_output *a,
                         const struct tp_output *b)
{
    struct parts x = parts_of(plan, a), y = parts_of(plan, b);
    if (x.name == y.name && x.joint == y.joint)
        return strcmp(x.suffix, y.suffix);
    size_t x_size = strlen(x.name), y_size = strlen(y.name), at = tp_min_u64(x_size, y_size);
    int order = memcmp(x.name, y.name, at);
    if (order)
        return order;
    for (;; at++) {
        unsigned char of_x = byte_at(&x, x_size, at), of_y = byte_at(&y, y_size, at);
        if (of_x != of_y || !of_x)
            return of_x - of_y;
    }
}

/* Whether the name is that of the tensor which the unit is made of. */
static bool is_name_of(const struct parts *parts, const char *source)
{
    size_t size = strlen(parts->name);
    return strncmp(source, parts->name, size) == 0 && source[size] == parts->joint &&
           strcmp(source + size + 1, parts->suffix) == 0;
}

/* A reader looks for tensors of names that long at most (pack/source/weights.c). */
static enum tp_code fail_long(const struct parts *parts, struct tp_err *err)
{
    tp_err_tensor(err, parts->name);
    tp_err_hint(err, "--exclude leaves it as it is");
    return tp_fail(err, TP_E_UNSUPPORTED, "its name would have %zu bytes with '%s', and at most "
                   "%d are read", size_of(parts) - 1, parts->suffix, TP_FULL_NAME - 1);
}

enum tp_code tp_output_set_name(struct tp_plan *plan, struct tp_output *output,
                                struct tp_err *err)
{
    const struct tp_unit *unit = &plan->units[output->unit];
    const struct tp_weight *weight = &plan->weights->items[unit->views[0].weight];
    const char *source = plan->ckpt->tensors[weight->tensor[0]].name;
    struct parts parts = parts_of(plan, output);
    if (size_of(&parts) > TP_FULL_NAME)
        return fail_long(&parts, err);
    if (!unit->form->joint)
        output->name = unit->name;
    else if (is_name_of(&parts, source))
        output->name = source;
    else if (size_of(&parts) > TP_OUTPUT_NAME)
        output->name = in_store(&parts, &plan->store, err);
    else
        return TP_OK;
    return output->name ? TP_OK : TP_E_MEMORY;
}
