/* The safetensors header reader and writer: every rule by a header that breaks it
 * (code, offending byte, tensor, message), what is legal by what comes out. */
#include "pack/os/os.h"
#include "pack/file/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define T(fields) "{'t':{" fields "}}"
#define U8_4 "'dtype':'U8','shape':[4],'data_offsets':[0,4]"

/* A header, the bytes of data behind it, and how it must fail. In the text ' stands
 * for ", and ~ marks the offending byte, which is the one behind it. */
struct bad {
    const char *text;
    uint64_t data;
    enum tp_code code;
    const char *what;   /* part of the message */
    const char *tensor; /* NULL: none */
};

static const struct bad bad[] = {
    /* frame */
    {"~[]", 0, TP_E_INPUT, "does not begin with '{'", NULL},
    {"~ {}", 0, TP_E_INPUT, "does not begin with '{'", NULL},
    {"~\xef\xbb\xbf{}", 0, TP_E_INPUT, "does not begin with '{'", NULL},
    {"{} ~x", 0, TP_E_INPUT, "only spaces may follow", NULL},
    {"{}~\n", 0, TP_E_INPUT, "only spaces may follow", NULL},
    {"{}~{}", 0, TP_E_INPUT, "only spaces may follow", NULL},
    {"{ ~", 0, TP_E_INPUT, "expected a string, but the header ends", NULL},
    {"{~'t", 0, TP_E_INPUT, "the header ends inside a string", NULL},
    {"{'t'~", 0, TP_E_INPUT, "expected ':', but the header ends", NULL},
    {"{'t' ~1}", 0, TP_E_INPUT, "expected ':', found '1'", NULL},
    {"{~1:2}", 0, TP_E_INPUT, "expected a string, found '1'", NULL},
    {"{'t':~[]}", 0, TP_E_INPUT, "expected '{', found '['", "t"},
    {"{'t':~null}", 0, TP_E_INPUT, "expected '{', found 'n'", "t"},
    {T("'dtype':'U8','shape':[4],'data_offsets':~[0,4]"), 3,
     TP_E_INPUT, "the file has only 3 there", "t"},
    {"{'t':{" U8_4 "},~}", 4, TP_E_INPUT, "expected a string, found '}'", NULL},
    {"{'t':{" U8_4 "},~,", 4, TP_E_INPUT, "expected a string, found ','", NULL},
    {"{'t':{" U8_4 "}~", 4, TP_E_INPUT, "expected ',' or '}', but the header ends", NULL},
    {"{'t':{" U8_4 "} ~'u':{}}", 4, TP_E_INPUT, "expected ',' or '}', found '\"'", NULL},
    /* strings */
    {"{'a~\tb':{}}", 0, TP_E_INPUT, "control byte 0x09", NULL},
    {"{'a~\\u0000':{}}", 0, TP_E_INPUT, "U+0000", NULL},
    {"{'a\\~x':{}}", 0, TP_E_INPUT, "after a backslash, found 'x'", NULL},
    {"{'a\\~", 0, TP_E_INPUT, "after a backslash, but the header ends", NULL},
    {"{'a\\u12~g4':{}}", 0, TP_E_INPUT, "four hexadecimal digits", NULL},
    {"{'a\\u12~", 0, TP_E_INPUT, "four hexadecimal digits", NULL},
    {"{'a~\\ud800':{}}", 0, TP_E_INPUT, "half of a surrogate pair stands alone", NULL},
    {"{'a~\\ud800\\n':{}}", 0, TP_E_INPUT, "half of a surrogate pair stands alone", NULL},
    {"{'a~\\ud800\\u0041':{}}", 0, TP_E_INPUT, "half of a surrogate pair stands alone", NULL},
    {"{'a~\\ud800", 0, TP_E_INPUT, "half of a surrogate pair stands alone", NULL},
    {"{'a~\\udc00':{}}", 0, TP_E_INPUT, "second half of a surrogate pair", NULL},
    {"{'a~\x80':{}}", 0, TP_E_INPUT, "not UTF-8 at the byte 0x80", NULL},
    {"{'a~\xc0\xaf':{}}", 0, TP_E_INPUT, "not UTF-8", NULL},
    {"{'a~\xc3':{}}", 0, TP_E_INPUT, "not UTF-8", NULL},
    {"{'a~\xe0\x80\x80':{}}", 0, TP_E_INPUT, "not UTF-8", NULL},
    {"{'a~\xed\xa0\x80':{}}", 0, TP_E_INPUT, "not UTF-8", NULL},
    {"{'a~\xf0\x80\x80\x80':{}}", 0, TP_E_INPUT, "not UTF-8", NULL},
    {"{'a~\xf4\x90\x80\x80':{}}", 0, TP_E_INPUT, "not UTF-8", NULL},
    {"{'a~\xf5\x80\x80\x80':{}}", 0, TP_E_INPUT, "not UTF-8", NULL},
    {"{'a~\xe2\x82", 0, TP_E_INPUT, "not UTF-8", NULL},
    /* keys of an entry */
    {T("'shape':[4],'data_offsets':[0,4]~"), 4, TP_E_INPUT, "the key 'dtype' is missing", "t"},
    {T("'dtype':'U8','data_offsets':[0,4]~"), 4, TP_E_INPUT, "'shape' is missing", "t"},
    {T("'dtype':'U8','shape':[4]~"), 4, TP_E_INPUT, "'data_offsets' is missing", "t"},
    {T("~"), 0, TP_E_INPUT, "the key 'dtype' is missing", "t"},
    {T(U8_4 ",~'x':1"), 4, TP_E_INPUT, "unknown key 'x'", "t"},
    {T(U8_4 ",~'dtype':'U8'"), 4, TP_E_INPUT, "the key 'dtype' comes twice", "t"},
    {T(U8_4 ",~'\\u0073hape':[4]"), 4, TP_E_INPUT, "the key 'shape' comes twice", "t"},
    {T("'dtype':~8,'shape':[4],'data_offsets':[0,4]"), 4, TP_E_INPUT, "expected a string", "t"},
    {T("'dtype':~'u8','shape':[4],'data_offsets':[0,4]"), 4,
     TP_E_UNSUPPORTED, "unknown dtype 'u8'", "t"},
    {T("'dtype':~'U80','shape':[4],'data_offsets':[0,4]"), 4,
     TP_E_UNSUPPORTED, "unknown dtype", "t"},
    {T("'dtype':'U8','shape':~4,'data_offsets':[0,4]"), 4, TP_E_INPUT, "expected '['", "t"},
    {T("'dtype':'U8','shape':[4,~],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "expected a whole number, found ']'", "t"},
    {T("'dtype':'U8','shape':[4 ~4],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "expected ',' or ']'", "t"},
    {T("'dtype':'U8','shape':[1,1,1,1,1,1,1,1,~4],'data_offsets':[0,4]"), 4,
     TP_E_UNSUPPORTED, "more than 8 dimensions", "t"},
    {T("'dtype':'U8','shape':[4],'data_offsets':[0~]"), 4, TP_E_INPUT, "expected ','", "t"},
    {T("'dtype':'U8','shape':[4],'data_offsets':[~]"), 4, TP_E_INPUT, "whole number", "t"},
    {T("'dtype':'U8','shape':[4],'data_offsets':[0,4~,4]"), 4, TP_E_INPUT, "expected ']'", "t"},
    /* numbers */
    {T("'dtype':'U8','shape':[~-4],'data_offsets':[0,4]"), 4, TP_E_INPUT, "found '-'", "t"},
    {T("'dtype':'U8','shape':[~+4],'data_offsets':[0,4]"), 4, TP_E_INPUT, "found '+'", "t"},
    {T("'dtype':'U8','shape':[~04],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "begins with a zero", "t"},
    {T("'dtype':'U8','shape':[~4.0],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "not a whole number", "t"},
    {T("'dtype':'U8','shape':[~4e0],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "not a whole number", "t"},
    {T("'dtype':'U8','shape':[~4E0],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "not a whole number", "t"},
    {T("'dtype':'U8','shape':[~'4'],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "expected a whole number", "t"},
    {T("'dtype':'U8','shape':[~18446744073709551616],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "does not fit 64 bits", "t"},
    {T("'dtype':'U8','shape':[~99999999999999999999],'data_offsets':[0,4]"), 4,
     TP_E_INPUT, "does not fit 64 bits", "t"},
    /* sizes */
    {T("'dtype':'U8','shape':[5],'data_offsets':~[0,4]"), 4,
     TP_E_INPUT, "span 4 bytes, but the shape and U8 need 5", "t"},
    {T("'dtype':'BF16','shape':[4],'data_offsets':~[0,4]"), 4, TP_E_INPUT, "BF16 need 8", "t"},
    {T("'dtype':'U8','shape':[4],'data_offsets':~[4,0]"), 4, TP_E_INPUT, "before they begin", "t"},
    {T("'dtype':'U8','shape':~[4294967296,4294967296],'data_offsets':[0,0]"), 0,
     TP_E_INPUT, "does not fit 64 bits", "t"},
    {T("'dtype':'U8','shape':~[9223372036854775808,2,0],'data_offsets':[0,0]"), 0,
     TP_E_INPUT, "does not fit 64 bits", "t"},
    {T("'dtype':'F64','shape':~[1152921504606846976],'data_offsets':[0,0]"), 0,
     TP_E_INPUT, "does not fit 64 bits", "t"},
    {T("'dtype':'F4','shape':~[3],'data_offsets':[0,2]"), 2,
     TP_E_INPUT, "12 bits of F4, which is not a whole number of bytes", "t"},
    {T("'dtype':'F6_E2M3','shape':~[2],'data_offsets':[0,2]"), 2,
     TP_E_INPUT, "12 bits of F6_E2M3", "t"},
    {T("'dtype':'U8','shape':[4],'data_offsets':~[18446744073709551611,18446744073709551615]"), 4,
     TP_E_INPUT, "the file has only 4 there", "t"},
    /* ranges */
    {"{}~", 1, TP_E_INPUT, "1 bytes at the end of the file belong to no tensor", NULL},
    {T("'dtype':'U8','shape':[4],'data_offsets':~[1,5]"), 5,
     TP_E_INPUT, "begins at byte 1 behind the header, not at 0", "t"},
    {"{'a':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},'b':{'dtype':'U8','shape':[2],"
     "'data_offsets':~[3,5]}}", 5,
     TP_E_INPUT, "a hole: bytes 2 to 3 behind the header, after 'a'", "b"},
    {"{'b':{'dtype':'U8','shape':[2],'data_offsets':~[1,3]},'a':{'dtype':'U8','shape':[2],"
     "'data_offsets':[0,2]}}", 3,
     TP_E_INPUT, "inside the data of 'a', which ends at 2", "b"},
    {"{'a':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},'b':{'dtype':'U8','shape':[2],"
     "'data_offsets':~[0,2]}}", 2,
     TP_E_INPUT, "inside the data of 'a'", "b"},
    {"{'a':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},'z':{'dtype':'U8','shape':[0],"
     "'data_offsets':~[1,1]}}", 2,
     TP_E_INPUT, "inside the data of 'a'", "z"},
    /* names */
    {"{'t':{" U8_4 "},~'\\u0074':{" U8_4 "}}", 4, TP_E_INPUT, "comes twice", "t"},
    {"{'__metadata__':{},~'__metadata__':{}}", 0, TP_E_INPUT, "__metadata__ comes twice", NULL},
    /* metadata */
    {"{'__metadata__':~[]}", 0, TP_E_INPUT, "expected '{'", NULL},
    {"{'__metadata__':~nul}", 0, TP_E_INPUT, "expected a value", NULL},
    {"{'__metadata__':~1}", 0, TP_E_INPUT, "expected '{'", NULL},
    {"{'__metadata__':{'a':~1}}", 0, TP_E_INPUT, "expected a string, found '1'", NULL},
    {"{'__metadata__':{'a':~{}}}", 0, TP_E_INPUT, "expected a string, found '{'", NULL},
    {"{'__metadata__':{'a':'1','b':'2',~'\\u0061':'3'}}", 0,
     TP_E_INPUT, "the key 'a' of __metadata__ comes twice", NULL},
};

/* Parses from a buffer of exactly the right size, so that ASan sees overreads. */
static enum tp_code parse(const char *text, uint64_t size, uint64_t data,
                          struct tp_st_header *header, struct tp_err *err)
{
    char *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, text, size);
    enum tp_code code = tp_st_parse(exact, size, 8 + size + data, header, err);
    memset(exact, 'X', size); /* the header must not point into the text */
    free(exact);
    return code;
}

/* Takes ~ out of the text and returns where it was; ' becomes ". */
static uint64_t unmark(char *text)
{
    char *mark = strchr(text, '~');
    assert_non_null(mark);
    memmove(mark, mark + 1, strlen(mark));
    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    return (uint64_t)(mark - text);
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct bad *b = &bad[i];
        struct tp_err err = {0};
        struct tp_st_header header;
        char text[512];
        snprintf(text, sizeof text, "%s", b->text);
        uint64_t at = unmark(text);
        enum tp_code code = parse(text, strlen(text), b->data, &header, &err);
        bool ok = code == b->code && err.code == code && strstr(err.what, b->what) &&
                  strcmp(err.tensor, b->tensor ? b->tensor : "") == 0 && err.hint[0] &&
                  err.offset == 8 + at + 1;
        if (!ok)
            fail_msg("case %zu: %s\n  gave %d at %lld, tensor '%s': %s (%s)", i, b->text,
                     (int)code, (long long)err.offset - 9, err.tensor, err.what, err.hint);
        assert_null(header.tensors);
        assert_null(header.arena);
        tp_st_close(&header);
    }
}

static void test_trailing_data(void **state)
{
    (void)state;
    static const char text[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    struct tp_err err = {0};
    struct tp_st_header header;
    assert_int_equal(parse(text, sizeof text - 1, 7, &header, &err), TP_E_INPUT);
    assert_int_equal(err.offset - 1, 8 + sizeof text - 1 + 4);
    assert_string_equal(err.what, "3 bytes at the end of the file belong to no tensor");
}

static void test_header_size(void **state)
{
    (void)state;
    static const struct {
        uint8_t prefix[8];
        uint64_t file_size;
        enum tp_code code;
        const char *what;
    } rows[] = {
        {{2}, 10, TP_OK, ""},
        {{0x00, 0xe1, 0xf5, 0x05}, 100000008, TP_OK, ""},
        {{0x01, 0xe1, 0xf5, 0x05}, 100000009, TP_E_INPUT, "above the format's limit of 100000000"},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 100, TP_E_INPUT, "above the format's"},
        {{0}, 8, TP_E_INPUT, "is 0 bytes, too short"},
        {{1}, 9, TP_E_INPUT, "is 1 bytes, too short"},
        {{2}, 9, TP_E_INPUT, "truncated: the header is 2 bytes long, but the file has only 9"},
        {{2}, 7, TP_E_INPUT, "truncated"},
        {"version", 130, TP_E_INPUT, "above"}, /* NUL, not the space of a pointer file */
        {{'v', 'e', 'r', 's', 'i', 'o', 'n', ' '}, 130, TP_E_INPUT, "Git LFS pointer"},
        {{'G', 'G', 'U', 'F', 3}, 1000, TP_E_INPUT, "GGUF file"},
        {{'P', 'K', 3, 4}, 1000, TP_E_INPUT, "PyTorch"},
        {{'{', '"', 'a', '"', ':', '1', ',', ' '}, 1000, TP_E_INPUT, "JSON text"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tp_err err = {0};
        uint64_t size;
        enum tp_code code = tp_st_header_size(rows[i].prefix, rows[i].file_size, &size, &err);
        if (code != rows[i].code || !strstr(err.what, rows[i].what))
            fail_msg("case %zu gave %d: %s", i, (int)code, err.what);
        assert_int_equal(err.offset, code ? 1 : 0);
        assert_int_equal(!!err.hint[0], code != TP_OK);
    }
}

static void test_length_disagrees(void **state)
{
    (void)state;
    struct tp_st_header header;
    struct tp_err err = {0};
    assert_int_equal(tp_st_parse("{}", 2, 9, &header, &err), TP_E_INPUT);
    err = (struct tp_err){0};
    assert_int_equal(tp_st_parse("{}", 2, 7, &header, &err), TP_E_INPUT);
    err = (struct tp_err){0};
    assert_int_equal(tp_st_parse("{", 1, 9, &header, &err), TP_E_INPUT);
    err = (struct tp_err){0};
    assert_int_equal(tp_st_parse("{}", 2, 10, &header, &err), TP_OK);
    assert_int_equal(header.count, 0);
    assert_int_equal(header.data_start, 10);
    tp_st_close(&header);
}

static void test_good(void **state)
{
    (void)state;
    static const char text[] =
        "{ \"z\\u00e9\\ud83d\\ude00\\n\\/\\\"\" : {\"shape\":\t[ 2 , 3 ] ,\r\n"
        "\"\\u0064type\":\"BF16\",\"data_offsets\":[ 8 , 20 ]},"
        "\"__metadata__\":{\"format\":\"pt\",\"k\\u00e9\":\"\\b\\f\\r\\t\\\\\",\"\":\"\"},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[5,0],\"data_offsets\":[20,20]},"
        "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\":{\"dtype\":\"F4\",\"shape\":[2,2],"
        "\"data_offsets\":[20,22]},"
        "\"last\":{\"dtype\":\"F6_E3M2\",\"shape\":[4],\"data_offsets\":[22,25]}}      ";
    struct tp_st_header h;
    struct tp_err err = {0};
    enum tp_code code = parse(text, sizeof text - 1, 25, &h, &err);
    if (code)
        fail_msg("%s at %lld", err.what, (long long)err.offset - 1);
    assert_int_equal(h.count, 5);
    assert_int_equal(h.data_start, 8 + sizeof text - 1);
    assert_string_equal(h.tensors[0].name, "scalar");
    assert_int_equal(h.tensors[0].rank, 0);
    assert_int_equal(h.tensors[0].dtype, TP_I64);
    assert_string_equal(h.tensors[1].name, "z\xc3\xa9\xf0\x9f\x98\x80\n/\"");
    assert_int_equal(h.tensors[1].rank, 2);
    assert_int_equal(h.tensors[1].shape[0], 2);
    assert_int_equal(h.tensors[1].shape[1], 3);
    assert_int_equal(h.tensors[1].begin, 8);
    assert_int_equal(h.tensors[1].end, 20);
    assert_string_equal(h.tensors[2].name, "empty"); /* before the tensor with bytes */
    assert_string_equal(h.tensors[3].name, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f");
    assert_int_equal(h.tensors[3].dtype, TP_F4);
    assert_string_equal(h.tensors[4].name, "last");
    assert_int_equal(h.meta_count, 3);
    assert_string_equal(tp_st_meta(&h, "format"), "pt");
    assert_string_equal(tp_st_meta(&h, "k\xc3\xa9"), "\b\f\r\t\\");
    assert_string_equal(tp_st_meta(&h, ""), "");
    assert_null(tp_st_meta(&h, "none"));
    tp_st_close(&h);
    tp_st_close(&h);
}

/* Header of `count` tensors of one byte each, the data in the opposite order. */
static char *make_many(unsigned count)
{
    struct tp_text text = {0};
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(
            tp_text_addf(&text, NULL, "%s\"model.layers.%u.w\":{\"dtype\":\"U8\",\"shape\":[1],"
                         "\"data_offsets\":[%u,%u]}", i ? "," : "{", i, count - 1 - i, count - i),
            TP_OK);
    assert_int_equal(tp_text_add(&text, "}", 1, NULL), TP_OK);
    return text.data;
}

static void test_many(void **state)
{
    (void)state;
    const unsigned count = 5000;
    char *text = make_many(count), name[64];
    struct tp_st_header h;
    struct tp_err err = {0};
    assert_int_equal(parse(text, strlen(text), count, &h, &err), TP_OK);
    assert_int_equal(h.count, count);
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "model.layers.%u.w", count - 1 - i);
        assert_string_equal(h.tensors[i].name, name);
        assert_int_equal(h.tensors[i].begin, i);
    }
    tp_st_close(&h);
    /* The same with one name used again. */
    char *again = strstr(text, "layers.4999.");
    memcpy(again, "layers.1234.", 12);
    assert_int_equal(parse(text, strlen(text), count, &h, &err), TP_E_INPUT);
    assert_string_equal(err.tensor, "model.layers.1234.w");
    assert_int_equal(err.offset - 1, 8 + (again - text) - (ptrdiff_t)strlen("\"model."));
    free(text);
}

static void test_text_numbers(void **state)
{
    (void)state;
    struct tp_text text = {0};
    struct tp_err err = {0};
    const uint64_t numbers[] = {0, 9, 10, 18446744073709551615u};
    for (int i = 0; i < 4; i++)
        assert_int_equal(tp_text_add_number(&text, i ? "," : "", numbers[i], &err), TP_OK);
    assert_string_equal(text.data, "0,9,10,18446744073709551615");
    assert_int_equal(text.size, 27);
    tp_text_free(&text);
}

static void test_too_many(void **state)
{
    (void)state;
    struct tp_text text = {0};
    struct tp_st_header h;
    struct tp_err err = {0};
    for (unsigned i = 0; i <= TP_ST_MAX_TENSORS; i++)
        tp_text_addf(&text, NULL, "%c\"%x\":{\"dtype\":\"U8\",\"shape\":[0],"
                     "\"data_offsets\":[0,0]}", i ? ',' : '{', i);
    tp_text_add(&text, "}", 1, NULL);
    assert_int_equal(tp_st_parse(text.data, text.size, 8 + text.size, &h, &err),
                     TP_E_UNSUPPORTED);
    assert_non_null(strstr(err.what, "more than 1000000 tensors"));
    /* One less is taken. */
    char *last = strrchr(text.data, '{');
    while (*last != ',')
        last--;
    memcpy(last, "}", 2);
    err = (struct tp_err){0};
    size_t size = strlen(text.data);
    assert_int_equal(tp_st_parse(text.data, size, 8 + size, &h, &err), TP_OK);
    assert_int_equal(h.count, TP_ST_MAX_TENSORS);
    tp_st_close(&h);
    tp_text_free(&text);
}

/* Every cut and every single-byte change of a good header ends in an answer; run
 * under the sanitizers this proves that no read leaves the text. */
static void test_cuts(void **state)
{
    (void)state;
    static const char text[] = "{\"__metadata__\":{\"a\":\"\\ud83d\\ude00\xe2\x82\xac\"},\"t\":{"
                               "\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}";
    const size_t size = sizeof text - 1;
    struct tp_st_header h;
    for (size_t n = 2; n < size; n++) {
        struct tp_err err = {0};
        assert_int_equal(parse(text, n, 4, &h, &err), TP_E_INPUT);
        assert_true(err.offset - 1 >= 8 && err.offset - 1 <= 8 + n);
    }
    char copy[sizeof text];
    for (size_t i = 0; i < size; i++) {
        for (int byte = 0; byte < 256; byte++) {
            struct tp_err err = {0};
            memcpy(copy, text, sizeof text);
            copy[i] = (char)byte;
            if (parse(copy, size, 4, &h, &err) == TP_OK)
                assert_int_equal(h.tensors[0].end, 4);
            tp_st_close(&h);
        }
    }
}

static int allocations_left;

static void *failing_malloc(size_t size)
{
    return allocations_left-- > 0 ? malloc(size) : NULL;
}

static void *failing_calloc(size_t count, size_t size)
{
    return allocations_left-- > 0 ? calloc(count, size) : NULL;
}

static void *failing_realloc(void *memory, size_t size)
{
    return allocations_left-- > 0 ? realloc(memory, size) : NULL;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    static const struct tp_st_meta meta = {"format", "pt"};
    const unsigned count = 300;
    char *text = make_many(count);
    const struct tp_os saved = tp_os;
    int n = 0;
    enum tp_code code = TP_E_MEMORY;
    for (; code; n++) {
        struct tp_st_header h;
        struct tp_err err = {0};
        struct tp_text out = {0};
        allocations_left = n;
        tp_os.malloc = failing_malloc;
        tp_os.calloc = failing_calloc;
        tp_os.realloc = failing_realloc;
        code = tp_st_parse(text, strlen(text), 8 + strlen(text) + count, &h, &err);
        if (!code)
            code = tp_st_write_header(h.tensors, h.count, &meta, 1, 4096, &out, &err);
        tp_os = saved;
        assert_int_equal(code, err.code);
        assert_true(code == TP_OK || code == TP_E_MEMORY);
        tp_st_close(&h);
        tp_text_free(&out);
    }
    assert_true(n > 10);
    free(text);
}

static void test_write(void **state)
{
    (void)state;
    static const struct tp_st_meta meta[] = {{"format", "pt"},
                                             {"note", "a\"\\\b\f\n\r\t\x01\x1f/\xc3\xa9\x7f"}};
    static const struct tp_st_tensor tensors[] = {
        {.name = "a\"b", .dtype = TP_BF16, .rank = 2, .shape = {2, 3}, .begin = 0, .end = 12},
        {.name = "s", .dtype = TP_I64, .rank = 0, .begin = 12, .end = 20},
    };
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":"
        "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f/\xc3\xa9\x7f\"},"
        "\"a\\\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
        "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]}}";
    const size_t size = sizeof expected - 1;
    static const uint64_t aligns[] = {1, 8, 24, 64, 4096, 1 << 20};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        struct tp_text out = {0};
        struct tp_err err = {0};
        struct tp_st_header h;
        uint64_t length;
        assert_int_equal(tp_st_write_header(tensors, 2, meta, 2, aligns[i], &out, &err), TP_OK);
        assert_int_equal(out.size % aligns[i], 0);
        assert_true(out.size - 8 - size < aligns[i]);
        assert_memory_equal(out.data + 8, expected, size);
        for (size_t at = 8 + size; at < out.size; at++)
            assert_int_equal(out.data[at], ' ');
        assert_int_equal(tp_st_header_size((const uint8_t *)out.data, out.size + 20, &length, &err),
                         TP_OK);
        assert_int_equal(length, out.size - 8);
        assert_int_equal(parse(out.data + 8, length, 20, &h, &err), TP_OK);
        assert_int_equal(h.count, 2);
        assert_string_equal(h.tensors[0].name, tensors[0].name);
        assert_string_equal(tp_st_meta(&h, "note"), meta[1].value);
        tp_st_close(&h);
        tp_text_free(&out);
        tp_text_free(&out);
    }
}

static void test_write_plain(void **state)
{
    (void)state;
    struct tp_text out = {0};
    struct tp_err err = {0};
    assert_int_equal(tp_st_write_header(NULL, 0, NULL, 0, 8, &out, &err), TP_OK);
    assert_int_equal(out.size, 16);
    assert_memory_equal(out.data, "\x08\0\0\0\0\0\0\0{}      ", 16);
    tp_text_free(&out);
}

static void test_write_refuses(void **state)
{
    (void)state;
    static const struct tp_st_tensor bad_tensors[][2] = {
        {{.name = "a", .dtype = TP_U8, .rank = 1, .shape = {1}, .begin = 1, .end = 2},
         {.name = ""}},
        {{.name = "b", .dtype = TP_U8, .rank = 1, .shape = {1}, .begin = 0, .end = 1},
         {.name = "a", .dtype = TP_U8, .rank = 1, .shape = {1}, .begin = 2, .end = 3}},
        {{.name = "a", .dtype = TP_DTYPE_NONE, .rank = 0, .begin = 0, .end = 0}, {.name = ""}},
        {{.name = "a", .dtype = TP_U8, .rank = 9, .begin = 0, .end = 0}, {.name = ""}},
        {{.name = "\xff", .dtype = TP_U8, .rank = 0, .begin = 0, .end = 1}, {.name = ""}},
    };
    for (size_t i = 0; i < sizeof bad_tensors / sizeof *bad_tensors; i++) {
        struct tp_text out = {0};
        struct tp_err err = {0};
        size_t count = bad_tensors[i][1].dtype ? 2 : 1;
        assert_int_equal(tp_st_write_header(bad_tensors[i], count, NULL, 0, 8, &out, &err),
                         TP_E_INPUT);
        assert_string_equal(err.tensor, i == 4 ? "\xff" : "a");
        tp_text_free(&out);
    }
    struct tp_text out = {0};
    struct tp_err err = {0};
    char *huge = malloc(TP_ST_MAX_HEADER);
    assert_non_null(huge);
    memset(huge, 'x', TP_ST_MAX_HEADER);
    huge[TP_ST_MAX_HEADER - 1] = '\0';
    const struct tp_st_meta meta = {"k", huge};
    assert_int_equal(tp_st_write_header(NULL, 0, &meta, 1, 8, &out, &err), TP_E_UNSUPPORTED);
    assert_true(err.hint[0] != '\0');
    free(huge);
    tp_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad),           cmocka_unit_test(test_header_size),
        cmocka_unit_test(test_good),          cmocka_unit_test(test_length_disagrees),
        cmocka_unit_test(test_many),          cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_cuts),          cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_write),         cmocka_unit_test(test_write_plain),
        cmocka_unit_test(test_text_numbers),
        cmocka_unit_test(test_write_refuses), cmocka_unit_test(test_trailing_data),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
