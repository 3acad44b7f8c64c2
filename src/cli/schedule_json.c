/* The JSON form of a schedule. Computes nothing.
 *
 * A member that jansson could not make for want of memory makes its parent NULL
 * ("o" formats do that), so that one test at the end finds every failure.
 */
#include "cli/schedule_report.h"

#include "cli/escape.h"
#include "cli/report.h"

static const char *const cut_names[] = {
    [TP_SCHED_CUT_NONE] = "none", [TP_SCHED_CUT_N] = "n", [TP_SCHED_CUT_K] = "k",
    [TP_SCHED_CUT_ANY] = "any"};
static const char *const level_names[] = {
    [TP_SCHED_ASSERT] = "assert", [TP_SCHED_SILENT] = "silent", [TP_SCHED_GATE] = "gate"};

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* 0 stands for "not known" */
static json_t *whole_or_null(uint64_t value)
{
    return value ? whole(value) : json_null();
}

static json_t *config_json(const struct tp_sched_problem *p, const struct tp_sched_config *c)
{
    bool model = c->cost >= 0 && c->cost != INT64_MAX;
    return json_pack(
        "{s:s? s:o s:o s:o s:o s:o s:o s:b s:b s:o s:o s:o s:o s:o s:o s:o s:o s:f s:o}", "name",
        c->name, "block_m", whole(c->block_m), "block_n", whole(c->block_n), "block_k",
        whole(c->block_k), "stages", whole_or_null(c->stages), "cluster_m", whole(c->cluster_m),
        "cluster_n", whole(c->cluster_n), "multicast_on_a", c->multicast_on_a, "swap_ab",
        c->swap_ab, "smem", whole_or_null(c->smem), "swizzle",
        c->smem ? whole(c->swizzle) : json_null(), "padding", whole(c->padding), "threads",
        whole(c->threads), "sms", whole(c->sms), "blocks", whole(c->blocks), "waves",
        whole(c->waves), "last_wave", whole(c->last_wave), "last_wave_utilisation",
        (double)c->last_wave / (double)p->sms, "cost",
        model ? json_integer(c->cost) : json_null());
}

static json_t *tma_json(const struct tp_sched_tma *box)
{
    return json_pack("{s:o s:o s:o}", "inner", whole(box->inner), "outer", whole(box->outer),
                     "swizzle", whole(box->swizzle));
}

static json_t *launch_json(const struct tp_schedule_case *c)
{
    struct tp_sched_launch launch;
    if (c->problem.kernel != TP_SCHED_DEEPGEMM_2025 || c->plan.count == 0)
        return json_null();
    tp_sched_launch_2025(&c->problem, &c->plan.config[0], &launch);
    return json_pack("{s:o s:o s:o s:o s:o s:o s:o s:[oo] s:o s:o s:s}", "threads",
                     whole(launch.threads), "grid", whole(launch.grid), "cluster",
                     whole(launch.cluster), "tma_a", tma_json(&launch.a), "tma_b",
                     tma_json(&launch.b), "tma_scales_a", tma_json(&launch.scales_a), "tma_d",
                     tma_json(&launch.d), "scales_a_shape", whole(launch.scales_a_rows),
                     whole(launch.scales_a_columns), "block_k", whole(launch.block_k),
                     "last_stages", whole(launch.last_stages), "jit_key", launch.jit_key);
}

static json_t *checks_json(const struct tp_sched_checks *checks)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < checks->count; i++) {
        const struct tp_sched_check *check = &checks->check[i];
        if (json_array_append_new(array, json_pack("{s:s s:s s:s s:b s:s}", "id", check->id,
                                                   "text", check->text, "level",
                                                   level_names[check->level], "pass",
                                                   check->pass, "reason", check->reason))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *ranked_json(const struct tp_schedule_case *c)
{
    json_t *array = json_array();
    for (size_t i = 1; array && i < c->plan.count; i++)
        if (json_array_append_new(array, config_json(&c->problem, &c->plan.config[i]))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *roofline_json(const struct tp_sched_cost *cost)
{
    return json_pack("{s:f s:f s:f s:f s:f s:f s:s}", "flops", cost->flops, "bytes", cost->bytes,
                     "flops_per_byte", cost->intensity, "memory_us", cost->memory_seconds * 1e6,
                     "math_us", cost->math_seconds * 1e6, "us", cost->seconds * 1e6, "bound",
                     cost->memory_seconds >= cost->math_seconds ? "memory" : "math");
}

static json_t *gpu_json(const struct tp_gpu *gpu)
{
    return json_pack("{s:s s:s s:o s:o s:f s:f}", "name", gpu->name, "title", gpu->title, "arch",
                     whole(gpu->arch), "sms", whole(gpu->sms), "bandwidth", gpu->bandwidth,
                     "fp8_flops", gpu->fp8_flops);
}

static json_t *case_json(const struct tp_schedule_case *c, bool why)
{
    const struct tp_sched_problem *p = &c->problem;
    const char *groups = p->masked ? "masked" : p->contiguous ? "contiguous" : NULL;
    json_t *plan = c->plan.count ? config_json(p, &c->plan.config[0]) : json_null();
    json_t *object = json_pack(
        "{s:s s:o s:o s:o s:o s:o s:s? s:s? s:o s:o s:i s:s s:o s:s? s:o s:b s:o s:o}",
        "kernel", tp_schedule_kernel_name(p->kernel), "gpu", gpu_json(c->gpu), "e",
        whole(p->experts), "n", whole(p->n), "k", whole(p->k), "m", whole(p->m), "groups", groups,
        "format", c->shape->format, "example",
        c->shape->example ? tp_json_text(c->shape->example) : json_null(), "weights",
        whole_or_null(c->shape->count), "ranks", (int)c->ranks, "cut", cut_names[c->cut],
        "sms", whole(p->sms), "refused", c->plan.count ? NULL : c->plan.refused, "plan", plan,
        "legal", tp_sched_illegal(&c->checks) == 0, "roofline", roofline_json(&c->cost),
        "launch", launch_json(c));
    if (!object || json_object_set_new(object, "checks", checks_json(&c->checks)) ||
        (why && json_object_set_new(object, "runners_up", ranked_json(c)))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

int tp_schedule_print_json(const struct tp_schedule_case *cases, size_t count, bool why)
{
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; good && i < count; i++)
        good = !json_array_append_new(array, case_json(&cases[i], why));
    json_t *object = good ? json_pack("{s:O}", "schedules", array) : NULL;
    json_decref(array);
    if (!object) {
        struct tp_err err = {0};
        tp_fail(&err, TP_E_MEMORY, "out of memory for the report");
        return tp_report_error(&err);
    }
    return tp_json_print(object);
}
