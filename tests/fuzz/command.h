/* For fuzz targets: the whole command line on a folder of files, in this process.
 *
 * The input is a bundle of text: the arguments in one line, then files, each as
 *     \x01NAME\n  and its bytes, up to the next line that begins with \x01
 * A file NAME.safetensors that begins with '{' is a header in one line and the number of data
 * bytes in the next: so a change of the header leaves a file that can be opened. Arguments
 * and names stay inside of the folder.
 */
#ifndef TP_FUZZ_COMMAND_H
#define TP_FUZZ_COMMAND_H

#include "folder.h"

#include "base/suffix.h"

#include <ctype.h>
#include <jansson.h>
#include <stdbool.h>

int tilepack_main(int argc, char **argv); /* main() of src/cli/main.c */

enum { FUZZ_ARGS = 24, FUZZ_TENSOR_BYTES = 1 << 16 };

/* Once: what the program prints goes nowhere, one thread works. */
static inline void fuzz_command_start(void)
{
    if (*fuzz_path)
        return;
    fuzz_enter();
    json_object_seed(1);
    setenv("TILEPACK_JOBS", "1", 1);
    setenv("TILEPACK_DEVICE", "cpu", 1);
    stdout = fopen("/dev/null", "w");
    stderr = fopen("/dev/null", "w");
    must(stdout && stderr);
}

/* No way out of the folder, nothing that runs for minutes by order. */
static inline bool fuzz_harmless(const char *line)
{
    return !strchr(line, '/') && !strstr(line, "..") && !strstr(line, "bench") &&
           !strstr(line, " -j") && !strstr(line, "--jobs");
}

/* Runs one line of words: the exit status. */
static inline int fuzz_run(const char *line)
{
    char words[1024], *argv[FUZZ_ARGS + 2] = {(char[]){"tilepack"}}, *rest = NULL;
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word && argc <= FUZZ_ARGS;
         word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    int status = tilepack_main(argc, argv);
    must(status >= 0 && status <= 8);
    return status;
}

static inline bool fuzz_name(const char *name, size_t size)
{
    bool good = size > 0 && size < 100 && *name != '/' && !memmem(name, size, "..", 2);
    for (size_t i = 0; good && i < size; i++)
        good = isalnum((unsigned char)name[i]) || strchr("._-/", name[i]);
    return good && name[size - 1] != '/' && !memmem(name, size, "//", 2);
}

static inline void fuzz_file(const char *name, const char *data, size_t size)
{
    char path[100];
    struct stat st;
    strcpy(path, name);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    if (stat(name, &st) == 0 || strlen(name) > 90)
        return; /* the first one of a name counts */
    const char *line = size && *data == '{' && tp_ends_with(name, ".safetensors")
                           ? memrchr(data, '\n', size) : NULL;
    if (!line) {
        int fd = open(name, O_WRONLY | O_CREAT, 0666);
        if (fd < 0) /* a file is where a folder should be */
            return;
        close(fd);
        fuzz_write(name, data, size);
        return;
    }
    size_t rest = 0;
    for (const char *at = line + 1; at < data + size && isdigit((unsigned char)*at); at++)
        rest = (rest * 10 + (size_t)(*at - '0')) % FUZZ_TENSOR_BYTES;
    int fd = open(name, O_WRONLY | O_CREAT, 0666);
    if (fd < 0)
        return;
    close(fd);
    fuzz_write_tensors(name, data, (size_t)(line - data), rest);
}

/* Writes the files of a bundle into the empty folder; false where its names are no good.
 * `line` gets its arguments. */
static inline bool fuzz_unbundle(const uint8_t *data, size_t size, char line[1024])
{
    const char *at = (const char *)data, *end = at + size;
    const char *stop = memchr(at, '\n', size);
    if (!stop || stop - at >= 1000 || memchr(at, '\0', (size_t)(stop - at)))
        return false;
    memcpy(line, at, (size_t)(stop - at));
    line[stop - at] = '\0';
    for (at = stop + 1; at < end;) {
        const char *name = at + 1, *eol = memchr(name, '\n', (size_t)(end - at - 1));
        char path[100];
        if (*at != '\1' || !eol || !fuzz_name(name, (size_t)(eol - name)))
            return false;
        memcpy(path, name, (size_t)(eol - name));
        path[eol - name] = '\0';
        const char *next = memmem(eol, (size_t)(end - eol), "\n\1", 2);
        next = next == eol ? eol : next; /* an empty file */
        const char *last = next ? next : end;
        fuzz_file(path, eol + 1, last > eol ? (size_t)(last - eol - 1) : 0);
        at = next ? next + 1 : end;
    }
    return true;
}

/* A bundle on which the command line may publish `out`: what it publishes, `verify` finds
 * right; where it fails, nothing is published. */
static inline void fuzz_publishes(const uint8_t *data, size_t size, const char *command)
{
    char line[1024];
    struct stat st;
    fuzz_command_start();
    fuzz_empty();
    if (!fuzz_unbundle(data, size, line))
        return;
    bool before = stat("out", &st) == 0;
    int status = fuzz_run(command);
    if (before)
        return;
    bool published = stat("out/tilepack.json", &st) == 0;
    must((status == 0) == published);
    if (status == 0)
        must(fuzz_run("verify out --quiet") == 0);
}

#endif
