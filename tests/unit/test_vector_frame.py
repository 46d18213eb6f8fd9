"""The frame that vector kernels share."""

from __future__ import annotations

import pytest

from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.common.records import int_fields, record
from ops.vector.frame import (
    block_elems,
    cores_for,
    even_share,
    has_byte_copies,
    smallest_unit,
    usable_ub_bytes,
    vector_launch,
)
from tests.oracles.series import SERIES


@pytest.mark.parametrize(
    ("series", "usable", "exact"),
    [("310p", 261120, False), ("910", 261120, False), ("910b", 195584, True), ("910_93", 195584, True)],
)
def test_frame_of_each_series_is_its_ub_less_one_kib_and_its_copies(series, usable, exact):
    product = get_product(series)
    assert usable_ub_bytes(product) == usable
    assert has_byte_copies(product) is exact


@pytest.mark.parametrize("series", SERIES)
def test_cores_never_exceed_tasks_or_cores_of_the_product(series):
    product = get_product(series)
    most = product.vector_core_count
    assert [cores_for(product, tasks) for tasks in (0, 1, 2, most - 1, most, most + 1, 10_000)] == [
        1, 1, 2, most - 1, most, most, most,
    ]  # fmt: skip


def test_smallest_unit_is_the_least_number_of_pieces_with_32_bytes():
    for item_bytes in (2, 4):
        assert block_elems(item_bytes) * item_bytes == 32
        for piece in range(1, 40):
            unit = smallest_unit(piece, item_bytes)
            assert unit * piece * item_bytes >= 32
            assert unit == 1 or (unit - 1) * piece * item_bytes < 32


def test_vector_launch_runs_trusted_on_vector_cores():
    gm = GlobalMemory()

    def nothing(rows, params, core, phase):
        return iter(())

    params = record(int_fields("cores", "step_rows"), {"cores": 3, "step_rows": 99})
    launch = vector_launch("Nothing", nothing, params, gm, {1: "ONE"})
    assert (launch.core_kind, launch.trusted, launch.phase_count) == ("vector", True, 1)
    assert (launch.core_count, launch.step_rows, launch.sites, launch.shortcut) == (3, 99, {1: "ONE"}, None)
    assert vector_launch("Nothing", nothing, params[["cores"]], gm, {}).step_rows == 64


@pytest.mark.parametrize(
    ("elems", "share", "cores"),
    [
        # profiled on 910B1 and 910B2, 48 vector cores: 1, 5, 6, 12, 23, 47 and 48 blocks
        (128, 1024, 1),
        (4608, 1024, 5),
        (6144, 1024, 6),
        (12288, 1024, 12),
        (64 * 3 * 11 * 11, 1024, 23),
        (32 * 4096, 2816, 47),
        (384 * 192 * 9, 13824, 48),
        (0, 1024, 1),
    ],
)
def test_even_share_gives_the_blocks_of_profiled_kernels(elems, share, cores):
    assert even_share(get_product("910b"), elems) == (share, cores)
