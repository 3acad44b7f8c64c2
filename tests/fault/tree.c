#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static void read_whole(const char *path, struct tree_file *file)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        abort();
    file->size = (size_t)st.st_size;
    file->data = must(malloc(file->size + 1));
    for (size_t at = 0; at < file->size;) {
        ssize_t got = read(fd, file->data + at, file->size - at);
        if (got <= 0)
            abort();
        at += (size_t)got;
    }
    close(fd);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tree_file *)a)->name, ((const struct tree_file *)b)->name);
}

size_t tree_list(const char *path, struct tree_file **files)
{
    size_t count = 0, room = 0;
    struct dirent *entry;
    DIR *dir = opendir(path);
    *files = NULL;
    while (dir && (entry = readdir(dir))) {
        struct stat st;
        char below[4096];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (count == room)
            *files = must(realloc(*files, (room = room ? 2 * room : 16) * sizeof **files));
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (lstat(below, &st))
            abort();
        struct tree_file *file = &(*files)[count++];
        *file = (struct tree_file){must(strdup(entry->d_name)), S_ISDIR(st.st_mode), NULL, 0};
        if (!file->directory)
            read_whole(below, file);
    }
    if (dir)
        closedir(dir);
    if (count)
        qsort(*files, count, sizeof **files, by_name);
    return count;
}

void tree_free(struct tree_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(files[i].name);
        free(files[i].data);
    }
    free(files);
}

void tree_write(const char *path, const void *data, size_t size)
{
    FILE *file = must(fopen(path, "wb"));
    if ((size && fwrite(data, 1, size, file) != size) || fclose(file))
        abort();
}

void tree_remove(const char *path)
{
    struct stat st;
    if (lstat(path, &st))
        return;
    if (S_ISDIR(st.st_mode)) {
        tree_clear(path);
        rmdir(path);
    } else {
        unlink(path);
    }
}

void tree_copy(const char *from, const char *to)
{
    struct tree_file *files;
    struct stat st;
    if (lstat(from, &st))
        abort();
    if (!S_ISDIR(st.st_mode)) {
        struct tree_file file;
        read_whole(from, &file);
        tree_write(to, file.data, file.size);
        free(file.data);
        return;
    }
    if (mkdir(to, 0777))
        abort();
    size_t count = tree_list(from, &files);
    for (size_t i = 0; i < count; i++) {
        char path[4096], target[4096];
        snprintf(path, sizeof path, "%s/%s", from, files[i].name);
        snprintf(target, sizeof target, "%s/%s", to, files[i].name);
        tree_copy(path, target);
    }
    tree_free(files, count);
}

void tree_clear(const char *path)
{
    struct tree_file *files;
    size_t count = tree_list(path, &files);
    for (size_t i = 0; i < count; i++) {
        char below[4096];
        snprintf(below, sizeof below, "%s/%s", path, files[i].name);
        tree_remove(below);
    }
    tree_free(files, count);
}

bool tree_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static const char *compare_files(const struct tree_file *a, size_t count_a,
                                 const struct tree_file *b, size_t count_b, const char *except)
{
    static char text[512];
    size_t i = 0, j = 0;
    while (i < count_a || j < count_b) {
        int order = i == count_a ? 1 : j == count_b ? -1 : strcmp(a[i].name, b[j].name);
        const char *name = order <= 0 ? a[i].name : b[j].name;
        bool same = order == 0 && a[i].directory == b[j].directory && a[i].size == b[j].size &&
                    (!a[i].size || memcmp(a[i].data, b[j].data, a[i].size) == 0);
        bool excused = order < 0 && except && strncmp(name, except, strlen(except)) == 0;
        if (!same && !excused) {
            snprintf(text, sizeof text, "%.300s %s", name,
                     order < 0 ? "is there too much" : order > 0 ? "is missing" : "differs");
            return text;
        }
        i += order <= 0;
        j += order >= 0;
    }
    return NULL;
}

/* What differs in the directories of both, which have the same names. */
static const char *compare_below(const char *left, const char *right,
                                 const struct tree_file *files, size_t count, const char *except)
{
    const char *found = NULL;
    for (size_t i = 0; i < count && !found; i++) {
        char a[4096], b[4096];
        snprintf(a, sizeof a, "%s/%s", left, files[i].name);
        snprintf(b, sizeof b, "%s/%s", right, files[i].name);
        if (files[i].directory)
            found = tree_difference(a, b, except);
    }
    return found;
}

const char *tree_difference(const char *left, const char *right, const char *except)
{
    struct stat a_st, b_st;
    struct tree_file *a, *b;
    if (lstat(left, &a_st) || lstat(right, &b_st))
        return "one side is missing";
    if (S_ISDIR(a_st.st_mode) != S_ISDIR(b_st.st_mode))
        return "one side is a file, the other a directory";
    if (!S_ISDIR(a_st.st_mode)) {
        struct tree_file x = {.name = (char *)"the file"}, y = x;
        read_whole(left, &x);
        read_whole(right, &y);
        const char *found = compare_files(&x, 1, &y, 1, NULL);
        free(x.data);
        free(y.data);
        return found;
    }
    size_t count_a = tree_list(left, &a), count_b = tree_list(right, &b);
    const char *found = compare_files(a, count_a, b, count_b, except);
    if (!found)
        found = compare_below(left, right, b, count_b, except);
    tree_free(a, count_a);
    tree_free(b, count_b);
    return found;
}
