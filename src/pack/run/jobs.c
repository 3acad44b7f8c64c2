/* Jobs: cursors over the files of a plan. Order decides nothing but speed. */
#include "pack/run/jobs.h"

#include "base/num.h"
#include "pack/file/leafhash.h"

uint64_t tp_copy_bytes(const struct tp_output *output, uint64_t index)
{
    return tp_min_u64(TP_LEAF_BYTES - (output->offset + index) % TP_LEAF_BYTES,
                      output->bytes - index);
}

uint32_t tp_jobs_group(const struct tp_jobs *jobs, uint32_t unit, uint64_t index)
{
    return jobs->plan->units[unit].stats + (uint32_t)(index / jobs->grids[unit]->expert_boxes);
}

/* Which outputs start boxes: the codes of a unit stand for all its outputs. */
static bool leads_unit(const struct tp_plan *plan, uint32_t o)
{
    const struct tp_output *output = &plan->outputs[o];
    if (output->unit == UINT32_MAX)
        return false;
    const struct tp_unit *unit = &plan->units[output->unit];
    int codes = unit->form->format ? tp_op_find(&unit->form->op, TP_ROLE_CODES) : 0;
    return unit->output[codes] == o;
}

/* The next stats job of a group; false when all are issued. */
static bool next_stats(struct tp_jobs *jobs, uint32_t g, struct tp_job *job)
{
    const struct tp_stats_group *group = &jobs->plan->groups[g];
    struct tp_issue *issue = &jobs->issues[g];
    if (issue->unit == group->unit_count || group->given > 0)
        return false;
    uint32_t unit = jobs->plan->stats_units[group->first_unit + issue->unit];
    uint64_t boxes = jobs->grids[unit]->expert_boxes;
    uint64_t first = (g - jobs->plan->units[unit].stats) * boxes;
    *job = (struct tp_job){.kind = TP_JOB_STATS, .unit = unit, .index = first + issue->index};
    if (++issue->index == boxes) {
        issue->index = 0;
        issue->unit++;
    }
    return true;
}

static bool in_file(const struct tp_plan *plan, uint32_t g, uint32_t file)
{
    return plan->units[plan->stats_units[plan->groups[g].first_unit]].file == file;
}

/* The next stats job before a box of group g: of the group itself, and then of the one
 * that follows in the file, so that its boxes will not have to wait. */
static bool stats_due(struct tp_jobs *jobs, uint32_t g, uint32_t file, struct tp_job *job)
{
    return next_stats(jobs, g, job) ||
           (g + 1 < jobs->plan->group_count && in_file(jobs->plan, g + 1, file) &&
            next_stats(jobs, g + 1, job));
}

static void next_output(struct tp_cursor *cursor)
{
    cursor->output++;
    cursor->index = 0;
}

/* The next job of the cursor's file; false at its end. */
static bool next_of_file(struct tp_jobs *jobs, struct tp_cursor *cursor, struct tp_job *job)
{
    const struct tp_plan *plan = jobs->plan;
    const struct tp_plan_file *file = &plan->files[cursor->file];
    if (!cursor->header_issued) {
        cursor->header_issued = true;
        *job = (struct tp_job){.kind = TP_JOB_HEADER, .file = cursor->file};
        return true;
    }
    for (; cursor->output < file->first_output + file->output_count; next_output(cursor)) {
        const struct tp_output *output = &plan->outputs[cursor->output];
        uint32_t unit = output->unit;
        *job = (struct tp_job){TP_JOB_BOX, cursor->file, cursor->output, unit, cursor->index};
        if (output->constant) {
            job->kind = TP_JOB_CONSTANT;
            next_output(cursor);
            return true;
        }
        if (unit == UINT32_MAX && cursor->index < output->bytes) {
            job->kind = TP_JOB_COPY;
            cursor->index += tp_copy_bytes(output, cursor->index);
            return true;
        }
        if (unit == UINT32_MAX || !leads_unit(plan, cursor->output) ||
            cursor->index >= jobs->grids[unit]->count)
            continue;
        if (plan->units[unit].stats != UINT32_MAX &&
            stats_due(jobs, tp_jobs_group(jobs, unit, cursor->index), cursor->file, job))
            return true;
        cursor->index++;
        return true;
    }
    return false;
}

static bool next_file(struct tp_jobs *jobs, struct tp_cursor *cursor)
{
    while (jobs->next_file < jobs->plan->file_count) {
        uint32_t file = jobs->next_file++;
        if (jobs->skip_file && jobs->skip_file[file])
            continue;
        *cursor = (struct tp_cursor){.open = true, .file = file,
                                     .output = jobs->plan->files[file].first_output};
        return true;
    }
    cursor->open = false;
    return false;
}

/* The next job of a cursor, of its next file when this one has none left. */
static bool take(struct tp_jobs *jobs, struct tp_cursor *cursor, struct tp_job *job)
{
    while (cursor->open || next_file(jobs, cursor)) {
        if (next_of_file(jobs, cursor, job))
            return true;
        cursor->open = false;
    }
    return false;
}

struct tp_job tp_jobs_next(struct tp_jobs *jobs, unsigned worker)
{
    struct tp_job job = {.kind = TP_JOB_NONE};
    unsigned open[TP_MAX_CURSORS], count = 0;
    if (take(jobs, &jobs->cursors[worker % jobs->cursor_count], &job))
        return job;
    for (unsigned i = 0; i < jobs->cursor_count; i++)
        if (jobs->cursors[i].open)
            open[count++] = i;
    for (unsigned i = 0; i < count; i++) /* those without a file spread over the others */
        if (take(jobs, &jobs->cursors[open[(worker + i) % count]], &job))
            return job;
    return (struct tp_job){.kind = TP_JOB_NONE};
}
