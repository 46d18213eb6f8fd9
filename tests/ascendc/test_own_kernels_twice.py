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
from tests.differential import test_avg_pool3d_grad as pooling_cases
from tests.differential.vector_runs import ways
from tests.oracles.pooling import Pooling
from tests.oracles.trans_data import conversion, machine

require_compiler()

EXAMPLES = Path(__file__).parents[2] / "examples" / "ascendc"
SOURCE = EXAMPLES / "trans_data.cpp"
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


POOL_FIELDS = (
    "h", "w", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "include_pad", "divisor", "deterministic", "lanes",
    "pieces", "count", "tail", "pitch", "group", "tasks", "clear_bytes", "cast_elems",
)  # fmt: skip
CPP_TYPES = {"fp32": "float", "fp16": "half", "bf16": "bfloat16_t"}


def both_poolings(extents, lanes, pooling, dtype, product=CHIP, deterministic=False, seed=0):
    """Return the launches of the C++ AvgPool3DGrad and of the shipped one, run on equal bytes in the same split."""
    launch, src, dst, out = pooling_cases.build(extents, lanes, pooling, dtype, product, deterministic)
    split = launch.params[0]
    is_rounded = bool(split["overlap"]) and dtype != "fp32"
    kernel = f"avg_pool3d_grad<{CPP_TYPES[dtype]}, {str(bool(split['overlap'])).lower()}>"
    grads = pooling_cases.values(np.random.default_rng(seed), (out[0] * out[1], lanes), dtype)
    x = np.full((extents[0] * extents[1], lanes), 7, grads.dtype)
    sums = np.full(x.shape if is_rounded else 1, 7, np.float32)
    run = ascendc.compile(EXAMPLES / "avg_pool3d_grad.cpp", kernel)(
        grads, x, sums, tiling=np.array([int(split[name]) for name in POOL_FIELDS]).tobytes(),
        blocks=launch.core_count, product=product, outputs=[1, 2] if is_rounded else [1],
    )  # fmt: skip
    assert run.findings == ()
    _, arena = next(iter(ways(launch, product, {src: grads}, seeds=())))
    pooling_cases.same(arena, dst, x)
    return run.launches[0], launch


def random_pooling(rng):
    """Return extents, lanes and a pooling whose windows overlap, touch or lie apart."""
    kernel, stride = (tuple(int(v) for v in rng.integers(1, high, 2)) for high in (5, 6))
    pad = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    extents = tuple(int(rng.integers(k, 14)) for k in kernel)
    pooling = Pooling(
        kernel=kernel, stride=stride, pad=pad, ceil_mode=bool(rng.integers(2)), count_include_pad=bool(rng.integers(2)),
        divisor_override=int(rng.choice([0, 0, 3, -7])),
    )  # fmt: skip
    return extents, int(rng.choice([1, 3, 16, 21, 100, 300])), pooling


@pytest.mark.parametrize("dtype", CPP_TYPES)
def test_avg_pool3d_grad_has_the_bits_of_the_shipped_kernel(dtype):
    """16 poolings of each type; on 3 cores, too, where each takes several tasks."""
    rng = np.random.default_rng(list(CPP_TYPES).index(dtype))
    for number in range(16):
        extents, lanes, pooling = random_pooling(rng)
        product = (CHIP, machine("910b", cores=3))[number % 2]
        both_poolings(extents, lanes, pooling, dtype, product, deterministic=number % 4 == 1, seed=number)


@pytest.mark.parametrize("dtype", CPP_TYPES)
def test_avg_pool3d_grad_cuts_lanes_beyond_ub(dtype):
    """Pieces of lanes, several stores of zeros and several casts of a core."""
    small = machine("910b", cores=2, ub_bytes=24576)
    for pooling in (pooling_cases.OVERLAPPED, pooling_cases.APART):
        mine, _ = both_poolings((4, 5), 1600, pooling, dtype, small)
        assert mine.core_count == 2


@pytest.mark.parametrize(
    ("extents", "lanes", "pooling", "dtype"),
    [
        ((56, 56), 256, pooling_cases.OVERLAPPED, "fp16"),
        ((56, 56), 256, pooling_cases.APART, "fp16"),
        ((64, 64), 512, pooling_cases.OVERLAPPED, "fp32"),
    ],
)
def test_avg_pool3d_grad_takes_the_cycles_of_the_shipped_kernel(extents, lanes, pooling, dtype):
    mine, shipped = both_poolings(extents, lanes, pooling, dtype)
    alike = replace(shipped, fixed_cost=mine.fixed_cost)
    cycles = [run_timeline(launch, CHIP).total_cycles for launch in (mine, alike, shipped)]
    assert abs(cycles[0] / cycles[1] - 1) < 0.005
    # the rest is what a launch of a vector kernel of the library was measured to cost
    fixed = {kind: CHIP.cost.fixed_cycles(kind, shipped.core_count) for kind in ("kernel", "vector")}
    assert cycles[1] - cycles[2] == fixed["kernel"] - fixed["vector"]
