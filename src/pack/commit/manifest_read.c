/* The manifest: reading, without a JSON tree: a checkpoint of a million tensors has one of hundreds
 * of megabytes. Looks at what it needs and checks the rest as JSON.
 *
 * Invariant: memory is that of the text and of its list of files.
 */
#include "pack/commit/manifest_read.h"

#include "pack/file/own_hash.h"
#include "pack/os/os.h"
#include "pack/text/json_scan.h"
#include "pack/text/name_set.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* More than any has that tp_manifest_text() makes of as many tensors as an index may have. */
#define MAX_BYTES (UINT64_C(2) << 30)

struct reader {
    struct tp_json json;
    struct tp_manifest *manifest;
    size_t file_capacity, source_capacity; /* of the lists */
    bool version, files, sources;
};

/* "name", or "folder/name": nothing that leads out of the directory. */
static bool stays_below(const char *name)
{
    for (size_t size; ; name += size + 1) {
        size = strcspn(name, "/");
        if (!size || (size == 1 && name[0] == '.') ||
            (size == 2 && name[0] == '.' && name[1] == '.'))
            return false;
        if (!name[size])
            return true;
    }
}

/* A key of the object that is being read. One that matters must not come twice: *seen. */
static enum tp_code key_is_new(struct tp_json *json, const struct tp_json_string *key, bool *seen)
{
    if (*seen)
        return tp_json_fail(json, key->pos, "the key \"%s\" comes twice", key->data);
    *seen = true;
    return TP_OK;
}

/* A string, or any other value with *text NULL. It lasts until `used` of the arena is put back. */
static enum tp_code read_text(struct tp_json *json, const char **text)
{
    struct tp_json_string string = {0};
    enum tp_code code = tp_json_peek(json) == '"' ? tp_json_string(json, &string)
                                                  : tp_json_skip(json);
    *text = string.data;
    return code;
}

/* A number, or any other value with *right false. */
static enum tp_code read_size(struct tp_json *json, uint64_t *value, bool *right)
{
    int byte = tp_json_peek(json);
    *right = byte >= '0' && byte <= '9';
    return *right ? tp_json_u64(json, value) : tp_json_skip(json);
}

/* What was read of one entry of a list: of "files", or of "source". */
enum { NAME, XXH3, SHA256, HEADER, DATA, TEXTS };
struct entry {
    const char *text[TEXTS];
    uint64_t size;
    bool right, has[TEXTS], has_size;
};

static enum tp_code read_member(struct tp_json *json, struct entry *entry)
{
    static const char *const keys[TEXTS] = {"name", "xxh3", "sha256", "header", "data"};
    struct tp_json_string key;
    enum tp_code code = tp_json_key(json, &key);
    if (code)
        return code;
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(key.data, keys[i]) == 0)
            return (code = key_is_new(json, &key, &entry->has[i]))
                       ? code : read_text(json, &entry->text[i]);
    if (strcmp(key.data, "size") == 0)
        return (code = key_is_new(json, &key, &entry->has_size))
                   ? code : read_size(json, &entry->size, &entry->right);
    return tp_json_skip(json);
}

static bool is_hash(const char *text, uint8_t hash[TP_HASH_BYTES])
{
    return text && tp_hash_parse(text, strlen(text), hash);
}

static enum tp_code take_file(struct reader *r, const struct entry *entry)
{
    struct tp_manifest *manifest = r->manifest;
    const char *sha256 = entry->text[SHA256];
    struct tp_manifest_file file = {.size = entry->size, .has_sha256 = entry->has[SHA256]};
    if (!entry->text[NAME] || !stays_below(entry->text[NAME]) || !entry->right ||
        entry->size > INT64_MAX || !is_hash(entry->text[XXH3], file.hash))
        return tp_fail(r->json.err, TP_E_INPUT,
                       "an entry of \"files\" lacks a plain name, size or hash");
    if (file.has_sha256 && (!sha256 || !tp_sha256_parse(sha256, file.sha256)))
        return tp_fail(r->json.err, TP_E_INPUT,
                       "a \"sha256\" of \"files\" is not 64 hexadecimal digits");
    if (manifest->file_count == TP_MANIFEST_FILES)
        return tp_fail(r->json.err, TP_E_UNSUPPORTED, "more than %u files",
                       (unsigned)TP_MANIFEST_FILES);
    void *files = manifest->files;
    enum tp_code code = tp_os_grow(&files, &r->file_capacity, manifest->file_count + 1,
                                   sizeof *manifest->files, r->json.err);
    manifest->files = files;
    if (code == TP_OK && !(file.name = tp_os_copy(r->json.err, entry->text[NAME])))
        code = TP_E_MEMORY;
    if (code == TP_OK)
        manifest->files[manifest->file_count++] = file;
    return code;
}

/* What cannot be used of it is not there. */
static enum tp_code take_source(struct reader *r, const struct entry *entry)
{
    struct tp_manifest *manifest = r->manifest;
    struct tp_manifest_source source = {.size = entry->size};
    uint8_t data[TP_SUM_BYTES];
    if (!entry->text[NAME] || !entry->right || manifest->source_count == TP_MANIFEST_FILES)
        return TP_OK;
    source.has_header = is_hash(entry->text[HEADER], source.header);
    if (!source.has_header) /* and so no shard */
        is_hash(entry->text[XXH3], source.header);
    if ((source.has_data = is_hash(entry->text[DATA], data)))
        source.data = tp_sum_of_bytes(data);
    void *sources = manifest->sources;
    enum tp_code code = tp_os_grow(&sources, &r->source_capacity, manifest->source_count + 1,
                                   sizeof *manifest->sources, r->json.err);
    manifest->sources = sources;
    if (code == TP_OK && !(source.name = tp_os_copy(r->json.err, entry->text[NAME])))
        code = TP_E_MEMORY;
    if (code == TP_OK)
        manifest->sources[manifest->source_count++] = source;
    return code;
}

static enum tp_code read_list(struct reader *r,
                              enum tp_code (*take)(struct reader *r, const struct entry *entry))
{
    struct tp_json *json = &r->json;
    uint64_t count = 0, before = json->used;
    bool more, member;
    enum tp_code code = tp_json_expect(json, '[');
    while (!code && !(code = tp_json_next(json, ']', &count, &more)) && more) {
        struct entry entry = {.right = true};
        uint64_t members = 0;
        if (tp_json_peek(json) != '{') {
            if ((code = tp_json_skip(json)) == TP_OK)
                code = take(r, &entry);
            continue;
        }
        code = tp_json_expect(json, '{');
        while (!code && !(code = tp_json_next(json, '}', &members, &member)) && member)
            code = read_member(json, &entry);
        code = code ? code : take(r, &entry);
        json->used = before;
    }
    return code;
}

static enum tp_code read_version(struct reader *r)
{
    uint64_t version = 0;
    bool number;
    enum tp_code code = read_size(&r->json, &version, &number);
    if (code == TP_OK && version != 1)
        code = tp_fail(r->json.err, TP_E_UNSUPPORTED, "manifest version is not 1");
    return code;
}

static enum tp_code read_plan(struct reader *r)
{
    const char *plan;
    enum tp_code code = read_text(&r->json, &plan);
    if (code == TP_OK && plan && !(r->manifest->plan = tp_os_copy(r->json.err, plan)))
        code = TP_E_MEMORY;
    return code;
}

static enum tp_code read_value(struct reader *r, const struct tp_json_string *key, bool *plan)
{
    enum tp_code code;
    if (strcmp(key->data, "tilepack") == 0)
        return (code = key_is_new(&r->json, key, &r->version)) ? code : read_version(r);
    if (strcmp(key->data, "plan") == 0)
        return (code = key_is_new(&r->json, key, plan)) ? code : read_plan(r);
    if (strcmp(key->data, "files") == 0 && tp_json_peek(&r->json) == '[')
        return (code = key_is_new(&r->json, key, &r->files)) ? code : read_list(r, take_file);
    if (strcmp(key->data, "source") == 0 && tp_json_peek(&r->json) == '[')
        return (code = key_is_new(&r->json, key, &r->sources)) ? code : read_list(r, take_source);
    if (strcmp(key->data, "request") != 0 || tp_json_peek(&r->json) != '{')
        return tp_json_skip(&r->json);
    r->manifest->request_at = r->json.pos;
    code = tp_json_skip(&r->json);
    r->manifest->request_size = r->json.pos - r->manifest->request_at;
    return code;
}

static enum tp_code sort_names(struct tp_manifest *manifest, struct tp_err *err)
{
    if (!manifest->file_count)
        return TP_OK;
    manifest->sorted = tp_os_alloc(manifest->file_count * sizeof *manifest->sorted, err);
    if (!manifest->sorted)
        return TP_E_MEMORY;
    for (size_t i = 0; i < manifest->file_count; i++)
        manifest->sorted[i] = (struct tp_name_key){manifest->files[i].name, i};
    tp_names_sort(manifest->sorted, manifest->file_count);
    return TP_OK;
}

static enum tp_code read_object(struct reader *r)
{
    struct tp_json *json = &r->json;
    struct tp_json_string key;
    uint64_t count = 0;
    bool more, plan = false;
    if (tp_json_peek(json) == '[')
        return tp_fail(json->err, TP_E_INPUT, "not a tilepack manifest");
    enum tp_code code = tp_json_expect(json, '{');
    while (!code && !(code = tp_json_next(json, '}', &count, &more)) && more) {
        json->used = 0;
        code = tp_json_key(json, &key);
        code = code ? code : read_value(r, &key, &plan);
    }
    if (!code && tp_json_peek(json) >= 0)
        code = tp_json_fail(json, json->pos, "something follows the object");
    if (!code && (!r->manifest->plan || !r->files))
        code = tp_fail(json->err, TP_E_INPUT, "not a tilepack manifest");
    if (!code && !r->version)
        code = tp_fail(json->err, TP_E_UNSUPPORTED, "manifest version is not 1");
    return code ? code : sort_names(r->manifest, json->err);
}

enum tp_code tp_manifest_read(const char *directory, struct tp_manifest *manifest,
                              struct tp_err *err)
{
    char *path = tp_os_format(err, "%s/%s", directory, TP_MANIFEST_NAME), *text = NULL;
    char *arena = NULL;
    size_t size;
    *manifest = (struct tp_manifest){0};
    enum tp_code code = path ? tp_os_slurp(path, MAX_BYTES, &text, &size, err) : TP_E_MEMORY;
    if (code == TP_OK && !(arena = tp_os_alloc(size + 8, err)))
        code = TP_E_MEMORY;
    if (code == TP_OK) {
        struct reader r = {{.text = text, .size = size, .noun = "manifest", .arena = arena,
                            .err = err}, .manifest = manifest};
        manifest->intact = tp_own_hash_right(text, size);
        code = read_object(&r);
    }
    if (code) {
        tp_err_path(err, path);
        tp_manifest_close(manifest);
    }
    free(arena);
    free(text);
    free(path);
    return code;
}

const struct tp_manifest_file *tp_manifest_lacks(const struct tp_manifest *manifest,
                                                 const char *directory, struct tp_err *err)
{
    struct stat st;
    bool has = true;
    size_t i = 0;
    for (; i < manifest->file_count && has; i += has) {
        char *path = tp_os_format(err, "%s/%s", directory, manifest->files[i].name);
        has = tp_os_there(path, &st, err) && S_ISREG(st.st_mode) &&
              (uint64_t)st.st_size == manifest->files[i].size;
        free(path);
    }
    return i < manifest->file_count && !err->code ? &manifest->files[i] : NULL;
}

const struct tp_manifest_file *tp_manifest_find(const struct tp_manifest *manifest,
                                                const char *name)
{
    const struct tp_name_key *key = tp_names_sorted_find(manifest->sorted, manifest->file_count,
                                                         name, strlen(name), '\0');
    return key ? &manifest->files[key->index] : NULL;
}

bool tp_manifest_has(const struct tp_manifest *manifest, const char *name, size_t length)
{
    return tp_names_sorted_have(manifest->sorted, manifest->file_count, name, length, '\0');
}

bool tp_manifest_has_folder(const struct tp_manifest *manifest, const char *folder)
{
    return tp_names_sorted_have(manifest->sorted, manifest->file_count, folder, strlen(folder),
                                '/');
}

void tp_manifest_close(struct tp_manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++)
        free(manifest->files[i].name);
    for (size_t i = 0; i < manifest->source_count; i++)
        free(manifest->sources[i].name);
    free(manifest->sources);
    free(manifest->files);
    free(manifest->sorted);
    free(manifest->plan);
    memset(manifest, 0, sizeof *manifest);
}
