/* The Hub's cache: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. In it "models--ORG--NAME" has "refs/main", a text with the name of a
 * folder in "snapshots". Opens nothing of a checkpoint. Invariant: the address of a branch is
 * answered with it or not at all, never with another one of the model.
 */
#include "pack/source/hub.h"

#include "base/suffix.h"
#include "pack/os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char model[] = "models--";

/* A name that is too long is that of nothing. */
static bool is_directory(const char *path, struct tp_err *err)
{
    struct stat st;
    struct tp_err why = {0};
    bool there = tp_os_there(path, &st, &why);
    if (why.code && why.sys != ENAMETOOLONG && !err->code)
        *err = why;
    return there && S_ISDIR(st.st_mode);
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
    if (!hub)
        hub = value_of(getenv("HUGGINGFACE_HUB_CACHE")); /* its name of long ago */
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

/* What the name or address of a model says. */
struct hub_name {
    const char *name; /* "ORG/NAME", in what was typed */
    size_t length;
    bool main; /* it is the page of that branch */
};

/* Whether what follows ORG/NAME in an address still means the model. The address of another branch,
 * of a folder or a file means something else. */
static bool read_page(const char *rest, struct hub_name *hub)
{
    size_t path = strcspn(rest, "?#");
    hub->main = path == strlen("/tree/main") && tp_begins_with(rest, "/tree/main");
    return hub->main || path == 0 || (path == 1 && *rest == '/');
}

/* Of an address the machine does not matter: there are mirrors. False: it is no name of the Hub. */
static bool read_name(const char *typed, struct hub_name *hub)
{
    const char *address = strstr(typed, "://");
    *hub = (struct hub_name){0};
    if (address) {
        bool short_form = address - typed == 2 && strncmp(typed, "hf", 2) == 0;
        typed = address + 3;
        if (!short_form) /* hf://ORG/NAME has no machine in it */
            typed += strcspn(typed, "/") + (strchr(typed, '/') != NULL);
    }
    size_t org = plain_length(typed);
    if (!org || typed[org] != '/' || typed[0] == '.')
        return false;
    size_t name = plain_length(typed + org + 1);
    const char *rest = typed + org + 1 + name;
    if (!name || typed[org + 1] == '.' || !(address ? read_page(rest, hub) : !*rest))
        return false;
    hub->name = typed;
    hub->length = org + 1 + name;
    return !memmem(typed, hub->length, ".safetensors", 12); /* a file in a folder */
}

/* The text of refs/main, less the end of its line, in fresh memory; NULL: there is none. One
 * with more in it is the name of nothing. */
static char *main_of(const char *folder, struct tp_err *err)
{
    char *path = tp_os_format(err, "%s/refs/main", folder), *text = NULL;
    struct tp_err ignored = {0};
    size_t size;
    if (path && tp_os_slurp(path, 4096, &text, &size, &ignored) == TP_OK) {
        size_t line = strcspn(text, "\r\n");
        text[line + strspn(text + line, "\r\n") == size ? line : 0] = '\0';
    }
    tp_err_take_unread(err, &ignored);
    free(path);
    return text;
}

/* The snapshot of that name; NULL: there is none. */
static char *snapshot_named(const char *folder, const char *commit, struct tp_err *err)
{
    bool plain = *commit && *commit != '.' && !commit[plain_length(commit)];
    char *path = plain ? tp_os_format(err, "%s/snapshots/%s", folder, commit) : NULL;
    if (path && is_directory(path, err))
        return path;
    free(path);
    return NULL;
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

/* The snapshot to read of a folder "models--ORG--NAME". Of a refs/main whose snapshot is not there
 * any other would be another version of the model. */
static char *usual_snapshot(const char *folder, bool main, struct tp_err *err)
{
    char *commit = main_of(folder, err), *found = NULL;
    if (commit && *commit)
        found = snapshot_named(folder, commit, err);
    else if (!err->code && !main)
        found = only_snapshot(folder, err);
    free(commit);
    return found;
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

/* Where ORG--NAME begins in the path, or NULL. */
static const char *model_in(const char *path)
{
    const char *at = NULL;
    for (const char *next = path; (next = strstr(next, model)) != NULL; next++)
        if (next == path || next[-1] == '/')
            at = next;
    return at ? at + strlen(model) : NULL;
}

char *tp_hub_name(const char *path, struct tp_err *err)
{
    const char *at = model_in(path);
    if (!at)
        return NULL;
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

char *tp_hub_download(const char *path, struct tp_err *err)
{
    static const char snapshots[] = "/snapshots/";
    char *name = tp_hub_name(path, err);
    if (!name)
        return NULL;
    const char *at = model_in(path), *end = at + strcspn(at, "/");
    const char *commit = strncmp(end, snapshots, strlen(snapshots)) == 0 ? end + strlen(snapshots)
                                                                         : "";
    size_t size = plain_length(commit);
    char *folder = tp_os_format(err, "%.*s", (int)(end - path), path);
    char *usual = folder ? main_of(folder, err) : NULL;
    bool other = size && (!commit[size] || commit[size] == '/') &&
                 (!usual || strlen(usual) != size || strncmp(usual, commit, size) != 0);
    char *what = err->code ? NULL
                           : tp_os_format(err, "%s%s%.*s", name, other ? " --revision " : "",
                                          other ? (int)size : 0, commit);
    free(name);
    free(folder);
    free(usual);
    return what;
}

static char *fail_missing(const char *typed, int sys, struct tp_err *err)
{
    struct hub_name hub;
    bool address = strstr(typed, "://") != NULL, named = read_name(typed, &hub);
    tp_err_path(err, typed);
    if (named)
        tp_err_hint(err, "download the model first: hf download %.*s; or correct the path",
                    (int)hub.length, hub.name);
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
    if ((found = usual_snapshot(typed, false, err)) || err->code)
        return found;
    tp_err_path(err, typed);
    tp_err_hint(err, "name one of them, or download the model again");
    tp_fail(err, TP_E_INPUT, "this folder of the Hub's cache has no refs/main that leads to one of "
            "its snapshots, or none and not just one of them");
    return NULL;
}

/* What a name leads to in the cache; NULL: it is not there. */
static char *find_cached(const struct hub_name *hub, struct tp_err *err)
{
    char *cache = cache_folder(err);
    size_t org = strcspn(hub->name, "/");
    char *model_folder = cache ? tp_os_format(err, "%s/%s%.*s--%.*s", cache, model, (int)org,
                                              hub->name, (int)(hub->length - org - 1),
                                              hub->name + org + 1) : NULL;
    char *found = model_folder ? usual_snapshot(model_folder, hub->main, err) : NULL;
    free(cache);
    free(model_folder);
    return found;
}

char *tp_hub_find(const char *typed, struct tp_err *err)
{
    struct stat st;
    struct hub_name hub;
    if (tp_os.stat(typed, &st) == 0)
        return S_ISDIR(st.st_mode) ? find_folder(typed, err) : tp_os_copy(err, typed);
    int sys = errno;
    char *found = read_name(typed, &hub) ? find_cached(&hub, err) : NULL;
    return found || err->code ? found : fail_missing(typed, sys, err);
}
