/* fault WORK MODE [SEED COUNT]
 *
 * MODE faults: each call of a conversion fails in each way that it can, but for some
 *              allocations that are much like others.
 *      quick:  the same with every fifth call of the system and fewer allocations.
 *      thorough: the same with each call there is.
 *      reading: the same with verify and diff, of a good and of a damaged file.
 *      kills:  the process is killed at each call that changes something.
 *      power:  COUNT states that a power cut may have left.
 *
 * Afterwards: under the final name is nothing, or what was there before, or all of
 * the new; success was reported only with the latter; no descriptor is left open;
 * and the same command, run again, ends with the same bytes as if nothing had been.
 * Leaks are found by the leak sanitizer when this is built with it.
 */
#include "job.h"
#include "power.h"
#include "reading.h"
#include "tree.h"
#include "world.h"

#include "pack/os/os.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long passed, failed;
static const struct scenario *scenario;
static struct places places;

static void check(bool good, const char *what, uint64_t n, enum fault fault, const char *detail)
{
    if (good) {
        passed++;
        return;
    }
    failed++;
    if (failed <= 40)
        printf("%s, call %llu (%s), %s: %s%s%s\n", scenario->name, (unsigned long long)n,
               n ? call_name(world_call(n)) : "-", fault_name(fault), what, detail ? ": " : "",
               detail ? detail : "");
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* What the system would not say or do is no finding about the files, nor a wrong command. With
 * several workers the call may have been an allocation. */
static void check_status(uint64_t n, enum fault fault, const struct tp_err *err)
{
    if (fault == FAULT_EIO && world_call(n) != CALL_ALLOC)
        check(err->code == TP_OK || err->code == TP_E_IO || err->code == TP_E_MEMORY,
              "no error of the system", n, fault, err->what);
}

/* One undisturbed run, whose calls are numbered. */
static uint64_t count_calls(void)
{
    struct tp_err err;
    job_reset(scenario, &places);
    world_arm(0, FAULT_NONE, false);
    enum tp_code code = job_run(scenario, &places, 1, &err);
    uint64_t calls = world_calls();
    world_keep_trace();
    check(code == TP_OK && !job_difference(scenario, &places), "an undisturbed run", 0, FAULT_NONE,
          err.what);
    return calls;
}

/* The same command again, with nothing failing. */
static void run_again(uint64_t n, enum fault fault)
{
    struct tp_err err;
    world_arm(0, FAULT_NONE, false);
    enum tp_code code = job_run(scenario, &places, 1, &err);
    /* A file that is complete is in the way of a second one: that is said, not done. */
    bool there = code == TP_E_EXISTS && scenario->single && !scenario->replace;
    /* So is what was replaced and kept. */
    bool kept = code == TP_E_EXISTS && scenario->stranger;
    check(code == TP_OK || there || kept, "the next run fails", n, fault, err.what);
    const char *difference = job_difference(scenario, &places);
    check(!difference, "after the next run", n, fault, difference);
}

static void check_state(uint64_t n, enum fault fault, enum tp_code code)
{
    const char *why;
    enum outcome outcome = job_outcome(scenario, &places, &why);
    check(outcome != OUTCOME_TORN, "torn", n, fault, why);
    check(code != TP_OK || outcome == OUTCOME_COMPLETE, "reported as done, but is not", n, fault,
          why);
    check(!scenario->stranger || job_keeps_old(&places), "content of somebody is lost", n, fault,
          NULL);
}

static void one_fault(uint64_t n, enum fault fault, bool sticky, unsigned jobs)
{
    struct tp_err err;
    int before = open_descriptors();
    job_reset(scenario, &places);
    world_arm(n, fault, sticky);
    enum tp_code code = job_run(scenario, &places, jobs, &err);
    world_arm(0, FAULT_NONE, false);
    check(open_descriptors() == before, "descriptors stay open", n, fault, NULL);
    check(code == TP_OK || (err.what[0] && err.code == code), "an error without a message", n,
          fault, err.what);
    check(code != TP_OK || !err.what[0], "a message without an error", n, fault, err.what);
    check_status(n, fault, &err);
    if (fault_is_harmless(fault))
        check(code == TP_OK, "not survived", n, fault, err.what);
    check_state(n, fault, code);
    run_again(n, fault);
}

/* One of so many calls fails, always the same ones. No two of these numbers, nor 2 nor 3,
 * have a divisor in common: nothing that happens every so often is never tried. */
struct thinning {
    const char *mode;
    uint64_t system; /* calls of the system */
    uint64_t first;  /* allocations */
    uint64_t later;  /* allocations in the later scenarios; most were tried before */
    uint64_t busy;   /* all calls, with three workers */
};
static const struct thinning thinnings[] = {
    {"faults", 1, 1, 5, 7}, {"quick", 5, 7, 23, 29}, {"thorough", 1, 1, 1, 7}};

/* Each way to fail takes other calls than the one before: what is left out of one is not
 * left out of all. */
static bool tried(const struct thinning *thin, uint64_t n, enum fault fault)
{
    bool later = scenario->zstd || scenario->parts;
    uint64_t every = world_call(n) != CALL_ALLOC ? thin->system : later ? thin->later : thin->first;
    return fault_applies(fault, world_call(n)) && (n + (uint64_t)fault) % every == 0;
}

static void all_faults(const struct thinning *thin)
{
    uint64_t calls = count_calls();
    long runs = 0;
    for (uint64_t n = 1; n <= calls; n++)
        for (int f = FAULT_ENOSPC; f <= FAULT_SHORT; f++) {
            enum call call = world_call(n);
            if (!tried(thin, n, (enum fault)f))
                continue;
            one_fault(n, (enum fault)f, false, 1);
            runs++;
            if (f <= FAULT_EIO && (call == CALL_PWRITE || call == CALL_FSYNC || n % 16 == 0)) {
                one_fault(n, (enum fault)f, true, 1);
                runs++;
            }
        }
    for (uint64_t n = 1; n <= calls; n += thin->busy, runs++) /* their order now varies */
        one_fault(n, n % 2 ? FAULT_EIO : FAULT_ENOSPC, n % 3 == 0, 3);
    printf("%s: %llu calls, %ld times one failed\n", scenario->name, (unsigned long long)calls,
           runs);
}

/* ------------------------------------------------------------------- kills -- */

static void one_kill(uint64_t n, enum fault fault)
{
    struct tp_err err;
    int status;
    job_reset(scenario, &places);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        world_arm(n, fault, false);
        job_run(scenario, &places, 1, &err);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    /* Compressing is done by threads: the calls are not always in the same order. */
    check(killed || (scenario->zstd && WIFEXITED(status)), "the child was not killed", n, fault,
          NULL);
    check_state(n, fault, killed ? TP_E_INTERRUPT : TP_OK);
    run_again(n, fault);
}

static void all_kills(void)
{
    uint64_t calls = count_calls();
    long kills = 0;
    for (uint64_t n = 1; n <= calls; n++)
        for (int f = FAULT_KILL_BEFORE; f <= FAULT_KILL_HALF; f++)
            if (fault_applies((enum fault)f, world_call(n))) {
                one_kill(n, (enum fault)f);
                kills++;
            }
    printf("%s: %ld kills\n", scenario->name, kills);
}

/* ------------------------------------------------------------------- power -- */

static void power_cuts(uint64_t seed, uint64_t count)
{
    struct tp_err err;
    job_reset(scenario, &places);
    power_start(places.root);
    world_arm(0, FAULT_NONE, false);
    world_log(true);
    enum tp_code code = job_run(scenario, &places, 1, &err);
    world_log(false);
    check(code == TP_OK, "an undisturbed run", 0, FAULT_NONE, err.what);
    size_t events = power_events(), complete = 0;
    for (uint64_t i = 0; i < count; i++) {
        const char *why;
        size_t at = i <= events ? (size_t)i : (size_t)(i * 2654435761u % (events + 1));
        power_cut(at, seed + i);
        enum outcome outcome = job_outcome(scenario, &places, &why);
        check(outcome != OUTCOME_TORN, "torn by a power cut", at, FAULT_NONE, why);
        check(at < events || outcome == OUTCOME_COMPLETE, "reported as done, but lost", at,
              FAULT_NONE, why);
        complete += outcome == OUTCOME_COMPLETE;
        run_again(at, FAULT_NONE);
    }
    power_end();
    printf("%s: %llu power cuts after up to %zu events, %zu of them after the commit\n",
           scenario->name, (unsigned long long)count, events, complete);
}

/* ----------------------------------------------------------------- reading -- */

/* A copy of the reference with one bit of its data turned. */
static const char *damaged_copy(const char *work)
{
    static char path[4200];
    struct tree_file *files;
    size_t count = tree_list(work, &files), i = 0;
    while (i < count && strcmp(files[i].name, "reference"))
        i++;
    if (i == count || files[i].directory)
        abort();
    files[i].data[files[i].size - 100] ^= 4;
    snprintf(path, sizeof path, "%.4000s/damaged", work);
    tree_write(path, files[i].data, files[i].size);
    tree_free(files, count);
    return path;
}

/* Good input never passes for damaged, damaged input never for good: what fails on
 * the way is an error, not a finding. `wants` is whether there is a difference. */
static void one_reading(enum reading reading, const char *path, const char *other, bool wants,
                        uint64_t n, enum fault fault)
{
    struct tp_err err;
    long found;
    int before = open_descriptors();
    world_arm(n, fault, false);
    enum tp_code code = reading_run(reading, path, other, &found, &err);
    world_arm(0, FAULT_NONE, false);
    check(open_descriptors() == before, "descriptors stay open", n, fault, NULL);
    check(code == TP_OK || (err.what[0] && err.code == code), "an error without a message", n,
          fault, err.what);
    check_status(n, fault, &err);
    check(code != TP_OK || (found > 0) == wants, wants ? "damage is overlooked" : "a false alarm",
          n, fault, reading_name(reading));
    if (fault_is_harmless(fault))
        check(code == TP_OK, "not survived", n, fault, err.what);
}

static void all_readings(const char *work)
{
    const char *bad = damaged_copy(work);
    for (int r = 0; r < READINGS; r++)
        for (int damaged = 0; damaged < 2; damaged++) {
            struct tp_err err;
            long found;
            const char *path = damaged ? bad : places.reference;
            const char *other = r == READ_DIFF ? places.reference : places.source;
            world_arm(0, FAULT_NONE, false);
            enum tp_code code = reading_run((enum reading)r, path, other, &found, &err);
            uint64_t calls = world_calls();
            world_keep_trace();
            check(code == TP_OK && (found > 0) == damaged, "an undisturbed run", 0, FAULT_NONE,
                  reading_name((enum reading)r));
            for (uint64_t n = 1; n <= calls; n++)
                for (int f = FAULT_EIO; f <= FAULT_SHORT; f++)
                    if (fault_applies((enum fault)f, world_call(n)))
                        one_reading((enum reading)r, path, other, damaged, n, (enum fault)f);
            printf("%s of a %s file, %s: %llu calls\n", reading_name((enum reading)r),
                   damaged ? "damaged" : "good", scenario->format, (unsigned long long)calls);
        }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: fault WORK faults|quick|thorough|reading|kills|power [SEED COUNT]\n");
        return 2;
    }
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    uint64_t count = argc > 4 ? strtoull(argv[4], NULL, 10) : 100;
    world_install();
    for (int i = 0; i < scenario_count; i++) {
        scenario = &scenarios[i];
        world_arm(0, FAULT_NONE, false);
        job_prepare(argv[1], scenario, &places);
        for (size_t t = 0; t < sizeof thinnings / sizeof *thinnings; t++)
            if (strcmp(argv[2], thinnings[t].mode) == 0 && !scenario->ends)
                all_faults(&thinnings[t]);
        if (strcmp(argv[2], "kills") == 0)
            all_kills();
        else if (strcmp(argv[2], "reading") == 0 && scenario->single && !scenario->zstd)
            all_readings(argv[1]);
        else if (strcmp(argv[2], "power") == 0)
            power_cuts(seed, count / (uint64_t)scenario_count);
    }
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
