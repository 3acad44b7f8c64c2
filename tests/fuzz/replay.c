/* Runs fuzz targets on files, for compilers without libFuzzer: replay TARGET FILE ...
 * Each file is one input; the process ends with a signal where the target finds a fault.
 *
 * TARGETS lists all of them as X(name), and each one's LLVMFuzzerTestOneInput() is compiled
 * as fuzz_NAME_input(): see the Makefile. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int target_input(const uint8_t *data, size_t size);

#define X(name) target_input fuzz_##name##_input;
TARGETS
#undef X

static const struct {
    const char *name;
    target_input *input;
} targets[] = {
#define X(name) {#name, fuzz_##name##_input},
    TARGETS
#undef X
};

static int run(target_input *input, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        perror(path);
        return 1;
    }
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (size < 0 || !data || fread(data, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        return 1;
    }
    fclose(file);
    input(data, (size_t)size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    target_input *input = NULL;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (argc < 2)
            puts(targets[i].name);
        else if (strcmp(argv[1], targets[i].name) == 0)
            input = targets[i].input;
    }
    if (argc > 1 && !input) {
        fprintf(stderr, "replay: there is no target %s\n", argv[1]);
        return 2;
    }
    int status = 0;
    char here[4096], path[8192];
    if (!getcwd(here, sizeof here)) /* a target may work in a folder of its own */
        return 1;
    for (int i = 2; i < argc && !status; i++) {
        snprintf(path, sizeof path, "%s%s%s", *argv[i] == '/' ? "" : here,
                 *argv[i] == '/' ? "" : "/", argv[i]);
        status = run(input, path);
    }
    return status;
}
