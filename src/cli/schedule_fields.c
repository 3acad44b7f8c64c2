/* The fields of a schedule: all that JSON has, and what of it tables show. Computes nothing but
 * shares.
 */
#include "cli/schedule_report.h"

typedef unsigned long long ull;

const char *tp_schedule_kernel_name(enum tp_sched_kernel kernel)
{
    switch (kernel) {
    case TP_SCHED_DEEPGEMM_2025: return "deepgemm-2025";
    case TP_SCHED_DEEPGEMM: return "deepgemm";
    case TP_SCHED_W4A8: return "w4a8-cutlass";
    }
    return "?";
}

const char *tp_schedule_shape(char text[TP_SHAPE_TEXT], const struct tp_schedule_case *c)
{
    const struct tp_sched_problem *p = &c->problem;
    return tp_times_text(text, &(struct tp_box3){p->experts, p->n, p->k}, p->experts > 1 ? 3 : 2);
}

/* 0 stands for "not known" */
static struct tp_member known(const char *key, uint64_t value)
{
    return value ? tp_num(key, value) : tp_null(key);
}

void tp_schedule_put_config(struct tp_writer *w, const char *key,
                            const struct tp_schedule_case *of, size_t rank)
{
    const struct tp_sched_config *c = &of->plan.config[rank];
    const bool has_cost = c->cost >= 0 && c->cost != INT64_MAX;
    const double last = (double)c->last_wave, sms = (double)of->problem.sms;
    tp_begin(w, key, '{');
    tp_write(w, tp_str("name", c->name), tp_num("block_m", c->block_m),
             tp_num("block_n", c->block_n), tp_num("block_k", c->block_k),
             known("stages", c->stages), tp_num("cluster_m", c->cluster_m),
             tp_num("cluster_n", c->cluster_n), tp_bool("multicast_on_a", c->multicast_on_a),
             tp_bool("swap_ab", c->swap_ab), known("smem", c->smem),
             c->smem ? tp_num("swizzle", c->swizzle) : tp_null("swizzle"),
             tp_num("padding", c->padding), tp_num("threads", c->threads), tp_num("sms", c->sms),
             tp_num("blocks", c->blocks), tp_num("waves", c->waves),
             tp_num("last_wave", c->last_wave), tp_real("last_wave_utilisation", last / sms),
             has_cost ? tp_num("cost", (uint64_t)c->cost) : tp_null("cost"));
    tp_cellf(w, "rank", "%zu", rank + 1);
    tp_cellf(w, "tile", "%llux%llux%llu%s", (ull)c->block_m, (ull)c->block_n, (ull)c->block_k,
             c->swap_ab && !c->name ? " swap" : "");
    tp_cellf(w, "cluster", "%llux%llu", (ull)c->cluster_m, (ull)c->cluster_n);
    tp_cellf(w, "swizzle_", c->swizzle ? "%llu" : "-", (ull)c->swizzle);
    tp_cellf(w, "last", "%.1f%%", 100.0 * last / sms);
    tp_cellf(w, "cost_", has_cost ? "%lld" : c->cost < 0 ? "-" : "never", (long long)c->cost);
    tp_end(w, '}');
}

static void put_runner_up(struct tp_writer *w, size_t i, const void *of)
{
    if (i > 0)
        tp_schedule_put_config(w, NULL, of, i);
}

static void put_tma(struct tp_writer *w, const char *key, const struct tp_sched_tma *box)
{
    tp_object(w, key, tp_num("inner", box->inner), tp_num("outer", box->outer),
              tp_num("swizzle", box->swizzle));
}

static void put_launch(struct tp_writer *w, const struct tp_schedule_case *c)
{
    struct tp_sched_launch launch;
    if (c->problem.kernel != TP_SCHED_DEEPGEMM_2025 || c->plan.count == 0) {
        tp_write(w, tp_null("launch"));
        return;
    }
    tp_sched_launch_2025(&c->problem, &c->plan.config[0], &launch);
    const uint64_t shape[] = {launch.scales_a_rows, launch.scales_a_columns};
    tp_begin(w, "launch", '{');
    tp_write(w, tp_num("threads", launch.threads), tp_num("grid", launch.grid),
             tp_num("cluster", launch.cluster));
    put_tma(w, "tma_a", &launch.a);
    put_tma(w, "tma_b", &launch.b);
    put_tma(w, "tma_scales_a", &launch.scales_a);
    put_tma(w, "tma_d", &launch.d);
    tp_write(w, tp_numbers("scales_a_shape", shape, 2), tp_num("block_k", launch.block_k),
             tp_num("last_stages", launch.last_stages), tp_str("jit_key", launch.jit_key));
    tp_end(w, '}');
}

static void put_check(struct tp_writer *w, size_t i, const void *of)
{
    static const char *const levels[] = {
        [TP_SCHED_ASSERT] = "assert", [TP_SCHED_SILENT] = "silent", [TP_SCHED_GATE] = "gate"};
    const struct tp_sched_check *check = &((const struct tp_sched_checks *)of)->check[i];
    tp_object(w, NULL, tp_str("id", check->id), tp_str("text", check->text),
              tp_str("level", levels[check->level]), tp_bool("pass", check->pass),
              tp_str("reason", check->reason));
}

static void put_roofline(struct tp_writer *w, const struct tp_sched_cost *cost)
{
    bool memory = cost->memory_seconds >= cost->math_seconds;
    tp_object(w, "roofline", tp_real("flops", cost->flops), tp_real("bytes", cost->bytes),
              tp_real("flops_per_byte", cost->intensity),
              tp_real("memory_us", cost->memory_seconds * 1e6),
              tp_real("math_us", cost->math_seconds * 1e6), tp_real("us", cost->seconds * 1e6),
              tp_str("bound", memory ? "memory" : "math"));
}

/* What tables say of the shape: what it is, whether it is cut, whether it fits. */
static void put_cells(struct tp_writer *w, const struct tp_schedule_case *c)
{
    char shape[TP_SHAPE_TEXT];
    size_t gates = 0, illegal = tp_sched_illegal(&c->checks);
    for (size_t i = 0; i < c->checks.count; i++)
        gates += !c->checks.check[i].pass && c->checks.check[i].level == TP_SCHED_GATE;
    tp_write(w, tp_cell("shape", tp_schedule_shape(shape, c)),
             tp_cell("kind", c->problem.masked       ? "masked"
                             : c->problem.contiguous ? "contiguous" : "dense"));
    tp_cellf(w, "cut_", c->ranks == 1                 ? "-"
                        : c->cut == TP_SCHED_CUT_NONE ? "whole"
                        : c->cut == TP_SCHED_CUT_N    ? "N/%u" : "K/%u", c->ranks);
    tp_cellf(w, "state", illegal ? "ILLEGAL (%zu)" : gates ? "legal, not taken (%zu)" : "ok",
             illegal ? illegal : gates);
}

void tp_schedule_put(struct tp_writer *w, size_t i, const void *of)
{
    static const char *const cuts[] = {[TP_SCHED_CUT_NONE] = "none", [TP_SCHED_CUT_N] = "n",
                                       [TP_SCHED_CUT_K] = "k", [TP_SCHED_CUT_ANY] = "any"};
    const struct tp_schedule *all = of;
    const struct tp_schedule_case *c = &all->cases[i];
    const struct tp_sched_problem *p = &c->problem;
    const struct tp_gpu *gpu = c->gpu;
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("kernel", tp_schedule_kernel_name(p->kernel)));
    tp_object(w, "gpu", tp_str("name", gpu->name), tp_str("title", gpu->title),
              tp_num("arch", gpu->arch), tp_num("sms", gpu->sms),
              tp_real("bandwidth", gpu->bandwidth), tp_real("fp8_flops", gpu->fp8_flops));
    tp_write(w, tp_num("e", p->experts), tp_num("n", p->n), tp_num("k", p->k), tp_num("m", p->m),
             tp_str("groups", p->masked ? "masked" : p->contiguous ? "contiguous" : NULL),
             tp_str("format", c->shape->format), tp_str("example", c->shape->example),
             known("weights", c->shape->count), tp_num("ranks", c->ranks),
             tp_str("cut", cuts[c->cut]), tp_num("sms", p->sms),
             tp_str("refused", c->plan.count ? NULL : c->plan.refused));
    if (c->plan.count)
        tp_schedule_put_config(w, "plan", c, 0);
    else
        tp_write(w, tp_null("plan"));
    tp_write(w, tp_bool("legal", tp_sched_illegal(&c->checks) == 0));
    put_roofline(w, &c->cost);
    put_launch(w, c);
    tp_write(w, tp_list("checks", c->checks.count, put_check, &c->checks),
             tp_if(all->why, tp_list("runners_up", c->plan.count, put_runner_up, c)));
    put_cells(w, c);
    tp_end(w, '}');
}
