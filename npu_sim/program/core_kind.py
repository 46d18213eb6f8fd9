"""Which rows the two kinds of core of a split product have.

A vector core has UB and the pipes V, MTE2, MTE3 and S; a cube core has L1, L0A, L0B, L0C and every pipe but V, and no
UB (asc-devkit, hardware architecture of the AIC and AIV cores). A unified core has everything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.op import Op, by_opcode
from npu_sim.products import Product
from npu_sim.program.launch import CoreKind

MISSING_PIPES: dict[CoreKind, tuple[Pipe, ...]] = {
    "cube": (Pipe.V,),
    "vector": (Pipe.M, Pipe.MTE1, Pipe.FIX),
}
"""Pipes a kind of core does not have."""

_MOVES = by_opcode(lambda instruction: bool(instruction.routes), dtype=np.bool_)
"""Whether an instruction touches memory."""


def foreign_rows(rows: np.ndarray, product: Product, kind: CoreKind) -> npt.NDArray[np.bool_]:
    """Return which rows a core of ``kind`` does not have, by their pipe and by the buffer they move data of.

    Parameters
    ----------
    rows : INSTR[n]
    product : Product
        Unified cores have every row.
    kind : "cube" or "vector"

    Returns
    -------
    bool[n]
    """
    if not product.core.is_split:
        return np.zeros(len(rows), np.bool_)
    op, pipe = rows["op"], rows["pipe"]
    missing = [int(pipe) for pipe in MISSING_PIPES[kind]]
    foreign = np.isin(pipe, missing) & (op != Op.NOP)
    foreign |= np.isin(op, (Op.SET_FLAG, Op.WAIT_FLAG)) & np.isin(rows["peer"], missing)
    moves = _MOVES[op]
    # MTE2 fills buffers, MTE3 empties them; the scalar unit moves elements of UB.
    in_ub = np.where(pipe == Pipe.MTE2, rows["dst_space"] == Space.UB, rows["src0_space"] == Space.UB)
    in_ub |= op == Op.SCALAR_COPY
    transfers = moves & (np.isin(pipe, (Pipe.MTE2, Pipe.MTE3)) | (op == Op.SCALAR_COPY))
    return foreign | (transfers & (in_ub if kind == "cube" else ~in_ub))


def kind_of(rows: np.ndarray, product: Product) -> CoreKind:
    """Return the kind of core that has all ``rows``; ``"vector"`` if neither has."""
    return "vector" if foreign_rows(rows, product, "cube").any() else "cube"
