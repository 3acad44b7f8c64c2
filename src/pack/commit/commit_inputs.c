/* What is read must not be deleted or written over: the source, and the files that the request came
 * from (a recipe, importance, a file of the model). And by what a journal knows it.
 *
 * Removes nothing. Invariant: an input is known by its path without links, so that one in a folder
 * of the place is found at any depth.
 */
#include "pack/commit/commit_build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A place that is about to be written. */
struct place {
    const char *path;
    char *real; /* without links */
    struct tp_err *err;
};

/* What does not exist is nowhere. */
static enum tp_code fail_unresolved(const char *path, struct tp_err *err)
{
    return tp_sys_absent(errno) ? TP_OK
                                : tp_os_fail(err, errno, path, "cannot resolve the path");
}

/* TP_E_USAGE when the input is the place, or lies in it. One that is gone is in no place. */
static enum tp_code check_input(const struct place *place, const char *input)
{
    char *real = tp_os.realpath(input, NULL);
    if (!real)
        return fail_unresolved(input, place->err);
    size_t size = strlen(place->real);
    bool inside = strncmp(real, place->real, size) == 0 &&
                  (real[size] == '/' || !real[size] || place->real[size - 1] == '/');
    free(real);
    if (!inside)
        return TP_OK;
    tp_err_path(place->err, place->path);
    tp_err_hint(place->err, "choose another output with -o");
    return tp_fail(place->err, TP_E_USAGE, "it holds what is being read, '%.300s'", input);
}

static enum tp_code check_source(const struct place *place, const struct tp_checkpoint *ckpt)
{
    enum tp_code code = check_input(place, ckpt->path);
    for (size_t i = 0; i < ckpt->file_count && code == TP_OK; i++)
        code = check_input(place, ckpt->files[i].path);
    return code;
}

enum tp_code tp_commit_check_inputs(const struct tp_commit *c, const char *path)
{
    struct place place = {path, tp_os.realpath(path, NULL), c->err};
    if (!place.real)
        return fail_unresolved(path, c->err);
    enum tp_code code = check_source(&place, c->plan->ckpt);
    for (size_t i = 0; i < c->request->input_count && code == TP_OK; i++)
        code = check_input(&place, c->request->inputs[i]);
    free(place.real);
    return code;
}

enum tp_code tp_commit_source_id(const struct tp_commit *c, uint8_t hash[TP_HASH_BYTES])
{
    struct tp_text text = {0};
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < ckpt->file_count && code == TP_OK; i++)
        code = tp_text_addf(&text, c->err, "%lld\n", (long long)ckpt->files[i].stamp.ctime_ns);
    if (code == TP_OK)
        tp_hash(text.data, text.size, hash);
    tp_text_free(&text);
    return code;
}
