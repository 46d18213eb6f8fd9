"""Which rows the two kinds of core of a split product have.

A vector core has UB and the pipes V, MTE2, MTE3 and S; a cube core has L1, L0A, L0B, L0C and every pipe but V, and no
UB (asc-devkit, hardware architecture of the AIC and AIV cores). A unified core has everything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim._jit import Flag, jit
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

_LACKS = {
    kind: np.isin(np.arange(256), [int(pipe) for pipe in missing]).astype(np.bool_)
    for kind, missing in MISSING_PIPES.items()
}
"""By the number of a pipe, whether a kind of core does not have it."""


@jit
def _note_foreign(rows: np.ndarray, moves: np.ndarray, lacks: np.ndarray, has_ub: Flag, foreign: np.ndarray) -> None:
    """Note for each row whether a core that lacks pipes and has UB, or does not, has it; see `foreign_rows`."""
    for i in range(len(rows)):
        row = rows[i]
        op, pipe = row["op"], row["pipe"]
        bad = op != Op.NOP and lacks[pipe]
        if (op == Op.SET_FLAG or op == Op.WAIT_FLAG) and lacks[row["peer"]]:
            bad = True
        if moves[op] and (pipe == Pipe.MTE2 or pipe == Pipe.MTE3 or op == Op.SCALAR_COPY):
            # MTE2 fills buffers, MTE3 empties them; the scalar unit moves elements of UB
            space = row["dst_space"] if pipe == Pipe.MTE2 else row["src0_space"]
            if (space == Space.UB or op == Op.SCALAR_COPY) != has_ub:
                bad = True
        loads = op == Op.SCALAR_LOAD and row["src0_space"] == Space.UB
        stores = op == Op.SCALAR_STORE and row["dst_space"] == Space.UB
        foreign[i] = bad or ((loads or stores) and not has_ub)


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
    foreign = np.zeros(len(rows), np.bool_)
    _note_foreign(rows, _MOVES, _LACKS[kind], kind == "vector", foreign)
    return foreign


def kind_of(rows: np.ndarray, product: Product) -> CoreKind:
    """Return the kind of core that has all ``rows``; ``"vector"`` if neither has."""
    return "vector" if foreign_rows(rows, product, "cube").any() else "cube"
