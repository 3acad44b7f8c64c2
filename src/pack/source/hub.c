/* The Hub's cache: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. In it "models--ORG--NAME" has "refs/main", a text with the name of a
 * folder in "snapshots". Opens nothing of a checkpoint.
 */
#include "pack/source/hub.h"

#include "base/similar.h"
#include "base/suffix.h"
#include "pack/os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char model[] = "models--";

static bool is_directory(const char *path, struct tp_err *err)
{
    struct stat st;
    return tp_os_there(path, &st, err) && S_ISDIR(st.st_mode);
}

static const char *value_of(const char *text)
{
    return text && *text ? text : NULL;
}

/* The folder with all downloads. */
static char *cache_folder(struct tp_err *err)
{
    const char *hub = value_of(getenv("HF_HUB_CACHE")), *home = value_of(getenv("HF_HOME")),
               *xdg = value_of(getenv("XDG_CACHE_HOME")), *user = value_of(getenv("HOME"));
    if (hub)
        return tp_os_copy(err, hub);
    if (home)
        return tp_os_format(err, "%s/hub", home);
    if (xdg)
        return tp_os_format(err, "%s/huggingface/hub", xdg);
    return tp_os_format(err, "%s/.cache/huggingface/hub", user ? user : "");
}

static size_t plain_length(const char *text)
{
    return strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");
}

/* Whether what follows ORG/NAME in an address leads to a page of one of the model's files. */
static bool is_file_page(const char *rest)
{
    return tp_begins_with(rest, "/blob/") || tp_begins_with(rest, "/resolve/");
}

/* Whether it leads to a page of the model: others are not the Hub's. */
static bool is_page(const char *rest)
{
    return !*rest || strchr("?#", *rest) || strcmp(rest, "/") == 0 ||
           tp_begins_with(rest, "/tree/") || is_file_page(rest);
}

/* "ORG/NAME" of what was typed, with its length; NULL: it is no name of the Hub. Of an address
 * the machine does not matter: there are mirrors. */
static const char *hub_name(const char *typed, size_t *length)
{
    const char *address = strstr(typed, "://");
    if (address) {
        bool short_form = address - typed == 2 && strncmp(typed, "hf", 2) == 0;
        typed = address + 3;
        if (!short_form) /* hf://ORG/NAME has no machine in it */
            typed += strcspn(typed, "/") + (strchr(typed, '/') != NULL);
    }
    size_t org = plain_length(typed);
    if (!org || typed[org] != '/' || typed[0] == '.')
        return NULL;
    size_t name = plain_length(typed + org + 1);
    const char *rest = typed + org + 1 + name;
    if (!name || typed[org + 1] == '.' || !(address ? is_page(rest) : !*rest))
        return NULL;
    *length = org + 1 + name;
    return memmem(typed, *length, ".safetensors", 12) ? NULL : typed; /* a file in a folder */
}

/* The first line of refs/main, in fresh memory; NULL: there is none. */
static char *main_revision(const char *folder, struct tp_err *err)
{
    char *path = tp_os_format(err, "%s/refs/main", folder), *text = NULL;
    struct tp_err ignored = {0};
    size_t size;
    if (path && tp_os_slurp(path, 4096, &text, &size, &ignored) == TP_OK)
        text[plain_length(text)] = '\0';
    tp_err_take_unread(err, &ignored);
    free(path);
    return text;
}

/* The only snapshot there is; NULL: none, or several. */
static char *only_snapshot(const char *folder, struct tp_err *err)
{
    struct tp_os_list list = {0};
    struct tp_err ignored = {0};
    char *path = tp_os_format(err, "%s/snapshots", folder), *found = NULL;
    if (path && tp_os_list(path, &list, &ignored) == TP_OK && list.count == 1)
        found = tp_os_format(err, "%s/%s", path, list.names[0]);
    tp_err_take_unread(err, &ignored);
    tp_os_list_free(&list);
    free(path);
    return found;
}

/* The snapshot to read of a folder "models--ORG--NAME". */
static char *snapshot_of(const char *folder, struct tp_err *err)
{
    char *revision = main_revision(folder, err);
    bool plain = revision && *revision && *revision != '.';
    char *path = plain ? tp_os_format(err, "%s/snapshots/%s", folder, revision) : NULL;
    free(revision);
    if (is_directory(path, err))
        return path;
    free(path);
    return only_snapshot(folder, err);
}

/* The last part of a path, without slashes behind it. */
static const char *base_of(const char *path, size_t *length)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
        continue;
    *length = end - begin;
    return path + begin;
}

char *tp_hub_name(const char *path, struct tp_err *err)
{
    const char *at = NULL;
    for (const char *next = path; (next = strstr(next, model)) != NULL; next++)
        if (next == path || next[-1] == '/')
            at = next;
    if (!at)
        return NULL;
    at += strlen(model);
    size_t size = strcspn(at, "/");
    char *name = tp_os_format(err, "%.*s", (int)size, at);
    char *dashes = name ? strstr(name, "--") : NULL;
    if (!dashes) { /* models of no organisation have one part */
        free(name);
        return NULL;
    }
    *dashes = '/';
    memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    return name;
}

/* A name beside the path that is like it, in fresh memory. */
static char *nearest(const char *typed, struct tp_err *err)
{
    size_t length;
    const char *base = base_of(typed, &length);
    char *parent = tp_os_format(err, "%.*s", (int)(base - typed), typed);
    char *wanted = tp_os_format(err, "%.*s", (int)length, base), *found = NULL;
    struct tp_os_list list = {0};
    struct tp_err ignored = {0};
    if (parent && wanted && tp_os_list(*parent ? parent : ".", &list, &ignored) == TP_OK) {
        struct tp_nearest near = {.typed = wanted};
        for (size_t i = 0; i < list.count; i++)
            tp_nearest_try(&near, list.names[i]);
        if (near.name)
            found = tp_os_format(err, "%s%s", parent, near.name);
    }
    tp_err_memory(err, &ignored);
    tp_os_list_free(&list);
    free(parent);
    free(wanted);
    return found;
}

static char *fail_missing(const char *typed, int sys, struct tp_err *err)
{
    size_t length;
    bool address = strstr(typed, "://") != NULL;
    const char *name = hub_name(typed, &length);
    char *near = address ? NULL : nearest(typed, err);
    tp_err_path(err, typed);
    if (near)
        tp_err_hint(err, "did you mean '%s'?", near);
    else if (name && is_file_page(name + length))
        tp_err_hint(err, "download the model first: hf download %.*s; then name it %.*s, or the "
                    "path of its file", (int)length, name, (int)length, name);
    else if (name)
        tp_err_hint(err, "download the model first: hf download %.*s; or correct the path",
                    (int)length, name);
    else if (address)
        tp_err_hint(err, "download it first, and name the .safetensors file or the checkpoint's "
                    "directory");
    else
        tp_err_hint(err, "check the path: a .safetensors file or a checkpoint's directory");
    if (address)
        tp_fail(err, TP_E_IO, "this is an address: tilepack reads files of this machine, and does "
                "no network");
    else
        tp_fail_sys(err, sys, "cannot open");
    free(near);
    return NULL;
}

/* What is there: a folder of the cache stands for its snapshot. */
static char *find_folder(const char *typed, struct tp_err *err)
{
    size_t length;
    const char *base = base_of(typed, &length);
    if (strncmp(base, model, strlen(model)) != 0)
        return tp_os_copy(err, typed);
    char *snapshots = tp_os_format(err, "%s/snapshots", typed), *found = NULL;
    if (!snapshots)
        return NULL;
    bool cached = is_directory(snapshots, err);
    free(snapshots);
    if (err->code)
        return NULL;
    if (!cached)
        return tp_os_copy(err, typed);
    if ((found = snapshot_of(typed, err)) || err->code)
        return found;
    tp_err_path(err, typed);
    tp_err_hint(err, "name one of them, or download the model again");
    tp_fail(err, TP_E_INPUT, "this folder of the Hub's cache has no refs/main that leads to one of "
            "its snapshots, and not just one of them");
    return NULL;
}

char *tp_hub_find(const char *typed, struct tp_err *err)
{
    struct stat st;
    size_t length;
    if (tp_os.stat(typed, &st) == 0)
        return S_ISDIR(st.st_mode) ? find_folder(typed, err) : tp_os_copy(err, typed);
    int sys = errno;
    const char *name = hub_name(typed, &length);
    bool model_itself = name && !is_file_page(name + length);
    char *cache = model_itself ? cache_folder(err) : NULL, *found = NULL;
    if (cache) {
        size_t org = strcspn(name, "/");
        char *folder = tp_os_format(err, "%s/%s%.*s--%.*s", cache, model, (int)org, name,
                                    (int)(length - org - 1), name + org + 1);
        found = folder ? snapshot_of(folder, err) : NULL;
        free(folder);
    }
    free(cache);
    return found || err->code ? found : fail_missing(typed, sys, err);
}
