"""Shape, Stride, Coord and Layout, against the strides of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void places(GM_ADDR x, int32_t rows, int64_t columns) {
  GlobalTensor<int64_t> X; X.SetGlobalBuffer((__gm__ int64_t*)x);
  Shape<int, int64_t> shape = MakeShape(rows, columns);
  auto layout = MakeLayout(shape, MakeStride(columns, 1));
  Layout<Shape<int, int, int>, Stride<int, int, int>> deep(MakeShape(2, 3, 4), MakeStride(12, 4, 1));
  static_assert(is_layout_v<decltype(layout)> && !is_layout<int>::value);
  uint32_t at = 0;
  for (int i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      Coord<int64_t, int64_t> place = MakeCoord(int64_t(i), j);
      X.SetValue(at++, layout(place) * (Crd2Idx(place, layout) == layout(place)));
    }
  X.SetValue(at++, deep(MakeCoord(1, 2, 3)));
  auto nested = MakeLayout(MakeShape(MakeShape(4, 2), 3), MakeStride(MakeStride(1, 100), 10));
  X.SetValue(at++, nested(MakeCoord(MakeCoord(3, 1), 2)));
  X.SetValue(at++, Std::get<1>(layout.GetShape()) + Std::get<0>(deep.layout().GetStride()));
  WRONG
}
"""


def _places(tmp_path, wrong=""):
    path = tmp_path / "places.cpp"
    path.write_text(KERNEL.replace("WRONG", wrong))
    x = np.zeros(3 * 7 + 3, np.int64)
    ascendc.compile(path, kind="vector")(x, np.int32(3), np.int64(7))
    return x.tolist()


def test_an_element_is_where_the_strides_say(tmp_path):
    wanted = np.arange(21).reshape(3, 7)
    steps = [one // wanted.itemsize for one in wanted.strides]
    assert _places(tmp_path) == [
        *[i * steps[0] + j * steps[1] for i, j in np.ndindex(3, 7)],
        np.ravel_multi_index((1, 2, 3), (2, 3, 4)),
        3 * 1 + 1 * 100 + 2 * 10,
        7 + 12,
    ]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("layout(MakeCoord(1, 2, 3));", "a coordinate must have as many parts as its layout"),
        ("layout(5);", "a coordinate must have the structure of the strides of its layout"),
    ],
)
def test_what_is_no_coordinate_does_not_compile(tmp_path, wrong, words):
    with pytest.raises(CompilationError, match=words):
        _places(tmp_path, wrong)
