/* The table of GPUs. Invariant: it is sorted by compute capability. */
#include "pack/engine/gpu.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Compute capabilities as the vendor lists them; memory in MiB as nvidia-smi shows it. */
static const struct tp_chip chips[] = {
    {"a100", 80, 81920, "80 GB; a100-40gb is the other one"},
    {"a100-40gb", 80, 40960, NULL}, {"a800", 80, 81920, "80 GB; a800-40gb is the other one"},
    {"a800-40gb", 80, 40960, NULL}, {"a30", 80, 24576, NULL}, {"a10", 86, 23028, NULL},
    {"a10g", 86, 23028, NULL}, {"a40", 86, 46068, NULL}, {"3090", 86, 24576, NULL},
    {"l4", 89, 23034, NULL}, {"l40s", 89, 46068, NULL}, {"4090", 89, 24564, NULL},
    {"rtx-6000-ada", 89, 49140, NULL}, {"h100", 90, 81559, NULL},
    {"h100-pcie", 90, 81559, NULL}, {"h100-nvl", 90, 95830, NULL}, {"h200", 90, 143771, NULL},
    {"h800", 90, 81559, NULL}, {"h20", 90, 97871, NULL},
    {"gh200", 90, 97871, "96 GB; gh200-144g is the other one"}, {"gh200-144g", 90, 147456, NULL},
    {"b200", 100, 183359, NULL}, {"gb200", 100, 189471, NULL}, {"b300", 103, 275040, NULL},
    {"gb300", 103, 284208, NULL}, {"5090", 120, 32607, NULL},
    {"rtx-pro-6000", 120, 97887, NULL}, {"gb10", 121, 122880, NULL},
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

/* Between the words of a name: "NVIDIA A100-SXM4-40GB". */
static bool is_gap(char c)
{
    return c == ' ' || c == '-' || c == '_' || c == '\0';
}

static bool has_word(const char *text, const char *word, size_t size)
{
    for (const char *at = text; *at;) {
        size_t length = 0;
        at += strncasecmp(at, "rtx", 3) == 0 && !is_gap(at[3]) ? 3 : 0; /* "rtx4090" */
        while (!is_gap(at[length]))
            length++;
        if (length == size && strncasecmp(at, word, size) == 0)
            return true;
        at += length;
        while (*at && is_gap(*at))
            at++;
    }
    return false;
}

/* How many words the chip's name has, if the text has all of them; else 0. */
static unsigned words_in(const char *text, const char *chip)
{
    unsigned words = 0;
    for (const char *at = chip; *at; words++) {
        size_t length = strcspn(at, "-");
        if (!has_word(text, at, length))
            return 0;
        at += length + (at[length] == '-');
    }
    return words;
}

const struct tp_chip *tp_chip_find(const char *text)
{
    const struct tp_chip *best = NULL;
    unsigned most = 0;
    if (strlen(text) == 0 || is_gap(text[strlen(text) - 1]) || has_word(text, "laptop", 6) ||
        has_word(text, "mig", 3)) /* a part of one, with a part of its memory */
        return NULL;
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        unsigned words = words_in(text, chips[i].name);
        if (words > most) {
            most = words;
            best = &chips[i];
        }
    }
    return best;
}

bool tp_chip_is_amd(const char *text)
{
    static const char *const begin[] = {"amd", "radeon", "instinct", "mi2", "mi3", "mi4", "gfx"};
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (strncasecmp(text, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

unsigned tp_chip_sm(const char *name)
{
    const struct tp_chip *chip = tp_chip_find(name);
    return chip ? chip->sm : tp_sm_of(name, NULL);
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
