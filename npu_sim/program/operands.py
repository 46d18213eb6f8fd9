"""Operands from plain Python on their way into a row: whole numbers that the row's field can hold, or a refusal.

An emitter stores its arguments with the width of the field, and Numba turns anything into an integer first, so a number
that does not fit would become another one in silence. The width of every field is that of `isa.row.INSTR`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from npu_sim.errors import shown
from npu_sim.isa.row import INSTR

FIELDS = {
    "src": "src0",
    "src_a": "src0",
    "src_b": "src1",
    "src_space": "src0_space",
    "src_pipe": "pipe",
    "dst_pipe": "peer",
    "src_dtype": "dtype",
    "value_bits": "value",
    "src0_blk_stride": "src_blk_stride",
    "src0_rep_stride": "src_rep_stride",
    "enable": "value",
    "buffer": "value",
    "mode_id": "value",
    "flag_id": "event",
    "word": "value",
    "n_elems": "n",
    "bias": "src2",
    "scales": "src1",
    "index": "src1",
    "address": "dst",
    "halves": "repeat_mode",
    "half_block": "repeat_mode",
}
"""Fields of the emitters' parameters that have another name; an address in a list is checked as one of 64 bits."""
_SWITCH = "enable"
"""The parameter that may be a bool."""
_PATTERNS = ("value_bits", "mask_low", "mask_high")
"""The parameters that are patterns of bits: signed or unsigned, stored in signed fields."""


@cache
def _parameters(emitter: Callable[..., Any]) -> tuple[tuple[str, int, int, int], ...]:
    """Return the operands of an emitter behind rows and row number: name, lowest and highest value, highest stored."""
    names = list(inspect.signature(getattr(emitter, "py_func", emitter)).parameters)[2:]
    found = []
    for name in names:
        if name == "i":  # place in an address list
            found.append((name, 0, np.iinfo(np.int64).max, np.iinfo(np.int64).max))
            continue
        limits = np.iinfo(INSTR[FIELDS.get(name, name)])
        high = int(limits.max) - int(limits.min) if name in _PATTERNS else limits.max
        found.append((name.removesuffix("_elems"), int(limits.min), int(high), int(limits.max)))
    return tuple(found)


def _whole(value: object, *, is_switch: bool) -> int | None:
    """Return ``value`` as an integer, None if it is none: a bool where it is no switch, a fraction, no number."""
    if isinstance(value, IntEnum):  # most of what is no plain integer
        return value.value
    if isinstance(value, bool | np.bool_):
        return int(value) if is_switch else None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating) and value.is_integer():
        return int(value)
    return None


def checked_operands(emitter: Callable[..., Any], values: Sequence[object]) -> tuple[list[int], str | None]:
    """Return what an emitter is given for ``values``, its arguments behind rows and row number.

    Parameters
    ----------
    emitter : callable
        One of `isa.emit`.
    values : sequence
        Integers of Python and NumPy, floats without a fraction; a bit pattern may be signed or unsigned.

    Returns
    -------
    (operands, refusal)
        Plain integers that fit their fields and None, or what is wrong with the first that does not, as
        "<operand> must be a whole number in [<low>, <high>], not <value>".
    """
    operands = []
    for (name, low, high, most), value in zip(_parameters(emitter), values, strict=True):
        number = value if type(value) is int else _whole(value, is_switch=name == _SWITCH)
        if number is None or not low <= number <= high:
            return [], f"{name} must be a whole number in [{low}, {high}], not {shown(value)}"
        operands.append(number if number <= most else number + 2 * low)
    return operands, None
