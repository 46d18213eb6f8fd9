"""Programs as files: the launches of a call, their rows and what their numbers mean, without any code.

A file is one line that names the format, one line of JSON, and the rows of launch after launch, core after core, phase
after phase, 128 bytes each. Nothing in it is run or imported when it is read; the engines judge any rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.budget import reserve
from npu_sim.dtypes.element_types import ElementType
from npu_sim.errors import InputFileError, NpuSimError, shown
from npu_sim.isa.row import INSTR, ROW_BYTES
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import Product, get_product
from npu_sim.program.launch import Launch, SourceLine
from npu_sim.program.recorded import launch_of, rows_of

MAGIC = b"NPU-Sim program\n"
VERSION = 2
MAX_HEADER_BYTES = 1 << 24
MAX_CORES, MAX_PHASES = 1 << 16, 1 << 16
_GM_BYTES = 1 << 48


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgram:
    """What a file holds.

    Attributes
    ----------
    product : Product
        Where it was made for.
    launches : tuple of Launch
        In stream order, on one global memory.
    """

    product: Product
    launches: tuple[Launch, ...]


def program_bytes(launches: Sequence[Launch], product: Product) -> bytes:
    """Return the file of launches that share one global memory.

    Raises
    ------
    InputFileError
        They share none.
    """
    if not launches or any(launch.gm is not launches[0].gm for launch in launches):
        raise InputFileError(f"Launches of a program file must share one global memory, {len(launches)} do not")
    described, data = [], []
    for launch in launches:
        programs = [[rows_of(launch, c, p) for p in range(launch.phase_count)] for c in range(launch.core_count)]
        data += [rows.tobytes() for core in programs for rows in core]
        described.append(
            {
                "name": launch.name,
                "core_kind": launch.core_kind,
                "vectors": launch.vectors,
                "rows": [[len(rows) for rows in core] for core in programs],
                "sites": launch.sites,
                "lines": launch.lines,
                "buffers": launch.buffers,
                "plain_stores": launch.plain_stores,
                "filled": launch.filled,
            }
        )
    tensors = [
        {
            "name": tensor.name,
            "byte_count": tensor.byte_count,
            "address": tensor.address,
            "initialised": tensor.initialised,
            "is_output": tensor.is_output,
            "dtype": tensor.data.name,
        }
        for tensor in launches[0].gm.tensors
    ]
    head = {"version": VERSION, "product": product.name, "tensors": tensors, "launches": described}
    return b"".join([MAGIC, json.dumps(head).encode(), b"\n", *data])


def read_program(path: Path) -> StoredProgram:
    """Return the launches of a file.

    Raises
    ------
    InputFileError
        It cannot be read, or is no program of this version.
    BudgetError
        It is larger than memory allows.
    """
    try:
        with path.open("rb") as file:
            reserve(f"Program {path}", path.stat().st_size)
            content = file.read()
    except OSError as error:
        raise InputFileError(f"Program must be a file that can be read, not {path} ({error.strerror})") from error
    return program_of(content, str(path))


def program_of(content: bytes, name: str = "program") -> StoredProgram:
    """Return the launches of a file's bytes; see `read_program`."""
    try:
        return _Reader(content).program()
    except (InputFileError, RecursionError, KeyError, TypeError, ValueError, AttributeError, NpuSimError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise InputFileError(f"Program must be a file of npu-sim program, not {name} ({shown(str(reason))})") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        end = content.find(b"\n", len(MAGIC), len(MAGIC) + MAX_HEADER_BYTES)
        if not content.startswith(MAGIC) or end < 0:
            raise InputFileError("its first lines are others")
        self._head = json.loads(content[len(MAGIC) : end])
        self._data = np.frombuffer(content, np.uint8, offset=end + 1)
        self._done = 0

    def program(self) -> StoredProgram:
        head = _record(self._head)
        if head["version"] != VERSION:
            raise InputFileError(f"version must be {VERSION}, not {head['version']}")
        gm = GlobalMemory()
        for tensor in map(_record, _list(head["tensors"])):
            gm.add(
                _text(tensor["name"]),
                _whole(tensor["byte_count"], _GM_BYTES),
                initialised=tensor["initialised"] is True,
                data=ElementType[_text(tensor["dtype"])],
                address=_whole(tensor["address"], _GM_BYTES),
                is_output=tensor["is_output"] is True,
            )
        launches = tuple(self._launch(_record(one), gm) for one in _list(head["launches"]))
        if self._done != self._data.size or not launches:
            raise InputFileError(f"its rows must be {self._done} bytes, not {self._data.size}")
        return StoredProgram(product=get_product(_text(head["product"])), launches=launches)

    def _launch(self, one: dict[str, Any], gm: GlobalMemory) -> Launch:
        kind = one["core_kind"]
        if kind not in ("cube", "vector"):
            raise InputFileError(f"core_kind must be cube or vector, not {shown(kind)}")
        vectors = _whole(one["vectors"], 2)
        counts = [[_whole(n, self._data.size) for n in _list(core)] for core in _list(one["rows"])]
        if not 1 <= len(counts) <= MAX_CORES or not all(1 <= len(core) <= MAX_PHASES for core in counts):
            raise InputFileError(f"cores and phases must be in [1, {MAX_CORES}]")
        if len(counts) % (1 + vectors):
            raise InputFileError(f"cores must be blocks of {1 + vectors}, not {len(counts)}")
        programs = [[self._rows(count) for count in core] for core in counts]
        return launch_of(
            _text(one["name"]),
            programs,
            gm,
            core_kind=kind,
            vectors=vectors,
            sites=_numbered(one["sites"], _text),
            lines=_numbered(one["lines"], _line),
            buffers=_numbered(one["buffers"], _text),
            plain_stores=tuple(map(_range, _list(one.get("plain_stores", [])))),
            filled=tuple(map(_range, _list(one.get("filled", [])))),
        )

    def _rows(self, count: int) -> np.ndarray:
        end = self._done + count * ROW_BYTES
        if end > self._data.size:
            raise InputFileError(f"its rows must be {end} bytes or more, not {self._data.size}")
        rows: np.ndarray = self._data[self._done : end].copy().view(INSTR)
        self._done = end
        return rows


def _record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"an object must stand where {shown(value)} does")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list must stand where {shown(value)} does")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string must stand where {shown(value)} does")
    return value


def _whole(value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value <= limit:
        raise TypeError(f"a number in [0, {limit}] must stand where {shown(value)} does")
    return value


def _line(value: Any) -> SourceLine:
    file, line, function = _list(value)
    return SourceLine(_text(file), _whole(line, 1 << 31), _text(function))


def _range(value: Any) -> tuple[int, int]:
    begin, end = _list(value)
    return _whole(begin, _GM_BYTES), _whole(end, _GM_BYTES)


def _numbered(value: Any, made: Callable[[Any], Any]) -> dict[int, Any]:
    return {int(number): made(one) for number, one in _record(value).items()}


def all_rows(launches: Sequence[Launch]) -> Iterator[tuple[int, int, int, np.ndarray]]:
    """Yield (launch, core, phase, rows) of launches."""
    for number, launch in enumerate(launches):
        for core in range(launch.core_count):
            for phase in range(launch.phase_count):
                yield number, core, phase, rows_of(launch, core, phase)
