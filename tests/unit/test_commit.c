/* Committing beside others: what came to the output's name while the new content was
 * written is not replaced unasked, and a shard of an interrupted run is taken over only
 * with the hash in its header. A run that finished nothing is in nobody's way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/commit/commit.h"
#include "pack/commit/manifest_note.h"
#include "pack/commit/part_file.h"
#include "pack/file/own_hash.h"
#include "pack/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
static char kept[160], why[256]; /* of the last conversion: what it replaced, and did not remove */

static void write_text(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Reads the source as it is now, and plans for the request. */
static void open_world(void)
{
    struct tp_err err = {0};
    assert_int_equal(tp_checkpoint_open(world.source, 0, &world.ckpt, &err), TP_OK);
    assert_int_equal(tp_weights_find(&world.ckpt, &world.weights, &err), TP_OK);
    bool single = strstr(world.output, ".safetensors") != NULL;
    assert_int_equal(tp_plan_convert(&world.ckpt, &world.weights, &world.request,
                                     single ? world.output : NULL, &world.plan, &err), TP_OK);
}

static void close_world(void)
{
    tp_plan_close(&world.plan);
    tp_weights_close(&world.weights);
    tp_checkpoint_close(&world.ckpt);
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
    assert_int_equal(tp_request_to(&world.request, "fp8-deepseek", NULL, 0, &err), TP_OK);
    open_world();
}

/* The next run has another plan: the source was changed (to hold a NaN), ... */
static void spoil_source(void)
{
    FILE *file = fopen(world.source, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 8 + HEADER, SEEK_SET), 0);
    assert_int_equal(fwrite("\xff\x7f", 1, 2, file), 2);
    assert_int_equal(fclose(file), 0);
    close_world();
    open_world();
}

/* ... or another option is given. */
static void keep_nonfinite(void)
{
    close_world();
    world.request.keep_nonfinite = true;
    open_world();
}

static void end_world(void)
{
    char command[128];
    tp_os = real_os;
    close_world();
    tp_request_close(&world.request);
    snprintf(command, sizeof command, "rm -rf '%s'", world.root);
    assert_int_equal(system(command), 0);
}

static enum tp_code convert_saying(bool force, struct tp_convert_result *result,
                                   struct tp_err *err)
{
    struct tp_convert_options options = {.run = {.jobs = 1, .keep_nonfinite =
                                                     world.request.keep_nonfinite},
                                         .if_exists = force ? TP_EXISTS_REPLACE
                                                            : TP_EXISTS_COMPARE,
                                         .zstd = strstr(world.output, ".zst") != NULL};
    *err = (struct tp_err){0};
    enum tp_code code = tp_convert(&world.plan, &world.request, world.output, &options, result,
                                   err);
    snprintf(kept, sizeof kept, "%s", result->old ? result->old : "");
    snprintf(why, sizeof why, "%s", result->old_why);
    tp_convert_result_close(result);
    return code;
}

static enum tp_code convert(bool force, struct tp_convert_result *result)
{
    struct tp_err err;
    return convert_saying(force, result, &err);
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

/* It stays without --force, and keeps its contents with it. What is left of a directory is named. */
static void check_meanwhile(const char *output)
{
    struct tp_convert_result result;
    struct tp_err err;
    make_world(output);
    tp_os.fallocate = meanwhile;
    assert_int_equal(convert_saying(false, &result, &err), TP_E_EXISTS);
    if (!world.plan.single_file)
        assert_non_null(strstr(err.hint, "out.partial"));
    assert_true(is_theirs());
    assert_int_equal(convert(false, &result), TP_E_EXISTS);
    assert_true(is_theirs());
    assert_int_equal(convert(true, &result), TP_OK);
    assert_false(is_theirs());
    snprintf(world.note, sizeof world.note, world.plan.single_file ? "%s" : "%s/note.txt", kept);
    assert_true(is_theirs());
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

/* Between the last look at the name and the rename. */
static int at_the_last_moment(const char *from, const char *to)
{
    strcpy(world.note, world.output);
    write_text(world.note, "theirs", 6);
    return real_os.rename_new(from, to);
}

static void a_file_that_came_at_the_last_moment_stays(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_world("out.safetensors");
    tp_os.rename_new = at_the_last_moment;
    assert_int_equal(convert(false, &result), TP_E_EXISTS);
    assert_true(is_theirs());
    end_world();
}

static int beside_a_directory(const char *from, const char *to)
{
    snprintf(world.note, sizeof world.note, "%s/note.txt", world.output);
    assert_true(mkdir(world.output, 0755) == 0);
    write_text(world.note, "theirs", 6);
    return real_os.rename(from, to);
}

static void a_directory_that_came_at_the_last_moment_stays(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_world("out");
    struct tp_err err;
    tp_os.rename = beside_a_directory;
    assert_int_equal(convert_saying(false, &result, &err), TP_E_EXISTS);
    assert_non_null(strstr(err.hint, "out.partial"));
    assert_true(is_theirs());
    end_world();
}

static int unknown_flag(const char *from, const char *to)
{
    (void)from, (void)to;
    errno = EINVAL;
    return -1;
}

static void a_file_system_without_the_promise_renames(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_world("out.safetensors");
    tp_os.rename_new = unknown_flag;
    assert_int_equal(convert(false, &result), TP_OK);
    assert_int_equal(access(world.output, F_OK), 0);
    end_world();
}

static int no_rename(const char *from, const char *to)
{
    (void)from, (void)to;
    errno = EIO;
    return -1;
}

/* A world whose only shard is finished, in an output that has not its name yet. */
static void make_unfinished(void)
{
    struct tp_convert_result result;
    make_world("out");
    tp_os.rename = no_rename;
    assert_int_equal(convert(false, &result), TP_E_IO);
    tp_os = real_os;
}

/* The digits of a hash are no part of what it covers. */
static void a_shard_with_other_digits_is_made_anew(void **state)
{
    struct tp_convert_result result;
    char path[256];
    (void)state;
    make_unfinished();
    tp_os.rename = no_rename;
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

/* Another byte in a file, at its end, with the time of before, as `rsync -t` and `cp -p` leave it. */
static void change(const char *path)
{
    struct stat st;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &st), 0);
    usleep(20000); /* longer than the steps of a file system's clock */
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_true(fputc(' ', file) != EOF);
    assert_int_equal(fclose(file), 0);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void another_source_of_the_same_times_is_not_gone_on_with(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_unfinished();
    tp_os.rename = no_rename;
    assert_int_equal(convert(false, &result), TP_E_IO);
    assert_int_equal(result.resumed, 1);
    close_world();
    change(world.source);
    open_world();
    tp_os = real_os;
    assert_int_equal(convert(false, &result), TP_E_EXISTS);
    assert_int_equal(convert(true, &result), TP_OK);
    assert_int_equal(result.resumed, 0);
    end_world();
}

static int no_sync_of_directories(int fd)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISDIR(st.st_mode))
        return real_os.fsync(fd);
    errno = EIO;
    return -1;
}

/* It has its name already: the same command again would be refused. */
static void a_file_whose_name_is_not_durable_is_said_to_be_complete(void **state)
{
    struct tp_convert_result result;
    struct tp_err err = {0};
    (void)state;
    make_world("out.safetensors");
    tp_os.fsync = no_sync_of_directories;
    assert_int_equal(convert_saying(false, &result, &err), TP_E_IO);
    assert_int_equal(access(world.output, F_OK), 0);
    assert_non_null(strstr(err.hint, "complete and in its place"));
    assert_null(strstr(err.hint, "again"));
    end_world();
}

static char changing[160]; /* the file of the source that is */

static int change_then_sync(int fd)
{
    tp_os = real_os;
    change(changing);
    return tp_os.fsync(fd);
}

/* Of any of its files, by any means: one that is written over and one that takes its place. */
static void a_source_that_changes_meanwhile_is_noticed(void **state)
{
    static const char *const names[] = {"model.safetensors", "config.json", "tokenizer.json"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct tp_convert_result result;
        make_world("out");
        for (int n = 0; n < 3; n++) {
            snprintf(changing, sizeof changing, "%s/%s", world.root, names[n]);
            if (n)
                write_text(changing, "{} ", 3);
        }
        close_world();
        strcpy(world.source, world.root);
        open_world();
        snprintf(changing, sizeof changing, "%s/%s", world.root, names[i]);
        tp_os.fsync = change_then_sync;
        assert_int_equal(convert(false, &result), TP_E_INPUT);
        assert_int_not_equal(access(world.output, F_OK), 0);
        end_world();
    }
}

/* The folder that the source is in becomes the source, with one more file. */
static void add_to_folder(const char *path, const char *text)
{
    write_text(path, text, strlen(text));
    close_world();
    strcpy(world.source, world.root);
    open_world();
}

static int unlink_then_sync(int fd)
{
    tp_os = real_os;
    assert_int_equal(unlink(changing), 0);
    return tp_os.fsync(fd);
}

static void a_file_that_is_gone_meanwhile_is_noticed(void **state)
{
    struct tp_convert_result result;
    struct tp_err err;
    (void)state;
    make_world("out");
    snprintf(changing, sizeof changing, "%s/config.json", world.root);
    add_to_folder(changing, "{} ");
    tp_os.fsync = unlink_then_sync;
    assert_int_equal(convert_saying(false, &result, &err), TP_E_IO);
    assert_string_equal(err.path, changing);
    assert_non_null(strstr(err.hint, "wait until nothing writes"));
    assert_int_not_equal(access(world.output, F_OK), 0);
    end_world();
}

/* A small file of the source that has become a pipe is refused, not waited for. */
static void a_pipe_among_the_small_files_does_not_block(void **state)
{
    struct tp_convert_result result;
    char path[128];
    (void)state;
    make_world("out");
    snprintf(path, sizeof path, "%s/tokenizer.json", world.root);
    add_to_folder(path, "{}");
    assert_int_equal(world.ckpt.other_count, 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0666), 0);
    alarm(20); /* ends a program that waits for a writer */
    assert_int_equal(convert(false, &result), TP_E_INPUT);
    alarm(0);
    end_world();
}

static const char *in_output(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", world.output, name);
    return path;
}

static int add_and_exchange(const char *a, const char *b)
{
    write_text(in_output("results.csv"), "data", 4);
    return real_os.exchange(a, b);
}

static const char *in_partial(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s.partial%s%s", world.output, *name ? "/" : "", name);
    return path;
}

static const char *in_old(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s.old%s%s", world.output, *name ? "/" : "", name);
    return path;
}

/* The next conversion is another one, so that what it replaces is not what it makes. */
static void other_options(void)
{
    close_world();
    world.request.keep_nonfinite = !world.request.keep_nonfinite;
    open_world();
}

/* What is written into the old content just before it makes way is not deleted with it. */
static void a_file_in_the_old_content_stays(void **state)
{
    struct tp_convert_result result;
    struct tp_err err;
    (void)state;
    make_world("out");
    assert_int_equal(convert(false, &result), TP_OK);
    tp_os.exchange = add_and_exchange;
    assert_int_equal(convert(true, &result), TP_OK);
    tp_os = real_os;
    assert_string_equal(kept, in_old(""));
    assert_string_equal(why, "'results.csv' in it is not in its manifest");
    assert_int_equal(access(in_old("results.csv"), F_OK), 0);
    assert_int_equal(access(in_old("model.safetensors"), F_OK), 0);
    assert_int_equal(access(in_output("tilepack.json"), F_OK), 0);
    assert_int_not_equal(access(in_output(".tilepack-journal"), F_OK), 0);
    assert_int_not_equal(access(in_output("results.csv"), F_OK), 0);
    assert_int_equal(convert_saying(true, &result, &err), TP_E_EXISTS);
    assert_string_equal(err.reason, "old");
    assert_string_equal(err.path, in_old(""));
    assert_int_equal(convert(false, &result), TP_OK); /* it is in nobody's way else */
    assert_true(result.already_done);
    end_world();
}

/* Each way in which the old content may be another one than was written keeps all of it. */
static void what_is_not_as_it_was_written_stays(void **state)
{
    static const struct {
        const char *command, *why;
    } ways[] = {
        {"ln -s tilepack.json link", "'link' in it is no plain file"},
        {"mkdir folder", "'folder' in it is no plain file"},
        {"mkfifo pipe", "'pipe' in it is no plain file"},
        {"ln model.safetensors ../name", "'model.safetensors' in it is a file of several names"},
        {"truncate -s 100 model.safetensors",
         "'model.safetensors' in it is of another size than its manifest says"},
        {"printf x | dd of=model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null",
         "'model.safetensors' in it is changed since it was written"},
        {"mv README.md card", "'card' in it is not in its manifest"},
        {"rm README.md && ln -s model.safetensors README.md", "'README.md' in it is no plain file"},
        {"printf ' ' >>README.md", "'README.md' in it is of another size than its manifest says"},
        {"rm tilepack.json", "it has no manifest, as tilepack writes one"},
        {"sed -i s/fp8/fp9/ tilepack.json", "it has no manifest, as tilepack writes one"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct tp_convert_result result;
        char command[400];
        make_world("out");
        assert_int_equal(convert(false, &result), TP_OK);
        snprintf(command, sizeof command, "cd '%s' && %s && ls -la >../before", world.output,
                 ways[i].command);
        assert_int_equal(system(command), 0);
        assert_int_equal(convert(true, &result), TP_OK);
        assert_string_equal(kept, in_old(""));
        assert_string_equal(why, ways[i].why);
        snprintf(command, sizeof command, "cd '%s' && ls -la | grep -v ' [.][.]$' >../after; "
                 "grep -v ' [.][.]$' ../before | cmp - ../after", in_old(""));
        assert_int_equal(system(command), 0);
        end_world();
    }
}

/* It is as it was written, and goes; also where a file of it is gone, as a removal leaves it. */
static void what_is_as_it_was_written_goes(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct tp_convert_result result;
        make_world("out");
        assert_int_equal(convert(false, &result), TP_OK);
        if (i == 1)
            assert_int_equal(unlink(in_output("model.safetensors")), 0);
        if (i == 2)
            other_options();
        assert_int_equal(convert(true, &result), TP_OK);
        assert_string_equal(kept, "");
        assert_int_not_equal(access(in_old(""), F_OK), 0);
        assert_int_equal(access(in_output("model.safetensors"), F_OK), 0);
        end_world();
    }
}

static int no_exchange(const char *a, const char *b)
{
    (void)a, (void)b;
    errno = EINVAL;
    return -1;
}

/* Two renames in place of the exchange, each of which may be the last thing that a run does. */
static void a_file_system_without_exchange_renames_twice(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_world("out");
    assert_int_equal(convert(false, &result), TP_OK);
    other_options();
    tp_os.exchange = no_exchange;
    assert_int_equal(convert(true, &result), TP_OK);
    assert_int_not_equal(access(in_old(""), F_OK), 0);
    assert_int_equal(convert(false, &result), TP_OK);
    assert_true(result.already_done);
    other_options();
    tp_os.rename = no_rename; /* of the second one: what was there gets its name back if it can */
    assert_int_equal(convert(true, &result), TP_E_IO);
    tp_os.rename = real_os.rename;
    assert_int_equal(access(in_old("tilepack.json"), F_OK), 0);
    assert_int_equal(access(in_partial("tilepack.json"), F_OK), 0);
    assert_int_equal(convert(true, &result), TP_OK); /* nothing is known of OUT.old any more */
    assert_int_equal(access(in_output("tilepack.json"), F_OK), 0);
    assert_int_equal(access(in_old("tilepack.json"), F_OK), 0);
    assert_int_not_equal(access(in_partial(""), F_OK), 0);
    end_world();
}

static int no_unlinkat(int directory, const char *name, int flags)
{
    (void)directory;
    (void)name;
    (void)flags;
    errno = EIO;
    return -1;
}

static int exchange_and_end(const char *a, const char *b)
{
    tp_os.unlinkat = no_unlinkat;
    return real_os.exchange(a, b);
}

/* A run that replaces the output, and is interrupted behind the exchange. */
static void replace_half(bool keep)
{
    struct tp_convert_result result;
    close_world();
    world.request.keep_nonfinite = keep;
    open_world();
    tp_os.exchange = exchange_and_end;
    assert_int_equal(convert(true, &result), TP_E_IO);
    tp_os = real_os;
    assert_int_equal(access(in_output(".tilepack-journal"), F_OK), 0);
    assert_int_equal(access(in_old("model.safetensors"), F_OK), 0);
}

/* A world whose output is complete, and is half replaced. */
static void make_replaced_half(void)
{
    struct tp_convert_result result;
    make_world("out");
    assert_int_equal(convert(false, &result), TP_OK);
    replace_half(true);
}

static void check_ended(void)
{
    assert_int_not_equal(access(in_partial(""), F_OK), 0);
    assert_int_not_equal(access(in_old(""), F_OK), 0);
    assert_int_not_equal(access(in_output(".tilepack-journal"), F_OK), 0);
    assert_int_not_equal(access(in_output(".tilepack-replaces"), F_OK), 0);
    assert_int_equal(access(in_output("tilepack.json"), F_OK), 0);
}

/* The next run ends what one had no time for, and what it does that for is its own. */
static void what_two_runs_replaced_goes(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_replaced_half();
    replace_half(false);
    assert_int_equal(convert(false, &result), TP_OK);
    assert_true(result.already_done);
    check_ended();
    end_world();
}

/* A journal of a million shards, some of them several times, is longer than this. */
static void a_long_journal_is_read_again(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_unfinished();
    assert_int_equal(truncate(in_partial(".tilepack-journal"), 100 << 20), 0);
    assert_int_equal(convert(false, &result), TP_OK);
    assert_int_equal(result.resumed, 1);
    end_world();
}

static uint64_t written;

static ssize_t count_written(int fd, const void *data, size_t size, off_t offset)
{
    (void)fd, (void)data, (void)offset;
    written += size;
    return (ssize_t)size;
}

/* As long as that of a million tensors with long names. */
static void a_note_goes_into_a_long_manifest(void **state)
{
    static const char begin[] = "{\"tilepack\":1,\"" TP_OWN_KEY "\": \"" TP_OWN_ZEROS "\"";
    struct tp_err err = {0};
    size_t size = 257 << 20;
    char *text = malloc(size);
    (void)state;
    make_world("out");
    assert_non_null(text);
    memset(text, ' ', size);
    memcpy(text, begin, strlen(begin));
    text[size - 1] = '}';
    assert_true(tp_own_hash_sign(text, size));
    assert_int_equal(mkdir(world.output, 0777), 0);
    write_text(in_output("tilepack.json"), text, size);
    free(text);
    tp_os.pwrite = count_written;
    assert_int_equal(tp_manifest_note(world.output, "schedules", "[]", &err), TP_OK);
    assert_true(written > size);
    end_world();
}

/* It holds the request, which may be longer than the longest recipe. */
static void a_long_file_of_a_part_is_read(void **state)
{
    static const char begin[] = "{\"tilepack_part\":2,\"plan\":\"" TP_OWN_ZEROS "\","
                                "\"source\":\"s\",\"source_id\":\"" TP_OWN_ZEROS "\","
                                "\"zstd\":0,\"journal\":\"\",\"request\":{";
    struct tp_done_part part;
    struct tp_err err = {0};
    size_t size = 17 << 20;
    char *text = malloc(size);
    char path[160];
    (void)state;
    make_world("out");
    assert_non_null(text);
    memset(text, ' ', size);
    memcpy(text, begin, strlen(begin));
    memcpy(text + size - 2, "}}", 2);
    snprintf(path, sizeof path, "%s/" TP_PART_FILE, world.root);
    write_text(path, text, size);
    free(text);
    assert_int_equal(tp_part_read(world.root, &part, &err), TP_OK);
    assert_string_equal(part.source, "s");
    tp_part_close(&part);
    end_world();
}

static DIR *no_list_of_old(int fd)
{
    const char *end = ".old";
    char link[64], path[600];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    if (size < (ssize_t)strlen(end) || strcmp(path + size - strlen(end), end) != 0)
        return real_os.fdopendir(fd);
    errno = EIO;
    return NULL;
}

/* What cannot be looked at is not judged: the journal by which it is known stays. */
static void old_content_that_cannot_be_read(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_replaced_half();
    tp_os.fdopendir = no_list_of_old;
    assert_int_equal(convert(false, &result), TP_E_IO);
    tp_os = real_os;
    assert_int_equal(access(in_output(".tilepack-journal"), F_OK), 0);
    assert_int_equal(convert(false, &result), TP_OK);
    check_ended();
    end_world();
}

static bool is_partial(const char *path) { return strstr(path, ".partial") != NULL; }

static bool is_output(const char *path) { return strstr(path, ".partial") == NULL; }

/* No rename gives or takes such a name: nothing is begun. */
static void a_mount_point_is_refused(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_world("out");
    assert_int_equal(mkdir(in_partial(""), 0777), 0);
    tp_os.is_mount = is_partial;
    assert_int_equal(convert(false, &result), TP_E_USAGE);
    tp_os = real_os;
    assert_int_not_equal(access(in_partial(".tilepack-journal"), F_OK), 0);
    assert_int_equal(convert(false, &result), TP_OK);
    world.request.keep_nonfinite = true;
    tp_os.is_mount = is_output;
    close_world();
    open_world();
    assert_int_equal(convert(true, &result), TP_E_USAGE);
    tp_os = real_os;
    assert_int_not_equal(access(in_partial(""), F_OK), 0);
    end_world();
}

/* Of the old content nothing is left but its folder. */
static void an_emptied_folder_goes(void **state)
{
    struct tp_convert_result result;
    char command[600];
    (void)state;
    make_replaced_half();
    snprintf(command, sizeof command, "rm '%s'/*", in_old(""));
    assert_int_equal(system(command), 0);
    assert_int_equal(convert(false, &result), TP_OK);
    assert_true(result.already_done);
    check_ended();
    end_world();
}

/* A world whose output is begun, and has no finished shard: the source holds a NaN. */
static void make_begun(void)
{
    struct tp_convert_result result;
    make_world("out");
    spoil_source();
    assert_int_equal(convert(false, &result), TP_E_INPUT);
}

/* "--nonfinite keep" is the hint of the first error, and must not lead into a second. */
static void a_hint_can_be_followed(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_begun();
    assert_int_equal(access(in_partial(".tilepack-journal"), F_OK), 0);
    keep_nonfinite();
    assert_int_equal(convert(false, &result), TP_OK);
    assert_int_not_equal(access(in_partial(""), F_OK), 0);
    end_world();
}

/* What a run of another plan left goes, but for strangers' folders. */
static void without_a_finished_shard_only_own_files_go(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_begun();
    assert_int_equal(mkdir(in_partial("theirs"), 0777), 0);
    keep_nonfinite();
    assert_int_equal(convert(false, &result), TP_E_EXISTS);
    assert_int_equal(access(in_partial("theirs"), F_OK), 0);
    assert_int_equal(rmdir(in_partial("theirs")), 0);
    assert_int_equal(convert(false, &result), TP_OK);
    end_world();
}

static void a_finished_shard_of_another_plan_stays(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_unfinished();
    keep_nonfinite();
    assert_int_equal(convert(false, &result), TP_E_EXISTS);
    assert_int_equal(access(in_partial("model.safetensors"), F_OK), 0);
    assert_int_equal(convert(true, &result), TP_OK);
    assert_int_equal(result.resumed, 0);
    assert_int_not_equal(access(in_partial(""), F_OK), 0);
    end_world();
}

/* Somebody puts another folder in the unfinished one's place, and there is no room. */
static int no_room_and_theirs(const char *path, uint64_t *bytes)
{
    (void)path;
    assert_int_equal(real_os.rename(in_partial(""), in_output("away")), 0);
    assert_int_equal(mkdir(in_partial(""), 0777), 0);
    write_text(in_partial("thesis.txt"), "words", 5);
    *bytes = 0;
    return 0;
}

static void who_is_refused_removes_nothing_of_others(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_world("out");
    assert_int_equal(mkdir(world.output, 0777), 0); /* empty: it may be taken */
    tp_os.free_bytes = no_room_and_theirs;
    assert_int_equal(convert(false, &result), TP_E_IO);
    assert_int_equal(access(in_partial("thesis.txt"), F_OK), 0);
    end_world();
}

/* Whoever starts over keeps the lock: nobody else may find the directory free meanwhile. */
static int not_the_journal(int directory, const char *name, int flags)
{
    assert_null(strstr(name, ".tilepack-journal"));
    return real_os.unlinkat(directory, name, flags);
}

static void starting_over_keeps_the_lock(void **state)
{
    struct tp_convert_result result;
    (void)state;
    make_begun();
    keep_nonfinite();
    tp_os.unlinkat = not_the_journal;
    tp_os.rename = no_rename;
    assert_int_equal(convert(false, &result), TP_E_IO);
    end_world();
}

/* A second process that comes just before and just after each step of the first. */
static int refused;

static void second_process(void)
{
    struct tp_convert_result result;
    struct tp_os watched = tp_os;
    tp_os = real_os;
    assert_int_equal(convert(true, &result), TP_E_LOCKED);
    tp_os = watched;
    refused++;
}

static int rename_before_others(const char *from, const char *to)
{
    second_process();
    int result = real_os.rename(from, to);
    if (strcmp(to, world.output) != 0)
        second_process();
    return result;
}

static int rename_new_before_others(const char *from, const char *to)
{
    second_process();
    return real_os.rename_new(from, to);
}

static int unlink_before_others(int directory, const char *name, int flags)
{
    second_process();
    int result = real_os.unlinkat(directory, name, flags);
    second_process();
    return result;
}

static void a_file_is_locked_until_it_has_its_name(void **state)
{
    static const char *const outputs[] = {"out.safetensors", "out.safetensors.zst"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tp_convert_result result;
        make_world(outputs[i / 2]);
        tp_os.rename = rename_before_others;
        tp_os.rename_new = rename_new_before_others;
        tp_os.unlinkat = unlink_before_others;
        refused = 0;
        assert_int_equal(convert(i % 2, &result), TP_OK);
        assert_true(refused > 0);
        tp_os = real_os;
        assert_int_equal(convert(false, &result), TP_E_EXISTS);
        end_world();
    }
}

static int no_locks(int fd, struct flock *lock)
{
    (void)fd, (void)lock;
    errno = ENOLCK;
    return -1;
}

static int held(int fd, struct flock *lock)
{
    (void)fd, (void)lock;
    errno = EAGAIN;
    return -1;
}

/* A file system without locks is written to; whoever asked is told that nobody else is
 * kept out, also when the run fails, as it may well do because of that. */
static void a_file_system_without_locks_is_told_of(void **state)
{
    static const char *const outputs[] = {"out", "out.safetensors"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tp_convert_result result;
        make_world(outputs[i]);
        tp_os.fcntl_lock = held;
        assert_int_equal(convert(false, &result), TP_E_LOCKED);
        assert_false(result.unlocked);
        tp_os.fcntl_lock = no_locks;
        tp_os.rename = tp_os.rename_new = no_rename;
        assert_int_equal(convert(false, &result), TP_E_IO);
        assert_true(result.unlocked);
        tp_os.rename = real_os.rename;
        tp_os.rename_new = real_os.rename_new;
        assert_int_equal(convert(false, &result), TP_OK);
        assert_true(result.unlocked);
        tp_os.fcntl_lock = real_os.fcntl_lock;
        assert_int_equal(convert(true, &result), TP_OK);
        assert_false(result.unlocked);
        end_world();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_came_meanwhile_stays),
        cmocka_unit_test(a_file_that_came_meanwhile_stays),
        cmocka_unit_test(a_file_that_came_at_the_last_moment_stays),
        cmocka_unit_test(a_directory_that_came_at_the_last_moment_stays),
        cmocka_unit_test(a_file_system_without_the_promise_renames),
        cmocka_unit_test(a_shard_with_other_digits_is_made_anew),
        cmocka_unit_test(another_source_of_the_same_times_is_not_gone_on_with),
        cmocka_unit_test(a_source_that_changes_meanwhile_is_noticed),
        cmocka_unit_test(a_file_that_is_gone_meanwhile_is_noticed),
        cmocka_unit_test(a_pipe_among_the_small_files_does_not_block),
        cmocka_unit_test(a_file_in_the_old_content_stays),
        cmocka_unit_test(what_is_not_as_it_was_written_stays),
        cmocka_unit_test(what_is_as_it_was_written_goes),
        cmocka_unit_test(a_file_system_without_exchange_renames_twice),
        cmocka_unit_test(what_two_runs_replaced_goes),
        cmocka_unit_test(a_long_journal_is_read_again),
        cmocka_unit_test(a_note_goes_into_a_long_manifest),
        cmocka_unit_test(a_long_file_of_a_part_is_read),
        cmocka_unit_test(old_content_that_cannot_be_read),
        cmocka_unit_test(a_file_whose_name_is_not_durable_is_said_to_be_complete),
        cmocka_unit_test(a_mount_point_is_refused),
        cmocka_unit_test(an_emptied_folder_goes),
        cmocka_unit_test(a_hint_can_be_followed),
        cmocka_unit_test(without_a_finished_shard_only_own_files_go),
        cmocka_unit_test(a_finished_shard_of_another_plan_stays),
        cmocka_unit_test(who_is_refused_removes_nothing_of_others),
        cmocka_unit_test(starting_over_keeps_the_lock),
        cmocka_unit_test(a_file_is_locked_until_it_has_its_name),
        cmocka_unit_test(a_file_system_without_locks_is_told_of),
    };
    real_os = tp_os;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
