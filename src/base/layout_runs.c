/* Boxes inside wholes: which contiguous bytes of a part lie contiguously in the
 * whole tensor.
 *
 * A box is stored like a small tensor of its own. If it is embedded (all modes
 * but the last of each dimension have equal sizes) then every mode of the part
 * moves the offset in the whole by that mode's stride there, so walking the
 * part's modes by ascending stride enumerates its bytes in order; the modes whose
 * strides agree from the start form the run.
 */
#include "base/layout.h"

struct step {
    uint64_t size, part_stride, whole_stride;
};

/* Steps of more than one element, by ascending stride in the part. */
static int sorted_steps(const struct tp_layout *part, const struct tp_layout *whole,
                        struct step steps[])
{
    int count = 0;
    for (int d = 0; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < part->dim[d].modes; m++) {
            struct step step = {part->dim[d].size[m], part->dim[d].stride[m],
                                whole->dim[d].stride[m]};
            if (step.size == 1)
                continue;
            int at = count++;
            for (; at > 0 && steps[at - 1].part_stride > step.part_stride; at--)
                steps[at] = steps[at - 1];
            steps[at] = step;
        }
    return count;
}

/* Length of one run, and the index of the first step outside it. */
static uint64_t run_of(const struct step *steps, int count, int *outer)
{
    uint64_t length = 1;
    int i = 0;
    for (; i < count && steps[i].part_stride == length && steps[i].whole_stride == length; i++)
        length *= steps[i].size;
    *outer = i;
    return length;
}

bool tp_layout_embeds(const struct tp_layout *part, const struct tp_layout *whole)
{
    for (int d = 0; d < TP_DIMS; d++) {
        if (part->dim[d].modes != whole->dim[d].modes)
            return false;
        if (d == TP_DIM_E && tp_layout_extent(part, d) == 1)
            continue; /* of one expert, or of one segment of its rows: nothing to walk */
        for (uint32_t m = 0; m + 1 < part->dim[d].modes; m++)
            if (part->dim[d].size[m] != whole->dim[d].size[m])
                return false;
    }
    return true;
}

uint64_t tp_layout_run_length(const struct tp_layout *part, const struct tp_layout *whole)
{
    struct step steps[TP_DIMS * TP_LAYOUT_MODES];
    int outer, count = sorted_steps(part, whole, steps);
    return run_of(steps, count, &outer);
}

int tp_layout_runs(const struct tp_layout *part, const struct tp_layout *whole, uint64_t base,
                   tp_run_visit visit, void *arg)
{
    struct step steps[TP_DIMS * TP_LAYOUT_MODES];
    uint64_t digit[TP_DIMS * TP_LAYOUT_MODES] = {0};
    int outer, count = sorted_steps(part, whole, steps);
    uint64_t length = run_of(steps, count, &outer);
    uint64_t whole_at = base, part_at = 0;
    for (;;) {
        int stop = visit(arg, whole_at, part_at, length);
        if (stop)
            return stop;
        int i = outer;
        for (; i < count; i++) { /* odometer: fastest outer step first */
            whole_at += steps[i].whole_stride;
            part_at += steps[i].part_stride;
            if (++digit[i] < steps[i].size)
                break;
            whole_at -= steps[i].size * steps[i].whole_stride;
            part_at -= steps[i].size * steps[i].part_stride;
            digit[i] = 0;
        }
        if (i == count)
            return 0;
    }
}
