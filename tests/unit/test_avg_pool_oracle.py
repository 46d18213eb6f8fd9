"""The definition of the pooling gradient against PyTorch's numbers and worked examples; extents against counting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from npu_sim import get_product
from ops.avg_pool.call import AvgPoolCall, PoolAxis, divisors
from tests.long.avg_pool_torch import allowed, out_of, random_config
from tests.oracles.pooling import Pooling, input_gradient, output_extent, positions

GOLDEN = Path(__file__).parents[1] / "golden" / "torch_avg_pool2d" / "cases.jsonl"


def test_avg_pool_oracle_gives_the_numbers_of_pytorch():
    lines = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    seen = {"ceil_mode": 0, "count_include_pad": 0, "divisor_override": 0}
    for case in lines:
        pairs = {name: tuple(case[name]) for name in ("kernel", "stride", "pad")}
        pooling = Pooling(**pairs, **{name: case[name] for name in seen})
        extents = tuple(case["extents"])
        assert out_of(extents, pooling) == tuple(case["out"])
        grad = np.random.default_rng(case["seed"]).standard_normal((2, *case["out"]))
        error = np.abs(input_gradient(grad, extents, pooling)[0].reshape(-1) - case["gradient"])
        assert (error <= allowed(extents, grad, pooling)[0].reshape(-1)).all(), case["seed"]
        for name in seen:
            seen[name] += bool(case[name])
    assert len(lines) == 60
    assert min(seen.values()) > 15


def test_avg_pool_oracle_shares_a_window_among_what_lies_under_it():
    grad = np.array([[12.0, 6.0]])
    pooling = Pooling(kernel=(1, 3), stride=(1, 2), pad=(0, 1))
    assert input_gradient(grad, (1, 3), pooling).tolist() == [[4.0, 6.0, 2.0]]
    assert input_gradient(grad, (1, 3), Pooling(**{**vars(pooling), "count_include_pad": False})).tolist() == [
        [6.0, 9.0, 3.0]
    ]
    assert input_gradient(grad, (1, 3), Pooling(**{**vars(pooling), "divisor_override": -2})).tolist() == [
        [-6.0, -9.0, -3.0]
    ]


def test_avg_pool_extents_and_divisors_are_the_counted_ones():
    """The formulas of the call against windows placed and positions counted one by one."""
    rng = np.random.default_rng(12)
    for _ in range(400):
        extents, pooling = random_config(rng)
        axes = tuple(
            PoolAxis(name=name, x=x, y=y, kernel=k, stride=s, pad=p)
            for name, x, y, k, s, p in zip(
                "HW", extents, out_of(extents, pooling), pooling.kernel, pooling.stride, pooling.pad, strict=True
            )
        )
        counted = []
        for number, axis in enumerate(axes):
            assert axis.expected_y(pooling.ceil_mode) == axis.y
            counted.append([positions(window, axis.x, number, pooling) for window in range(axis.y)])
            assert axis.covered.tolist() == [len(inside) for inside, _ in counted[-1]]
            assert axis.padded.tolist() == [padded for _, padded in counted[-1]]
            assert axis.is_clipped == any(padded < axis.kernel for _, padded in counted[-1])
        call = AvgPoolCall(
            product=get_product("910b"), grad_output=None, input=None, kernel_size=None, stride=None, padding=None,
            ceil_mode=pooling.ceil_mode, count_include_pad=pooling.count_include_pad,
            divisor_override=pooling.divisor_override, cube_math_type=0, grad_input=None,
        )  # fmt: skip
        for oh, (rows, padded_rows) in enumerate(counted[0]):
            for ow, (columns, padded_columns) in enumerate(counted[1]):
                area = padded_rows * padded_columns if pooling.count_include_pad else len(rows) * len(columns)
                wanted = (pooling.divisor_override or area) if rows and columns else 0
                assert divisors(call, axes)[oh, ow] == wanted


def test_avg_pool_windows_behind_the_input_cover_nothing_and_divide_nothing():
    """Only a gradOutput of another shape has such windows."""
    rows = PoolAxis(name="H", x=4, y=4, kernel=2, stride=2, pad=0)
    columns = PoolAxis(name="W", x=3, y=4, kernel=2, stride=2, pad=1)
    assert rows.covered.tolist() == [2, 2, 0, 0]
    assert columns.covered.tolist() == [1, 2, 0, 0]
    assert columns.padded.tolist() == [2, 2, 1, 0]
    call = AvgPoolCall(
        product=get_product("910b"), grad_output=None, input=None, kernel_size=None, stride=None, padding=None,
        ceil_mode=False, count_include_pad=True, divisor_override=0, cube_math_type=0, grad_input=None,
    )  # fmt: skip
    for changes, first in (({}, 4), ({"count_include_pad": False}, 2), ({"divisor_override": -7}, -7)):
        found = divisors(replace(call, **changes), (rows, columns))
        assert found[0, 0] == first
        assert (found[2:] == 0).all()
        assert (found[:, 2:] == 0).all()


def test_avg_pool_oracle_extent_by_placing_windows():
    assert output_extent(6, 3, 2, 0, False) == 2
    assert output_extent(6, 3, 2, 0, True) == 3
    assert output_extent(9, 2, 2, 1, True) == 5  # a sixth would start in the padding behind
    assert output_extent(2, 3, 1, 0, True) == 0
    assert output_extent(3, 5, 3, 0, True) == 1  # less than a stride is missing for the first
