// One schedule of the W4A8 GEMM: int4 weights in the bytes of w4a8-cutlass, e4m3 activations,
// stock CUTLASS. Compiled once for each schedule: GROUPED (0 or 1), TILE_N rows of W by TILE_M
// rows of X, CLUSTER tiles along W's rows, and its NAME, as text and as the word ROW.
//
// As in vLLM's kernels the weight is CUTLASS's operand A and the result is its transpose. The
// group scales are in the mainloop, the token and channel scales in the epilogue: first
// accumulator times token, then times channel, each rounded to fp32, then to bf16.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

#include "prove_launch.cuh"

namespace {

using namespace cute;
namespace fusion = cutlass::epilogue::fusion;

constexpr bool grouped = GROUPED;
constexpr int group_size = 128;
template <class T> using Each = std::conditional_t<grouped, T *, T>; // of each expert, or the one

using Int4 = cutlass::int4b_t;
using E4m3 = cutlass::float_e4m3_t;
using Bf16 = cutlass::bfloat16_t;
using Multiples = cutlass::Array<E4m3, 8>;
using Columns = cutlass::layout::ColumnMajor;

// How formats/w4a8-cutlass.json lays nibbles: 16 rows by 32 columns, as a warp reads them.
using Atom = Layout<Shape<Shape<Shape<_8, _2>, _1>, Shape<Shape<_4, _4, _2>, _1>>,
                    Stride<Stride<Stride<_64, _4>, _0>, Stride<Stride<_1, _16, _8>, _0>>>;
using Codes = decltype(tile_to_shape(
    Atom{}, Layout<Shape<int, int, _1>, Stride<int64_t, _1, _0>>{})); // of one expert

using Problem = std::conditional_t<grouped, cutlass::gemm::GroupProblemShape<Shape<int, int, int>>,
                                   Shape<int, int, int, int>>;
using Tile = Shape<Int<TILE_N>, Int<TILE_M>, _128>;
using Cluster = Shape<Int<CLUSTER>, _1, _1>;
using MainloopKind =
    std::conditional_t<grouped, cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative,
                       cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
using EpilogueKind =
    std::conditional_t<grouped, cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative,
                       cutlass::epilogue::TmaWarpSpecializedCooperative>;

constexpr auto round_up = cutlass::FloatRoundStyle::round_to_nearest;
using Channel = fusion::Sm90ColBroadcast<0, Tile, Each<float>, float, Stride<_1, _0, _0>>;
using Token = fusion::Sm90RowBroadcast<0, Tile, Each<float>, float, Stride<_0, _1, _0>>;
using ByToken = fusion::Sm90EVT<
    fusion::Sm90Compute<cutlass::multiplies, float, float, round_up>, Token,
    fusion::Sm90AccFetch>;
using Scaled = fusion::Sm90EVT<
    fusion::Sm90Compute<cutlass::multiplies, Bf16, float, round_up>, Channel, ByToken>;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Each<Columns>, 8, Bf16,
    Each<Columns>, 8, EpilogueKind, Scaled>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, cute::tuple<Int4, Multiples>, Each<Codes>,
    32, E4m3, Each<Columns>, 16, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<
        static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    MainloopKind>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

Codes codes_layout(const tilepack_prove_problem &p)
{
    return tile_to_shape(Atom{}, make_shape(static_cast<int>(p.n), static_cast<int>(p.k), _1{}));
}

// A pointer for each expert, `step` elements apart.
template <class T>
const T **pointers(const void *first, uint64_t step, uint64_t count, prove::Memory &memory)
{
    std::vector<const T *> all(count);
    for (uint64_t e = 0; e < count; e++)
        all[e] = static_cast<const T *>(first) + e * step;
    return memory.send(all);
}

template <class G>
typename G::Arguments arguments_grouped(const tilepack_prove_problem &p,
                                        const tilepack_prove_operands &o, prove::Memory &memory)
{
    using Rows = cute::remove_pointer_t<cutlass::detail::TagToStrideB_t<Columns *>>;
    using Out = typename G::GemmKernel::InternalStrideD;
    using Groups = cute::remove_cvref_t<
        decltype(*std::declval<typename G::GemmKernel::MainloopArguments>().dS)>;
    int n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    uint64_t own = o.shared_rows ? 0 : 1;
    std::vector<Shape<int, int, int>> shapes(p.e, make_shape(n, static_cast<int>(p.m), k));
    std::vector<Codes> codes(p.e, codes_layout(p));
    Rows rows{};
    get<0>(rows) = k;
    Out out{};
    get<1>(out) = n;
    Groups groups{};
    get<1>(groups) = n;
    typename G::Arguments a{};
    a.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    a.problem_shape = {static_cast<int>(p.e), memory.send(shapes), nullptr};
    // Nibbles: two in a byte.
    a.mainloop.ptr_A = reinterpret_cast<const Int4 **>(
        pointers<char>(o.codes, p.n * p.k / 2, p.e, memory));
    a.mainloop.dA = memory.send(codes);
    a.mainloop.ptr_B = pointers<E4m3>(o.rows, own * p.m * p.k, p.e, memory);
    a.mainloop.dB = memory.send(std::vector<Rows>(p.e, rows));
    a.mainloop.ptr_S = pointers<Multiples>(o.groups, p.n * (p.k / group_size), p.e, memory);
    a.mainloop.dS = memory.send(std::vector<Groups>(p.e, groups));
    a.mainloop.chunk_size = group_size;
    a.epilogue.thread = {{pointers<float>(o.scales, p.n, p.e, memory)},
                         {{pointers<float>(o.row_scales, own * p.m, p.e, memory)}, {}, {}},
                         {}};
    a.epilogue.ptr_D = const_cast<Bf16 **>(pointers<Bf16>(o.out, p.m * p.n, p.e, memory));
    a.epilogue.dD = memory.send(std::vector<Out>(p.e, out));
    a.epilogue.dC = a.epilogue.dD;
    return a;
}

template <class G>
typename G::Arguments arguments_dense(const tilepack_prove_problem &p,
                                      const tilepack_prove_operands &o)
{
    int n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    typename G::Arguments a{};
    a.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    a.problem_shape = {n, static_cast<int>(p.m), k, 1};
    a.mainloop.ptr_A = static_cast<const Int4 *>(o.codes);
    a.mainloop.dA = codes_layout(p);
    a.mainloop.ptr_B = static_cast<const E4m3 *>(o.rows);
    get<0>(a.mainloop.dB) = k;
    a.mainloop.ptr_S = static_cast<const Multiples *>(o.groups);
    get<1>(a.mainloop.dS) = n;
    a.mainloop.group_size = group_size;
    a.epilogue.thread = {{static_cast<const float *>(o.scales)},
                         {{static_cast<const float *>(o.row_scales)}, {}, {}},
                         {}};
    a.epilogue.ptr_D = static_cast<Bf16 *>(o.out);
    get<1>(a.epilogue.dD) = n;
    return a;
}

template <class G>
typename G::Arguments arguments(const tilepack_prove_problem &p, const tilepack_prove_operands &o,
                                prove::Memory &memory)
{
    if constexpr (grouped && sizeof(G) > 0)
        return arguments_grouped<G>(p, o, memory);
    else
        return arguments_dense<G>(p, o);
}

int can_run(const tilepack_prove_problem *p, char *message, size_t size)
{
    if (!grouped && p->e != 1)
        return prove::fail(message, size, "the dense kernel", "takes one expert");
    if (p->n % 16 || p->k % group_size)
        return prove::fail(message, size, "the kernel", "wants N % 16 == 0 and K % 128 == 0");
    return 0;
}

int run(const tilepack_prove_problem *p, const tilepack_prove_operands *sets, size_t set_count,
        uint32_t rounds, uint32_t launches, double *microseconds, char *message, size_t size)
{
    int sms = cutlass::KernelHardwareInfo::query_device_multiprocessor_count();
    return prove::run<Gemm>(set_count, rounds, launches, microseconds,
                            [&](size_t i, prove::Memory &memory) {
                                auto a = arguments<Gemm>(*p, sets[i], memory);
                                a.hw_info.sm_count = sms;
                                return a;
                            },
                            message, size);
}

} // namespace

extern "C" const struct tilepack_prove_kernel ROW;
const struct tilepack_prove_kernel ROW = {
    NAME, grouped ? TILEPACK_PROVE_W4A8_GROUPED : TILEPACK_PROVE_W4A8_DENSE,
    TILE_N, TILE_M, CLUSTER, 1, can_run, run};
