/* The few words of cmocka that the kernel tests use, for targets whose libraries
 * are not at hand (a cross compiler and an emulator): the first failure ends the
 * program with status 1.
 */
#ifndef MINICMOCKA_H
#define MINICMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(function) {#function, function}

#define fail_msg(...)                                      \
    do {                                                   \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);    \
        fprintf(stderr, __VA_ARGS__);                      \
        fputc('\n', stderr);                               \
        exit(1);                                           \
    } while (0)
#define assert_true(x)              \
    do {                            \
        if (!(x))                   \
            fail_msg("not: %s", #x); \
    } while (0)
#define assert_false(x) assert_true(!(x))
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_null(x) assert_true((x) == NULL)
#define assert_ptr_equal(a, b) assert_true((a) == (b))
#define assert_int_equal(a, b)                                                       \
    do {                                                                             \
        long long mini_a = (long long)(a), mini_b = (long long)(b);                  \
        if (mini_a != mini_b)                                                        \
            fail_msg("%s is %#llx, not %s = %#llx", #a, (unsigned long long)mini_a, #b, \
                     (unsigned long long)mini_b);                                    \
    } while (0)
#define assert_int_not_equal(a, b) assert_true((long long)(a) != (long long)(b))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_memory_not_equal(a, b, n) assert_true(memcmp(a, b, n) != 0)

static inline int mini_run(const struct CMUnitTest *tests, size_t count,
                           int (*setup)(void **state))
{
    void *state = NULL;
    if (setup != NULL && setup(&state) != 0)
        return 1;
    for (size_t i = 0; i < count; i++) {
        tests[i].run(&state);
        printf("ok %s\n", tests[i].name);
        fflush(stdout);
    }
    return 0;
}

#define cmocka_run_group_tests(tests, setup, teardown) \
    mini_run(tests, sizeof(tests) / sizeof((tests)[0]), setup)

#endif
