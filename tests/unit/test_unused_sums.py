"""Lines of fractals that nobody wrote and an Mmad multiplies: notes where no Fixpipe stores a sum of them."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.engines.hazards import run_hazards
from npu_sim.isa.op import Data, Mode, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind

CHIP = get_product("910b")
TILE, OF_B = 16 * 1024, 64 * 1024
"""Bytes of L1 and L0 for a tile, and where those of B begin in L1."""


def _fractals(builder, at, lines_of_each):
    """Write the first lines of fractals of L1, of those of each as many as are named."""
    for number, lines in enumerate(lines_of_each):
        if lines > 0:
            builder.data_copy(
                dst_space=Space.L1, dst=at + 512 * number, src_space=Space.GM, src=0, dtype=Data.FP16, tensor=0,
                block_count=1, block_len=min(lines, 16), src_gap=0, dst_gap=0,
            )  # fmt: skip


def _kinds(m, n, k, steps, stored, *, apart=False):
    """Return the findings of unwritten bytes of products of tiles, and the sums as matrices with NaN for such bytes.

    Parameters
    ----------
    m, n, k : int
        Of each product.
    steps : sequence of (int, int, bool)
        For each, how many lines of A and of B are written, and whether it begins anew.
    stored : (int, int)
        Rows and columns that the Fixpipe stores.
    apart : bool
        Each line of fractals of A is a load of its own.
    """
    m1, n1, k1 = -(-m // 16), -(-n // 16), -(-k // 16)
    builder, gm = ProgramBuilder(CHIP), GlobalMemory()
    gm.add("x", 4096, initialised=True)
    gm.add("y", 64 * 64 * 4, is_output=True, initialised=False)
    total = np.zeros((m, n))
    for number, (rows, columns, begins) in enumerate(steps):
        a, b = TILE * number, TILE * number
        _fractals(builder, a, [rows - 16 * i for i in range(m1) for _ in range(k1)])
        _fractals(builder, OF_B + b, [columns - 16 * j for _ in range(k1) for j in range(n1)])
        builder.join(Pipe.MTE2, Pipe.MTE1, 0)
        loads = {"start_index": 0, "src_stride": 1, "dst_gap": 0, "mode": 0, "dtype": Data.FP16, "src_space": Space.L1}
        for i in range(m1) if apart else (0,):
            place = a + 512 * k1 * i
            builder.load_2d(dst_space=Space.L0A, dst=place, src=place, repeat=k1 * (1 if apart else m1), **loads)
        builder.load_2d(dst_space=Space.L0B, dst=b, src=OF_B + b, repeat=k1 * n1, **loads)
        builder.join(Pipe.MTE1, Pipe.M, 0)
        builder.mmad(dst=0, src_a=a, src_b=b, dtype=Data.FP16, m=m, n=n, k=k, mode=Mode.INIT if begins else 0)
        builder.pipe_barrier(Pipe.M)
        one, other = np.ones((m, k)), np.ones((k, n))
        one[rows:], other[:, columns:] = np.nan, np.nan
        total = (0 if begins else total) + one @ other
    builder.join(Pipe.M, Pipe.FIX, 0)
    builder.fixpipe(
        dst_space=Space.GM, dst=gm.tensors[1].address, src=0, dst_dtype=Data.FP32, m_size=stored[0], n_size=stored[1],
        src_stride=16 * m1, dst_stride=64, mode=Mode.NZ2ND, tensor=1,
    )  # fmt: skip
    found = run_hazards(builder.launch(gm, core_kind="cube"), CHIP, outputs=())
    return [one.kind for one in found if one.kind.value.startswith("ErrorRead2")], total


NOTE, ERROR = Kind.READ_UNUSED, Kind.READ_UNINITIALISED


@pytest.mark.parametrize(
    ("written", "stored", "kind"),
    [((20, 32), (20, 32), NOTE), ((20, 32), (21, 32), ERROR), ((32, 17), (32, 17), NOTE), ((32, 17), (32, 18), ERROR)],
)
def test_lines_behind_the_last_are_a_note(written, stored, kind):
    found, _ = _kinds(32, 32, 32, [(*written, True)], stored)
    assert found == [kind]


def test_loads_that_only_fill_a_tile_up_are_a_note():
    # of 48 lines 20 are written: the second load takes some of them, the third none
    assert _kinds(48, 16, 32, [(20, 16, True)], (20, 16), apart=True)[0] == [NOTE, NOTE]
    assert _kinds(48, 16, 32, [(20, 16, True)], (32, 16), apart=True)[0] == [ERROR, NOTE]
    assert _kinds(48, 16, 32, [(20, 16, True)], (33, 16), apart=True)[0] == [ERROR, ERROR]
    # what no product takes was meant for something
    assert _kinds(16, 16, 32, [(0, 16, True)], (16, 16), apart=True)[0] == [ERROR]


def test_sums_live_until_a_product_begins_anew():
    assert _kinds(32, 16, 16, [(20, 16, True), (32, 16, False)], (32, 16))[0] == [ERROR]
    assert _kinds(32, 16, 16, [(20, 16, True), (32, 16, True)], (32, 16))[0] == [NOTE]
    assert _kinds(32, 16, 16, [(32, 16, True), (20, 16, False)], (20, 16))[0] == [NOTE]


@pytest.mark.parametrize("seed", range(60))
def test_random_products_are_judged_as_their_matrices_say(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(one) for one in (rng.integers(2, 49), rng.integers(1, 49), rng.integers(1, 40)))
    full = 16 * -(-m // 16), 16 * -(-n // 16)
    steps, bad = [(*full, bool(number == 0 or rng.random() < 0.3)) for number in range(3)], int(rng.integers(3))
    rows = int(rng.integers(max(full[0] - 15, 1), full[0]))
    columns = int(rng.integers(max(full[1] - 15, 1), full[1]))
    lines = (rows, full[1]) if rng.random() < 0.5 else (full[0], columns)
    steps[bad] = (*lines, steps[bad][2])
    stored = int(rng.integers(max(1, min(rows, m) - 1), m + 1)), int(rng.integers(max(1, min(columns, n) - 1), n + 1))
    found, sums = _kinds(m, n, k, steps, stored)
    is_used = bool(np.isnan(sums[: stored[0], : stored[1]]).any())
    assert found == [ERROR if is_used else NOTE]
