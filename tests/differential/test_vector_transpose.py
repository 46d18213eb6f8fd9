"""Transpose launches against NumPy: rows, shortcut and every legal order; only A2 and A3 have the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.errors import ProductError, ShapeError
from npu_sim.memory.gm import GlobalMemory
from ops.vector.transpose import tile_shape, transpose_launch
from tests.differential.vector_runs import PRODUCTS, assert_sound, assert_untouched_elsewhere, bytes_of, run, ways
from tests.oracles.series import SPLIT, UNIFIED
from tests.oracles.trans_data import machine


def launch_of(rows, columns, item, product):
    gm = GlobalMemory()
    src = gm.add("src", rows * columns * item, initialised=True)
    dst = gm.add("dst", rows * columns * item, initialised=False)
    gm.add("guard", 64, initialised=True)
    return transpose_launch(gm, src, dst, rows, columns, item, product), src, dst


@pytest.mark.parametrize("item", [2, 4])
@pytest.mark.parametrize("series", SPLIT)
def test_transpose_every_way_turns_the_matrix_and_touches_nothing_else(series, item):
    rng = np.random.default_rng(item)
    product = PRODUCTS[series]
    for rows, columns in ((1, 1), (1, 40), (33, 1), (15, 17), (16, 16), (100, 7), (5, 130)):
        launch, src, dst = launch_of(rows, columns, item, product)
        x = rng.integers(0, 1 << 16, (rows, columns)).astype(f"u{item}") * np.array(40503, f"u{item}")
        for _, arena in ways(launch, product, {src: x}, seeds=(rows,)):
            np.testing.assert_array_equal(bytes_of(arena, dst).view(x.dtype).reshape(columns, rows), x.T)
            assert_untouched_elsewhere(arena, launch, {src: x}, dst, byte_exact=True)
        assert assert_sound(launch, product)


@pytest.mark.parametrize("item", [2, 4])
def test_transpose_of_many_tiles_on_few_cores_with_little_ub(item):
    product = machine("910b", cores=3, ub_bytes=8192)
    rng = np.random.default_rng(4)
    for rows, columns in ((130, 75), (40, 300), (7, 900)):
        launch, src, dst = launch_of(rows, columns, item, product)
        assert launch.params["tasks"][0] > 3
        x = rng.integers(0, 1 << 16, (rows, columns)).astype(f"u{item}")
        for shortcuts in (True, False):
            arena = run(launch, product, {src: x}, shortcuts=shortcuts)
            np.testing.assert_array_equal(bytes_of(arena, dst).view(x.dtype).reshape(columns, rows), x.T)
        assert assert_sound(launch, product)


@pytest.mark.parametrize(
    ("rows", "columns", "item", "tile"),
    [
        (40_000, 64, 2, (752, 64)),
        (3000, 64, 2, (64, 64)),
        (5, 200_000, 2, (16, 3056)),
        (5, 10_000, 2, (16, 224)),
        (200, 10_000, 4, (144, 160)),
        (20, 20, 4, (16, 16)),
    ],
)
def test_transpose_tile_is_square_and_every_core_has_one_if_there_are_enough(rows, columns, item, tile):
    assert tile_shape(rows, columns, item, PRODUCTS["910b"]) == tile


def test_transpose_of_nothing_runs_no_row():
    for rows, columns in ((0, 5), (5, 0)):
        launch, _, _ = launch_of(rows, columns, 2, PRODUCTS["910b"])
        assert assert_sound(launch, PRODUCTS["910b"]) == 0
        run(launch, PRODUCTS["910b"], {})


def test_transpose_names_what_it_refuses():
    cases = [
        (ProductError, (4, 4, 2), UNIFIED[0], "Transpose must run on a product with DataCopyPad, not on Ascend310P3"),
        (ShapeError, (4, 4, 8), "910b", "item_bytes must be one of 2, 4, not 8 (Transpose, Ascend910B2)"),
    ]
    for error, arguments, series, message in cases:
        with pytest.raises(error) as caught:
            launch_of(*arguments, PRODUCTS[series])
        assert str(caught.value) == message
    gm = GlobalMemory()
    a, b = gm.add("a", 64, initialised=True), gm.add("b", 60, initialised=False)
    with pytest.raises(ShapeError) as caught:
        transpose_launch(gm, a, b, 4, 8, 2, PRODUCTS["910b"])
    assert str(caught.value) == "b must be 4 x 8 elements of 2 bytes, not 60 bytes (Transpose, Ascend910B2)"
