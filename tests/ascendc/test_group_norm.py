"""GroupNorm against its definition in float64, and against its steps, one NumPy operation of float32 each."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import NpuSimError
from tests.ascendc.compiler import PARTS, host_program, require_compiler

require_compiler()

KERNEL = (
    PARTS
    + """
template <class T> __global__ __aicore__ void norm(GM_ADDR x, GM_ADDR gamma, GM_ADDR beta, GM_ADDR y, GM_ADDR means,
                                                   GM_ADDR variances, float epsilon, uint32_t room, GM_ADDR given) {
  GroupNormTiling tiling;
  for (uint32_t i = 0; i < sizeof(tiling) / 4; i++) ((uint32_t*)&tiling)[i] = ((__gm__ uint32_t*)given)[i];
#if __NPU_ARCH__ != 2201
  GroupNorm<T>(LocalTensor<T>(), LocalTensor<T>(), LocalTensor<T>(), LocalTensor<T>(), LocalTensor<T>(),
               LocalTensor<T>(), T(epsilon), tiling);
  return;
#endif
  TPipe pipe;
  uint32_t planes = tiling.n * tiling.c, groups = tiling.n * tiling.g, size = planes * tiling.hwAlignSize;
  TBuf<TPosition::VECCALC> all, more;
  pipe.InitBuffer(all, size * sizeof(T)); pipe.InitBuffer(more, size * sizeof(T));
  LocalTensor<T> in = all.Get<T>(), out = more.Get<T>();
  GlobalTensor<T> X, Y;
  X.SetGlobalBuffer((__gm__ T*)x); Y.SetGlobalBuffer((__gm__ T*)y);
  DataCopyPad(in, X, DataCopyExtParams(planes, tiling.hw * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
  Part<T> scale(pipe, gamma, tiling.c), offset(pipe, beta, tiling.c);
  Part<T> mean(pipe, means, groups, false), variance(pipe, variances, groups, false);
  with_room(pipe, room, [&](auto... buffer) {
    if (room)
      GroupNorm<T>(out, mean.local, variance.local, in, scale.local, offset.local, buffer..., T(epsilon), tiling);
    else
      GroupNorm<T, REUSES>(out, mean.local, variance.local, in, scale.local, offset.local, buffer..., T(epsilon),
                           tiling);
  });
  DataCopyPad(Y, out, DataCopyExtParams(planes, tiling.hw * sizeof(T), 0, 0, 0));
  mean.leave(); variance.leave();
}
"""
)
HOST = """
#include <cstdio>
#include <vector>
#include "tiling/tiling_api.h"
int main(int, char** given) {
  std::vector<int64_t> sizes;
  for (int i = 1; i < 5; i++) sizes.push_back(atoi(given[i]));
  ge::Shape shape(sizes);
  uint32_t most, least, size = atoi(given[6]);
  AscendC::GetGroupNormMaxMinTmpSize(shape, size, false, atoi(given[5]), most, least);
  AscendC::tiling::GroupNormTiling tiling;
  AscendC::GetGroupNormNDTilingInfo(shape, least, size, false, atoi(given[5]), tiling);
  printf("%u %u", most, least);
  for (unsigned i = 0; i < sizeof(tiling) / 4; i++) printf(" %u", ((uint32_t*)&tiling)[i]);
}
"""
KINDS = {"float": np.float32, "half": np.float16}
SHAPES = [((2, 8, 4, 2), 4), ((1, 20, 5, 5), 5), ((3, 6, 9, 16), 1), ((2, 34, 1, 1), 17), ((1, 4, 15, 20), 2)]


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("norm.cpp", KERNEL.replace("REUSES", "sizeof(T) == 4"))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    program = host_program(tmp_path_factory.mktemp("host"), HOST)

    def told(shape, groups, kind):
        given = (*shape, groups, np.dtype(KINDS[kind]).itemsize)
        most, least, *tiling = (int(word) for word in subprocess.check_output([program, *map(str, given)]).split())
        assert most == least
        return least, np.array(tiling, np.uint32)

    return told


def call(source, x, gamma, beta, epsilon, room, tiling, product=None):
    kind = {np.float32: "float", np.float16: "half"}[x.dtype.type]
    y, groups = np.zeros_like(x), int(tiling[0] * tiling[3])
    means, variances = np.zeros(groups, x.dtype), np.zeros(groups, x.dtype)
    run = ascendc.compile(source, f"norm<{kind}>", kind="vector")(
        x, gamma, beta, y, means, variances, np.float32(epsilon), np.uint32(room), tiling, product=product)  # fmt: skip
    assert run.findings == ()
    return y, means, variances


def operands(shape, kind, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * rng.uniform(0.5, 4) + rng.uniform(-3, 3)
    return [a.astype(KINDS[kind]) for a in (x, rng.uniform(-9, 9, shape[1]), rng.uniform(-9, 9, shape[1]))]


def by_steps(x, gamma, beta, groups, epsilon):
    """Return result, means and variances by the steps of a core, in float32."""
    n, c, h, w = x.shape
    rows, of = x.astype(np.float32).reshape(n * groups, c // groups, h * w), np.float32
    part = of(1) / of(c // groups * h * w)

    def mean(values):
        lanes = np.zeros((len(values), 64), np.float32)
        for plane in range(values.shape[1]):
            for at in range(0, h * w, 64):
                more = values[:, plane, at : at + 64]
                lanes[:, : more.shape[1]] = lanes[:, : more.shape[1]] + more
        while lanes.shape[1] > 1:
            lanes = lanes[:, ::2] + lanes[:, 1::2]
        return (lanes * part)[:, :, None]

    middle = mean(rows)
    rows = rows - middle
    variance = mean(rows * rows)
    rows = (rows * (of(1) / np.sqrt(variance + of(x.dtype.type(epsilon))))).reshape(n, c, h * w)
    rows = rows * gamma.astype(of)[:, None] + beta.astype(of)[:, None]
    return rows.reshape(x.shape), middle.reshape(-1), variance.reshape(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
def test_the_definition_and_its_steps(source, host, shape, groups, kind):
    least, tiling = host(shape, groups, kind)
    n, c, h, w = shape
    block = 32 // np.dtype(KINDS[kind]).itemsize
    plane = -(-h * w // block) * block
    assert tiling[:9].tolist() == [
        n, c, h * w, groups, c // groups, plane, c // groups * plane, n * c * plane, n * groups]  # fmt: skip
    assert tiling[28:29].view(np.float32)[0] == np.float32(1 / np.float64(c // groups * h * w))
    for seed, room, epsilon in ((1, least, 0.001), (2, 0, 0.25)):
        x, gamma, beta = operands(shape, kind, seed)
        y, means, variances = call(source, x, gamma, beta, epsilon, room, tiling)
        for found, wanted in zip((y, means, variances), by_steps(x, gamma, beta, groups, epsilon), strict=True):
            assert np.array_equal(found, wanted.astype(KINDS[kind]))
        exact = x.astype(np.float64).reshape(n, groups, -1)
        middle, square = exact.mean(2, keepdims=True), exact.var(2, keepdims=True)
        exact = ((exact - middle) / np.sqrt(square + float(KINDS[kind](epsilon)))).reshape(shape)
        exact = exact * gamma.astype(np.float64)[:, None, None] + beta.astype(np.float64)[:, None, None]
        bound = 2.0**-20 if kind == "float" else 2.0**-10
        np.testing.assert_allclose(y, exact, rtol=bound, atol=64 * bound)
        np.testing.assert_allclose(means, middle.reshape(-1), rtol=bound, atol=4 * bound)
        np.testing.assert_allclose(variances, square.reshape(-1), rtol=4 * bound, atol=4 * bound)


def test_the_documented_example(source, host):
    """GroupNorm of 0 .. 127 as (2, 8, 4, 2) in 4 groups, gamma and beta 0 .. 7; epsilon is not told: 1e-5."""
    least, tiling = host((2, 8, 4, 2), 4, "float")
    x, gamma = np.arange(128, dtype=np.float32).reshape(2, 8, 4, 2), np.arange(8, dtype=np.float32)
    y, means, variances = call(source, x, gamma, gamma, 0.00001, least, tiling)
    printed = [[1.1084652, 1.3253956, 1.542326, 1.7592564, 1.9761869, 2.1931171, 2.4100475, 2.6269782],
               [-1.2539563, -0.8200953, -0.38623452, 0.047626257, 0.48148715, 0.91534793, 1.3492088, 1.7830696],
               [7.7592564, 9.277769, 10.796282, 12.314795, 13.833308, 15.351821, 16.870335, 18.388847]]  # fmt: skip
    for image in y.reshape(2, 8, 8):
        assert (image[0] == 0).all()
        np.testing.assert_allclose(image[[1, 2, 7]], printed, rtol=2e-6, atol=2e-6)
    assert means.tolist() == [7.5, 23.5, 39.5, 55.5, 71.5, 87.5, 103.5, 119.5]
    assert variances.tolist() == [21.25] * 8


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (3, 3, "groups of as many channels each, not of 3 of 2 of 8 channels in 2 images"),
        (4, 4, "not of 4 of 4 of 8 channels"),
        (5, 9, "hwAlignSize must be whole blocks that hold hw = 8 elements, not 9"),
        (2, 9, "hold hw = 9 elements, not 8"),
    ],
)
def test_tilings_that_are_not_of_images_are_refused(source, host, at, value, message):
    _, tiling = host((2, 8, 4, 2), 4, "float")
    x, gamma, beta = operands((2, 8, 4, 2), "float", 1)
    tiling[at] = value
    with pytest.raises(NpuSimError, match=message):
        call(source, x, gamma, beta, 0.1, 0, tiling)


def test_what_else_is_refused(source, host, tmp_path):
    least, tiling = host((2, 8, 4, 2), 4, "half")
    given = operands((2, 8, 4, 2), "half", 1)
    with pytest.raises(NpuSimError, match=f"a temporary buffer of at least {least} bytes, not {least - 32}"):
        call(source, *given, 0.1, least - 32, tiling)
    for product in ("310p", "910"):
        with pytest.raises(NpuSimError, match="GroupNorm must run on A2 or A3"):
            call(source, *given, 0.1, 0, tiling, product=product)
    path = tmp_path / "norm.cpp"
    path.write_text(KERNEL.replace("REUSES", "true"))
    with pytest.raises(CompilationError, match="GroupNorm with isReuseSource must be of float"):
        call(path, *given, 0.1, 0, tiling)
