/* Shared steps of the commands; prints nothing. */
#include "cli/session.h"

#include "base/suffix.h"
#include "pack/engine/engine.h"
#include "pack/quantizer/quantizer.h"
#include "pack/os/machine.h"
#include "pack/os/os.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum tp_code tp_request_facts(const struct tp_options *o, struct tp_request *request,
                              struct tp_err *err)
{
    enum tp_code code = TP_OK;
    request->merged = strcmp(o->merged, "convert") == 0;
    request->plain = strcmp(o->plain, "convert") == 0;
    if (o->model_file)
        code = tp_request_model(request, o->model_file, err);
    return code ? code : tp_request_stacks(request, o->stacks, err);
}

/* A user's file of facts, by the function that takes them. */
static enum tp_code read_facts(const char *path, const char *command,
                               enum tp_code (*add)(const char *, size_t, struct tp_err *),
                               struct tp_err *err)
{
    char *text;
    size_t size;
    enum tp_code code = tp_os_slurp(path, TP_FORMAT_MAX, &text, &size, err);
    if (code)
        return code;
    code = add(text, size, err);
    free(text);
    if (code == TP_E_INPUT || code == TP_E_USAGE)
        tp_err_path(err, path);
    if (code == TP_E_INPUT)
        tp_err_hint(err, "'tilepack %s NAME --json' prints a file to begin with", command);
    if (code == TP_E_USAGE)
        tp_err_hint(err, "give it another \"name\"");
    return code;
}

enum tp_code tp_read_facts(const struct tp_options *o, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < o->format_file.count && !code; i++)
        code = read_facts(o->format_file.item[i], "formats", tp_format_add, err);
    for (size_t i = 0; i < o->quantizer_file.count && !code; i++)
        code = read_facts(o->quantizer_file.item[i], "quantizers", tp_quantizer_add, err);
    for (size_t i = 0; i < o->engine_file.count && !code; i++)
        code = read_facts(o->engine_file.item[i], "engines", tp_engine_add, err);
    return code;
}

/* A hint that lists what is known. */
static void list_known(const char *(*at)(size_t), const char *more, struct tp_err *err)
{
    char names[500] = "";
    size_t used = 0;
    for (size_t i = 0; at(i) && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", at(i));
    tp_err_hint(err, "known are %s%s", names, more);
}

/* The error of a name that is none of them. */
static enum tp_code unknown(const char *option, const char *name, const char *what,
                            const char *(*at)(size_t), const char *more, struct tp_err *err)
{
    list_known(at, more, err);
    return tp_fail(err, TP_E_USAGE, "--%s '%.200s': there is no such %s", option, name, what);
}

static const char *chip_at(size_t i)
{
    size_t count;
    const struct tp_chip *chips = tp_chips(&count);
    return i < count ? chips[i].name : NULL;
}

static const char *engine_at(size_t i)
{
    size_t count;
    const struct tp_engine *const *engines = tp_engines(&count);
    return i < count ? engines[i]->name : NULL;
}

/* The error of a name that is no GPU's. */
static enum tp_code unknown_gpu(const char *name, const char *more, struct tp_err *err)
{
    if (tp_chip_is_amd(name))
        return tp_refuse(err, TP_E_USAGE, "nothing is known here of who reads what on them",
                         "--gpu '%.200s': GPUs of AMD are not covered", name);
    return unknown("gpu", name, "GPU", chip_at, more, err);
}

enum tp_code tp_chip_from(const struct tp_options *o, const struct tp_chip **chip,
                          struct tp_err *err)
{
    char here[100];
    const char *name = o->gpu ? o->gpu : tp_machine_gpu("", here, sizeof here) ? here : NULL;
    if (name && (*chip = tp_chip_find(name)))
        return TP_OK;
    if (name)
        return unknown_gpu(name, "", err);
    list_known(chip_at, "", err);
    return tp_fail(err, TP_E_USAGE, "no --gpu is given, and there is none here");
}

enum tp_code tp_wish_from(const struct tp_options *o, struct tp_wish *wish, struct tp_err *err)
{
    enum tp_code code = tp_engines_check(err);
    *wish = (struct tp_wish){.sm = o->gpu ? tp_chip_sm(o->gpu) : 0, .ranks = o->gpus,
                             .whole_experts = o->expert_parallel};
    if (code)
        return code;
    if (o->gpu && !wish->sm)
        return unknown_gpu(o->gpu, ", or a compute capability such as sm90", err);
    if (o->engine && !(wish->engine = tp_engine_find(o->engine)))
        return unknown("engine", o->engine, "engine", engine_at, "", err);
    return TP_OK;
}

enum tp_code tp_request_choice(const struct tp_options *o, struct tp_request *request,
                               struct tp_err *err)
{
    enum tp_code code = tp_request_facts(o, request, err);
    for (size_t i = 0; i < o->include.count && code == TP_OK; i++)
        code = tp_request_include(request, o->include.item[i], err);
    for (size_t i = 0; i < o->exclude.count && code == TP_OK; i++)
        code = tp_request_exclude(request, o->exclude.item[i], err);
    for (size_t i = 0; i < o->weights_only.count && code == TP_OK; i++)
        if (strcmp(o->weights_only.item[i], TP_ALL_WEIGHTS) == 0)
            request->weights_only = true;
        else
            code = tp_request_unscale(request, o->weights_only.item[i], err);
    return code;
}

enum tp_code tp_request_from(const struct tp_options *o, struct tp_request *request,
                             struct tp_err *err)
{
    enum tp_code code;
    memset(request, 0, sizeof *request);
    request->no_stack = o->no_stack;
    request->strict = o->strict;
    request->requantize = o->requantize;
    request->digests = strcmp(o->digest, "sha256") == 0;
    request->keep_nonfinite = strcmp(o->nonfinite, "keep") == 0;
    request->shard_size = o->shard_size == TP_UNSET ? 0 : o->shard_size;
    code = o->to ? tp_request_to(request, o->to, o->set.item, o->set.count, err)
                 : tp_request_recipe(request, o->recipe, err);
    struct tp_search_words words = {o->search, o->is_signed, o->importance};
    if (o->to && code == TP_OK)
        code = tp_request_search(request, &words, err);
    if (code == TP_OK)
        code = tp_request_choice(o, request, err);
    for (size_t i = 0; i < o->format_file.count && code == TP_OK; i++)
        code = tp_request_input(request, o->format_file.item[i], err);
    if (code)
        tp_request_close(request);
    return code;
}

static atomic_int caught;

static void on_signal(int number)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&caught, &none, number)) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

atomic_int *tp_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &caught;
}

unsigned tp_output_zstd(const char *output, unsigned level)
{
    return level ? level : tp_ends_with(output, ".safetensors.zst") ? TP_DEFAULT_ZSTD_LEVEL : 0;
}

const char *tp_output_file(const char *output)
{
    if (!tp_ends_with(output, ".safetensors") && !tp_ends_with(output, ".safetensors.zst"))
        return NULL;
    const char *slash = strrchr(output, '/');
    return slash ? slash + 1 : output;
}

enum tp_code tp_check_single_file(const struct tp_options *o, struct tp_err *err)
{
    if (!o->output || !tp_output_file(o->output))
        return TP_OK;
    if (strcmp(o->digest, "none") != 0)
        return tp_refuse(err, TP_E_USAGE,
                         "name a directory with -o, or sign what 'tilepack digest' prints",
                         "a single file has no manifest to hold --digest");
    if (o->zstd && !tp_ends_with(o->output, ".zst")) {
        tp_err_hint(err, "name it %s.zst", o->output);
        return tp_fail(err, TP_E_USAGE, "an archive would have the name of a plain file, which no "
                       "reader takes");
    }
    if (!o->part.count && !o->copy.count && o->shard_size == TP_DEFAULT_SHARD_SIZE)
        return TP_OK;
    return tp_refuse(err, TP_E_USAGE, "name a directory with -o",
                     o->part.count ? "a single file cannot be written in parts"
                     : o->copy.count ? "a single file has nothing beside it: it has no --copy"
                                     : "a single file is not divided: it has no --shard-size");
}

/* In the end a directory beside it takes the output's name, which a link would lose. */
static char *follow_link(char *path, struct tp_err *err)
{
    char *real = realpath(path, NULL);
    if (!real && !tp_sys_absent(errno) && errno != ELOOP) {
        tp_os_fail(err, errno, path, "cannot resolve the path");
    } else if (!real) {
        tp_refuse_at(err, TP_E_USAGE, path,
                     "make the directory that it names, or choose another output with -o",
                     "the output is a link that leads nowhere");
    }
    free(path);
    return real;
}

const char *tp_output_shown(const char *typed, const char *path)
{
    return path && strncmp(typed, path, strlen(path)) != 0 ? typed : path;
}

/* "." and ".." are directories that are there, whatever is made: a finished output cannot be
 * renamed to them. */
static char *refuse_dots(char *path, struct tp_err *err)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (strcmp(base, ".") != 0 && strcmp(base, "..") != 0)
        return path;
    tp_refuse_at(err, TP_E_USAGE, path,
                 "name the directory that is to be made: -o NAME, or -o ../NAME",
                 "'%s' is no name that a new output can take", base);
    free(path);
    return NULL;
}

char *tp_output_path(const char *output, struct tp_err *err)
{
    size_t size = strlen(output);
    struct stat st;
    while (size > 1 && output[size - 1] == '/')
        size--;
    char *path = strndup(output, size);
    if (!path)
        tp_fail(err, TP_E_MEMORY, "out of memory");
    else if (!(path = refuse_dots(path, err)))
        return NULL;
    else if (!tp_output_file(path) && tp_os_link_there(path, &st, err) && S_ISLNK(st.st_mode))
        path = follow_link(path, err);
    if (!err->code)
        return path;
    free(path);
    return NULL;
}
