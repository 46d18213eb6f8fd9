"""Tables that a kernel has in global memory itself (``__gm__ const int32_t table[8] = {..}``): data of its program.

All data of the program lies in a tensor of the call then, and pointers to it mean that (`runtime.h`, register_images).
What a kernel reads there by a plain pointer is the program's own copy.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npu_sim.ascendc.source import without_text
from npu_sim.units import ceil_div

ALIGNED_BYTES = 512
"""Each stretch of data begins at a multiple."""
_TABLE = re.compile(r"\b__gm__\s[\w\s:]*\w\s*(?:\[[^\[\]]*\]\s*)+(?:=\s*)?\{")
_LOAD = 1


def has_tables(texts: Iterable[str]) -> bool:
    """Return whether a source, or what it includes, defines tables in global memory."""
    return any("__gm__" in text and _TABLE.search(without_text(text)) for text in texts)


def data_of(program: Path) -> npt.NDArray[np.uint8]:
    """Return the data of a program and of the libraries beside it, as they begin."""
    parts = []
    for name in (program.name, "cube.so", "vector.so"):
        path = program.parent / name
        if path.exists():
            parts += list(_stretches(path.read_bytes()))
    data = np.zeros(sum(ceil_div(size, ALIGNED_BYTES) * ALIGNED_BYTES for _, size in parts), np.uint8)
    at = 0
    for content, size in parts:
        data[at : at + len(content)] = np.frombuffer(content, np.uint8)
        at += ceil_div(size, ALIGNED_BYTES) * ALIGNED_BYTES
    return data


def _stretches(elf: bytes) -> Iterator[tuple[bytes, int]]:
    """Return content and size in memory of what an ELF file of 64 bits loads; linkers may put tables beside code."""
    if elf[:5] != b"\x7fELF\x02":
        return
    first, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    for i in range(count):
        kind, _, offset, _, _, in_file, in_memory, _ = struct.unpack_from("<IIQQQQQQ", elf, first + i * size)
        if kind == _LOAD:
            yield elf[offset : offset + in_file], in_memory
