/* One SHA-256 for a file or a directory. Names are collected first, so that files can be
 * hashed side by side. Invariant: the result depends on names and bytes alone; links, which a
 * few can multiply without end, make the list no longer than MAX_LIST.
 */
#include "pack/check/digest.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 16,
    MAX_LIST = 256 << 20,
    LINE = TP_SHA256_TEXT - 1 + 3, /* but for the name: digits, two spaces and a newline */
};

struct tree {
    char **paths; /* they begin with the root's */
    size_t count, capacity, root;
    size_t size; /* of the list, with lines for folders */
    struct tp_err *err;
};

/* Whether the list has room for a line of this name. */
static enum tp_code reserve_line(struct tree *tree, const char *path)
{
    tree->size += LINE + strlen(path + tree->root);
    if (tree->size <= MAX_LIST)
        return TP_OK;
    return tp_refuse_at(tree->err, TP_E_INPUT, path,
                        "links to folders multiply what is below them: name another directory",
                        "the list of all files is longer than %d MiB", MAX_LIST >> 20);
}

static enum tp_code add_directory(struct tree *tree, const char *path, unsigned depth);

/* Takes over `path`, which may be NULL where memory was short. */
static enum tp_code add_file(struct tree *tree, char *path)
{
    if (path && tp_os_grow((void **)&tree->paths, &tree->capacity, tree->count + 1,
                           sizeof *tree->paths, tree->err) == TP_OK)
        tree->paths[tree->count++] = path;
    else
        free(path);
    return tree->err->code;
}

/* Takes over `path`. */
static enum tp_code add_path(struct tree *tree, char *path, unsigned depth)
{
    struct stat st;
    enum tp_code code = reserve_line(tree, path);
    if (code == TP_OK && tp_os.stat(path, &st)) {
        code = tp_os_fail(tree->err, errno, path, "cannot look at it");
    } else if (code == TP_OK && S_ISDIR(st.st_mode)) {
        code = add_directory(tree, path, depth + 1);
    } else if (code == TP_OK && strcmp(path + tree->root, "-") == 0) {
        code = tp_refuse_at(tree->err, TP_E_INPUT, path, "rename it",
                            "a file named '-' is the standard input to sha256sum");
    } else if (code == TP_OK && strpbrk(path + tree->root, "\n\r\\")) {
        code = tp_refuse_at(tree->err, TP_E_INPUT, path, "rename it",
                            "a name with an end of line or a backslash has no unambiguous line");
    } else if (code == TP_OK) {
        return add_file(tree, path);
    }
    free(path);
    return code;
}

static enum tp_code add_directory(struct tree *tree, const char *path, unsigned depth)
{
    struct tp_os_list list = {0};
    if (depth > MAX_DEPTH)
        return tp_refuse_at(tree->err, TP_E_INPUT, path, "a link may lead back into the directory",
                            "folders are deeper than %d", MAX_DEPTH);
    enum tp_code code = tp_os_list(path, &list, tree->err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        if (list.names[i][0] == '.')
            continue;
        char *item = tp_os_format(tree->err, "%s/%s", path, list.names[i]);
        code = item ? add_path(tree, item, depth) : TP_E_MEMORY;
    }
    tp_os_list_free(&list);
    return code;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The list of all files as it grows. */
struct list {
    const struct tree *tree;
    char *text;
    size_t size;
    struct tp_digest *digest;
};

static char *path_of(void *arg, size_t i, struct tp_err *err)
{
    const struct list *list = arg;
    return tp_os_copy(err, list->tree->paths[i]);
}

/* Appends the line of a file. */
static enum tp_code add_line(void *arg, size_t i, const struct tp_sha256_file *file,
                             struct tp_err *err)
{
    struct list *list = arg;
    struct tp_digest *digest = list->digest;
    if (file->err.code)
        return *err = file->err, err->code;
    tp_sha256_print(file->digest, digest->sha256);
    list->size += (size_t)sprintf(list->text + list->size, "%s  %s\n", digest->sha256,
                                  list->tree->paths[i] + list->tree->root);
    if (!tp_add_u64(&digest->bytes, digest->bytes, file->size))
        return tp_fail(err, TP_E_UNSUPPORTED, "the files are too large together");
    return TP_OK;
}

/* The digest of a directory is that of the list, of a file its own. */
static enum tp_code hash_tree(struct tree *tree, bool directory, unsigned jobs, atomic_int *stop,
                              struct tp_digest *digest)
{
    if (!tree->count)
        return tp_fail(tree->err, TP_E_INPUT, "there is no file in it");
    qsort(tree->paths, tree->count, sizeof *tree->paths, by_path);
    struct list list = {tree, tp_os_alloc(tree->size + 1, tree->err), 0, digest};
    struct tp_sha256_list files = {tree->count, &list, path_of, add_line};
    enum tp_code code = list.text ? tp_sha256_each(&files, jobs, stop, tree->err) : TP_E_MEMORY;
    digest->files = tree->count;
    if (code == TP_OK && directory) {
        uint8_t of_list[TP_SHA256_BYTES];
        tp_sha256(list.text, list.size, of_list);
        tp_sha256_print(of_list, digest->sha256);
    }
    free(list.text);
    return code;
}

enum tp_code tp_digest_path(const char *path, unsigned jobs, atomic_int *stop,
                            struct tp_digest *digest, struct tp_err *err)
{
    struct stat st;
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    struct tree tree = {.err = err};
    *digest = (struct tp_digest){0};
    char *root = tp_os_join(err, path, size, "");
    bool directory = tp_os_there(root, &st, err) && S_ISDIR(st.st_mode);
    enum tp_code code = err->code;
    tree.root = size + directory; /* a file has no name in its list, which is not hashed */
    if (code == TP_OK && directory)
        code = add_directory(&tree, root, 0);
    else if (code == TP_OK && (code = reserve_line(&tree, root)) == TP_OK)
        code = add_file(&tree, tp_os_copy(err, root));
    if (code == TP_OK)
        code = hash_tree(&tree, directory, jobs, stop, digest);
    for (size_t i = 0; i < tree.count; i++)
        free(tree.paths[i]);
    free(tree.paths);
    tp_err_path(code ? err : NULL, path);
    free(root);
    return code;
}
