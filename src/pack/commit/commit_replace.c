/* What --force may replace: a safetensors file, or a directory that holds a checkpoint and nothing
 * else.
 *
 * Removes nothing. Invariant: a directory is accepted only when each of its files is named by
 * its manifest or, where that is not as it was written or missing, has a name that files of
 * checkpoints have, all of it; so that nothing is lost which somebody else put there.
 */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/commit/manifest_note.h"
#include "pack/os/below.h"
#include "pack/source/header_bytes.h"
#include "pack/source/index.h"
#include "pack/text/name_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Names of files that published checkpoints have. */
static const char *const usual[] = {
    "config.json", "generation_config.json", "tokenizer_config.json", "preprocessor_config.json",
    "processor_config.json", "video_preprocessor_config.json", "adapter_config.json",
    "hf_quant_config.json", "quantize_config.json", "quant_config.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "scheduler_config.json",
    "audio_config.json", "vision_config.json", "text_config.json", "params.json",
    "model_index.json", "modules.json", /* of sentence-transformers */
    "recipe.yaml", /* of llm-compressor */
    "tokenizer.json", "tokenizer.model", "tokenizer.model.v3", "tekken.json", "spiece.model",
    "sentencepiece.bpe.model", "tiktoken.model", "tokenizer.tiktoken", "qwen.tiktoken",
    "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json", "special_tokens_map.json",
    "chat_template.json", "chat_template.jinja",
    "README", "README.md", "README.txt", "LICENSE", "LICENSE.md", "LICENSE.txt", "LICENSE.pdf",
    "NOTICE", "NOTICE.md", "NOTICE.txt", "USE_POLICY", "USE_POLICY.md", ".gitattributes",
};

/* Model code: how its names begin, with the model's behind it. */
static const char *const code_of[] = {"configuration_", "modeling_", "tokenization_", "processing_",
                                      "image_processing_"};

bool tp_commit_is_usual(const char *name)
{
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(name, usual[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof code_of / sizeof *code_of; i++)
        if (tp_begins_with(name, code_of[i]) && tp_ends_with(name, ".py"))
            return true;
    return false;
}

bool tp_commit_is_source(const struct tp_plan *plan, const struct stat *st)
{
    for (size_t i = 0; plan && i < plan->ckpt->file_count; i++)
        if (plan->ckpt->files[i].device == (uint64_t)st->st_dev &&
            plan->ckpt->files[i].inode == (uint64_t)st->st_ino)
            return true;
    return false;
}

bool tp_commit_is_own(const char *name)
{
    return strcmp(name, TP_JOURNAL_NAME) == 0;
}

bool tp_commit_is_mark(const char *name)
{
    return tp_ends_with(name, ".safetensors") || tp_ends_with(name, ".safetensors.zst") ||
           tp_ends_with(name, ".safetensors.index.json") || strcmp(name, TP_MANIFEST_NAME) == 0;
}

/* A directory that is looked at. */
struct place {
    const struct tp_plan *plan;
    const char *path;
    struct tp_manifest manifest; /* {0}: there is none, or none that is as it was written */
    struct tp_name_key *copies;  /* sorted: the files of the source that are copied */
    size_t copy_count;           /* 0 as well where they do not matter */
    bool begun;  /* an unfinished output of this program */
    bool forced; /* of it, what any checkpoint may have may go */
    const char *unknown; /* the first of the files that are none of a checkpoint */
    bool mark;
};

static enum tp_code fail_directory(const struct place *place, const char *name,
                                   struct tp_err *err)
{
    tp_err_path(err, place->path);
    return tp_fail(err, TP_E_USAGE, "it holds the directory '%.200s': not a checkpoint "
                   "that --force may replace", name);
}

/* Found out before the work, and not when the new output is in place: to exchange the two takes no
 * right but that to the directory that holds them. */
static enum tp_code check_rights(const struct place *place, const char *path,
                                 const struct tp_os_list *list, struct tp_err *err)
{
    bool may = !list->count || tp_os.may_remove(path);
    for (size_t i = 0; i < list->count && may && !err->code; i++) {
        char *entry = tp_os_format(err, "%s/%s", path, list->names[i]);
        may = !entry || tp_os.may_take(path, entry);
        free(entry);
    }
    if (may)
        return err->code;
    tp_err_path(err, path);
    if (!place->begun)
        tp_err_hint(err, "choose another output with -o, or have its owner move it away");
    return tp_fail(err, TP_E_USAGE, "--force would delete what is in it, which its permissions do "
                   "not allow");
}

/* Reads the manifest, where there is one, and sorts what an unfinished output may have of the
 * source. */
static enum tp_code open_place(struct place *place, struct tp_err *err)
{
    const struct tp_checkpoint *ckpt =
        place->begun && place->plan ? place->plan->ckpt : NULL;
    struct tp_err ignored = {0};
    tp_manifest_read(place->path, &place->manifest, &ignored);
    tp_err_take_unread(err, &ignored);
    if (!place->manifest.intact) /* it may name what is somebody's, files and folders */
        tp_manifest_close(&place->manifest);
    if (err->code || !ckpt || !ckpt->other_count)
        return err->code;
    if (!(place->copies = tp_os_alloc(ckpt->other_count * sizeof *place->copies, err)))
        return TP_E_MEMORY;
    place->copy_count = ckpt->other_count;
    for (size_t i = 0; i < ckpt->other_count; i++)
        place->copies[i] = (struct tp_name_key){ckpt->others[i], i};
    tp_names_sort(place->copies, place->copy_count);
    return TP_OK;
}

static void close_place(struct place *place)
{
    tp_manifest_close(&place->manifest);
    free(place->copies);
}

static bool is_listed(const struct place *place, const char *name)
{
    return tp_manifest_has(&place->manifest, name, strlen(name));
}

static bool is_copy(const struct place *place, const char *name)
{
    return tp_names_sorted_have(place->copies, place->copy_count, name, strlen(name), '\0');
}

/* Whether it is a folder of the source, and so one that an unfinished output may have. */
static bool may_be_copied(const struct place *place, const char *folder)
{
    return tp_names_sorted_have(place->copies, place->copy_count, folder, strlen(folder), '/');
}

static enum tp_code check_below(struct place *place, const char *name, struct tp_err *err);

/* A folder of files that were copied: the manifest has to name each of them. */
static enum tp_code check_folder(struct place *place, const char *name, const char *path,
                                 struct tp_err *err)
{
    struct tp_os_list list;
    if (!tp_below_is_dir(path, err) || !tp_manifest_has_folder(&place->manifest, name))
        return fail_directory(place, name, err);
    enum tp_code code = tp_os_list(path, &list, err);
    if (code == TP_OK)
        code = check_rights(place, path, &list, err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        char *below = tp_os_format(err, "%s/%s", name, list.names[i]);
        code = below ? check_below(place, below, err) : TP_E_MEMORY;
        free(below);
    }
    tp_os_list_free(&list);
    return code;
}

static enum tp_code check_below(struct place *place, const char *name, struct tp_err *err)
{
    struct stat st;
    char *path = tp_os_format(err, "%s/%s", place->path, name);
    enum tp_code code;
    if (!path)
        return TP_E_MEMORY;
    if (tp_os_link_there(path, &st, err) && S_ISDIR(st.st_mode)) {
        code = check_folder(place, name, path, err);
    } else if ((code = err->code) == TP_OK && !is_listed(place, name)) {
        tp_err_path(err, place->path);
        tp_err_hint(err, "move the file away, or choose another output with -o");
        code = tp_fail(err, TP_E_USAGE, "--force would delete '%.200s', which is no file of a "
                       "checkpoint", name);
    }
    free(path);
    return code;
}

static enum tp_code check_directory(struct place *place, const char *name, const char *path,
                                    struct tp_err *err)
{
    return may_be_copied(place, name) && tp_below_is_dir(path, err)
               ? TP_OK : check_folder(place, name, path, err);
}

/* What work that was interrupted has left, in an output that is in its place, too. */
static bool is_temporary(const char *name)
{
    return strcmp(name, TP_BELOW_OWNER) == 0 || strcmp(name, TP_MANIFEST_NEW) == 0 ||
           tp_commit_is_own(name);
}

/* A manifest that is as it was written names all files but itself. */
static bool is_known(const struct place *place, const char *name)
{
    if (is_temporary(name) || is_listed(place, name) ||
        strcmp(name, TP_MANIFEST_NAME) == 0)
        return true;
    return !place->manifest.intact && (tp_commit_is_mark(name) || tp_commit_is_usual(name));
}

static enum tp_code check_entry(struct place *place, const char *name, struct tp_err *err)
{
    struct stat st;
    struct tp_err why = {0};
    char *path = tp_os_format(err, "%s/%s", place->path, name);
    if (!path)
        return TP_E_MEMORY;
    /* a link that leads nowhere is a file, too */
    bool found = tp_os_there(path, &st, &why), directory = found && S_ISDIR(st.st_mode);
    tp_err_take_unread(err, &why);
    enum tp_code code = directory ? check_directory(place, name, path, err) : err->code;
    if (found && !directory && tp_commit_is_source(place->plan, &st)) {
        tp_err_path(err, place->path);
        code = tp_fail(err, TP_E_USAGE, "it holds a file of the source, '%.200s'", name);
    }
    free(path);
    place->mark |= directory || tp_commit_is_mark(name);
    if (!directory && !place->unknown && !is_known(place, name))
        place->unknown = name;
    return code;
}

static enum tp_code judge(const struct place *place, const struct tp_os_list *list,
                          struct tp_err *err)
{
    if (place->begun || (!place->unknown && (place->mark || !list->count)))
        return TP_OK;
    tp_err_path(err, place->path);
    tp_err_hint(err, "move the file away, or choose another output with -o");
    if (place->mark)
        return tp_fail(err, TP_E_USAGE, "--force would delete '%.200s', which is no file of a "
                       "checkpoint", place->unknown);
    return tp_fail(err, TP_E_USAGE, "it holds '%.200s' and no checkpoint that --force may replace",
                   place->unknown ? place->unknown : list->names[0]);
}

bool tp_commit_holds_own(const char *path, struct tp_err *err)
{
    struct tp_os_list list;
    struct tp_err ignored = {0};
    bool own = false;
    if (tp_os_list(path, &list, &ignored) == TP_OK)
        for (size_t i = 0; i < list.count; i++)
            own = own || tp_commit_is_own(list.names[i]);
    tp_err_take_unread(err, &ignored);
    tp_os_list_free(&list);
    return own;
}

enum tp_code tp_commit_check_replace(const struct tp_plan *plan, const char *path, bool begun,
                                     struct tp_err *err)
{
    struct place place = {.plan = plan, .path = path, .begun = begun};
    struct tp_os_list list;
    enum tp_code code = tp_os_list(path, &list, err);
    if (code == TP_OK)
        code = open_place(&place, err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++)
        code = check_entry(&place, list.names[i], err);
    if (code == TP_OK)
        code = judge(&place, &list, err);
    if (code == TP_OK)
        code = check_rights(&place, path, &list, err);
    if (code)
        tp_err_hint(err, "choose another output with -o");
    close_place(&place);
    tp_os_list_free(&list);
    return code;
}

enum tp_code tp_commit_check_replace_file(const char *path, const struct stat *st,
                                          struct tp_err *err)
{
    struct stat own;
    bool link = tp_os_link_there(path, &own, err) && S_ISLNK(own.st_mode); /* goes alone */
    if (err->code || link || !st->st_size || tp_header_begins(path, err) || err->code)
        return err->code;
    tp_err_path(err, path);
    tp_err_hint(err, "move the file away, or choose another output with -o");
    return tp_fail(err, TP_E_USAGE, "it is no safetensors file that --force may replace");
}

/* A shard of this program to the letter, whatever the options: "model.safetensors",
 * "model-00001-of-00002.safetensors" (plan_files.c), and archives. */
static bool is_shard(const char *name)
{
    char again[64];
    unsigned number, count;
    const char *end = tp_ends_with(name, ".zst") ? ".zst" : "";
    if (sscanf(name, "model-%u-of-%u", &number, &count) != 2)
        snprintf(again, sizeof again, "model.safetensors%s", end);
    else if (number && number <= count)
        snprintf(again, sizeof again, "model-%05u-of-%05u.safetensors%s", number, count, end);
    else
        return false;
    return strcmp(again, name) == 0;
}

/* Whether an unfinished output of this source may have a file of that name: a copy, what was
 * finished, or what every conversion writes. One of another source has what checkpoints have. */
static bool is_of_begun(const struct place *place, const char *name)
{
    static const char *const written[] = {TP_INDEX_NAME, TP_MANIFEST_NAME, TP_CARD_NAME,
                                          TP_PART_FILE, "config.json"};
    if (is_copy(place, name) || is_listed(place, name) || is_shard(name) || is_temporary(name) ||
        (place->forced && (tp_commit_is_mark(name) || tp_commit_is_usual(name))))
        return true;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (strcmp(name, written[i]) == 0)
            return true;
    return false;
}

static enum tp_code check_begun(const struct place *place, const char *folder,
                                struct tp_err *err);

static enum tp_code check_begun_entry(const struct place *place, const char *name,
                                      const char *path, struct tp_err *err)
{
    bool directory = tp_below_is_dir(path, err);
    if (err->code)
        return err->code;
    if (directory ? may_be_copied(place, name) || tp_manifest_has_folder(&place->manifest, name)
                  : is_of_begun(place, name))
        return directory ? check_begun(place, name, err) : TP_OK;
    tp_err_path(err, place->path);
    tp_err_hint(err, "move it away, or choose another output with -o");
    return tp_fail(err, TP_E_USAGE, "the unfinished output is here, and with it '%.200s%s', which "
                   "is none of its files", name, directory ? "/" : "");
}

/* What is in a folder of the place; NULL: in the place itself. */
static enum tp_code check_begun(const struct place *place, const char *folder, struct tp_err *err)
{
    struct tp_os_list list = {0};
    char *at = folder ? tp_os_format(err, "%s/%s", place->path, folder) : NULL;
    enum tp_code code = folder && !at ? TP_E_MEMORY : tp_os_list(at ? at : place->path, &list, err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        char *name = tp_os_format(err, "%s%s%s", folder ? folder : "", folder ? "/" : "",
                                  list.names[i]);
        char *path = tp_os_format(err, "%s/%s", at ? at : place->path, list.names[i]);
        code = name && path ? check_begun_entry(place, name, path, err) : TP_E_MEMORY;
        free(name);
        free(path);
    }
    tp_os_list_free(&list);
    free(at);
    return code;
}

enum tp_code tp_commit_check_begun(const struct tp_plan *plan, const char *path, bool forced,
                                   struct tp_err *err)
{
    struct place place = {.plan = plan, .path = path, .begun = true, .forced = forced};
    enum tp_code code = open_place(&place, err);
    if (code == TP_OK)
        code = check_begun(&place, NULL, err);
    close_place(&place);
    return code;
}
