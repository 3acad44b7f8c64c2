/* The CPU half of the benchmark: rows on boxes, threads side by side.
 *
 * A weight is cut into the boxes of the run loop (box.h); every thread takes the
 * next one. A pass is one subject, the row or a ceiling, on all boxes. Each pass takes
 * the next of several copies of the inputs (sets), together several times the
 * last-level cache, so that they come from memory. Outputs go either where the
 * run loop has them, into one buffer per thread that the next box overwrites ("near"),
 * or ("far") to memory that rotates like the inputs. A round is a pass of each subject,
 * near and far, so that all see the same machine; the first round is not counted, and
 * the medians of the others are compared.
 */
#include "pack/bench/bench_cpu.h"

#include "base/num.h"
#include "kernels/op/codec.h"
#include "pack/os/clock.h"
#include "pack/plan/cut/box.h"
#include "pack/os/os.h"
#include "pack/os/buffer.h"
#include "pack/os/threads.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOX_TARGET (UINT64_C(1) << 20) /* as the run loop's */
#define BOX_LIMIT (UINT64_C(64) << 20)
#define SCALES_TARGET 131072.0
#define REF_BYTES (UINT64_C(4) << 20)
#define CHUNK (UINT64_C(16) << 10) /* of the ceiling's loop */
#define ALIGN UINT64_C(64)
#define NOWHERE UINT64_MAX
enum { ROUNDS = 15, MIN_ROUNDS = 3, MAX_SETS = 512 };
static const double max_seconds = 1.0; /* for one case, once it had its least rounds */

/* The ceilings stream a box in chunks, or as a whole; the faster one counts. PLAIN is what a
 * searched row is compared with, near only. */
enum subject { ROW, PLAIN, IN_CHUNKS, AS_WHOLE, SUBJECTS };
enum target { NEAR, FAR, TARGETS };

/* One box: where its bytes lie in a set of buffers. */
struct piece {
    struct tp_box3 size;
    uint64_t in, out;             /* offsets in a set */
    uint64_t in_bytes, out_bytes; /* that count */
    uint64_t in_place[TP_MAX_OUT], out_place[TP_MAX_OUT]; /* of a packed form's outputs in it */
};

struct job {
    const struct tp_bench_case *c;
    struct piece *pieces;
    uint64_t count;
    uint64_t in_step, out_step; /* from set to set */
    uint64_t in_sets, out_sets, set;
    uint64_t slot; /* most bytes that a box puts out */
    void *codes;   /* of any box, when only scales are made */
    enum subject subject; /* of the pass that runs */
    enum target target;
};

struct tp_bench_cpu {
    struct tp_buffer in, out, codes;
    enum tp_dtype filled; /* the whole input buffer holds such values */
    struct job job;
    atomic_uint_fast64_t next;
    unsigned threads; /* in all; the caller is one of them. 0: not started */
    pthread_mutex_t lock;
    pthread_cond_t started;
    bool begin, end; /* threads wait for either, with the lock, before the first barrier */
    pthread_barrier_t barrier;
    pthread_t *thread;
    struct tp_buffer *scratch, *slot; /* per thread */
    atomic_uint_fast64_t sink; /* what was read by the ceiling: so that it is read */
};

struct worker {
    struct tp_bench_cpu *cpu;
    unsigned index;
};

/* ---- one box ------------------------------------------------------------- */

/* Pointers of an operation's outputs from their places in a box; those without one are
 * NULL, but for codes that lie elsewhere. */
static void point(const struct tp_op *op, const uint64_t *place, uint8_t *at, void *codes,
                  void *pointers[])
{
    for (uint32_t i = 0; i < op->outs; i++)
        pointers[i] = place[i] != NOWHERE                   ? at + place[i]
                      : op->out[i].role == TP_ROLE_CODES ? codes
                                                         : NULL;
}

static void run_row(const struct job *job, const struct piece *p, uint8_t *in, uint8_t *out,
                    void *scratch)
{
    const struct tp_bench_case *c = job->c;
    const bool plain = job->subject == PLAIN;
    struct tp_args args = {.box = p->size, .dtype = c->dtype, .scratch = scratch};
    void *from[TP_MAX_OUT] = {in};
    args.global = tp_codec_global(&c->op, TP_BF16, 0.14f);
    args.out[0] = out;
    if (c->kind != TP_BENCH_ENCODE)
        point(c->kind == TP_BENCH_REPACK ? &c->from : &c->op, p->in_place, in, job->codes, from);
    if (c->kind != TP_BENCH_DECODE)
        point(&c->op, p->out_place, out, job->codes, args.out);
    for (int i = 0; i < TP_MAX_OUT; i++)
        args.in[i] = from[i];
    if (c->scales_only)
        args.out[tp_op_find(&c->op, TP_ROLE_CODES)] = NULL;
    if (c->kind == TP_BENCH_ENCODE)
        (plain ? c->plain : c->encode)(plain ? &c->from : &c->op, &args);
    else if (c->kind == TP_BENCH_REPACK)
        c->repack(&c->from, &c->op, &args);
    else
        c->decode(&c->op, &args);
}

/* Reads every byte; 64 at a time for the compiler to make vectors of. */
static uint64_t read_all(const uint8_t *p, uint64_t bytes)
{
    uint64_t sum[8] = {0}, word[8];
    for (uint64_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(word, p + i, sizeof word);
        for (int j = 0; j < 8; j++)
            sum[j] ^= word[j];
    }
    for (int j = 1; j < 8; j++)
        sum[0] ^= sum[j];
    return sum[0];
}

/* The ceiling: as many bytes read and written, in the same proportion all along.
 * What is both read and written is copied; the rest is only read, or only set. */
static uint64_t run_stream(const struct piece *p, const uint8_t *in, uint8_t *out, uint64_t chunk)
{
    uint64_t longer = tp_max_u64(p->in_bytes, p->out_bytes), sum = 0;
    uint64_t steps = tp_max_u64(tp_ceil_div(longer, chunk), 1);
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t a = p->in_bytes / steps * i, b = p->out_bytes / steps * i;
        uint64_t reads = i + 1 < steps ? p->in_bytes / steps : p->in_bytes - a;
        uint64_t writes = i + 1 < steps ? p->out_bytes / steps : p->out_bytes - b;
        uint64_t both = tp_min_u64(reads, writes);
        memcpy(out + b, in + a, both);
        sum ^= read_all(in + a + both, reads - both);
        memset(out + b + both, 0x5A, writes - both);
    }
    return sum;
}

/* ---- threads ------------------------------------------------------------- */

static void take_pieces(struct tp_bench_cpu *cpu, unsigned thread)
{
    const struct job *job = &cpu->job;
    uint8_t *in = (uint8_t *)cpu->in.data + job->set % job->in_sets * job->in_step;
    uint8_t *out = (uint8_t *)cpu->out.data + job->set % job->out_sets * job->out_step;
    uint64_t i;
    while ((i = atomic_fetch_add(&cpu->next, 1)) < job->count) {
        const struct piece *p = &job->pieces[i];
        uint8_t *to = job->target == FAR ? out + p->out : cpu->slot[thread].data;
        if (job->subject == ROW || job->subject == PLAIN)
            run_row(job, p, in + p->in, to, cpu->scratch[thread].data);
        else
            atomic_fetch_xor(&cpu->sink,
                             run_stream(p, in + p->in, to,
                                        job->subject == IN_CHUNKS ? CHUNK : UINT64_MAX));
    }
}

static void *work(void *arg)
{
    struct worker worker = *(struct worker *)arg;
    free(arg);
    pthread_mutex_lock(&worker.cpu->lock);
    while (!worker.cpu->begin && !worker.cpu->end)
        pthread_cond_wait(&worker.cpu->started, &worker.cpu->lock);
    bool end = worker.cpu->end;
    pthread_mutex_unlock(&worker.cpu->lock);
    while (!end) {
        pthread_barrier_wait(&worker.cpu->barrier);
        if (worker.cpu->end)
            break;
        take_pieces(worker.cpu, worker.index);
        pthread_barrier_wait(&worker.cpu->barrier);
    }
    return NULL;
}

/* One pass; its seconds. */
static double pass(struct tp_bench_cpu *cpu, enum subject subject, enum target target)
{
    cpu->job.subject = subject;
    cpu->job.target = target;
    cpu->job.set++;
    atomic_store(&cpu->next, 0);
    double start = tp_now(); /* before the others are let go: they may be done before we run */
    pthread_barrier_wait(&cpu->barrier);
    take_pieces(cpu, 0);
    pthread_barrier_wait(&cpu->barrier);
    return tp_now() - start;
}

static void destroy_gates(struct tp_bench_cpu *cpu)
{
    pthread_barrier_destroy(&cpu->barrier);
    pthread_mutex_destroy(&cpu->lock);
    pthread_cond_destroy(&cpu->started);
}

void tp_bench_cpu_close(struct tp_bench_cpu *cpu)
{
    if (!cpu)
        return;
    if (cpu->threads) {
        cpu->end = true;
        pthread_barrier_wait(&cpu->barrier);
        for (unsigned i = 1; i < cpu->threads; i++)
            pthread_join(cpu->thread[i], NULL);
        destroy_gates(cpu);
        for (unsigned i = 0; i < cpu->threads; i++) {
            tp_buffer_free(&cpu->scratch[i]);
            tp_buffer_free(&cpu->slot[i]);
        }
    }
    tp_buffer_free(&cpu->in);
    tp_buffer_free(&cpu->out);
    tp_buffer_free(&cpu->codes);
    free(cpu->thread);
    free(cpu->scratch);
    free(cpu->slot);
    free(cpu->job.pieces);
    free(cpu);
}

/* A barrier needs to know how many come, so threads that cannot be started end the
 * benchmark: the figures would not be those of the threads asked for. */
static enum tp_code start_threads(struct tp_bench_cpu *cpu, unsigned jobs, struct tp_err *err)
{
    cpu->thread = tp_os_zalloc(jobs, sizeof *cpu->thread, err);
    cpu->scratch = tp_os_zalloc(jobs, sizeof *cpu->scratch, err);
    cpu->slot = tp_os_zalloc(jobs, sizeof *cpu->slot, err);
    if (!cpu->thread || !cpu->scratch || !cpu->slot)
        return TP_E_MEMORY;
    unsigned started = 1;
    pthread_barrier_init(&cpu->barrier, NULL, jobs);
    pthread_mutex_init(&cpu->lock, NULL);
    pthread_cond_init(&cpu->started, NULL);
    for (; started < jobs; started++) {
        struct worker *worker = tp_os_zalloc(1, sizeof *worker, err);
        if (!worker)
            break;
        *worker = (struct worker){cpu, started};
        if (tp_os.start_thread(&cpu->thread[started], work, worker)) {
            free(worker);
            break;
        }
    }
    pthread_mutex_lock(&cpu->lock);
    cpu->begin = started == jobs;
    cpu->end = !cpu->begin;
    pthread_cond_broadcast(&cpu->started);
    pthread_mutex_unlock(&cpu->lock);
    if (cpu->begin) {
        cpu->threads = jobs;
        return TP_OK;
    }
    for (unsigned i = 1; i < started; i++)
        pthread_join(cpu->thread[i], NULL);
    destroy_gates(cpu);
    return tp_fail(err, TP_E_MEMORY, "cannot start %u threads", jobs);
}

/* ---- boxes and buffers --------------------------------------------------- */

/* Bytes that are moved, room for them, and where in it each output lies. Codes do not
 * count and have no place when only scales are made. */
static enum tp_code op_bytes(const struct tp_op *op, struct tp_box3 box, bool scales_only,
                             uint64_t *count, uint64_t *capacity, uint64_t place[TP_MAX_OUT],
                              struct tp_err *err)
{
    *count = *capacity = 0;
    for (uint32_t i = 0; i < op->outs; i++) {
        uint64_t bytes;
        enum tp_code code = tp_op_bytes(op, i, box, &bytes, err);
        if (code)
            return code;
        place[i] = NOWHERE;
        if (bytes == 0 || (scales_only && op->out[i].role == TP_ROLE_CODES))
            continue;
        place[i] = *capacity;
        *count += bytes;
        *capacity += tp_round_up(bytes, ALIGN);
    }
    return TP_OK;
}

static enum tp_code piece_bytes(const struct tp_bench_case *c, struct piece *p,
                                uint64_t *in_capacity, uint64_t *out_capacity, struct tp_err *err)
{
    uint64_t values = tp_value_bytes(p->size, c->dtype);
    enum tp_code code = TP_OK;
    p->in_bytes = p->out_bytes = values;
    *in_capacity = *out_capacity = tp_round_up(values, ALIGN);
    if (c->kind != TP_BENCH_ENCODE)
        code = op_bytes(c->kind == TP_BENCH_REPACK ? &c->from : &c->op, p->size, c->scales_only,
                        &p->in_bytes, in_capacity, p->in_place, err);
    if (code == TP_OK && c->kind != TP_BENCH_DECODE)
        code = op_bytes(&c->op, p->size, c->scales_only, &p->out_bytes, out_capacity, p->out_place,
                        err);
    return code;
}

/* Bytes of values whose scales are SCALES_TARGET bytes, in and out together. */
static enum tp_code scales_target(const struct tp_bench_case *c, uint64_t *target,
                                  struct tp_err *err)
{
    uint64_t in, out, capacity, place[TP_MAX_OUT];
    double values = (double)c->box.e * (double)c->box.n * (double)c->box.k * 2;
    enum tp_code code = op_bytes(&c->from, c->box, true, &in, &capacity, place, err);
    if (code == TP_OK)
        code = op_bytes(&c->op, c->box, true, &out, &capacity, place, err);
    if (code == TP_OK)
        *target = (uint64_t)(values * SCALES_TARGET / (double)tp_max_u64(in + out, 1)) + 1;
    return code;
}

/* The grid that the run loop would use: a plan of one unit with one source. Scales alone
 * come in boxes of as many more values. */
static enum tp_code make_grid(const struct tp_bench_case *c, unsigned jobs, struct tp_unit *unit,
                              struct tp_grid *grid, struct tp_err *err)
{
    struct tp_weight_form form = {.box = c->box, .dtype = c->dtype};
    struct tp_weight weight = {.form = &form};
    struct tp_weights weights = {.items = &weight, .count = 1};
    struct tp_plan plan = {.weights = &weights};
    struct tp_view view = {0};
    *unit->form = (struct tp_unit_form){.kind = TP_UNIT_ENCODE, .box = c->box,
                                        .format = c->format, .op = c->op, .dtype = c->dtype,
                                        .views_per_expert = 1, .view_rows = {c->box.n}};
    unit->views = &view;
    if (c->kind != TP_BENCH_ENCODE) {
        form.format = c->kind == TP_BENCH_REPACK ? c->source : c->format;
        form.op = c->kind == TP_BENCH_REPACK ? c->from : c->op;
    }
    if (c->kind == TP_BENCH_DECODE)
        unit->form->format = NULL;
    uint64_t target = BOX_TARGET, limit = BOX_LIMIT / tp_min_u64(jobs, 64);
    enum tp_code code = TP_OK;
    if (c->scales_only && (code = scales_target(c, &target, err)) == TP_OK)
        limit = 4 * target;
    if (code == TP_OK)
        code = tp_unit_grid(&plan, unit, target, limit, grid, err);
    unit->views = NULL; /* grids ask it no more */
    return code;
}

static enum tp_code make_pieces(struct job *job, unsigned jobs, struct tp_err *err)
{
    const struct tp_bench_case *c = job->c;
    struct tp_unit_form form;
    struct tp_unit unit = {.form = &form};
    struct tp_grid grid;
    enum tp_code code = make_grid(c, jobs, &unit, &grid, err);
    if (code)
        return code;
    uint64_t count = grid.count;
    if (c->isa == TP_ISA_REF) { /* slow: a few boxes tell as much */
        uint64_t values = grid.e_step * grid.n_step * grid.k_step * 2;
        count = tp_min_u64(count, tp_max_u64(REF_BYTES / tp_max_u64(values, 1), jobs));
    }
    if (!(job->pieces = tp_os_zalloc(count, sizeof *job->pieces, err)))
        return TP_E_MEMORY;
    for (; job->count < count; job->count++) {
        struct piece *p = &job->pieces[job->count];
        uint64_t in_capacity, out_capacity;
        p->size = tp_grid_box(&unit, &grid, job->count).size;
        p->in = job->in_step;
        p->out = job->out_step;
        if ((code = piece_bytes(c, p, &in_capacity, &out_capacity, err)))
            return code;
        job->in_step += in_capacity;
        job->out_step += out_capacity;
        job->slot = tp_max_u64(job->slot, out_capacity);
    }
    return TP_OK;
}

/* A sum of four uniform numbers is normal enough; about as wide as real weights. */
static float next_value(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    int sum = (int)(z & 0xFFFF) + (int)(z >> 16 & 0xFFFF) + (int)(z >> 32 & 0xFFFF) +
              (int)(z >> 48) - 131070;
    return (float)sum * (0.04f / 65536.0f);
}

/* Values of F32, BF16 or F16; none is subnormal or not finite. */
static void fill_values(void *to, enum tp_dtype dtype, uint64_t count)
{
    uint64_t state = 1;
    for (uint64_t i = 0; i < count; i++) {
        float value = next_value(&state);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == TP_F32)
            ((uint32_t *)to)[i] = bits;
        else if (dtype == TP_BF16)
            ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        else /* too small for fp16: 0 */
            ((uint16_t *)to)[i] =
                (uint16_t)((bits >> 16 & 0x8000) |
                           ((bits & 0x7FFFFFFF) < 0x38800000
                                ? 0
                                : ((bits & 0x7FFFFFFF) - 0x38000000) >> 13));
    }
}

/* Packed inputs: encoded from random values, each box of a set from other ones. */
static enum tp_code fill_packed(struct tp_bench_cpu *cpu, struct tp_err *err)
{
    const struct job *job = &cpu->job;
    const struct tp_bench_case *c = job->c;
    const struct tp_op *op = c->kind == TP_BENCH_REPACK ? &c->from : &c->op;
    struct tp_buffer values = {0};
    uint64_t max = 0, slack = UINT64_C(4) << 20;
    for (uint64_t i = 0; i < job->count; i++)
        max = tp_max_u64(max, job->pieces[i].size.e * job->pieces[i].size.n *
                                    job->pieces[i].size.k);
    enum tp_code code = tp_buffer_reserve(&values, 2 * (max + slack), err);
    if (code)
        return code;
    fill_values(values.data, TP_BF16, max + slack);
    for (uint64_t i = 0; i < job->count; i++) {
        const struct piece *p = &job->pieces[i];
        uint8_t *at = (uint8_t *)cpu->in.data + p->in;
        struct tp_args args = {.box = p->size, .dtype = TP_BF16, .scratch = cpu->scratch[0].data};
        args.global = tp_codec_global(op, TP_BF16, 0.14f);
        args.in[0] = (uint16_t *)values.data + i * 8192 % slack;
        point(op, p->in_place, at, job->codes, args.out);
        tp_encode_find(op, TP_BF16)(op, &args);
    }
    for (uint64_t set = 1; set < job->in_sets; set++)
        memcpy((uint8_t *)cpu->in.data + set * job->in_step, cpu->in.data, job->in_step);
    tp_buffer_free(&values);
    cpu->filled = TP_DTYPE_NONE;
    return TP_OK;
}

/* So many copies that their bytes are at least twice the last-level cache. Inputs and
 * outputs are counted apart: either alone must not fit it. */
static uint64_t set_count(uint64_t step, uint64_t memory)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t want = tp_max_u64(3 * (cache > 0 ? (uint64_t)cache : 0), UINT64_C(64) << 20);
    uint64_t max = memory ? memory / 2 : UINT64_C(320) << 20;
    uint64_t sets = tp_ceil_div(tp_min_u64(want, max), tp_max_u64(step, 1));
    return tp_max_u64(tp_min_u64(sets, MAX_SETS), 1);
}

/* Most bytes of codes of a box. */
static enum tp_code code_bytes(const struct job *job, uint64_t *max, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (uint64_t i = 0; i < job->count && code == TP_OK; i++) {
        uint64_t bytes = 0;
        const struct tp_op *op = &job->c->from;
        code = tp_op_bytes(op, (uint32_t)tp_op_find(op, TP_ROLE_CODES), job->pieces[i].size,
                           &bytes, err);
        *max = tp_max_u64(*max, bytes);
    }
    return code;
}

static enum tp_code make_buffers(struct tp_bench_cpu *cpu, uint64_t memory, struct tp_err *err)
{
    struct job *job = &cpu->job;
    const struct tp_bench_case *c = job->c;
    uint64_t scratch = 0, codes = 0, old = cpu->in.capacity;
    job->in_sets = set_count(job->in_step, memory);
    job->out_sets = set_count(job->out_step, memory);
    for (uint64_t i = 0; i < job->count; i++) {
        scratch = tp_max_u64(scratch, tp_encode_scratch(&c->op, job->pieces[i].size));
        if (c->kind == TP_BENCH_REPACK)
            scratch = tp_max_u64(scratch, tp_encode_scratch(&c->from, job->pieces[i].size));
    }
    enum tp_code code = tp_buffer_reserve(&cpu->in, job->in_sets * job->in_step, err);
    if (code == TP_OK && c->scales_only && (code = code_bytes(job, &codes, err)) == TP_OK &&
        (code = tp_buffer_reserve(&cpu->codes, codes, err)) == TP_OK)
        job->codes = cpu->codes.data;
    if (code == TP_OK)
        code = tp_buffer_reserve(&cpu->out, job->out_sets * job->out_step, err);
    for (unsigned t = 0; t < cpu->threads && code == TP_OK; t++) {
        code = tp_buffer_reserve(&cpu->scratch[t], scratch, err);
        if (code == TP_OK)
            code = tp_buffer_reserve(&cpu->slot[t], job->slot, err);
    }
    if (code || c->kind != TP_BENCH_ENCODE)
        return code ? code : fill_packed(cpu, err);
    if (cpu->filled != c->dtype || cpu->in.capacity != old) {
        fill_values(cpu->in.data, c->dtype, cpu->in.capacity * 8 / tp_dtype_bits(c->dtype));
        cpu->filled = c->dtype;
    }
    return TP_OK;
}

/* ---- measuring ----------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, uint32_t count)
{
    qsort(seconds, count, sizeof *seconds, by_value);
    return seconds[count / 2];
}

/* Touches every page once, so that none is first seen while the clock runs. */
static void touch(struct tp_bench_cpu *cpu)
{
    memset(cpu->out.data, 0, cpu->job.out_sets * cpu->job.out_step);
    for (unsigned t = 0; t < cpu->threads; t++)
        memset(cpu->slot[t].data, 0, cpu->job.slot);
}

struct rounds {
    double seconds[TARGETS][SUBJECTS][ROUNDS];
};

static void run_round(struct tp_bench_cpu *cpu, struct rounds *rounds, uint32_t round)
{
    for (int target = 0; target < TARGETS; target++)
        for (int subject = 0; subject < SUBJECTS; subject++)
            if (subject != PLAIN || (cpu->job.c->plain && target == NEAR))
                rounds->seconds[target][subject][round] =
                    pass(cpu, (enum subject)subject, (enum target)target);
}

static double ceiling(double seconds[SUBJECTS][ROUNDS], uint32_t count)
{
    return fmin(median(seconds[IN_CHUNKS], count), median(seconds[AS_WHOLE], count));
}

static void measure(struct tp_bench_cpu *cpu, const atomic_int *stop,
                    struct tp_bench_result *result)
{
    struct rounds rounds;
    uint32_t n = 0;
    touch(cpu);
    run_round(cpu, &rounds, 0); /* the first that counts takes its place */
    double begin = tp_now();
    while (n < ROUNDS && (n < MIN_ROUNDS || tp_now() - begin < max_seconds) &&
           !(stop && atomic_load(stop)))
        run_round(cpu, &rounds, n++);
    result->repeats = n;
    if (n == 0)
        return;
    result->seconds = median(rounds.seconds[NEAR][ROW], n);
    result->fastest = rounds.seconds[NEAR][ROW][0];
    result->slowest = rounds.seconds[NEAR][ROW][n - 1];
    if (cpu->job.c->plain)
        result->plain_seconds = median(rounds.seconds[NEAR][PLAIN], n);
    result->far_seconds = median(rounds.seconds[FAR][ROW], n);
    result->ceiling_seconds = ceiling(rounds.seconds[NEAR], n);
    result->far_ceiling_seconds = ceiling(rounds.seconds[FAR], n);
}

enum tp_code tp_bench_cpu(struct tp_bench_cpu **cpu, const struct tp_bench_options *options,
                          const struct tp_bench_case *c, struct tp_bench_result *result,
                          struct tp_err *err)
{
    enum tp_code code = TP_OK;
    *result = (struct tp_bench_result){0};
    if (!*cpu) {
        if (!(*cpu = tp_os_zalloc(1, sizeof **cpu, err)) ||
            (code = start_threads(*cpu, options->jobs ? options->jobs : 1, err)))
            return code ? code : TP_E_MEMORY;
    }
    struct job *job = &(*cpu)->job;
    free(job->pieces);
    *job = (struct job){.c = c};
    if ((code = make_pieces(job, (*cpu)->threads, err)) ||
        (code = make_buffers(*cpu, options->memory, err)))
        return code;
    for (uint64_t i = 0; i < job->count; i++) {
        result->read_bytes += job->pieces[i].in_bytes;
        result->write_bytes += job->pieces[i].out_bytes;
    }
    measure(*cpu, options->stop, result);
    return tp_stopped(options->stop, err);
}
