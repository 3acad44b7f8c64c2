/* tilepack-tp.json: all of the whole but its tensors. It is written as it is made, as it holds
 * headers, index and manifest of the whole: of a million tensors a gigabyte.
 *
 * Index and manifest stand in files of their own while it is written, because their hashes are
 * needed before their texts. Invariant: the text is that of tp_json_dump() with JSON_INDENT(1).
 */
#include "pack/commit/commit_build.h"

#include "base/num.h"
#include "pack/file/own_hash.h"
#include "pack/plan/config.h"
#include "pack/plan/describe.h"
#include "pack/source/index.h"
#include "pack/text/json_indent.h"
#include "pack/text/json_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tp_items {
    struct tp_text *text;
    size_t count;
};

static enum tp_code tp_items_next(struct tp_items *items, char opening, struct tp_err *err)
{
    return tp_text_add(items->text, (char[]){items->count++ ? ',' : opening, '\n', ' ', ' '}, 4,
                       err);
}

static enum tp_code tp_items_end(const struct tp_items *items, const char *empty,
                                 struct tp_err *err)
{
    return items->count ? tp_text_add(items->text, (char[]){'\n', ' ', empty[1]}, 3, err)
                        : tp_text_add_word(items->text, empty, err);
}

static enum tp_code add_quoted(struct tp_text *text, const char *data, size_t size,
                               struct tp_err *err)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < size && !code; i++) {
        const char *at = data[i] ? strchr(from, data[i]) : NULL;
        if (at)
            code = tp_text_add(text, (char[2]){'\\', to[at - from]}, 2, err);
        else if ((unsigned char)data[i] < 0x20)
            code = tp_text_addf(text, err, "\\u%04X", (unsigned char)data[i]);
        else
            code = tp_text_add(text, data + i, 1, err);
    }
    return code;
}

static enum tp_code write_text(struct tp_commit *c, const char *name,
                               enum tp_code (*make)(struct tp_commit *c, struct tp_text *text),
                               uint64_t *size, uint8_t hash[TP_HASH_BYTES])
{
    struct tp_text text = {0};
    enum tp_code code = make(c, &text);
    if (code == TP_OK && !hash)
        tp_own_hash_sign(text.data, text.size);
    if (code == TP_OK)
        code = tp_commit_write_small(c, name, text.data, text.size, false);
    if (code == TP_OK && hash)
        code = tp_commit_hash_text(text.data, text.size, hash, c->err);
    *size = text.size;
    tp_text_free(&text);
    return code;
}

static enum tp_code make_index(struct tp_commit *c, struct tp_text *text)
{
    return tp_index_text(c->plan, text, c->err);
}

static enum tp_code make_manifest(struct tp_commit *c, struct tp_text *text)
{
    return tp_manifest_text(c->plan, c->request, c->files, c->file_count, text, c->err);
}

/* Members up to "rank_files", as the text of an object whose last brace is missing. */
static enum tp_code begin_text(const struct tp_commit *c, char (*rank_files)[TP_HASH_TEXT],
                               struct tp_text *text, struct tp_err *err)
{
    const struct tp_ranks *ranks = c->options->ranks;
    char id[TP_HASH_TEXT];
    json_t *ids = json_array(), *files = json_array();
    for (unsigned r = 0; r < ranks->count; r++) {
        tp_manifest_plan_id(&ranks->plans[r], id);
        tp_json_append(ids, json_string(id));
        tp_json_append(files, json_string(rank_files[r]));
    }
    tp_manifest_plan_id(c->plan, id);
    json_t *json = json_pack("{s:i,s:s,s:i,s:s,s:o,s:o}", "tilepack_tp", TP_RANKS_VERSION,
                             TP_OWN_KEY, TP_OWN_ZEROS, "ranks", (int)ranks->count, "plan", id,
                             "rank_plans", ids, "rank_files", files);
    char *dump = json ? tp_json_dump(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    if (!dump)
        return tp_fail(err, TP_E_MEMORY, "out of memory for the list of ranks");
    enum tp_code code = tp_text_add(text, dump, strlen(dump) - strlen("\n}"), err);
    free(dump);
    return code;
}

static json_t *cut_json(const struct tp_unit *unit, const struct tp_cut *cut)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; cut->along == TP_CUT_N && p < cut->pieces; p++)
        tp_json_append(rows, json_integer((json_int_t)cut->piece_rows[p]));
    return json_pack("{s:s+,s:s,s:[I,I,I],s:o}", "prefix", unit->name,
                     (char[2]){unit->form->joint}, "along", cut->along == TP_CUT_K ? "K" : "N",
                     "box", (json_int_t)unit->form->box.e, (json_int_t)unit->form->box.n,
                     (json_int_t)unit->form->box.k, "rows", rows);
}

static enum tp_code add_cuts(const struct tp_commit *c, struct tp_text *text)
{
    const struct tp_ranks *ranks = c->options->ranks;
    struct tp_items items = {.text = text};
    enum tp_code code = tp_text_add_word(text, ",\n \"cuts\": ", c->err);
    for (size_t u = 0; u < ranks->run.unit_count && code == TP_OK; u++) {
        if (ranks->cuts[u].along == TP_CUT_NONE)
            continue;
        json_t *json = cut_json(&ranks->run.units[u], &ranks->cuts[u]);
        char *cut = json ? tp_json_dump(json, JSON_COMPACT) : NULL;
        json_decref(json);
        if (!cut)
            code = tp_fail(c->err, TP_E_MEMORY, "out of memory for the list of ranks");
        else if ((code = tp_items_next(&items, '[', c->err)) == TP_OK)
            code = tp_json_indent(cut, 2, text, c->err);
        free(cut);
    }
    return code ? code : tp_items_end(&items, "[]", c->err);
}

/* A header without the eight bytes of its length. */
static enum tp_code add_header(void *arg, const char *piece, size_t size, uint64_t offset,
                               struct tp_err *err)
{
    struct tp_text *text = arg;
    size_t skipped = offset < 8 ? (size_t)tp_min_u64(8 - offset, size) : 0;
    enum tp_code code = add_quoted(text, piece + skipped, size - skipped, err);
    return code;
}

static enum tp_code add_files(const struct tp_commit *c, struct tp_text *text)
{
    struct tp_items items = {.text = text};
    enum tp_code code = tp_text_add_word(text, ",\n \"files\": ", c->err);
    for (size_t f = 0; f < c->plan->file_count && code == TP_OK; f++) {
        const struct tp_plan_file *file = &c->plan->files[f];
        if ((code = tp_items_next(&items, '[', c->err)) == TP_OK &&
            (code = tp_text_add_word(text, "{\n   \"name\": ", c->err)) == TP_OK &&
            (code = tp_text_add_json(text, file->name, c->err)) == TP_OK &&
            (code = tp_text_add_number(text, ",\n   \"size\": ", file->size, c->err)) == TP_OK &&
            (code = tp_text_add_word(text, ",\n   \"header\": \"", c->err)) == TP_OK &&
            (code = add_header(text, file->header, file->header_size, 0, c->err)) == TP_OK)
            code = tp_text_add_word(text, "\"\n  }", c->err);
    }
    return code ? code : tp_items_end(&items, "[]", c->err);
}

/* The text of a file of the partial directory, as the value of a key. */
static enum tp_code add_file(const struct tp_commit *c, const char *key, const char *name,
                             struct tp_text *text)
{
    enum { PART = 1 << 16 };
    int fd = -1;
    struct stat st;
    char *path = tp_os_format(c->err, "%s/%s", c->partial, name), *part = tp_os_alloc(PART, c->err);
    enum tp_code code = path && part ? tp_os_open_regular(path, O_NOFOLLOW, &fd, &st, c->err)
                                     : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_text_addf(text, c->err, ",\n \"%s\": \"", key);
    for (uint64_t at = 0, size; code == TP_OK && at < (uint64_t)st.st_size; at += size) {
        size = tp_min_u64((uint64_t)st.st_size - at, PART);
        if ((code = tp_os_read(fd, part, size, at, path, c->err)) == TP_OK)
            code = add_quoted(text, part, size, c->err);
    }
    tp_os_close(&fd);
    free(part);
    free(path);
    return code ? code : tp_text_add_word(text, "\"", c->err);
}

static enum tp_code add_config(const struct tp_commit *c, struct tp_text *text)
{
    struct tp_text config = {0};
    struct tp_err local = {0};
    enum tp_code code = tp_config_text(c->plan, &config, c->err);
    if (code == TP_OK)
        code = tp_text_add_word(text, ",\n \"config\": ", c->err);
    if (code == TP_OK && tp_text_add_json(text, config.data ? config.data : "", &local))
        code = local.code == TP_E_INPUT ? tp_fail(c->err, TP_E_INPUT, "config.json is not UTF-8")
                                        : tp_fail(c->err, local.code, "%s", local.what);
    tp_text_free(&config);
    return code;
}

static enum tp_code make_text(struct tp_commit *c, struct tp_text *text)
{
    uint64_t mark = tp_json_mark();
    enum tp_code code = begin_text(c, c->rank_files, text, c->err);
    if (code == TP_OK && (code = add_cuts(c, text)) == TP_OK &&
        (code = add_files(c, text)) == TP_OK &&
        (code = add_file(c, "index", TP_RANKS_INDEX, text)) == TP_OK &&
        (code = add_config(c, text)) == TP_OK &&
        (code = add_file(c, "manifest", TP_RANKS_MANIFEST, text)) == TP_OK)
        code = tp_text_add_word(text, "\n}", c->err);
    return tp_json_check(mark, code, c->err);
}

/* The files of the whole for its manifest, hashes and digests of shards zero; what follows them in
 * a rank's own list is the same but for the index. */
static enum tp_code whole_files(const struct tp_commit *c, const struct tp_commit *rank,
                                const struct tp_manifest_file *index,
                                struct tp_manifest_file **files)
{
    size_t shards = c->plan->file_count;
    *files = tp_os_zalloc(rank->file_count + 1, sizeof **files, c->err);
    if (!*files)
        return TP_E_MEMORY;
    memcpy(*files, rank->files, rank->file_count * sizeof **files);
    for (size_t f = 0; f < shards; f++)
        (*files)[f] = (struct tp_manifest_file){.name = c->plan->files[f].name,
                                                .size = c->plan->files[f].size,
                                                .has_sha256 = c->request->digests};
    struct tp_manifest_file *own = &(*files)[shards];
    own->size = index->size;
    memcpy(own->hash, index->hash, sizeof own->hash);
    memcpy(own->sha256, index->sha256, sizeof own->sha256);
    return TP_OK;
}

/* Index and manifest of the whole, in files of their own. */
static enum tp_code write_whole(struct tp_commit *c, const struct tp_commit *rank)
{
    char name[] = TP_RANKS_INDEX;
    struct tp_manifest_file index = {.name = name}, *files = NULL;
    uint64_t ignored;
    enum tp_code code =
        write_text(c, TP_RANKS_INDEX, make_index, &index.size, index.hash);
    if (code == TP_OK && c->request->digests)
        code = tp_manifest_digest(c->partial, &index, 1, 1, c->options->run.stop, c->err);
    if (code == TP_OK && (code = whole_files(c, rank, &index, &files)) == TP_OK) {
        struct tp_commit whole = {.plan = c->plan, .request = c->request, .options = c->options,
                                  .partial = c->partial, .dir = c->dir, .err = c->err,
                                  .files = files, .file_count = rank->file_count};
        code = write_text(&whole, TP_RANKS_MANIFEST, make_manifest, &ignored,
                                    NULL);
    }
    free(files);
    return code;
}

enum tp_code tp_commit_write_join(struct tp_commit *c, const struct tp_commit *rank)
{
    uint64_t size;
    enum tp_code code = write_whole(c, rank);
    if (code == TP_OK)
        code = write_text(c, TP_RANKS_NAME, make_text, &size, NULL);
    if (code == TP_OK && size > TP_RANKS_MOST)
        code = tp_fail(c->err, TP_E_UNSUPPORTED, "there are too many tensors for ranks: "
                       TP_RANKS_NAME " would be larger than %llu bytes", TP_RANKS_MOST + 0ULL);
    if (code == TP_OK)
        code = tp_commit_remove_file(c->dir, c->partial, TP_RANKS_INDEX, c->err);
    if (code == TP_OK)
        code = tp_commit_remove_file(c->dir, c->partial, TP_RANKS_MANIFEST, c->err);
    return code;
}

/* Whether the file begins with `begin`, in which its own hash is zeros, and that hash is right. */
static bool is_signed(int fd, const char *path, uint64_t size, const struct tp_text *begin,
                      struct tp_err *err)
{
    struct tp_own_hash own = {0};
    char digits[TP_HASH_TEXT] = "";
    size_t room = tp_max_u64(begin->size, 1 << 16);
    char *part = tp_os_alloc(room, err);
    bool same = part && begin->size <= size && tp_own_hash_begin(&own, err) == TP_OK;
    for (uint64_t at = 0, bytes; same && at < size; at += bytes) {
        bytes = tp_min_u64(size - at, room);
        if ((same = tp_os_read(fd, part, bytes, at, path, err) == TP_OK)) {
            tp_own_hash_add(&own, part, bytes);
            same = at || memcmp(part, begin->data, begin->size) == 0;
        }
    }
    if (same)
        tp_own_hash_digits(&own, digits);
    same = same && strncmp(digits, own.digits, TP_HASH_TEXT - 1) == 0;
    tp_own_hash_close(&own);
    free(part);
    return same;
}

bool tp_commit_same_join(const struct tp_commit *c, char (*rank_files)[TP_HASH_TEXT],
                         struct tp_err *err)
{
    struct tp_text begin = {0};
    struct stat st;
    int fd = -1;
    uint64_t mark = tp_json_mark();
    char *path = tp_os_format(err, "%s/%s", c->output, TP_RANKS_NAME);
    bool same = path &&
                tp_json_check(mark, begin_text(c, rank_files, &begin, err), err) == TP_OK &&
                tp_os_open_regular(path, 0, &fd, &st, err) == TP_OK &&
                is_signed(fd, path, (uint64_t)st.st_size, &begin, err);
    tp_os_close(&fd);
    tp_text_free(&begin);
    free(path);
    return same;
}
