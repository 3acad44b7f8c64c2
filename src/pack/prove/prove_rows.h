/* Activations: what the rows of X are that a kernel is given. The same for the same expert, row
 * and column whatever the number of rows, and on every machine.
 */
#ifndef TP_PACK_PROVE_ROWS_H
#define TP_PACK_PROVE_ROWS_H


#include <stdint.h>

/* Codes in e4m3 of columns [0,k) of a random row: about normal, up to the largest number. */
void tp_prove_row(uint64_t expert, uint64_t row, uint64_t k, uint8_t *codes);

/* Its scale, of block `block` where a row has several: 2^-9 to 2^-8. */
float tp_prove_row_scale(uint64_t expert, uint64_t row, uint64_t block);

/* Unit vectors: row i of the `rows` rows has 1 in column first + i, and else 0. */
void tp_prove_units(uint64_t first, uint64_t rows, uint64_t k, uint8_t *codes);

#endif
