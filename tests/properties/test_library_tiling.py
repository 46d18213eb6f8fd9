"""The search of the tiling library against its twin, for random convolutions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_factors import factor_at_most, part, parts
from ops.conv3d_backprop_filter.tiling_library import library_tiling
from tests.oracles import dw_cycle_twin as twin
from tests.oracles.dw_tiling import random_geometry

DTYPES = ("fp16", "bf16", "fp32", "hf32")


def layer(rng: np.random.Generator) -> ConvGeometry:
    """A convolution of the extents that networks have, up to 4096 channels and 1000 columns."""
    while True:
        kernel = [int(rng.choice((1, 1, 2, 3))), *(int(tap) for tap in rng.choice((1, 2, 3, 5, 7), 2))]
        groups = int(rng.choice((1, 1, 1, 2, 3, 8)))
        cin, cout = (groups * int(count) for count in rng.choice((1, 3, 16, 24, 64, 100, 256, 512), 2))
        stride, dilation = (tuple(int(step) for step in rng.choice(of, 3)) for of in ((1, 1, 2, 3, 5), (1, 1, 2)))
        pad = tuple(int(columns) for columns in rng.integers(0, 3, 6))
        x = [int(rng.choice(of)) for of in ((1, 2, 5, 9), (1, 7, 14, 28, 57, 129), (1, 7, 14, 56, 113, 224, 1000))]
        spans = [x[i] + pad[2 * i] + pad[2 * i + 1] - dilation[i] * (kernel[i] - 1) - 1 for i in range(3)]
        if min(spans) >= 0:
            break
    y = [span // step + 1 for span, step in zip(spans, stride, strict=True)]
    return ConvGeometry(
        n=int(rng.choice((1, 2, 3, 4, 8, 17, 24, 64))), cin=cin, cout=cout, groups=groups, di=x[0], hi=x[1], wi=x[2],
        do=y[0], ho=y[1], wo=y[2], kd=kernel[0], kh=kernel[1], kw=kernel[2], stride=stride, pad=pad, dilation=dilation,
    )  # fmt: skip


@pytest.mark.parametrize("cores", [1, 5, 20, 24, 25])
def test_library_tiling_equals_its_twin(cores: int) -> None:
    rng = np.random.default_rng(cores)
    kinds: Counter[object] = Counter()
    for number in range(250):
        geometry = layer(rng) if number % 2 else random_geometry(rng, large=number % 3 == 0)
        dtype = str(rng.choice(DTYPES))
        wanted = twin.choose(geometry, 4 if dtype in ("fp32", "hf32") else 2, dtype == "hf32", cores)
        found = library_tiling(geometry, dtype, cores)
        if wanted is None:
            assert found is None, (geometry, dtype)
            kinds["refused"] += 1
            continue
        assert found is not None, (geometry, dtype)
        share, block = found.share, found.block
        names = ("batch_dim", "d_dim", "group_dim", "m_dim", "k_dim", "n_dim", "batch", "group")
        assert {name: getattr(share, name) for name in names} == {name: wanted[name] for name in names}
        assert (block.m, block.n, block.k) == (wanted["l0_m"], wanted["l0_n"], wanted["l0_k"]), (geometry, dtype)
        assert (block.m_l1, block.n_l1) == (wanted["m_al1"], wanted["n_bl1"])
        assert (block.k_al1, block.k_bl1) == (wanted["k_al1"], wanted["k_bl1"])
        assert (block.buffers_a, block.buffers_b, block.buffers_c) == (wanted["db_a"], wanted["db_b"], wanted["db_c"])
        whole = block.k_al1 == share.k, block.k_bl1 == share.k
        kinds[whole, np.sign(block.k_al1 - block.k_bl1).item()] += 1
    assert len(kinds) >= 5, kinds


def test_parts_are_divisors_of_the_extent_or_of_a_power_of_two_near_it_and_of_the_cores() -> None:
    assert parts(12, 24) == (1, 2, 3, 4, 6, 8, 12)
    # 17 is prime: parts of 32
    assert parts(17, 24) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert parts(17, 20) == (1, 2, 4, 5, 8, 10, 16)
    # 11 is less than 16 and stays itself
    assert parts(11, 20) == (1, 2, 4, 5, 10, 11)


def test_part_is_an_extent_with_enough_divisors() -> None:
    assert part(24, 2, 24) == 12
    # two parts of 34 are 17, which has two divisors; the next with more towards 64 / 2 is 18
    assert part(34, 2, 24) == 18
    assert part(7, 1, 24) == 7


def test_factor_at_most_is_the_largest_divisor() -> None:
    assert [factor_at_most(12, most) for most in (1, 5, 11, 12, 99)] == [1, 4, 6, 12, 12]
