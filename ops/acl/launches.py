"""A launch of a program's own kernel, as ``sources/launch.cpp`` hands it over."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from npu_sim.ascendc.arguments import Pointer, PointerList, PointerStruct
from npu_sim.ascendc.build import CORE_KIND
from npu_sim.ascendc.cores import Kind
from npu_sim.ascendc.linked import LinkedKernel, Place, Sides, laid_out
from ops.acl.words import memory_at

POINTER, INTEGER, FLOAT, BYTES, NULL, LIST, STRUCT, FILLED = range(8)
_KINDS: dict[int, Kind] = {number: kind for kind, number in CORE_KIND.items()}


def kernel_of(record: Any) -> LinkedKernel:
    """Return the kernel that an ``npu_sim_kernel`` names."""
    module = Path(record.module.decode(errors="surrogateescape"))
    place = Place(module, record.source, record.enter, record.function, record.arch)
    parameters = record.parameters.decode().split(",") if record.parameters else []
    sides = None
    if record.key is not None:
        parts = ((getattr(record, name), getattr(record, f"{name}_bytes")) for name in ("cube", "vector", "loader"))
        sides = Sides(record.key.decode(), _laid_out(*parts))
    return LinkedKernel(record.name.decode(), place, _KINDS[record.kind], record.vectors, parameters, sides)


@lru_cache(maxsize=64)
def _laid_out(*parts: tuple[int, int]) -> Path:
    """Return `laid_out` of parts of the program, by address and size: they stay where they are."""
    return laid_out(*(ctypes.string_at(*part) for part in parts))


def arguments_of(words: Sequence[int]) -> list[Any]:
    """Return the arguments for a call of the kernel; those in the same memory share it.

    What was written of memory comes before the arguments that point there, if checks ask for it.
    """
    given: list[Any] = []
    memories: dict[int, Any] = {}
    filled: dict[int, tuple[tuple[int, int], ...]] = {}
    rest = iter(words)

    def pointer() -> Pointer:
        address, size, offset = next(rest), next(rest), next(rest)
        if address not in memories:
            memories[address] = memory_at(address, size)
        return Pointer(memories[address], offset, filled.get(address))

    for kind in rest:
        if kind == FILLED:
            address, count = next(rest), next(rest)
            filled[address] = tuple((next(rest), next(rest)) for _ in range(count))
        elif kind == POINTER:
            given.append(pointer())
        elif kind == LIST:
            address, size, count = next(rest), next(rest), next(rest)
            given.append(PointerList(ctypes.string_at(address, size), [pointer() for _ in range(count)]))
        elif kind == STRUCT:
            address, size, count = next(rest), next(rest), next(rest)
            pointers = {next(rest): pointer() for _ in range(count)}
            given.append(PointerStruct(ctypes.string_at(address, size), pointers))
        elif kind == INTEGER:
            given.append(next(rest))
        elif kind == FLOAT:
            given.append(struct.unpack("<d", struct.pack("<q", next(rest)))[0])
        elif kind == BYTES:
            address, size = next(rest), next(rest)
            given.append(ctypes.string_at(address, size))
        else:
            given.append(None)
    return given
