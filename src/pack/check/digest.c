/* One SHA-256 for a file or a directory. Names are collected first, so that files can be
 * hashed side by side. Invariant: the result depends on names and bytes alone.
 */
#include "pack/check/digest.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, LINE_MARKS = 3 }; /* two spaces and a newline */

struct tree {
    struct tp_sha256_file *files; /* their paths begin with the root's */
    size_t count, capacity, root;
    struct tp_err *err;
};

static enum tp_code add_directory(struct tree *tree, const char *path, unsigned depth);

/* Takes over `path`. */
static enum tp_code add_path(struct tree *tree, char *path, unsigned depth)
{
    struct stat st;
    enum tp_code code = TP_OK;
    if (tp_os.stat(path, &st)) {
        code = tp_os_fail(tree->err, errno, path, "cannot look at it");
    } else if (S_ISDIR(st.st_mode)) {
        code = add_directory(tree, path, depth + 1);
    } else if (strpbrk(path + tree->root, "\n\r\\")) {
        tp_err_path(tree->err, path);
        tp_err_hint(tree->err, "rename it");
        code = tp_fail(tree->err, TP_E_INPUT, "a name with an end of line or a backslash has no "
                       "unambiguous line");
    } else if ((code = tp_os_grow((void **)&tree->files, &tree->capacity, tree->count + 1,
                                  sizeof *tree->files, tree->err)) == TP_OK) {
        tree->files[tree->count++] = (struct tp_sha256_file){.path = path};
        return TP_OK;
    }
    free(path);
    return code;
}

static enum tp_code add_directory(struct tree *tree, const char *path, unsigned depth)
{
    struct tp_os_list list = {0};
    if (depth > MAX_DEPTH) {
        tp_err_path(tree->err, path);
        tp_err_hint(tree->err, "a link may lead back into the directory");
        return tp_fail(tree->err, TP_E_INPUT, "folders are deeper than %d", MAX_DEPTH);
    }
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
    const struct tp_sha256_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

/* The digest of the list of all files. */
static enum tp_code hash_list(const struct tree *tree, struct tp_digest *digest)
{
    uint8_t of_list[TP_SHA256_BYTES];
    size_t size = 0, at = 0;
    for (size_t i = 0; i < tree->count; i++)
        size += TP_SHA256_TEXT - 1 + LINE_MARKS + strlen(tree->files[i].path + tree->root);
    char *text = tp_os_alloc(size + 1, tree->err);
    if (!text)
        return TP_E_MEMORY;
    for (size_t i = 0; i < tree->count; i++) {
        char digits[TP_SHA256_TEXT];
        tp_sha256_print(tree->files[i].digest, digits);
        at += (size_t)snprintf(text + at, size + 1 - at, "%s  %s\n", digits,
                               tree->files[i].path + tree->root);
    }
    tp_sha256(text, size, of_list);
    tp_sha256_print(of_list, digest->sha256);
    free(text);
    return TP_OK;
}

static enum tp_code hash_tree(struct tree *tree, bool directory, unsigned jobs, atomic_int *stop,
                              struct tp_digest *digest)
{
    if (!tree->count)
        return tp_fail(tree->err, TP_E_INPUT, "there is no file in it");
    qsort(tree->files, tree->count, sizeof *tree->files, by_path);
    enum tp_code code = tp_sha256_files(tree->files, tree->count, jobs, stop, tree->err);
    digest->files = tree->count;
    for (size_t i = 0; i < tree->count && code == TP_OK; i++)
        if (!tp_add_u64(&digest->bytes, digest->bytes, tree->files[i].size))
            code = tp_fail(tree->err, TP_E_UNSUPPORTED, "the files are too large together");
    if (code == TP_OK && directory)
        return hash_list(tree, digest);
    tp_sha256_print(tree->files[0].digest, digest->sha256);
    return code;
}

enum tp_code tp_digest_path(const char *path, unsigned jobs, atomic_int *stop,
                            struct tp_digest *digest, struct tp_err *err)
{
    struct stat st;
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    struct tree tree = {.root = size + 1, .err = err};
    *digest = (struct tp_digest){0};
    char *root = tp_os_join(err, path, size, "");
    bool directory = tp_os_there(root, &st, err) && S_ISDIR(st.st_mode);
    enum tp_code code = err->code;
    if (code == TP_OK && directory)
        code = add_directory(&tree, root, 0);
    else if (code == TP_OK && !(tree.files = tp_os_zalloc(1, sizeof *tree.files, err)))
        code = TP_E_MEMORY;
    else if (code == TP_OK)
        tree.files[tree.count++].path = tp_os_copy(err, root);
    if (code == TP_OK && (code = err->code) == TP_OK)
        code = hash_tree(&tree, directory, jobs, stop, digest);
    for (size_t i = 0; i < tree.count; i++)
        free(tree.files[i].path);
    free(tree.files);
    tp_err_path(code ? err : NULL, path);
    free(root);
    return code;
}
