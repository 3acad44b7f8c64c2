/* Names: which tensor or weight is meant, and what is near a name that is none.
 *
 * A search through all names happens only for the message of a wrong one.
 */
#include "pack/inspect/inspect.h"

#include "base/num.h"
#include "base/similar.h"
#include "base/suffix.h"
#include "pack/os/os.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tp_box3 matrix_of(const struct tp_tensor *tensor)
{
    struct tp_box3 box = {1, 1, 1};
    uint32_t rank = tensor->rank;
    if (rank > 0)
        box.k = tensor->shape[rank - 1];
    if (rank > 1)
        box.n = tensor->shape[rank - 2];
    for (uint32_t d = 0; d + 2 < rank; d++)
        box.e *= tensor->shape[d]; /* fits: the header's reader checked the product */
    return box;
}

struct tp_subject tp_inspect_tensor(const struct tp_checkpoint *ckpt,
                                    const struct tp_weights *weights, uint32_t tensor)
{
    struct tp_subject subject = {.tensor = tensor, .box = matrix_of(&ckpt->tensors[tensor])};
    for (size_t w = 0; w < weights->count; w++) {
        const struct tp_weight *weight = &weights->items[w];
        for (uint32_t i = 0; weight->form->format && i < weight->form->op.outs; i++)
            if (weight->tensor[i] == tensor) {
                subject.weight = weight;
                subject.out = i;
                subject.box = weight->form->box;
                return subject;
            }
    }
    return subject;
}

/* ---- near names --------------------------------------------------------- */

enum { TYPED_MAX = 255 };

/* What may have been meant: the shortest name that contains the text, or one that is like it. */
struct near {
    const char *whole;
    struct tp_nearest like;
};

static void consider(struct near *near, const char *name)
{
    const char *typed = near->like.typed;
    if (strlen(typed) < 3 || !strstr(name, typed))
        tp_nearest_try(&near->like, name);
    else if (!near->whole || strlen(name) < strlen(near->whole))
        near->whole = name;
}

static enum tp_code unknown(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                            const char *name, struct tp_err *err)
{
    struct near near = {.like = {.typed = name}};
    for (size_t w = 0; w < weights->count; w++)
        if (weights->items[w].form->format)
            consider(&near, weights->items[w].name);
    for (size_t t = 0; t < ckpt->tensor_count; t++)
        consider(&near, ckpt->tensors[t].name);
    const char *meant = near.whole ? near.whole : near.like.name;
    if (meant)
        tp_err_hint(err, "did you mean '%s'?", meant);
    else
        tp_err_hint(err, "'tilepack dump %s' lists the tensors", ckpt->path);
    return tp_fail(err, TP_E_USAGE, "there is no tensor or weight '%s'", name);
}

/* ---- names ---------------------------------------------------------------- */

/* A dot in front of it, and it is the end. */
static bool ends_in(const char *whole, const char *name)
{
    size_t size = strlen(whole), end = strlen(name);
    return size > end && whole[size - end - 1] == '.' && strcmp(whole + size - end, name) == 0;
}

static bool is_same(const char *whole, const char *name) { return strcmp(whole, name) == 0; }

typedef bool (*matches)(const char *whole, const char *name);

static bool of_weight(const struct tp_weight *weight, const char *name, matches match)
{
    size_t size = strlen(name);
    if (match(weight->name, name))
        return true;
    if (!size || name[size - 1] != weight->form->separator)
        return false; /* nor is it the prefix, or its end */
    char *base = tp_os_join(NULL, name, size - 1, "");
    bool found = base && match(weight->name, base);
    free(base);
    return found;
}

/* The origin's name, in which "{e}" is any number, which becomes *expert. */
static bool is_origin(const struct tp_origin *origin, const char *name, matches match,
                      uint64_t *expert)
{
    const char *stands = strstr(origin->name, "{e}"), *rest = stands ? stands + 3 : NULL;
    char whole[2 * TYPED_MAX];
    size_t size = strlen(name), behind = rest ? strlen(rest) : 0;
    *expert = 0;
    if (!stands)
        return match(origin->name, name);
    if (size <= behind || strcmp(name + size - behind, rest) != 0)
        return false;
    size_t digits = 0; /* in front of what stands behind */
    while (digits < 9 && digits < size - behind &&
           isdigit((unsigned char)name[size - behind - digits - 1]))
        digits++;
    *expert = strtoull(name + size - behind - digits, NULL, 10);
    int used = snprintf(whole, sizeof whole, "%.*s%llu%s", (int)(stands - origin->name),
                        origin->name, (unsigned long long)*expert, rest);
    return digits && used > 0 && (size_t)used < sizeof whole && match(whole, name);
}

/* Sets where the rows of origin i lie. */
static void place_origin(const struct tp_weight *weight, uint32_t i, uint64_t expert,
                         struct tp_subject *subject)
{
    subject->from_e = expert;
    subject->from_one = strstr(weight->origin[i].name, "{e}") != NULL;
    subject->from_row = weight->origin[i].row;
    subject->from_rows = weight->origin[i].rows;
    subject->from_n = 0;
    subject->apart = weight->origin[i].step > 1;
    for (uint32_t j = 0; j < i; j++)
        subject->from_n += weight->origin[j].rows;
    for (uint32_t j = 0; j < weight->origins; j++)
        subject->apart |= j != i && strcmp(weight->origin[j].name, weight->origin[i].name) == 0;
}

/* By a tensor of the source that it was made from, with ".weight" or without. Where no
 * descriptor says which, that is its name with ".weight". */
static bool of_origin(const struct tp_weight *weight, const char *name, matches match,
                      struct tp_subject *place)
{
    size_t size = strlen(name), end = strlen(".weight");
    bool full = tp_ends_with(name, ".weight");
    char other[TYPED_MAX + 1];
    uint64_t expert;
    if (size + end > TYPED_MAX)
        return false;
    snprintf(other, sizeof other, full ? "%.*s" : "%.*s.weight", (int)(full ? size - end : size),
             name);
    for (uint32_t i = 0; i < weight->origins; i++)
        if ((is_origin(&weight->origin[i], name, match, &expert) ||
             is_origin(&weight->origin[i], other, match, &expert)) &&
            expert < weight->form->box.e) {
            place_origin(weight, i, expert, place);
            return true;
        }
    return full && of_weight(weight, other, match);
}

static struct tp_subject subject_of(const struct tp_checkpoint *ckpt,
                                    const struct tp_weights *weights,
                                    const struct tp_weight *weight)
{
    uint32_t out =
        weight->form->format ? (uint32_t)tp_op_find(&weight->form->op, TP_ROLE_CODES) : 0;
    return tp_inspect_tensor(ckpt, weights, weight->tensor[out]);
}

/* How many weights match; *subject is the first of them. */
static size_t find_weights(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                           const char *name, bool origins, matches match,
                           struct tp_subject *subject)
{
    size_t found = 0;
    for (size_t w = 0; w < weights->count; w++) {
        const struct tp_weight *weight = &weights->items[w];
        struct tp_subject place = {0};
        if (!(origins ? of_origin(weight, name, match, &place) : of_weight(weight, name, match)))
            continue;
        if (found++)
            continue;
        *subject = subject_of(ckpt, weights, weight);
        subject->from_e = place.from_e;
        subject->from_one = place.from_one;
        subject->from_row = place.from_row;
        subject->from_rows = place.from_rows;
        subject->from_n = place.from_n;
        subject->apart = place.apart;
    }
    return found;
}

static size_t find_tensors(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                           const char *name, struct tp_subject *subject)
{
    size_t found = 0;
    for (size_t t = 0; t < ckpt->tensor_count; t++)
        if (ends_in(ckpt->tensors[t].name, name) && !found++)
            *subject = tp_inspect_tensor(ckpt, weights, (uint32_t)t);
    return found;
}

/* By the end of a name, of weights before that of their tensors; how many end so. */
static size_t find_end(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                     const char *name, struct tp_subject *subject)
{
    size_t found = find_weights(ckpt, weights, name, false, ends_in, subject);
    if (!found)
        found = find_tensors(ckpt, weights, name, subject);
    if (!found)
        found = find_weights(ckpt, weights, name, true, ends_in, subject);
    return found;
}

static enum tp_code several_end(const struct tp_checkpoint *ckpt, const char *name, size_t count,
                                const struct tp_subject *subject, struct tp_err *err)
{
    tp_err_path(err, ckpt->path);
    tp_err_hint(err, "name one, such as '%.300s'; the pattern '*.%.200s*' lists them",
                subject->weight ? subject->weight->name : ckpt->tensors[subject->tensor].name,
                name);
    return tp_fail(err, TP_E_USAGE, "%zu names end in '%.300s'", count, name);
}

/* Rows that changed places, or were interleaved, have no number of their own here. */
static enum tp_code lies_apart(const struct tp_checkpoint *ckpt, const char *name,
                               const struct tp_subject *subject, struct tp_err *err)
{
    tp_err_path(err, ckpt->path);
    tp_err_hint(err, "name the weight itself, %.200s; its rows count from its own first one",
                subject->weight->name);
    return tp_fail(err, TP_E_USAGE, "the rows of '%.300s' lie in several places of the weight "
                   "that was made of it", name);
}

static enum tp_code not_one(const struct tp_checkpoint *ckpt, const char *name,
                            const struct tp_subject *subject, struct tp_err *err)
{
    tp_err_path(err, ckpt->path);
    tp_err_hint(err, "name a tensor of the one that you mean, such as '%.300s'",
                ckpt->tensors[subject->tensor].name);
    return tp_fail(err, TP_E_USAGE, "several weights are called '%.300s'", name);
}

enum tp_code tp_inspect_find(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                             const char *name, struct tp_subject *subject, struct tp_err *err)
{
    const struct tp_tensor *tensor = tp_checkpoint_find(ckpt, name);
    if (tensor) {
        *subject = tp_inspect_tensor(ckpt, weights, (uint32_t)(tensor - ckpt->tensors));
        return TP_OK;
    }
    size_t found = find_weights(ckpt, weights, name, false, is_same, subject);
    if (found > 1)
        return not_one(ckpt, name, subject, err);
    if (!found)
        found = find_weights(ckpt, weights, name, true, is_same, subject) != 0;
    if (!found)
        found = find_end(ckpt, weights, name, subject);
    if (found > 1)
        return several_end(ckpt, name, found, subject, err);
    if (found)
        return subject->apart ? lies_apart(ckpt, name, subject, err) : TP_OK;
    enum tp_code code = unknown(ckpt, weights, name, err);
    tp_err_path(err, ckpt->path);
    return code;
}

static enum tp_code not_its_own(const struct tp_subject *subject, char dim, uint64_t at,
                                uint64_t first, uint64_t last, struct tp_err *err)
{
    tp_err_hint(err, "%c is %llu to %llu there; the whole weight is %.200s", dim,
                (unsigned long long)first, (unsigned long long)last, subject->weight->name);
    return tp_fail(err, TP_E_USAGE, "%c=%llu is outside of the tensor of the source that this "
                   "name stands for", dim, (unsigned long long)at);
}

enum tp_code tp_inspect_own(const struct tp_subject *subject, uint64_t *e, uint64_t *n,
                            struct tp_err *err)
{
    uint64_t first = subject->from_row, rows = subject->from_rows;
    if (!subject->weight)
        return TP_OK;
    const struct tp_row_order *order = &subject->weight->form->settings.rows;
    if (order->kind && *n < subject->box.n) /* all rows are of one tensor, whatever was named */
        *n = tp_row_stored(order, subject->box.n, *n);
    if (!rows || order->kind)
        return TP_OK;
    if (subject->from_one && *e != 0)
        return not_its_own(subject, 'e', *e, 0, 0, err);
    if (*n < first || *n - first >= rows)
        return not_its_own(subject, 'n', *n, first, first + rows - 1, err);
    *e += subject->from_e; /* which is 0 where E was asked for */
    *n = *n - first + subject->from_n;
    return TP_OK;
}

bool tp_inspect_rows(const struct tp_subject *subject, uint64_t *n0, uint64_t *n1)
{
    const uint64_t rows = subject->box.n, count = *n1 - *n0;
    const struct tp_row_order *order =
        subject->weight ? &subject->weight->form->settings.rows : NULL;
    if (!order || !order->kind || count == rows)
        return true;
    uint64_t first = rows, last = 0;
    for (uint64_t n = *n0; n < *n1; n++) {
        const uint64_t source = tp_row_source(order, rows, n);
        first = tp_min_u64(first, source);
        last = tp_max_u64(last, source);
    }
    if (last - first + 1 != count)
        return false;
    *n0 = first;
    *n1 = last + 1;
    return true;
}
