"""The weight gradient of a grouped 3D convolution on many cores, with the Ascend C class Conv3DBackpropFilter.

    npu-sim run examples/conv3d_backprop_filter.py --explain
    npu-sim perf examples/conv3d_backprop_filter.py
    npu-sim check examples/conv3d_backprop_filter.py

The kernel reads as the C++ of the class's documentation does: one object per core, and around it the loops that a
driver has to bring along: groups, depth taps, batch and output depth, blocks of K, M and N. All cores add to the same
dW atomically. The result is compared with float64.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from npu_sim import current_product
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.layouts.transform import blocked_from_activation, weight_from_fractal
from ops.ascendc import (
    Conv3DBackpropFilter,
    Conv3DBackpropFilterTilingData,
    Conv3dBpFilterTiling,
    ConvDtype,
    ConvFormat,
    ConvType,
    GetBlockIdx,
    GetBlockNum,
    KernelRun,
    TPosition,
    launch,
)
from ops.common.definition import weight_gradient

C0 = 16
GROUPS = 2
N, CIN, COUT = 2, 32, 96  # 16 and 48 channels per group: no group is padded
DI, HI, WI = 4, 20, 24
KD, KH, KW = 3, 3, 3
STRIDE, DILATION = (1, 2, 1), (1, 1, 1)
PAD = (1, 1, 1, 1, 1, 1)  # front, back, up, down, left, right
DO, HO, WO = 4, 10, 24

inputType = ConvType(TPosition.GM, ConvFormat.NDC1HWC0, np.float16)
weightSizeType = ConvType(TPosition.GM, ConvFormat.ND, np.int32)
gradOutputType = ConvType(TPosition.GM, ConvFormat.NDC1HWC0, np.float16)
gradWeightType = ConvType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, np.float32)


def host_tiling() -> Conv3DBackpropFilterTilingData:
    """Tile one group, as the class does on the host."""
    tiling = Conv3dBpFilterTiling(current_product())
    tiling.SetWeightType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, ConvDtype.FLOAT32)
    tiling.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    tiling.SetGradOutputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    tiling.SetWeightShape(COUT // GROUPS, CIN // GROUPS, KD, KH, KW)
    tiling.SetInputShape(N, CIN // GROUPS, DI, HI, WI)
    tiling.SetGradOutputShape(N, COUT // GROUPS, DO, HO, WO)
    tiling.SetPadding(*PAD)
    tiling.SetStride(*STRIDE)
    tiling.SetDilation(*DILATION)
    ret, data = tiling.GetTiling()
    if ret != 0 or data is None:
        raise SystemExit(f"GetTiling: {tiling.errorMessage}")
    # Four rows of K for each core: the tiling is for one core, and spreading its blocks is the caller's business.
    data.basicBlockTiling.singleCoreK = 4 * WO
    data.dwTiling.singleCoreHo = 4
    return data


@dataclass(frozen=True)
class Block:
    """One piece of work: group, depth tap, batch and output depth, and the block of K, M and N."""

    group: int
    kd: int
    n: int
    do: int
    k: int
    m: int
    n_block: int


def blocks_of_this_core(tilingData: Conv3DBackpropFilterTilingData) -> list[Block]:
    """Return the contiguous share of this core; the first cores get one block more where they do not divide."""
    t, b = tilingData.dwTiling, tilingData.basicBlockTiling
    extents = (t.cout1G * C0, t.cin1G * C0 * t.hk * t.wk, t.ho * t.wo)
    mCnt, nCnt, kCnt = (
        -(-extent // single)
        for extent, single in zip(extents, (b.singleCoreM, b.singleCoreN, b.singleCoreK), strict=True)
    )
    total = GROUPS * t.dk * t.batch * t.dout * kCnt * mCnt * nCnt
    share, rest = divmod(total, GetBlockNum())
    first = GetBlockIdx() * share + min(GetBlockIdx(), rest)
    mine = []
    for index in range(first, first + share + (GetBlockIdx() < rest)):
        group, kd, n, do, k, m, n_block = np.unravel_index(index, (GROUPS, t.dk, t.batch, t.dout, kCnt, mCnt, nCnt))
        mine.append(Block(int(group), int(kd), int(n), int(do), int(k), int(m), int(n_block)))
    return mine


def conv3d_backprop_filter(
    inputGm_: np.ndarray,
    gradOutputGm_: np.ndarray,
    gradWeightGm_: np.ndarray,
    tilingData: Conv3DBackpropFilterTilingData,
) -> None:
    """Do what one core does: the kernel."""
    t, b = tilingData.dwTiling, tilingData.basicBlockTiling
    hwK, hwO, hwI = t.hk * t.wk, t.ho * t.wo, t.hi * t.wi
    Cg, Ci = t.cout1G * C0, t.cin1G * C0  # channels of a group
    gradWeight_ = Conv3DBackpropFilter(inputType, weightSizeType, gradOutputType, gradWeightType)
    gradWeight_.Init(tilingData.dwTiling)
    for block in blocks_of_this_core(tilingData):
        di = block.do * t.strideD - t.padFront + block.kd * t.dilationD
        if not 0 <= di < t.di:
            continue  # the whole plane lies in the padding
        hoStartIdx_ = block.k * b.singleCoreK // t.wo
        hi = max(0, hoStartIdx_ * t.strideH - t.padUp)
        offsetA_ = ((block.n * t.dout + block.do) * COUT + block.group * Cg + block.m * b.singleCoreM) * hwO
        offsetA_ += block.k * b.singleCoreK * C0
        offsetB_ = ((block.n * t.di + di) * CIN + block.group * Ci + block.n_block * b.singleCoreN // hwK) * hwI
        offsetB_ += hi * t.wi * C0
        offsetC_ = (block.group * t.dk + block.kd) * Ci * hwK * Cg
        offsetC_ += block.n_block * b.singleCoreN * Cg + block.m * b.singleCoreM * C0
        singleShapeM = min(b.singleCoreM, Cg - block.m * b.singleCoreM)
        singleShapeN = min(b.singleCoreN, Ci * hwK - block.n_block * b.singleCoreN)
        singleShapeK = min(b.singleCoreK, hwO - block.k * b.singleCoreK)

        gradWeight_.SetGradOutput(gradOutputGm_[offsetA_:])
        gradWeight_.SetInput(inputGm_[offsetB_:])
        gradWeight_.SetSingleShape(singleShapeM, singleShapeN, singleShapeK)
        gradWeight_.SetStartPosition(hoStartIdx_)
        while gradWeight_.Iterate():
            gradWeight_.GetTensorC(gradWeightGm_[offsetC_:])  # atomic add
        gradWeight_.ctx.isFirstIter_ = True
    gradWeight_.End()


def run(blockDim: int, x: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, KernelRun]:
    """Bring the tensors into the storage order of the device, launch the kernel, and bring dW back."""
    x_layout = ActivationLayout(n=N, c=CIN, d=DI, h=HI, w=WI, c0=C0)
    dy_layout = ActivationLayout(n=N, c=COUT, d=DO, h=HO, w=WO, c0=C0)
    dw_layout = WeightLayout(cout=COUT, cin_per_group=CIN // GROUPS, groups=GROUPS, kd=KD, kh=KH, kw=KW, c0=C0)
    inputGm = blocked_from_activation(x, x_layout).reshape(-1).view(np.float16)
    gradOutputGm = blocked_from_activation(dy, dy_layout).reshape(-1).view(np.float16)
    gradWeightGm = np.zeros(dw_layout.storage_elems, np.float32)  # the cores add to it
    kernel_run = launch(conv3d_backprop_filter, blockDim, inputGm, gradOutputGm, gradWeightGm, host_tiling())
    return weight_from_fractal(gradWeightGm, dw_layout), kernel_run


def main() -> None:
    """Compute a weight gradient and compare it with float64."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cores", type=int, default=current_product().cube_core_count)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, CIN, DI, HI, WI)).astype(np.float16)
    dy = rng.standard_normal((N, COUT, DO, HO, WO)).astype(np.float16)
    gradient, _ = run(arguments.cores, x, dy)
    want = weight_gradient(x, dy, (COUT, CIN // GROUPS, KD, KH, KW), STRIDE, PAD, DILATION, GROUPS)
    error = float(np.abs(gradient.reshape(want.shape) - want).max() / np.abs(want).max())
    print(
        f"dW {want.shape} on {arguments.cores} cores of {current_product().name}: "
        f"largest error {error:.1e} of the largest element"
    )
    # float32 sums of exact products: half an ulp for each of the additions
    if error > N * DO * HO * WO * 2.0**-24:
        raise SystemExit("the gradient is wrong")


if __name__ == "__main__":
    main()
