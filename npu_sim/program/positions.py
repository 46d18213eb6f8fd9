"""Logical positions of tensors, the buffers they are in, and the pipes on both sides of a queue.

Sources: asc-devkit ``docs/zh/api/SIMD-API``, TPosition, and the resource management pages of TQue; the numbers:
``impl/utils/sys_constants.h``. Which buffer and which events belong to a position differs between split cores (A2, A3)
and unified ones (310P, 910).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from npu_sim.errors import ProductError, ShapeError, shown
from npu_sim.isa.codes import Pipe, Space
from npu_sim.products import Product
from npu_sim.program.limits import ADDRESS_ALIGNMENT_BYTES


class TPosition(IntEnum):
    """Logical positions, with the numbers of Ascend C; `space_of` says which of them are in a buffer of the machine."""

    GM = 0
    A1 = 1
    A2 = 2
    B1 = 3
    B2 = 4
    C1 = 5
    C2 = 6
    CO1 = 7
    CO2 = 8
    VECIN = 9
    VECOUT = 10
    VECCALC = 11
    LCM = 11
    SPM = 12
    SHM = 12
    TSCM = 13
    C2PIPE2GM = 14
    C2PIPE2LOCAL = 15


def position_of(value: object) -> TPosition:
    """Return a position.

    Raises
    ------
    ShapeError
        It is none.
    """
    try:
        return TPosition(value)  # type: ignore[arg-type]  # that is what is found out
    except Exception:  # a value may raise what it likes when it is compared
        names = ", ".join(position.name for position in TPosition)
        raise ShapeError(f"position must be one of TPosition.{{{names}}}, not {shown(value)}") from None


_SPACES: Mapping[TPosition, Space] = MappingProxyType(
    {
        TPosition.A1: Space.L1,
        TPosition.B1: Space.L1,
        TPosition.TSCM: Space.L1,
        TPosition.A2: Space.L0A,
        TPosition.B2: Space.L0B,
        TPosition.CO1: Space.L0C,
        TPosition.VECIN: Space.UB,
        TPosition.VECOUT: Space.UB,
        TPosition.VECCALC: Space.UB,
    }
)
_SPLIT_SPACES: Mapping[TPosition, Space] = MappingProxyType(
    {TPosition.C1: Space.L1, TPosition.C2: Space.BT, TPosition.C2PIPE2GM: Space.FB}
)
"""Those of cores that are Cube or vector core: bias and quantisation parameters."""

ALIGNMENT_BYTES: Mapping[Space, int] = MappingProxyType({**ADDRESS_ALIGNMENT_BYTES, Space.L0C: 1024})
"""Where a buffer begins: Mmad writes whole fractals of L0C."""

_PIPES: Mapping[tuple[TPosition, TPosition], tuple[Pipe, Pipe]] = MappingProxyType(
    {
        (TPosition.GM, TPosition.VECIN): (Pipe.MTE2, Pipe.V),
        (TPosition.VECOUT, TPosition.GM): (Pipe.V, Pipe.MTE3),
        (TPosition.VECIN, TPosition.VECOUT): (Pipe.MTE2, Pipe.MTE3),
        (TPosition.GM, TPosition.A1): (Pipe.MTE2, Pipe.MTE1),
        (TPosition.GM, TPosition.B1): (Pipe.MTE2, Pipe.MTE1),
        (TPosition.A1, TPosition.A2): (Pipe.MTE1, Pipe.M),
        (TPosition.B1, TPosition.B2): (Pipe.MTE1, Pipe.M),
        (TPosition.GM, TPosition.C1): (Pipe.MTE2, Pipe.MTE1),
        (TPosition.C1, TPosition.C2): (Pipe.MTE1, Pipe.M),
        (TPosition.CO2, TPosition.GM): (Pipe.V, Pipe.MTE3),
    }
)
_PARTNER: Mapping[TPosition, tuple[TPosition, TPosition]] = MappingProxyType(
    {
        TPosition.VECIN: (TPosition.GM, TPosition.VECIN),
        TPosition.VECOUT: (TPosition.VECOUT, TPosition.GM),
        TPosition.A1: (TPosition.GM, TPosition.A1),
        TPosition.B1: (TPosition.GM, TPosition.B1),
        TPosition.C1: (TPosition.GM, TPosition.C1),
        TPosition.C2: (TPosition.C1, TPosition.C2),
        TPosition.A2: (TPosition.A1, TPosition.A2),
        TPosition.B2: (TPosition.B1, TPosition.B2),
        TPosition.CO1: (TPosition.CO1, TPosition.CO2),
        TPosition.CO2: (TPosition.CO2, TPosition.GM),
    }
)


def space_of(position: TPosition, product: Product) -> Space:
    """Return the buffer that ``position`` is in.

    Raises
    ------
    ProductError
        The product has no on-chip buffer for it.
    """
    if position == TPosition.CO2 and not product.core.is_split:
        return Space.UB
    spaces = {**_SPACES, **_SPLIT_SPACES} if product.core.is_split else _SPACES
    if position not in spaces:
        names = ", ".join(known.name for known in spaces)
        raise ProductError(f"position must be one of {names}, not {position.name} ({product.name})")
    return spaces[position]


def queue_pipes(src: TPosition | None, position: TPosition, product: Product) -> tuple[Pipe, Pipe]:
    """Return the pipe that fills the blocks of a queue and the one that empties them.

    Parameters
    ----------
    src : TPosition or None
        Where a bound queue (TQueBind) begins; None: what belongs to ``position`` alone.
    position : TPosition
        Of the queue, or where a bound one ends.
    product : Product

    Raises
    ------
    ProductError
        No queue has these positions.
    """
    if src is None and position == TPosition.CO1:
        return Pipe.M, Pipe.FIX if product.core.has_fixpipe else Pipe.V
    path = _PARTNER.get(position) if src is None else (src, position)
    if path is None or path not in _PIPES:
        known = ", ".join(p.name for p in _PARTNER) if src is None else "VECIN -> VECOUT"
        given = position.name if src is None else f"{src.name} -> {position.name}"
        raise ProductError(f"queue must be at one of {known}, not {given} ({product.name})")
    return _PIPES[path]
