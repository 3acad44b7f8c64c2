/* What the two halves of zst.h share: the numbers of the zstd frame format and
 * of the seekable format, and the index of an open archive. Private to zst_*.c.
 *
 * A seek table is one skippable frame at the end of the file:
 *     u32 0x184D2A5E, u32 bytes that follow,
 *     per frame: u32 stored bytes, u32 plain bytes [, u32 XXH64 of the plain bytes],
 *     u32 number of frames, u8 descriptor (bit 7: entries carry checksums),
 *     u32 0x8F92EAB1
 * all little-endian. We write no checksums there, because every frame we write
 * carries its own, and check them where another writer put them.
 */
#ifndef TP_PACK_ZST_FORMAT_H
#define TP_PACK_ZST_FORMAT_H

#include "pack/file/zst.h"

#define TP_ZST_MAGIC UINT32_C(0xFD2FB528)
#define TP_ZST_SKIP_MAGIC UINT32_C(0x184D2A50) /* the low four bits are free */
#define TP_ZST_TABLE_MAGIC UINT32_C(0x184D2A5E)
#define TP_ZST_SEEK_MAGIC UINT32_C(0x8F92EAB1)

enum {
    TP_ZST_FRAME = 4 << 20,      /* plain bytes of the frames we write */
    TP_ZST_MAX_FRAME = 64 << 20, /* of the frames we read: one is held in memory whole */
    TP_ZST_MAX_FRAMES = 4 << 20, /* keeps the index of any file below 100 MB */
    TP_ZST_HEAD_MAX = 18,        /* longest frame header */
    TP_ZST_SKIP_HEAD = 8,
    TP_ZST_FOOTER = 9,
};

struct tp_zst_frame {
    uint64_t at;    /* offset in the archive */
    uint64_t begin; /* offset of its first plain byte */
    uint32_t stored, plain; /* bytes; plain is never 0, empty frames are not indexed */
    uint32_t checksum;
    bool has_checksum;
};

struct tp_zst {
    int fd;
    char *path;
    uint64_t file_size, size;
    struct tp_zst_frame *frames; /* ascending in `at` and `begin`, plain bytes without holes */
    size_t count, capacity;
};

/* The index alone, without the frames that zst_read.c has cached of it: those are dropped
 * by tp_zst_close(). NULL is legal. */
void tp_zst_free(struct tp_zst *zst);

/* What a frame header states. */
struct tp_zst_head {
    uint32_t bytes; /* of the header itself */
    bool single;     /* its window is its contents */
    bool dictionary; /* it names one, by an id other than 0 */
    bool checksum;
    bool sized;      /* it states its size: */
    uint64_t plain;
};

/* Parses the header at p[0..n); false when it is cut off or breaks a rule. */
bool tp_zst_parse_head(const uint8_t *p, size_t n, struct tp_zst_head *head);

/* The most bytes that a sane frame of `plain` bytes takes: room for incompressible
 * data in tiny blocks. It bounds what one frame can make a reader allocate. */
static inline uint64_t tp_zst_stored_limit(uint64_t plain) { return 2 * plain + (64 << 10); }

static inline uint32_t tp_zst_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void tp_zst_put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

#endif
