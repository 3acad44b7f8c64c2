/* Directory trees for the tests: listing, comparing, clearing. Uses the C library
 * directly, so nothing here is counted or made to fail. */
#ifndef TEST_FAULT_TREE_H
#define TEST_FAULT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tree_file {
    char *name;
    bool directory;
    uint8_t *data; /* of a file */
    size_t size;
};

/* The entries of one directory, sorted by name, with contents; 0 when it is not there. */
size_t tree_list(const char *path, struct tree_file **files);
void tree_free(struct tree_file *files, size_t count);
void tree_write(const char *path, const void *data, size_t size);
void tree_copy(const char *from, const char *to); /* `to` is not there */
/* Removes everything below the directory, but not itself. */
void tree_clear(const char *path);
void tree_remove(const char *path); /* a file or a directory, if it is there */
bool tree_exists(const char *path);
/* What is different first, or NULL when both (directories, with those in them, or files) are
 * equal. Files whose names begin with `except` may be there on the left side in addition. */
const char *tree_difference(const char *left, const char *right, const char *except);

#endif
