/* The safetensors header reader: one pass over the JSON, one check of the data
 * ranges. Accepts less than JSON allows (see json_scan.h) and less than the
 * format allows in three points: no duplicate names anywhere, no unknown keys,
 * no U+0000. Invariant: a header that is returned describes bytes that are all
 * inside the file, each of exactly one tensor.
 */
#include "pack/file/safetensors.h"
#include "pack/os/os.h"
#include "pack/text/json_scan.h"
#include "pack/text/name_set.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

struct parser {
    struct tp_json json;
    struct tp_st_header *header;
    uint64_t data_size; /* bytes of the file behind the header */
    struct tp_names names;
    uint32_t *where; /* per tensor: text position of its data_offsets */
    size_t tensor_capacity, meta_capacity, where_capacity;
    bool meta_seen;
};

/* The three keys of a tensor entry. */
enum { KEY_DTYPE, KEY_SHAPE, KEY_OFFSETS, KEYS };
static const char *const key_names[KEYS] = {"dtype", "shape", "data_offsets"};

typedef unsigned long long ull;

static const char hint_broken[] =
    "the file is damaged or its writer breaks the safetensors format: download it again, or "
    "write it anew with the safetensors library";
static const char hint_short[] = "the file is probably incomplete: copy or download it again";

enum tp_code tp_lfs_check(const void *text, uint64_t size, struct tp_err *err)
{
    static const char begin[] = "version https://git-lfs.";
    if (size < 8 || memcmp(text, begin, size < sizeof begin ? (size_t)size : sizeof begin - 1) != 0)
        return TP_OK;
    tp_err_hint(err, "run `git lfs pull` in the checkpoint's directory");
    return tp_fail(err, TP_E_INPUT, "this is a Git LFS pointer, not the file itself");
}

enum tp_code tp_st_header_size(const uint8_t prefix[8], uint64_t file_size, uint64_t *size,
                               struct tp_err *err)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | prefix[i];
    *size = n;
    if (n >= 2 && n <= TP_ST_MAX_HEADER && file_size >= 8 && n <= file_size - 8)
        return TP_OK;
    enum tp_code code = tp_lfs_check(prefix, 8, err);
    if (code) {
        tp_err_offset(err, 0);
        return code;
    }
    if (memcmp(prefix, "GGUF", 4) == 0 || memcmp(prefix, "PK\3\4", 4) == 0) {
        code = tp_refuse(err, TP_E_INPUT, "use the checkpoint's safetensors files",
                         "this is a %s file, not a safetensors file",
                         prefix[0] == 'G' ? "GGUF" : "PyTorch or other zip");
    } else if (prefix[0] == '{') {
        code = tp_refuse(err, TP_E_INPUT, "name the checkpoint's directory or a .safetensors file",
                         "this is JSON text, not a safetensors file");
    } else if (n > TP_ST_MAX_HEADER) {
        code = tp_refuse(err, TP_E_INPUT, "this is probably not a safetensors file: check it",
                         "the header length, %llu bytes, is above the format's limit of %llu",
                         (ull)n, (ull)TP_ST_MAX_HEADER);
    } else if (n < 2) {
        code = tp_fail(err, TP_E_INPUT, "the header length is %llu bytes, too short for '{}'",
                       (ull)n);
        tp_err_hint(err, hint_broken);
    } else {
        code = tp_fail(err, TP_E_INPUT,
                       "truncated: the header is %llu bytes long, but the file has only %llu bytes",
                       (ull)n, (ull)file_size);
        tp_err_hint(err, hint_short);
    }
    tp_err_offset(err, 0);
    return code;
}

static enum tp_code parse_dtype(struct parser *p, struct tp_st_tensor *t)
{
    struct tp_json_string text;
    uint64_t before = p->json.used;
    enum tp_code code = tp_json_string(&p->json, &text);
    if (code)
        return code;
    t->dtype = tp_dtype_parse(text.data, text.length);
    if (t->dtype == TP_DTYPE_NONE) {
        code = tp_fail(p->json.err, TP_E_UNSUPPORTED, "unknown dtype '%s'", text.data);
        tp_err_offset(p->json.err, p->json.base + text.pos);
        tp_err_hint(p->json.err, "a newer version may know it; otherwise the file is damaged");
    }
    p->json.used = before;
    return code;
}

static enum tp_code fail_rank(struct parser *p)
{
    tp_json_peek(&p->json);
    enum tp_code code =
        tp_fail(p->json.err, TP_E_UNSUPPORTED, "more than %d dimensions", TP_ST_MAX_RANK);
    tp_err_offset(p->json.err, p->json.base + p->json.pos);
    tp_err_hint(p->json.err, "reshape the tensor to fewer dimensions");
    return code;
}

static enum tp_code parse_shape(struct parser *p, struct tp_st_tensor *t)
{
    uint64_t count = 0, size;
    bool more;
    enum tp_code code = tp_json_expect(&p->json, '[');
    while (!code && !(code = tp_json_next(&p->json, ']', &count, &more)) && more) {
        if (t->rank == TP_ST_MAX_RANK)
            return fail_rank(p);
        code = tp_json_u64(&p->json, &size);
        if (!code)
            t->shape[t->rank++] = size;
    }
    return code;
}

static enum tp_code parse_offsets(struct parser *p, struct tp_st_tensor *t)
{
    enum tp_code code = tp_json_expect(&p->json, '[');
    if (!code && (code = tp_json_u64(&p->json, &t->begin)) == TP_OK &&
        (code = tp_json_expect(&p->json, ',')) == TP_OK &&
        (code = tp_json_u64(&p->json, &t->end)) == TP_OK)
        code = tp_json_expect(&p->json, ']');
    return code;
}

/* What one entry says must agree with itself and with the size of the file.
 * `at` holds the text positions of the three values. */
static enum tp_code check_tensor(struct parser *p, const struct tp_st_tensor *t,
                                 const uint64_t at[KEYS])
{
    uint64_t bits = 1;
    bool fits = true;
    for (uint32_t i = 0; i < t->rank && fits; i++)
        fits = tp_mul_u64(&bits, bits, t->shape[i]);
    if (!fits || !tp_mul_u64(&bits, bits, tp_dtype_bits(t->dtype)))
        return tp_json_fail(&p->json, at[KEY_SHAPE], "the size of the shape does not fit 64 bits");
    if (bits % 8)
        return tp_json_fail(&p->json, at[KEY_SHAPE],
                            "the shape holds %llu bits of %s, which is not a whole number of bytes",
                            (ull)bits, tp_dtype_name(t->dtype));
    if (t->begin > t->end)
        return tp_json_fail(&p->json, at[KEY_OFFSETS],
                            "data_offsets end at %llu, before they begin at %llu", (ull)t->end,
                            (ull)t->begin);
    if (t->end - t->begin != bits / 8)
        return tp_json_fail(&p->json, at[KEY_OFFSETS],
                            "data_offsets span %llu bytes, but the shape and %s need %llu",
                            (ull)(t->end - t->begin), tp_dtype_name(t->dtype), (ull)(bits / 8));
    if (t->end > p->data_size) {
        enum tp_code code = tp_json_fail(&p->json, at[KEY_OFFSETS],
                                         "the data ends at byte %llu behind the header, but the "
                                         "file has only %llu there", (ull)t->end,
                                         (ull)p->data_size);
        tp_err_hint(p->json.err, hint_short);
        return code;
    }
    return TP_OK;
}

/* Which of the three keys this is; each may come once. */
static enum tp_code find_key(struct parser *p, const struct tp_json_string *text, unsigned seen,
                             int *key)
{
    for (int i = 0; i < KEYS; i++) {
        if (strcmp(text->data, key_names[i]) != 0)
            continue;
        if (seen & 1u << i)
            return tp_json_fail(&p->json, text->pos, "the key '%s' comes twice", text->data);
        *key = i;
        return TP_OK;
    }
    return tp_json_fail(&p->json, text->pos,
                        "unknown key '%.64s' (dtype, shape and data_offsets are legal)",
                        text->data);
}

static enum tp_code parse_fields(struct parser *p, struct tp_st_tensor *t, uint64_t at[KEYS])
{
    unsigned seen = 0;
    uint64_t count = 0;
    bool more;
    int key = 0;
    struct tp_json_string text;
    enum tp_code code = tp_json_expect(&p->json, '{');
    while (!code && !(code = tp_json_next(&p->json, '}', &count, &more)) && more) {
        uint64_t before = p->json.used;
        code = tp_json_key(&p->json, &text);
        if (!code)
            code = find_key(p, &text, seen, &key);
        if (code)
            break;
        p->json.used = before;
        seen |= 1u << key;
        tp_json_peek(&p->json);
        at[key] = p->json.pos;
        if (key == KEY_DTYPE)
            code = parse_dtype(p, t);
        else if (key == KEY_SHAPE)
            code = parse_shape(p, t);
        else
            code = parse_offsets(p, t);
    }
    for (int i = 0; i < KEYS && !code; i++)
        if (!(seen & 1u << i))
            code = tp_json_fail(&p->json, p->json.pos - 1, "the key '%s' is missing",
                                key_names[i]);
    return code;
}

static enum tp_code parse_tensor(struct parser *p, const struct tp_json_string *name)
{
    struct tp_st_header *h = p->header;
    struct tp_err *err = p->json.err;
    uint32_t number = 0;
    if (h->count == TP_ST_MAX_TENSORS) {
        enum tp_code many = tp_fail(err, TP_E_UNSUPPORTED, "more than %llu tensors in one file",
                                    (ull)TP_ST_MAX_TENSORS);
        tp_err_hint(err, "spread the tensors over several files");
        return many;
    }
    void *tensors = h->tensors, *where = p->where;
    enum tp_code code =
        tp_os_grow(&tensors, &p->tensor_capacity, h->count + 1, sizeof *h->tensors, err);
    if (!code)
        code = tp_os_grow(&where, &p->where_capacity, h->count + 1, sizeof *p->where, err);
    h->tensors = tensors;
    p->where = where;
    if (!code)
        code = tp_names_add(&p->names, name->data, name->length, &number, err);
    if (code)
        return code;
    if (number != h->count)
        return tp_json_fail(&p->json, name->pos, "the name of this tensor comes twice");
    uint64_t at[KEYS] = {0};
    struct tp_st_tensor *t = &h->tensors[h->count];
    *t = (struct tp_st_tensor){.name = name->data};
    code = parse_fields(p, t, at);
    if (!code)
        code = check_tensor(p, t, at);
    p->where[h->count] = (uint32_t)at[KEY_OFFSETS];
    h->count++;
    return code;
}

static enum tp_code parse_metadata(struct parser *p, const struct tp_json_string *name)
{
    struct tp_st_header *h = p->header;
    struct tp_names keys = {0};
    struct tp_json_string key, value;
    uint64_t count = 0;
    bool more;
    if (p->meta_seen)
        return tp_json_fail(&p->json, name->pos, "__metadata__ comes twice");
    p->meta_seen = true;
    if (tp_json_peek(&p->json) == 'n') /* null: some writers say so that there is none */
        return tp_json_skip(&p->json);
    enum tp_code code = tp_json_expect(&p->json, '{');
    while (!code && !(code = tp_json_next(&p->json, '}', &count, &more)) && more) {
        uint32_t number = 0;
        code = tp_json_key(&p->json, &key);
        if (!code)
            code = tp_names_add(&keys, key.data, key.length, &number, p->json.err);
        if (!code && number != h->meta_count)
            code = tp_json_fail(&p->json, key.pos, "the key '%.64s' of __metadata__ comes twice",
                                key.data);
        if (!code)
            code = tp_json_string(&p->json, &value);
        if (code)
            break;
        void *meta = h->meta;
        code =
            tp_os_grow(&meta, &p->meta_capacity, h->meta_count + 1, sizeof *h->meta, p->json.err);
        h->meta = meta;
        if (!code)
            h->meta[h->meta_count++] = (struct tp_st_meta){key.data, value.data};
    }
    tp_names_close(&keys);
    return code;
}

static enum tp_code parse_text(struct parser *p)
{
    struct tp_json_string name;
    uint64_t count = 0;
    bool more;
    if (p->json.text[0] != '{')
        return tp_json_fail(&p->json, 0, "the header does not begin with '{'");
    p->json.pos = 1;
    for (;;) {
        enum tp_code code = tp_json_next(&p->json, '}', &count, &more);
        if (!code && !more)
            break;
        if (!code)
            code = tp_json_key(&p->json, &name);
        if (code)
            return code;
        if (strcmp(name.data, "__metadata__") == 0) {
            code = parse_metadata(p, &name);
        } else {
            code = parse_tensor(p, &name);
            if (code)
                tp_err_tensor(p->json.err, name.data);
        }
        if (code)
            return code;
    }
    for (; p->json.pos < p->json.size; p->json.pos++)
        if (p->json.text[p->json.pos] != ' ')
            return tp_json_fail(&p->json, p->json.pos,
                                "only spaces may follow the header's last '}'");
    return TP_OK;
}

struct range {
    uint64_t begin, end;
    size_t index;
};

static int compare_ranges(const void *left, const void *right)
{
    const struct range *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) /* tensors without bytes come first */
        return a->end < b->end ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Puts the tensors, and where[], in the order of their data. */
static enum tp_code sort_tensors(struct parser *p)
{
    struct tp_st_header *h = p->header;
    bool sorted = true;
    for (size_t i = 1; i < h->count && sorted; i++)
        sorted = h->tensors[i - 1].begin <= h->tensors[i].begin &&
                 h->tensors[i - 1].end <= h->tensors[i].end;
    if (sorted)
        return TP_OK;
    struct range *ranges = tp_os_alloc(h->count * sizeof *ranges, p->json.err);
    struct tp_st_tensor *tensors = tp_os_alloc(h->count * sizeof *tensors, p->json.err);
    uint32_t *where = tp_os_alloc(h->count * sizeof *where, p->json.err);
    if (ranges && tensors && where) {
        for (size_t i = 0; i < h->count; i++)
            ranges[i] = (struct range){h->tensors[i].begin, h->tensors[i].end, i};
        qsort(ranges, h->count, sizeof *ranges, compare_ranges);
        for (size_t i = 0; i < h->count; i++) {
            tensors[i] = h->tensors[ranges[i].index];
            where[i] = p->where[ranges[i].index];
        }
        struct tp_st_tensor *unsorted = h->tensors;
        h->tensors = tensors;
        tensors = unsorted;
        memcpy(p->where, where, h->count * sizeof *where);
    } else {
        sorted = true; /* reported by tp_os_alloc */
    }
    free(ranges);
    free(tensors);
    free(where);
    return sorted ? TP_E_MEMORY : TP_OK;
}

/* Every byte behind the header belongs to exactly one tensor. */
static enum tp_code check_ranges(struct parser *p)
{
    const struct tp_st_header *h = p->header;
    uint64_t at = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct tp_st_tensor *t = &h->tensors[i];
        enum tp_code code = TP_OK;
        if (t->begin > at && i == 0)
            code = tp_json_fail(&p->json, p->where[i],
                                "the first tensor's data begins at byte %llu behind the header, "
                                "not at 0", (ull)t->begin);
        else if (t->begin > at)
            code = tp_json_fail(&p->json, p->where[i],
                                "a hole: bytes %llu to %llu behind the header, after '%.200s', "
                                "belong to no tensor", (ull)at, (ull)t->begin,
                                h->tensors[i - 1].name);
        else if (t->begin < at)
            code = tp_json_fail(&p->json, p->where[i],
                                "the data begins at byte %llu behind the header, inside the data "
                                "of '%.200s', which ends at %llu", (ull)t->begin,
                                h->tensors[i - 1].name, (ull)at);
        if (code) {
            tp_err_tensor(p->json.err, t->name);
            return code;
        }
        at = t->end;
    }
    if (at == p->data_size)
        return TP_OK;
    enum tp_code code = tp_fail(p->json.err, TP_E_INPUT,
                                "%llu bytes at the end of the file belong to no tensor",
                                (ull)(p->data_size - at));
    tp_err_offset(p->json.err, h->data_start + at);
    return code;
}

enum tp_code tp_st_parse_here(char *begin, uint64_t size, uint64_t file_size,
                              struct tp_st_header *header, struct tp_err *err)
{
    *header = (struct tp_st_header){.arena = begin, .data_start = 8 + size};
    struct parser p = {.header = header, .data_size = file_size - 8 - size};
    p.json = (struct tp_json){.text = begin + 8, .size = size, .base = 8, .noun = "header",
                              .arena = begin, .err = err};
    enum tp_code code = parse_text(&p);
    if (!code && (code = sort_tensors(&p)) == TP_OK)
        code = check_ranges(&p);
    tp_names_close(&p.names);
    free(p.where);
    if (code) {
        if (code == TP_E_INPUT)
            tp_err_hint(err, hint_broken);
        tp_st_close(header);
    }
    return code;
}

enum tp_code tp_st_parse(const char *text, uint64_t size, uint64_t file_size,
                         struct tp_st_header *header, struct tp_err *err)
{
    *header = (struct tp_st_header){0};
    if (size < 2 || size > TP_ST_MAX_HEADER || file_size < 8 || size > file_size - 8)
        return tp_fail(err, TP_E_INPUT, "the header length, %llu bytes, does not fit the file",
                       (ull)size);
    char *begin = tp_os_alloc((size_t)size + 8, err);
    if (!begin)
        return TP_E_MEMORY;
    memcpy(begin + 8, text, (size_t)size);
    return tp_st_parse_here(begin, size, file_size, header, err);
}

void tp_st_close(struct tp_st_header *header)
{
    free(header->tensors);
    free(header->meta);
    free(header->arena);
    *header = (struct tp_st_header){0};
}

const char *tp_st_meta(const struct tp_st_header *header, const char *key)
{
    for (size_t i = 0; i < header->meta_count; i++)
        if (strcmp(header->meta[i].key, key) == 0)
            return header->meta[i].value;
    return NULL;
}
