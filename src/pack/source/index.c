/* The index reader. Does not look at the file system. Invariant: a shard name
 * that is returned is a plain file name, whatever the file said.
 */
#include "pack/source/index.h"

#include "base/suffix.h"
#include "pack/text/json_scan.h"
#include "pack/text/name_set.h"
#include "pack/os/os.h"
#include "pack/file/safetensors.h"

#include <stdlib.h>
#include <string.h>

struct parser {
    struct tp_json json;
    struct tp_index *index;
    struct tp_names names;  /* of tensors, as in index->entries */
    struct tp_names shards; /* shard name -> index into index->shards */
    size_t entry_capacity, shard_capacity;
};

const char *const tp_stem[TP_STEMS] = {"model", "diffusion_pytorch_model", "consolidated"};

const char *tp_stem_of(const char *name)
{
    for (size_t i = 1; i < TP_STEMS; i++)
        if (tp_begins_with(name, tp_stem[i]) && strchr(".-", name[strlen(tp_stem[i])]))
            return tp_stem[i];
    return tp_stem[0];
}

bool tp_index_is(const char *name)
{
    return strstr(name, ".safetensors.index.") && tp_ends_with(name, ".json");
}

const char *tp_index_shard_name(const char *name)
{
    if (!name[0])
        return "it is empty";
    if (strchr(name, '/') || strchr(name, '\\'))
        return "it is a path, not a plain file name";
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return "it is a directory";
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return "it holds a control character";
    if (strlen(name) > 255)
        return "it is longer than a file name may be";
    if (!tp_ends_with(name, ".safetensors") && !tp_ends_with(name, ".safetensors.zst"))
        return "it does not end in .safetensors or .safetensors.zst";
    return NULL;
}

/* Number of a shard name, entered when it is new. The last one is tried first:
 * an index names the same shard many times in a row. */
static enum tp_code find_shard(struct parser *p, const struct tp_json_string *name,
                               uint32_t *shard)
{
    struct tp_index *index = p->index;
    if (index->count && strcmp(index->shards[index->entries[index->count - 1].shard],
                               name->data) == 0) {
        *shard = index->entries[index->count - 1].shard;
        return TP_OK;
    }
    const char *plain = name->data + (strncmp(name->data, "./", 2) == 0 ? 2 : 0);
    const char *why = tp_index_shard_name(plain);
    if (why) {
        enum tp_code code = tp_json_fail(&p->json, name->pos,
                                         "'%.200s' cannot be a shard: %s", name->data, why);
        tp_err_hint(p->json.err, "shards lie beside the index: correct its weight_map, or download "
                                 "the index again from a source that you trust");
        return code;
    }
    void *shards = index->shards;
    enum tp_code code = tp_os_grow(&shards, &p->shard_capacity, index->shard_count + 1,
                                   sizeof *index->shards, p->json.err);
    index->shards = shards;
    if (!code)
        code = tp_names_add(&p->shards, plain, strlen(plain), shard, p->json.err);
    if (!code && *shard == index->shard_count)
        index->shards[index->shard_count++] = plain;
    return code;
}

static enum tp_code add_name(struct parser *p, const struct tp_json_string *name)
{
    struct tp_index *index = p->index;
    if (index->count == TP_INDEX_MAX_TENSORS) {
        enum tp_code many = tp_fail(p->json.err, TP_E_UNSUPPORTED, "more than %llu tensors",
                                    (unsigned long long)TP_INDEX_MAX_TENSORS);
        tp_err_hint(p->json.err, "convert the checkpoint in parts, one shard at a time");
        return many;
    }
    void *entries = index->entries;
    uint32_t number = 0;
    enum tp_code code = tp_os_grow(&entries, &p->entry_capacity, index->count + 1,
                                   sizeof *index->entries, p->json.err);
    index->entries = entries;
    if (!code)
        code = tp_names_add(&p->names, name->data, name->length, &number, p->json.err);
    if (!code && number != index->count)
        code = tp_json_fail(&p->json, name->pos, "weight_map names this tensor twice");
    if (!code)
        index->entries[index->count] = (struct tp_index_entry){.name = name->data};
    return code;
}

static enum tp_code add_entry(struct parser *p, const struct tp_json_string *name)
{
    struct tp_index *index = p->index;
    struct tp_json_string value;
    uint32_t shard = 0;
    enum tp_code code = add_name(p, name);
    uint64_t before = p->json.used;
    if (!code)
        code = tp_json_string(&p->json, &value);
    size_t shards = index->shard_count;
    if (!code)
        code = find_shard(p, &value, &shard);
    if (code) {
        tp_err_tensor(p->json.err, name->data);
        return code;
    }
    if (index->shard_count == shards)
        p->json.used = before; /* a shard name known already is not kept again */
    index->entries[index->count++].shard = shard;
    return TP_OK;
}

static enum tp_code parse_map(struct parser *p)
{
    struct tp_json_string name;
    uint64_t count = 0;
    bool more;
    enum tp_code code = tp_json_expect(&p->json, '{');
    while (!code) {
        code = tp_json_next(&p->json, '}', &count, &more);
        if (code || !more)
            break;
        code = tp_json_key(&p->json, &name);
        if (!code)
            code = add_entry(p, &name);
    }
    return code;
}

static enum tp_code parse_text(struct parser *p)
{
    struct tp_names keys = {0};
    struct tp_json_string key;
    uint64_t count = 0;
    bool more, map = false;
    enum tp_code code = tp_json_expect(&p->json, '{');
    while (!code) {
        uint32_t number = 0;
        code = tp_json_next(&p->json, '}', &count, &more);
        if (code || !more)
            break;
        code = tp_json_key(&p->json, &key);
        if (!code)
            code = tp_names_add(&keys, key.data, key.length, &number, p->json.err);
        if (!code && number != count - 1)
            code = tp_json_fail(&p->json, key.pos, "the key '%.64s' comes twice", key.data);
        if (code)
            break;
        if (strcmp(key.data, "weight_map") == 0) {
            map = true;
            code = parse_map(p);
        } else {
            code = tp_json_skip(&p->json);
        }
    }
    tp_names_close(&keys);
    if (!code && tp_json_peek(&p->json) != -1)
        code = tp_json_fail(&p->json, p->json.pos, "text follows the last '}'");
    if (!code && !map)
        code = tp_json_fail(&p->json, 0, "the key 'weight_map' is missing");
    return code;
}

/* The order of the tensors by name. */
static enum tp_code sort_names(struct tp_index *index, struct tp_err *err)
{
    struct tp_name_key *keys = tp_os_alloc(index->count * sizeof *keys, err);
    index->sorted = tp_os_alloc(index->count * sizeof *index->sorted, err);
    enum tp_code code = keys && index->sorted ? TP_OK : TP_E_MEMORY;
    for (size_t i = 0; i < index->count && !code; i++)
        keys[i] = (struct tp_name_key){.name = index->entries[i].name, .index = i};
    if (!code)
        tp_names_sort(keys, index->count);
    for (size_t i = 0; i < index->count && !code; i++)
        index->sorted[i] = (uint32_t)keys[i].index;
    free(keys);
    return code;
}

/* Shards in byte order of their names, whatever order the tensors came in. */
static enum tp_code sort_shards(struct tp_index *index, struct tp_err *err)
{
    size_t count = index->shard_count;
    if (count < 2)
        return TP_OK;
    struct tp_name_key *keys = tp_os_alloc(count * sizeof *keys, err);
    uint32_t *moved = tp_os_alloc(count * sizeof *moved, err);
    enum tp_code code = keys && moved ? TP_OK : TP_E_MEMORY;
    if (!code) {
        for (size_t i = 0; i < count; i++)
            keys[i] = (struct tp_name_key){.name = index->shards[i], .index = i};
        tp_names_sort(keys, count);
        for (size_t i = 0; i < count; i++) {
            index->shards[i] = keys[i].name;
            moved[keys[i].index] = (uint32_t)i;
        }
        for (size_t i = 0; i < index->count; i++)
            index->entries[i].shard = moved[index->entries[i].shard];
    }
    free(keys);
    free(moved);
    return code;
}

enum tp_code tp_index_parse(const char *text, uint64_t size, struct tp_index *index,
                            struct tp_err *err)
{
    *index = (struct tp_index){0};
    struct parser p = {.index = index};
    if (size > TP_INDEX_MAX_BYTES)
        return tp_fail(err, TP_E_INPUT, "the index has %llu bytes, more than the limit of %llu",
                       (unsigned long long)size, (unsigned long long)TP_INDEX_MAX_BYTES);
    index->arena = tp_os_alloc((size_t)size, err);
    if (!index->arena)
        return TP_E_MEMORY;
    p.json = (struct tp_json){.text = text, .size = size, .noun = "index",
                              .arena = index->arena, .err = err};
    enum tp_code code = parse_text(&p);
    tp_names_close(&p.names);
    if (!code && (code = sort_names(index, err)) == TP_OK)
        code = sort_shards(index, err);
    tp_names_close(&p.shards);
    if (code) {
        tp_err_hint(err, "the index is damaged: download it again");
        tp_index_close(index);
    }
    return code;
}

void tp_index_close(struct tp_index *index)
{
    free(index->entries);
    free(index->sorted);
    free(index->shards);
    free(index->arena);
    *index = (struct tp_index){0};
}
