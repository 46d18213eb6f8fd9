"""What AllocTensor and FreeTensor share: rows that say where a named buffer of a core begins and ends to live.

They cost nothing, order nothing and move nothing: on a device they are bookkeeping of the host compiler and of TPipe.
Checkers read them in program order: bytes outside every living buffer belong to nobody, and an allocation makes what
its bytes held before undefined.

Source: asc-devkit ``docs/zh/api/SIMD-API``, TQue and TBuf (AllocTensor, FreeTensor): content of a freed tensor is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ON_CHIP, Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import COUNT, DEVKIT, Index, Instruction, Rows
from npu_sim.isa.names import space_name


@jit
def _free_of_charge(cost: Any) -> Any:
    return np.int64(0), np.int64(0), np.int64(0)


def _check(chunk: Rows, index: Index) -> None:
    bad = ~np.isin(chunk.column(index, "dst_space"), ON_CHIP)
    chunk.unsupported(
        index, bad, lambda row: f"buffer must be in a space of the core, not {space_name(int(row['dst_space']))}"
    )
    chunk.rule(index, chunk.column(index, "dst") < 0, "dst", "at least 0")


def _text(api: str) -> Any:
    def text(row: np.void) -> str:
        first = int(row["dst"])
        place = f"{space_name(int(row['dst_space']))}[{first:#x}:{first + int(row['count']):#x}]"
        return f"{api}<{int(row['value'])}> {place}"

    return text


def marker(api: str, name: str, op: int, documentation: str) -> Instruction:
    """Return the instruction ``name`` of `npu_sim.isa.instructions`: its row names a buffer and its bytes."""
    return Instruction(
        api=api,
        emit=emitter(name, op, Pipe.S, "dst_space dst count buffer=value", documentation),
        source=f"{DEVKIT}TQue and TBuf, {api}",
        pipes=(Pipe.S,),
        ranges=COUNT,
        cost=_free_of_charge,
        check=_check,
        text=_text(api),
    )
