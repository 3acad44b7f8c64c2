/* Committing ranks: a directory for each, complete as a checkpoint of its own, and
 * beside them one file that says how they are put together again.
 */
#include "pack/commit/commit_build.h"

#include "pack/file/own_hash.h"
#include "pack/plan/config.h"
#include "pack/os/below.h"
#include "pack/text/json_memory.h"
#include "pack/plan/describe.h"

#include <stdlib.h>
#include <string.h>

bool tp_commit_is_rank(const char *name)
{
    size_t size = strlen(TP_RANK_PREFIX);
    return strncmp(name, TP_RANK_PREFIX, size) == 0 && name[size] &&
           name[size + strspn(name + size, "0123456789")] == '\0';
}

enum tp_code tp_commit_rank_directories(struct tp_commit *c)
{
    enum tp_code code = TP_OK;
    for (unsigned r = 0; c->options->ranks && r < c->options->ranks->count && code == TP_OK; r++) {
        char *path = tp_os_format(c->err, "%s/" TP_RANK_PREFIX "%u", c->partial, r);
        if (!path)
            code = TP_E_MEMORY;
        else
            code = tp_below_mkdir(c->dir, strrchr(path, '/') + 1, tp_commit_dir_mode(c), path,
                                  c->err);
        free(path);
    }
    return code;
}

/* The commit of one rank, as far as its small files; *own is to be closed. */
static enum tp_code write_rank(struct tp_commit *c, unsigned r, const struct tp_text *card,
                               struct tp_commit *own)
{
    const struct tp_ranks *ranks = c->options->ranks;
    size_t files = c->plan->file_count;
    *own = (struct tp_commit){.plan = &ranks->plans[r], .request = &ranks->requests[r],
                              .options = c->options, .output = c->output, .err = c->err,
                              .card = card, .dir = -1, .journal = {.fd = -1}};
    pthread_mutex_init(&own->lock, NULL);
    own->partial = tp_os_format(c->err, "%s/" TP_RANK_PREFIX "%u", c->partial, r);
    own->journal.hash = tp_os_zalloc(files + 1, sizeof *own->journal.hash, c->err);
    enum tp_code code = own->partial && own->journal.hash ? tp_commit_room(own) : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_below_open(c->dir, strrchr(own->partial, '/') + 1, O_RDONLY | O_DIRECTORY,
                             own->partial, &own->dir, c->err);
    for (size_t f = 0; f < files && code == TP_OK; f++) {
        memcpy(own->journal.hash[f], c->journal.hash[f * ranks->count + r], TP_HASH_BYTES);
        code = tp_commit_record_shard(own, (uint32_t)f);
    }
    if (code == TP_OK && (code = tp_commit_write_texts(own)) == TP_OK)
        code = tp_os_fsync_dir(own->partial, c->err);
    return code;
}

static json_t *cuts_json(const struct tp_ranks *ranks)
{
    json_t *cuts = json_array();
    for (size_t u = 0; u < ranks->run.unit_count; u++) {
        const struct tp_unit *unit = &ranks->run.units[u];
        const struct tp_cut *cut = &ranks->cuts[u];
        if (cut->along == TP_CUT_NONE)
            continue;
        json_t *rows = json_array();
        for (uint32_t p = 0; cut->along == TP_CUT_N && p < cut->pieces; p++)
            json_array_append_new(rows, json_integer((json_int_t)cut->piece_rows[p]));
        json_array_append_new(cuts, json_pack("{s:s+,s:s,s:[I,I,I],s:o}", "prefix", unit->name,
                                              (char[2]){unit->form->joint}, "along",
                                              cut->along == TP_CUT_K ? "K" : "N", "box",
                                              (json_int_t)unit->form->box.e,
                                              (json_int_t)unit->form->box.n,
                                              (json_int_t)unit->form->box.k, "rows", rows));
    }
    return cuts;
}

/* NULL + TP_E_MEMORY where a header cannot be had; NULL alone without memory for JSON. */
static json_t *headers_json(const struct tp_plan *plan, struct tp_err *err)
{
    json_t *files = json_array();
    for (size_t f = 0; f < plan->file_count; f++) {
        const struct tp_plan_file *file = &plan->files[f];
        char *text = tp_squeezed_text(&file->header, err);
        if (!text) {
            json_decref(files);
            return NULL;
        }
        json_t *header = json_stringn(text + 8, file->header_size - 8);
        free(text);
        json_array_append_new(files, json_pack("{s:s,s:I,s:o}", "name", file->name, "size",
                                               (json_int_t)file->size, "header", header));
    }
    return files;
}

/* The manifest of the whole, hashes and digests of shards zero; what follows them in a rank's own
 * list is the same but for the index. */
static enum tp_code whole_manifest(struct tp_commit *c, const struct tp_commit *rank,
                                   const struct tp_text *index, struct tp_text *text)
{
    size_t shards = c->plan->file_count;
    struct tp_manifest_file *files = tp_os_zalloc(rank->file_count + 1, sizeof *files, c->err);
    if (!files)
        return TP_E_MEMORY;
    memcpy(files, rank->files, rank->file_count * sizeof *files);
    for (size_t f = 0; f < shards; f++) {
        files[f] = (struct tp_manifest_file){.name = c->plan->files[f].name,
                                             .size = c->plan->files[f].size,
                                             .has_sha256 = c->request->digests};
    }
    files[shards].size = index->size;
    tp_sha256(index->data, index->size, files[shards].sha256);
    enum tp_code code = tp_commit_hash_text(index->data, index->size, files[shards].hash, c->err);
    if (code == TP_OK)
        code = tp_manifest_text(c->plan, c->request, files, rank->file_count, text, c->err);
    free(files);
    return code;
}

/* Everything of the whole but its tensors. */
static enum tp_code write_join(struct tp_commit *c, const struct tp_commit *rank)
{
    const struct tp_ranks *ranks = c->options->ranks;
    struct tp_text index = {0}, config = {0}, manifest = {0};
    char id[TP_HASH_TEXT];
    uint64_t mark = tp_json_mark();
    json_t *json = NULL, *headers = NULL, *ids = json_array();
    for (unsigned r = 0; r < ranks->count; r++) {
        tp_manifest_plan_id(&ranks->plans[r], id);
        json_array_append_new(ids, json_string(id));
    }
    tp_manifest_plan_id(c->plan, id);
    enum tp_code code = tp_index_text(c->plan, &index, c->err);
    if (code == TP_OK && (code = tp_config_text(c->plan, &config, c->err)) == TP_OK &&
        (code = whole_manifest(c, rank, &index, &manifest)) == TP_OK &&
        !(headers = headers_json(c->plan, c->err)))
        code = c->err->code; /* or, without memory for JSON, what the mark tells below */
    if (code == TP_OK)
        json = json_pack("{s:i,s:s,s:i,s:s,s:o,s:o,s:o,s:s%,s:s%,s:s%}", "tilepack_tp",
                         TP_RANKS_VERSION, TP_OWN_KEY, TP_OWN_ZEROS, "ranks",
                         (int)ranks->count, "plan", id, "rank_plans", json_incref(ids), "cuts",
                         cuts_json(ranks), "files", headers, "index", index.data,
                         index.size, "config", config.data ? config.data : "", config.size,
                         "manifest", manifest.data, manifest.size);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    if (code == TP_OK && !text)
        code = tp_fail(c->err, TP_E_INPUT, "config.json is not UTF-8");
    if (code == TP_OK && strlen(text) > TP_RANKS_MOST)
        code = tp_fail(c->err, TP_E_UNSUPPORTED, "there are too many tensors for ranks: "
                       TP_RANKS_NAME " would be larger than %llu bytes", TP_RANKS_MOST + 0ULL);
    if ((code = tp_json_check(mark, code, c->err)) == TP_OK && text) {
        tp_own_hash_sign(text, strlen(text));
        code = tp_commit_write_small(c, TP_RANKS_NAME, text, strlen(text), false);
    }
    free(text);
    json_decref(json);
    json_decref(ids);
    tp_text_free(&index);
    tp_text_free(&config);
    tp_text_free(&manifest);
    return code;
}

enum tp_code tp_commit_write_ranks(struct tp_commit *c)
{
    struct tp_text card = {0};
    enum tp_code code = tp_commit_card(c, &card);
    for (unsigned r = 0; r < c->options->ranks->count && code == TP_OK; r++) {
        struct tp_commit own;
        code = write_rank(c, r, &card, &own);
        if (code == TP_OK && r + 1 == c->options->ranks->count)
            code = write_join(c, &own);
        tp_commit_close(&own);
    }
    tp_text_free(&card);
    return code;
}
