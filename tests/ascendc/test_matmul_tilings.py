"""Tilings of the Matmul class: that host code and Python make the same, and what they cut."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.errors import ShapeError
from npu_sim.products import get_product
from tests.ascendc.compiler import host_program, require_compiler

require_compiler()
CHIP = get_product("910b")

HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
using namespace matmul_tiling;
int main() {
  int m, n, k, cores, item, bias, order, turned, base[3], single[3];  // item: bits of an element
  while (scanf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d", &m, &n, &k, &cores, &item, &bias, &order, &turned, base,
               base + 1, base + 2, single, single + 1, single + 2) == 14) {
    MultiCoreMatmulTiling tiling;
    tiling.SetDim(cores);
    DataType type = item == 32 ? DataType::DT_FLOAT : item == 16 ? DataType::DT_FLOAT16
                    : item == 8 ? DataType::DT_INT8 : DataType::DT_INT4;
    tiling.SetAType(TPosition::GM, CubeFormat::ND, type, turned & 1);
    tiling.SetBType(TPosition::GM, CubeFormat::ND, type, turned & 2);
    tiling.EnableMultiCoreSplitK(turned & 4);
    tiling.SetShape(m, n, k);
    tiling.SetOrgShape(m, n, k);
    tiling.SetBias(bias);
    tiling.SetFixSplit(base[0], base[1], base[2]);
    tiling.SetSingleShape(single[0], single[1], single[2]);
    if (order >= 0) tiling.SetTraverse(order ? MatrixTraverse::FIRSTN : MatrixTraverse::FIRSTM);
    optiling::TCubeTiling t;
    int32_t words[50] = {int32_t(tiling.GetTiling(t))};
    if (!words[0]) t.SaveToBuffer(words, sizeof words);
    SysTilingTempBufSize one, all;
    if (MatmulGetTmpBufSize(t, one) || MultiCoreMatmulGetTmpBufSize(t, all)) return 1;
    if (!words[0] && (one.l1Size != t.get_shareL1Size() || all.l1Size != one.l1Size || one.ubSize || all.ubSize ||
                      one.l0cSize < 4 * t.baseM * t.baseN || all.l0cSize != one.l0cSize)) return 2;
    for (int word : words) printf("%d ", word);
    printf("\\n");
  }
}
"""


def test_host_code_and_python_make_the_same_tilings(tmp_path):
    program = host_program(tmp_path, HOST)
    rng, cases, wanted = np.random.default_rng(9), [], []
    for _ in range(400):
        m, n, k = (int(2 ** rng.uniform(0, 13)) for _ in range(3))
        cores, item = int(rng.integers(1, 49)), int(rng.choice([4, 8, 16, 32]))
        bias, order, turned = (int(rng.integers(*limits)) for limits in ((0, 2), (-1, 2), (0, 8)))
        base = [int(rng.choice([-1, 16, 64, 128, 256])) for _ in range(3)]
        single = [-1] * 3 if rng.random() < 0.5 else [min(m, 200), min(n, 300), k]
        cases.append(" ".join(map(str, (m, n, k, cores, item, bias, order, turned, *base, *single))))
        try:
            made = ascendc.matmul_tiling(
                m, n, k, cores=cores, item_bytes=item / 8, bias=bool(bias), base=tuple(base), single=tuple(single),
                n_first=None if order < 0 else bool(order), a_turned=bool(turned & 1), b_turned=bool(turned & 2),
                cuts_k=bool(turned & 4), product=CHIP,
            )  # fmt: skip
            wanted.append(list((ctypes.c_int32 * 50).from_buffer_copy(made)))
        except ShapeError:
            wanted.append([-1] + [0] * 49)
    said = subprocess.run([program], input="\n".join(cases), capture_output=True, text=True, check=True).stdout
    assert [list(map(int, line.split())) for line in said.splitlines()] == wanted
    assert 0 < sum(one[0] == -1 for one in wanted) < 250


CALLS = """
#include <cstdio>
#include "tiling/tiling_api.h"
using namespace matmul_tiling;
template <class T> void tell(T& tiling) {
  ::TCubeTiling t{};
  int result = tiling.GetTiling(t);
  printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\\n", result, t.usedCoreNum,
         t.singleCoreM, t.singleCoreN, t.singleCoreK, t.baseM, t.baseN, t.baseK, t.stepM, t.stepN, t.stepKa, t.depthA1,
         t.depthB1, t.iterateOrder, t.BatchNum, t.ALayoutInfoB, t.BLayoutInfoS, t.CLayoutInfoS2, t.CLayoutInfoG);
}
int main() {
  int how, m, n, k;
  while (scanf("%d %d %d %d", &how, &m, &n, &k) == 4) {
    MultiCoreMatmulTiling many;
    BatchMatmulTiling batches;
    many.SetDim(8);
    many.SetOrgShape(m, n, k);  // without SetShape the whole
    batches.SetShape(m, n, k);
    if (how == 1) many.SetMatmulConfigParams(MatmulConfigParams(1, false, ScheduleType::N_BUFFER_33));
    if (how == 2) many.SetMatmulConfigParams(1, false, ScheduleType::OUTER_PRODUCT, MatrixTraverse::FIRSTN);
    if (how == 3) many.SetMatmulConfigParams(0, false, ScheduleType::OUTER_PRODUCT, MatrixTraverse::FIRSTM);
    if (how == 4) many.SetSparse(true);
    if (how == 5) many.SetAType(TPosition::GM, CubeFormat::ND, DataType::DT_INT4, true);
    if (how == 6) many.SetDequantType(DequantType::TENSOR), many.SetBufferSpace(64 * 1024);
    if (how == 7) batches.SetBatchInfoForNormal(3, 6, m, n, k), batches.SetBatchNum(6);
    if (how == 8) batches.SetCLayout(1, m, 2, 5, n);
    if (how >= 7) tell(batches);
    else tell(many);
  }
}
"""


def test_calls_that_change_a_tiling(tmp_path):
    program = host_program(tmp_path, CALLS)
    cases = [(0, 256, 512, 192), (1, 256, 512, 192), (1, 256, 512, 256), (2, 512, 512, 64), (2, 512, 512, 128),
             (3, 512, 512, 128), (4, 64, 64, 64), (5, 64, 64, 64), (6, 512, 512, 512), (7, 32, 48, 64),
             (8, 32, 48, 64)]  # fmt: skip
    text = "\n".join(" ".join(map(str, case)) for case in cases)
    said = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout
    plain, nine, deep, columns, long, rows, sparse, nibbles, scaled, normal, laid = (
        list(map(int, line.split())) for line in said.splitlines()
    )
    assert plain[0] == 0
    assert plain[1] == 8
    # A of up to three blocks by three stays in L1, and two turns of B
    assert nine[:5] == [0, 2, 256, 256, 192]
    assert nine[5:13] == [128, 256, 64, 2, 1, 3, 6, 6]
    assert deep[0] == long[0] == sparse[0] == nibbles[0] == -1
    # two blocks of the extent that is not the first one's, where L0C holds two
    assert columns[8:10] == [2, 1]
    assert columns[13] == 1
    assert rows[8:10] == [1, 2]
    assert rows[6] * rows[5] * 8 <= 128 * 1024
    assert scaled[0] == 0
    assert scaled[11] * scaled[5] * scaled[7] * 2 + scaled[12] * scaled[6] * scaled[7] * 2 + scaled[6] * 8 <= 64 * 1024
    assert normal[14:] == [6, 3, 48, 48, 1]
    assert laid[16:] == [0, 48, 5]


MADE = (
    ((160, 160, 256, 40, 1), (40, 16), (48, 16, 256)),
    ((756, 2938, 9, 48, 0), (192, 246), (128, 256, 16)),
    ((1024, 1024, 160, 24, 1), (171, 256), (128, 256, 64)),
    ((2048, 128, 96, 2, 0), (2048, 64), (256, 64, 64)),
    ((640, 512, 32, 16, 0), (80, 256), (80, 256, 32)),
    ((4096, 256, 160, 20, 0), (205, 256), (128, 256, 64)),
    ((72, 826, 667, 20, 0), (16, 416), (16, 256, 64)),
    ((175, 285, 240, 20, 0), (16, 288), (16, 256, 64)),
    ((64, 2048, 128, 48, 0), (16, 256), (16, 256, 64)),
    ((16, 3543, 682, 8, 1), (16, 444), (16, 256, 64)),
    ((256, 2048, 1536, 40, 1), (64, 256), (64, 256, 64)),
    ((640, 4096, 96, 2, 0), (640, 2048), (128, 256, 64)),
    ((24, 3092, 2042, 4, 0), (32, 776), (32, 784, 16)),
    ((303, 504, 3942, 24, 0), (31, 256), (32, 256, 64)),
    ((4635, 158, 247, 48, 0), (1160, 16), (1024, 16, 16)),
    ((4096, 160, 64, 20, 0), (2048, 16), (1024, 16, 16)),
    ((64, 3072, 160, 4, 1), (64, 768), (64, 256, 64)),
    ((114, 439, 136, 8, 1), (16, 448), (16, 256, 64)),
    ((2048, 2048, 160, 8, 1), (512, 1024), (128, 256, 64)),
    ((4096, 2048, 3072, 20, 1), (820, 512), (128, 256, 64)),
    ((941, 69, 14, 2, 1), (944, 40), (512, 48, 16)),
    ((36, 2953, 196, 1, 1), (36, 2953), (48, 256, 64)),
    ((32, 3072, 96, 1, 1), (32, 3072), (32, 256, 64)),
    ((2323, 19, 49, 1, 1), (2323, 19), (1024, 32, 16)),
    ((640, 64, 64, 1, 1), (640, 64), (256, 64, 64)),
    ((26, 85, 564, 1, 0), (26, 85), (32, 96, 144)),
    ((1180, 494, 38, 1, 1), (1180, 494), (128, 256, 48)),
    ((88, 11, 226, 1, 1), (88, 11), (96, 16, 128)),
    ((3608, 18, 1207, 1, 0), (3608, 18), (1024, 32, 16)),
)
"""(M, N, K, cores, bias) of half, then rows and columns of a core and the base block: of the vendor's host library."""


@pytest.mark.parametrize(("shape", "single", "base"), MADE, ids=str)
def test_cuts_and_base_blocks_are_those_that_public_kernels_are_written_for(shape, single, base):
    m, n, k, cores, bias = shape
    made = ascendc.matmul_tiling(m, n, k, cores=cores, bias=bool(bias), product=CHIP)
    assert (made.singleCoreM, made.singleCoreN) == single
    assert (made.baseM, made.baseN, made.baseK) == base


@pytest.mark.parametrize("seed", range(4))
def test_cores_together_cover_a_product_whose_k_is_cut(seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        m, n, k = (int(2 ** rng.uniform(0, 12)) for _ in range(3))
        cores = int(rng.integers(1, 41))
        made = ascendc.matmul_tiling(m, n, k, cores=cores, cuts_k=True, product=CHIP)
        assert made.usedCoreNum <= cores
        assert made.singleCoreK % 16 == 0 or cores == 1
        assert -(-m // made.singleCoreM) * -(-n // made.singleCoreN) * -(-k // made.singleCoreK) == made.usedCoreNum
    made = ascendc.matmul_tiling(512, 1024, 512, cores=24, cuts_k=True, product=CHIP)
    assert (made.usedCoreNum, made.singleCoreK) == (24, 176)


def test_a_tiling_uses_the_cores_it_is_given():
    tiling = ascendc.matmul_tiling(4096, 4096, 1024, cores=48)
    assert 40 <= tiling.usedCoreNum <= 48
    with pytest.raises(ShapeError, match="base blocks must fit"):
        ascendc.matmul_tiling(512, 512, 512, base=(256, 256, -1))
    with pytest.raises(ShapeError, match="m must be at least 1"):
        ascendc.matmul_tiling(0, 1, 1)
