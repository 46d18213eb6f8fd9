"""SoftmaxFlashV2 with sums and maxima one behind the other: the bits of the form in blocks, and values in float64."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import NpuSimError
from tests.ascendc.compiler import PARTS, host_numbers, require_compiler

require_compiler()

KERNEL = (
    PARTS
    + """
constexpr SoftmaxConfig VALUES = {false, 0, 0, SoftmaxMode::SOFTMAX_OUTPUT_WITHOUT_BRC};
constexpr SoftmaxConfig BLOCKS = {false};
template <class T, class U, bool updates, bool in_blocks> __global__ __aicore__ void flash(
    GM_ADDR x, GM_ADDR sums, GM_ADDR maxes, GM_ADDR own, GM_ADDR scales, GM_ADDR y, uint32_t m, uint32_t pitch,
    uint32_t k, uint32_t room, bool tells_own) {
#if __NPU_ARCH__ != 2201
  SoftmaxFlashV2<T, updates, false, false, false, VALUES>(LocalTensor<T>(), LocalTensor<U>(), LocalTensor<U>(),
      LocalTensor<T>(), LocalTensor<T>(), LocalTensor<U>(), LocalTensor<U>(), SoftMaxTiling(), {m, pitch, m, k});
  return;
#endif
  TPipe pipe;
  uint32_t sum_of = in_blocks ? m * 32 / sizeof(U) : m, scale_of = in_blocks ? m * 32 / sizeof(T) : m;
  Part<T> in(pipe, x, m * pitch), scale(pipe, scales, scale_of, !updates);
  Part<U> sum(pipe, sums, sum_of, updates), most(pipe, maxes, sum_of, updates);
  Part<U> mine(pipe, own, m, !updates || !tells_own);
  with_room(pipe, room, [&](auto... buffer) {
    SoftMaxTiling tiling{};
    SoftMaxShapeInfo info{m, pitch, m, k};
    if constexpr (std::is_same_v<T, U> && !in_blocks) {
      if (tells_own) {
        SoftmaxFlashV2<T, updates, false, false, false, VALUES>(in.local, mine.local, sum.local, most.local, in.local,
            scale.local, sum.local, most.local, buffer..., tiling, info);
        return;
      }
    }
    if constexpr (in_blocks)
      SoftmaxFlashV2<T, updates, true, false, false, BLOCKS>(in.local, sum.local, most.local, in.local, scale.local,
                                                             sum.local, most.local, buffer..., tiling, info);
    else
      SoftmaxFlashV2<T, updates, true, false, false, VALUES>(in.local, sum.local, most.local, in.local, scale.local,
                                                             sum.local, most.local, buffer..., tiling, info);
  });
  in.global.SetGlobalBuffer((__gm__ T*)y);
  in.leave(); scale.leave(); sum.leave(); most.leave(); mine.leave();
}
"""
)
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main(int, char** given) {
  AscendC::TensorShape shape{{atoi(given[1]), atoi(given[2])}};
  printf("%u %u %u", AscendC::GetSoftMaxFlashV2MinTmpSize(shape, 4, 4, true, false, true),
         AscendC::GetSoftMaxFlashV2MaxTmpSize(shape, 4, 4, true, false, true),
         AscendC::GetSoftMaxFlashV2MinTmpSize(shape, 4, 4, true));
}
"""
TYPES = [("float", "float"), ("half", "half"), ("half", "float")]
SHAPES = [(5, 208, 200), (33, 64, 64), (17, 320, 300), (1, 16, 1)]
KINDS = {"float": np.float32, "half": np.float16}
BOUND = {np.float32: 2.0**-21, np.float16: 2.0**-10}


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("flash.cpp", KERNEL)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return host_numbers(tmp_path_factory.mktemp("host"), HOST)


def call(source, types, shape, updates, in_blocks, room, tells_own=False, product=None):
    """Return operands, and result, sums, maxima, own maxima and scales of a call, one value a row."""
    (m, pitch, k), (T, U) = shape, (KINDS[name] for name in types)
    rng = np.random.default_rng(sum(shape))
    x = np.zeros((m, pitch), T)
    x[:, :k] = rng.standard_normal((m, k)) * 3
    sums, maxes = rng.uniform(1, 9, (m, 1)).astype(U), rng.uniform(-2, 5, (m, 1)).astype(U)
    given, y = (x.astype(np.float64)[:, :k], sums.astype(np.float64), maxes.astype(np.float64)), np.zeros_like(x)
    own, scales = np.full(m, 3, U), np.full((m, 1), 3, T)
    if in_blocks:
        sums, maxes = (np.repeat(part, 32 // part.itemsize, 1) for part in (sums, maxes))
        scales = np.repeat(scales, 32 // scales.itemsize, 1)
    name = f"flash<{types[0]}, {types[1]}, {str(updates).lower()}, {str(in_blocks).lower()}>"
    run = ascendc.compile(source, name, kind="vector")(
        x, sums, maxes, own, scales, y, *(np.uint32(n) for n in (m, pitch, k, room)), np.bool_(tells_own),
        product=product)  # fmt: skip
    assert run.findings == ()
    return given, (y[:, :k], sums[:, 0], maxes[:, 0], own, scales[:, 0])


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_in_rows_are_those_in_blocks(source, host, types, shape, updates):
    least, most, in_blocks = host(*shape[:2])
    assert least == most > in_blocks
    (x, sums, maxes), found = call(source, types, shape, updates, False, least)
    for room in (0, in_blocks):
        _, other = call(source, types, shape, updates, True, room)
        for mine, theirs in zip(found, other, strict=True):
            assert np.array_equal(mine, theirs)
    best = x.max(1, keepdims=True)
    scale = np.zeros_like(best)
    if updates:
        best = np.maximum(best, maxes)
        scale = np.exp(maxes - best)
    powers = np.exp(x - best)
    T, U = (KINDS[name] for name in types)
    np.testing.assert_allclose(found[0], powers, rtol=BOUND[T], atol=2.0**-24)
    np.testing.assert_allclose(found[1], (powers.sum(1, keepdims=True) + scale * sums)[:, 0], rtol=BOUND[U])
    assert np.array_equal(found[2], best[:, 0])
    np.testing.assert_allclose(found[4], scale[:, 0] if updates else 3, rtol=4 * BOUND[T], atol=2.0**-25)


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("types", TYPES[:2])
@pytest.mark.parametrize("shape", SHAPES)
def test_maxima_of_the_part_alone(source, types, shape, updates):
    (x, _, _), found = call(source, types, shape, updates, False, 0, tells_own=True)
    _, other = call(source, types, shape, updates, False, 0)
    assert np.array_equal(found[3], x.max(1) if updates else np.full(len(x), 3))
    for i in (0, 1, 2, 4):
        assert np.array_equal(found[i], other[i])


def test_what_is_refused(source, tmp_path):
    with pytest.raises(NpuSimError, match=r"SoftmaxFlashV2 must be given a temporary buffer of at least 1856 bytes"):
        call(source, TYPES[0], (4, 64, 64), True, False, 1824)
    for product in ("310p", "910"):
        with pytest.raises(NpuSimError, match="SoftmaxFlashV2 in SOFTMAX_OUTPUT_WITHOUT_BRC must run on A2 or A3"):
            call(source, TYPES[0], (4, 64, 64), True, False, 0, product=product)
    path = tmp_path / "flash.cpp"
    path.write_text(KERNEL.replace("VALUES>(in.local, mine", "BLOCKS>(in.local, mine"))
    with pytest.raises(CompilationError, match="with outReduceMax must be of ND and in SOFTMAX_OUTPUT_WITHOUT_BRC"):
        call(path, TYPES[0], (4, 64, 64), True, False, 0)
