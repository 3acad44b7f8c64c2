// One schedule of the FP8 block GEMM: weights in e4m3 with a scale for 128 by 128 of them,
// activations with one for 1 by 128, stock CUTLASS. Compiled once for each schedule: TILE_M rows
// of X by TILE_N rows of W, clusters of CLUSTER_M by CLUSTER_N tiles, PINGPONG (0 or 1), and its
// NAME, as text and as the word ROW. Sums of 128 products are scaled and added in fp32.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/detail/blockwise_scale_layout.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

#include "prove_launch.cuh"

namespace {

using namespace cute;

using E4m3 = cutlass::float_e4m3_t;
using Bf16 = cutlass::bfloat16_t;
using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
using Tile = Shape<Int<TILE_M>, Int<TILE_N>, _128>;
using Cluster = Shape<Int<CLUSTER_M>, Int<CLUSTER_N>, _1>;
using Scales = cutlass::detail::Sm90BlockwiseScaleConfig<1, 128, 128, cute::GMMA::Major::MN,
                                                         cute::GMMA::Major::K>;
using ScalesX = decltype(Scales::deduce_layoutSFA());
using ScalesW = decltype(Scales::deduce_layoutSFB());
using MainloopKind =
    std::conditional_t<PINGPONG, cutlass::gemm::KernelTmaWarpSpecializedPingpongFP8Blockwise,
                       cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8Blockwise>;
using EpilogueKind =
    std::conditional_t<PINGPONG, cutlass::epilogue::TmaWarpSpecialized,
                       cutlass::epilogue::TmaWarpSpecializedCooperative>;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Rows, 8, Bf16, Rows, 8,
    EpilogueKind>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, E4m3, cute::tuple<Rows, ScalesX>, 16,
    E4m3, cute::tuple<Columns, ScalesW>, 16, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<
        static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    MainloopKind>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

Gemm::Arguments arguments(const tilepack_prove_problem &p, const tilepack_prove_operands &o)
{
    int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    int e = static_cast<int>(p.e);
    Gemm::Arguments a{};
    a.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    a.problem_shape = {m, n, k, e};
    a.mainloop.ptr_A = static_cast<const E4m3 *>(o.rows);
    a.mainloop.dA = cutlass::make_cute_packed_stride(Kernel::StrideA{}, make_shape(m, k, e));
    a.mainloop.ptr_B = static_cast<const E4m3 *>(o.codes);
    a.mainloop.dB = cutlass::make_cute_packed_stride(Kernel::StrideB{}, make_shape(n, k, e));
    a.mainloop.ptr_SFA = static_cast<const float *>(o.row_scales);
    a.mainloop.layout_SFA =
        Scales::tile_atom_to_shape_SFA(make_shape(cutlass::round_up(m, 4), n, k, e));
    a.mainloop.ptr_SFB = static_cast<const float *>(o.scales);
    a.mainloop.layout_SFB = Scales::tile_atom_to_shape_SFB(make_shape(m, n, k, e));
    if (o.shared_rows) {
        get<2>(a.mainloop.dA) = 0;
        get<2>(a.mainloop.layout_SFA.stride()) = 0;
    }
    a.epilogue.thread.alpha = 1;
    a.epilogue.thread.beta = 0;
    a.epilogue.ptr_D = static_cast<Bf16 *>(o.out);
    a.epilogue.dD = cutlass::make_cute_packed_stride(Kernel::StrideD{}, make_shape(m, n, e));
    a.hw_info.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count();
    return a;
}

int can_run(const tilepack_prove_problem *p, char *message, size_t size)
{
    if (p->n % 8 || p->k % 16)
        return prove::fail(message, size, "the kernel", "wants N % 8 == 0 and K % 16 == 0");
    return 0;
}

int run(const tilepack_prove_problem *p, const tilepack_prove_operands *sets, size_t set_count,
        uint32_t rounds, uint32_t launches, double *microseconds, char *message, size_t size)
{
    return prove::run<Gemm>(set_count, rounds, launches, microseconds,
                            [&](size_t i, prove::Memory &) { return arguments(*p, sets[i]); },
                            message, size);
}

} // namespace

extern "C" const struct tilepack_prove_kernel ROW;
const struct tilepack_prove_kernel ROW = {
    NAME, TILEPACK_PROVE_FP8_BLOCK, TILE_N, TILE_M, CLUSTER_N, CLUSTER_M, can_run, run};
