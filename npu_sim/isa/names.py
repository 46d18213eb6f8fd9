"""Names of codes, as Ascend C writes them; a code that does not exist shows as its number."""

from __future__ import annotations

import numpy as np

from npu_sim.dtypes.formats import DTYPE_OF_DATA
from npu_sim.isa.codes import Data, Mode, Pipe, Space


def pipe_name(pipe: int) -> str:
    """Return the name of a pipe, or its number if there is no such pipe."""
    return Pipe(pipe).name if pipe in Pipe._value2member_map_ else str(pipe)


def space_name(space: int) -> str:
    """Return the name of a space, or its number if there is no such space."""
    return Space(space).name if space in Space._value2member_map_ else f"space{space}"


def type_name(data: int) -> str:
    """Return the Ascend C name of an element type, or its number if there is no such type."""
    if data == Data.NONE:
        return "none"
    return DTYPE_OF_DATA[data].cpp_name if data in DTYPE_OF_DATA else f"type{data}"


def path_name(row: np.void) -> str:
    """Return the data path of a row, ``"<source>-><destination>"``."""
    return f"{space_name(int(row['src0_space']))}->{space_name(int(row['dst_space']))}"


def mode_name(bits: int) -> str:
    """Return the modes in ``bits``, joined by ``|``; bits without a name as one number, nothing for 0."""
    names = [mode.name.lower() for mode in Mode if bits & mode]
    unknown = bits & ~sum(Mode)
    return "|".join([*names, hex(unknown)] if unknown else names)
