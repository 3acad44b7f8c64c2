/* quantization_config of the source against what its tensors were recognised as.
 *
 * Only facts that both state are compared. Which module a group of
 * compressed-tensors is for is not worked out: it is enough that one group says
 * what the tensors say.
 */
#include "pack/source/source_config.h"

#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KNOWN = 32,            /* kinds of weights whose answer is kept: a model has fewer */
    MAX_GROUPS = 1 << 24,  /* of config.json, each as often as it is compared */
};

/* What is being compared, for the message. */
struct claim {
    const struct tp_checkpoint *ckpt;
    const struct tp_weight *weight;
    uint64_t *looked_at; /* groups of config.json */
    struct tp_err *err;
};

static void name_weight(const struct claim *c)
{
    tp_source_config_path(c->ckpt, c->err);
    tp_err_tensor(c->err, c->weight->name);
}

static enum tp_code disagree(const struct claim *c, const char *key, const char *value)
{
    char source[128];
    name_weight(c);
    tp_err_hint(c->err, "correct \"quantization_config\", or start from the model that the "
                "checkpoint was made of");
    return tp_fail(c->err, TP_E_INPUT, "config.json says %s %s, but the tensors are %s", key,
                   value, tp_weight_source(c->weight, source, sizeof source));
}

/* A value of config.json, for the message. */
static void print_value(const json_t *value, char *text, size_t size)
{
    if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, size, "%g", json_real_value(value));
    else if (json_is_string(value) && *json_string_value(value))
        snprintf(text, size, "\"%.40s\"", json_string_value(value));
    else
        snprintf(text, size, "%s", json_is_true(value)     ? "true"
                                   : json_is_false(value)  ? "false"
                                   : json_is_array(value)  ? "a list of other things"
                                   : json_is_object(value) ? "an object"
                                                           : "no value that there is");
}

/* null says as little as no value. */
static bool is_said(const json_t *value)
{
    return value && !json_is_null(value);
}

/* Python takes the number 0 for false, and any other for true. */
static bool is_yes(const json_t *flag)
{
    return json_is_true(flag) || (json_is_number(flag) && json_number_value(flag) != 0);
}

static bool is_no(const json_t *flag)
{
    return json_is_false(flag) || (json_is_number(flag) && json_number_value(flag) == 0);
}

/* What is said, and neither true nor false. */
static bool is_unusual_flag(const json_t *flag)
{
    return is_said(flag) && !is_yes(flag) && !is_no(flag);
}

/* A list may be of how the bits are used, as ModelOpt has it. */
static bool number_differs(const json_t *value, uint32_t own)
{
    return is_said(value) && !json_is_array(value) &&
           (!json_is_integer(value) || json_integer_value(value) != own);
}

/* Columns of the weight that share a scale. */
static uint64_t own_group(const struct tp_weight *weight)
{
    const struct tp_weight_form *form = weight->form;
    uint64_t own = form->format->group ? form->format->group : form->op.block_k;
    return own == 0 || own == TP_GROUP_ROW ? form->box.k : own;
}

/* -1 in config.json: one group to a row. */
static bool group_agrees(const struct tp_weight *weight, json_int_t group)
{
    uint64_t own = own_group(weight);
    return group < 0 ? own == weight->form->box.k : (uint64_t)group == own;
}

/* Of one scale to a row, a column or all of them: a block that is as long holds the same. */
static bool length_agrees(uint32_t own, uint64_t all, json_int_t length)
{
    return length == own || (own < 2 && length >= 0 && (uint64_t)length >= all &&
                             (own == 0 || all == 1));
}

/* Whether what is said of groups is another number than the tensors'. */
static bool width_differs(const struct tp_weight *weight, const json_t *group)
{
    return is_said(group) && weight->form->op.block_n == 1 &&
           (!json_is_integer(group) || !group_agrees(weight, json_integer_value(group)));
}

/* Whether a block of so many rows and columns is another than the tensors'. */
static bool block_differs(const struct tp_weight *weight, const json_t *block, char *text,
                          size_t size)
{
    const struct tp_weight_form *form = weight->form;
    const json_t *rows = json_array_get(block, 0), *columns = json_array_get(block, 1);
    long long n = json_integer_value(rows), k = json_integer_value(columns);
    const char *word = json_string_value(block); /* "128x128", of older files */
    bool blocks = form->op.codec == TP_CODEC_FP8 && !tp_op_is_number(&form->op);
    if (!is_said(block) || !blocks) /* it is said of FP8, beside which a model may have others */
        return false;
    print_value(block, text, size);
    if (!word && (json_array_size(block) != 2 || !json_is_integer(rows) ||
                  !json_is_integer(columns)))
        return true;
    if (word && sscanf(word, "%18lldx%18lld", &n, &k) != 2)
        return true;
    snprintf(text, size, "[%lld,%lld]", n, k);
    return !length_agrees(form->op.block_n, form->box.n, n) ||
           !length_agrees(form->op.block_k, form->box.k, k);
}

/* Whether they have that strategy, in letters of either case; `unsaid` where nothing is said. */
static bool has_strategy(const json_t *weights, const char *strategy, bool unsaid)
{
    const char *own = json_string_value(json_object_get(weights, "strategy"));
    return own ? strcasecmp(own, strategy) == 0 : unsaid;
}

/* Whether there are numbers of some modules alone; "-:" leaves modules out, and so do 16 bits. */
static bool modules_differ(const json_t *config)
{
    enum { PLAIN = 16 };
    const char *key;
    json_t *value;
    bool differ = false;
    json_object_foreach(json_object_get(config, "dynamic"), key, value)
        differ |= strncmp(key, "-:", 2) != 0;
    json_object_foreach(json_object_get(config, "extra_config"), key, value)
        differ |= json_object_size(value) > 0 &&
                  json_integer_value(json_object_get(value, "bits")) < PLAIN;
    return differ;
}

/* Of integers: what is neither true nor false says nothing that could be compared. */
static enum tp_code check_flags(const struct claim *c, const json_t *config)
{
    static const char *const keys[] = {"sym", "zero_point", "desc_act"};
    char text[64], key[32];
    for (size_t i = 0; i < sizeof keys / sizeof *keys && tp_op_is_int(&c->weight->form->op); i++)
        if (is_unusual_flag(json_object_get(config, keys[i]))) {
            print_value(json_object_get(config, keys[i]), text, sizeof text);
            snprintf(key, sizeof key, "\"%s\":", keys[i]);
            return disagree(c, key, text);
        }
    return TP_OK;
}

/* gptq, awq: flat keys. */
static enum tp_code check_flat(const struct claim *c, const json_t *config)
{
    const json_t *bits = json_object_get(config, "bits");
    const json_t *group = json_object_get(config, "group_size");
    const json_t *block = json_object_get(config, "weight_block_size");
    char text[64];
    if (modules_differ(config))
        return TP_OK;
    bool other_bits = number_differs(bits, c->weight->form->format->bits);
    print_value(other_bits ? bits : group, text, sizeof text);
    if (other_bits)
        return disagree(c, "\"bits\":", text);
    if (width_differs(c->weight, group))
        return disagree(c, "\"group_size\":", text);
    if (block_differs(c->weight, block, text, sizeof text))
        return disagree(c, "\"weight_block_size\":", text);
    return check_flags(c, config);
}

/* Which fact of one group differs, or NULL. */
static const char *group_differs(const struct claim *c, const json_t *group, const char *format,
                                 char *value, size_t size)
{
    const json_t *weights = json_object_get(group, "weights");
    const json_t *bits = json_object_get(weights, "num_bits");
    const json_t *width = json_object_get(weights, "group_size");
    bool row = has_strategy(weights, "channel", false) && !is_said(width);
    const char *own = json_string_value(json_object_get(group, "format"));
    const struct tp_format *is = c->weight->form->format;
    if (!json_is_object(group) && !json_is_array(group)) { /* a list is of targets */
        print_value(group, value, size);
        return "a group of \"config_groups\":";
    }
    if (own)
        format = own;
    if (format && strcmp(format, "mixed-precision") != 0 && c->weight->form->as &&
        !tp_words_have(&c->weight->form->as->says, format)) {
        snprintf(value, size, "\"%s\"", format);
        return "\"format\":";
    }
    if (number_differs(bits, is->bits)) {
        print_value(bits, value, size);
        return "\"num_bits\":";
    }
    if (width_differs(c->weight, width)) {
        print_value(width, value, size);
        return "\"group_size\":";
    }
    if (row && c->weight->form->op.block_n == 1 && !group_agrees(c->weight, -1)) {
        snprintf(value, size, "\"channel\"");
        return "\"strategy\":";
    }
    if (tp_op_is_int(&c->weight->form->op) &&
        is_unusual_flag(json_object_get(weights, "symmetric"))) {
        print_value(json_object_get(weights, "symmetric"), value, size);
        return "\"symmetric\":";
    }
    if (has_strategy(weights, "block", true) && /* block_structure is of blocks alone */
        block_differs(c->weight, json_object_get(weights, "block_structure"), value, size))
        return "\"block_structure\":";
    return NULL;
}

/* Counts a group that is compared. Those of an input, for weights that are all different, could
 * be compared for hours. */
static enum tp_code look_at_group(const struct claim *c)
{
    if (++*c->looked_at <= MAX_GROUPS)
        return TP_OK;
    tp_source_config_path(c->ckpt, c->err);
    tp_err_hint(c->err, "put groups of config.json that say the same together");
    return tp_fail(c->err, TP_E_UNSUPPORTED, "quantization_config: \"config_groups\" has too many "
                   "groups to be compared with all weights");
}

/* What config.json says to stand beside the codes, if they are integers. */
struct beside {
    const char *zeros, *order; /* how it says that they are there, or NULL */
};

/* Of any group that the weight may be of, all have to say it. */
static struct beside beside_group(const json_t *group)
{
    const json_t *weights = json_object_get(group, "weights");
    const json_t *order = json_object_get(weights, "actorder");
    const char *word = json_string_value(order);
    bool ordered = is_yes(order) ||
                   (word && (!strcasecmp(word, "group") || !strcasecmp(word, "dynamic")));
    return (struct beside){
        is_no(json_object_get(weights, "symmetric")) ? "\"symmetric\": false" : NULL,
        ordered ? "\"actorder\"" : NULL};
}

static struct beside beside_flat(const json_t *config)
{
    bool asymmetric = is_no(json_object_get(config, "sym"));
    if (modules_differ(config))
        return (struct beside){NULL, NULL};
    return (struct beside){
        asymmetric ? "\"sym\": false"
        : is_yes(json_object_get(config, "zero_point")) ? "\"zero_point\": true" : NULL,
        is_yes(json_object_get(config, "desc_act")) ? "\"desc_act\": true" : NULL};
}

/* A tensor of the weight that is there, understood or not. */
static enum tp_code check_there(const struct claim *c, const char *said, enum tp_role role,
                                const char *const names[2])
{
    const struct tp_weight *weight = c->weight;
    int out = said ? tp_op_find(&weight->form->op, role) : -1;
    if (!said || (out >= 0 && weight->tensor[out] != TP_NO_TENSOR))
        return TP_OK;
    char *prefix = tp_weight_prefix(weight, c->err);
    bool there = !prefix;
    for (int i = 0; i < 2 && prefix && !there; i++) {
        char *name = tp_os_format(c->err, "%s%s", prefix, names[i]);
        there = !name || tp_checkpoint_find(c->ckpt, name);
        free(name);
    }
    free(prefix);
    if (there)
        return c->err->code;
    name_weight(c);
    tp_err_hint(c->err, "the download may be incomplete: get the checkpoint again, or correct "
                "\"quantization_config\"");
    return tp_fail(c->err, TP_E_INPUT, "config.json says %s, but neither %s nor %s is beside the "
                   "codes", said, names[0], names[1]);
}

static enum tp_code check_beside(const struct claim *c, const struct beside *said)
{
    static const char *const zeros[] = {"qzeros", "weight_zero_point"};
    static const char *const order[] = {"g_idx", "weight_g_idx"};
    if (!tp_op_is_int(&c->weight->form->op))
        return TP_OK;
    enum tp_code code = check_there(c, said->zeros, TP_ROLE_ZERO, zeros);
    bool one = group_agrees(c->weight, -1); /* one group to a row has no order */
    return code || one ? code : check_there(c, said->order, TP_ROLE_ORDER, order);
}

/* It is enough that one group agrees. Of those that do, any may be the weight's: what stands beside
 * its codes is what all of them say. */
static enum tp_code check_groups(const struct claim *c, const json_t *config, struct beside *beside)
{
    const char *format = json_string_value(json_object_get(config, "format")), *name;
    const char *differs = NULL;
    bool agreed = false;
    char value[128] = "";
    json_t *groups = json_object_get(config, "config_groups"), *group;
    if (is_said(groups) && !json_is_object(groups)) {
        print_value(groups, value, sizeof value);
        return disagree(c, "\"config_groups\":", value);
    }
    json_object_foreach(groups, name, group) {
        if (look_at_group(c))
            return c->err->code;
        if ((differs = group_differs(c, group, format, value, sizeof value)))
            continue;
        if (!tp_op_is_int(&c->weight->form->op))
            return TP_OK;
        struct beside own = beside_group(group);
        beside->zeros = !agreed || beside->zeros ? own.zeros : NULL;
        beside->order = !agreed || beside->order ? own.order : NULL;
        agreed = true;
    }
    return differs && !agreed ? disagree(c, differs, value) : TP_OK;
}

static enum tp_code check_weight(const struct claim *c, const json_t *config, struct beside *beside)
{
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    char quoted[128];
    if (strcmp(method, "tilepack") == 0) /* says nothing of weights that were left as they were */
        return TP_OK;
    if (!c->weight->form->by || !tp_words_have(&c->weight->form->by->method, method)) {
        snprintf(quoted, sizeof quoted, "\"%.100s\"", method);
        return disagree(c, "\"quant_method\":", quoted);
    }
    enum tp_code code = check_flat(c, config);
    if (!json_object_size(json_object_get(config, "config_groups")))
        *beside = beside_flat(config);
    return code ? code : check_groups(c, config, beside); /* ModelOpt has both */
}

static enum tp_code nothing_recognised(const struct tp_checkpoint *ckpt, const char *method,
                                       const json_t *config, struct tp_err *err)
{
    const json_t *bits = json_object_get(config, "bits");
    char text[40] = "";
    tp_source_config_path(ckpt, err);
    if (json_is_integer(bits))
        snprintf(text, sizeof text, ", \"bits\": %lld", (long long)json_integer_value(bits));
    tp_err_hint(err, "`tilepack formats --all` lists what is read; if the weights are plain, take "
                     "\"quantization_config\" out of config.json");
    return tp_fail(err, TP_E_UNSUPPORTED, "config.json says \"quant_method\": \"%.100s\"%s, but no "
                   "tensors of a quantization that is read here were found", method, text);
}

/* Kinds of weights that agree with config.json: all of a kind have the same facts. */
struct known {
    struct kind {
        const struct tp_format *format;
        uint64_t n, k, group;
        uint32_t block_n, block_k;
    } kind[KNOWN];
    struct beside beside[KNOWN];
    size_t count; /* of all that were entered: the oldest goes */
};

static struct kind kind_of(const struct tp_weight *weight)
{
    const struct tp_weight_form *form = weight->form;
    return (struct kind){form->format,     form->box.n,      form->box.k, own_group(weight),
                         form->op.block_n, form->op.block_k};
}

static bool same_kind(const struct kind *a, const struct kind *b)
{
    return a->format == b->format && a->n == b->n && a->k == b->k && a->group == b->group &&
           a->block_n == b->block_n && a->block_k == b->block_k;
}

/* Compares a weight with config.json, unless one of its kind was. */
static enum tp_code check_kind(const struct claim *c, const json_t *config, struct known *known,
                               const struct beside **beside)
{
    const struct kind kind = kind_of(c->weight);
    for (size_t i = 0; i < KNOWN && i < known->count; i++)
        if (same_kind(&known->kind[i], &kind)) {
            *beside = &known->beside[i];
            return TP_OK;
        }
    size_t place = known->count++ % KNOWN;
    known->kind[place] = kind;
    known->beside[place] = (struct beside){NULL, NULL};
    *beside = &known->beside[place];
    return check_weight(c, config, &known->beside[place]);
}

enum tp_code tp_source_width_check(const struct tp_checkpoint *ckpt,
                                   const struct tp_weight *weight, struct tp_err *err)
{
    const struct claim claim = {.ckpt = ckpt, .weight = weight, .err = err};
    if (!weight->form->unsaid_width)
        return TP_OK;
    name_weight(&claim);
    tp_err_hint(err, "add its weight_shape (of GPTQ, its qzeros), or convert the plain model");
    return tp_fail(err, TP_E_UNSUPPORTED, "config.json has weights of 4 bits and of 8, and the "
                   "tensors of this one fit either");
}

static enum tp_code refused(const struct tp_checkpoint *ckpt, const struct tp_quantizer *q,
                            const char *said, const char *why, struct tp_err *err)
{
    tp_source_config_path(ckpt, err);
    tp_err_hint(err, "convert the model that it was made from, or serve it as it is");
    return tp_fail(err, TP_E_UNSUPPORTED, "%s: %s is not read%s%s", said, q->title,
                   *why ? ": " : "", why);
}

static bool is_refused(const struct tp_quantizer_refusal *refusal, const json_t *value)
{
    char number[64];
    const char *word = json_string_value(value);
    if (json_is_integer(value)) {
        print_value(value, number, sizeof number);
        word = number;
    }
    return tp_words_have(&refusal->value, word);
}

/* What the description itself, or one of its groups, says that is refused; or NULL. */
static const json_t *refused_value(const struct tp_quantizer_refusal *refusal,
                                   const json_t *config)
{
    const json_t *value = json_object_get(config, refusal->key);
    json_t *group;
    const char *name;
    if (is_refused(refusal, value))
        return value;
    json_object_foreach(json_object_get(config, "config_groups"), name, group)
    {
        value = json_object_get(json_object_get(group, "weights"), refusal->key);
        if (is_refused(refusal, value))
            return value;
    }
    return NULL;
}

/* What config.json says is of a quantizer, or of a kind of one's, that is refused by name. */
static enum tp_code check_named(const struct tp_checkpoint *ckpt, const json_t *config,
                                const char *method, struct tp_err *err)
{
    size_t count;
    const struct tp_quantizer *const *all = tp_quantizers(&count);
    char said[160], text[64];
    for (size_t q = 0; q < count; q++) {
        if (!tp_words_have(&all[q]->method, method))
            continue;
        snprintf(said, sizeof said, "config.json says \"quant_method\": \"%.80s\"", method);
        if (all[q]->refused)
            return refused(ckpt, all[q], said, "", err);
        for (uint32_t r = 0; r < all[q]->refusals; r++) {
            const struct tp_quantizer_refusal *refusal = &all[q]->refusal[r];
            const json_t *value = refused_value(refusal, config);
            if (!value)
                continue;
            print_value(value, text, sizeof text);
            snprintf(said, sizeof said, "config.json says \"%s\": %s", refusal->key, text);
            return refused(ckpt, all[q], said, refusal->why, err);
        }
    }
    return TP_OK;
}

static enum tp_code refused_form(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 json_t *config, struct tp_err *err)
{
    json_decref(config);
    tp_err_tensor(err, weight->name);
    return refused(ckpt, weight->form->by, "its codes", weight->form->as->refused, err);
}

/* What the metadata of the first file calls its format. */
static bool has_file_format(const struct tp_checkpoint *ckpt, const struct tp_quantizer *q)
{
    const char *own = ckpt->file_count ? tp_st_meta(&ckpt->files[0].header, "format") : NULL;
    return own && q->file_format && strcmp(own, q->file_format) == 0;
}

/* Whether the tensor's name ends in a sign of the quantizer, which no other has. */
static bool is_sign(const struct tp_quantizer *q, const char *name)
{
    size_t size = strlen(name);
    for (size_t i = 0; i < q->sign.count; i++) {
        size_t length = strlen(q->sign.item[i]);
        if (size > length && name[size - length - 1] == '.' &&
            strcmp(name + size - length, q->sign.item[i]) == 0)
            return true;
    }
    return false;
}

enum tp_code tp_source_named_check(const struct tp_checkpoint *ckpt, struct tp_err *err)
{
    size_t count;
    json_t *config;
    char said[320];
    enum tp_code code = tp_source_config(ckpt, &config, err);
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    if (code == TP_OK && (code = tp_quantizers_check(err)) == TP_OK && method)
        code = check_named(ckpt, config, method, err);
    json_decref(config);
    const struct tp_quantizer *const *all = tp_quantizers(&count);
    for (size_t q = 0; q < count && !code; q++)
        if (has_file_format(ckpt, all[q]))
            code = refused(ckpt, all[q], "its __metadata__ says so", "", err);
    for (size_t i = 0; i < ckpt->tensor_count && !code; i++)
        for (size_t q = 0; q < count && !code; q++)
            if (is_sign(all[q], ckpt->tensors[i].name)) {
                snprintf(said, sizeof said, "%.300s", ckpt->tensors[i].name);
                code = refused(ckpt, all[q], said, "", err);
            }
    return code;
}

enum tp_code tp_source_config_check(const struct tp_checkpoint *ckpt,
                                    const struct tp_weights *weights, bool must_find,
                                    struct tp_err *err)
{
    json_t *config;
    enum tp_code code = tp_source_config(ckpt, &config, err);
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    if (code == TP_OK && method && (code = tp_quantizers_check(err)) == TP_OK)
        code = check_named(ckpt, config, method, err);
    struct known known = {.count = 0};
    const struct beside *beside;
    uint64_t looked_at = 0;
    size_t packed = 0, plain = 0;
    for (size_t w = 0; w < weights->count && code == TP_OK; w++) {
        const struct tp_weight *weight = &weights->items[w];
        struct claim claim = {ckpt, weight, &looked_at, err};
        packed += weight->form->format != NULL;
        plain += weight->form->format == NULL;
        code = tp_source_width_check(ckpt, weight, err);
        if (code || !weight->form->format || weight->origin)
            continue;
        if (weight->form->as && weight->form->as->refused)
            return refused_form(ckpt, weight, config, err);
        if (method && (code = check_kind(&claim, config, &known, &beside)) == TP_OK)
            code = check_beside(&claim, beside);
    }
    if (code == TP_OK && must_find && method && strcmp(method, "tilepack") != 0 && !packed &&
        plain + weights->other_count > 0)
        code = nothing_recognised(ckpt, method, config, err);
    json_decref(config);
    return code;
}
