/* How the codes of a tile are spread among threads, registers and words, for the kernels for every
 * layout (cuda_place.cuh). Host code alone.
 *
 * A tile's codes are counted by the bits of their columns, then of their rows. A thread
 * holds in its registers the bits that make up a word where codes come from and those that make
 * up a word where they go; lanes have neighbours in memory where codes come from.
 *
 * For example a tile of 128 x 128 codes of four bits, eight to a word, has 14 bits: 3 within a
 * word, 3 of a register's number, 8 of a thread's. If a word has eight columns of one row where
 * codes come from, and eight rows of one column where they go, the bits are spread as
 *
 *     word      column bits 0 1 2    of the words that are read
 *     register  row bits 0 1 2       each changes places with one of the word's: three exchanges
 *     thread    the 8 others         column bits first, so that lanes read what lies side by side
 */
#include "kernels/cuda/cuda_place_hand.h"

static bool has(const uint8_t *list, uint32_t count, uint32_t bit)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == bit)
            return true;
    return false;
}

static bool is_used(const struct place_spread &s, uint32_t bit)
{
    return has(s.word, s.inner, bit) || has(s.reg, s.regs, bit) || has(s.thread, s.threads, bit);
}

static void add_reg(struct place_spread &s, uint32_t bit)
{
    if (s.regs < s.bits - PLACE_THREAD_BITS - s.inner && !is_used(s, bit))
        s.reg[s.regs++] = (uint8_t)bit;
}

static void add_thread(struct place_spread &s, uint32_t bit)
{
    if (s.threads < PLACE_THREAD_BITS && !is_used(s, bit))
        s.thread[s.threads++] = (uint8_t)bit;
}

/* Bits of words that are stored and are not in those that come. */
static uint32_t needed(const struct place_spread &s, const uint8_t *to, uint8_t *bits)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s.inner; i++)
        if (!has(s.word, s.inner, to[i]))
            bits[count++] = to[i];
    return count;
}

/* Values come in eights of a row. Of 16 neighbours a thread has both eights where it can: fewer
 * lanes share a scale then. Registers of a block's columns stand first, so that those that share
 * a scale are neighbours. */
static void spread_values(struct place_spread &s, const uint8_t *to, uint32_t block_bits)
{
    const uint32_t fixed = 3 - s.inner; /* registers of an eight */
    uint8_t bits[PLACE_MAX_BITS];
    uint32_t count = needed(s, to, bits), joined = 0;
    for (uint32_t i = 0; i < fixed; i++)
        s.reg[s.regs++] = (uint8_t)(s.inner + i);
    for (uint32_t i = 0; i < count; i++)
        add_reg(s, bits[i]);
    if (s.regs - fixed < 2 + (s.inner == 3))
        add_reg(s, 3);
    for (uint32_t i = s.bits; i-- > 0;)
        if (to[i] >= s.columns)
            add_reg(s, to[i]);
    for (uint32_t i = fixed; i < s.regs; i++)
        if (s.reg[i] < block_bits) {
            const uint8_t bit = s.reg[i];
            for (uint32_t j = i; j > fixed + joined; j--)
                s.reg[j] = s.reg[j - 1];
            s.reg[fixed + joined++] = bit;
        }
    s.join = (1u << joined) - 1;
    for (uint32_t bit = 3; bit < s.columns; bit++)
        add_thread(s, bit);
    s.lanes = 1;
    for (uint32_t i = 0; i < s.threads && s.thread[i] < block_bits; i++)
        s.lanes *= 2;
}

/* Codes come in words, or (wide) in four words at a time. */
static void spread_codes(struct place_spread &s, const uint8_t *from, const uint8_t *to, bool wide)
{
    uint8_t bits[PLACE_MAX_BITS];
    const uint32_t count = needed(s, to, bits), neighbours = wide ? 2 : 4;
    if (wide) {
        add_reg(s, from[s.inner]);
        add_reg(s, from[s.inner + 1]);
    }
    for (uint32_t i = 0; i < count; i++)
        add_reg(s, bits[i]);
    for (uint32_t i = s.inner, left = neighbours; left > 0; i++) {
        const uint32_t before = s.threads;
        add_thread(s, from[i]);
        left -= s.threads - before;
    }
    for (uint32_t i = s.bits; i-- > 0;)
        add_reg(s, to[i]);
}

/* False: more bits are needed at once than registers of words that are exchanged can be. */
static bool fits(const struct place_spread &s, const uint8_t *to)
{
    for (uint32_t i = 0; i < s.inner; i++)
        if (!has(s.word, s.inner, to[i]) && !has(s.reg, 3, to[i]))
            return false;
    return s.regs == s.bits - PLACE_THREAD_BITS - s.inner && s.threads == PLACE_THREAD_BITS;
}

bool tp_cuda_place_spread(const uint8_t *from, const uint8_t *to, struct place_shape shape,
                          uint32_t inner, bool values, bool wide, uint32_t block_bits,
                          struct place_spread *spread)
{
    struct place_spread &s = *spread;
    memset(&s, 0, sizeof s);
    s.columns = shape.columns;
    s.bits = shape.rows + shape.columns;
    s.inner = inner;
    for (uint32_t i = 0; i < inner; i++)
        s.word[i] = from[i];
    if (values)
        spread_values(s, to, block_bits);
    else
        spread_codes(s, from, to, wide);
    for (uint32_t i = 0; i < s.bits; i++)
        add_thread(s, to[i]);
    return fits(s, to);
}

/* ---- exchanges ------------------------------------------------------------ */

/* Bit `p` of a place in a word and bit `r` of a register's number change places. */
static bool add_step(struct place_spread &s, uint32_t p, uint32_t r, place_hand *hand)
{
    static const uint16_t low[2] = {0x6240, 0x5410}, high[2] = {0x7351, 0x7632};
    const uint8_t bit = s.word[p];
    const bool nibbles = s.inner == 3 && p == 0;
    const uint32_t byte = s.inner == 3 && !nibbles ? p - 1 : p;
    if (hand->steps == PLACE_STEPS)
        return false;
    hand->step[hand->steps++] = place_step{low[byte], high[byte], (uint16_t)r, nibbles};
    s.word[p] = s.reg[r];
    s.reg[r] = bit;
    return true;
}

/* Until words hold what is stored side by side. */
static bool steps_of(struct place_spread &s, const uint8_t *to, place_hand *hand)
{
    for (uint32_t p = 0; p < s.inner; p++) {
        uint32_t at = p, r = 0;
        if (s.word[p] == to[p])
            continue;
        while (at < s.inner && s.word[at] != to[p])
            at++;
        if (at < s.inner && !add_step(s, at, 0, hand))
            return false;
        while (r < 3 && s.reg[r] != to[p])
            r++;
        if (r == 3 || !add_step(s, p, r, hand))
            return false;
    }
    return true;
}

/* ---- the stage ------------------------------------------------------------ */

static uint32_t place_of(const uint8_t *order, uint32_t bit)
{
    uint32_t i = 0;
    while (order[i] != bit)
        i++;
    return i;
}

/* Bytes of the stage by the bits of a word's number. Items of four words stay whole; which of the
 * eight that pass at a time is mixed with upper bits, so that lanes whose words lie far apart
 * write to other banks. */
static void banks_of(const struct place_spread &s, const uint8_t *to, uint32_t *bank)
{
    bool taken[5] = {true, true, false, false, false};
    for (uint32_t b = 0; b < s.bits; b++)
        bank[b] = 4u << b;
    for (uint32_t i = 0; i < 5; i++) {
        const uint32_t b = place_of(to, s.thread[i]);
        if (b >= s.inner && b - s.inner < 5)
            taken[b - s.inner] = true;
    }
    for (uint32_t i = 0, slot = 2; i < 5; i++) {
        const uint32_t b = place_of(to, s.thread[i]);
        while (slot < 5 && taken[slot])
            slot++;
        if (slot < 5 && b >= s.inner + 5)
            bank[b - s.inner] |= 4u << slot++;
    }
}

/* Registers whose numbers differ in the lowest bits alone are neighbours in the stage. */
static uint32_t wide_of(const uint32_t *high_in)
{
    if (high_in[1] != 4)
        return 1;
    return high_in[2] == 8 ? 4 : 2;
}

bool tp_cuda_place_hand(struct place_spread s, const uint8_t *to, place_hand *hand,
                        uint32_t *bank)
{
    memset(hand, 0, sizeof *hand);
    if (!steps_of(s, to, hand))
        return false;
    banks_of(s, to, bank);
    for (uint32_t i = 0; i < PLACE_THREAD_BITS; i++)
        hand->low_in[i] = bank[place_of(to, s.thread[i]) - s.inner];
    for (uint32_t i = 0; i < PLACE_TURNS; i++)
        for (uint32_t r = 0; r < s.regs; r++)
            if (i >> r & 1)
                hand->high_in[i] ^= bank[place_of(to, s.reg[r]) - s.inner];
    hand->wide = wide_of(hand->high_in);
    return true;
}
