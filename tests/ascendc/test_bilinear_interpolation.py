"""BilinearInterpolation against its loops, element by element in half, and the documented example."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import NpuSimError
from tests.ascendc.compiler import PARTS, require_compiler

require_compiler()

KERNEL = (
    PARTS
    + """
using Element = ELEMENT;
__global__ __aicore__ void turn(GM_ADDR x, GM_ADDR places, GM_ADDR factors, GM_ADDR y, uint32_t n, uint32_t values,
                                uint32_t length, bool is_mask, uint64_t low, uint64_t high, uint8_t h, bool by_blocks,
                                uint16_t stride, uint16_t offset, uint8_t v, uint32_t room) {
#if __NPU_ARCH__ != 2201
  LocalTensor<Element> none;
  BilinearInterpolation(none, none, LocalTensor<uint32_t>(), none, low, h, by_blocks, stride, offset, v,
                        LocalTensor<uint8_t>());
  return;
#endif
  TPipe pipe;
  Part<Element> in(pipe, x, n), factor(pipe, factors, values), out(pipe, y, length);
  Part<uint32_t> place(pipe, places, h * v * 8);
  with_room(pipe, room, [&](auto... buffer) {
    if constexpr (sizeof...(buffer) > 0) {
      uint64_t mask[2] = {low, high};
      if (is_mask)
        BilinearInterpolation(out.local, in.local, place.local, factor.local, mask, h, by_blocks, stride, offset, v,
                              buffer...);
      else
        BilinearInterpolation(out.local, in.local, place.local, factor.local, low, h, by_blocks, stride, offset, v,
                              buffer...);
    }
  });
  out.leave();
}
"""
)


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("bilinear.cpp", KERNEL.replace("ELEMENT", "half"))


def by_loops(y, x, places, factors, mask, h, by_blocks, stride, offset, v):
    """Add up what each horizontal iteration makes, rounding every product and every sum to half."""
    y = y.copy()
    for row in range(v):
        total = None
        for column in range(h):
            turn = row * h + column
            blocks = np.stack([x[start // 2 : start // 2 + 16] for start in places[turn * 8 : turn * 8 + 8]])
            by = factors[turn * 8 : turn * 8 + 8, None] if by_blocks else factors[turn]
            product = blocks * by
            total = product if total is None else product + total
        for lane in range(128):
            if mask >> lane & 1:
                y[row * offset + lane // 16 * stride * 16 + lane % 16] = total[lane // 16, lane % 16]
    return y


def call(path, x, places, factors, y, mask, *rest, room, product=None):
    h, by_blocks, stride, offset, v = rest
    is_mask = not isinstance(mask, tuple)
    low, high = (mask & (2**64 - 1), mask >> 64) if is_mask else (mask[0], 0)
    sizes = [np.uint32(part.size) for part in (x, factors, y)]
    run = ascendc.compile(path, "turn", kind="vector")(
        x, places, factors, y, *sizes, np.bool_(is_mask), np.uint64(low), np.uint64(high), np.uint8(h),
        np.bool_(by_blocks), np.uint16(stride), np.uint16(offset), np.uint8(v), np.uint32(room),
        product=product)  # fmt: skip
    assert run.findings == ()
    return y


@pytest.mark.parametrize("by_blocks", [False, True])
@pytest.mark.parametrize(("h", "v"), [(1, 1), (2, 2), (3, 5), (5, 3), (1, 20), (51, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_the_loops(source, h, v, by_blocks, seed):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(1024) * 9).astype(np.float16)
    places = (rng.integers(0, 64, h * v * 8) * 32).astype(np.uint32)
    values = h * v * (8 if by_blocks else 1)
    factors = rng.standard_normal(-(-values // 16) * 16).astype(np.float16)
    stride, offset = (1, 128) if seed == 0 else (2, 256) if seed == 1 else (1, int(rng.integers(9, 30)) * 16)
    y = rng.standard_normal(v * offset + 128).astype(np.float16)
    count = int(rng.integers(1, 129))
    mask = int.from_bytes(rng.bytes(16), "little") if seed == 1 else (1 << count) - 1
    wanted = by_loops(y, x, places, factors, mask, h, by_blocks, stride, offset, v)
    room = (h * v + -(-values // 8)) * 256
    found = call(source, x, places, factors, y, mask if seed == 1 else (count,), h, by_blocks, stride, offset, v,
                 room=room)  # fmt: skip
    assert np.array_equal(found, wanted)


def test_the_documented_example(source):
    x, factors = np.arange(1, 513, dtype=np.float16), np.arange(2, 18, dtype=np.float16)
    y = call(source, x, np.arange(0, 1024, 32, dtype=np.uint32), factors, np.zeros(384, np.float16), (128,),
             2, False, 1, 128, 2, room=4096)  # fmt: skip
    assert y[:4].tolist() == [389, 394, 399, 404]
    assert y[255] == 4096
    assert not y[256:].any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"h": 0}, "hRepeat x vRepeat in .1, 255., not 0 x 2"),
        ({"h": 128}, "not 128 x 2"),
        ({"offset": 112}, r"vROffset must be a multiple of 16 in \[128, 65535\), not 112"),
        ({"offset": 136}, "not 136"),
        ({"by_blocks": True}, "32 values in src1, not 16"),
        ({"room": 1024}, "a temporary buffer of at least 1280 bytes, not 1024"),
        ({"product": "910"}, "BilinearInterpolation is modelled on A2 and A3"),
        ({"product": "310p"}, "BilinearInterpolation is modelled on A2 and A3"),
    ],
)
def test_what_is_refused(source, changed, message):
    given = {"h": 2, "by_blocks": False, "stride": 1, "offset": 128, "v": 2, "room": 2048, "product": None} | changed
    places = np.zeros(max(given["h"], 1) * 16, np.uint32)
    room, product = given.pop("room"), given.pop("product")
    with pytest.raises(NpuSimError, match=message):
        call(source, np.ones(16, np.float16), places, np.ones(16, np.float16), np.zeros(512, np.float16), (128,),
             *given.values(), room=room, product=product)  # fmt: skip


def test_other_types_do_not_compile(tmp_path):
    path = tmp_path / "bilinear.cpp"
    path.write_text(KERNEL.replace("ELEMENT", "float"))
    with pytest.raises(CompilationError, match="BilinearInterpolation must be of half"):
        call(path, *(np.zeros(16, np.float32),) * 4, (128,), 1, False, 1, 128, 1, room=512)
