/* Sizes, times and shapes. Bounds such as 999.5 and 9.995 are those from which on printf() would
 * round up to one digit more: 999.6 kB is "1.00 MB", and 9.996 GB is "10.0 GB".
 */
#include "cli/human.h"

#include "pack/text/text.h"

#include <string.h>

const char *tp_human_bytes(char text[TP_HUMAN], uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;
    if (bytes < 1000) {
        snprintf(text, TP_HUMAN, "%u B", (unsigned)bytes);
        return text;
    }
    value /= 1000;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(text, TP_HUMAN, "%.*f %s", digits, value, units[unit]);
    return text;
}

const char *tp_human_seconds(char text[TP_HUMAN], double seconds)
{
    uint64_t whole = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 1000000000u;
    if (seconds < 0.9995)
        snprintf(text, TP_HUMAN, "%.0f ms", seconds * 1000);
    else if (seconds < 9.95)
        snprintf(text, TP_HUMAN, "%.1f s", seconds);
    else if (whole < 60)
        snprintf(text, TP_HUMAN, "%u s", (unsigned)whole);
    else if (whole < 3600)
        snprintf(text, TP_HUMAN, "%u:%02u", (unsigned)(whole / 60), (unsigned)(whole % 60));
    else
        snprintf(text, TP_HUMAN, "%u:%02u:%02u", (unsigned)(whole / 3600),
                 (unsigned)(whole / 60 % 60), (unsigned)(whole % 60));
    return text;
}

const char *tp_shape_text(char text[TP_SHAPE_TEXT], const uint64_t *shape, uint32_t rank)
{
    char *at = text;
    *at++ = '[';
    for (uint32_t d = 0; d < rank; d++) {
        if (d)
            *at++ = ',';
        at = tp_put_u64(at, shape[d]);
    }
    *at++ = ']';
    *at = '\0';
    return text;
}

const char *tp_box_text(char text[TP_SHAPE_TEXT], const struct tp_box3 *box, int rank)
{
    const uint64_t shape[] = {box->e, box->n, box->k};
    return tp_shape_text(text, rank == 3 ? shape : shape + 1, rank == 3 ? 3 : 2);
}

const char *tp_times_text(char text[TP_SHAPE_TEXT], const struct tp_box3 *box, int rank)
{
    char *at = rank == 3 ? stpcpy(tp_put_u64(text, box->e), "x") : text;
    tp_put_u64(stpcpy(tp_put_u64(at, box->n), "x"), box->k);
    return text;
}
