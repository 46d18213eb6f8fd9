"""The memory that a kernel's process and this one share besides global memory: one record, described once.

The header for the kernel's side is made from the fields here.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

from npu_sim.products import Product
from npu_sim.program.launch import CoreKind

ROWS = 1 << 16
"""Rows that are handed over at a time, at most. So much of them, 8 MiB, is kept in large pages, which come faster."""
HALVES = 2
"""There is room for so many times that: the program fills one while the other is run."""
TEXT_BYTES = 1 << 16
WINDOW_BYTES = 1 << 18
PAGE_BYTES = WINDOW_BYTES // 64
"""Of UB as much is shown as is looked at: a word has a bit for each page."""
MAX_TENSORS = 128
MAX_ARGUMENTS = 64
MAX_RELOCATIONS = 512
MAX_FILES = 64
FILE_BYTES = 512
LINE_BITS = 20
"""A ``site`` is the number of a file above so many bits of line."""
MAX_CORES = 256
MAX_SITES = 1 << 15
MAX_BUFFERS = 1 << 12
MAX_LOTS = 1 << 10
MAX_CUTS = 64
MAX_STORES = 1 << 10
MAX_LOOKS = 1 << 6


class Status(IntEnum):
    """Why the kernel's process handed over."""

    ROWS = 0
    """There is no room for more, or it is time to say something: the program may go on while they run."""
    READ = 1
    """A core needs bytes of one of its buffers, as the rows so far leave them."""
    SYNC = 2
    """A lot's rows end where its core waits for all others."""
    END = 3
    """They end where its kernel has returned."""
    DONE = 4
    """All have."""
    PRINT = 5
    """There is text for the user."""
    REFUSED = 6
    """A call breaks a rule; the text says which."""
    DEADLOCK = 7
    """No core can go on."""
    CRASHED = 8
    """A signal; the text says which."""
    SETTLE = 9
    """A core looks at global memory, as all rows so far leave it."""


class ArgumentKind(IntEnum):
    """How an argument's bytes are to be read."""

    TENSOR = 0
    """``words`` is an offset in global memory."""
    INTEGER = 1
    FLOAT = 2
    BYTES = 3
    """``size`` bytes at an offset in global memory: a struct, or what a pointer means."""
    LIST = 4
    """The same of a list of tensors; its pointers are offsets in global memory."""


class Tensor(ctypes.Structure):
    """Where a tensor is in global memory."""

    _fields_ = (("address", ctypes.c_int64), ("size", ctypes.c_int64))


class Argument(ctypes.Structure):
    """One argument of the kernel."""

    _fields_ = (("kind", ctypes.c_int64), ("word", ctypes.c_int64), ("size", ctypes.c_int64))


class Lot(ctypes.Structure):
    """Rows of one core among those that are handed over, which end before row ``end`` for a reason (a `Status`)."""

    _fields_ = (("core", ctypes.c_int64), ("end", ctypes.c_int64), ("why", ctypes.c_int64))


class Cut(ctypes.Structure):
    """A copy of a number of elements that does not move all of them."""

    _fields_ = (
        ("site", ctypes.c_int64),
        ("core", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("item", ctypes.c_int64),
        ("unit", ctypes.c_int64),
    )


class Pages(ctypes.Structure):
    """Bytes of global memory, whole pages of them, that the kernel has looked at or stored to by plain pointers."""

    _fields_ = (("begin", ctypes.c_int64), ("end", ctypes.c_int64))


class File(ctypes.Structure):
    """A source file that rows come from."""

    _fields_ = (("name", ctypes.c_char * FILE_BYTES),)


class Control(ctypes.Structure):
    """What both sides read and write, in turns."""

    _fields_ = (
        # to the kernel's side
        ("layout", ctypes.c_int64),  # always the first, as the rest may be of another version
        ("gm_bytes", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        ("blocks_at_once", ctypes.c_int64),
        ("cores", ctypes.c_int64),
        ("vectors_per_block", ctypes.c_int64),  # 0: Cube cores alone, or cores that are both
        ("cubes_per_block", ctypes.c_int64),
        ("is_split", ctypes.c_int64),
        ("auto_sync", ctypes.c_int64),
        ("event_count", ctypes.c_int64),
        ("l1_bytes", ctypes.c_int64),
        ("l0a_bytes", ctypes.c_int64),
        ("l0b_bytes", ctypes.c_int64),
        ("l0c_bytes", ctypes.c_int64),
        ("ub_bytes", ctypes.c_int64),
        ("bt_bytes", ctypes.c_int64),
        ("fb_bytes", ctypes.c_int64),
        ("fixbuf_bytes", ctypes.c_int64),
        ("tiling_key", ctypes.c_int64),
        ("scratch", ctypes.c_int64),  # where the library's own memory begins; -1: there is none
        ("tables", ctypes.c_int64),  # where the data of the program begins; -1: it is not there
        ("reads", ctypes.c_int64),  # 0: nothing is computed, so nothing can be read
        ("has_stopped", ctypes.c_int64),  # not any more
        ("argument_count", ctypes.c_int64),
        ("tensor_count", ctypes.c_int64),
        ("arguments", Argument * MAX_ARGUMENTS),
        ("relocation_count", ctypes.c_int64),
        ("relocations", ctypes.c_int64 * MAX_RELOCATIONS),  # places of pointers in structs, offsets in global memory
        ("tensors", Tensor * MAX_TENSORS),
        # from it
        ("status", ctypes.c_int64),
        ("core", ctypes.c_int64),
        ("first", ctypes.c_int64),  # where the rows begin that are handed over
        ("count", ctypes.c_int64),
        ("lot_count", ctypes.c_int64),  # what follows the last lot is of ``core``
        ("lots", Lot * MAX_LOTS),
        ("site", ctypes.c_int64),
        ("space", ctypes.c_int64),
        ("address", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("pages", ctypes.c_uint64),  # instead, of UB
        ("crosses", ctypes.c_int64),
        ("file_count", ctypes.c_int64),
        ("site_count", ctypes.c_int64),
        ("buffer_count", ctypes.c_int64),
        ("text_bytes", ctypes.c_int64),
        ("cut_count", ctypes.c_int64),
        ("cuts", Cut * MAX_CUTS),  # the first of each place
        ("store_count", ctypes.c_int64),
        ("stores", Pages * MAX_STORES),
        ("look_count", ctypes.c_int64),
        ("looks", Pages * MAX_LOOKS),  # GetValue of global memory too
        ("sites", ctypes.c_int64 * MAX_SITES),  # each once, as they come
        ("buffers", ctypes.c_int64 * MAX_BUFFERS),
        ("files", File * MAX_FILES),
        ("text", ctypes.c_char * TEXT_BYTES),
        # the answer to READ
        ("window", ctypes.c_uint8 * WINDOW_BYTES),
    )


ROWS_AT = (ctypes.sizeof(Control) + 4095) // 4096 * 4096
"""Where the rows begin in the shared memory, bytes."""


def control_header() -> str:
    """Return the C++ text of all this."""
    constants = {
        "ROW_CAPACITY": ROWS,
        "HALVES": HALVES,
        "TEXT_BYTES": TEXT_BYTES,
        "WINDOW_BYTES": WINDOW_BYTES,
        "PAGE_BYTES": PAGE_BYTES,
        "MAX_TENSORS": MAX_TENSORS,
        "MAX_FILES": MAX_FILES,
        "FILE_BYTES": FILE_BYTES,
        "LINE_BITS": LINE_BITS,
        "MAX_SITES": MAX_SITES,
        "MAX_BUFFERS": MAX_BUFFERS,
        "MAX_LOTS": MAX_LOTS,
        "MAX_CUTS": MAX_CUTS,
        "MAX_STORES": MAX_STORES,
        "MAX_LOOKS": MAX_LOOKS,
        "ROWS_AT": ROWS_AT,
    }
    lines = ["// Generated: what both processes share.", "#pragma once", "#include <cstdint>", "namespace npusim {"]
    lines += [f"constexpr int64_t {name} = {value};" for name, value in constants.items()]
    lines += [f"enum class Status : int64_t {{ {_members(Status)} }};"]
    lines += [f"enum class ArgumentKind : int64_t {{ {_members(ArgumentKind)} }};"]
    for record in (Tensor, Argument, Lot, Cut, Pages, File, Control):
        name = _record(record)
        lines += [f"struct {name} {{ {' '.join(_field(*field) for field in record._fields_)} }};"]
        lines += [f"static_assert(sizeof({name}) == {ctypes.sizeof(record)});"]
    return "\n".join([*lines, "}  // namespace npusim", ""])


def _members(codes: type[IntEnum]) -> str:
    return ", ".join(f"{member.name} = {int(member)}" for member in codes)


_PLAIN = {ctypes.c_int64: "int64_t", ctypes.c_uint64: "uint64_t", ctypes.c_char: "char", ctypes.c_uint8: "uint8_t"}


def _record(kind: type[ctypes.Structure]) -> str:
    return {Tensor: "SharedTensor", File: "SharedFile"}.get(kind, kind.__name__)


def _field(name: str, kind: Any) -> str:
    if issubclass(kind, ctypes.Array):
        item = kind._type_
        return f"{_PLAIN.get(item) or _record(item)} {name}[{kind._length_}];"
    return f"{_PLAIN[kind]} {name};"


def describe(
    control: Control,
    product: Product,
    blocks: int,
    counts: dict[CoreKind, int],
    tiling_key: int,
    *,
    auto_sync: bool,
    computes: bool,
) -> None:
    """Tell a program which machine it runs on."""
    core = product.core
    at_once = next(iter(counts.values()))
    control.blocks, control.blocks_at_once, control.cores = blocks, at_once, sum(counts.values())
    control.is_split, control.auto_sync, control.reads = core.is_split, auto_sync, computes
    control.cubes_per_block = counts.get("cube", 0) // at_once
    control.vectors_per_block = counts.get("vector", 0) // at_once
    control.event_count = core.event_count
    for name in ("l1_bytes", "l0a_bytes", "l0b_bytes", "l0c_bytes", "ub_bytes", "bt_bytes"):
        setattr(control, name, getattr(core, name))
    control.fb_bytes, control.fixbuf_bytes = core.quantisation_bytes, sum(core.fb_bytes)
    control.tiling_key = tiling_key
