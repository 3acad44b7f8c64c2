/* Checkpoints: single files, indexed directories, what index and shards may get
 * wrong, the other files, changes while reading, and every failing call. */
#include "pack/source/checkpoint.h"
#include "pack/source/index.h"
#include "pack/os/os.h"
#include "pack/file/zst.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

static char folder[3000], dir[3100], outside[3100];
static struct tp_os saved;

static void remove_all(const char *path)
{
    struct tp_os_list list;
    if (tp_os_list(path, &list, NULL))
        return;
    for (size_t i = 0; i < list.count; i++) {
        char at[4000];
        struct stat st;
        snprintf(at, sizeof at, "%s/%s", path, list.names[i]);
        if (lstat(at, &st) == 0 && S_ISDIR(st.st_mode))
            remove_all(at);
        else
            unlink(at);
    }
    tp_os_list_free(&list);
    rmdir(path);
}

static int set_up(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tp-ckpt-XXXXXX", base && *base ? base : P_tmpdir);
    saved = tp_os;
    if (!mkdtemp(folder))
        return -1;
    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    snprintf(outside, sizeof outside, "%s/outside", folder);
    return mkdir(dir, 0700) || mkdir(outside, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    tp_os = saved;
    remove_all(folder);
    return 0;
}

static const char *at(const char *root, const char *name)
{
    static char path[4][4000];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
    return path[turn];
}

static void put(const char *root, const char *name, const void *data, size_t size)
{
    FILE *file = fopen(at(root, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void put_text(const char *root, const char *name, const char *text)
{
    put(root, name, text, strlen(text));
}

/* A file of U8 tensors of 4 bytes, named by the words of `names`; their bytes are
 * `fill` + number. Returns the whole file, which the caller frees. */
static struct tp_text make_file(const char *names, char fill)
{
    struct tp_text out = {0};
    struct tp_st_tensor tensors[64] = {{0}};
    char words[2000], *rest = words;
    size_t count = 0;
    snprintf(words, sizeof words, "%s", names);
    for (const char *name; (name = strtok_r(rest, " ", &rest)); count++)
        tensors[count] = (struct tp_st_tensor){.name = name, .dtype = TP_U8, .rank = 2,
                                               .shape = {2, 2}, .begin = 4 * count,
                                               .end = 4 * count + 4};
    assert_int_equal(tp_st_write_header(tensors, count, NULL, 0, 64, &out, NULL), TP_OK);
    for (size_t i = 0; i < count; i++) {
        char data[4];
        memset(data, fill + (char)i, sizeof data);
        tp_text_add(&out, data, sizeof data, NULL);
    }
    return out;
}

#define INDEX_NAME "model" TP_INDEX_END

static void put_shard(const char *root, const char *name, const char *names, char fill)
{
    struct tp_text file = make_file(names, fill);
    put(root, name, file.data, file.size);
    tp_text_free(&file);
}

/* The same as a seekable archive. */
static void put_packed(const char *root, const char *name, const char *names, char fill)
{
    struct tp_text file = make_file(names, fill);
    struct tp_zst_writer *writer;
    uint64_t size;
    int fd = open(at(root, name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(tp_zst_create(fd, name, 3, 1, &writer, NULL), TP_OK);
    assert_int_equal(tp_zst_add(writer, file.data, file.size, NULL), TP_OK);
    assert_int_equal(tp_zst_finish(writer, &size, NULL), TP_OK);
    tp_zst_abandon(writer);
    close(fd);
    tp_text_free(&file);
}

/* weight_map from "tensor=shard tensor=shard ..." */
static void put_index(const char *map)
{
    struct tp_text text = {0};
    char words[4000], *rest = words;
    const char *comma = "";
    snprintf(words, sizeof words, "%s", map);
    tp_text_addf(&text, NULL, "{\"metadata\":{\"total_size\":1.5e3,\"x\":[null,true]},"
                 "\"weight_map\":{");
    for (char *word; (word = strtok_r(rest, " ", &rest)); comma = ",") {
        char *shard = strchr(word, '=');
        *shard++ = '\0';
        tp_text_addf(&text, NULL, "%s\"%s\":\"%s\"", comma, word, shard);
    }
    tp_text_addf(&text, NULL, "}}\n");
    put(dir, INDEX_NAME, text.data, text.size);
    tp_text_free(&text);
}

static void must_open(const char *path, unsigned flags, struct tp_checkpoint *ckpt)
{
    struct tp_err err = {0};
    if (tp_checkpoint_open(path, flags, ckpt, &err))
        fail_msg("%s: %s: %s (%s)", err.path, err.tensor, err.what, err.hint);
}

/* Opening must fail with this code, and name file and tensor. */
static void must_fail(const char *path, unsigned flags, enum tp_code code, const char *file,
                      const char *tensor, const char *what)
{
    struct tp_err err = {0};
    struct tp_checkpoint ckpt;
    enum tp_code got = tp_checkpoint_open(path, flags, &ckpt, &err);
    size_t length = strlen(err.path), tail = strlen(file);
    if (got != code || err.code != got || !strstr(err.what, what) ||
        strcmp(err.tensor, tensor) != 0 || !err.hint[0] || length < tail ||
        strcmp(err.path + length - tail, file) != 0)
        fail_msg("expected %d, %s, '%s', %s\n  got %d, %s, '%s', %s (%s)", (int)code, file, tensor,
                 what, (int)got, err.path, err.tensor, err.what, err.hint);
    assert_null(ckpt.files);
    assert_null(ckpt.path);
    tp_checkpoint_close(&ckpt);
}

static void check_tensor(const struct tp_checkpoint *ckpt, const char *name, const char *file,
                         char fill)
{
    struct tp_err err = {0};
    const struct tp_tensor *tensor = tp_checkpoint_find(ckpt, name);
    char data[4], expected[4];
    assert_non_null(tensor);
    assert_string_equal(tensor->name, name);
    assert_string_equal(ckpt->files[tensor->file].name, file);
    assert_int_equal(tensor->dtype, TP_U8);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[1], 2);
    assert_int_equal(tensor->bytes, 4);
    assert_int_equal(tp_checkpoint_read(ckpt, tensor->file, data, 4, tensor->offset, &err), TP_OK);
    memset(expected, fill, sizeof expected);
    assert_memory_equal(data, expected, 4);
}

static void test_single(void **state)
{
    (void)state;
    struct tp_text file = make_file("b a c", 'p');
    struct tp_checkpoint ckpt;
    struct tp_err err = {0};
    put(dir, "any name", file.data, file.size);
    must_open(at(dir, "any name"), 0, &ckpt);
    assert_false(ckpt.directory);
    assert_int_equal(ckpt.file_count, 1);
    assert_string_equal(ckpt.files[0].name, "any name");
    assert_int_equal(ckpt.files[0].size, file.size);
    assert_int_equal(ckpt.files[0].disk_size, file.size);
    assert_int_equal(ckpt.tensor_count, 3);
    assert_string_equal(ckpt.tensors[0].name, "a");
    assert_string_equal(ckpt.tensors[1].name, "b");
    assert_string_equal(ckpt.tensors[2].name, "c");
    check_tensor(&ckpt, "a", "any name", 'q');
    check_tensor(&ckpt, "b", "any name", 'p');
    check_tensor(&ckpt, "c", "any name", 'r');
    assert_null(tp_checkpoint_find(&ckpt, "d"));
    assert_null(ckpt.config);
    assert_int_equal(ckpt.other_count, 0);
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(file.data, file.size - 12));
    assert_memory_equal(ckpt.files[0].header_hash, hash.digest, 16);
    /* Reading beyond the end, also by numbers that wrap. */
    char byte;
    assert_int_equal(tp_checkpoint_read(&ckpt, 0, &byte, 1, file.size, &err), TP_E_INPUT);
    assert_int_equal(err.offset - 1, file.size);
    err = (struct tp_err){0};
    assert_int_equal(tp_checkpoint_read(&ckpt, 0, &byte, 2, UINT64_MAX, &err), TP_E_INPUT);
    tp_checkpoint_close(&ckpt);
    tp_checkpoint_close(&ckpt);
    tp_text_free(&file);
}

static void test_no_tensors(void **state)
{
    (void)state;
    struct tp_checkpoint ckpt;
    put(dir, "x.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    must_open(at(dir, "x.safetensors"), 0, &ckpt);
    assert_int_equal(ckpt.tensor_count, 0);
    assert_null(tp_checkpoint_find(&ckpt, "a"));
    tp_checkpoint_close(&ckpt);
}

static int broken_fstat(int fd, struct stat *st)
{
    (void)fd, (void)st;
    errno = EIO;
    return -1;
}

static void test_changed(void **state)
{
    (void)state;
    struct tp_checkpoint ckpt;
    struct tp_err err = {0};
    put_shard(dir, "x.safetensors", "a", 'p');
    must_open(dir, 0, &ckpt);
    assert_int_equal(tp_checkpoint_unchanged(&ckpt, &err), TP_OK);
    const struct timeval later[2] = {{1, 0}, {1, 0}};
    assert_int_equal(utimes(at(dir, "x.safetensors"), later), 0);
    assert_int_equal(tp_checkpoint_unchanged(&ckpt, &err), TP_E_INPUT);
    assert_non_null(strstr(err.path, "x.safetensors"));
    assert_non_null(strstr(err.what, "changed while it was read"));
    tp_os.fstat = broken_fstat;
    err = (struct tp_err){0};
    assert_int_equal(tp_checkpoint_unchanged(&ckpt, &err), TP_E_IO);
    tp_os = saved;
    /* Cut off while open: an error, not a signal. */
    char data[4];
    const struct tp_tensor *a = tp_checkpoint_find(&ckpt, "a");
    assert_int_equal(truncate(at(dir, "x.safetensors"), (off_t)a->offset + 2), 0);
    err = (struct tp_err){0};
    assert_int_equal(tp_checkpoint_read(&ckpt, 0, data, 4, a->offset, &err), TP_E_INPUT);
    tp_checkpoint_close(&ckpt);
}

static void test_changed_index(void **state)
{
    (void)state;
    struct tp_checkpoint ckpt;
    struct tp_err err = {0};
    put_shard(dir, "1.safetensors", "a", 'p');
    put_index("a=1.safetensors");
    must_open(dir, 0, &ckpt);
    assert_int_equal(tp_checkpoint_unchanged(&ckpt, &err), TP_OK);
    put_index("other=1.safetensors");
    assert_int_equal(tp_checkpoint_unchanged(&ckpt, &err), TP_E_INPUT);
    assert_non_null(strstr(err.path, "model.safetensors.index.json"));
    assert_int_equal(unlink(at(dir, "model.safetensors.index.json")), 0);
    err = (struct tp_err){0};
    assert_int_equal(tp_checkpoint_unchanged(&ckpt, &err), TP_E_IO);
    tp_checkpoint_close(&ckpt);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
    const char *name = "x.safetensors";
    must_fail(at(dir, name), 0, TP_E_IO, name, "", "cannot open");
    put(dir, name, "", 0);
    must_fail(at(dir, name), 0, TP_E_INPUT, name, "", "only 0 bytes");
    put(dir, name, "1234567", 7);
    must_fail(at(dir, name), 0, TP_E_INPUT, name, "", "only 7 bytes");
    put_text(dir, name, pointer);
    must_fail(dir, 0, TP_E_INPUT, name, "", "Git LFS pointer");
    put(dir, name, "\2\0\0\0\0\0\0\0{", 9);
    must_fail(at(dir, name), 0, TP_E_INPUT, name, "", "truncated");
    struct tp_text file = make_file("a b", 'p');
    put(dir, name, file.data, file.size - 1);
    must_fail(at(dir, name), 0, TP_E_INPUT, name, "b", "the file has only 7 there");
    put(dir, name, file.data, file.size);
    assert_int_equal(chmod(at(dir, name), 0), 0);
    if (geteuid() != 0)
        must_fail(at(dir, name), 0, TP_E_IO, name, "", "cannot open");
    tp_text_free(&file);
    assert_int_equal(mkfifo(at(dir, "pipe"), 0600), 0);
    must_fail(at(dir, "pipe"), 0, TP_E_INPUT, "pipe", "", "not a regular file");
}

static void test_directory(void **state)
{
    (void)state;
    struct tp_checkpoint ckpt;
    put_shard(dir, "m-00001-of-00002.safetensors", "z.weight a.weight", 'A');
    put_shard(dir, "m-00002-of-00002.safetensors", "b.weight", 'K');
    put_index("b.weight=m-00002-of-00002.safetensors z.weight=m-00001-of-00002.safetensors "
              "a.weight=m-00001-of-00002.safetensors");
    put_text(dir, "config.json", "{\"a\": Infinity}\n");
    /* Copied along: */
    put_text(dir, "tokenizer.json", "{}");
    put_text(dir, "README.md", "");
    put_text(dir, "vocab.model", "");
    assert_int_equal(symlink("../outside/linked.txt", at(dir, "linked.txt")), 0);
    put_text(outside, "linked.txt", "");
    /* Not: */
    static const char *const left[] = {
        "consolidated.safetensors", "other.safetensors.zst", "consolidated.safetensors.index.json",
        "pytorch_model.bin", "pytorch_model.bin.index.json", "a.pt", "a.pth", "a.gguf", "a.onnx",
        "a.onnx_data", "a.h5", "a.msgpack", "a.ckpt", "a.ot", "a.tflite", ".gitattributes",
        "tilepack.json"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        put_text(dir, left[i], "never opened");
    assert_int_equal(mkdir(at(dir, "figures"), 0700), 0);
    assert_int_equal(mkfifo(at(dir, "pipe"), 0600), 0);

    must_open(at(dir, "//"), 0, &ckpt);
    assert_true(ckpt.directory);
    assert_int_equal(ckpt.file_count, 2);
    assert_string_equal(ckpt.files[0].name, "m-00001-of-00002.safetensors");
    assert_string_equal(ckpt.files[1].name, "m-00002-of-00002.safetensors");
    assert_int_equal(ckpt.tensor_count, 3);
    check_tensor(&ckpt, "z.weight", "m-00001-of-00002.safetensors", 'A');
    check_tensor(&ckpt, "a.weight", "m-00001-of-00002.safetensors", 'B');
    check_tensor(&ckpt, "b.weight", "m-00002-of-00002.safetensors", 'K');
    assert_string_equal(ckpt.tensors[0].name, "a.weight");
    assert_string_equal(ckpt.tensors[2].name, "z.weight");
    assert_string_equal(ckpt.config, "{\"a\": Infinity}\n");
    assert_int_equal(ckpt.config_size, 16);
    static const char *const others[] = {"README.md", "linked.txt", "tokenizer.json",
                                         "vocab.model"};
    assert_int_equal(ckpt.other_count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(ckpt.others[i], others[i]);
    tp_checkpoint_close(&ckpt);
    /* A link to the directory is the directory. */
    assert_int_equal(symlink("ckpt", at(folder, "link")), 0);
    must_open(at(folder, "link"), 0, &ckpt);
    tp_checkpoint_close(&ckpt);
    /* A link that leads nowhere is not left out in silence where files are copied. */
    assert_int_equal(symlink("nowhere", at(dir, "merges.txt")), 0);
    must_fail(dir, TP_CHECKPOINT_FOLDERS, TP_E_IO, "merges.txt", "", "cannot look at the file");
    must_open(dir, 0, &ckpt);
    assert_int_equal(ckpt.other_count, 4);
    tp_checkpoint_close(&ckpt);
}

/* What is read under this index: a tensor for each letter, which fills it where it is a capital;
 * and which of the odds is said, and how. */
static void check_odds(const char *map, const char *read, int odd, const char *says)
{
    struct tp_checkpoint ckpt;
    put_index(map);
    must_open(dir, 0, &ckpt);
    assert_int_equal(ckpt.tensor_count, strlen(read));
    for (size_t i = 0; i < ckpt.tensor_count; i++) {
        char data = 0;
        const struct tp_tensor *tensor = &ckpt.tensors[ckpt.by_data[i]];
        assert_int_equal(tp_checkpoint_read(&ckpt, tensor->file, &data, 1, tensor->offset, NULL),
                         TP_OK);
        if (read[i] >= 'a')
            assert_int_equal(tensor->name[0], read[i]);
        else
            assert_int_equal(data, read[i]);
    }
    for (int i = 0; i < TP_ODDS; i++)
        if (i == odd ? !ckpt.odds[i] || !strstr(ckpt.odds[i], says) : ckpt.odds[i] != NULL)
            fail_msg("%s: %d: %s", map, i, ckpt.odds[i] ? ckpt.odds[i] : "nothing");
    tp_checkpoint_close(&ckpt);
}

static void test_index_agrees(void **state)
{
    (void)state;
    put_shard(dir, "1.safetensors", "a b", 'A');
    put_shard(dir, "2.safetensors", "c", 'K');
    check_odds("a=1.safetensors b=1.safetensors c=2.safetensors d=2.safetensors", "abc", 3,
               "'d' is in the index, but in no shard");
    check_odds("a=1.safetensors c=2.safetensors", "ac", 0, "'b' is in a shard, but not in the index");
    check_odds("a=1.safetensors b=2.safetensors c=2.safetensors", "abc", 2,
               "'b' is in another shard than the index says");
    put_shard(dir, "2.safetensors", "b c", 'K');
    check_odds("a=1.safetensors b=2.safetensors c=2.safetensors", "aKL", 1, "'b' is in several");
    check_odds("a=1.safetensors b=1.safetensors c=2.safetensors", "abL", 1, "'b' is in several");
    put_shard(dir, "3.safetensors", "d", 'Q');
    put_index("a=1.safetensors b=3.safetensors c=2.safetensors d=3.safetensors");
    must_fail(dir, 0, TP_E_INPUT, INDEX_NAME, "b", "is in several shards, but not in the one");
    assert_int_equal(unlink(at(dir, "3.safetensors")), 0);
    put_index("x=1.safetensors y=2.safetensors");
    must_fail(dir, 0, TP_E_INPUT, INDEX_NAME, "", "no shard holds a tensor that the index names");
    put_index("a=1.safetensors b=1.safetensors c=3.safetensors");
    must_fail(dir, 0, TP_E_INPUT, INDEX_NAME, "",
              "the index names the shard '3.safetensors', which does not exist");
    put_index("");
    must_fail(dir, 0, TP_E_INPUT, INDEX_NAME, "", "names no tensor");
    put_index("a=sub.safetensors");
    assert_int_equal(mkdir(at(dir, "sub.safetensors"), 0700), 0);
    must_fail(dir, 0, TP_E_INPUT, "sub.safetensors", "", "not a regular file");
    put_index("a=pipe.safetensors");
    assert_int_equal(mkfifo(at(dir, "pipe.safetensors"), 0600), 0);
    must_fail(dir, 0, TP_E_INPUT, "pipe.safetensors", "", "not a regular file");
}

static void test_shard_names(void **state)
{
    (void)state;
    static const struct {
        const char *value, *why;
    } rows[] = {
        {"", "it is empty"},
        {"/etc/x.safetensors", "it is a path"},
        {"../x.safetensors", "it is a path"},
        {"a/../x.safetensors", "it is a path"},
        {"././x.safetensors", "it is a path"},
        {"./../x.safetensors", "it is a path"},
        {"..\\\\x.safetensors", "it is a path"},
        {"a/", "it is a path"},
        {"..", "it is a directory"},
        {".", "it is a directory"},
        {"x.bin", "does not end in .safetensors"},
        {".safetensors", "does not end in .safetensors"},
        {"x.safetensors ", "does not end in .safetensors"},
        {"x\\n.safetensors", "control character"},
        {"x\\u007f.safetensors", "control character"},
    };
    put_shard(outside, "x.safetensors", "a", 'A');
    put_shard(folder, "x.safetensors", "a", 'A');
    put_shard(dir, "x.safetensors", "a", 'A');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", rows[i].value);
        put_text(dir, INDEX_NAME, text);
        must_fail(dir, 0, TP_E_INPUT, INDEX_NAME, "a", rows[i].why);
    }
    char name[300];
    memset(name, 'x', sizeof name);
    snprintf(name + 250, sizeof name - 250, ".safetensors");
    assert_non_null(strstr(tp_index_shard_name(name), "longer"));
    assert_null(tp_index_shard_name("x.safetensors"));
    assert_null(tp_index_shard_name("x.safetensors.zst"));
    assert_null(tp_index_shard_name("..x.safetensors"));
}

static void test_bad_index(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t offset;
        const char *tensor, *what;
    } rows[] = {
        {"", 0, "", "expected '{', but the index ends"},
        {"[]", 0, "", "expected '{', found '['"},
        {"{}", 0, "", "the key 'weight_map' is missing"},
        {"{\"weight_map\":[]}", 14, "", "expected '{', found '['"},
        {"{\"weight_map\":{\"a\":1}}", 19, "a", "expected a string, found '1'"},
        {"{\"weight_map\":{\"a\":null}}", 19, "a", "expected a string, found 'n'"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"\\u0061\":\"1.safetensors\"}}", 35, "a",
         "weight_map names this tensor twice"},
        /* A name that comes twice is reported before what follows it in the text. */
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":7}}", 35, "a",
         "weight_map names this tensor twice"},
        {"{\"weight_map\":{\"b\":\"1.safetensors\",\"a\":\"1.safetensors\","
         "\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"a\":\"/\"", 55, "a",
         "weight_map names this tensor twice"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\"},\"x\":1,\"x\":1}", 42, "",
         "the key 'x' comes twice"},
        {"{\"weight_map\":{},\"weight_map\":{}}", 17, "", "the key 'weight_map' comes twice"},
        {"{\"m\":1,\"m\":1,\"weight_map\":{}}", 7, "", "the key 'm' comes twice"},
        {"{\"weight_map\":{}} x", 18, "", "text follows the last '}'"},
        {"{\"weight_map\":{},}", 17, "", "expected a string, found '}'"},
        {"{\"m\":{\"x\":[1,-2.5e+3,0,{}],\"y\":\"\\u00e9\"},\"m2\":01}", 47, "", "expected ','"},
        {"{\"m\":-}", 6, "", "expected a value"},
        {"{\"m\":1.}", 7, "", "digits behind the decimal point"},
        {"{\"m\":1e}", 7, "", "digits of an exponent"},
        {"{\"m\":nul}", 5, "", "expected a value, found 'n'"},
        {"{\"m\":NaN}", 5, "", "expected a value, found 'N'"},
        {"{\"m\":[1 2]}", 8, "", "expected ',' or ']'"},
        {"{\"m\":{\"x\"}}", 9, "", "expected ':'"},
        {"{\"m\":\"\\q\"}", 7, "", "after a backslash"},
        {"{\"m\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 37, "", "nested more than 32 deep"},
        {"{\"m\":", 5, "", "expected a value, but the index ends"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\"", 34, "", "',' or '}', but the index ends"},
    };
    put_shard(dir, "1.safetensors", "a", 'A');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tp_err err = {0};
        struct tp_index index;
        put_text(dir, INDEX_NAME, rows[i].text);
        must_fail(dir, 0, TP_E_INPUT, INDEX_NAME, rows[i].tensor, rows[i].what);
        assert_int_equal(tp_index_parse(rows[i].text, strlen(rows[i].text), &index, &err),
                         TP_E_INPUT);
        if ((int64_t)err.offset - 1 != rows[i].offset)
            fail_msg("%s: offset %lld", rows[i].text, (long long)err.offset - 1);
    }
}

static void test_without_index(void **state)
{
    (void)state;
    struct tp_checkpoint ckpt;
    must_fail(dir, 0, TP_E_INPUT, "ckpt", "", "no .safetensors file");
    put_shard(dir, "m-00001-of-00002.safetensors", "a", 'A');
    must_fail(dir, 0, TP_E_INPUT, "ckpt", "", "is one of several shards");
    must_open(at(dir, "m-00001-of-00002.safetensors"), 0, &ckpt); /* asked for by name */
    tp_checkpoint_close(&ckpt);
    rename(at(dir, "m-00001-of-00002.safetensors"), at(dir, "m-00001-of-00001.safetensors"));
    must_open(dir, 0, &ckpt);
    assert_string_equal(ckpt.files[0].name, "m-00001-of-00001.safetensors");
    tp_checkpoint_close(&ckpt);
    rename(at(dir, "m-00001-of-00001.safetensors"), at(dir, "the-very-best-of-5.safetensors"));
    put_shard(dir, ".hidden.safetensors", "a", 'A');
    must_open(dir, 0, &ckpt);
    assert_string_equal(ckpt.files[0].name, "the-very-best-of-5.safetensors");
    assert_int_equal(ckpt.other_count, 0);
    tp_checkpoint_close(&ckpt);
    put_shard(dir, "other.safetensors", "a", 'C');
    must_fail(dir, 0, TP_E_INPUT, "ckpt", "", "2 .safetensors files and no model.safetensors.ind");
    put_shard(dir, "model.safetensors", "a", 'B');
    must_open(dir, 0, &ckpt);
    check_tensor(&ckpt, "a", "model.safetensors", 'B');
    tp_checkpoint_close(&ckpt);
}

static void test_packed(void **state)
{
    (void)state;
    struct tp_checkpoint ckpt;
    struct tp_text plain = make_file("a b", 'A');
    put_packed(dir, "1.safetensors.zst", "a b", 'A');
    must_open(dir, 0, &ckpt); /* the only one */
    assert_string_equal(ckpt.files[0].name, "1.safetensors");
    check_tensor(&ckpt, "b", "1.safetensors", 'B');
    tp_checkpoint_close(&ckpt);
    put_packed(dir, "2.safetensors.zst", "c", 'K');
    put_shard(dir, "3.safetensors", "d", 'S');
    /* Named with and without .zst, also both, whatever is on disk. */
    put_index("a=1.safetensors b=1.safetensors.zst c=2.safetensors d=3.safetensors.zst");
    must_open(dir, TP_CHECKPOINT_STRICT, &ckpt);
    assert_int_equal(ckpt.file_count, 3);
    check_tensor(&ckpt, "a", "1.safetensors", 'A');
    check_tensor(&ckpt, "b", "1.safetensors", 'B');
    check_tensor(&ckpt, "c", "2.safetensors", 'K');
    check_tensor(&ckpt, "d", "3.safetensors", 'S');
    assert_int_equal(ckpt.files[0].size, plain.size);
    struct stat st;
    assert_int_equal(stat(at(dir, "1.safetensors.zst"), &st), 0);
    assert_int_equal(ckpt.files[0].disk_size, st.st_size);
    assert_non_null(strstr(ckpt.files[0].path, "1.safetensors.zst"));
    XXH128_canonical_t hash; /* of the plain bytes: packing does not change it */
    XXH128_canonicalFromHash(&hash, XXH3_128bits(plain.data, plain.size - 8));
    assert_memory_equal(ckpt.files[0].header_hash, hash.digest, 16);
    struct tp_err err = {0};
    assert_int_equal(tp_checkpoint_unchanged(&ckpt, &err), TP_OK);
    tp_checkpoint_close(&ckpt);
    /* An archive of too few bytes. */
    struct tp_zst_writer *writer;
    uint64_t size;
    int fd = open(at(dir, "short"), O_RDWR | O_CREAT, 0600);
    assert_int_equal(tp_zst_create(fd, "short", 3, 1, &writer, NULL), TP_OK);
    assert_int_equal(tp_zst_add(writer, "1234567", 7, NULL), TP_OK);
    assert_int_equal(tp_zst_finish(writer, &size, NULL), TP_OK);
    tp_zst_abandon(writer);
    close(fd);
    must_fail(at(dir, "short"), 0, TP_E_INPUT, "short", "", "only 7 bytes");
    /* The same directly, and where plain and packed lie side by side. */
    must_open(at(dir, "1.safetensors.zst"), 0, &ckpt);
    assert_string_equal(ckpt.files[0].name, "1.safetensors");
    tp_checkpoint_close(&ckpt);
    unlink(at(dir, INDEX_NAME));
    unlink(at(dir, "2.safetensors.zst"));
    unlink(at(dir, "3.safetensors"));
    put_shard(dir, "1.safetensors", "a b", 'X');
    must_open(dir, 0, &ckpt);
    check_tensor(&ckpt, "a", "1.safetensors", 'X');
    tp_checkpoint_close(&ckpt);
    unlink(at(dir, "1.safetensors"));
    rename(at(dir, "1.safetensors.zst"), at(dir, "model.safetensors.zst"));
    put_shard(dir, "z.safetensors", "a b", 'X');
    must_open(dir, 0, &ckpt);
    check_tensor(&ckpt, "a", "model.safetensors", 'A');
    tp_checkpoint_close(&ckpt);
    tp_text_free(&plain);
}

static void test_links(void **state)
{
    (void)state;
    struct tp_checkpoint ckpt;
    put_shard(outside, "blob1", "a", 'A');
    put_shard(dir, "blob2", "b", 'B');
    assert_int_equal(symlink("../outside/blob1", at(dir, "1.safetensors")), 0);
    assert_int_equal(symlink("blob2", at(dir, "2.safetensors")), 0);
    put_index("a=1.safetensors b=2.safetensors");
    must_open(dir, 0, &ckpt); /* as in the cache of the Hugging Face hub */
    check_tensor(&ckpt, "a", "1.safetensors", 'A');
    tp_checkpoint_close(&ckpt);
    must_fail(dir, TP_CHECKPOINT_STRICT, TP_E_INPUT, "1.safetensors", "", "out of the directory");
    unlink(at(dir, "1.safetensors"));
    put_shard(dir, "1.safetensors", "a", 'C');
    must_open(dir, TP_CHECKPOINT_STRICT, &ckpt); /* links inside are fine */
    check_tensor(&ckpt, "b", "2.safetensors", 'B');
    tp_checkpoint_close(&ckpt);
    static const char *const names[] = {"config.json", "tokenizer.json", INDEX_NAME};
    put_text(outside, "text", "{\"weight_map\":{\"a\":\"1.safetensors\"}}");
    for (int i = 0; i < 3; i++) {
        unlink(at(dir, names[i]));
        assert_int_equal(symlink("../outside/text", at(dir, names[i])), 0);
        must_fail(dir, TP_CHECKPOINT_STRICT, TP_E_INPUT, names[i], "", "out of the directory");
        if (i < 2)
            unlink(at(dir, names[i]));
    }
    must_open(dir, 0, &ckpt);
    tp_checkpoint_close(&ckpt);
    unlink(at(dir, "1.safetensors"));
    assert_int_equal(symlink("nowhere", at(dir, "1.safetensors")), 0);
    must_fail(dir, 0, TP_E_INPUT, INDEX_NAME, "", "which does not exist");
}

static void test_many_shards(void **state)
{
    (void)state;
    enum { SHARDS = 100 };
    struct tp_text map = {0};
    struct tp_checkpoint ckpt;
    struct tp_err err = {0};
    struct rlimit limit, low;
    for (int i = 0; i < SHARDS; i++) {
        char name[40], tensor[40];
        snprintf(name, sizeof name, "%03d.safetensors", i);
        snprintf(tensor, sizeof tensor, "t%d", SHARDS - i);
        put_shard(dir, name, tensor, (char)i);
        tp_text_addf(&map, NULL, "%s=%s ", tensor, name);
    }
    put_index(map.data);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    enum tp_code code = tp_checkpoint_open(dir, 0, &ckpt, &err);
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(code, TP_OK);
    assert_int_equal(ckpt.file_count, SHARDS);
    check_tensor(&ckpt, "t1", "099.safetensors", 99);
    tp_checkpoint_close(&ckpt);
    tp_text_free(&map);
}

/* Shards that hold their tensors in another order than the index, by little and by
 * much, and as far from that of their names. */
static void test_orders(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    static const int steps[] = {1, 7, 59, 13, 31};
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (size_t o = 0; o < sizeof steps / sizeof *steps; o++) {
            struct tp_text shards[2] = {{0}}, map = {0};
            struct tp_checkpoint ckpt;
            int expected[2][COUNT], count[2] = {0};
            for (int i = 0; i < COUNT; i++) {
                int stored = i * steps[s] % COUNT, listed = i * steps[o] % COUNT;
                tp_text_addf(&shards[stored % 2], NULL, "t%d ", stored);
                expected[stored % 2][count[stored % 2]++] = stored;
                tp_text_addf(&map, NULL, "t%d=%d.safetensors ", listed, listed % 2);
            }
            put_shard(dir, "0.safetensors", shards[0].data, 'A');
            put_shard(dir, "1.safetensors", shards[1].data, 'a');
            put_index(map.data);
            must_open(dir, 0, &ckpt);
            assert_int_equal(ckpt.tensor_count, COUNT);
            for (int i = 0; i < COUNT; i++) {
                const struct tp_tensor *tensor = &ckpt.tensors[ckpt.by_data[i]];
                char name[16];
                snprintf(name, sizeof name, "t%d", expected[i / (COUNT / 2)][i % (COUNT / 2)]);
                assert_string_equal(tensor->name, name);
                assert_int_equal(tensor->file, i / (COUNT / 2));
                if (i)
                    assert_true(strcmp(ckpt.tensors[i - 1].name, ckpt.tensors[i].name) < 0);
            }
            tp_checkpoint_close(&ckpt);
            tp_text_free(&shards[0]);
            tp_text_free(&shards[1]);
            tp_text_free(&map);
        }
}

/* More tensors than the limit: in the index, and in the shards together. */
static void test_too_many(void **state)
{
    (void)state;
    struct tp_text text = {0};
    struct tp_index index;
    struct tp_err err = {0};
    tp_text_addf(&text, NULL, "{\"weight_map\":{\"\":\"1.safetensors\"");
    for (unsigned i = 1; i <= TP_INDEX_MAX_TENSORS; i++)
        tp_text_addf(&text, NULL, ",\"%x\":\"1.safetensors\"", i);
    tp_text_addf(&text, NULL, "}}");
    assert_int_equal(tp_index_parse(text.data, text.size, &index, &err), TP_E_UNSUPPORTED);
    assert_non_null(strstr(err.what, "more than 2000000 tensors"));
    tp_text_free(&text);

    tp_text_add(&text, "\0\0\0\0\0\0\0\0{", 9, NULL);
    for (unsigned i = 0; i < TP_INDEX_MAX_TENSORS / 3 + 1; i++)
        tp_text_addf(&text, NULL, "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[0],"
                     "\"data_offsets\":[0,0]}", i ? "," : "", i);
    tp_text_add(&text, "}", 1, NULL);
    for (int i = 0; i < 8; i++)
        text.data[i] = (char)((text.size - 8) >> (8 * i) & 0xff);
    put(dir, "1.safetensors", text.data, text.size);
    tp_text_free(&text);
    assert_int_equal(symlink("1.safetensors", at(dir, "2.safetensors")), 0);
    assert_int_equal(symlink("1.safetensors", at(dir, "3.safetensors")), 0);
    put_index("a=1.safetensors b=2.safetensors c=3.safetensors");
    must_fail(dir, 0, TP_E_UNSUPPORTED, "ckpt", "", "2000001 tensors, more than the limit");
}

/* The n-th call of the table fails, for every n: never a crash, a leak or a wrong
 * TP_OK, and always the code of the cause. */
static int calls_left;
static enum tp_code cause;

static bool fails(enum tp_code code)
{
    if (calls_left-- != 0)
        return false;
    cause = code;
    errno = EIO;
    return true;
}

static int f_open(const char *path, int flags, mode_t mode)
{
    return fails(TP_E_IO) ? -1 : saved.open(path, flags, mode);
}

static ssize_t f_pread(int fd, void *data, size_t size, off_t offset)
{
    return fails(TP_E_IO) ? -1 : saved.pread(fd, data, size, offset);
}

static int f_fstat(int fd, struct stat *st) { return fails(TP_E_IO) ? -1 : saved.fstat(fd, st); }

static int f_stat(const char *path, struct stat *st)
{
    return fails(TP_E_IO) ? -1 : saved.stat(path, st);
}

static void *f_malloc(size_t size) { return fails(TP_E_MEMORY) ? NULL : saved.malloc(size); }

static void *f_calloc(size_t count, size_t size)
{
    return fails(TP_E_MEMORY) ? NULL : saved.calloc(count, size);
}

static void *f_realloc(void *memory, size_t size)
{
    return fails(TP_E_MEMORY) ? NULL : saved.realloc(memory, size);
}

static DIR *f_fdopendir(int fd) { return fails(TP_E_IO) ? NULL : saved.fdopendir(fd); }

static struct dirent *f_readdir(DIR *open) { return fails(TP_E_IO) ? NULL : saved.readdir(open); }

static char *f_realpath(const char *path, char *resolved)
{
    return fails(TP_E_IO) ? NULL : saved.realpath(path, resolved);
}

static void test_failing_calls(void **state)
{
    (void)state;
    put_shard(dir, "1.safetensors", "c b a", 'A');
    put_packed(dir, "2.safetensors.zst", "e d", 'K');
    put_index("b=1.safetensors c=1.safetensors a=1.safetensors d=2.safetensors e=2.safetensors");
    put_text(dir, "config.json", "{}");
    put_text(dir, "tokenizer.json", "{}");
    enum tp_code code = TP_E_IO;
    int n = 0;
    for (; code; n++) {
        struct tp_checkpoint ckpt;
        struct tp_err err = {0};
        calls_left = n;
        cause = TP_OK;
        tp_os.open = f_open;
        tp_os.pread = f_pread;
        tp_os.fstat = f_fstat;
        tp_os.stat = f_stat;
        tp_os.malloc = f_malloc;
        tp_os.calloc = f_calloc;
        tp_os.realloc = f_realloc;
        tp_os.fdopendir = f_fdopendir;
        tp_os.readdir = f_readdir;
        tp_os.realpath = f_realpath;
        code = tp_checkpoint_open(dir, TP_CHECKPOINT_STRICT, &ckpt, &err);
        tp_os = saved;
        if (code != cause || code != err.code)
            fail_msg("call %d: %d, but the cause is %d: %s", n, (int)code, (int)cause, err.what);
        assert_true(code != TP_E_IO || err.path[0]);
        tp_checkpoint_close(&ckpt);
    }
    assert_true(n > 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_single),        TEST(test_no_tensors),  TEST(test_changed),
        TEST(test_changed_index),
        TEST(test_bad_files),     TEST(test_directory),   TEST(test_index_agrees),
        TEST(test_shard_names),   TEST(test_bad_index),   TEST(test_without_index),
        TEST(test_packed),        TEST(test_links),       TEST(test_many_shards),
        TEST(test_failing_calls), TEST(test_too_many),     TEST(test_orders),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
