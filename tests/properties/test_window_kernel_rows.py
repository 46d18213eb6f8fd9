"""Tilings of the unified input gradient and forward kernels fit their product, and every row can be encoded."""

from __future__ import annotations

import itertools
import re
from itertools import islice

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows
from npu_sim.errors import OperatorError
from npu_sim.isa.op import Op
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.problem_unified import forward_problem, input_gradient_problem
from ops.conv3d_backprop_input.tiling_unified import Source, split_over_cores, unified_tiling
from tests.oracles.window_cases import SERIES, assert_inside, made, planned, with_l1

CASES = 40
GUARD = 4096
MOST_CHUNKS = 30


def extreme_geometry(rng):
    """Draw a convolution that is small or at a limit on each axis by itself."""
    while True:
        size, kernel, stride, dilation, pad = [], [], [], [], []
        for _ in range(2):
            kernel.append(int(rng.integers(1, 1 + rng.choice((1, 3, 3, 7, 16, 40, 260)))))
            stride.append(int(rng.integers(1, 1 + rng.choice((1, 1, 2, 8, 63, 70)))))
            dilation.append(int(rng.integers(1, 1 + rng.choice((1, 1, 2, 16, 300)))))
            pad += [int(extent) for extent in rng.integers(0, 1 + rng.choice((0, 1, 3, 16, 300)), 2)]
            size.append(int(rng.integers(1, 1 + rng.choice((1, 4, 16, 64, 256, 4096, 40000, 70000)))))
        reach_of = [dilation[a] * (kernel[a] - 1) + 1 for a in range(2)]
        size = [max(size[a], reach_of[a] - sum(pad[2 * a : 2 * a + 2])) for a in range(2)]
        if size[0] * size[1] > 2**24:
            continue
        groups = int(rng.choice((1, 1, 1, 2, 5, 17)))
        cin, cout = (groups * int(rng.integers(1, 1 + rng.choice((1, 16, 64, 700)))) for _ in range(2))
        return made(
            size, kernel, n=int(rng.choice((1, 2, 64))), cin=cin, cout=cout, groups=groups, stride=stride, pad=pad,
            dilation=dilation,
        )  # fmt: skip


def assert_fits(plan):
    """Hold the tiling to the capacities, counted here from what the blocks hold."""
    q, t, core = plan.problem, plan.tiling, plan.product.core
    assert t.base_m % 16 == t.base_n % 16 == t.base_k % 16 == 0
    assert t.al1_pbuffer * t.a1_bytes + t.bl1_pbuffer * t.b1_bytes <= core.l1_bytes
    assert 2 * t.base_m * t.base_k * 2 <= core.l0a_bytes
    assert 2 * t.base_n * t.base_k * 2 <= core.l0b_bytes
    assert t.cl0_pbuffer * t.base_m * t.base_n * 4 <= core.l0c_bytes
    assert t.step_kb * t.base_k // 16 * t.base_n * 32 <= t.b1_bytes
    columns = q.taps * 16
    assert t.base_k % columns == 0 or columns % t.base_k == 0
    for step in (t.step_ka, t.step_kb):
        assert 0 < step * t.base_k < columns or step * t.base_k % columns == 0
    assert t.block_dim == t.batch_dim * t.m_dim * t.group_dim * t.n_dim <= plan.product.cube_core_count
    line = t.ub_columns + -(-t.ub_columns // q.expand[1])
    raw = -(-t.ub_rows // q.expand[0]) * -(-t.ub_columns // q.expand[1])
    assert (t.ub_rows * t.ub_columns + raw) * 32 <= core.ub_bytes // 4
    assert t.source is not Source.DILATED or line > 0


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_rows_of_extreme_convolutions_are_legal_and_inside_their_tensors(series, forward):
    rng = np.random.default_rng([SERIES.index(series), forward, 3])
    checked = cut = 0
    for number in range(CASES):
        geometry = extreme_geometry(rng)
        # every second product has little L1, so that channel blocks are cut more often
        product = with_l1(series, int(rng.choice((1 << 12, 1 << 14, 1 << 16)))) if number % 2 else None
        plan = planned(geometry, series, forward=forward, product=product)
        assert_fits(plan)
        cut += min(plan.tiling.step_ka, plan.tiling.step_kb) * plan.tiling.base_k < plan.problem.taps * 16
        (launch,) = plan.launches
        # exactly one step fits: what is written behind the buffer shows in the guard
        memory = empty_rows(launch.step_rows + GUARD)
        rows = memory[: launch.step_rows]
        for core in {0, launch.core_count - 1}:
            parts = []
            for count in islice(launch.rows(core, 0, rows), MOST_CHUNKS):
                assert not memory[launch.step_rows :].view(np.uint8).any(), (geometry, plan.tiling)
                parts.append(rows[:count].copy())
            program = join_rows(parts)
            assert verify(program, plan.product) == [], (geometry, plan.tiling)
            assert_inside(program, plan)
            checked += len(program)
    assert checked > 10_000
    assert CASES // 8 <= cut < CASES


@pytest.mark.parametrize("series", SERIES)
def test_unified_tiling_of_a_plain_layer_is_the_one_worked_out_by_hand(series):
    # 3x3, stride 1, 56 x 56, 64 channels: M = 3136 >= N = 64, so blocks of 256 x 64; the columns of a channel block are
    # 144, of which 48 is the largest divisor that L0A holds twice (2 * 256 * 64 * 2 = 64 KiB); a block of 256 pixels
    # spans 256 / 56 + 2 = 6 rows, so windows need 8 rows of 56; both operands of all 4 channel blocks fit L1 twice.
    problem = input_gradient_problem(
        made((56, 56), (3, 3), n=4, cin=64, cout=64, pad=(1, 1, 1, 1)), get_product(series)
    )
    t = unified_tiling(problem, get_product(series))
    assert (t.source, t.by_row, t.two_column) == (Source.MAP, 0, 0)
    assert (t.base_m, t.base_n, t.base_k, t.m_count, t.n_count) == (256, 64, 48, 13, 1)
    assert (t.step_ka, t.step_kb, t.al1_pbuffer, t.bl1_pbuffer, t.cl0_pbuffer) == (12, 12, 2, 2, 2)
    assert (t.a1_bytes, t.b1_bytes) == (4 * 8 * 56 * 32, 4 * 9 * 64 * 32)
    assert t.origin == "not CANN's tiling (our schedule for unified cores)"


@pytest.mark.parametrize("series", SERIES)
def test_unified_tiling_takes_the_way_that_the_windows_need(series):
    product = get_product(series)

    def way(forward=False, **given):
        problem = (forward_problem if forward else input_gradient_problem)(made(**given), product)
        tiling = unified_tiling(problem, product)
        return tiling.source.name, tiling.by_row, tiling.two_column

    same = {"size": (9, 9), "kernel": (3, 3)}
    assert way(**same) == ("MAP", 0, 0)
    assert way(**same, stride=(2, 1)) == ("DILATED", 0, 0)
    assert way(**same, stride=(2, 1), forward=True) == ("MAP", 0, 0)
    assert way(size=(9, 9), kernel=(1, 1), stride=(2, 2)) == ("PIXELS", 0, 0)
    assert way(size=(9, 9), kernel=(1, 1), stride=(2, 2), forward=True) == ("MAP", 0, 0)
    # a gradient pixel that stands in the padding has no place of its own
    assert way(size=(9, 9), kernel=(1, 1), stride=(2, 2), pad=(0, 1, 0, 0)) == ("PIXELS", 0, 0)
    assert way(size=(8, 9), kernel=(1, 1), stride=(2, 2), pad=(0, 1, 0, 0)) == ("DILATED", 0, 0)
    # UB cannot hold 16 pixels with the zeros of 63 rows of 4000 around each
    assert way(size=(100, 4000), kernel=(1, 1), stride=(63, 1)) == ("DILATED", 0, 0)
    # one row is cut freely; one column of several rows is made as two
    assert way(size=(1, 99), kernel=(1, 3)) == ("MAP", 1, 0)
    assert way(size=(9, 1), kernel=(3, 1)) == ("MAP", 0, 1)
    assert way(size=(1, 1), kernel=(1, 1), pad=(1, 1, 1, 1)) == ("MAP", 0, 0)
    # beyond 255 rows of padding behind the map, or dilation, or 63 of stride, windows are gathered
    assert way(size=(9, 9), kernel=(2, 2), dilation=(255, 1), pad=(130, 130, 0, 0)) == ("MAP", 0, 0)
    assert way(size=(9, 9), kernel=(2, 2), dilation=(256, 1), pad=(130, 130, 0, 0)) == ("GATHERED", 0, 0)
    assert way(size=(300, 9), kernel=(256, 1)) == ("GATHERED", 0, 0)
    assert way(size=(300, 9), kernel=(256, 1), pad=(255, 255, 0, 0)) == ("GATHERED", 0, 0)
    assert way(size=(300, 9), kernel=(128, 1), dilation=(2, 1), pad=(0, 0, 0, 0)) == ("MAP", 0, 0)
    assert way(size=(300, 9), kernel=(129, 1), dilation=(2, 1), pad=(0, 0, 0, 0)) == ("GATHERED", 0, 0)
    assert way(size=(300, 9), kernel=(129, 1), dilation=(2, 1), forward=True) == ("MAP", 0, 0)
    assert way(size=(300, 9), kernel=(3, 1), stride=(63, 1), forward=True) == ("MAP", 0, 0)
    assert way(size=(300, 9), kernel=(3, 1), stride=(64, 1), forward=True) == ("GATHERED", 0, 0)
    # rows that L1 does not hold, or that the load cannot count, are cut
    assert way(size=(20, 9000), kernel=(3, 3)) == ("MAP", 1, 0)
    assert way(size=(2, 40000), kernel=(1, 2), forward=True) == ("MAP", 1, 0)


@pytest.mark.parametrize("series", SERIES)
def test_unified_tiling_cuts_a_channel_block_that_l1_does_not_hold(series):
    # Weights of 46 * 46 taps of 16 x 16 are 1,083,392 bytes. The 33,856 columns of a channel block are 529 steps of 64,
    # which halve to 132 until two buffers of 132 * 64 * 16 * 2 bytes fit beside two with the whole map: 256 windows, 91
    # to a row, touch up to 4 rows, and those reach 3 + 46 rows of the map, which has 46.
    problem = forward_problem(made((46, 46), (46, 46), pad=(45, 45, 45, 45)), get_product(series))
    t = unified_tiling(problem, get_product(series))
    assert (t.source, t.by_row, t.two_column) == (Source.MAP, 0, 0)
    assert (t.base_m, t.base_n, t.base_k, t.step_ka, t.step_kb) == (256, 16, 64, 529, 132)
    assert (t.al1_pbuffer, t.bl1_pbuffer, t.a1_rows, t.a1_columns) == (2, 2, 46, 46)
    assert (t.a1_bytes, t.b1_bytes) == (46 * 46 * 32, 132 * 64 * 16 * 2)


@pytest.mark.parametrize("series", SERIES)
def test_unified_tiling_with_next_to_no_l1_gathers_one_fractal(series):
    product = with_l1(series, 1024)
    for forward in (False, True):
        plan = planned(made((9, 40), (3, 3), cin=16, cout=16), series, forward=forward, product=product)
        t = plan.tiling
        assert (t.source, t.base_m, t.base_n, t.base_k, t.step_ka, t.step_kb) == (Source.GATHERED, 16, 16, 16, 1, 1)
        assert t.al1_pbuffer * t.a1_bytes + t.bl1_pbuffer * t.b1_bytes == 1024


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
def test_window_kernels_with_depth_are_refused(series, forward):
    product = get_product(series)
    what = "forward convolution" if forward else "input gradient"
    make = forward_problem if forward else input_gradient_problem
    for name, value, rule, extents in (
        ("input depth", 2, 1, {"di": 2, "do": 1, "kd": 2, "pad": (0,) * 6}),
        ("output depth", 2, 1, {"di": 1, "do": 2, "kd": 1, "pad": (1, 0, 0, 0, 0, 0)}),
        ("kernel depth", 3, 1, {"di": 1, "do": 1, "kd": 3, "pad": (1, 1, 0, 0, 0, 0)}),
        ("padFront", 1, 0, {"di": 1, "do": 1, "kd": 1, "pad": (1, 1, 0, 0, 0, 0), "stride": (3, 1, 1)}),
    ):
        geometry = ConvGeometry(n=1, cin=1, cout=1, hi=3, wi=3, ho=3, wo=3, kh=1, kw=1, **extents)
        message = f"{name} must be {rule}, not {value} ({what}, fp16, {product.name})"
        with pytest.raises(OperatorError, match=f"^{re.escape(message)}$") as caught:
            make(geometry, product)
        assert caught.value.status == 561103


def test_split_over_cores_leaves_the_busiest_core_no_more_than_any_other_split():
    rng = np.random.default_rng(5)
    for _ in range(60):
        counts = tuple(int(count) for count in rng.integers(1, 12, 4))
        cores = int(rng.integers(1, 33))

        def load(dims, counts=counts):
            return int(np.prod([-(-count // dim) for count, dim in zip(counts, dims, strict=True)]))

        chosen = split_over_cores(counts, cores)
        assert np.prod(chosen) <= cores
        assert all(1 <= dim <= count for dim, count in zip(chosen, counts, strict=True))
        every = itertools.product(*(range(1, min(count, cores) + 1) for count in counts))
        assert load(chosen) == min(load(dims) for dims in every if np.prod(dims) <= cores)


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize(("size", "channels"), [((56, 56), 64), ((4, 4), 64), ((7, 7), 200)])
def test_window_kernel_loads_windows_with_as_few_calls_as_the_product_has(size, channels, forward):
    geometry = made(size, (3, 3), n=2, cin=channels, cout=channels, pad=(1, 1, 1, 1))
    for series, op in (("310p", Op.LOAD_3D), ("910", Op.LOAD_3D_V1)):
        plan = planned(geometry, series, forward=forward)
        rows = emit_rows(plan.launches[0], 0)
        calls = np.add.reduceat(rows["op"] == op, np.concatenate([[0], np.flatnonzero(rows["op"] == Op.MMAD)[:-1]]))
        # v2 takes all at once; v1 a row of fractals along M or along K, whichever there are fewer of
        mmads = rows[rows["op"] == Op.MMAD]
        fewest = np.minimum(mmads["m"] // 16, mmads["k"] // 16) if op == Op.LOAD_3D_V1 else np.ones(len(mmads))
        np.testing.assert_array_equal(calls, fewest)
        # all items of the core share the weights that L1 holds whole
        loads = rows[(rows["op"] == Op.DATA_COPY) & (rows["tensor"] == plan.tensors[1].index)]
        t = plan.tiling
        steps = plan.problem.k_planes * 9 * 16 / (t.step_kb * t.base_k)
        assert len(mmads) > 1
        assert len(loads) == 1 if steps <= 1 else len(loads) > 1
