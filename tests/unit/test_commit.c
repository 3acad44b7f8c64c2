/* Committing beside others: what came to the output's name while the new content was
 * written is not replaced unasked, and a shard of an interrupted run is taken over only
 * with the hash in its header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/commit.h"
#include "pack/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 128, K = 128, HEADER = 80 };

static struct tp_os real_os;

struct world {
    char root[64], source[128], output[128], note[160];
    struct tp_checkpoint ckpt;
    struct tp_weights weights;
    struct tp_request request;
    struct tp_plan plan;
};
static struct world world;

static void write_text(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* A checkpoint of one weight, planned to become `output` in a directory of its own. */
static void make_world(const char *output)
{
    static uint8_t file[8 + HEADER + 2 * N * K];
    struct tp_err err = {0};
    memset(&world, 0, sizeof world);
    strcpy(world.root, "/tmp/tilepack-commit.XXXXXX");
    assert_non_null(mkdtemp(world.root));
    snprintf(world.source, sizeof world.source, "%s/model.safetensors", world.root);
    snprintf(world.output, sizeof world.output, "%s/%s", world.root, output);
    file[0] = HEADER;
    snprintf((char *)file + 8, HEADER + 1, "%-80s",
             "{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[128,128],\"data_offsets\":[0,32768]}}");
    write_text(world.source, file, sizeof file);
    assert_int_equal(tp_checkpoint_open(world.source, 0, &world.ckpt, &err), TP_OK);
    assert_int_equal(tp_weights_find(&world.ckpt, &world.weights, &err), TP_OK);
    assert_int_equal(tp_request_to(&world.request, "fp8-deepseek", NULL, 0, &err), TP_OK);
    bool single = strstr(output, ".safetensors") != NULL;
    assert_int_equal(tp_plan_convert(&world.ckpt, &world.weights, &world.request,
                                     single ? output : NULL, &world.plan, &err), TP_OK);
}

static void end_world(void)
{
    char command[128];
    tp_os = real_os;
    tp_plan_close(&world.plan);
    tp_request_close(&world.request);
    tp_weights_close(&world.weights);
    tp_checkpoint_close(&world.ckpt);
    snprintf(command, sizeof command, "rm -rf '%s'", world.root);
    assert_int_equal(system(command), 0);
}

static enum tp_code convert(bool force, struct tp_convert_result *result)
{
    struct tp_convert_options options = {.run = {.jobs = 1}, .force = force};
    struct tp_err err = {0};
    return tp_convert(&world.plan, &world.request, world.output, &options, result, &err);
}

/* Somebody else puts a file of theirs there, once the first shard is begun. */
static int meanwhile(int fd, off_t offset, off_t size, bool fill)
{
    if (!world.plan.single_file)
        assert_int_equal(mkdir(world.output, 0777), 0);
    snprintf(world.note, sizeof world.note, world.plan.single_file ? "%s" : "%s/note.txt",
             world.output);
    write_text(world.note, "theirs", 6);
    tp_os = real_os;
    return tp_os.fallocate(fd, offset, size, fill);
}

static bool is_theirs(void)
{
    char text[8] = "";
    FILE *file = fopen(world.note, "rb");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    return size == 6 && memcmp(text, "theirs", 6) == 0;
}

static void check_meanwhile(const char *output)
{
    struct tp_convert_result result;
    make_world(output);
    tp_os.fallocate = meanwhile;
    assert_int_equal(convert(false, &result), TP_E_USAGE);
    assert_true(is_theirs());
    assert_int_equal(convert(false, &result), TP_E_USAGE);
    assert_true(is_theirs());
    assert_int_equal(convert(true, &result), TP_OK);
    assert_false(is_theirs());
    end_world();
}

static void a_directory_that_came_meanwhile_stays(void **state)
{
    (void)state;
    check_meanwhile("out");
}

static void a_file_that_came_meanwhile_stays(void **state)
{
    (void)state;
    check_meanwhile("out.safetensors");
}

static int no_rename(const char *from, const char *to)
{
    (void)from, (void)to;
    errno = EIO;
    return -1;
}

/* The digits of a hash are no part of what it covers. */
static void a_shard_with_other_digits_is_made_anew(void **state)
{
    struct tp_convert_result result;
    char path[256];
    (void)state;
    make_world("out");
    tp_os.rename = no_rename;
    assert_int_equal(convert(false, &result), TP_E_IO);
    assert_int_equal(convert(false, &result), TP_E_IO);
    assert_int_equal(result.resumed, 1);
    snprintf(path, sizeof path, "%s.partial/model.safetensors", world.output);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)world.plan.files[0].hash_at, SEEK_SET), 0);
    assert_true(fputc('x', file) != EOF);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(convert(false, &result), TP_E_IO);
    assert_int_equal(result.resumed, 0);
    end_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_came_meanwhile_stays),
        cmocka_unit_test(a_file_that_came_meanwhile_stays),
        cmocka_unit_test(a_shard_with_other_digits_is_made_anew),
    };
    real_os = tp_os;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
