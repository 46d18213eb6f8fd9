"""A shipped kernel and its Ascend C source: the same bits, and cycles beside each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.engines.timeline import run_timeline
from npu_sim.layouts.formats import ActivationLayout
from npu_sim.products import get_product
from tests.ascendc.compiler import require_compiler
from tests.oracles.trans_data import conversion

require_compiler()

SOURCE = Path(__file__).parents[2] / "examples" / "ascendc" / "trans_data.cpp"
CHIP = get_product("Ascend910B2")


def both(n, c, h, w):
    """Return the launches of the C++ kernel and of the shipped one, run on equal bytes and equally many cores."""
    case = conversion(ActivationLayout(n=n, c=c, d=1, h=h, w=w, c0=16), "to_blocked", 2, CHIP)
    arena = case.fresh_arena(3)
    x, y = case.words(arena, case.src).view(np.float16), np.zeros(case.dst.byte_count // 2, np.float16)
    sizes = (np.uint32(n), np.uint32(c), np.uint32(h * w))
    run = ascendc.compile(SOURCE)(x, y, *sizes, blocks=case.launch.core_count, product=CHIP, outputs=[1])
    assert run.findings == ()
    assert np.array_equal(case.words(case.execute(), case.dst), y.view(np.uint16))
    return run.launches[0], case.launch


@pytest.mark.parametrize("shape", [(1, 16, 4, 4), (2, 40, 7, 9), (1, 3, 32, 33), (3, 17, 1, 1), (1, 33, 20, 60)])
def test_trans_data_has_the_bits_of_the_shipped_kernel(shape):
    both(*shape)


def test_where_the_cycles_differ():
    mine, shipped = both(6, 128, 32, 32)
    # the shipped one is timed as the library's: what a launch of TransData costs, and where its input was found to lie
    alike = replace(shipped, fixed_cost=mine.fixed_cost, inputs=mine.inputs)
    own, other = (run_timeline(launch, CHIP) for launch in (mine, alike))
    assert other.total_cycles < run_timeline(shipped, CHIP).total_cycles
    # both load the same; the shipped one takes planes of twice the pixels, and its loads wait until they are turned
    assert abs(own.busy_cycles["MTE2"] / other.busy_cycles["MTE2"] - 1) < 0.02
    waits = [found.stall_cycles["MTE2"]["flag_V"] for found in (own, other)]
    assert own.total_cycles < other.total_cycles
    assert abs((other.total_cycles - own.total_cycles) - (waits[1] - waits[0])) < 200
