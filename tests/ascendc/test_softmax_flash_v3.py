"""SoftmaxFlashV3 against its documented steps, each one NumPy operation of float32, and the formula in float64."""

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
template <bool updates> __global__ __aicore__ void flash(
    GM_ADDR x, GM_ADDR means, GM_ADDR sums, GM_ADDR maxes, GM_ADDR y, GM_ADDR scales, GM_ADDR new_means,
    GM_ADDR new_sums, GM_ADDR new_maxes, uint32_t m, uint32_t k, uint32_t own_k, uint32_t loops, uint32_t split,
    float alpha, uint32_t room) {
#if __NPU_ARCH__ != 2201
  SoftmaxFlashV3<half, float, updates>(LocalTensor<half>(), {}, {}, {}, {}, {}, {}, {}, {}, SoftMaxTiling(), {});
  return;
#endif
  TPipe pipe;
  Part<half> in(pipe, x, m * k), scale(pipe, scales, m * 16, !updates);  // what is neither read nor written stays
  Part<float> mean(pipe, means, m * 8, updates), sum(pipe, sums, m * 8, updates), most(pipe, maxes, m * 8, updates);
  SoftMaxParams p{m, k, m, own_k, loops, split, alpha};
  with_room(pipe, room, [&](auto... buffer) {
    SoftMaxTiling tiling;
    if (room)  // in place, as it may be
      SoftmaxFlashV3<half, float, updates>(in.local, mean.local, sum.local, most.local, in.local, scale.local,
                                           mean.local, sum.local, most.local, buffer..., tiling, p);
    else
      SoftmaxFlashV3<half, float, updates, false, false, false, SOFTMAX_DEFAULT_CFG>(
          in.local, mean.local, sum.local, most.local, in.local, scale.local, mean.local, sum.local, most.local,
          buffer..., tiling, p);
  });
  in.global.SetGlobalBuffer((__gm__ half*)y); mean.global.SetGlobalBuffer((__gm__ float*)new_means);
  sum.global.SetGlobalBuffer((__gm__ float*)new_sums); most.global.SetGlobalBuffer((__gm__ float*)new_maxes);
  in.leave(); scale.leave(); mean.leave(); sum.leave(); most.leave();
}
"""
)
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main(int, char** given) {
  AscendC::TensorShape shape{{atoi(given[1]), atoi(given[2])}};
  uint32_t most, least;
  AscendC::GetSoftMaxFlashV3MaxMinTmpSize(shape, 2, 4, most, least, true);
  SoftMaxTiling tiling;
  AscendC::SoftMaxFlashV3TilingFunc(shape, 2, 4, least, tiling, true);
  printf("%u %u %u %u", most, least, tiling.srcM, tiling.srcK);
}
"""
SHAPES = [(8, 512), (16, 576), (8, 1024), (8, 1984)]
ALPHAS = [0.9375, 0.96889, 0.984497]


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("flash.cpp", KERNEL)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return host_numbers(tmp_path_factory.mktemp("host"), HOST)


def tree(values):
    """Return the sum of the last axis, neighbours first, in the type of the values."""
    while values.shape[-1] > 1:
        values = values[..., ::2] + values[..., 1::2]
    return values[..., 0]


def by_steps(x, mean, total, best, loops, alpha, updates, kind):
    """Return result, mean, sum, maximum and scale by the documented steps, each rounded to ``kind``.

    ``kind`` is float32 for the bits, float64 for the values.
    """

    def exp(values):
        return np.exp(values.astype(np.float64)).astype(kind)

    width, rows = x.shape[1], x.astype(kind)
    alpha = np.float32(alpha).astype(kind)
    scalar = alpha / (kind(1) - alpha)
    sums = tree(rows[:, :512].reshape(-1, 64, 8))
    for at in range(512, width, 64):
        sums = rows[:, at : at + 64] + sums
    locals_ = tree(sums.reshape(-1, 8, 8)) * (kind(1) / kind(width // 8))
    whole = (tree(locals_) * kind(0.125))[:, None]
    rows = rows - np.repeat((whole - locals_) * scalar, width // 8, 1)
    new_mean = (mean * (kind(loops) - kind(1)) + whole) * (kind(1) / kind(loops)) if updates else whole
    shift = (whole - new_mean) * scalar
    new_best, scale = rows.max(1, keepdims=True) + shift, None
    if updates:
        before = (mean - new_mean) * scalar
        new_best = np.maximum(new_best, best + before)
        scale = exp((best - new_best) + before)
    powers = exp(rows - (new_best - shift))
    lanes = np.zeros((len(x), 64), kind)
    for at in range(0, width, 64):
        lanes = lanes + powers[:, at : at + 64]
    new_total = tree(lanes)[:, None]
    if updates:
        new_total = scale * total + new_total
    return powers, new_mean, new_total, new_best, scale


class Call:
    def __init__(self, source, shape, updates, seed=3, product=None):
        rng = np.random.default_rng(seed)
        (m, _), self.updates, self.product = shape, updates, product
        self.x = (rng.standard_normal(shape) * 0.25 + rng.uniform(-0.25, 0.25, (m, 1))).astype(np.float16)
        self.state = [rng.uniform(*ends, (m, 1)).astype(np.float32) for ends in ((-0.25, 0.25), (1, 90), (-9, 40))]
        self.y, self.scales = np.zeros_like(self.x), np.full((m, 16), 7, np.float16)
        self.new = [np.zeros((m, 8), np.float32) for _ in range(3)]
        self.kernel = ascendc.compile(source, f"flash<{str(updates).lower()}>", kind="vector")

    def run(self, room, loops=2, alpha=0.9375, own=None, split=8):
        m, k = self.x.shape
        sizes = [np.uint32(n) for n in (m, k, own or k, loops, split)]
        state = [np.repeat(part, 8, 1) for part in self.state]
        run = self.kernel(self.x, *state, self.y, self.scales, *self.new, *sizes, np.float32(alpha), np.uint32(room),
                          product=self.product)  # fmt: skip
        assert run.findings == ()
        return self


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_documented_steps(source, host, shape, alpha, updates):
    most, least, m, k = host(*shape)
    assert (most, m, k) == (least, *shape)
    for seed, loops, room in ((3, 1, least), (4, 2, 0), (5, 7, least)):
        call = Call(source, shape, updates, seed).run(room, loops, alpha)
        powers, *new, scale = by_steps(call.x, *call.state, loops, alpha, updates, np.float32)
        assert np.array_equal(call.y, powers.astype(np.float16))
        for found, wanted in zip(call.new, new, strict=True):
            assert np.array_equal(found, np.repeat(wanted, 8, 1))
        scale = np.float16(7) if scale is None else scale.astype(np.float16)
        assert np.array_equal(call.scales, np.broadcast_to(scale, (m, 16)))


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_formula(source, shape, updates):
    call = Call(source, shape, updates).run(0)
    wanted = by_steps(call.x, *(part.astype(np.float64) for part in call.state), 2, 0.9375, updates, np.float64)
    np.testing.assert_allclose(call.y, wanted[0], rtol=2.0**-10, atol=2.0**-24)
    for found, exact in zip(call.new, wanted[1:4], strict=True):
        np.testing.assert_allclose(found, np.repeat(exact, 8, 1), rtol=2.0**-16, atol=2.0**-20)


def test_parts_make_a_softmax_of_what_was_moved_before(source):
    """A row from which alpha times the mean of each eighth was taken before: the parts add up to its own softmax."""
    alpha, parts = 0.9375, [Call(source, (8, 512), bool(i), seed=9 + i) for i in range(3)]
    eighths = np.concatenate([part.x.reshape(8, 8, 64) for part in parts], 1).astype(np.float64)
    row = (eighths + alpha / (1 - alpha) * eighths.mean(2, keepdims=True)).reshape(8, -1)
    state, results = [np.zeros((8, 1), np.float32)] * 3, []
    for i, part in enumerate(parts):
        part.state = state
        part.run(0, loops=i + 1, alpha=alpha)
        state = [kept[:, :1].copy() for kept in part.new]
        if i:
            results = [result * part.scales[:, :1].astype(np.float64) for result in results]
        results.append(part.y.astype(np.float64))
    powers = np.exp(row - row.max(1, keepdims=True))
    np.testing.assert_allclose(state[0][:, 0], eighths.mean((1, 2)), rtol=1e-4, atol=1e-6)
    found, wanted = np.concatenate(results, 1) / state[1], powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=3 * 2.0**-10, atol=2.0**-24)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((8, 448), {}, r"of 512 or more columns, a multiple of 64, .*, not of 8 x 448"),
        ((8, 528), {}, "multiple of 64"),
        ((4, 512), {}, "a multiple of 8 rows"),
        ((8, 512), {"own": 500}, "not of 8 x 500 of 8 x 512"),
        ((8, 512), {"split": 4}, "splitMeanCnt must be 8, not 4"),
        ((8, 512), {"loops": 0}, "loopCnt must be at least 1"),
        ((8, 512), {"alpha": 1.0}, r"alpha must be in \[0, 1\), not 1"),
    ],
)
def test_what_is_not_documented_is_refused(source, shape, options, message):
    with pytest.raises(NpuSimError, match=message):
        Call(source, shape, True).run(0, **options)


def test_a_small_buffer_and_other_products_are_refused(source):
    with pytest.raises(NpuSimError, match="SoftmaxFlashV3 must be given a temporary buffer of at least 2688 bytes"):
        Call(source, (8, 512), True).run(256)
    for product in ("310p", "910"):
        with pytest.raises(NpuSimError, match="SoftmaxFlashV3 must run on A2 or A3"):
            Call(source, (8, 512), True, product=product).run(0)


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("SOFTMAX_DEFAULT_CFG>", "Config>", "SoftmaxFlashV3 must be in SOFTMAX_NORMAL"),
        ("false, SOFTMAX_DEFAULT_CFG>", "true, SOFTMAX_DEFAULT_CFG>", "SoftmaxFlashV3 must be of format ND"),
        ("flash(", "flash_(", None),
    ],
)
def test_configurations_that_are_reserved(tmp_path, was, now, message):
    path = tmp_path / "flash.cpp"
    config = "constexpr SoftmaxConfig Config = {true, 0, 0, SoftmaxMode::SOFTMAX_OUTPUT_WITHOUT_BRC};\n"
    path.write_text(KERNEL.replace("template <bool updates>", config + "template <bool updates>").replace(was, now))
    if message is None:
        assert ascendc.compile(path, "flash_<true>", kind="vector")
        return
    with pytest.raises(CompilationError, match=message):
        Call(path, (8, 512), True).run(0)
