"""SetAtomicAdd and SetAtomicNone: whether stores to GM add, and in which type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from npu_sim.isa.codes import C100, C220, M200, Data, Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, SPLIT, Instruction
from npu_sim.isa.names import type_name

OP = 4


emit_set_atomic = emitter(
    "set_atomic",
    OP,
    Pipe.S,
    "dtype",
    "SetAtomicAdd<dtype>; None (of a builder `Data.NONE`) is SetAtomicNone.",
)


def text(row):
    """``SetAtomicAdd<type>`` or ``SetAtomicNone``."""
    dtype = int(row["dtype"])
    return "SetAtomicNone" if dtype == Data.NONE else f"SetAtomicAdd<{type_name(dtype)}>"


INSTRUCTION = Instruction(
    api="SetAtomicAdd/SetAtomicNone",
    emit=emit_set_atomic,
    source=DEVKIT + "atomics: core state; dtype NONE ends it",
    pipes=(Pipe.S,),
    dtypes={
        C100: frozenset({Data.NONE, Data.FP32}),
        M200: frozenset({Data.NONE, Data.INT16, Data.FP16, Data.FP32}),
        C220: frozenset({Data.NONE, Data.INT8, Data.INT16, Data.FP16, Data.BF16, Data.INT32, Data.FP32}),
    },
    text=text,
    by_position=True,
)


def keeping(api: str, emit: Callable[..., Any]) -> Instruction:
    """Return the instruction behind which stores leave one of two elements."""
    return replace(
        INSTRUCTION,
        api=api,
        emit=emit,
        source=DEVKIT + "atomics: core state; for transfers from VECOUT to GM",
        archs=SPLIT,
        dtypes={C220: INSTRUCTION.dtypes[C220] - {Data.NONE}},
        text=lambda row: f"{api}<{type_name(int(row['dtype']))}>",
    )
