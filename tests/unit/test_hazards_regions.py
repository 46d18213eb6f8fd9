"""Accesses that reach over several regions of memory, of which the checks know what any cell there ever had."""

from __future__ import annotations

import pytest

from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.hazards_book import REGION_BITS, REGIONS_ASKED
from npu_sim.isa.op import Data, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind

PRODUCT = get_product("910b")
REGION = 32 << REGION_BITS
SHORT = 512


def _read(builder, pieces, step):
    """Load short pieces to UB, from byte 32 on, by one instruction."""
    builder.data_copy(
        dst_space=Space.UB, dst=4096, src_space=Space.GM, src=32, block_count=pieces, block_len=SHORT // 32,
        src_gap=(step - SHORT) // 32, dst_gap=0, dtype=Data.FP16, tensor=0,
    )  # fmt: skip


def _store(builder, at):
    builder.data_copy_pad(
        dst_space=Space.GM, dst=at, src_space=Space.UB, src=0, block_len=64, dtype=Data.FP32, tensor=0
    )


def _program(order, at, pieces, step):
    """Return a program in which nothing orders what reads a tensor and what stores 64 bytes of it."""
    builder = ProgramBuilder(PRODUCT)
    builder.duplicate(dst=0, dtype=Data.FP32, count=64, value_bits=0)
    builder.join(Pipe.V, Pipe.MTE3)
    for access in order:
        if access == "add":
            builder.set_atomic(dtype=Data.FP32)
        if access == "read":
            _read(builder, pieces, step)
        else:
            _store(builder, at)
    if "add" in order:
        builder.set_atomic(dtype=Data.NONE)
    gm = GlobalMemory()
    gm.add("x", 64 + pieces * step, initialised=True)
    return builder.launch(gm)


@pytest.mark.parametrize("order", [("add", "read"), ("store", "read"), ("read", "store"), ("read", "add")])
@pytest.mark.parametrize("pieces", [4, 40, 200])
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_what_one_cell_of_a_far_region_had_is_found(order, pieces, where):
    step = SHORT if pieces == 4 else REGION // 2 + 32
    at = 32 + {"first": 0, "middle": pieces // 2, "last": pieces - 1}[where] * step + SHORT - 64
    spans = pieces * step / REGION
    assert (spans < 1, spans > REGIONS_ASKED) == (pieces == 4, pieces == 200)
    found = run_hazards(_program(order, at, pieces, step), PRODUCT, outputs=())
    kinds = {one.kind: (one.start, one.length) for one in found}
    wanted = Kind.SYNC_READ_HAZARD if order[1] == "read" else Kind.SYNC_WRITE_HAZARD
    assert kinds == {wanted: (at, 64)}
