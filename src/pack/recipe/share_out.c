/* Greedy steps on convex hulls, then branch and bound; see share_out.h.
 * Invariant: what is taken never exceeds the budget once the smallest choices fit. */
#include "pack/recipe/share_out.h"

#include "pack/os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 1 << 18 };

/* From one corner of a set's hull to the next one. */
struct step {
    uint32_t set, to; /* the choice that it leads to */
    uint64_t bytes;   /* more than before */
    double saves;     /* of the cost */
};

/* The sets before one have their choices: what these come to, and the next choice to try. */
struct node {
    uint64_t bytes;
    double cost;
    uint32_t next;
};

struct sharing {
    const struct tp_share_set *set;
    size_t count;
    uint64_t budget;
    struct step *steps; /* of all sets, the most saving for a byte first */
    size_t step_count;
    uint32_t *smallest;    /* choice of each set */
    uint64_t *least_bytes; /* of the smallest choices from each set on */
    double *least_cost;
    uint32_t *tried;       /* choice of each set, in the search */
    struct node *node;
    struct tp_share *best;
};

/* Its smallest choice; of as small ones that of the least cost. */
static uint32_t smallest_of(const struct tp_share_set *set)
{
    uint32_t best = TP_SHARE_CHOICES;
    for (uint32_t c = 0; c < TP_SHARE_CHOICES; c++) {
        const struct tp_share_choice *is = &set->choice[c];
        const struct tp_share_choice *than = best < TP_SHARE_CHOICES ? &set->choice[best] : NULL;
        if (is->can && (!than || is->bytes < than->bytes ||
                        (is->bytes == than->bytes && is->cost < than->cost)))
            best = c;
    }
    return best;
}

static double rate_of(const struct step *step) { return step->saves / (double)step->bytes; }

/* The next corner of the hull behind choice `from`: the steepest way down. False: there is none. */
static bool next_step(const struct tp_share_set *set, uint32_t from, struct step *next)
{
    const struct tp_share_choice *is = &set->choice[from];
    bool found = false;
    for (uint32_t c = 0; c < TP_SHARE_CHOICES; c++) {
        const struct tp_share_choice *to = &set->choice[c];
        if (!to->can || to->bytes <= is->bytes || to->cost >= is->cost)
            continue;
        struct step step = {.to = c, .bytes = to->bytes - is->bytes, .saves = is->cost - to->cost};
        if (!found || rate_of(&step) > rate_of(next) ||
            (rate_of(&step) >= rate_of(next) && step.bytes > next->bytes))
            *next = step;
        found = true;
    }
    return found;
}

static int by_rate(const void *left, const void *right)
{
    const struct step *a = left, *b = right;
    const double x = rate_of(a), y = rate_of(b);
    if (x > y || x < y)
        return x > y ? -1 : 1;
    if (a->set != b->set)
        return a->set < b->set ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* A set's steps are in order: each saves less for a byte than the one before it. */
static void find_steps(struct sharing *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct step step = {0};
        uint32_t at = s->smallest[i];
        while (next_step(&s->set[i], at, &step)) {
            step.set = (uint32_t)i;
            s->steps[s->step_count++] = step;
            at = step.to;
        }
    }
    qsort(s->steps, s->step_count, sizeof *s->steps, by_rate);
}

static void find_smallest(struct sharing *s)
{
    for (size_t i = s->count; i-- > 0;) {
        const struct tp_share_choice *is;
        s->smallest[i] = smallest_of(&s->set[i]);
        is = &s->set[i].choice[s->smallest[i]];
        s->least_bytes[i] = s->least_bytes[i + 1] + is->bytes;
        s->least_cost[i] = s->least_cost[i + 1] + is->cost;
    }
}

/* ---- the first assignment ------------------------------------------------------------ */

static void add_up(const struct sharing *s, const uint32_t *taken, uint64_t *bytes, double *cost)
{
    *bytes = 0;
    *cost = 0;
    for (size_t i = 0; i < s->count; i++) {
        *bytes += s->set[i].choice[taken[i]].bytes;
        *cost += s->set[i].choice[taken[i]].cost;
    }
}

/* A step that does not fit ends the way of its set, and of no other. */
static void take_steps(struct sharing *s)
{
    struct tp_share *best = s->best;
    memset(s->tried, 0, s->count * sizeof *s->tried); /* whether its way has ended */
    for (size_t i = 0; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];
        if (s->tried[step->set] || best->bytes + step->bytes > s->budget) {
            s->tried[step->set] = 1;
            continue;
        }
        best->taken[step->set] = step->to;
        best->bytes += step->bytes;
    }
    add_up(s, best->taken, &best->bytes, &best->cost);
}

/* ---- the search ---------------------------------------------------------------------- */

/* No cost of the sets from `first` on is below this, with so many bytes for them, which are enough
 * for the smallest choices: steps of their hulls, the last one in part. */
static double bound_from(const struct sharing *s, size_t first, uint64_t left)
{
    double cost = s->least_cost[first];
    left -= s->least_bytes[first];
    for (size_t i = 0; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];
        if (step->set < first)
            continue;
        if (step->bytes > left)
            return cost - rate_of(step) * (double)left;
        cost -= step->saves;
        left -= step->bytes;
    }
    return cost;
}

/* What the rounding of sums may do is no gain. */
static bool is_less(double cost, const struct tp_share *best)
{
    return cost < best->cost - 1e-12 * fabs(best->cost);
}

/* Whether choice `c` of set i may lead to something better, and so is taken; the next set's node
 * is then what they come to. */
static bool try_choice(struct sharing *s, size_t i, uint32_t c)
{
    const struct tp_share_choice *is = &s->set[i].choice[c];
    const struct node *node = &s->node[i];
    struct node next = {.bytes = node->bytes + is->bytes, .cost = node->cost + is->cost};
    if (!is->can || next.bytes + s->least_bytes[i + 1] > s->budget ||
        !is_less(next.cost + bound_from(s, i + 1, s->budget - next.bytes), s->best))
        return false;
    s->tried[i] = c;
    s->node[i + 1] = next;
    return true;
}

/* Every set has its choice. */
static void take_tried(struct sharing *s)
{
    if (!is_less(s->node[s->count].cost, s->best))
        return;
    memcpy(s->best->taken, s->tried, s->count * sizeof *s->tried);
    s->best->bytes = s->node[s->count].bytes;
    s->best->cost = s->node[s->count].cost;
}

/* All assignments that may be better, set by set. False: so many were tried that it gave up. */
static bool search(struct sharing *s)
{
    size_t i = 0;
    s->node[0] = (struct node){0};
    for (uint64_t tries = 0; tries < TRIES;) {
        if (i == s->count) {
            take_tried(s);
            i--;
        } else if (s->node[i].next == TP_SHARE_CHOICES) {
            if (!i)
                return true;
            i--;
        } else {
            tries++;
            i += try_choice(s, i, s->node[i].next++);
        }
    }
    return false;
}

/* ---- */

static enum tp_code make_room(struct sharing *s, struct tp_err *err)
{
    size_t n = s->count + 1;
    s->steps = tp_os_zalloc(n, TP_SHARE_CHOICES * sizeof *s->steps, err);
    s->smallest = s->steps ? tp_os_zalloc(n, sizeof *s->smallest, err) : NULL;
    s->least_bytes = s->smallest ? tp_os_zalloc(n, sizeof *s->least_bytes, err) : NULL;
    s->least_cost = s->least_bytes ? tp_os_zalloc(n, sizeof *s->least_cost, err) : NULL;
    s->tried = s->least_cost ? tp_os_zalloc(n, sizeof *s->tried, err) : NULL;
    s->node = s->tried ? tp_os_zalloc(n, sizeof *s->node, err) : NULL;
    return s->node ? TP_OK : TP_E_MEMORY;
}

static void close(struct sharing *s)
{
    free(s->steps);
    free(s->smallest);
    free(s->least_bytes);
    free(s->least_cost);
    free(s->tried);
    free(s->node);
}

static enum tp_code share_out(struct sharing *s, struct tp_err *err)
{
    find_smallest(s);
    memcpy(s->best->taken, s->smallest, s->count * sizeof *s->smallest);
    add_up(s, s->best->taken, &s->best->bytes, &s->best->cost);
    if (s->best->bytes > s->budget)
        return tp_fail(err, TP_E_UNSUPPORTED, "the budget is below the smallest choices");
    find_steps(s);
    s->best->bound = bound_from(s, 0, s->budget);
    take_steps(s);
    s->best->least = !s->count || search(s);
    return TP_OK;
}

enum tp_code tp_share_out(const struct tp_share_set *sets, size_t count, uint64_t budget,
                          struct tp_share *share, struct tp_err *err)
{
    struct sharing s = {.set = sets, .count = count, .budget = budget, .best = share};
    share->bytes = 0;
    enum tp_code code = make_room(&s, err);
    if (code == TP_OK)
        code = share_out(&s, err);
    close(&s);
    return code;
}

enum tp_code tp_share_line(const struct tp_share_set *sets, size_t count,
                           struct tp_share_point **points, size_t *point_count,
                           struct tp_err *err)
{
    struct sharing s = {.set = sets, .count = count};
    enum tp_code code = make_room(&s, err);
    if (code == TP_OK) {
        find_smallest(&s);
        find_steps(&s);
        *points = tp_os_zalloc(s.step_count + 1, sizeof **points, err);
        code = *points ? TP_OK : TP_E_MEMORY;
    }
    if (code == TP_OK) {
        struct tp_share_point at = {s.least_bytes[0], s.least_cost[0]};
        (*points)[0] = at;
        for (size_t i = 0; i < s.step_count; i++) {
            at.bytes += s.steps[i].bytes;
            at.cost -= s.steps[i].saves;
            (*points)[i + 1] = at;
        }
        *point_count = s.step_count + 1;
    }
    close(&s);
    return code;
}
