/* The tables of host rows, and the choice among them.
 *
 * Rows are ordered best instruction set first; the first one that this machine
 * runs, TILEPACK_DISABLE leaves and the operation fits is taken. The reference
 * is not a row: it fits everything and cannot be disabled.
 */
#include "kernels/op/rows.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 256 };

static struct {
    struct tp_encode_row encode[MAX_ROWS];
    struct tp_repack_row repack[MAX_ROWS];
    struct tp_decode_row decode[MAX_ROWS];
    size_t encodes, repacks, decodes;
    bool enabled[TP_ISA_COUNT];
} all;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *tp_isa_name(enum tp_isa isa)
{
    static const char *const names[TP_ISA_COUNT] = {
        [TP_ISA_REF] = "ref",   [TP_ISA_AVX2] = "avx2", [TP_ISA_AVX512] = "avx512",
        [TP_ISA_NEON] = "neon", [TP_ISA_CUDA] = "cuda",
    };
    return (unsigned)isa < TP_ISA_COUNT ? names[isa] : "?";
}

/* True when `name` is one of the words of the comma list. */
static bool listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    while (list != NULL && *list != '\0') {
        size_t word = strcspn(list, ", ");
        if (word == length && strncmp(list, name, length) == 0)
            return true;
        list += word + strspn(list + word, ", ");
        if (word == 0 && *list == '\0')
            break;
    }
    return false;
}

static bool machine_has(enum tp_isa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == TP_ISA_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* and so F16C */
    if (isa == TP_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
               __builtin_cpu_supports("avx512vbmi2");
#elif defined(__aarch64__)
    if (isa == TP_ISA_NEON)
        return true;
#endif
    /* Whether there is a device is for the device's own code to find out. */
    return isa == TP_ISA_REF || isa == TP_ISA_CUDA;
}

static void add_set(const struct tp_row_set *set)
{
    for (size_t i = 0; i < set->encodes && all.encodes < MAX_ROWS; i++)
        all.encode[all.encodes++] = set->encode[i];
    for (size_t i = 0; i < set->repacks && all.repacks < MAX_ROWS; i++)
        all.repack[all.repacks++] = set->repack[i];
    for (size_t i = 0; i < set->decodes && all.decodes < MAX_ROWS; i++)
        all.decode[all.decodes++] = set->decode[i];
}

static void prepare(void)
{
    const char *disabled = getenv("TILEPACK_DISABLE");
    for (int isa = 0; isa < TP_ISA_COUNT; isa++)
        all.enabled[isa] = machine_has((enum tp_isa)isa) &&
                           (isa == TP_ISA_REF || !listed(disabled, tp_isa_name((enum tp_isa)isa)));
    add_set(&tp_rows_avx512);
    add_set(&tp_rows_avx2);
    add_set(&tp_rows_neon);
}

bool tp_isa_enabled(enum tp_isa isa)
{
    pthread_once(&once, prepare);
    return (unsigned)isa < TP_ISA_COUNT && all.enabled[isa];
}

const struct tp_encode_row *tp_encode_rows(size_t *count)
{
    pthread_once(&once, prepare);
    *count = all.encodes;
    return all.encode;
}

const struct tp_repack_row *tp_repack_rows(size_t *count)
{
    pthread_once(&once, prepare);
    *count = all.repacks;
    return all.repack;
}

const struct tp_decode_row *tp_decode_rows(size_t *count)
{
    pthread_once(&once, prepare);
    *count = all.decodes;
    return all.decode;
}

static enum tp_place place_of_role(const struct tp_op *op, enum tp_role role)
{
    int i = tp_op_find(op, role);
    return i < 0 ? TP_PLACE_ANY : op->out[i].place;
}

/* The scales' place; W4A8 has group scales instead. */
static enum tp_place scale_place(const struct tp_op *op)
{
    enum tp_place place = place_of_role(op, TP_ROLE_SCALE);
    return tp_op_find(op, TP_ROLE_SCALE) < 0 ? place_of_role(op, TP_ROLE_GROUP8) : place;
}

tp_encode_fn tp_encode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    enum tp_place code = place_of_role(op, TP_ROLE_CODES), scale = scale_place(op);
    pthread_once(&once, prepare);
    for (size_t i = 0; i < all.encodes; i++) {
        const struct tp_encode_row *row = &all.encode[i];
        if (row->codec == op->codec && row->dtype == dtype && row->code_place == code &&
            row->scale_place == scale && all.enabled[row->isa] &&
            (row->accepts == NULL || row->accepts(op)))
            return row->encode;
    }
    return tp_encode_ref;
}

tp_repack_fn tp_repack_find(const struct tp_op *from, const struct tp_op *to)
{
    enum tp_place from_code = place_of_role(from, TP_ROLE_CODES), from_scale = scale_place(from);
    enum tp_place to_code = place_of_role(to, TP_ROLE_CODES), to_scale = scale_place(to);
    pthread_once(&once, prepare);
    for (size_t i = 0; i < all.repacks; i++) {
        const struct tp_repack_row *row = &all.repack[i];
        if (row->codec == to->codec && row->from_code == from_code &&
            row->from_scale == from_scale && row->to_code == to_code &&
            row->to_scale == to_scale && all.enabled[row->isa] &&
            (row->accepts == NULL || row->accepts(from, to)))
            return row->repack;
    }
    return tp_repack_ref;
}

tp_decode_fn tp_decode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    enum tp_place code = place_of_role(op, TP_ROLE_CODES), scale = scale_place(op);
    pthread_once(&once, prepare);
    for (size_t i = 0; i < all.decodes && !tp_op_needs_reference(op); i++) {
        const struct tp_decode_row *row = &all.decode[i];
        if (row->codec == op->codec && row->dtype == dtype && row->code_place == code &&
            row->scale_place == scale && all.enabled[row->isa] &&
            (row->accepts == NULL || row->accepts(op)))
            return row->decode;
    }
    return tp_decode_ref;
}
