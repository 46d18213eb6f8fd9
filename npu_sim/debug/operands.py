"""What an instruction reads and writes, as numbers: matrices where it takes matrices, else elements as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from npu_sim._jit import as_written
from npu_sim.debug.views import SpaceView, lanes_of
from npu_sim.dtypes.formats import DTYPE_OF_DATA, DType
from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.isa.footprint import READ, empty_runs, footprint_at
from npu_sim.isa.mmad_depth import depths_of
from npu_sim.isa.op import MMADS, SPEC_OF_OP, Op
from npu_sim.isa.sparse import INDEX_FRACTAL, index_address
from npu_sim.memory.core import CoreMemory
from npu_sim.units import FRACTAL_BYTES, ceil_div

_FRACTAL_ELEMENTS = FRACTAL_BYTES // 2
_RUNS = empty_runs()


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One operand of an instruction.

    Attributes
    ----------
    role : str
        "reads L0A", "writes UB", "adds to GM", ...
    space : Space
    start : int
        Address of its first byte.
    dtype : DType
    values : array
        The matrix [rows, columns] (ND) where it is one; else the elements in the order of their addresses.
    fractals : array or None
        The same fractal by fractal, where it consists of fractals.
    """

    role: str
    space: Space
    start: int
    dtype: DType
    values: np.ndarray
    fractals: np.ndarray | None = None


def runs_of(rows: np.ndarray, at: int) -> list[tuple[int, ...]]:
    """Return what row ``at`` touches: space, access, first byte, bytes, repetitions, stride (`isa.footprint`)."""
    count = int(footprint_at(rows, at, _RUNS))
    return [tuple(run) for run in _RUNS[: max(count, 0)].tolist()]


def strided(held: np.ndarray, run: Sequence[int]) -> np.ndarray:
    """Return the bytes of a run as [repetitions, bytes], a view into ``held``, which has an element for each byte."""
    _, _, start, length, repeats, stride = run
    item = held.itemsize
    return np.lib.stride_tricks.as_strided(held[start:], (repeats, length), (stride * item, item))


def bytes_of(
    runs: Sequence[Sequence[int]], space: Space, memory: CoreMemory, gm: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Return what the runs of one space hold, in their order; of L0A and L0B the carriers of whole fractals."""
    if space in (Space.L0A, Space.L0B):
        carriers = memory.l0a if space is Space.L0A else memory.l0b
        touched: list[int] = []
        for _, _, start, length, repeats, stride in runs:
            for i in range(repeats):
                first = start + i * stride
                touched += range(first // FRACTAL_BYTES, ceil_div(first + length, FRACTAL_BYTES))
        whole = carriers.reshape(-1, _FRACTAL_ELEMENTS)[list(dict.fromkeys(touched))]
        return whole.reshape(-1).view(np.uint8)
    held = gm if space is Space.GM else getattr(memory, space.name.lower()).view(np.uint8)
    return np.concatenate([strided(held, run).reshape(-1) for run in runs])


def _sums_of(row: np.void) -> Data:
    """Return what L0C holds where a row adds up or takes sums."""
    op, dtype, dst_dtype = Op(int(row["op"])), Data(int(row["dtype"])), Data(int(row["dst_dtype"]))
    of_integers = (
        dtype in (Data.INT8, Data.INT32)
        if op in (*MMADS, Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES)
        else dst_dtype == Data.INT32
    )
    return Data.INT32 if of_integers else Data.FP32


def type_of(row: np.void, space: Space, *, is_write: bool) -> DType:
    """Return the element type of what a row reads or writes in a space."""
    if space is Space.L0C:
        return DTYPE_OF_DATA[_sums_of(row)]
    fields = SPEC_OF_OP[int(row["op"])].fields
    code = Data(int(row["dst_dtype" if is_write and "dst_dtype" in fields else "dtype"]))
    return DTYPE_OF_DATA[Data.UINT8 if code == Data.NONE else code]


def operands_of(
    rows: np.ndarray, at: int, memory: CoreMemory, gm: npt.NDArray[np.uint8], *, written: bool
) -> list[Operand]:
    """Return what row ``at`` reads (``written``: what it writes) as the memory is now.

    Parameters
    ----------
    rows : INSTR[n]
        Issued.
    at : int
    memory : CoreMemory
    gm : uint8[n]
    written : bool
    """
    row = rows[at]
    if int(row["op"]) in MMADS and row["m"] > 1:  # one row of A lies in a line
        return _of_mmad(row, memory, written=written)
    groups: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for run in runs_of(rows, at):
        if (run[1] != READ) == written:
            groups.setdefault((run[0], run[1]), []).append(run)
    found = []
    for (number, access), runs in groups.items():
        space = Space(number)
        kind = type_of(row, space, is_write=written)
        data = bytes_of(runs, space, memory, gm)
        fractals = None
        if int(row["op"]) == Op.FIXPIPE and space is Space.L0C and len(runs) and _is_whole(row):
            m, n, at = int(row["m_size"]), int(row["n_size"]), int(row["src0"])
            sums = SpaceView(Space.L0C, memory)
            values, fractals = sums.matrix(kind, m, n, at), sums.fractals(kind, ceil_div(m, 16) * ceil_div(n, 16), at)
        elif space in (Space.L0A, Space.L0B):
            values = fractals = lanes_of(data.view(np.float32).reshape(-1, 16, 16), kind)
        else:
            values = data[: len(data) - len(data) % kind.item_bytes].view(kind.storage)
        verb = ("reads", "writes", "adds to")[access]
        found.append(Operand(f"{verb} {space.name}", space, runs[0][2], kind, values, fractals))
    return found


def _is_whole(row: np.void) -> bool:
    """Return whether a Fixpipe reads one matrix whose columns of fractals lie one behind the other."""
    return bool(row["src_stride"] == ceil_div(int(row["m_size"]), 16) * 16 and row["nd_num"] <= 1)


def _of_pairs(operand: Operand, axis: int) -> Operand:
    """Return an operand of bytes with the two elements of int4 that each holds, k along ``axis`` of the matrix."""
    values = _unpacked(np.moveaxis(operand.values, axis, -1))
    fractals = None if operand.fractals is None else _unpacked(operand.fractals)
    return replace(operand, values=np.moveaxis(values, -1, axis), fractals=fractals)


def _unpacked(pairs: np.ndarray) -> np.ndarray:
    """Return int8 with the low and the high halves of int8 along the last axis."""
    return np.stack([pairs << 4 >> 4, pairs >> 4], axis=-1).reshape(*pairs.shape[:-1], -1)


def _indices(memory: CoreMemory, address: int, depth: int, n: int) -> Operand:
    """Return the indices of sparse weights [depth, n] at an address of L0B."""
    first, across = int(as_written(index_address)(address)), ceil_div(n, 16)
    held = memory.idx[first:][: ceil_div(depth, 32) * across * int(INDEX_FRACTAL)]
    each = held[:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    values = each.reshape(-1, across, 16, 32).transpose(0, 3, 1, 2).reshape(-1, 16 * across)[:depth, :n]
    return Operand("reads IDX", Space.IDX, first, DTYPE_OF_DATA[Data.UINT8], values)


def _of_mmad(row: np.void, memory: CoreMemory, *, written: bool) -> list[Operand]:
    m, n, k = (int(row[name]) for name in "mnk")
    if not m or not n or not k:
        return []
    kind, single = DTYPE_OF_DATA[Data(int(row["dtype"]))], DTYPE_OF_DATA[_sums_of(row)]
    sums = SpaceView(Space.L0C, memory)
    at = int(row["dst"])
    c = (
        sums.matrix(single, m, n, at),
        sums.fractals(single, ceil_div(m, 16) * ceil_div(n, 16), at),
    )
    if written:
        return [Operand("writes L0C", Space.L0C, at, single, *c)]
    depth = 32 // kind.item_bytes
    a_depth, b_depth = (size // kind.item_bytes for size in depths_of(row))
    across = ceil_div(k, 16) * 16 // depth if row["mode"] & Mode.K_ALIGN else ceil_div(a_depth, depth)
    left, right = SpaceView(Space.L0A, memory), SpaceView(Space.L0B, memory)
    first, second = int(row["src0"]), int(row["src1"])
    found = [
        Operand(
            "reads L0A",
            Space.L0A,
            first,
            kind,
            left.matrix(kind, m, across * depth, first)[:, :a_depth],
            left.fractals(kind, ceil_div(m, 16) * across, first),
        ),
        Operand(
            "reads L0B",
            Space.L0B,
            second,
            kind,
            right.matrix(kind, b_depth, n, second),
            right.fractals(kind, ceil_div(n, 16) * ceil_div(b_depth, depth), second),
        ),
    ]
    if int(row["op"]) == Op.MMAD_INT4:
        found = [_of_pairs(one, axis) for axis, one in ((1, found[0]), (0, found[1]))]
    if int(row["op"]) == Op.MMAD_SPARSE:
        found.append(_indices(memory, second, b_depth, n))
    if int(row["op"]) == Op.MMAD_BIAS:
        first = int(row["src2"])
        bias = SpaceView(Space.BT, memory).nd(single, n, first)
        found.append(Operand("reads BT", Space.BT, first, single, bias, None))
    elif not row["mode"] & Mode.INIT:
        found.append(Operand("reads L0C", Space.L0C, at, single, *c))
    return found
