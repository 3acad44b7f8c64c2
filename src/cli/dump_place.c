/* --at, --offset and --values: one element, one byte, one rectangle. */
#include "base/num.h"
#include "cli/dump.h"
#include "cli/report.h"
#include "kernels/op/traits.h"
#include "pack/format/format_keywords.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Float types hold nine significant digits, and F64 seventeen. */
static int digits_of(const struct tp_source *source, const struct tp_subject *subject)
{
    enum tp_dtype dtype = source->ckpt.tensors[subject->tensor].dtype;
    bool wide = dtype == TP_F64 || dtype == TP_I64 || dtype == TP_U64;
    return !subject->weight && wide ? 17 : 9;
}

/* As stored: the number that the bytes are, most significant digit first. */
static const char *hex_text(char text[24], const struct tp_spot *spot)
{
    unsigned bytes = spot->bits < 8 ? 1 : spot->bits / 8;
    char *at = text + sprintf(text, "0x");
    if (spot->bits == 4)
        sprintf(at, "%X", spot->raw[0]);
    else
        for (unsigned i = bytes; i-- > 0;)
            at += sprintf(at, "%02X", spot->raw[i]);
    return text;
}

const char *tp_stored_text(char text[TP_STORED_TEXT], const struct tp_spot *spot, bool is_group8)
{
    char *at = text;
    if (!is_group8)
        return hex_text(text, spot);
    for (unsigned i = 0; i < 8; i++)
        at += sprintf(at, "%s%02X", i ? " " : "", spot->raw[i]);
    return text;
}

static const char *role_of(const struct tp_subject *subject, uint32_t i)
{
    return subject->weight ? tp_role_name(subject->weight->form->op.out[i].role) : "value";
}

static bool is_group8(const struct tp_subject *subject, uint32_t i)
{
    return subject->weight && subject->weight->form->op.out[i].role == TP_ROLE_GROUP8;
}

/* In words, for text; JSON has the role. */
static const char *noun(const struct tp_subject *subject, uint32_t i)
{
    if (!subject->weight)
        return "value";
    switch (subject->weight->form->op.out[i].role) {
    case TP_ROLE_CODES:
        return tp_codecs[subject->weight->form->op.codec].is_number ? "number" : "code";
    case TP_ROLE_GROUP8: return "group scale";
    case TP_ROLE_CHANNEL: return "channel scale";
    case TP_ROLE_GLOBAL: return "global scale";
    default: return tp_role_name(subject->weight->form->op.out[i].role);
    }
}

enum { PLACE_TEXT = 160 };
static const char *place_text(char text[PLACE_TEXT], const struct tp_spot *spot)
{
    unsigned long long word = spot->byte / 4 * 4; /* spread bits are those of a word of 4 bytes */
    int used = spot->spread ? snprintf(text, PLACE_TEXT, "bits of bytes %llu to %llu, the lowest "
                                       "in the ", word, word + 3) : 0;
    if (spot->bits == 4)
        snprintf(text + used, PLACE_TEXT - (size_t)used, "%s half of byte %llu",
                 spot->nibble ? "high" : "low", (unsigned long long)spot->byte);
    else if (spot->bits == 8)
        snprintf(text, PLACE_TEXT, "byte %llu", (unsigned long long)spot->byte);
    else
        snprintf(text, PLACE_TEXT, "bytes %llu to %llu", (unsigned long long)spot->byte,
                 (unsigned long long)(spot->byte + spot->bits / 8 - 1));
    return text;
}

static void put_spot(struct tp_writer *w, const struct tp_source *source,
                     const struct tp_subject *subject, uint32_t i, const struct tp_spot *spot)
{
    const struct tp_tensor *tensor = &source->ckpt.tensors[spot->tensor];
    char stored[TP_STORED_TEXT];
    tp_write(w, tp_str("role", role_of(subject, i)), tp_str("tensor", tensor->name),
             tp_str("file", source->ckpt.files[tensor->file].name),
             tp_num("offset", spot->offset), tp_num("byte", spot->byte), tp_num("bits", spot->bits),
             tp_if(spot->bits == 4, tp_str("nibble", spot->nibble ? "high" : "low")),
             tp_if(spot->spread, tp_bool("spread", true)),
             tp_str("stored", tp_stored_text(stored, spot, is_group8(subject, i))));
}

/* What JSON has no number for is a word. */
static struct tp_member number(const char *key, double value)
{
    if (isfinite(value))
        return tp_real(key, value);
    return tp_str(key, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

/* ---- --at --------------------------------------------------------------- */

static const char *name_of(const struct tp_source *source, const struct tp_subject *subject)
{
    return subject->weight ? subject->weight->name : source->ckpt.tensors[subject->tensor].name;
}

static bool is_moved(const struct tp_subject *subject)
{
    return subject->weight && subject->weight->form->settings.rows.kind;
}

static struct tp_member count_or_null(const char *key, int count)
{
    return count < 0 ? tp_null(key) : tp_num(key, (uint64_t)count);
}

static int at_json(const struct tp_source *source, const struct tp_subject *subject,
                   const struct tp_element_info *info)
{
    const struct tp_weight *weight = subject->weight;
    const uint64_t at[] = {info->e, info->n, info->k};
    struct tp_writer w;
    tp_json_open(&w);
    tp_write(&w, tp_str("weight", name_of(source, subject)),
             tp_str("format", weight ? weight->form->format->name : NULL),
             tp_numbers("at", at, 3),
             tp_if(is_moved(subject), tp_num("stored_row", info->stored_n)),
             info->has_value ? number("value", info->value) : tp_null("value"));
    tp_begin(&w, "parts", '[');
    for (uint32_t i = 0; i < info->spots; i++) {
        const struct tp_spot *spot = &info->spot[i];
        if (spot->tensor == TP_NO_TENSOR)
            continue;
        bool codes = weight && weight->form->op.out[i].role == TP_ROLE_CODES;
        tp_begin(&w, NULL, '{');
        put_spot(&w, source, subject, i, spot);
        tp_write(&w, weight || info->has_value ? number("value", spot->value) : tp_null("value"),
                 tp_if(codes, count_or_null("code", info->code)),
                 tp_if(is_group8(subject, i), count_or_null("multiple", info->multiple)));
        tp_end(&w, '}');
    }
    tp_end(&w, ']');
    return tp_json_close(&w);
}

/* How the value comes about. */
static const char *formula(const struct tp_weight *weight)
{
    if (tp_op_find(&weight->form->op, TP_ROLE_GROUP8) >= 0)
        return "e4m3(q * g) * channel";
    if (tp_op_find(&weight->form->op, TP_ROLE_GLOBAL) >= 0)
        return weight->form->op.rule == TP_NVFP4_CT ? "code * (scale / global scale)"
                                              : "code * (scale * global scale)";
    if (tp_op_find(&weight->form->op, TP_ROLE_ZERO) >= 0)
        return tp_op_zero_is_product(&weight->form->op) ? "canonical code * scale + zero"
                                                        : "(code - zero) * scale";
    return tp_codecs[weight->form->op.codec].is_number ? "number" : "code * scale";
}

static void print_part(const struct tp_source *source, const struct tp_subject *subject,
                       uint32_t i, const struct tp_element_info *info)
{
    const struct tp_spot *spot = &info->spot[i];
    const struct tp_tensor *tensor = &source->ckpt.tensors[spot->tensor];
    char stored[TP_STORED_TEXT], place[PLACE_TEXT];
    printf("  %-14s%s in the %s of ", subject->weight ? noun(subject, i) : "stored",
           tp_stored_text(stored, spot, is_group8(subject, i)), place_text(place, spot));
    tp_print_text(stdout, tensor->name);
    printf("\n  %14sat %llu of ", "", (unsigned long long)spot->offset);
    tp_print_text(stdout, source->ckpt.files[tensor->file].name);
    if (is_group8(subject, i)) {
        printf(": g = %.9g", spot->value);
        if (info->multiple >= 0)
            printf(", the code picks byte %d of the eight: %02X", info->multiple,
                   spot->raw[info->multiple]);
    } else if (subject->weight) {
        printf(": %.9g", spot->value);
        if (subject->weight->form->op.out[i].role == TP_ROLE_CODES && info->code >= 0)
            printf(" (canonical code %d)", info->code);
    }
    putchar('\n');
}

static int at_text(const struct tp_source *source, const struct tp_subject *subject,
                   const struct tp_element_info *info)
{
    const struct tp_weight *weight = subject->weight;
    tp_print_text(stdout, name_of(source, subject));
    printf("  e=%llu n=%llu k=%llu", (unsigned long long)info->e, (unsigned long long)info->n,
           (unsigned long long)info->k);
    if (weight)
        printf("  %s", weight->form->format->name);
    if (is_moved(subject))
        printf(", which is row %llu here", (unsigned long long)info->stored_n);
    if (info->has_value)
        printf("\n  value         %s%.*g%s%s%s", tp_style("1"), digits_of(source, subject),
               info->value, tp_style("0"), weight ? " = " : "", weight ? formula(weight) : "");
    putchar('\n');
    for (uint32_t i = 0; i < info->spots; i++)
        if (info->spot[i].tensor != TP_NO_TENSOR)
            print_part(source, subject, i, info);
    return TP_OK;
}

int tp_dump_at(const struct tp_options *o, const struct tp_source *source,
               const struct tp_subject *subject)
{
    struct tp_element_info info;
    struct tp_err err = {0};
    uint64_t e = o->at.e, n = o->at.n;
    if (tp_inspect_own(subject, &e, &n, &err) ||
        tp_inspect_at(&source->ckpt, subject, e, n, o->at.k, &info, &err)) {
        tp_err_tensor(&err, o->arg.item[1]);
        return tp_report_error(&err);
    }
    info.stored_n = n;
    info.n = is_moved(subject) ? o->at.n : n;
    return o->json ? at_json(source, subject, &info) : at_text(source, subject, &info);
}

/* ---- --offset ----------------------------------------------------------- */

/* The value of a code needs its scale: looked up like --at, before anything is printed. Without
 * one (`has_value`) nothing stored says it; what cannot be read is an error. */
static enum tp_code find_values(const struct tp_source *source, const struct tp_subject *subject,
                                const struct tp_byte_info *byte, struct tp_element_info at[2],
                                struct tp_err *err)
{
    bool is_code = !subject->weight ||
                   subject->weight->form->op.out[subject->out].role == TP_ROLE_CODES;
    for (unsigned i = 0; i < byte->count && is_code; i++) {
        const struct tp_stored *item = &byte->item[i];
        struct tp_err why = {0};
        if (!item->padding && tp_inspect_at(&source->ckpt, subject, item->e0, item->n0, item->k0,
                                            &at[i], &why))
            at[i].has_value = false;
        tp_err_take_unread(err, &why);
    }
    return err->code;
}

static void put_item(struct tp_writer *w, const struct tp_source *source,
                     const struct tp_subject *subject, const struct tp_stored *item,
                     const struct tp_element_info *at)
{
    const uint64_t e[] = {item->e0, item->e1}, n[] = {item->n0, item->n1},
                   k[] = {item->k0, item->k1};
    tp_begin(w, NULL, '{');
    put_spot(w, source, subject, subject->out, &item->spot);
    tp_write(w, tp_num("byte_of_element", item->byte_of), tp_bool("padding", item->padding));
    if (item->padding)
        tp_write(w, tp_num("fill", item->fill));
    else
        tp_write(w, tp_numbers("e", e, 2), tp_numbers("n", n, 2), tp_numbers("k", k, 2),
                 tp_if(item->as_stored, tp_bool("as_stored", true)),
                 tp_if(item->word >= 0, tp_num("word", (uint64_t)item->word)),
                 number("value", item->spot.value),
                 tp_if(at->has_value, number("element_value", at->value)));
    tp_end(w, '}');
}

static int byte_json(const struct tp_source *source, const struct tp_subject *subject,
                     const struct tp_byte_info *info, const struct tp_element_info at[2])
{
    const struct tp_tensor *tensor = &source->ckpt.tensors[subject->tensor];
    struct tp_writer w;
    tp_json_open(&w);
    tp_write(&w, tp_str("tensor", tensor->name),
             tp_str("file", source->ckpt.files[tensor->file].name), tp_num("byte", info->byte),
             tp_num("offset", info->offset), tp_num("stored", info->value));
    tp_begin(&w, "items", '[');
    for (unsigned i = 0; i < info->count; i++)
        put_item(&w, source, subject, &info->item[i], &at[i]);
    tp_end(&w, ']');
    return tp_json_close(&w);
}

/* "n=32", or "n=32..63" */
static void print_range(char name, uint64_t first, uint64_t end)
{
    printf(" %c=%llu", name, (unsigned long long)first);
    if (end > first + 1)
        printf("..%llu", (unsigned long long)end - 1);
}

static void print_place(const struct tp_subject *subject, const struct tp_stored *item)
{
    if (item->word >= 0)
        printf("word %d, constant, for", item->word);
    else
        printf("%s of", noun(subject, subject->out));
    print_range('e', item->e0, item->e1);
    print_range('n', item->n0, item->n1);
    if (item->as_stored)
        printf(" (rows as they lie)");
    print_range('k', item->k0, item->k1);
}

static void print_item(const struct tp_source *source, const struct tp_subject *subject,
                       const struct tp_stored *item, const struct tp_element_info *at)
{
    bool group8 = is_group8(subject, subject->out);
    char stored[TP_STORED_TEXT];
    printf("  ");
    if (item->spot.bits == 4)
        printf("%s half ", item->spot.nibble ? "high" : "low");
    else if (item->spot.bits > 8)
        printf("byte %u of ", item->byte_of);
    printf("%s: ", tp_stored_text(stored, &item->spot, group8));
    if (item->padding) {
        printf("padding");
        if (item->spot.bits <= 8 && item->spot.raw[0] != item->fill)
            printf(", which should be 0x%X", item->fill);
        putchar('\n');
        return;
    }
    if (group8)
        printf("-%ug of the ", 8 - item->byte_of);
    print_place(subject, item);
    printf(group8 ? ": g = %.*g" : ": %.*g", digits_of(source, subject), item->spot.value);
    if (subject->weight && at->has_value)
        printf(", value %.9g", at->value);
    putchar('\n');
}

int tp_dump_byte(const struct tp_options *o, const struct tp_source *source,
                 const struct tp_subject *subject)
{
    const struct tp_tensor *tensor = &source->ckpt.tensors[subject->tensor];
    struct tp_byte_info info;
    struct tp_element_info at[2] = {{0}};
    struct tp_err err = {0};
    if (tp_inspect_byte(&source->ckpt, subject, o->offset, &info, &err) ||
        find_values(source, subject, &info, at, &err)) {
        tp_err_tensor(&err, tensor->name);
        return tp_report_error(&err);
    }
    for (unsigned i = 0; i < info.count; i++)
        info.item[i].as_stored = !info.item[i].padding &&
                                 !tp_inspect_rows(subject, &info.item[i].n0, &info.item[i].n1);
    if (o->json)
        return byte_json(source, subject, &info, at);
    printf("byte %llu of ", (unsigned long long)info.byte);
    tp_print_text(stdout, tensor->name);
    printf(" (at %llu of ", (unsigned long long)info.offset);
    tp_print_text(stdout, source->ckpt.files[tensor->file].name);
    printf("): 0x%02X\n", info.value);
    for (unsigned i = 0; i < info.count; i++)
        print_item(source, subject, &info.item[i], &at[i]);
    return TP_OK;
}

/* ---- --values ----------------------------------------------------------- */

struct printing {
    const struct tp_region *region;
    struct tp_text name; /* as JSON; the head is printed with the first row, when all is read */
    bool json, first;
    int digits;
    bool moved;   /* the row lies as another one than `row`, which it is in the source */
    uint64_t row;
};

static void number_json(double value, int digits)
{
    if (isfinite(value))
        printf("%.*g", digits, value);
    else
        printf("\"%s\"", isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

static void head_json(const struct printing *p)
{
    const struct tp_region *r = p->region;
    printf("{\n  \"version\": 1,\n  \"weight\": ");
    tp_print_json(stdout, p->name.data, p->name.size);
    printf(",\n  \"expert\": %llu,\n"
           "  \"n\": [%llu, %llu],\n  \"k\": [%llu, %llu],\n  \"values\": [",
           (unsigned long long)r->e, (unsigned long long)r->n0, (unsigned long long)r->n1,
           (unsigned long long)r->k0, (unsigned long long)r->k1);
}

static enum tp_code print_row(void *arg, uint64_t n, const double *values, uint64_t count,
                              struct tp_err *err)
{
    struct printing *p = arg;
    (void)err;
    n = p->moved ? p->row : n;
    if (p->json && p->first)
        head_json(p);
    if (p->json)
        printf("%s\n    [", p->first ? "" : ",");
    else
        printf("%8llu ", (unsigned long long)n);
    for (uint64_t i = 0; i < count; i++)
        if (p->json) {
            fputs(i ? ", " : "", stdout);
            number_json(values[i], p->digits);
        } else {
            printf(" %12.6g", values[i]);
        }
    printf(p->json ? "]" : "\n");
    p->first = false;
    return TP_OK;
}

static void head_text(const char *name, const struct tp_region *r)
{
    tp_print_text(stdout, name);
    printf("  e=%llu\n%8s ", (unsigned long long)r->e, "n \\ k");
    for (uint64_t k = r->k0; k < r->k1; k++)
        printf(" %12llu", (unsigned long long)k);
    putchar('\n');
}

/* The rectangle in the weight, also when a tensor of its source was named. */
static enum tp_code region_of(const struct tp_options *o, const struct tp_subject *subject,
                              struct tp_region *region, struct tp_err *err)
{
    *region = (struct tp_region){o->expert == TP_UNSET ? 0 : o->expert, o->values.n0, o->values.n1,
                                 o->values.k0, o->values.k1};
    enum tp_code code = is_moved(subject) ? TP_OK
                                          : tp_inspect_own(subject, &region->e, &region->n0, err);
    if (code == TP_OK && subject->from_rows && !is_moved(subject)) { /* no end beyond its own */
        uint64_t end = tp_min_u64(region->n1, subject->from_row + subject->from_rows);
        region->n1 = subject->from_n + end - tp_min_u64(end, subject->from_row);
    }
    return code ? code : tp_inspect_region(subject, region, err);
}

/* Row by row, where they lie in another order. */
static enum tp_code visit_rows(const struct tp_source *source, const struct tp_subject *subject,
                               const struct tp_region *region, struct printing *p,
                               struct tp_err *err)
{
    struct tp_region one = *region;
    enum tp_code code = TP_OK;
    if (!is_moved(subject))
        return tp_inspect_values(&source->ckpt, subject, region, print_row, p, err);
    p->moved = true;
    for (p->row = region->n0; p->row < region->n1 && code == TP_OK; p->row++) {
        one.n0 = tp_row_stored(&subject->weight->form->settings.rows, subject->box.n, p->row);
        one.n1 = one.n0 + 1;
        code = tp_inspect_values(&source->ckpt, subject, &one, print_row, p, err);
    }
    return code;
}

int tp_dump_values(const struct tp_options *o, const struct tp_source *source,
                   const struct tp_subject *subject)
{
    struct tp_region region;
    struct printing p = {.region = &region, .json = o->json, .first = true,
                         .digits = digits_of(source, subject)};
    const char *name = name_of(source, subject);
    struct tp_err err = {0};
    enum tp_code code = region_of(o, subject, &region, &err);
    if (code == TP_OK && !o->json)
        head_text(name, &region);
    if (code == TP_OK && o->json)
        code = tp_add_string(&p.name, name, &err);
    if (code == TP_OK)
        code = visit_rows(source, subject, &region, &p, &err);
    tp_text_free(&p.name);
    if (code) {
        tp_err_tensor(&err, o->arg.item[1]);
        return tp_report_error(&err);
    }
    if (o->json)
        printf("\n  ]\n}\n");
    return TP_OK;
}
