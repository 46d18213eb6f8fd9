"""Strided copies and MemSet against index by index: rows, shortcut and every legal order, to the byte."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows
from npu_sim.errors import ShapeError
from npu_sim.isa.op import Op, Space
from npu_sim.memory.gm import GlobalMemory
from ops.common.view import View
from ops.vector.copy import copy_launch, merged_axes, plan_rows
from ops.vector.memset import memset_launch
from tests.differential.vector_runs import (
    PRODUCTS,
    ascending,
    assert_sound,
    assert_untouched_elsewhere,
    bytes_of,
    run,
    stores_of,
    ways,
)
from tests.oracles import vector_kernels as oracle
from tests.oracles.series import SERIES, SPLIT, UNIFIED


def transposed(view, order):
    return View(tuple(view.shape[i] for i in order), tuple(view.strides[i] for i in order), view.offset)


def sliced(shape, keep, steps=None, offset=0):
    """View of every ``steps``-th element of the first ``keep`` of an array of ``shape``."""
    whole = View.contiguous(shape)
    steps = steps or (1,) * len(shape)
    return View(tuple(keep), tuple(s * t for s, t in zip(whole.strides, steps, strict=True)), offset)


PLAIN = View.contiguous
CASES = {
    "rows of a wider array": (sliced((6, 40), (6, 37), offset=2), PLAIN((6, 37))),
    "rows into a wider array": (PLAIN((6, 37)), sliced((6, 40), (6, 37), offset=3)),
    "rows of whole blocks": (sliced((9, 48), (9, 32)), sliced((9, 64), (9, 32), offset=16)),
    "one long run": (PLAIN((2500,), 7), PLAIN((2500,), 5)),
    "one run to the end": (PLAIN((1003,), 1), PLAIN((1003,))),
    "transposed": (transposed(PLAIN((19, 23)), (1, 0)), PLAIN((23, 19))),
    "into a transposed view": (PLAIN((23, 19)), transposed(PLAIN((19, 23)), (1, 0))),
    "channels last": (transposed(PLAIN((2, 5, 6, 11)), (0, 3, 1, 2)), PLAIN((2, 11, 5, 6))),
    "channels first": (transposed(PLAIN((2, 11, 5, 6)), (0, 2, 3, 1)), PLAIN((2, 5, 6, 11))),
    "every third": (sliced((50, 9), (50, 3), (1, 3)), PLAIN((50, 3))),
    "short rows into a wider array": (PLAIN((30, 3)), sliced((30, 5), (30, 3), offset=1)),
    "a row repeated": (View((7, 33), (0, 1)), PLAIN((7, 33))),
    "an element repeated": (View((5, 8), (0, 0), 3), PLAIN((5, 8))),
    "overlapping rows": (View((9, 40), (5, 1)), PLAIN((9, 40))),
    "three axes": (sliced((5, 6, 30), (4, 5, 20), (1, 1, 1), 31), sliced((4, 7, 25), (4, 5, 20), offset=2)),
    "a scalar": (View((), (), 4), View((), (), 2)),
    "five elements inside": (PLAIN((5,), 1), PLAIN((5,), 1)),
    "five elements": (PLAIN((5,), 1), PLAIN((5,))),
    "transposed inside": (transposed(PLAIN((30, 31)), (1, 0)), PLAIN((31, 30), 3)),
}
TO_THE_END = ("one run to the end", "five elements")


def launch_of(series, case, item, *, slack=6):
    src_view, dst_view = CASES[case]
    gm = GlobalMemory()
    src = gm.add("src", src_view.end * item, initialised=True)
    tail = 0 if case in TO_THE_END else slack
    dst = gm.add("dst", (dst_view.end + tail) * item, initialised=True)
    gm.add("guard", 64, initialised=True)
    return copy_launch(gm, src, src_view, dst, dst_view, item, PRODUCTS[series]), src, dst


def expected_of(case, src, dst):
    views = [(view.shape, view.strides, view.offset) for view in CASES[case]]
    return oracle.strided_copy(src, views[0], dst, views[1])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("series", ["310p", "910b"])
def test_copy_every_way_puts_each_element_in_its_place_and_touches_nothing_else(series, case):
    product = PRODUCTS[series]
    rng = np.random.default_rng(len(case))
    for item in (2, 4):
        launch, src, dst = launch_of(series, case, item)
        x = rng.integers(0, 1 << 16, src.byte_count // item).astype(f"u{item}")
        y = rng.integers(0, 1 << 16, dst.byte_count // item).astype(f"u{item}")
        expected = expected_of(case, x, y)
        inputs = {src: x, dst: y}
        for way, arena in ways(launch, product, inputs, seeds=(item,)):
            got = bytes_of(arena, dst).view(x.dtype)
            np.testing.assert_array_equal(got, expected, f"{item} {way}")
            assert_untouched_elsewhere(arena, launch, inputs, dst, byte_exact=series in SPLIT)


@pytest.mark.parametrize("series", ["910", "910_93"])
@pytest.mark.parametrize("item", [1, 8])
def test_copy_moves_elements_of_one_and_eight_bytes(series, item):
    rng = np.random.default_rng(item)
    for case in ("rows into a wider array", "transposed", "short rows into a wider array", "transposed inside"):
        launch, src, dst = launch_of(series, case, item)
        x = rng.integers(0, 256, src.byte_count, dtype=np.uint8).view(f"u{item}")
        y = rng.integers(0, 256, dst.byte_count, dtype=np.uint8).view(f"u{item}")
        expected = expected_of(case, x, y)
        for shortcuts in (True, False):
            arena = run(launch, PRODUCTS[series], {src: x, dst: y}, shortcuts=shortcuts)
            np.testing.assert_array_equal(bytes_of(arena, dst).view(x.dtype), expected)
        assert assert_sound(launch, PRODUCTS[series])


def random_case(rng):
    """A random shape with random strides on both sides, seldom small."""
    rank = int(rng.integers(1, 5))
    shape = tuple(int(extent) for extent in rng.integers(1, 9, rank))
    if rng.random() < 0.5:
        shape = (*shape[:-1], int(rng.integers(16, 80)))
    views = []
    for side in range(2):
        order = rng.permutation(rank) if rng.random() < 0.4 else np.arange(rank)
        strides, reach = [0] * rank, 1
        for axis in reversed(order.tolist()):
            step = reach + int(rng.integers(0, 4)) * (rng.random() < 0.4)
            if side == 0 and rng.random() < 0.1:
                step = 0
            strides[axis] = step
            reach = max(reach, step * (shape[axis] - 1) + reach)
        views.append(View(shape, tuple(strides), int(rng.integers(0, 20))))
    return views


@pytest.mark.parametrize("series", SERIES)
def test_copy_of_random_views_agrees_with_the_oracle_in_rows_and_shortcut(series):
    rng = np.random.default_rng([7, SERIES.index(series)])
    names = set()
    for _ in range(30):
        src_view, dst_view = random_case(rng)
        item = int(rng.choice([2, 4]))
        slack = int(rng.integers(0, 2)) * 9
        gm = GlobalMemory()
        src = gm.add("src", src_view.end * item, initialised=True)
        dst = gm.add("dst", (dst_view.end + slack) * item, initialised=True)
        launch = copy_launch(gm, src, src_view, dst, dst_view, item, PRODUCTS[series])
        names.add(launch.name)
        x = rng.integers(0, 1 << 16, src.byte_count // item).astype(f"u{item}")
        y = rng.integers(0, 1 << 16, dst.byte_count // item).astype(f"u{item}")
        views = [(view.shape, view.strides, view.offset) for view in (src_view, dst_view)]
        expected = oracle.strided_copy(x, views[0], y, views[1])
        for options in ({"shortcuts": True}, {"shortcuts": False}, {"order": 3, "poison": True}):
            arena = run(launch, PRODUCTS[series], {src: x, dst: y}, **options)
            np.testing.assert_array_equal(bytes_of(arena, dst).view(x.dtype), expected, str((src_view, dst_view)))
            assert_untouched_elsewhere(arena, launch, {src: x, dst: y}, dst, byte_exact=series in SPLIT)
        assert_sound(launch, PRODUCTS[series])
    assert names == ({"Copy", "Copy (scalar moves)"} if series in UNIFIED else {"Copy"})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("series", SERIES)
def test_copy_rows_are_legal_and_free_of_hazards(series, case):
    launch, _, _ = launch_of(series, case, 2)
    assert assert_sound(launch, PRODUCTS[series])


@pytest.mark.parametrize("series", SERIES)
def test_copy_of_rows_longer_than_ub_is_cut_and_shared_out(series):
    product = PRODUCTS[series]
    length = 3 * product.core.ub_bytes // 4 + 5
    gm = GlobalMemory()
    src = gm.add("src", (3 * (length + 3)) * 2, initialised=True)
    dst = gm.add("dst", (3 * length + 4) * 2, initialised=True)
    src_view, dst_view = sliced((3, length + 3), (3, length)), PLAIN((3, length), 1)
    launch = copy_launch(gm, src, src_view, dst, dst_view, 2, product)
    assert launch.core_count == product.vector_core_count
    assert_sound(launch, product)
    x = np.random.default_rng(2).integers(0, 1 << 16, src.byte_count // 2).astype(np.uint16)
    y = np.zeros(dst.byte_count // 2, np.uint16)
    expected = y.copy()
    dst_view.of(expected)[...] = src_view.of(x)
    for shortcuts in (True, False):
        arena = run(launch, product, {src: x, dst: y}, shortcuts=shortcuts)
        np.testing.assert_array_equal(bytes_of(arena, dst).view(np.uint16), expected)


@pytest.mark.parametrize("series", UNIFIED)
def test_copy_without_pads_stores_ascending_and_ends_each_range_in_an_assembled_block(series):
    """Dense output: surplus goes forward into what the same core stores later, ranges meet without a gap."""
    gm = GlobalMemory()
    src_view, dst_view = sliced((90, 50), (90, 37)), PLAIN((90, 37))
    src = gm.add("src", src_view.end * 2, initialised=True)
    dst = gm.add("dst", dst_view.end * 2, initialised=False)
    launch = copy_launch(gm, src, src_view, dst, dst_view, 2, PRODUCTS[series])
    assert launch.core_count > 1
    reach = dst.address
    for core in range(launch.core_count):
        stores = stores_of(launch, core)
        assert stores[0][0] == reach
        assert ascending(stores)
        reach = max(end for _, end in stores)
        rows = emit_rows(launch, core)
        moves = int((rows["op"] == Op.SCALAR_COPY).sum())
        if core < launch.core_count - 1:
            assert stores[-1] == (reach - 32, reach)
            assert moves == 16
        else:
            assert moves == 0
    assert 0 <= reach - (dst.address + dst.byte_count) < 32


@pytest.mark.parametrize("series", UNIFIED)
def test_copy_of_short_rows_into_a_view_stores_single_elements(series):
    launch, _, _ = launch_of(series, "short rows into a wider array", 2)
    rows = np.concatenate([emit_rows(launch, core)[["op", "dst_space"]] for core in range(launch.core_count)])
    assert launch.name == "Copy (scalar moves)"
    assert set(rows["op"].tolist()) == {Op.SCALAR_COPY}
    assert int((rows["dst_space"] == Space.GM).sum()) == 90


def test_copy_of_nothing_runs_no_row():
    gm = GlobalMemory()
    src, dst = gm.add("src", 8, initialised=True), gm.add("dst", 8, initialised=True)
    for series in SERIES:
        view = View((3, 0), (1, 1))
        launch = copy_launch(gm, src, view, dst, view, 4, PRODUCTS[series])
        assert assert_sound(launch, PRODUCTS[series]) == 0
        run(launch, PRODUCTS[series], {})


def test_merged_axes_join_neighbours_of_both_sides_only():
    assert [(a.extent, a.src, a.dst) for a in merged_axes(PLAIN((3, 4, 5)), PLAIN((3, 4, 5)))] == [(60, 1, 1)]
    cut = merged_axes(sliced((3, 4, 9), (3, 4, 5)), PLAIN((3, 4, 5)))
    assert [(a.extent, a.src, a.dst) for a in cut] == [(12, 9, 5), (5, 1, 1)]
    turned = merged_axes(transposed(PLAIN((4, 5, 3)), (2, 0, 1)), PLAIN((3, 4, 5)))
    assert [(a.extent, a.src, a.dst) for a in turned] == [(3, 1, 20), (20, 3, 1)]


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        ((64, 1000, 4, 8192, 8, 4095), (125, 64, 1)),
        ((64, 1024, 4, 8192, 8, 4095), (128, 64, 1)),
        # 16 times 4 tasks are two rounds of 48 cores, so are 16 times 6
        ((160, 2048, 16, 98_272, 48, 4095), (342, 160, 1)),
        # 64 tasks cannot be 96, and more would be smaller than UB asks for
        ((160, 512, 64, 98_272, 48, 4095), (512, 160, 1)),
        ((64, 1000, 1, 65536, 40, 4095), (25, 64, 1)),
        ((64, 3, 1, 65536, 40, 4095), (1, 64, 1)),
        ((100_000, 1, 1, 65536, 8, 4095), (1, 12_512, 8)),
        ((65_536 + 31 - 32, 100, 1, 65536, 8, 4095), (1, 65_504, 1)),
        ((65_536 + 32 - 32, 100, 1, 65536, 8, 4095), (1, 65_504, 2)),
    ],
)
def test_plan_rows_fills_ub_occupies_cores_and_leaves_no_short_piece(arguments, plan):
    got = plan_rows(*arguments)
    assert (got.group, got.piece, got.pieces) == plan


def test_copy_names_what_it_refuses():
    gm = GlobalMemory()
    src, dst = gm.add("a", 64, initialised=True), gm.add("b", 64, initialised=True)

    def text(src_view, dst_view, item=4):
        with pytest.raises(ShapeError) as caught:
            copy_launch(gm, src, src_view, dst, dst_view, item, PRODUCTS["910b"])
        return str(caught.value)

    four = PLAIN((4,))
    assert text(four, PLAIN((2, 2))) == "dst_view must have the shape (4,) of src_view, not (2, 2) (Copy)"
    assert text(four, four, 3) == "item_bytes must be one of 1, 2, 4, 8, not 3 (Copy)"
    assert text(PLAIN((17,)), PLAIN((17,))) == "view must lie within the 64 bytes of a, not reach to byte 68 (Copy)"
    assert text(four, PLAIN((4,), 13)) == "view must lie within the 64 bytes of b, not reach to byte 68 (Copy)"
    doubled = View((2, 2), (1, 1))
    assert text(PLAIN((2, 2)), doubled) == (
        f"dst_view must hold each element in a place of its own, not {doubled} (Copy)"
    )
    odd = View((2, 3), (3, 2))  # interleaved, but 0 2 4 3 5 7 are six places
    copy_launch(gm, src, PLAIN((2, 3)), dst, odd, 4, PRODUCTS["910b"])
    shape = (2,) * 9
    assert text(PLAIN(shape), View(shape, tuple(1000 * 3**i for i in range(9))), 1).startswith("view must lie within")
    for bad, message in (
        (lambda: View((2,), ()), "strides must be given for each of 1 axes, not for 0"),
        (lambda: View((2,), (-1,)), "view must have no negative shape, stride or offset, not View("),
    ):
        with pytest.raises(ShapeError) as caught:
            bad()
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize("series", SERIES)
def test_memset_clears_every_byte_of_the_tensor_and_none_behind_its_spare_ones(series):
    product = PRODUCTS[series]
    sizes = [1, 31, 32, 33, 511, 512, 513, 5000, 512 * 100 + 7]
    for size in sizes:
        gm = GlobalMemory()
        gm.add("before", 64, initialised=True)
        tensor = gm.add("y", size, initialised=False)
        gm.add("guard", 64, initialised=True)
        launch = memset_launch(gm, tensor, product)
        assert assert_sound(launch, product)
        for _, arena in ways(launch, product, {}, seeds=(size,)):
            assert not bytes_of(arena, tensor).any()
            assert_untouched_elsewhere(arena, launch, {}, tensor, byte_exact=series in SPLIT)


@pytest.mark.parametrize("series", SERIES)
def test_memset_of_nothing_runs_no_row(series):
    gm = GlobalMemory()
    assert assert_sound(memset_launch(gm, gm.add("y", 0, initialised=False), PRODUCTS[series]), PRODUCTS[series]) == 0


def test_memset_larger_than_the_buffers_of_all_cores_stores_them_again():
    product = PRODUCTS["910b"]
    gm = GlobalMemory()
    tensor = gm.add("y", 2 * 195_584 * product.vector_core_count + 77, initialised=False)
    launch = memset_launch(gm, tensor, product)
    assert launch.core_count == product.vector_core_count
    stores = [emit_rows(launch, core) for core in range(launch.core_count)]
    spans = []
    for rows in stores:
        for row in rows[rows["pipe"] == 5]:
            if row["op"] == Op.DATA_COPY:
                spans.append((int(row["dst"]), int(row["dst"]) + 32 * int(row["block_len"])))
            elif row["op"] == Op.DATA_COPY_PAD:
                spans.append((int(row["dst"]), int(row["dst"]) + int(row["block_len"])))
    assert spans[0][0] == tensor.address
    assert spans[-1][1] == tensor.address + tensor.byte_count
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
