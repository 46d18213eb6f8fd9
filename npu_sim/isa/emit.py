"""Emitters: one jitted function per opcode. Each writes row ``n`` of ``rows`` and returns ``n + 1``.

Every emitter writes the operands that the record of its instruction lists and nothing else, so a row buffer is never
cleared. ``site`` is the place in the kernel and ``tile`` the work item, both only for messages. Addresses are bytes in
their space (GM: in the arena of the launch), lengths in the unit the Ascend C parameter of the same name has.

``emit_<instruction>`` exists for every instruction of `npu_sim.isa.op.OPS`.
"""

from __future__ import annotations

from typing import Any

from npu_sim.isa.emit_window import set_feature_map, set_window
from npu_sim.isa.instructions.data_copy import pipe_of_copy
from npu_sim.isa.instructions.trans_data_to_5hd import (
    block_number,
    set_dst_address,
    set_dst_addresses,
    set_src_address,
    set_src_addresses,
)
from npu_sim.isa.op import OPS

__all__ = [
    "block_number",
    "pipe_of_copy",
    "set_dst_address",
    "set_dst_addresses",
    "set_feature_map",
    "set_src_address",
    "set_src_addresses",
    "set_window",
]

_EMITTERS = {f"emit_{instruction.name.lower()}": instruction.emit for instruction in OPS}


def __getattr__(name: str) -> Any:
    """Return an emitter by its name."""
    if name not in _EMITTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _EMITTERS[name]


def __dir__() -> list[str]:
    return sorted([*__all__, *_EMITTERS])
