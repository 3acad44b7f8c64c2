/* `tilepack suggest`: which format to make of a checkpoint for a GPU, why, and how. Chooses nothing
 * itself: pack/suggest does. */
#include "cli/cmd.h"

#include "cli/report.h"
#include "cli/session.h"
#include "cli/suggest_report.h"
#include "pack/os/clock.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

static enum tp_code check_engine(const struct tp_engine *engine, struct tp_err *err)
{
    char names[200] = "";
    size_t count, used = 0;
    const struct tp_engine *const *all = tp_engines(&count);
    if (engine->advices)
        return TP_OK;
    for (size_t i = 0; i < count && used < sizeof names; i++)
        if (all[i]->advices)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     all[i]->name);
    tp_err_hint(err, "something is suggested for %s; 'tilepack formats --engine %s' lists what it "
                "reads", names, engine->name);
    return tp_fail(err, TP_E_USAGE, "nothing is suggested for the engine '%s'", engine->name);
}

static enum tp_code make_wish(const struct tp_options *o, struct tp_suggest_wish *wish,
                              struct tp_err *err)
{
    struct tp_wish asked;
    enum tp_code code = tp_chip_from(o, &wish->chip, err);
    if (code == TP_OK)
        code = tp_wish_from(o, &asked, err);
    if (code)
        return code;
    wish->engine = asked.engine ? asked.engine : tp_engine_find("vllm");
    wish->gpus = o->gpus ? o->gpus : 1;
    wish->unmeasured = o->no_sample;
    return check_engine(wish->engine, err);
}

/* The last name of the path, whatever it is called here: "." too. Fresh memory. */
static char *base_of(const char *path, struct tp_err *err)
{
    char *real = realpath(path, NULL);
    const char *end = strrchr(real ? real : path, '/');
    char *base = strdup(end && end[1] ? end + 1 : real ? real : path);
    free(real);
    if (!base)
        tp_fail(err, TP_E_MEMORY, "out of memory");
    return base;
}

static int suggest(const struct tp_options *o, const struct tp_suggest_wish *wish)
{
    struct tp_source source = {0};
    struct tp_suggestions found = {0};
    struct tp_err err = {0};
    const char *path = o->arg.item[0];
    double start = tp_now();
    char *base = base_of(path, &err);
    enum tp_code code = base ? tp_source_open_as(path, NULL, NULL, &source, &err) : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_suggest(&source.ckpt, &source.weights, wish, &found, &err);
    struct tp_suggest_report report = {path, base, wish, &found, tp_now() - start};
    int status = code ? tp_report_error(&err) : tp_suggest_print(&report, o->json);
    tp_suggestions_close(&found);
    tp_source_close(&source);
    free(base);
    return status;
}

int tp_cmd_suggest(const struct tp_options *o)
{
    const struct tp_run_options run = {.jobs = o->jobs, .stop = tp_catch_signals()};
    struct tp_suggest_wish wish = {.run = &run};
    struct tp_err err = {0};
    if (make_wish(o, &wish, &err))
        return err.code == TP_E_USAGE ? tp_report_usage("suggest", &err) : tp_report_error(&err);
    return suggest(o, &wish);
}
