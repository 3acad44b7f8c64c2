/* What a list leaves of a mode, against the algorithm of acl(5) for every list of few entries: no
 * user of any groups gets what the file itself does not give.
 */
#include "pack/os/acl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };
enum { OWNING = 100, NAMED_GROUP = 200, NAMED_USER = 300, READ = 4 };

/* Whether each may read. */
struct list {
    bool group, other, mask, user, named_group;
    bool has_user, has_named_group;
};

static size_t add(uint8_t *at, unsigned tag, bool reads, uint32_t id)
{
    const uint8_t entry[8] = {(uint8_t)tag, 0, reads ? READ : 0, 0, (uint8_t)id, (uint8_t)(id >> 8)};
    memcpy(at, entry, sizeof entry);
    return sizeof entry;
}

static size_t write_list(const struct list *list, uint8_t *bytes)
{
    size_t size = 4;
    memcpy(bytes, (const uint8_t[4]){2}, 4);
    size += add(bytes + size, USER_OBJ, true, 0);
    if (list->has_user)
        size += add(bytes + size, USER, list->user, NAMED_USER);
    size += add(bytes + size, GROUP_OBJ, list->group, 0);
    if (list->has_named_group)
        size += add(bytes + size, GROUP, list->named_group, NAMED_GROUP);
    size += add(bytes + size, MASK, list->mask, 0);
    size += add(bytes + size, OTHER, list->other, 0);
    return size;
}

/* Who is not the owner; acl(5). */
static bool reads(const struct list *list, bool is_user, bool owning, bool named)
{
    if (is_user && list->has_user)
        return list->user && list->mask;
    named = named && list->has_named_group;
    if (owning || named)
        return ((owning && list->group) || (named && list->named_group)) && list->mask;
    return list->other;
}

/* The same of a file that has a mode and no list. */
static bool reads_by_mode(mode_t mode, bool owning)
{
    return mode & (owning ? 0040 : 0004);
}

static void nobody_gets_more(void **state)
{
    (void)state;
    uint8_t bytes[64];
    for (unsigned bits = 0; bits < 128; bits++) {
        const struct list list = {bits & 1, bits & 2, bits & 4, bits & 8, bits & 16,
                                  bits & 32, bits & 64};
        mode_t mode = 0600 | (list.mask ? 0040 : 0) | (list.other ? 0004 : 0);
        mode_t least = tp_acl_least(bytes, write_list(&list, bytes), mode);
        assert_int_equal(least & 0700, 0600);
        for (unsigned who = 0; who < 8; who++)
            if (reads_by_mode(least, who & 2))
                assert_true(reads(&list, who & 1, who & 2, who & 4));
    }
}

static void usual_lists(void **state)
{
    (void)state;
    uint8_t bytes[64];
    const struct list shared = {.group = true, .mask = true, .has_user = true, .user = true};
    assert_int_equal(tp_acl_least(bytes, write_list(&shared, bytes), 0640), 0640);
    const struct list of_all = {.group = true, .other = true, .mask = true,
                                .has_named_group = true, .named_group = true};
    assert_int_equal(tp_acl_least(bytes, write_list(&of_all, bytes), 0644), 0644);
}

static void no_list(void **state)
{
    (void)state;
    uint8_t bytes[TP_ACL_MAX_BYTES + 4] = {2};
    assert_int_equal(tp_acl_least(bytes, 0, 0755), 0700);
    assert_int_equal(tp_acl_least(bytes, 11, 0755), 0700);
    assert_int_equal(tp_acl_least(bytes, sizeof bytes, 0755), 0700);
    bytes[0] = 3;
    assert_int_equal(tp_acl_least(bytes, 12, 0755), 0700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_gets_more),
        cmocka_unit_test(usual_lists),
        cmocka_unit_test(no_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
