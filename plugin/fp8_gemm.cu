// The FP8 block GEMM for Hopper: D[m][n] = A[m][k] B[n][k]^T in e4m3, with an fp32 scale for 1 by
// 128 of A and one for 128 by 128 of B. Sums of 128 products come from the tensor cores, are
// scaled, and are added up in fp32; the result is bf16 or fp32.
//
// One kernel for every configuration that `tilepack schedule` plans. Its numbers are macros that
// fp8_gemm.c writes in front of this text: BLOCK_M, BLOCK_N, STAGES, CLUSTER_M, CLUSTER_N, ON_A,
// SWIZZLE, FP32_OUT, LAYOUT and the operands of one wgmma (WGMMA_*). Includes nothing.
//
// The blocks are persistent. One thread of a warpgroup of its own loads tiles of A and B with TMA
// into a ring of STAGES; one or two other warpgroups multiply them. A stage is full when its bytes
// have arrived, and empty when every warp that reads it has said so. In a cluster of two blocks
// the operand that both read is loaded once, by the first block, into both.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum layout { DENSE, CONTIGUOUS, MASKED }; // as in fp8_gemm.h

constexpr u32 BLOCK_K = 128; // one row of a tile is the 128 bytes that TMA swizzles
constexpr u32 WGMMA_ROWS = 64, WGMMA_K = 32;
constexpr u32 WARPGROUPS = BLOCK_M <= 64 ? 1 : 2; // that multiply
constexpr u32 MATH_THREADS = WARPGROUPS * 128;
constexpr u32 THREADS = MATH_THREADS + 128;
constexpr u32 WAVE_ROWS = BLOCK_M < 64 ? BLOCK_M : 64 * WARPGROUPS; // of the tile, at a time
constexpr u32 WAVES = BLOCK_M / WAVE_ROWS;
constexpr u32 SUMS = BLOCK_N / 2; // a thread's, of 64 by BLOCK_N
constexpr u32 CLUSTER = CLUSTER_M * CLUSTER_N;
// As registers allow; and a second stage must be there to be started before the first is released.
constexpr bool OVERLAPPED = WAVES == 1 && 3 * SUMS <= 192 && STAGES > 1;
constexpr u32 ELEMENT = FP32_OUT ? 4 : 2;
constexpr u32 PANEL_BYTES = SWIZZLE ? SWIZZLE : BLOCK_N * ELEMENT; // a row of what one store takes
constexpr u32 PANELS = BLOCK_N * ELEMENT / PANEL_BYTES;

constexpr __device__ u32 round_up(u32 x, u32 to) { return (x + to - 1) / to * to; }
constexpr __device__ u32 common_divisor(u32 a, u32 b) { return b ? common_divisor(b, a % b) : a; }

constexpr u32 A_BYTES = BLOCK_M * BLOCK_K, B_BYTES = BLOCK_N * BLOCK_K, SCALE_BYTES = BLOCK_M * 4;
constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES + SCALE_BYTES;

// Shared memory, in this order.
constexpr u32 OUT_AT = 0;
constexpr u32 A_AT = round_up(BLOCK_M * BLOCK_N * ELEMENT, 1024);
constexpr u32 B_AT = A_AT + STAGES * A_BYTES;
constexpr u32 ROW_SCALES_AT = B_AT + STAGES * B_BYTES;
constexpr u32 ROW_SCALES_STEP = round_up(SCALE_BYTES, 128);
constexpr u32 FULL_AT = ROW_SCALES_AT + STAGES * ROW_SCALES_STEP; // barriers of 8 bytes
constexpr u32 EMPTY_AT = FULL_AT + STAGES * 8;
constexpr u32 WEIGHT_SCALES_AT = EMPTY_AT + STAGES * 8; // one or two rows of B's scales

// A tile of B lies in one row of scales, or begins in one and ends in the next.
constexpr bool ONE_SCALE = 128 % BLOCK_N == 0;
// Where the border between the two can lie in few places only, each has code of its own.
constexpr u32 BORDERS = 128 / common_divisor(128, BLOCK_N);
constexpr u32 BORDER_STEP = common_divisor(128, BLOCK_N) / 8; // in columns of 8
constexpr u32 BORDER_LAST = (BLOCK_N < 128 ? BLOCK_N : 128) / 8;
constexpr bool BORDER_KNOWN = !ONE_SCALE && BORDERS <= 4;
constexpr u32 STEPS_TOGETHER = 4; // copies of the loop over k where it is not overlapped

static_assert(BLOCK_M % 64 == 0 || BLOCK_M == 16 || BLOCK_M == 32, "rows of whole wgmmas");
static_assert(BLOCK_N % 8 == 0 && BLOCK_N <= 192, "columns of one wgmma");
static_assert(BLOCK_N <= 128 || common_divisor(BLOCK_N, 128) == BLOCK_N - 128,
              "no tile has more than two rows of scales");
static_assert(CLUSTER <= 2 && (CLUSTER == 1 || ON_A == (CLUSTER_N == 2)), "pairs of blocks");
static_assert(FULL_AT % 8 == 0 && A_AT % 1024 == 0 && B_AT % 1024 == 0, "aligned for TMA");
// A wgmma reads 64 rows, also of a tile that has 16: what it finds behind is not stored.
static_assert(WGMMA_ROWS * BLOCK_K <= A_BYTES + STAGES * B_BYTES, "reads stay inside");

struct alignas(64) tensor_map {
    u64 opaque[16];
};

// ---- PTX ------------------------------------------------------------------------------------

static __device__ __forceinline__ u32 shared_address(const void *p)
{
    return static_cast<u32>(__cvta_generic_to_shared(p));
}

// One thread of the warp, which the compiler knows to be one.
static __device__ __forceinline__ bool is_elected()
{
    u32 elected;
    asm volatile("{\n"
                 ".reg .pred elected;\n"
                 "elect.sync _|elected, 0xffffffff;\n"
                 "selp.b32 %0, 1, 0, elected;\n"
                 "}" : "=r"(elected));
    return elected != 0;
}

// What is the same in all lanes, and now known to be: it may be kept in uniform registers, of which
// wgmma and TMA take their operands, and a branch on it does not take the warp apart.
static __device__ __forceinline__ u32 uniform(u32 x)
{
    return __shfl_sync(0xffffffff, x, 0);
}

static __device__ __forceinline__ u32 block_in_cluster()
{
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

static __device__ __forceinline__ void barrier_wait(u32 barrier, u32 phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra ready;\n"
                 "bra again;\n"
                 "ready:\n"
                 "}" ::"r"(barrier), "r"(phase) : "memory");
}

static __device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes) : "memory");
}

#if CLUSTER_M * CLUSTER_N > 1
#define BARRIER_OF "cluster"
#else
#define BARRIER_OF "cta"
#endif

// Where a barrier lies in another block of the cluster, seen from this one.
static __device__ __forceinline__ u32 barrier_at(u32 barrier, u32 block)
{
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(barrier), "r"(block));
    return there;
}

// Of the threads that are to. One predicate, as a branch would take the warp apart.
static __device__ __forceinline__ void barrier_arrive(u32 barrier, bool arrives)
{
    asm volatile("{\n"
                 ".reg .pred arrives;\n"
                 "setp.ne.b32 arrives, %1, 0;\n"
                 "@arrives mbarrier.arrive.shared::" BARRIER_OF ".b64 _, [%0];\n"
                 "}" ::"r"(barrier), "r"(static_cast<u32>(arrives)) : "memory");
}

// Of the threads that multiply.
static __device__ __forceinline__ void math_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(MATH_THREADS) : "memory");
}

static __device__ __forceinline__ void load(const tensor_map *map, u32 barrier, u32 to, u32 x,
                                            u32 y, u32 z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(x),
                 "r"(y), "r"(z) : "memory");
}

static __device__ __forceinline__ void load_both(const tensor_map *map, u32 barrier, u32 to, u32 x,
                                                 u32 y, u32 z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to), "l"(map),
                 "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(static_cast<u16>(3)) : "memory");
}

static __device__ __forceinline__ void store(const tensor_map *map, u32 from, u32 x, u32 y, u32 z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 ::"l"(map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the stores of this thread have read what they store.
static __device__ __forceinline__ void store_wait()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

static __device__ __forceinline__ void prefetch(const tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

static __device__ __forceinline__ float shared_float(u32 at)
{
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at));
    return value;
}

// Tiles lie as TMA swizzles them by 128 bytes: eight rows after 1024 bytes, K-major.
static __device__ __forceinline__ u64 tile_of(u32 at)
{
    return static_cast<u64>(1) << 62 | static_cast<u64>(1024 >> 4) << 32 | at >> 4;
}

// sums (+)= 64 rows of A times all of B, 32 of k.
static __device__ __forceinline__ void wgmma(float (&sums)[SUMS], u64 a, u64 b, u32 add)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, " WGMMA_ADD ", 0;\n"
                 "wgmma.mma_async.sync.aligned." WGMMA_SHAPE ".f32.e4m3.e4m3 "
                 "{" WGMMA_SUMS "}, " WGMMA_A ", " WGMMA_B ", add, 1, 1;\n"
                 "}" : WGMMA_OPERANDS(sums) : "l"(a), "l"(b), "r"(add));
}

// The compiler moves nothing that touches the sums across.
static __device__ __forceinline__ void hold(float (&sums)[SUMS])
{
#pragma unroll
    for (u32 i = 0; i < SUMS; i++)
        asm volatile("" : "+f"(sums[i])::"memory");
}

static __device__ __forceinline__ void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all are done that were committed, or all but the last.
template <bool BUT_LAST> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BUT_LAST ? 1 : 0) : "memory");
}

// ---- which tile -----------------------------------------------------------------------------

struct shape {
    u32 m, n, k, groups;
    u32 band;        // tiles across, of those that are worked on at a time
    const int *rows; // CONTIGUOUS: the group of each row, or less than 0; MASKED: rows of each
};

struct tile {
    u32 m, n, group; // m, n: in tiles
    bool both;       // the cluster's blocks read the same operand: it is loaded once
    bool paired;     // the cluster's other block has a tile, too
};

// A block's tiles, one after the other. The loading warp and each multiplying one go through them
// by themselves, and come to the same.
struct tiles {
    shape s;
    u32 next, rows, columns; // rows and columns of tiles, MASKED: of the current group
    u32 group, before;       // MASKED: tiles of the groups before the current one

    __device__ __forceinline__ explicit tiles(const shape &all) : s(all), next(blockIdx.x)
    {
        rows = (s.m + BLOCK_M - 1) / BLOCK_M;
        columns = (s.n + BLOCK_N - 1) / BLOCK_N;
        group = before = 0;
        if (LAYOUT == MASKED)
            rows = (rows_of(0) + BLOCK_M - 1) / BLOCK_M;
    }

    __device__ __forceinline__ u32 rows_of(u32 i) const { return uniform(__ldg(s.rows + i)); }

    // In bands, so that what all SMs read at a time is little, and comes from the L2. Two
    // neighbours of a band share an operand; the last line of an odd band is by itself.
    __device__ __forceinline__ void place(u32 at, tile &t) const
    {
        u32 across = ON_A ? columns : rows, along = ON_A ? rows : columns;
        u32 first = at / (along * s.band) * s.band;
        u32 width = min(s.band, across - first);
        at %= along * s.band;
        if (CLUSTER > 1 && width % 2 != 0) {
            u32 even = (width - 1) * along;
            if (at < even) {
                width--;
            } else {
                at -= even;
                first += width - 1;
                width = 1;
            }
        }
        u32 x = first + at % width, y = at / width;
        t.m = ON_A ? y : x;
        t.n = ON_A ? x : y;
        t.both = CLUSTER > 1 && width > 1;
    }

    __device__ __forceinline__ bool take(tile &t)
    {
        u32 at = next;
        next += gridDim.x;
        if (LAYOUT == MASKED) {
            while (at - before >= rows * columns) {
                before += rows * columns;
                if (++group >= s.groups)
                    return false;
                rows = (rows_of(group) + BLOCK_M - 1) / BLOCK_M;
            }
            place(at - before, t);
            t.group = group;
            t.paired = true; // the planner takes pairs only where columns are even
            return true;
        }
        if (at >= rows * columns)
            return false;
        place(at, t);
        t.paired = (at ^ 1) < rows * columns;
        t.group = 0;
        if (LAYOUT == CONTIGUOUS) {
            u32 own = rows_of(t.m * BLOCK_M);
            t.group = max(static_cast<int>(own), 0);
            if (CLUSTER > 1 && !ON_A && t.both) // the same rows of B, of one group only
                t.both = own == rows_of((t.m ^ 1) * BLOCK_M);
        }
        return true;
    }

    // Whether 64 rows, which begin so far inside the tile, are computed: the first of them decides,
    // as a group's rows come before those of none.
    __device__ __forceinline__ bool used(const tile &t, u32 row) const
    {
        row += t.m * BLOCK_M;
        return LAYOUT == CONTIGUOUS ? static_cast<int>(rows_of(row)) >= 0
             : LAYOUT == MASKED     ? row < rows_of(t.group)
                                    : true;
    }
};

// The ring of stages, as one side goes through it.
struct ring {
    u32 base, stage = 0, phase = 0;

    __device__ __forceinline__ explicit ring(u32 shared) : base(shared) {}
    __device__ __forceinline__ u32 full() const { return base + FULL_AT + stage * 8; }
    __device__ __forceinline__ u32 empty() const { return base + EMPTY_AT + stage * 8; }
    __device__ __forceinline__ void advance()
    {
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        phase ^= stage == 0;
    }
};

// ---- loading ----------------------------------------------------------------------------------

struct maps {
    const tensor_map *a, *row_scales, *b, *out;
};

static __device__ __forceinline__ void load_stage(const ring &r, const maps &m, const tile &t,
                                                  u32 k, bool first)
{
    u32 a_group = LAYOUT == MASKED ? t.group : 0;
    u32 a = r.base + A_AT + r.stage * A_BYTES, b = r.base + B_AT + r.stage * B_BYTES;
    u32 scales = r.base + ROW_SCALES_AT + r.stage * ROW_SCALES_STEP;
    bool both_a = CLUSTER > 1 && ON_A && t.both, both_b = CLUSTER > 1 && !ON_A && t.both;
    if (!both_a) {
        load(m.a, r.full(), a, k * BLOCK_K, t.m * BLOCK_M, a_group);
        load(m.row_scales, r.full(), scales, t.m * BLOCK_M, k, a_group);
    } else if (first) {
        load_both(m.a, r.full(), a, k * BLOCK_K, t.m * BLOCK_M, a_group);
        load_both(m.row_scales, r.full(), scales, t.m * BLOCK_M, k, a_group);
    }
    if (!both_b)
        load(m.b, r.full(), b, k * BLOCK_K, t.n * BLOCK_N, t.group);
    else if (first)
        load_both(m.b, r.full(), b, k * BLOCK_K, t.n * BLOCK_N, t.group);
    barrier_expect(r.full(), STAGE_BYTES);
}

// By one thread; where tiles depend on what is in memory by the warp, which so keeps them uniform,
// and has one thread load.
static __device__ __forceinline__ void load_tiles(ring r, const shape &s, const maps &m)
{
    tiles all(s);
    tile t;
    u32 steps = (s.k + BLOCK_K - 1) / BLOCK_K;
    bool first = CLUSTER == 1 || block_in_cluster() == 0;
    while (all.take(t))
        for (u32 k = 0; k < steps; k++, r.advance()) {
            barrier_wait(r.empty(), r.phase ^ 1);
            if (LAYOUT == DENSE || is_elected())
                load_stage(r, m, t, k, first);
            if (LAYOUT != DENSE)
                __syncwarp();
        }
    // The other block still arrives at these barriers: they must last until it has.
    for (u32 i = 0; CLUSTER > 1 && i < STAGES; i++, r.advance())
        barrier_wait(r.empty(), r.phase ^ 1);
}

// ---- multiplying -------------------------------------------------------------------------------

// A thread's place in the warpgroups that multiply.
struct place {
    u32 warp, lane, group; // warp: of all; group: warpgroup
    u32 row;               // of its first sums, in the tile; the second ones are 8 further on
    bool stores;           // its rows are of the tile
    u32 empty;             // barriers of the block that this lane tells of stages that were read

    __device__ __forceinline__ place() : empty(0)
    {
        warp = uniform(threadIdx.x / 32);
        group = warp / 4;
        lane = threadIdx.x % 32;
        row = warp * 16 + lane / 4;
        stores = BLOCK_M >= 64 || warp < BLOCK_M / 16;
    }

    // Each block that loads into this one's stages is told by a lane of its own; where there is
    // no other, this one is told twice.
    __device__ __forceinline__ void begin(const ring &r, const tile &t)
    {
        empty = r.base + EMPTY_AT;
        if (CLUSTER > 1)
            empty = barrier_at(empty, t.paired ? lane % CLUSTER : block_in_cluster());
    }
    __device__ __forceinline__ void release(u32 stage) const
    {
        barrier_arrive(empty + stage * 8, lane < CLUSTER);
    }
};

struct pair {
    float first, second; // of a thread's two rows
};

// total += part * scale of A's row * scale of B's columns, which is another one from column
// `border` (of 8s) on.
template <u32 BORDER>
static __device__ __forceinline__ void promote(float (&total)[SUMS], const float (&part)[SUMS],
                                               pair rows, float weight, float weight_behind,
                                               u32 border)
{
    pair scale = {rows.first * weight, rows.second * weight};
    pair behind = {rows.first * weight_behind, rows.second * weight_behind};
#pragma unroll
    for (u32 i = 0; i < SUMS / 4; i++) {
        u32 column = i / BORDER_STEP * BORDER_STEP; // one choice for all between two borders
        bool before = ONE_SCALE || column < (BORDER_KNOWN ? BORDER : border);
        float first = before ? scale.first : behind.first;
        float second = before ? scale.second : behind.second;
        total[4 * i + 0] = __fmaf_rn(first, part[4 * i + 0], total[4 * i + 0]);
        total[4 * i + 1] = __fmaf_rn(first, part[4 * i + 1], total[4 * i + 1]);
        total[4 * i + 2] = __fmaf_rn(second, part[4 * i + 2], total[4 * i + 2]);
        total[4 * i + 3] = __fmaf_rn(second, part[4 * i + 3], total[4 * i + 3]);
    }
}

// A wave's products of one stage, on their way to `part`.
struct step {
    u32 stage;
    float weight, behind; // scales of B
    pair rows;            // scales of A
};

static __device__ __forceinline__ void start(float (&part)[SUMS], step &now, const ring &r,
                                             const place &p, u32 k, u32 steps, u32 wave)
{
    u32 weight_scales = r.base + WEIGHT_SCALES_AT;
    now.stage = r.stage;
    now.weight = shared_float(weight_scales + 4 * k);
    now.behind = ONE_SCALE ? 0 : shared_float(weight_scales + 4 * (steps + k));
    if (wave == 0)
        barrier_wait(r.full(), r.phase);
    // Read before the wgmma: once that is done the stage may be loaded again.
    u32 at = r.base + ROW_SCALES_AT + r.stage * ROW_SCALES_STEP + 4 * (wave * WAVE_ROWS + p.row);
    now.rows = {0, 0};
    if (p.stores)
        now.rows = {shared_float(at), shared_float(at + 32)};
    u64 a = tile_of(r.base + A_AT + r.stage * A_BYTES + wave * WAVE_ROWS * BLOCK_K +
                    p.group * WGMMA_ROWS * BLOCK_K);
    u64 b = tile_of(r.base + B_AT + r.stage * B_BYTES);
    hold(part);
    wgmma_begin();
#pragma unroll
    for (u32 i = 0; i < BLOCK_K / WGMMA_K; i++)
        wgmma(part, a + (i * WGMMA_K >> 4), b + (i * WGMMA_K >> 4), i);
    wgmma_commit();
    hold(part);
}

// LATER: whether another step was started since.
template <u32 BORDER, bool LATER>
static __device__ __forceinline__ void finish(float (&total)[SUMS], float (&part)[SUMS],
                                              const step &now, const place &p, u32 border,
                                              bool last_wave)
{
    wgmma_wait<LATER>();
    hold(part);
    if (last_wave)
        p.release(now.stage);
    if (p.stores)
        promote<BORDER>(total, part, now.rows, now.weight, now.behind, border);
}

// The sums of one tile, in `total`.
template <u32 BORDER>
static __device__ __forceinline__ void multiply(float (&total)[WAVES][SUMS], ring &r,
                                                const place &p, u32 steps, u32 border)
{
    float part[SUMS];
    step now;
#pragma unroll STEPS_TOGETHER
    for (u32 k = 0; k < steps; k++, r.advance()) {
#pragma unroll
        for (u32 wave = 0; wave < WAVES; wave++) {
            start(part, now, r, p, k, steps, wave);
            finish<BORDER, false>(total[wave], part, now, p, border, wave == WAVES - 1);
        }
    }
}

// The same for small tiles: the tensor cores work on one step while the sums of the one before
// are scaled.
template <u32 BORDER>
static __device__ __forceinline__ void multiply_overlapped(float (&total)[WAVES][SUMS], ring &r,
                                                           const place &p, u32 steps,
                                                           u32 border)
{
    float even[SUMS], odd[SUMS];
    step even_step, odd_step;
    u32 k = 1;
    start(even, even_step, r, p, 0, steps, 0);
    r.advance();
    for (; k + 1 < steps; k += 2) {
        start(odd, odd_step, r, p, k, steps, 0);
        r.advance();
        finish<BORDER, true>(total[0], even, even_step, p, border, true);
        start(even, even_step, r, p, k + 1, steps, 0);
        r.advance();
        finish<BORDER, true>(total[0], odd, odd_step, p, border, true);
    }
    if (k < steps) {
        start(odd, odd_step, r, p, k, steps, 0);
        r.advance();
        finish<BORDER, true>(total[0], even, even_step, p, border, true);
        finish<BORDER, false>(total[0], odd, odd_step, p, border, true);
    } else {
        finish<BORDER, false>(total[0], even, even_step, p, border, true);
    }
}

// With a border that is known when the code is made, where that is worth it.
template <u32 BORDER>
static __device__ __forceinline__ void multiply_at(float (&total)[WAVES][SUMS], ring &r,
                                                   const place &p, u32 steps, u32 border)
{
    if (!BORDER_KNOWN || border == BORDER) {
        if constexpr (OVERLAPPED)
            multiply_overlapped<BORDER>(total, r, p, steps, border);
        else
            multiply<BORDER>(total, r, p, steps, border);
    }
    else if constexpr (BORDER_KNOWN && BORDER + BORDER_STEP <= BORDER_LAST)
        multiply_at<BORDER + BORDER_STEP>(total, r, p, steps, border);
}

// A tile's scales of B, one row of them or two, on the way to shared memory: the first of each
// thread are read from global memory while the result of the tile before is written.
struct weight_scales {
    const float *all, *from;
    u32 count;
    float early;

    __device__ __forceinline__ explicit weight_scales(const float *scales) : all(scales) {}

    __device__ __forceinline__ void read(const shape &s, const tile &t, u32 steps, u32 border)
    {
        u32 lines = (s.n + 127) / 128, columns = min(s.n - t.n * BLOCK_N, u32(BLOCK_N)) / 8;
        count = ONE_SCALE || border >= columns ? steps : 2 * steps;
        from = all + (u64(t.group) * lines + t.n * BLOCK_N / 128) * steps;
        early = threadIdx.x < count ? __ldg(from + threadIdx.x) : 0;
    }

    __device__ __forceinline__ void write(u32 base) const
    {
        u32 to = base + WEIGHT_SCALES_AT;
        if (threadIdx.x < count)
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + 4 * threadIdx.x), "f"(early)
                         : "memory");
        for (u32 i = threadIdx.x + MATH_THREADS; i < count; i += MATH_THREADS)
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + 4 * i), "f"(__ldg(from + i))
                         : "memory");
    }
};

static __device__ __forceinline__ u32 bf16_pair(float low, float high)
{
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// 16 rows of a warp to shared memory as bf16, swizzled as the store expects: 8 columns are 16
// bytes, whose place in a row of the panel depends on the row. A lane gives the address of 8 of
// the columns of one row.
static __device__ __forceinline__ u32 bf16_place(u32 row, u32 column)
{
    constexpr u32 per_panel = PANEL_BYTES / 16;
    u32 offset = row * PANEL_BYTES + column % per_panel * 16;
    if (SWIZZLE > 16)
        offset ^= (offset >> 7 & (PANEL_BYTES / 16 - 1)) << 4;
    return offset + column / per_panel * BLOCK_M * PANEL_BYTES;
}

static __device__ __forceinline__ void write_bf16(const float (&total)[SUMS], u32 out, u32 row,
                                                  u32 lane)
{
    constexpr u32 step = BLOCK_N % 16 == 0 ? 2 : 1;
#pragma unroll
    for (u32 i = 0; i < SUMS / 4; i += step) {
        u32 to = out + bf16_place(row + lane % 16, i + (step == 2 ? lane / 16 : 0));
        const float *x = total + 4 * i;
        if constexpr (step == 2)
            asm volatile("stmatrix.sync.aligned.x4.m8n8.shared.b16 [%0], {%1, %2, %3, %4};"
                         ::"r"(to), "r"(bf16_pair(x[0], x[1])), "r"(bf16_pair(x[2], x[3])),
                         "r"(bf16_pair(x[4], x[5])), "r"(bf16_pair(x[6], x[7])) : "memory");
        else
            asm volatile("stmatrix.sync.aligned.x2.m8n8.shared.b16 [%0], {%1, %2};" ::"r"(to),
                         "r"(bf16_pair(x[0], x[1])), "r"(bf16_pair(x[2], x[3])) : "memory");
    }
}

static __device__ __forceinline__ void write_fp32(const float (&total)[SUMS], u32 out, u32 row,
                                                  u32 lane)
{
#pragma unroll
    for (u32 i = 0; i < SUMS / 2; i++) {
        u32 offset = ((row + lane / 4 + i % 2 * 8) * BLOCK_N + i / 2 * 8 + lane % 4 * 2) * 4;
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(out + offset), "f"(total[2 * i]),
                     "f"(total[2 * i + 1]) : "memory");
    }
}

static __device__ __forceinline__ void write_sums(const float (&total)[WAVES][SUMS], u32 base,
                                                  const place &p)
{
#pragma unroll
    for (u32 wave = 0; wave < WAVES; wave++) {
        u32 row = wave * WAVE_ROWS + p.warp * 16;
        if (!p.stores)
            break;
        if (FP32_OUT)
            write_fp32(total[wave], base + OUT_AT, row, p.lane);
        else
            write_bf16(total[wave], base + OUT_AT, row, p.lane);
    }
}

static __device__ __forceinline__ void store_tile(const maps &m, u32 base, const tile &t)
{
    if (threadIdx.x < PANELS)
        store(m.out, base + OUT_AT + threadIdx.x * BLOCK_M * PANEL_BYTES,
              t.n * BLOCK_N + threadIdx.x * (PANEL_BYTES / ELEMENT), t.m * BLOCK_M,
              LAYOUT == MASKED ? t.group : 0);
}

static __device__ __forceinline__ u32 border_of(const tile &t)
{
    return ONE_SCALE ? BLOCK_N / 8 : min(u32(BLOCK_N), 128 - t.n * BLOCK_N % 128) / 8;
}

static __device__ __forceinline__ void multiply_tile(float (&total)[WAVES][SUMS], ring &r,
                                                     place &p, const tiles &all, const tile &t,
                                                     u32 steps)
{
    p.begin(r, t);
    if (all.used(t, p.group * WGMMA_ROWS))
        multiply_at<BORDER_STEP>(total, r, p, steps, border_of(t));
    else
        for (u32 k = 0; k < steps; k++, r.advance()) {
            barrier_wait(r.full(), r.phase);
            p.release(r.stage);
        }
}

static __device__ __forceinline__ void multiply_tiles(ring r, const shape &s, const maps &m,
                                                      const float *all_scales)
{
    place p;
    tiles all(s);
    tile t, next;
    weight_scales scales(all_scales);
    u32 steps = (s.k + BLOCK_K - 1) / BLOCK_K;
    bool more = all.take(t);
    if (more) {
        scales.read(s, t, steps, border_of(t));
        scales.write(r.base);
    }
    math_sync();
    for (; more; t = next) {
        float total[WAVES][SUMS] = {};
        multiply_tile(total, r, p, all, t, steps);
        more = all.take(next);
        if (more)
            scales.read(s, next, steps, border_of(next));
        if (threadIdx.x < PANELS)
            store_wait(); // of the tile before
        math_sync();
        write_sums(total, r.base, p);
        if (more)
            scales.write(r.base);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        math_sync();
        store_tile(m, r.base, t);
    }
    if (threadIdx.x < PANELS)
        store_wait();
}

// ---- the kernel --------------------------------------------------------------------------------

static __device__ __forceinline__ void begin(const ring &r, const maps &m)
{
    if (threadIdx.x == MATH_THREADS) {
        prefetch(m.a);
        prefetch(m.row_scales);
        prefetch(m.b);
        prefetch(m.out);
    }
    if (threadIdx.x == MATH_THREADS + 32) {
        for (u32 i = 0; i < STAGES; i++) {
            barrier_init(r.base + FULL_AT + 8 * i, 1);
            barrier_init(r.base + EMPTY_AT + 8 * i, CLUSTER * MATH_THREADS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (CLUSTER > 1)
        asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" // fenced above
                     "barrier.cluster.wait.aligned;" ::: "memory");
    else
        __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fp8_gemm(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map row_scales,
             const __grid_constant__ tensor_map b, const __grid_constant__ tensor_map out,
             const __grid_constant__ shape s, const float *weight_scales)
{
    extern __shared__ __align__(1024) u8 memory[];
    ring r(shared_address(memory));
    maps m = {&a, &row_scales, &b, &out};
    begin(r, m);
    // Two multiplying warpgroups need more registers than a third of all for each thread; with
    // one, each thread has as many as the hardware can name.
    u32 warp = uniform(threadIdx.x / 32);
    if (warp >= MATH_THREADS / 32) {
        if (WARPGROUPS == 2)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        // The third warp: another one may be beside a warp that does wgmma for it.
        if (warp == MATH_THREADS / 32 + 2 && (LAYOUT != DENSE || is_elected()))
            load_tiles(r, s, m);
    } else {
        if (WARPGROUPS == 2)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        multiply_tiles(r, s, m, weight_scales);
    }
}
