/* Fuzz target: what a user typed, and a cache of the Hub.
 *
 * An input is lines: what was typed; the text of refs/main, without the end of its line; then
 * folders below the cache. Beyond not crashing: what is found is there, and what leads into the
 * cache is a folder of the model that it is said to be. Build: make fuzz.
 */
#include "folder.h"

#include "pack/source/hub.h"

#define MODEL "hub/models--acme--tiny"

/* The path without what leads out of the folder or to too many. */
static int is_below(const char *path)
{
    return *path && *path != '/' && !strstr(path, "..") && strlen(path) < 200;
}

static void make_folders(char *path)
{
    for (char *slash = path; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
    mkdir(path, 0777);
}

static void make_cache(const char *refs, char *rest)
{
    static const char *const always[] = {MODEL "/refs", MODEL "/snapshots/0123abc/sub"};
    char path[300];
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) {
        snprintf(path, sizeof path, "%s", always[i]);
        make_folders(path);
    }
    fuzz_write(MODEL "/refs/main", refs, strlen(refs));
    for (char *line = rest, *next; line && *line; line = next) {
        if ((next = strchr(line, '\n')) != NULL)
            *next++ = '\0';
        snprintf(path, sizeof path, MODEL "/%s", line);
        if (is_below(line))
            make_folders(path);
    }
}

static void check_found(const char *typed, const char *found)
{
    struct stat st;
    struct tp_err err = {0};
    must(stat(found, &st) == 0);
    must(strcmp(found, typed) == 0 || S_ISDIR(st.st_mode));
    char *name = tp_hub_name(found, &err), *download = tp_hub_download(found, &err);
    must(!err.code && !name == !download);
    must(!name || strncmp(name, download, strlen(name)) == 0);
    must(strncmp(found, MODEL, strlen(MODEL)) != 0 || name);
    free(name);
    free(download);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tp_err err = {0};
    char *text = strndup((const char *)data, size), *rest[3] = {text};
    must(text != NULL);
    for (int i = 1; i < 3; i++)
        if ((rest[i] = rest[i - 1] ? strchr(rest[i - 1], '\n') : NULL) != NULL)
            *rest[i]++ = '\0';
    if (!*fuzz_path)
        fuzz_enter();
    setenv("HF_HUB_CACHE", "hub", 1);
    make_cache(rest[1] ? rest[1] : "", rest[2]);
    char *found = tp_hub_find(text, &err);
    must(!found == (err.code != TP_OK));
    if (found)
        check_found(text, found);
    else
        must(err.what[0] && err.hint[0] && strncmp(err.path, text, strlen(err.path)) == 0);
    free(found);
    free(text);
    fuzz_empty();
    return 0;
}
