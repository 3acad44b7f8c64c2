/* Codes of 4 or 8 bits in memory, where a format may have moved the bits inside of each byte or of
 * each word of 32 bits. Slow and obvious, for the reference and for looking at single codes.
 *
 * A move is a list of 32 numbers: bit i of a stored word is bit list[i] of the word as the layout
 * fills it, lowest element in the lowest bits. NULL: nothing is moved. Words are little-endian.
 */
#ifndef TP_KERNELS_WORD_BITS_H
#define TP_KERNELS_WORD_BITS_H

#include <stdbool.h>
#include <stdint.h>

enum { TP_WORD_BITS = 32 };

/* Element number `at` of `width` bits (4 or 8). */
uint8_t tp_bits_load(const uint8_t *list, const uint8_t *data, uint64_t at, unsigned width);
void tp_bits_store(const uint8_t *list, uint8_t *data, uint64_t at, unsigned width, uint8_t value);

/* Which element of `width` bits it is whose bit is stored as bit number `stored` of the data. */
uint64_t tp_bits_element(const uint8_t *list, uint64_t stored, unsigned width);

/* Whether every bit stays in its byte. */
bool tp_bits_within_bytes(const uint8_t *list);

/* The number of the half byte in which the lowest bit of a 4-bit element lies: `at` where nothing
 * is moved. */
uint64_t tp_bits_half(const uint8_t *list, uint64_t at);

/* Whether all bits of a 4-bit element lie there, in their order. */
bool tp_bits_whole(const uint8_t *list, uint64_t at);

#endif
