"""Equal cores are timed once: the same result as timing all, and what counts as equal."""

from __future__ import annotations

import numpy as np
import pytest

import ops
from npu_sim.engines import core_classes, timeline
from npu_sim.engines.core_classes import IN_USE, TIMED, CoreClasses, classify
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa import cost as rules
from npu_sim.isa import emit
from npu_sim.isa.op import FROM_ROW, SPACE_OF_OPERAND, Data, Space
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import get_product
from npu_sim.products.cost_record import cost_record
from npu_sim.program.row_digest import LANES
from tests.conformance.test_gm_extent import _extents
from tests.oracles.instances import GENERATORS, candidates
from tests.unit.small_launches import launch_of


def _all_alone(launch, rows, with_extents):
    """Classify as nobody should: every core for itself, extents row by row."""
    extents = np.full((len(launch.gm.tensors) + 1 if with_extents else 0, 4), (1 << 62, -(1 << 62)) * 2, np.int64)
    for phase in range(launch.phase_count):
        for core in range(launch.core_count):
            for count in launch.rows(core, phase, rows):
                _widen(rows[:count], extents)
    return CoreClasses((np.arange(launch.core_count),) * launch.phase_count, extents)


def _widen(rows, extents):
    found = np.zeros((len(rows), 2), np.int64)
    _extents(rows, found)
    reads = _in_gm(rows, 1)
    found[~(_in_gm(rows, 0) | reads)] = 0
    for (low, high), is_read, tensor in zip(found, reads, rows["tensor"], strict=True):
        if len(extents) and low < high:
            at = extents[tensor if 0 <= tensor < len(extents) else -1][slice(0, 2) if is_read else slice(2, 4)]
            at[:] = min(at[0], low), max(at[1], high)


def _in_gm(rows, operand):
    """Return which rows have GM at operand 0 (dst) or 1 (src0)."""
    spaces = SPACE_OF_OPERAND[rows["op"], operand]
    return np.where(spaces == FROM_ROW, rows[("dst_space", "src0_space")[operand]], spaces) == Space.GM


def _launches(product, **options):
    shapes = (2, 40, 9, 9), (2, 24, 9, 9), (40, 24, 3, 3)
    arrays = [np.ones(shape, np.float16) for shape in shapes]
    call = ops.convolution_backward(*arrays, stride=1, padding=1, dilation=1, product=product, **options)
    pooling = np.ones((2, 40, 4, 4), np.float16), np.ones((2, 40, 8, 8), np.float16)
    pooled = ops.avg_pool2d_backward(*pooling, kernel_size=2, stride=2, product=product)
    return call.plan.calls.launches + pooled.plan.calls.launches


@pytest.mark.parametrize("product", ["910b", "310p", "910"])
@pytest.mark.parametrize("l2_bytes", [None, 1 << 14])
def test_result_is_that_of_timing_every_core(product, l2_bytes, monkeypatch):
    chip = get_product(product)
    if l2_bytes is not None:
        monkeypatch.setattr(type(chip), "l2_bytes", l2_bytes, raising=False)
    cores = simulated = 0
    hits = []
    for launch in _launches(chip):
        with monkeypatch.context() as patch:
            patch.setattr(timeline, "classify", _all_alone)
            expected = run_timeline(launch, chip)
        assert run_timeline(launch, chip) == expected
        hits.append(expected.l2_hit_permille)
        classes = classify(launch, empty_rows(4096), with_extents=False)
        cores += launch.core_count * launch.phase_count
        simulated += sum(len(set(first_of.tolist())) for first_of in classes.first_of)
    assert simulated < 0.75 * cores
    assert (min(hits) < 1000) == (l2_bytes is not None)


def test_spans_are_kept_of_every_core_that_is_shown():
    chip = get_product("910b")
    launch = next(launch for launch in _launches(chip) if launch.core_count > 3)
    shown = run_timeline(launch, chip, spans=True).spans
    assert [kept.core for kept in shown] == list(range(launch.core_count))
    some = timeline.TimelineOptions(span_cores=(1, 3))
    assert [kept.core for kept in run_timeline(launch, chip, spans=True, options=some).spans] == [1, 3]


def _first_of(write):
    """Return the classes of four cores whose rows ``write(rows, core)`` writes."""
    return classify(launch_of(write, cores=4), empty_rows(64), with_extents=False).first_of[0].tolist()


def test_cores_are_equal_whatever_they_touch_in_gm_and_are_called():
    def write(core, phase):
        return [
            lambda r, n: emit.emit_data_copy(
                r, n, Space.UB, 0, Space.GM, 4096 * core, 2, 8, 3, 0, Data.FP16, core, 7 * core, core
            ),
            lambda r, n: emit.emit_data_copy(
                r, n, Space.GM, 64 * core, Space.UB, 0, 2, 8, 3, 0, Data.FP16, core, core, core
            ),
        ]

    assert _first_of(write) == [0, 0, 0, 0]


def test_cores_are_equal_wherever_in_buffers_without_banks_their_operands_are():
    def write(core, phase):
        return [
            lambda r, n: emit.emit_load_2d(
                r, n, Space.L0A, 512 * core, Space.L1, 0, 0, 1, 1, 0, 0, Data.FP16, -1, 0, 0
            ),
            lambda r, n: emit.emit_data_copy(r, n, Space.L1, 64 * core, Space.GM, 0, 2, 8, 3, 0, Data.FP16, 0, 0, core),
        ]

    assert _first_of(write) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "write",
    [
        lambda core: lambda r, n: emit.emit_add(r, n, 0, 256, 32 * core, Data.FP16, 128, 0, 0),
        lambda core: lambda r, n: emit.emit_add(r, n, 0, 256, 0, Data.FP16, 128 + core, 0, 0),
        lambda core: (
            lambda r, n: emit.emit_load_2d(r, n, Space.L0A, 0, Space.L1, 0, 0, 1 + core, 1, 0, 0, Data.FP16, -1, 0, 0)
        ),
    ],
)
def test_cores_with_the_same_counts_and_other_operands_are_not_equal(write):
    assert _first_of(lambda core, phase: [write(core)]) == [0, 1, 2, 3]


def test_order_of_rows_counts():
    rows = [
        lambda r, n: emit.emit_muls(r, n, 0, 0, Data.FP16, 128, 0, 0, 0),
        lambda r, n: emit.emit_muls(r, n, 0, 0, Data.FP16, 256, 0, 0, 0),
    ]
    assert _first_of(lambda core, phase: rows if core % 2 else rows[::-1]) == [0, 1, 0, 1]


def _legal_rows():
    """Return random legal rows of every instruction that has operands to draw."""
    return join_rows([instance.rows for op in sorted(GENERATORS) for instance in candidates(op, 3, 40)])


def test_no_cost_reads_what_is_left_out():
    """Noise in every bit outside the masks, and in addresses in GM, changes no cost and no lane."""
    rng = np.random.default_rng(7)
    rows = _legal_rows()
    noisy = rows.copy()
    words = noisy.view(np.uint8).view(np.uint64).reshape(-1, LANES)
    masks = TIMED[rows["op"]]
    words[:] = (words & masks) | (rng.integers(0, 1 << 64, words.shape, dtype=np.uint64) & ~masks)
    for operand, field in enumerate(("dst", "src0")):
        noisy[field] = np.where(_in_gm(rows, operand), rng.integers(0, 1 << 40, len(rows)), noisy[field])
    assert not np.array_equal(rows.view(np.uint8), noisy.view(np.uint8))
    for series in ("910b", "310p", "910"):
        record = cost_record(get_product(series).cost, 8, 1_800_000_000)
        costs = [np.zeros((len(rows), 3), np.int64) for _ in range(2)]
        for chunk, out in zip((rows, noisy), costs, strict=True):
            rules.rows_cost(chunk, len(chunk), record, out)
        np.testing.assert_array_equal(*costs)
    np.testing.assert_array_equal(*map(_lanes, (rows, noisy)))


def _lanes(rows):
    lanes = np.zeros(LANES, np.uint64)
    words = rows.view(np.uint8).view(np.uint64)
    with np.errstate(over="ignore"):  # without compilation NumPy reports that numbers of 64 bits wrap around
        core_classes._note(rows, words, len(rows), TIMED, IN_USE, lanes, np.zeros((0, 2), np.int64))
    return lanes


def test_every_operand_that_a_cost_can_read_counts():
    """A bit flipped under the mask of a row changes the lane it is in, unless it belongs to an address in GM."""
    rng = np.random.default_rng(8)
    rows = _legal_rows()
    before = _lanes(rows)
    for at in rng.choice(len(rows), 60, replace=False):
        mask = TIMED[rows["op"][at]].copy()
        mask[0] &= ~np.uint64(0xFF)  # another opcode has another mask
        mask[1] = 0  # as has another space
        mask[[lane for operand, lane in ((0, 3), (1, 4)) if _in_gm(rows[at : at + 1], operand)]] = 0
        lanes = np.flatnonzero(mask)
        if not len(lanes):
            continue
        lane = rng.choice(lanes)
        changed = rows.copy()
        words = changed.view(np.uint8).view(np.uint64).reshape(-1, LANES)
        words[at, lane] ^= mask[lane] & (~mask[lane] + np.uint64(1))
        assert np.flatnonzero(before != _lanes(changed)).tolist() == [lane]
