"""DataCopy: blocks of 32-byte blocks between GM, L1 and UB, adding in GM in atomic mode."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.atomic import EXTREMES, add_to_gm, atomic_kind, can_add
from npu_sim.isa.codes import ARCHS, C100, C220, M200, Data, Mode, Pipe, Space
from npu_sim.isa.cost_paths import plain, read_gm, store_gm
from npu_sim.isa.cost_rates import UNSUPPORTED, amount
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, READ, line, store_access
from npu_sim.isa.footprint_extent import block_extent
from npu_sim.isa.instruction import ANY, DEVKIT, UNIFIED, WORD, Instruction
from npu_sim.isa.mte import BLOCK, copy_blocks, item_bytes
from npu_sim.isa.names import path_name

OP = 6


@jit
def pipe_of_copy(dst_space, src_space):
    """Return the pipe a DataCopy between two spaces runs on; `Pipe.ALL` if the path does not exist anywhere."""
    if src_space == Space.GM and (dst_space == Space.L1 or dst_space == Space.UB):
        return Pipe.MTE2
    if src_space == Space.UB and (dst_space == Space.GM or dst_space == Space.L1):
        return Pipe.MTE3
    if src_space == Space.L1 and dst_space == Space.GM:
        return Pipe.MTE3
    if src_space == Space.L1 and dst_space == Space.UB:
        return Pipe.MTE1
    if src_space == Space.UB and dst_space == Space.UB:
        return Pipe.V
    return Pipe.ALL


emit_data_copy = emitter(
    "data_copy",
    OP,
    "pipe_of_copy(dst_space, src_space)",
    "dst_space dst src_space=src0_space src=src0 block_count block_len src_gap dst_gap dtype tensor",
    """DataCopy: ``block_count`` blocks of ``block_len`` x 32 bytes; gaps in 32 bytes, end to start.

``dtype`` matters only for atomic adds; ``tensor`` is the GM tensor of the GM side (-1: none).""",
    names={"pipe_of_copy": pipe_of_copy},
)


@jit
def footprint(row, out):
    blocks, length = np.int64(row["block_count"]), np.int64(row["block_len"]) * BLOCK
    src_step = length + np.int64(row["src_gap"]) * BLOCK
    dst_step = length + np.int64(row["dst_gap"]) * BLOCK
    count = line(out, NONE, np.int64(row["src0_space"]), READ, np.int64(row["src0"]), length, blocks, src_step)
    return line(
        out, count, np.int64(row["dst_space"]), store_access(row), np.int64(row["dst"]), length, blocks, dst_step
    )


@jit
def extent(row):
    """Bytes in GM."""
    return block_extent(row, BLOCK)


@jit
def log_demand(row):
    """One run a block."""
    blocks = np.int64(row["block_count"])
    return blocks, blocks * np.int64(row["block_len"]) * 32


@jit
def run(row, gm, l1, ub, sink, log_runs, log_bytes):
    """DataCopy between raw byte spaces, adding in GM when the row says so."""
    count = np.int64(row["block_count"])
    length = np.int64(row["block_len"]) * 32
    src_step = length + np.int64(row["src_gap"]) * 32
    dst_step = length + np.int64(row["dst_gap"]) * 32
    src_at, dst_at = np.int64(row["src0"]), np.int64(row["dst"])
    src_space = row["src0_space"]
    src = gm if src_space == Space.GM else (l1 if src_space == Space.L1 else ub)
    dst_space = row["dst_space"]
    dst = gm if dst_space == Space.GM else (l1 if dst_space == Space.L1 else ub)
    if row["mode"] & Mode.ATOMIC and dst_space == Space.GM:
        if not can_add(row["dtype"]):
            return False
        elements = length // item_bytes(row["dtype"])
        for i in range(count):
            add_to_gm(
                dst,
                dst_at + i * dst_step,
                src,
                src_at + i * src_step,
                elements,
                atomic_kind(row["mode"], row["dtype"]),
                sink,
                log_runs,
                log_bytes,
            )
    else:
        copy_blocks(dst, dst_at, src, src_at, count, length, src_step, dst_step)
    return True


@jit
def cost(row, cost):
    rows = np.int64(row["block_count"])
    byte_count = amount(rows, np.int64(row["block_len"]), np.int64(32))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    source, target = row["src0_space"], row["dst_space"]
    has_gaps = rows > 1 and (row["src_gap"] != 0 or row["dst_gap"] != 0)
    ub_floor = cost["ub_row_floor_millicycles"] if has_gaps else np.int64(0)
    if source == Space.GM:
        if target == Space.L1:
            return read_gm(
                byte_count,
                rows,
                cost["gm_row_floor_millicycles"] if has_gaps else np.int64(0),
                cost["gm_to_l1_command_cycles"],
                cost["gm_to_l1_millibytes_per_cycle"],
                np.int64(0),
                cost["gm_to_l1_isolated_cycles"],
                cost["gm_to_l1_isolated_millibytes_per_cycle"],
                cost,
            )
        return read_gm(
            byte_count,
            rows,
            ub_floor,
            cost["gm_to_ub_command_cycles"],
            cost["gm_to_ub_millibytes_per_cycle"],
            np.int64(0),
            cost["gm_to_ub_isolated_cycles"],
            cost["gm_to_ub_isolated_millibytes_per_cycle"],
            cost,
        )
    if target == Space.GM:
        atomic = (row["mode"] & Mode.ATOMIC) != 0
        rate = cost["ub_to_gm_millibytes_per_cycle"] if source == Space.UB else cost["l1_to_gm_millibytes_per_cycle"]
        return store_gm(byte_count, rows, ub_floor, False, rate, atomic, cost)
    if source == Space.UB and target == Space.UB:
        return plain(byte_count, cost["ub_to_ub_millibytes_per_cycle"], cost["vector_minimum_cycles"])
    if source == Space.UB and target == Space.L1:
        return plain(byte_count, cost["ub_to_l1_millibytes_per_cycle"], np.int64(1))
    if source == Space.L1 and target == Space.UB:
        return plain(byte_count, cost["l1_to_ub_millibytes_per_cycle"], np.int64(1))
    return np.int64(UNSUPPORTED), np.int64(0), byte_count


def check(chunk, index):
    """Check what can be added to GM."""
    mode = chunk.column(index, "mode")
    sources = [Space.UB] if chunk.product.arch in UNIFIED else [Space.UB, Space.L1]
    stores, source = chunk.column(index, "dst_space") == Space.GM, chunk.column(index, "src0_space")
    bad = (mode & Mode.ATOMIC != 0) & ~(stores & np.isin(source, sources))
    names = " or ".join(space.name for space in sources)
    chunk.unsupported(index, bad, lambda row: f"with atomic add must go from {names} to GM, not {path_name(row)}")
    bad = (mode & EXTREMES != 0) & ~(stores & (source == Space.UB))
    chunk.unsupported(index, bad, lambda row: f"with atomic max or min must go from UB to GM, not {path_name(row)}")


_ROUTES = {
    (Space.L1, Space.GM): Pipe.MTE2,
    (Space.UB, Space.GM): Pipe.MTE2,
    (Space.GM, Space.UB): Pipe.MTE3,
    (Space.GM, Space.L1): Pipe.MTE3,
    (Space.L1, Space.UB): Pipe.MTE3,
    (Space.UB, Space.L1): Pipe.MTE1,
    (Space.UB, Space.UB): Pipe.V,
}
_UNIFIED_PATHS = frozenset(_ROUTES) - {(Space.GM, Space.L1)}


INSTRUCTION = Instruction(
    api="DataCopy",
    emit=emit_data_copy,
    source=DEVKIT + "DataCopy with DataCopyParams; lengths and gaps in 32-byte blocks",
    routes=_ROUTES,
    paths={
        C100: _UNIFIED_PATHS,
        M200: _UNIFIED_PATHS,
        C220: frozenset(_ROUTES) - {(Space.UB, Space.L1), (Space.L1, Space.UB)},
    },
    ranges=(("block_count", 0, 4095), ("block_len", 0, WORD), ("src_gap", 0, WORD), ("dst_gap", 0, WORD)),
    dtypes=dict.fromkeys(ARCHS, ANY),
    modes={C100: int(Mode.ATOMIC), M200: int(Mode.ATOMIC), C220: Mode.ATOMIC | EXTREMES},
    adds=True,
    footprint=footprint,
    run=run,
    cost=cost,
    extent=extent,
    log_demand=log_demand,
    check=check,
    defaults={"block_count": 1, "src_gap": 0, "dst_gap": 0, "dtype": Data.NONE, "tensor": -1},
)
