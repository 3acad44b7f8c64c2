/* The wrappers of pack/os.h: short transfers, interruptions, failures, limits. */
#include "pack/os/below.h"
#include "pack/os/machine.h"
#include "pack/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[4096];
static struct tp_os saved;

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tp-os-XXXXXX", base && *base ? base : P_tmpdir);
    saved = tp_os;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    tp_os = saved;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *in_folder(const char *name)
{
    static char path[2][5000];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void make_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* pread and pwrite that move one byte at a time and are interrupted in between. */
static int transfers;

static ssize_t slow_pread(int fd, void *data, size_t size, off_t offset)
{
    if (transfers++ % 2) {
        errno = EINTR;
        return -1;
    }
    return pread(fd, data, size ? 1 : 0, offset);
}

static ssize_t slow_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    if (transfers++ % 2) {
        errno = EINTR;
        return -1;
    }
    return pwrite(fd, data, size ? 1 : 0, offset);
}

static void test_transfers(void **state)
{
    (void)state;
    const char *path = in_folder("slow");
    struct tp_err err = {0};
    char text[12] = {0};
    int fd;
    tp_os.pread = slow_pread;
    tp_os.pwrite = slow_pwrite;
    assert_int_equal(tp_os_open(path, O_RDWR | O_CREAT, 0600, &fd, &err), TP_OK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(tp_os_write(fd, "hello world", 11, 3, path, &err), TP_OK);
    assert_int_equal(tp_os_read(fd, text, 11, 3, path, &err), TP_OK);
    assert_string_equal(text, "hello world");
    assert_true(transfers >= 40);
    assert_int_equal(tp_os_read(fd, text, 0, 1000, path, &err), TP_OK);
    /* Beyond the end: the first byte that is missing is named. */
    assert_int_equal(tp_os_read(fd, text, 5, 10, path, &err), TP_E_INPUT);
    assert_non_null(strstr(err.what, "truncated: the file ends 1 bytes too early"));
    assert_int_equal(err.offset - 1, 14);
    assert_string_equal(err.path, path);
    tp_os_close(&fd);
    assert_int_equal(fd, -1);
    tp_os_close(&fd);
    tp_os = saved;
}

static int sys_error;

static ssize_t bad_pread(int fd, void *data, size_t size, off_t offset)
{
    (void)fd, (void)data, (void)size, (void)offset;
    errno = sys_error;
    return -1;
}

static ssize_t bad_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    (void)fd, (void)data, (void)size, (void)offset;
    errno = sys_error;
    return sys_error ? -1 : 0;
}

static int bad_fsync(int fd)
{
    (void)fd;
    errno = sys_error;
    return -1;
}

static int interrupted_fsync(int fd)
{
    (void)fd;
    errno = EINTR;
    return sys_error-- > 0 ? -1 : 0;
}

static void test_failures(void **state)
{
    (void)state;
    struct tp_err err = {0};
    char byte;
    tp_os.pread = bad_pread;
    tp_os.pwrite = bad_pwrite;
    tp_os.fsync = bad_fsync;
    sys_error = EIO;
    assert_int_equal(tp_os_read(0, &byte, 1, 7, "f", &err), TP_E_IO);
    assert_int_equal(err.sys, EIO);
    assert_int_equal(err.offset, 8);
    assert_string_equal(err.path, "f");
    err = (struct tp_err){0};
    sys_error = ENOSPC;
    assert_int_equal(tp_os_write(0, "x", 1, 7, "f", &err), TP_E_IO);
    assert_int_equal(err.sys, ENOSPC);
    assert_non_null(strstr(err.hint, "make room"));
    err = (struct tp_err){0};
    sys_error = 0; /* a write that moves nothing and says nothing must not loop */
    assert_int_equal(tp_os_write(0, "x", 1, 7, "f", &err), TP_E_IO);
    err = (struct tp_err){0};
    sys_error = EIO;
    assert_int_equal(tp_os_fsync(0, "f", &err), TP_E_IO);
    assert_int_equal(err.sys, EIO);
    err = (struct tp_err){0};
    assert_int_equal(tp_os_fsync_dir(folder, &err), TP_E_IO);
    err = (struct tp_err){0};
    sys_error = EINVAL; /* a file system that cannot flush directories */
    assert_int_equal(tp_os_fsync_dir(folder, &err), TP_OK);
    tp_os.fsync = interrupted_fsync;
    sys_error = 3;
    assert_int_equal(tp_os_fsync(0, "f", &err), TP_OK);
    sys_error = 3;
    assert_int_equal(tp_os_fsync_dir(folder, &err), TP_OK);
    tp_os = saved;
    /* Positions that off_t cannot say. */
    err = (struct tp_err){0};
    assert_int_equal(tp_os_read(0, &byte, 1, INT64_MAX, "f", &err), TP_E_IO);
    err = (struct tp_err){0};
    assert_int_equal(tp_os_write(0, &byte, 2, UINT64_MAX, "f", &err), TP_E_IO);
    assert_int_equal(err.sys, EOVERFLOW);
}

static int opens;

static int picky_open(const char *path, int flags, mode_t mode)
{
    errno = opens++ ? sys_error : EINTR;
    return errno ? -1 : open(path, flags, mode);
}

static int full_once(const char *path, int flags, mode_t mode)
{
    errno = EMFILE;
    return opens++ ? open(path, flags, mode) : -1;
}

static int no_room(const char *from, const char *to)
{
    (void)from, (void)to;
    errno = ENOMEM;
    return -1;
}

static void test_system_out_of_memory(void **state)
{
    (void)state;
    struct tp_err err = {0}, bare = {0};
    tp_os.rename = no_room;
    assert_int_equal(tp_os_rename("a", "b", &err), TP_E_MEMORY);
    tp_os = saved;
    assert_string_equal(err.what, "cannot rename to 'b': out of memory");
    assert_int_equal(tp_fail_sys(&bare, ENOMEM, "cannot look"), TP_E_MEMORY);
    assert_int_equal(tp_fail_sys(NULL, ENOMEM, "cannot look"), TP_E_MEMORY);
    assert_int_equal(tp_fail_sys(NULL, EIO, "cannot look"), TP_E_IO);
}

static void test_names(void **state)
{
    (void)state;
    struct tp_err err = {0};
    int fd;
    tp_os.open = picky_open;
    opens = sys_error = 0;
    assert_int_equal(tp_os_open(folder, O_RDONLY, 0, &fd, &err), TP_OK); /* after EINTR */
    tp_os_close(&fd);
    sys_error = EACCES;
    assert_int_equal(tp_os_open(folder, O_RDONLY, 0, &fd, &err), TP_E_IO);
    assert_non_null(strstr(err.hint, "permissions"));
    err = (struct tp_err){0};
    tp_os = saved;
    assert_int_equal(tp_os_open(in_folder("none"), O_RDONLY, 0, &fd, &err), TP_E_IO);
    assert_int_equal(fd, -1);
    assert_int_equal(err.sys, ENOENT);
    assert_string_equal(err.hint, "check the path (a link that leads nowhere counts as missing)");
    err = (struct tp_err){0};
    assert_int_equal(tp_os_mkdir(in_folder("dir"), 0777, &err), TP_OK);
    assert_int_equal(tp_os_mkdir(in_folder("dir"), 0777, &err), TP_E_IO);
    assert_int_equal(err.sys, EEXIST);
    err = (struct tp_err){0};
    make_file("old", "1");
    make_file("new", "2");
    assert_int_equal(tp_os_rename(in_folder("new"), in_folder("old"), &err), TP_OK);
    assert_int_equal(tp_os_rename(in_folder("new"), in_folder("old"), &err), TP_E_IO);
    assert_non_null(strstr(err.what, "cannot rename to"));
    assert_non_null(strstr(err.path, "/new"));
    err = (struct tp_err){0};
    assert_int_equal(tp_os_fsync_dir(in_folder("old"), &err), TP_E_IO);
    assert_int_equal(err.sys, ENOTDIR);
}

static void test_regular(void **state)
{
    (void)state;
    struct tp_err err = {0};
    struct stat st;
    int fd;
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    alarm(10); /* a pipe without a writer must not hang the open */
    assert_int_equal(tp_os_open_regular(in_folder("pipe"), 0, &fd, &st, &err), TP_E_INPUT);
    alarm(0);
    assert_int_equal(fd, -1);
    assert_non_null(strstr(err.what, "not a regular file"));
    err = (struct tp_err){0};
    assert_int_equal(tp_os_open_regular(folder, 0, &fd, &st, &err), TP_E_INPUT);
    err = (struct tp_err){0};
    make_file("file", "abc");
    assert_int_equal(symlink("file", in_folder("link")), 0);
    assert_int_equal(tp_os_open_regular(in_folder("link"), 0, &fd, &st, &err), TP_OK);
    assert_int_equal(st.st_size, 3);
    tp_os_close(&fd);
    assert_int_equal(tp_os_open_regular(in_folder("link"), O_NOFOLLOW, &fd, &st, &err), TP_E_IO);
    assert_int_equal(err.sys, ELOOP);
}

static void test_slurp(void **state)
{
    (void)state;
    struct tp_err err = {0};
    char *data;
    size_t size;
    make_file("text", "0123456789");
    assert_int_equal(tp_os_slurp(in_folder("text"), 10, &data, &size, &err), TP_OK);
    assert_int_equal(size, 10);
    assert_string_equal(data, "0123456789");
    free(data);
    assert_int_equal(tp_os_slurp(in_folder("text"), 9, &data, &size, &err), TP_E_INPUT);
    assert_non_null(strstr(err.what, "10 bytes, where at most 9"));
    assert_null(data);
    err = (struct tp_err){0};
    make_file("empty", "");
    assert_int_equal(tp_os_slurp(in_folder("empty"), 0, &data, &size, &err), TP_OK);
    assert_string_equal(data, "");
    free(data);
    assert_int_equal(tp_os_slurp(in_folder("none"), 10, &data, &size, &err), TP_E_IO);
}

static void test_list(void **state)
{
    (void)state;
    struct tp_err err = {0};
    struct tp_os_list list;
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
    make_file("sub/b", "");
    make_file("sub/.a", "");
    make_file("sub/a b", "");
    assert_int_equal(symlink("nowhere", in_folder("sub/c")), 0);
    assert_int_equal(tp_os_list(in_folder("sub"), &list, &err), TP_OK);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.names[0], ".a");
    assert_string_equal(list.names[1], "a b");
    assert_string_equal(list.names[2], "b");
    assert_string_equal(list.names[3], "c");
    tp_os_list_free(&list);
    tp_os_list_free(&list);
    assert_int_equal(tp_os_list(in_folder("none"), &list, &err), TP_E_IO);
    assert_int_equal(list.count, 0);
    static const char *const made[] = {"sub/b", "sub/.a", "sub/a b", "sub/c"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(remove(in_folder(made[i])), 0);
}

static void test_inside(void **state)
{
    (void)state;
    struct tp_err err = {0};
    char *real;
    assert_int_equal(mkdir(in_folder("root"), 0700), 0);
    make_file("root/file", "");
    make_file("rootless", "");
    assert_int_equal(symlink("file", in_folder("root/in")), 0);
    assert_int_equal(symlink("../rootless", in_folder("root/out")), 0);
    assert_int_equal(symlink("none", in_folder("root/none")), 0);
    assert_int_equal(tp_os_inside(in_folder("root"), in_folder("root/in"), &real, &err), TP_OK);
    assert_string_equal(real + strlen(real) - strlen("root/file"), "root/file");
    free(real);
    assert_int_equal(tp_os_inside("/", in_folder("root/out"), &real, &err), TP_OK);
    free(real);
    assert_int_equal(tp_os_inside(in_folder("root"), in_folder("root/out"), &real, &err),
                     TP_E_INPUT);
    assert_null(real);
    assert_non_null(strstr(err.what, "a link leads out of the directory, to '"));
    err = (struct tp_err){0};
    assert_int_equal(tp_os_inside(in_folder("root"), in_folder("root/none"), &real, &err),
                     TP_E_IO);
    err = (struct tp_err){0};
    assert_int_equal(tp_os_inside(in_folder("absent"), folder, &real, &err), TP_E_IO);
    static const char *const made[] = {"root/file", "root/in", "root/out", "root/none"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(remove(in_folder(made[i])), 0);
}

/* A process at its soft limit of descriptors opens more by raising it. */
static void test_descriptors(void **state)
{
    (void)state;
    struct rlimit limit, low;
    struct tp_err err = {0};
    enum { COUNT = 60 };
    int fds[COUNT], opened = 0;
    make_file("f", "x");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 32;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (; opened < COUNT; opened++)
        if (tp_os_open(in_folder("f"), O_RDONLY, 0, &fds[opened], &err))
            break;
    struct rlimit now;
    getrlimit(RLIMIT_NOFILE, &now);
    /* A directory, too. */
    setrlimit(RLIMIT_NOFILE, &low);
    struct tp_os_list list;
    tp_os.open = full_once;
    opens = 0;
    assert_int_equal(tp_os_list(folder, &list, &err), TP_OK);
    tp_os_list_free(&list);
    tp_os = saved;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < opened; i++)
        tp_os_close(&fds[i]);
    assert_int_equal(opened, COUNT);
    assert_int_equal(now.rlim_cur, limit.rlim_max);
}

static int full_open(const char *path, int flags, mode_t mode)
{
    (void)path, (void)flags, (void)mode;
    errno = EMFILE;
    return -1;
}

static void test_descriptors_end(void **state)
{
    (void)state;
    struct rlimit limit;
    struct tp_err err = {0};
    int fd;
    getrlimit(RLIMIT_NOFILE, &limit);
    tp_os.open = full_open;
    assert_int_equal(tp_os_open("f", O_RDONLY, 0, &fd, &err), TP_E_IO);
    tp_os = saved;
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(err.sys, EMFILE);
    assert_non_null(strstr(err.hint, "ulimit -n"));
}

static void *no_malloc(size_t size)
{
    (void)size;
    return NULL;
}

static void test_memory(void **state)
{
    (void)state;
    struct tp_err err = {0};
    void *items = NULL;
    size_t capacity = 0;
    for (size_t need = 1; need <= 1000; need++) {
        assert_int_equal(tp_os_grow(&items, &capacity, need, 8, &err), TP_OK);
        assert_true(capacity >= need && capacity <= 2 * need + 8);
        ((uint64_t *)items)[need - 1] = need;
    }
    assert_int_equal(((uint64_t *)items)[0], 1);
    assert_int_equal(tp_os_grow(&items, &capacity, SIZE_MAX / 4, 8, &err), TP_E_MEMORY);
    assert_int_equal(capacity, 1024); /* and the array is still there */
    assert_int_equal(((uint64_t *)items)[999], 1000);
    free(items);
    void *empty = tp_os_alloc(0, NULL);
    assert_non_null(empty);
    free(empty);
    err = (struct tp_err){0};
    assert_null(tp_os_zalloc(SIZE_MAX, 2, &err));
    assert_int_equal(err.code, TP_E_MEMORY);
    char *text = tp_os_format(NULL, "%s-%d", "a", 7);
    assert_string_equal(text, "a-7");
    free(text);
    err = (struct tp_err){0};
    tp_os.malloc = no_malloc;
    assert_null(tp_os_alloc(5, &err));
    assert_non_null(strstr(err.what, "5 bytes"));
    err = (struct tp_err){0};
    assert_null(tp_os_format(&err, "%d", 7));
    assert_int_equal(err.code, TP_E_MEMORY);
    tp_os = saved;
}

/* Below FOLDER/ROOT stands what the system has in /proc and /sys of cgroups. */
static uint64_t memory_of(const char *root)
{
    return tp_machine_memory(in_folder(root));
}

static void make_folders(const char *path)
{
    char name[200];
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        snprintf(name, sizeof name, "%.*s", (int)(at - path), path);
        mkdir(in_folder(name), 0777);
    }
}

static void make_in(const char *path, const char *text)
{
    make_folders(path);
    make_file(path, text);
}

static void memory_of_the_machine(void **state)
{
    (void)state;
    const uint64_t all = memory_of("none");
    assert_true(all > 1 << 20 && all < UINT64_MAX);
    make_in("two/proc/self/cgroup", "1:name=systemd:/\n0::/a.slice/job\n");
    assert_true(memory_of("two") == all);
    make_in("two/sys/fs/cgroup/a.slice/job/memory.max", "max\n");
    assert_true(memory_of("two") == all);
    make_in("two/sys/fs/cgroup/a.slice/memory.max", "2097152\n"); /* that of its parent counts */
    assert_int_equal(memory_of("two"), 2097152);
    make_in("two/sys/fs/cgroup/a.slice/job/memory.max", "1048576\n");
    assert_int_equal(memory_of("two"), 1048576);
    make_in("two/sys/fs/cgroup/memory.max", "4096\n"); /* as a container sees its own */
    assert_int_equal(memory_of("two"), 4096);
    make_in("one/proc/self/cgroup", "5:cpu,cpuacct:/\n4:hugetlb,memory:/jobs/7\n0::/\n");
    make_in("one/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(memory_of("one") == all);
    make_in("one/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n");
    assert_int_equal(memory_of("one"), 3000000);
    make_in("odd/proc/self/cgroup", "\n:\n0:\nmemory\n0::");
    assert_true(memory_of("odd") == all);
}

static void gpu_of_the_machine(void **state)
{
    (void)state;
    char name[40];
    const char *const file = "gpu/proc/driver/nvidia/gpus/0000:00:06.0/information";
    assert_false(tp_machine_gpu(in_folder("none"), name, sizeof name));
    make_in(file, "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\n");
    assert_true(tp_machine_gpu(in_folder("gpu"), name, sizeof name));
    assert_string_equal(name, "NVIDIA H200");
    make_file(file, "IRQ: 41\n");
    assert_false(tp_machine_gpu(in_folder("gpu"), name, sizeof name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
        TEST(test_transfers), TEST(test_failures),    TEST(test_names),
        TEST(test_regular),   TEST(test_slurp),       TEST(test_list),
        TEST(test_inside),    TEST(test_descriptors), TEST(test_descriptors_end),
        TEST(test_memory),    TEST(test_system_out_of_memory),
        TEST(memory_of_the_machine), TEST(gpu_of_the_machine),
    };
    return cmocka_run_group_tests_name("os", tests, NULL, NULL);
}
