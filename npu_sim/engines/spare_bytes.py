"""Lines of a user's kernel that work only because tensors are allocated with spare bytes behind them.

The runtime rounds allocations up (`npu_sim.memory.gm.allocated_bytes`), so what is touched there is no error. It is one
where the tensor is a part of a larger one, or an allocator rounds less.

Of the block of 32 bytes in which a tensor ends, reads are left out: DataCopy takes whole blocks, so sound kernels read
these bytes in every tail, and no allocator gives them to another tensor. Writes there are named, because the tensor may
be a part of a larger one; but not where a product has no DataCopyPad, which stores less than a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.engines.hazards import CHUNK_ROWS
from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import empty_runs, reach
from npu_sim.isa.issue import CORE_STATE_LENGTH
from npu_sim.isa.op import FROM_ROW, SPACE_OF_OPERAND
from npu_sim.isa.row import empty_rows
from npu_sim.products import Product
from npu_sim.program.disassemble import name_of
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import BLOCK_BYTES


@dataclass(slots=True)
class _Farthest:
    """Of one line, reading or writing: its access that goes farthest behind a tensor, and the tensors it leaves."""

    row: np.void
    number: int
    core: int
    tensor: int
    start: int
    end: int
    beyond: int
    tensors: set[int]


def spare_bytes(launches: Sequence[Launch], product: Product) -> list[Violation]:
    """Return advice for each line of a user's own source that reads or writes spare bytes behind a tensor.

    What leaves the allocation too is an error of `npu_sim.engines.hazards`, and not here.

    Parameters
    ----------
    launches : sequence of Launch
        Those without `Launch.lines` are nobody's source.
    product : Product
        Whether it stores less than a block.
    """
    found: list[Violation] = []
    for number, launch in enumerate(launches):
        if launch.lines:
            found += _of_launch(launch, number, product)
    return found


def _of_launch(launch: Launch, number: int, product: Product) -> Iterator[Violation]:
    lines: dict[tuple[int, bool], _Farthest] = {}
    buffer = empty_rows(max(CHUNK_ROWS, launch.step_rows))
    table = launch.gm.table()
    for core in range(launch.core_count):
        state, first = np.zeros(CORE_STATE_LENGTH, np.int64), 0
        for phase in range(launch.phase_count):
            for rows in issued_chunks(launch, core, phase, buffer, state):
                _note(lines, rows, table, core, first, stores_bytes=product.core.is_split)
                first += len(rows)
    for (site, writes), far in sorted(lines.items()):
        yield Violation(
            kind=Kind.WRITE_SPARE if writes else Kind.READ_SPARE, row=far.number, core=far.core,
            tile=int(far.row["tile"]), site=site, launch=number, space=Space.GM, start=far.start,
            length=far.end - far.start, detail=_words(launch, far, writes=writes),
        )  # fmt: skip


def _note(
    lines: dict[tuple[int, bool], _Farthest],
    rows: np.ndarray,
    table: npt.NDArray[np.int64],
    core: int,
    first: int,
    *,
    stores_bytes: bool,
) -> None:
    """Note what issued rows, the first of them row ``first`` of the core, touch behind their tensors."""
    spaces = SPACE_OF_OPERAND[rows["op"]]
    writes = np.where(spaces[:, 0] == FROM_ROW, rows["dst_space"], spaces[:, 0]) == Space.GM
    reads = np.where(spaces[:, 1] == FROM_ROW, rows["src0_space"], spaces[:, 1]) == Space.GM
    at = np.flatnonzero((writes | reads) & (rows["tensor"] >= 0) & (rows["tensor"] < len(table)))
    if not len(at):
        return
    ends = np.zeros((len(at), len(Space), 2), np.int64)
    reach(rows[at], empty_runs(), ends)
    start, end = ends[:, Space.GM, 0], ends[:, Space.GM, 1]
    tensor = rows["tensor"][at].astype(np.int64)
    data_end = table[tensor, 0] + table[tensor, 1]
    block_end = -(-data_end // BLOCK_BYTES) * BLOCK_BYTES
    free = np.where(writes[at] & stores_bytes, data_end, block_end)
    beyond = (end > free) & (end > start) & (end <= table[tensor, 0] + table[tensor, 2]) & (ends[:, 0, 0] >= 0)
    for i in np.flatnonzero(beyond).tolist():
        row = rows[at[i]]
        key, over = (int(row["site"]), bool(writes[at[i]])), int(end[i] - data_end[i])
        old = lines.get(key)
        if old is not None and over <= old.beyond:
            old.tensors.add(int(tensor[i]))
            continue
        lines[key] = _Farthest(
            row=row.copy(), number=first + int(at[i]), core=core, tensor=int(tensor[i]), start=int(start[i]),
            end=int(end[i]), beyond=over, tensors={int(tensor[i])} | (old.tensors if old is not None else set()),
        )  # fmt: skip


def _words(launch: Launch, far: _Farthest, *, writes: bool) -> str:
    tensor = launch.gm.tensors[far.tensor]
    others = [launch.gm.tensors[index].name for index in sorted(far.tensors - {far.tensor})]
    also = f" (and behind {', '.join(others)})" if others else ""
    does = "writes" if writes else "reads"
    return (
        f"{name_of(far.row)} {does} {far.beyond} bytes behind the end of {tensor.name}, which has {tensor.byte_count} "
        f"bytes{also}: that works only because allocations are rounded up"
    )
