"""Every row of the matrix product kernel can be encoded, and a step never writes behind its buffer."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.matmul.plan import matmul_launches
from ops.matmul.tiling import MatmulShape
from tests.oracles.series import SERIES

CASES = 40
GUARD = 8192
MOST_CHUNKS = 20
FAR = 16 * 65536
"""Columns from which the rows of a matrix lie too far apart for one copy on unified cores, and more than on split."""


def extreme_shape(rng, is_split):
    """Draw extents that are small or at a limit each by itself, of matrices stored in any way."""
    m = n = k = 2**31
    # addresses have 48 bits
    while max(m * n, m * k, n * k) > 2**44:
        m, n, k = (
            int(rng.integers(1, 1 + rng.choice((1, 17, 130, 2000, 70_000, 2 * FAR, 2**31)))) for _ in range(3)
        )  # fmt: skip
    # in memory matrices on unified cores have rows of whole blocks
    if not is_split:
        m, n, k = (-(-extent // 16) * 16 for extent in (m, n, k))
    in_fractals = rng.random(3) < 0.2
    return MatmulShape(
        m=m, n=n, k=k, a_transposed=bool(rng.random() < 0.5), b_transposed=bool(rng.random() < 0.5),
        batch=int(rng.integers(1, 4)), b_batched=bool(rng.random() < 0.5),
        **{f"{name}_nz": bool(there) for name, there in zip("abc", in_fractals, strict=True)},
    )  # fmt: skip


@pytest.mark.parametrize("series", SERIES)
def test_matmul_rows_of_extreme_products_are_legal_and_stay_in_the_buffer(series):
    rng = np.random.default_rng([SERIES.index(series), 17])
    product, far, checked = get_product(series), 0, 0
    for _ in range(CASES):
        shape = extreme_shape(rng, product.core.is_split)
        gm = GlobalMemory()
        # rows have addresses, and nothing is there
        a, b, c = (gm.add(name, 64, initialised=True) for name in "abc")
        compute = "fp32" if product.core.is_split and not (shape.a_nz or shape.b_nz) and rng.random() < 0.5 else "fp16"
        (launch,) = matmul_launches(shape, product, compute, "fp32", gm, a, b, c).launches
        # exactly one step fits: what is written behind the buffer shows in the guard
        memory = empty_rows(launch.step_rows + GUARD)
        rows = memory[: launch.step_rows]
        for core in {0, launch.core_count - 1}:
            parts = []
            for count in islice(launch.rows(core, 0, rows), MOST_CHUNKS):
                assert not memory[launch.step_rows :].view(np.uint8).any(), shape
                parts.append(rows[:count].copy())
            program = join_rows(parts)
            assert verify(program, product) == [], shape
            checked += len(program)
        far += max(shape.m, shape.n, shape.k) > FAR
    assert checked > 10_000
    assert CASES // 4 <= far < CASES
