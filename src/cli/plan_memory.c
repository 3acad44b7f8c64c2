/* Estimates of what plans take. A figure that is named must be enough; that it is not much more
 * is what tests/long/large.py sees to.
 */
#include "cli/plan_memory.h"

#include "base/num.h"
#include "pack/commit/manifest_read.h"
#include "pack/model/model.h"
#include "pack/os/os.h"
#include "pack/run/budget.h"
#include "pack/source/header_bytes.h"
#include "pack/source/index.h"
#include "pack/text/pattern.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The program, and what a plan of nothing takes. */
#define LEAST (TP_OS_PROGRAM_BYTES + (UINT64_C(12) << 20))

/* What decides how much memory a plan takes. */
struct plan_size {
    uint64_t tensors, names; /* bytes of all names */
    unsigned outputs;        /* of a weight, in the format that has the most */
    bool single_file;        /* not in shards */
};

/* What the plan takes while it is made, and the program: what is known of each tensor, its weight
 * and unit, and of each output; names of tensors and weights; the names and texts of the shard
 * whose header is being made. */
static uint64_t enough_for(const struct plan_size *size)
{
    uint64_t outputs = size->tensors * size->outputs;
    uint64_t shard = size->single_file ? outputs : tp_min_u64(outputs, 100000);
    return LEAST + 230 * size->tensors + 88 * outputs +
           2 * size->names + shard * 300 +
           4 * shard * (size->names / tp_max_u64(size->tensors, 1));
}

static struct plan_size size_of(const struct tp_options *o, const struct tp_request *request)
{
    enum { USUAL = 3 };
    const struct tp_format *named = o->to ? tp_format_find(o->to) : NULL;
    struct plan_size size = {.outputs = 1,
                             .single_file = o->output && tp_output_file(o->output)};
    for (size_t r = 0; r < request->rule_count; r++) {
        const struct tp_format *format = request->rules[r].format;
        if (format && format->op.outs > size.outputs)
            size.outputs = format->op.outs;
    }
    if (!request->rule_count) /* not read yet: of a recipe, as if all were in a usual format */
        size.outputs = named ? named->op.outs : USUAL;
    return size;
}

/* Of headers that are not understood yet: as if all text but the least that an entry has were
 * names. What was not counted, as if its entries had the length that most have, and a little
 * more. */
static uint64_t enough_for_header(const struct tp_options *o, const struct tp_request *request,
                                  struct tp_header_size header)
{
    enum { ENTRY = sizeof "'':{'dtype':'U8','shape':[],'data_offsets':[0,0]}," - 1 };
    struct plan_size size = size_of(o, request);
    uint64_t unseen = header.uncounted / 110, text = header.bytes - header.uncounted;
    size.tensors = header.tensors + unseen;
    size.names = 35 * unseen + text - tp_min_u64(text, ENTRY * header.tensors);
    uint64_t enough = enough_for(&size);
    return unseen ? enough + enough / 16 : enough;
}

/* Whether a format of the request has experts apart. */
static bool splits(const struct tp_request *request)
{
    bool apart = false;
    for (size_t r = 0; r < request->rule_count; r++)
        apart |= request->rules[r].format &&
                 request->rules[r].format->experts == TP_EXPERTS_SPLIT;
    return apart;
}

/* `weights`: what is known of them, where a stack may become the matrices of its experts, each of
 * gate and of up. */
static uint64_t enough_for_tensors(const struct tp_options *o, const struct tp_request *request,
                                   const struct tp_checkpoint *ckpt,
                                   const struct tp_weights *weights)
{
    enum { MATRICES = 2, LABEL = 24 /* the number and what the matrix is */ };
    struct plan_size size = size_of(o, request);
    size.tensors = ckpt->tensor_count;
    for (size_t t = 0; t < ckpt->tensor_count; t++)
        size.names += strlen(ckpt->tensors[t].name) + 1;
    for (uint32_t w = 0; w < weights->count && splits(request); w++) {
        const struct tp_weight *weight = &weights->items[w];
        uint64_t parts = weight->form->rank == 3 ? MATRICES * weight->form->box.e : 0;
        size.tensors += parts;
        size.names += parts * (strlen(weight->name) + LABEL);
    }
    return enough_for(&size);
}

/* Lists of the files beside the weights, twice where they are made, and what the manifest says of
 * each. */
static uint64_t enough_for_names(struct tp_header_size header)
{
    enum { LISTS = 3, FILE_BYTES = 280 };
    return LISTS * header.names + FILE_BYTES * header.files;
}

/* What the tree of a small file in the directory takes; 0: there is none. */
static uint64_t enough_for_tree(const char *path, const char *name, unsigned factor)
{
    struct tp_err ignored = {0};
    struct stat st;
    char *file = tp_os_format(&ignored, "%s/%s", path, name);
    uint64_t size = file && stat(file, &st) == 0 ? (uint64_t)st.st_size : 0;
    free(file);
    return factor * size;
}

/* Patterns in their compiled form, of which one matcher has no more. */
static uint64_t enough_for_patterns(uint64_t count)
{
    return tp_min_u64(TP_PATTERN_CODE * count, TP_PATTERN_ALL);
}

/* What a JSON file becomes as a tree. */
struct tree_size {
    uint64_t text, bytes; /* of the file, of the tree */
    uint64_t objects;
    uint64_t strings; /* any may be a pattern */
    bool string, escape; /* where the text so far ends: in a string, behind a backslash */
    unsigned digits;     /* of the number so far */
};

/* By what stands in front of each value of the text, which may be very small; numbers that jansson
 * has no type for (json_numbers.h) become strings. */
static void count_byte(struct tree_size *tree, char byte)
{
    enum { OBJECT = 260, ARRAY = 170, STRING = 130, ITEM = 64, LONG = 19 };
    if (tree->string) {
        tree->string = tree->escape || byte != '"';
        tree->escape = !tree->escape && byte == '\\';
        return;
    }
    tree->string = byte == '"';
    tree->strings += tree->string;
    tree->objects += byte == '{';
    tree->digits = byte >= '0' && byte <= '9' ? tree->digits + 1 : 0;
    tree->bytes += byte == '{'   ? OBJECT
                   : byte == '[' ? ARRAY
                   : byte == ',' ? ITEM
                   : byte == '"' || byte == 'N' || byte == 'I' || byte == 'e' || byte == 'E' ||
                             tree->digits == LONG
                       ? STRING
                       : 0;
}

/* Zeros of what cannot be read or is longer than `most`, which nobody reads then. In pieces, as
 * memory may be short. */
static struct tree_size tree_of(const char *path, uint64_t most)
{
    enum { PIECE = 64 << 10 };
    struct tree_size tree = {0};
    struct tp_err ignored = {0};
    struct stat st;
    char text[PIECE];
    int fd = -1;
    if (path && tp_os_open_regular(path, O_RDONLY, &fd, &st, &ignored) == TP_OK &&
        (uint64_t)st.st_size <= most)
        tree.text = (uint64_t)st.st_size;
    for (uint64_t at = 0; at < tree.text; at += PIECE) {
        size_t piece = tp_min_u64(tree.text - at, PIECE);
        if (tp_os_read(fd, text, piece, at, path, &ignored))
            break;
        for (size_t i = 0; i < piece; i++)
            count_byte(&tree, text[i]);
    }
    tp_os_close(&fd);
    return tree;
}

/* What the command line and the files that it names take: their trees; then each rule of a recipe,
 * which is an object of the file, and of what the plan records; and all patterns. */
static uint64_t enough_for_rules(const struct tp_options *o)
{
    enum { RULE = 900, WORD = 100, TEXTS = 2 };
    struct tree_size recipe = tree_of(o->recipe, TP_RECIPE_MAX_BYTES);
    struct tree_size model = tree_of(o->model_file, TP_MODEL_MAX_BYTES);
    return TEXTS * (recipe.text + model.text) + model.bytes +
           tp_max_u64(recipe.bytes, RULE * recipe.objects + WORD * recipe.strings) +
           enough_for_patterns(recipe.strings + model.strings + o->include.count +
                               o->exclude.count);
}

/* config.json is read into a tree several times, and what one leaves is in the way of the next. */
static uint64_t enough_for_config(const char *path)
{
    enum { TREES = 2, TEXTS = 6 };
    struct tp_err ignored = {0};
    char *file = tp_os_format(&ignored, "%s/config.json", path);
    struct tree_size tree = tree_of(file, TP_CONFIG_MAX_BYTES);
    free(file);
    return TREES * tree.bytes + TEXTS * tree.text + enough_for_patterns(tree.strings);
}

/* The index is gone before there is a plan: its text, its names without escapes, and where they
 * are. */
static uint64_t enough_for_index(const char *path)
{
    enum { SHORT = 4 };
    return LEAST + enough_for_tree(path, TP_INDEX_NAME, SHORT);
}

/* Names of a file of importance, and where the numbers of each are: of a header, or of as many
 * entries as the file says to have at its begin (imatrix: 32 bits; GGUF: 64 behind two words). */
static uint64_t enough_for_importance(const char *path)
{
    enum { HEADER = 5, ENTRY = 300, LEAST_ENTRY = 12, LONGEST = 1024, NAMES = 2, WORDS = 4 };
    struct tp_err ignored = {0};
    uint32_t word[WORDS];
    struct stat st;
    int fd = -1;
    uint64_t header = path ? tp_header_size(path).bytes : 0;
    if (header)
        return HEADER * header;
    if (!path || tp_os_open_regular(path, O_RDONLY, &fd, &st, &ignored))
        return 0;
    uint64_t size = (uint64_t)st.st_size;
    bool read = size >= sizeof word &&
                tp_os_read(fd, word, sizeof word, 0, path, &ignored) == TP_OK;
    uint64_t count = !read                          ? 0
                     : memcmp(word, "GGUF", 4) == 0 ? word[2] | (uint64_t)word[3] << 32
                                                    : word[0];
    tp_os_close(&fd);
    count = tp_min_u64(count, size / LEAST_ENTRY);
    return ENTRY * count + NAMES * tp_min_u64(LONGEST * count, size);
}

void tp_limit_request(const struct tp_options *o, const struct tp_request *request)
{
    uint64_t most = o->max_memory - TP_OS_PROGRAM_BYTES;
    tp_os_limit_heap(most, 0);
    uint64_t texts = enough_for_rules(o) + enough_for_importance(request->importance_path);
    if (texts)
        tp_os_limit_heap(most,
                         texts + enough_for_header(o, request, tp_header_size(o->arg.item[0])));
}

/* An encoder of zstd and the frames of archives, twice, as a run gives them up to a half. */
static void limit_beside(const struct tp_options *o, uint64_t frame)
{
    unsigned level = o->output ? tp_output_zstd(o->output, o->zstd) : o->zstd;
    uint64_t encoder = tp_budget_encoder(level);
    if (encoder)
        tp_os_limit_beside(2 * (encoder + frame) + LEAST);
}

enum tp_code tp_source_open_limited(const struct tp_options *o, const char *path,
                                    const struct tp_request *request, struct tp_source *source,
                                    struct tp_err *err)
{
    uint64_t most = o->max_memory - TP_OS_PROGRAM_BYTES;
    struct tp_header_size header = tp_header_size(path);
    /* merge is told of it anew, and opens it later */
    const char *importance = o->importance ? o->importance : request->importance_path;
    uint64_t texts = enough_for_rules(o) + enough_for_config(path) + enough_for_names(header) +
                     enough_for_importance(importance);
    *source = (struct tp_source){0};
    limit_beside(o, 0);
    tp_os_limit_heap(most, header.bytes ? texts + tp_max_u64(enough_for_index(path),
                                                             enough_for_header(o, request, header))
                                        : 0);
    enum tp_code code = tp_checkpoint_open(path, tp_source_flags(o), &source->ckpt, err);
    if (code)
        return code;
    const struct tp_weights none = {0};
    limit_beside(o, tp_checkpoint_largest_frame(&source->ckpt, NULL));
    tp_os_limit_heap(most, texts + enough_for_tensors(o, request, &source->ckpt, &none));
    if ((code = tp_weights_find_as(&source->ckpt, &request->models, &source->weights, err)))
        tp_checkpoint_close(&source->ckpt);
    else
        tp_os_limit_heap(most,
                         texts + enough_for_tensors(o, request, &source->ckpt, &source->weights));
    return code;
}

/* A packed tensor takes 200 bytes of a header, a plain one 85, and what is known of either
 * at most four times as much and a little more. */
void tp_limit_unpack(const struct tp_options *o, const char *path)
{
    enum { MORE = 80, SHORTEST = 85 };
    uint64_t most = o->max_memory - TP_OS_PROGRAM_BYTES;
    limit_beside(o, 0);
    tp_os_limit_heap(most, 0);
    struct tp_header_size header = tp_header_size(path);
    tp_header_archives(path);
    uint64_t tensors = header.tensors + header.uncounted / SHORTEST;
    uint64_t weights = tp_max_u64(LEAST + 4 * header.bytes + MORE * tensors,
                                  enough_for_index(path));
    tp_os_limit_heap(most, header.bytes ? weights + enough_for_config(path) +
                                              enough_for_names(header)
                                        : 0);
}
