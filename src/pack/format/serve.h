/* Where a format can be served: the rows "serve" of a format file, and the GPUs that they
 * speak of. Knows no checkpoint and no schedule; see formats/README.md, section 7.
 */
#ifndef TP_PACK_SERVE_H
#define TP_PACK_SERVE_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What the multiplication gains, the best first. */
enum tp_speed {
    TP_SPEED_NATIVE,  /* the tensor cores multiply in 8 or 4 bits */
    TP_SPEED_MIXED,   /* in 16 bits, the kernel widens the codes: less memory traffic only */
    TP_SPEED_DECODED, /* made plain when loaded: saves disk and transfer only */
};

/* TP_ENGINE_KERNELS is none: a loader of one's own hands the tensors to a library. */
enum tp_engine {
    TP_ENGINE_VLLM,
    TP_ENGINE_SGLANG,
    TP_ENGINE_TRTLLM,
    TP_ENGINE_TRANSFORMERS,
    TP_ENGINE_KERNELS,
    TP_ENGINE_COUNT,
};

enum { TP_MAX_SERVES = 8 };

/* One row; the strings and the list belong to the format file. */
struct tp_serve {
    enum tp_engine engine;
    enum tp_speed speed;
    const char *versions; /* of the engine, for people */
    const char *line;     /* what to type; DST stands for the checkpoint */
    const json_t *gpus;   /* ["sm90", "sm100+"]: compute capabilities */
    bool linear, experts; /* the weights that it takes: those of experts, and all others */
};

/* Reads the list "serve" of a format file; a missing one is empty. Strict: a word that is
 * not known, or a key that is missing or too much, is TP_E_INPUT. */
enum tp_code tp_serve_parse(const json_t *list, struct tp_serve rows[TP_MAX_SERVES],
                            uint32_t *count, struct tp_err *err);

/* Whether an engine, and no loader of one's own, takes such weights by the row. */
bool tp_serve_takes(const struct tp_serve *row, bool expert);

/* Whether the row holds for a GPU of that compute capability (90 for 9.0); 0: for any. */
bool tp_serve_on(const struct tp_serve *row, unsigned sm);

const char *tp_speed_name(enum tp_speed speed);
const char *tp_engine_name(enum tp_engine engine);  /* "vllm", as --engine takes it */
const char *tp_engine_title(enum tp_engine engine); /* "vLLM", as "loads_in" says it */
bool tp_engine_find(const char *name, enum tp_engine *engine);

/* GPUs by name. */
struct tp_chip {
    const char *name; /* "h100", as --gpu takes it */
    unsigned sm;      /* compute capability: 90 */
};
const struct tp_chip *tp_chips(size_t *count);

/* The compute capability of "h100", or of "sm90"; 0 when unknown. */
unsigned tp_chip_sm(const char *name);

#endif
