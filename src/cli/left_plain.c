/* What a quantizer left plain, in a few names. Where memory is short there are none of them: the
 * plan has each weight with its reason.
 */
#include "cli/left_plain.h"

#include "cli/fold.h"
#include "cli/report.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/text/name_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 8 };

struct left {
    size_t weights;
    char *names[SHOWN];
    size_t count;
    bool more;
    struct tp_name_key *packed; /* as they are and folded, sorted */
    size_t packed_count;
};

static void add_packed(struct left *left, char *name)
{
    if (name)
        left->packed[left->packed_count++] = (struct tp_name_key){.name = name};
}

static void list_packed(struct left *left, const struct tp_weights *weights)
{
    left->packed = tp_os_alloc((2 * weights->count + 1) * sizeof *left->packed, NULL);
    for (size_t w = 0; w < weights->count && left->packed; w++)
        if (weights->items[w].form->format) {
            add_packed(left, strdup(weights->items[w].name));
            add_packed(left, tp_fold_name(weights->items[w].name));
        }
    if (left->packed)
        tp_names_sort(left->packed, left->packed_count);
}

/* The length of the first whole segments that no packed weight begins with; 0: there are none. */
static size_t own_prefix(const struct left *left, const char *name, size_t size)
{
    for (size_t end = 1; end <= size; end++)
        if ((end == size || name[end] == '.') &&
            !tp_names_sorted_have(left->packed, left->packed_count, name, end, '.') &&
            !tp_names_sorted_have(left->packed, left->packed_count, name, end, '\0'))
            return end;
    return 0;
}

/* Takes over the text. */
static void add_name(struct left *left, char *text)
{
    size_t i = 0;
    while (text && i < left->count && strcmp(left->names[i], text) != 0)
        i++;
    if (text && i == left->count && i < SHOWN) {
        left->names[left->count++] = text;
        return;
    }
    left->more |= i == SHOWN;
    free(text);
}

static void add_weight(struct left *left, const char *name)
{
    char *folded = tp_fold_name(name);
    size_t size = folded ? tp_name_base(folded) : 0, end = own_prefix(left, folded, size);
    const char *of = folded;
    left->weights++;
    if (folded && !end) { /* of some layers, or of some experts, alone */
        of = name;
        size = tp_name_base(name);
        end = own_prefix(left, name, size);
    }
    if (folded)
        add_name(left, tp_os_format(NULL, "%.*s%s", (int)(end ? end : size), of,
                                    end && end < size ? ".*" : ""));
    free(folded);
}

static void find(const struct tp_plan *plan, struct left *left)
{
    *left = (struct left){0};
    for (size_t k = 0; k < plan->kept_count; k++) {
        const struct tp_kept *kept = &plan->kept[k];
        if (!kept->reason || (strcmp(kept->reason, TP_REASON_LEFT) != 0 &&
                              strcmp(kept->reason, TP_REASON_LISTED) != 0))
            continue;
        if (!left->packed)
            list_packed(left, plan->weights);
        add_weight(left, plan->ckpt->tensors[kept->tensor].name);
    }
}

static void end(struct left *left)
{
    for (size_t i = 0; i < left->count; i++)
        free(left->names[i]);
    for (size_t i = 0; i < left->packed_count; i++)
        free((void *)(uintptr_t)left->packed[i].name);
    free(left->packed);
}

/* What stood beside weights, and nothing would read in the output. */
static void print_out(const struct tp_left_out *out)
{
    if (!out->count)
        return;
    printf("left out, as no reader of the output takes it: %zu tensor%s (", out->count,
           out->count == 1 ? "" : "s");
    for (size_t i = 0; i < out->ends; i++) {
        printf("%s%s", i ? ", " : "", *out->end[i] == '.' ? "*" : "");
        tp_print_text(stdout, out->end[i]);
    }
    printf(")\n");
}

static void put_end(struct tp_writer *w, size_t i, const void *of)
{
    tp_write(w, tp_str(NULL, ((const struct tp_left_out *)of)->end[i]));
}

void tp_left_plain_print(const struct tp_plan *plan)
{
    struct left left;
    find(plan, &left);
    if (left.weights)
        printf(TP_REASON_LEFT ": %zu", left.weights);
    for (size_t i = 0; i < left.count; i++) {
        printf("%s", i ? ", " : " (");
        tp_print_text(stdout, left.names[i]);
    }
    if (left.weights)
        printf("%s%s\n", left.more ? ", ..." : "", left.count ? ")" : "");
    end(&left);
    print_out(&plan->left);
}

static void put_name(struct tp_writer *w, size_t i, const void *of)
{
    tp_write(w, tp_str(NULL, ((const struct left *)of)->names[i]));
}

void tp_left_plain_put(struct tp_writer *w, const struct tp_plan *plan)
{
    struct left left;
    find(plan, &left);
    if (left.weights)
        tp_object(w, "left_plain", tp_num("weights", left.weights),
                  tp_list("names", left.count, put_name, &left));
    end(&left);
    if (plan->left.count)
        tp_object(w, "left_out_tensors", tp_num("tensors", plan->left.count),
                  tp_list("ends", plan->left.ends, put_end, &plan->left));
}
