/* Internal to the kernels for every layout: how the codes of a tile are spread among threads,
 * registers and words. Host code alone; see cuda_place_hand.cu. */
#ifndef TP_KERNELS_CUDA_PLACE_HAND_H
#define TP_KERNELS_CUDA_PLACE_HAND_H

#include "kernels/cuda/cuda_place.cuh"

/* Bits of a code's column (the lower ones) and row in a tile: those within a word, of a register's
 * number and of a thread's, lowest first. */
struct place_spread {
    uint32_t bits, columns; /* of a tile; log2 of its columns */
    uint32_t inner, regs, threads;
    uint8_t word[3], reg[4], thread[PLACE_THREAD_BITS];
    uint32_t join, lanes; /* of values: see place_encode */
};

/* `from`, `to`: the bits of a tile in the order in which codes come and are stored; `inner` of
 * them are within a word. `values`: eights of values in rows come; `wide`: items of four words.
 * `block_bits`: log2 of the columns that share a scale. False: there is none. */
bool tp_cuda_place_spread(const uint8_t *from, const uint8_t *to, struct place_shape shape,
                          uint32_t inner, bool values, bool wide, uint32_t block_bits,
                          struct place_spread *spread);

/* The exchanges and the bytes of the stage that follow from it; bank[b]: where the word of the
 * stage begins whose number among the tile's words has bit b alone. */
bool tp_cuda_place_hand(struct place_spread spread, const uint8_t *to, place_hand *hand,
                        uint32_t *bank);

#endif
