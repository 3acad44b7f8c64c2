/* Quantizers: the facts of the files of quantizers/, one for each program or method whose
 * checkpoints are read, or refused by name. See quantizers/README.md for the meaning of every key;
 * this header is its shape in memory.
 */
#ifndef TP_PACK_QUANTIZER_H
#define TP_PACK_QUANTIZER_H

#include "pack/format/format.h"

enum { TP_MAX_BESIDE = 24 };

/* Texts, with NULL behind the last one; NULL: there are none. */
struct tp_words {
    const char **item;
    size_t count;
};

/* A stored form: a format, in the spelling of this quantizer. */
struct tp_quantizer_form {
    const char *format;      /* its name */
    const char *suffix;      /* of the tensor of codes; "" where the weight's name is its name */
    const char *stored;      /* the dtype of that tensor, ... */
    enum tp_dtype dtype;     /* ... as a number */
    const char *separator;   /* between the weight's name and all suffixes */
    const char *base;        /* the weight's name must end like this, or NULL */
    struct tp_words absent;  /* suffixes of tensors that must not be there */
    struct tp_words says;    /* "format" of a group of config.json */
    const char *marker;      /* what the marker beside the codes must say, or NULL */
    const char *refused;     /* why it is not read, or NULL */
    bool alone;              /* nothing that may be a scale stands beside the codes */
    int stack;               /* of which the next two are made */
    bool transposed;         /* a stack that the model's sizes show to be stored [E,K,N] */
    bool interleaved;        /* a stack whose rows of gate and up alternate */
    _Atomic(const struct tp_format *) is; /* what tp_quantizer_format() found; NULL: not asked
                                yet */
    const json_t *spelled;   /* members of the format's outputs, by role, that are others; or
                                NULL */
};

/* What a tensor beside the codes is, that is none of the format's outputs. */
enum tp_beside {
    TP_BESIDE_INPUT,   /* scales of activations, */
    TP_BESIDE_DIVISOR, /* or their reciprocals */
    TP_BESIDE_KV,     /* scales of the cache of keys and values */
    TP_BESIDE_MARKER, /* says how the weight is stored */
    TP_BESIDE_OLD,    /* of the calibration: of no use to a reader of another form */
};

/* How the entries of a list match names. */
enum tp_list_match {
    TP_LIST_NAMES,   /* whole components in a row anywhere, '*', and "re:" before an expression */
    TP_LIST_REGEX,   /* the entries are regular expressions */
};

/* A list in the description: of what is quantized, or of what is not. */
struct tp_quantizer_list {
    const char *key;
    int match;           /* enum tp_list_match */
    const char *prefix;  /* entries are the members of an object whose keys begin so, or NULL */
    uint64_t min_bits;   /* only members with so many "bits" or more; 0: all */
};

/* A value in the description for which no form is here. */
struct tp_quantizer_refusal {
    const char *key, *why;
    struct tp_words value;
};

struct tp_quantizer {
    const char *name, *title, *source;
    struct tp_words method;           /* values of "quant_method" that name it */
    const char *file, *file_key;      /* where its description stands when config.json has none, and
                                         the key of it there; or NULL */
    bool file_says_more;              /* and more than that */
    bool described;                   /* its forms are tried only where a description names it */
    const char *refused;              /* why nothing of it is read, or NULL */
    struct tp_quantizer_form *form;
    struct tp_quantizer_list *list;
    struct tp_quantizer_refusal *refusal;
    size_t forms, lists, refusals, besides;
    const json_t *beside_json;        /* of which `beside` is made */
    struct {
        const char *suffix;
        enum tp_beside is;
    } beside[TP_MAX_BESIDE];
    const char *file_format;          /* "format" of the __metadata__ of its files, or NULL */
    struct tp_words sign;             /* ends of names of tensors that are of no other */
    struct tp_words zeros_key;        /* where the description says how zero points are
                                               stored; */
    struct tp_words zeros_less;       /* less one, with these words; */
    struct tp_words zeros_as;         /* as they are, with these */
    const char *marker, *marker_meta, *marker_key; /* suffix of the tensor of JSON that says how a
                                    weight is stored, the key of __metadata__ that may say the same,
                                    and the key in it; or NULL */
    json_t *json; /* the whole file */
};

/* All quantizers, sorted by name; see tp_embedded_all(). */
const struct tp_quantizer *const *tp_quantizers(size_t *count);
enum tp_code tp_quantizers_check(struct tp_err *err);

/* Adds a user's file, before others ask for quantizers: its text is copied. TP_E_USAGE where one
 * has that name, TP_E_INPUT where the file breaks the rules. */
enum tp_code tp_quantizer_add(const char *text, size_t size, struct tp_err *err);

/* Reads one file into *quantizer. What fails leaves nothing behind. */
enum tp_code tp_quantizer_parse(const char *text, size_t size, struct tp_quantizer *quantizer,
                                struct tp_err *err);
void tp_quantizer_close(struct tp_quantizer *quantizer); /* legal on {0} and twice */

/* Whether the list has the word, in letters of any case. */
bool tp_words_have(const struct tp_words *words, const char *word);

/* The form as a format: the file's own where nothing is spelled otherwise. *format NULL: there is
 * no such format. */
enum tp_code tp_quantizer_format(const struct tp_quantizer_form *form,
                                 const struct tp_format **format, struct tp_err *err);

#endif
