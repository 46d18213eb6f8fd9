"""Input gradients and forward convolutions of unified cores whose taps are too many for L1: parts of channel blocks.

Products with little L1 bring small convolutions there, so that the tiling's own choice is what runs; the windows at the
end are those that the products themselves must cut.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Op
from npu_sim.program.verify import verify
from tests.differential.test_window_kernels import assert_clean, assert_exact, options_of, real
from tests.oracles.window_cases import SERIES, assert_inside, made, planned, random_geometry, run, with_l1
from tests.oracles.window_kernels import forward_bits, gradient_bits

CASES = 28
SEED = 2
L1_BYTES = (1 << 14, 1 << 13, 1 << 12, 3 << 10, 1 << 11, 1 << 10)


def cuts(plan):
    """Which operands stream in parts of channel blocks, and whether those parts divide one."""
    steps = plan.problem.taps * 16 // plan.tiling.base_k
    return {
        (name, "even" if steps % step == 0 else "uneven")
        for name, step in (("windows", plan.tiling.step_ka), ("weights", plan.tiling.step_kb))
        if step < steps
    }


def many_taps(rng):
    """A convolution with enough taps to cut, half of them without strides: gradients of the others are dilated."""
    plain = rng.integers(2)
    while True:
        geometry = random_geometry(rng)
        if geometry.kh * geometry.kw >= 4 and (not plain or max(geometry.stride) == 1):
            return geometry


def streamed(rng, geometry, series, *, forward):
    """A plan that cuts something, with less L1 than one that does not need to, or with much less."""
    for l1_bytes in L1_BYTES[int(rng.integers(len(L1_BYTES))) :]:
        plan = planned(geometry, series, forward=forward, product=with_l1(series, l1_bytes))
        if cuts(plan):
            break
    return plan


def assert_weights_come_once(rows, plan):
    """Parts of channel blocks bring what the Mmads multiply, each element once for each block of the result."""
    if not any(name == "weights" for name, _ in cuts(plan)):
        return
    copies = rows[(rows["op"] == Op.DATA_COPY) & (rows["tensor"] == plan.tensors[1].index)]
    mmads = rows[rows["op"] == Op.MMAD]
    loaded = int((copies["block_count"].astype(np.int64) * copies["block_len"]).sum()) * 32
    assert loaded == int((mmads["k"].astype(np.int64) * mmads["n"]).sum()) * 2


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_with_little_l1_equals_the_definition_and_the_published_order(series, forward):
    rng = np.random.default_rng([SERIES.index(series), forward, SEED])
    shares = np.random.default_rng([SERIES.index(series), forward, SEED, 1])
    judge = forward_bits if forward else gradient_bits
    seen = set()
    for number, geometry in enumerate([many_taps(rng) for _ in range(CASES)]):
        plan = streamed(shares, geometry, series, forward=forward)
        t = plan.tiling
        way = t.source.name, "row" if t.by_row else "two" if t.two_column else "whole"
        seen |= {(*way, name) for name, _ in cuts(plan)}
        assert_clean(plan)
        for core in range(plan.launches[0].core_count):
            rows = emit_rows(plan.launches[0], core)
            assert_inside(rows, plan)
            assert_weights_come_once(rows, plan)
        if number % 2:
            assert_exact(plan, rng, options_of(rng, plan))
            continue
        source, weight = real(rng, plan, "wide")
        want = judge(source, weight, plan.shapes[1], *plan.attributes)
        got, _ = run(plan, source, weight, options_of(rng, plan))
        np.testing.assert_array_equal(got.view(np.uint16), np.ascontiguousarray(want).view(np.uint16), str(plan))
    # A ladder or a generator that stopped cutting one of the ways would let this pass with less in it.
    ways = [("MAP", "whole"), ("MAP", "row"), ("GATHERED", "whole")]
    ways += [] if forward else [("DILATED", "whole"), ("DILATED", "row")]
    assert seen >= {(*way, name) for way in ways for name in ("windows", "weights")}


LARGE = {
    # name: geometry, what the gradient's and the forward convolution's tiling cut. 2048 taps of 16 x 16 fill L1.
    "the last that fits beside its windows": (made((44, 46), (44, 46), pad=(2, 2, 2, 2)), "MAP", "MAP weights"),
    "the first that does not": (made((45, 46), (45, 46), pad=(2, 2, 2, 2)), "MAP weights", "MAP weights"),
    "groups": (
        made((46, 46), (46, 46), n=2, cin=34, cout=17, groups=17, pad=(1, 0, 0, 1)), "MAP weights", "MAP weights",
    ),
    # the first column of an image-to-column load is at most 65,535: 4095 taps of 16 channels and a bit
    "63 by 65 taps": (
        made((8, 9), (63, 65), n=2, cin=17, cout=1, pad=(31, 31, 32, 32)), "MAP weights", "MAP weights",
    ),
    "64 taps squared": (
        made((8, 9), (64, 64), n=2, cin=1, cout=300, pad=(31, 32, 31, 32)), "MAP windows weights",
        "MAP windows weights",
    ),
    "100 taps squared": (
        made((7, 10), (100, 100), cin=3, cout=3, pad=(50, 50, 50, 50)), "MAP windows weights", "MAP windows weights",
    ),
    "100 taps squared, strides": (
        made((7, 10), (100, 100), cin=3, cout=3, pad=(50, 60, 60, 50), stride=(3, 7)), "DILATED windows weights",
        "MAP windows weights",
    ),
    "a prime number of taps": (
        made((3, 300), (1, 2053), pad=(0, 0, 1000, 1000)), "GATHERED windows weights", "GATHERED windows weights",
    ),
    "taller than a load's kernel": (
        made((256, 4), (256, 17), pad=(0, 0, 8, 8)), "GATHERED windows weights", "GATHERED windows weights",
    ),
    # 401 rows of 947 columns under sixteen windows
    "rows far apart": (
        made((500, 1200), (3, 2), cin=3, cout=3, stride=(1, 63), dilation=(200, 1)), "GATHERED", "MAP windows",
    ),
    # 35,461 columns under sixteen windows are more than L1 holds of one row
    "columns far apart": (
        made((2, 35600), (2, 140), cin=3, cout=3, dilation=(1, 255)), "GATHERED", "GATHERED windows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("name", LARGE)
def test_window_kernel_of_many_taps_equals_the_definition(name, series, forward):
    plan = planned(LARGE[name][0], series, forward=forward)
    parts = " ".join(sorted((part for part, _ in cuts(plan)), reverse=True))
    assert f"{plan.tiling.source.name} {parts}".strip() == LARGE[name][1 + forward]
    assert_exact(plan, np.random.default_rng(7))
    for launch in plan.launches:
        for core in {0, launch.core_count - 1}:
            rows = emit_rows(launch, core)
            assert verify(rows, plan.product) == []
            assert_inside(rows, plan)
        result = run_timeline(launch, plan.product)
        assert sum(result.critical_parts.values()) == result.total_cycles
