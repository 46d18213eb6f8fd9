"""What the emitters write is what the tiling says: the same work in the same order, for every buffer length."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows
from npu_sim.errors import OperatorError
from npu_sim.isa.op import Data, Op, Pipe, Space
from npu_sim.isa.row import INSTR, empty_rows
from npu_sim.memory.gm import allocated_bytes
from npu_sim.products import get_product
from npu_sim.program.disassemble import listing
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter import kernel_unified, walk_split
from ops.conv3d_backprop_filter.tiling_data import DwTiling
from tests.cases.weight_gradient import SERIES, plan_of, plan_weight_gradient, random_case, random_tiling
from tests.oracles.footprint import touched_bytes
from tests.oracles.work_items import work_items

GEOMETRY = ConvGeometry.from_shapes((2, 20, 7, 6), (2, 40, 7, 6), (40, 20, 3, 3), padding=1)


@dataclass
class Work:
    """One matrix product as the rows of a core show it."""

    core: int
    block: int
    n: int
    do: int
    pixel: int
    planes: set


def observed(plan, launch, core, phase):
    """Read the work of a core out of its rows: what it loads, multiplies and stores, by address."""
    g, tiling = plan.geometry, plan.tiling
    split = isinstance(tiling, DwTiling)
    c0 = tiling.channel_size if split else 16
    site = walk_split if split else kernel_unified
    c1_dy, c1_x = -(-g.cout // c0), -(-g.cin // c0)
    found, stores, pending = [], {}, set()
    # unified cores load a stretch of pixels before they multiply the one before it
    ready, current = deque(), 0
    for row in emit_rows(launch, core, phase):
        tile = int(row["tile"])
        if not split and row["op"] == Op.SET_FLAG and row["site"] == site.LOAD_DY:
            ready.append(len(found) - 1)
        elif not split and row["op"] == Op.SET_FLAG and row["site"] == site.LOAD_X:
            found[-1].planes |= pending
            pending = set()
        elif not split and row["op"] == Op.WAIT_FLAG and (row["site"], row["peer"]) == (site.LOAD_L0A, Pipe.MTE2):
            current = ready.popleft()
        if row["site"] == site.LOAD_DY and row["op"] == Op.DATA_COPY:
            plane, pixel = divmod((int(row["src0"]) - plan.dy.address) // 32, g.ho * g.wo)
            n, do = divmod(plane // c1_dy, g.do)
            last = found[-1] if found else None
            if last is None or (last.block, last.n, last.do) != (tile, n, do):
                found.append(Work(core=core, block=tile, n=n, do=do, pixel=pixel, planes=set()))
            found[-1].pixel = min(found[-1].pixel, pixel)
        elif row["site"] == site.LOAD_X and row["op"] == Op.DATA_COPY:
            plane = (int(row["src0"]) - plan.x.address) // 32 // (g.hi * g.wi) // c1_x
            pending.add(plane)
        elif row["op"] == Op.MMAD:
            if split:
                found[-1].planes |= pending
                pending, current = set(), len(found) - 1
            stores.setdefault(("k", tile), []).append((current, int(row["k"]), int(row["m"]) * int(row["n"])))
        elif row["site"] == site.STORE and row["op"] in (Op.FIXPIPE, Op.DATA_COPY):
            block, rest = divmod((int(row["dst"]) - plan.dw.address) // 4, tiling.m_extent * c0)
            if row["op"] == Op.FIXPIPE:
                m, n = int(row["m_size"]), int(row["n_size"])
            else:
                m, n = int(row["block_len"]) // 2, int(row["block_count"]) * 16
            stores.setdefault(("dw", tile), []).append((rest // c0, block * c0, m, n))
    return found, stores


@pytest.mark.parametrize("series", SERIES)
def test_emitted_rows_do_the_enumerated_work_in_order(series):
    rng = np.random.default_rng([SERIES.index(series), 77])
    checked = 0
    while checked < 12:
        try:
            plan = plan_of(random_case(rng, series=series, most_macs=200_000))
        except OperatorError:
            continue
        plan = random_tiling(rng, plan) if checked % 3 else plan
        _assert_emits_its_work(plan)
        checked += 1


def test_emitted_rows_of_the_base_tiling_do_the_enumerated_work_in_order():
    # bfloat16 on 20 cores: 5 shares of batch and depth, 4 blocks of N (its taps merged) resp. 4 of K
    splits = set()
    for cin, cout, size in ((64, 16, 9), (16, 16, 20)):
        geometry = ConvGeometry(
            n=1, cin=cin, cout=cout, di=6, hi=size, wi=size, do=5, ho=size, wo=size, kd=2, kh=3, kw=3,
            pad=(0, 0, 1, 1, 1, 1),
        )  # fmt: skip
        plan = plan_weight_gradient(geometry, get_product("Ascend910B3"), "bf16")
        splits.add((plan.tiling.tiling_key, plan.tiling.n_dim, plan.tiling.k_dim))
        _assert_emits_its_work(plan)
    assert splits == {(0, 4, 1), (0, 1, 4)}


def _assert_emits_its_work(plan):
    tiling, g = plan.tiling, plan.geometry
    split = isinstance(tiling, DwTiling)
    launch, phase = plan.launches[-1], int(split)
    c0 = tiling.channel_size if split else 16
    khw = g.kh * g.kw
    tap_n = tiling.cin1_g * c0 * khw
    expected = list(work_items(tiling, g))
    for core in range(launch.core_count):
        mine = [item for item in expected if item.core == core]
        found, by_tile = observed(plan, launch, core, phase)
        assert [(w.block, w.n, w.do) for w in found] == [(i.block, i.n, i.do) for i in mine]
        for number, (work, item) in enumerate(zip(found, mine, strict=True)):
            column = 2 if not split and tiling.two_column else 1
            assert work.pixel * column == item.k0
            # every element of the rectangle gets all of K: the products of m, n and k over all its Mmads
            volume = sum(k * area for index, k, area in by_tile["k", item.block] if index == number)
            assert volume == item.m_len * item.n_len * item.k_len
            stored = by_tile["dw", item.block]
            covered = sum(m * n for _, _, m, n in stored)
            first_n = (item.group * g.kd + item.kd) * tap_n + item.n0
            assert covered == item.m_len * item.n_len
            assert min(m for m, *_ in stored) == item.m0
            assert min(n for _, n, *_ in stored) == first_n
            assert max(m + length for m, _, length, _ in stored) == item.m0 + item.m_len
            assert max(n + length for _, n, _, length in stored) == first_n + item.n_len
            taps = 1 + (item.n0 + item.n_len - 1) // tap_n if split and tiling.dk_merged else 1
            assert work.planes <= {item.n * g.di + item.di + tap for tap in range(taps)}


@pytest.mark.parametrize("series", SERIES)
def test_rows_do_not_depend_on_the_length_of_the_buffer(series):
    rng = np.random.default_rng([SERIES.index(series), 78])
    for _ in range(4):
        plan = plan_of(random_case(rng, series=series, most_macs=60_000))
        for launch in plan.launches:
            for phase in range(launch.phase_count):
                core = launch.core_count - 1
                whole = listing(emit_rows(launch, core, phase))
                for length in (launch.step_rows, launch.step_rows + 1, launch.step_rows + 37):
                    assert listing(_emitted(launch, core, phase, length)) == whole


def _emitted(launch, core, phase, length):
    """All rows of a core, through a buffer of ``length`` rows that holds rubbish between the calls."""
    buffer = empty_rows(length)
    parts = [buffer[:0].view(np.uint8)]
    buffer.view(np.uint8)[:] = 0xA5
    for count in launch.rows(core, phase, buffer):
        parts.append(buffer[:count].copy().view(np.uint8))
        buffer.view(np.uint8)[:] = 0xA5
    return np.concatenate(parts).view(INSTR)


@pytest.mark.parametrize("series", SERIES)
def test_rows_stay_inside_the_buffers_of_the_core(series):
    rng = np.random.default_rng([SERIES.index(series), 79])
    plan = random_tiling(rng, plan_of(random_case(rng, series=series, most_macs=30_000)))
    core = plan.product.core
    capacity = {
        Space.L1: core.l1_bytes, Space.L0A: core.l0a_bytes, Space.L0B: core.l0b_bytes, Space.L0C: core.l0c_bytes,
        Space.UB: core.ub_bytes, Space.GM: plan.gm.total_bytes,
    }  # fmt: skip
    seen = set()
    for launch in plan.launches:
        for phase in range(launch.phase_count):
            for row in emit_rows(launch, 0, phase)[:150]:
                for (space, _), touched in touched_bytes(row).items():
                    assert min(touched) >= 0
                    assert max(touched) < capacity[space]
                    seen.add(Space(space))
    assert seen >= {Space.GM, Space.L1, Space.L0A, Space.L0B, Space.L0C}


def test_plan_of_a_split_product_is_one_launch_that_clears_and_computes():
    plan = plan_weight_gradient(GEOMETRY, get_product("910b"), "fp32")
    [launch] = plan.launches
    assert (launch.name, launch.phase_count, launch.core_count) == (
        "Conv3DBackpropFilterV2",
        2,
        plan.tiling.cores,
    )
    cleared = [emit_rows(launch, core, 0) for core in range(launch.core_count)]
    stores = np.concatenate([rows[rows["dst_space"] == Space.GM][["dst", "block_len"]] for rows in cleared])
    ends = sorted((int(dst), int(dst) + 32 * int(length)) for dst, length in stores[["dst", "block_len"]].tolist())
    assert ends[0][0] == plan.dw.address
    assert ends[-1][1] == plan.dw.address + plan.dw.byte_count
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))


@pytest.mark.parametrize(
    ("channels", "fill", "stores"),
    [
        # 512 x 512 x 9 of 24 cores is 12,288 blocks of 32 bytes each; four times that is more than L1 holds
        (512, 12288, [12288]),
        (1024, 16384, [16384, 16384, 16384]),
        (96, 448, [448]),
    ],
)
def test_clearing_fills_l1_with_the_share_of_a_core_or_the_whole_of_it(channels, fill, stores):
    shapes = ((4, channels, 7, 7), (4, channels, 7, 7), (channels, channels, 3, 3))
    plan = plan_weight_gradient(ConvGeometry.from_shapes(*shapes, padding=1), get_product("910b"), "fp16")
    rows = emit_rows(plan.launches[0], 0, 0)
    filled = rows[rows["op"] == Op.FILL]
    assert (filled["repeat"].tolist(), filled["block_num"].tolist()) == ([1], [fill])
    assert rows[rows["dst_space"] == Space.GM]["block_len"].tolist() == stores


def test_plan_of_a_unified_product_clears_with_a_memset_launch():
    plan = plan_weight_gradient(GEOMETRY, get_product("910"), "fp16")
    memset, kernel = plan.launches
    assert (memset.name, kernel.name) == ("MemSet", "Conv3DBackpropFilter")
    assert memset.gm is kernel.gm is plan.gm
    stores = np.concatenate([emit_rows(memset, core)[["dst", "block_len", "op"]] for core in range(memset.core_count)])
    ends = sorted((dst, dst + 32 * length) for dst, length, op in stores.tolist() if op == Op.DATA_COPY)
    assert (ends[0][0], ends[-1][1]) == (plan.dw.address, plan.dw.address + plan.dw.byte_count)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))


def test_plan_lays_tensors_out_one_behind_the_other_and_touches_none():
    plan = plan_weight_gradient(GEOMETRY, get_product("910_93"), "bf16")
    x, dy, dw = plan.x, plan.dy, plan.dw
    assert [t.name for t in plan.gm.tensors] == ["x", "dy", "dw"]
    assert [t.data for t in plan.gm.tensors] == [Data.BF16, Data.BF16, Data.FP32]
    assert [t.initialised for t in plan.gm.tensors] == [True, True, False]
    assert (x.byte_count, dy.byte_count) == (2 * 2 * 7 * 6 * 16 * 2, 2 * 3 * 7 * 6 * 16 * 2)
    assert dw.byte_count == 2 * 9 * 48 * 16 * 4
    assert dy.address >= x.address + allocated_bytes(x.byte_count)
    assert dw.address >= dy.address + allocated_bytes(dy.byte_count)
    assert plan.gm._arena is None


def test_plan_for_operands_the_cube_lacks_is_refused():
    message = r"^compute dtype must be one of fp16, not bf16 \(Ascend310P3, Atlas inference series\)$"
    with pytest.raises(OperatorError, match=message) as caught:
        plan_weight_gradient(GEOMETRY, get_product("310p"), "bf16")
    assert caught.value.status == 161002
