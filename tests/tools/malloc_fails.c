/* A library to be preloaded: makes the N-th allocation of the process fail, whoever asks.
 *
 * MALLOC_FAILS_AT=N fails the N-th call, and with MALLOC_FAILS_ON all that follow. With
 * MALLOC_FAILS_COUNT=FILE the number of calls that there were is written there. What is allocated
 * before main() does not count: that is the dynamic linker's and, in a program with CUDA, the
 * runtime's, which dies of a failure.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The C library's own functions under the names that it exports for this purpose. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_ulong calls;
static unsigned long chosen;
static const char *count_file;
static int counting, on;

static int fails(void)
{
    if (!counting)
        return 0;
    unsigned long call = atomic_fetch_add(&calls, 1) + 1;
    if (!chosen || call < chosen || (call > chosen && !on))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails() ? NULL : __libc_realloc(old, size); }
void *memalign(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    void *made = memalign(alignment, size);
    if (!made)
        return ENOMEM;
    *memory = made;
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *at = getenv("MALLOC_FAILS_AT");
    on = getenv("MALLOC_FAILS_ON") != NULL;
    chosen = at ? strtoul(at, NULL, 10) : 0;
    count_file = getenv("MALLOC_FAILS_COUNT");
}

typedef int main_fn(int, char **, char **);
typedef int start_main_fn(main_fn *, int, char **, void (*)(void), void (*)(void),
                          void (*)(void), void *);
static main_fn *program;

static int counted_main(int argc, char **argv, char **env)
{
    counting = 1;
    return program(argc, argv, env);
}

/* What the program's first instructions call: with another main(). */
int __libc_start_main(main_fn *main, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*linker_fini)(void), void *stack)
{
    start_main_fn *real;
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    program = main;
    return real(counted_main, argc, argv, init, fini, linker_fini, stack);
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    if (!count_file)
        return;
    counting = 0;
    int fd = open(count_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int size = snprintf(text, sizeof text, "%lu\n", atomic_load(&calls));
    if (fd < 0 || write(fd, text, (size_t)size) != size)
        _exit(99);
    close(fd);
}
