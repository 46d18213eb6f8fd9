"""Runs of one vector launch in every way that must leave the same bytes, and the checks no launch may fail."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Op, Pipe
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from tests.oracles.series import SERIES

PRODUCTS = {alias: get_product(alias) for alias in SERIES}
BACKGROUND = 0xA5
"""Byte that fills the arena, so that a store beyond its tensor shows."""
SPARE_BYTES = 31
"""Bytes behind a tensor that a store may reach where copies are whole blocks."""


def run(launch, product, inputs, **options):
    """Execute ``launch`` on an arena that holds ``inputs`` ({tensor: array}); return a copy of the arena."""
    arena = launch.gm.arena
    arena[:] = BACKGROUND
    for tensor, array in inputs.items():
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        arena[tensor.address : tensor.address + raw.size] = raw
    execute(launch, product, ExecuteOptions(accumulation=SERIAL, **options))
    return arena.copy()


def bytes_of(arena, tensor):
    return arena[tensor.address : tensor.address + tensor.byte_count]


def patterns_of(arena, tensor, dtype):
    return bytes_of(arena, tensor).view(dtype)


def with_one_nan(patterns):
    """fp32 patterns with every NaN replaced by one: its sign and payload are the host's."""
    values = patterns.view(np.float32)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), patterns)


def ways(launch, product, inputs, seeds=(0, 1), **options):
    """Yield (description, arena) for rows and shortcut, threads, chunk lengths and legal orders."""
    for threads in (1, 3):
        for shortcuts in (True, False):
            for chunk_rows in (1, 4096):
                settings = {"threads": threads, "shortcuts": shortcuts, "chunk_rows": chunk_rows, **options}
                if not shortcuts or chunk_rows == 1:
                    yield str(settings), run(launch, product, inputs, **settings)
    for order in ("late", *seeds):
        settings = {"order": order, "poison": True, **options}
        yield str(settings), run(launch, product, inputs, **settings)


def assert_untouched_elsewhere(arena, launch, inputs, output, *, byte_exact):
    """Everything but ``output`` (and the spare bytes behind it) is as it was."""
    expected = np.full_like(arena, BACKGROUND)
    for tensor, array in inputs.items():
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        expected[tensor.address : tensor.address + raw.size] = raw
    end = output.address + output.byte_count + (0 if byte_exact else SPARE_BYTES)
    same = arena == expected
    same[output.address : end] = True
    assert same.all(), np.flatnonzero(~same)[:4]


def assert_sound(launch, product):
    """No hazard, no illegal row on the core kind, time passes, event ids and cores within the product."""
    assert launch.trusted
    assert launch.core_kind == "vector"
    assert launch.shortcut is not None
    assert 1 <= launch.core_count <= product.vector_core_count
    assert run_hazards(launch, product) == []
    total = 0
    for core in range(launch.core_count):
        rows = emit_rows(launch, core)
        total += len(rows)
        assert verify(rows, product, core_kind="vector") == []
    if total:
        assert run_timeline(launch, product).total_cycles > 0
    return total


def stores_of(launch, core):
    """[(first byte, end)] of the plain stores to GM of a core, in program order."""
    rows = emit_rows(launch, core)
    rows = rows[(rows["op"] == Op.DATA_COPY) & (rows["pipe"] == Pipe.MTE3)]
    ends = rows["dst"] + 32 * rows["block_len"].astype(np.int64)
    return list(zip(rows["dst"].tolist(), ends.tolist(), strict=True))


def ascending(stores):
    return all(a[0] < b[0] for a, b in pairwise(stores))
