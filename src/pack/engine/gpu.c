/* The table of GPUs. Invariant: it is sorted by compute capability. */
#include "pack/engine/gpu.h"

#include <stdio.h>
#include <string.h>

/* Compute capabilities as the vendor lists them. */
static const struct tp_chip chips[] = {
    {"a100", 80},  {"a800", 80},          {"a30", 80},   {"a10", 86},  {"a40", 86},
    {"3090", 86},  {"l4", 89},            {"l40s", 89},  {"4090", 89}, {"rtx-6000-ada", 89},
    {"h100", 90},  {"h100-pcie", 90},     {"h200", 90},  {"h800", 90}, {"h20", 90},
    {"gh200", 90}, {"b200", 100},         {"gb200", 100}, {"b300", 103}, {"gb300", 103},
    {"5090", 120}, {"rtx-pro-6000", 120}, {"gb10", 121},
};

const struct tp_chip *tp_chips(size_t *count)
{
    *count = sizeof chips / sizeof *chips;
    return chips;
}

unsigned tp_sm_of(const char *text, bool *later)
{
    unsigned sm = 0, digits = 0;
    if (strncmp(text, "sm", 2) != 0)
        return 0;
    for (text += 2; *text >= '0' && *text <= '9' && digits < 4; text++, digits++)
        sm = 10 * sm + (unsigned)(*text - '0');
    if (later)
        *later = *text == '+';
    text += later && *text == '+';
    return !*text && sm >= 10 && sm < 1000 ? sm : 0;
}

unsigned tp_chip_sm(const char *name)
{
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
        if (strcmp(chips[i].name, name) == 0)
            return chips[i].sm;
    return tp_sm_of(name, NULL);
}

unsigned tp_sm_at(unsigned bit)
{
    unsigned last = 0;
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
        if (chips[i].sm != last) {
            last = chips[i].sm;
            if (!bit--)
                return last;
        }
    return 0;
}

static bool is_listed(const char *const *list, size_t count, unsigned sm)
{
    for (size_t i = 0; i < count && sm; i++) {
        bool later = false;
        unsigned from = tp_sm_of(list[i], &later);
        if (sm == from || (later && sm > from))
            return true;
    }
    return false;
}

uint32_t tp_sms_of(const char *const *list, size_t count, unsigned other)
{
    uint32_t bits = is_listed(list, count, other) ? UINT32_C(1) << TP_SM_OTHER : 0;
    for (unsigned bit = 0; tp_sm_at(bit); bit++)
        if (is_listed(list, count, tp_sm_at(bit)))
            bits |= UINT32_C(1) << bit;
    return bits;
}

void tp_sms_text(uint32_t bits, unsigned other, char *text, size_t size)
{
    unsigned last = 0, from;
    while (tp_sm_at(last))
        last++;
    for (from = last; from && bits >> (from - 1) & 1; from--)
        continue;
    size_t used = 0;
    *text = '\0';
    for (unsigned bit = 0; bit < last && used < size; bit++)
        if (bits >> bit & 1 && (bit <= from || from + 1 >= last))
            used += (size_t)snprintf(text + used, size - used, "%ssm%u%s", used ? ", " : "",
                                     tp_sm_at(bit),
                                     bit == from && from + 1 < last ? " and later" : "");
    if (bits >> TP_SM_OTHER & 1 && used < size)
        snprintf(text + used, size - used, "%ssm%u", used ? ", " : "", other);
}
