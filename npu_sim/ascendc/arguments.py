"""What a kernel is called with: arrays become tensors of global memory, everything else reaches it as it is."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.ascendc.control import MAX_ARGUMENTS, MAX_RELOCATIONS, MAX_TENSORS, ArgumentKind
from npu_sim.ascendc.operator_types import type_name
from npu_sim.ascendc.process import Process
from npu_sim.budget import reserve
from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import DTypeError, NpuSimError, ShapeError, shown
from npu_sim.isa.codes import Data
from npu_sim.memory.core import POISON_BYTE
from npu_sim.memory.gm import GlobalMemory, GmTensor, allocated_bytes
from npu_sim.memory.host import HostMemory, HostSpan


class SharedMemory(HostMemory):
    """Tensors in the memory that the kernel's program shares; each may be touched as far as it is allocated.

    Parameters
    ----------
    gm : GlobalMemory
    memory : uint8 array
        All of it.
    """

    def __init__(self, gm: GlobalMemory, memory: npt.NDArray[np.uint8]) -> None:
        super().__init__()
        self.gm = gm
        ends = {t.index: t.address + allocated_bytes(t.byte_count) for t in gm.tensors}
        self.arena = memory
        self.spans = [HostSpan(name=t.name, tensor=t, start=t.address, end=ends[t.index]) for t in gm.tensors]


_PAGE_BYTES = 4096
"""Of nearly every host: tensors have pages of their own, so that it tells which of them a plain pointer stores to."""


def tiling_bytes(tiling: object) -> bytes:
    """Return the bytes of a tiling: of bytes, a `ctypes` structure, an array or a NumPy record.

    Raises
    ------
    DTypeError
        It has none.
    """
    if isinstance(tiling, bytes | bytearray | memoryview | ctypes.Structure):
        return bytes(tiling)
    is_masked = isinstance(tiling, np.ma.MaskedArray)
    if isinstance(tiling, np.ndarray | np.generic) and not is_masked and not tiling.dtype.hasobject:
        reserve("tiling", tiling.nbytes)
        return tiling.tobytes()
    raise DTypeError(f"tiling must be bytes, a ctypes structure or an array, not {shown(tiling)}")


def list_bytes(shapes: Sequence[Sequence[int]], addresses: Sequence[int]) -> bytes:
    """Return what a list of tensors is in memory: where the pointers begin, the sizes of each tensor, the pointers.

    Words of 64 bits; that before the sizes of a tensor holds their number below, and above the tensor's number, in the
    first the number of tensors (the page ListTensorDesc of the Ascend C API).
    """
    words = [0]
    for number, shape in enumerate(shapes):
        words += [(number or len(shapes)) << 32 | len(shape), *shape]
    words[0] = 8 * len(words)
    return struct.pack(f"<{len(words) + len(addresses)}Q", *words, *addresses)


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """An argument that points into memory; arguments with the same ``memory`` share it, as pointers do.

    Attributes
    ----------
    memory : uint8 array
    offset : int
        Of the place that it points to.
    filled : tuple of (int, int) or None
        Bytes of the memory, [begin, end), that something has written; None: all.
    """

    memory: npt.NDArray[np.uint8]
    offset: int
    filled: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PointerList:
    """An argument that points to a list of tensors in memory (ListTensorDesc).

    Attributes
    ----------
    words : bytes
        The list; its last words are the pointers.
    pointers : sequence of Pointer
        What these point to.
    """

    words: bytes
    pointers: Sequence[Pointer]

    def __len__(self) -> int:
        return len(self.pointers)


@dataclass(frozen=True, slots=True, eq=False)
class PointerStruct:
    """A struct that is an argument by value and has pointers into memory.

    Attributes
    ----------
    data : bytes
    pointers : mapping of int to Pointer
        What the 8 bytes from a place in the struct on point to.
    """

    data: bytes
    pointers: Mapping[int, Pointer]


class Arguments:
    """The arguments of one call.

    Parameters
    ----------
    kernel : str
        Name, for messages.
    names : sequence of str
        Of the parameters, as far as they are known.
    given : sequence
        NumPy arrays, lists of them (of dynamic inputs and outputs), places in memory and lists of them, numbers, bytes
        (a struct, or what a pointer means), None (a null pointer).
    outputs : sequence of int
        Numbers of the arrays, or lists, whose content before the call means nothing, and all of which must be written.
    workspace : sequence of int
        Numbers of the arrays whose content means nothing before the call nor behind it.

    Raises
    ------
    DTypeError, ShapeError
        An argument is nothing that a kernel takes.
    """

    def __init__(
        self,
        kernel: str,
        names: Sequence[str],
        given: Sequence[Any],
        outputs: Sequence[int],
        workspace: Sequence[int] = (),
    ) -> None:
        self._kernel = kernel
        self._filled = list[tuple[int, int]]()
        self._given = [value.memory if isinstance(value, Pointer) else value for value in given]
        self._offsets = [value.offset if isinstance(value, Pointer) else 0 for value in given]
        self._names = [names[i] if i < len(names) else f"argument {i}" for i in range(len(given))]
        self._outputs, self._workspace = set(outputs), set(workspace)
        self.gm = GlobalMemory(_PAGE_BYTES)
        self._tensors: dict[int, GmTensor] = {}
        self._bytes: dict[int, bytes] = {}
        self._lists: dict[int, list[tuple[np.ndarray, GmTensor]]] = {}
        self.scratch = -1
        self._tables: tuple[GmTensor, npt.NDArray[np.uint8]] | None = None
        if len(given) > MAX_ARGUMENTS:
            raise ShapeError(f"arguments of {kernel} must be at most {MAX_ARGUMENTS}, not {len(given)}")
        self._shared: dict[int, GmTensor] = {}
        self._relocations: list[int] = []
        for number, value in enumerate(self._given):
            if isinstance(given[number], Pointer):
                is_out = number in self._outputs
                self._tensors[number] = self._place_shared(self._names[number], given[number], is_out=is_out)
            elif isinstance(value, PointerList):
                self._place_pointers(number, value)
            elif isinstance(value, PointerStruct):
                self._place_struct(number, value)
            else:
                self._place(number, value)
        bad = [number for number in self._outputs if number not in self._tensors | self._lists]
        if bad:
            raise ShapeError(f"outputs of {kernel} must be numbers of arrays, not {bad}")
        for number in sorted(self._workspace):
            array = given[number] if 0 <= number < len(given) else None
            if number in self._outputs or not (isinstance(array, np.ndarray) and array.ndim):
                raise ShapeError(f"workspace of {kernel} must be numbers of arrays that are no outputs, not {number}")
        if len(self._relocations) > MAX_RELOCATIONS:
            count = len(self._relocations)
            raise ShapeError(f"pointers in structs of {kernel} must be at most {MAX_RELOCATIONS}, not {count}")
        if len(self.gm.tensors) > MAX_TENSORS:
            raise ShapeError(f"arrays of {kernel} must be at most {MAX_TENSORS}, not {len(self.gm.tensors)}")

    def add_scratch(self, byte_count: int) -> None:
        """Give the library memory of its own behind the arguments."""
        self.scratch = self.gm.add("library", byte_count, initialised=False).address

    @property
    def known_bytes(self) -> list[bytes]:
        """What is in memory besides data: structs, lists and what pointers of one value mean."""
        return list(self._bytes.values())

    @property
    def filled(self) -> tuple[tuple[int, int], ...]:
        """Bytes of global memory, [begin, end), that were written before, of tensors that were not as a whole."""
        return tuple(self._filled)

    @property
    def data(self) -> list[GmTensor]:
        """The tensors of the rest, but for the tables of the kernel's program, which are its own."""
        known = {self._tensors[number].index for number in self._bytes}
        known |= set() if self._tables is None else {self._tables[0].index}
        return [place for place in self.gm.tensors if place.index not in known]

    def add_tables(self, data: npt.NDArray[np.uint8]) -> None:
        """Give the data of the kernel's program a place behind the arguments."""
        self._tables = self.gm.add("tables", len(data), initialised=True), data

    def _place(self, number: int, value: Any) -> None:
        name = self._names[number]
        is_out = number in self._outputs
        if isinstance(value, np.ndarray) and value.ndim:
            if number in self._workspace:
                self._tensors[number] = self.gm.add(name, max(value.nbytes, 1), initialised=False)
            else:
                self._tensors[number] = self._place_array(name, value, is_out=is_out)
        elif isinstance(value, list | tuple) and value and all(isinstance(one, np.ndarray) for one in value):
            self._lists[number] = [
                (one, self._place_array(f"{name}[{i}]", one, is_out=is_out)) for i, one in enumerate(value)
            ]
            data = list_bytes([one.shape for one in value], [place.address for _, place in self._lists[number]])
            self._bytes[number] = data
            self._tensors[number] = self.gm.add(name, len(data), initialised=True)
        elif isinstance(value, bytes | bytearray | memoryview | ctypes.Structure):
            self._bytes[number] = bytes(value)
            self._tensors[number] = self.gm.add(name, max(len(self._bytes[number]), 1), initialised=True)
        elif value is not None and not isinstance(value, int | float | np.generic | np.ndarray):
            kinds = "an array, a list of arrays, a number, bytes or None"
            raise DTypeError(f"{name} of {self._kernel} must be {kinds}, not {shown(value)}")

    def _place_shared(self, name: str, pointer: Pointer, *, is_out: bool = False) -> GmTensor:
        """Place what several arguments may point into, once."""
        memory, filled = pointer.memory, pointer.filled
        if id(memory) not in self._shared:
            is_whole = filled is None or filled == ((0, memory.nbytes),)
            place = self._place_array(name, memory, is_out=is_out, is_filled=is_whole)
            at, parts = place.address, () if is_whole or filled is None else filled
            self._filled += [(at + begin, at + end) for begin, end in parts]
            self._shared[id(memory)] = place
        return self._shared[id(memory)]

    def _place_pointers(self, number: int, value: PointerList) -> None:
        name = self._names[number]
        self._lists[number] = [
            (one.memory, self._place_shared(f"{name}[{i}]", one)) for i, one in enumerate(value.pointers)
        ]
        addresses = [
            place.address + one.offset for one, (_, place) in zip(value.pointers, self._lists[number], strict=True)
        ]
        data = value.words[: -8 * len(addresses)] + struct.pack(f"<{len(addresses)}Q", *addresses)
        self._bytes[number] = data
        self._tensors[number] = self.gm.add(name, len(data), initialised=True)

    def _place_struct(self, number: int, value: PointerStruct) -> None:
        name, data = self._names[number], bytearray(value.data)
        self._lists[number] = []
        for at, one in value.pointers.items():
            place = self._place_shared(f"{name}+{at}", one)
            self._lists[number].append((one.memory, place))
            struct.pack_into("<Q", data, at, place.address + one.offset)
        self._bytes[number] = bytes(data)
        self._tensors[number] = own = self.gm.add(name, len(data), initialised=True)
        self._relocations += [own.address + at for at in value.pointers]

    def _place_array(self, name: str, value: np.ndarray, *, is_out: bool, is_filled: bool = True) -> GmTensor:
        if is_out and not value.flags.writeable:
            raise ShapeError(f"{name} of {self._kernel} must be an array that can be written")
        if value.dtype.hasobject:
            raise DTypeError(f"{name} of {self._kernel} must be an array of numbers, not of {value.dtype}")
        return self.gm.add(
            name,
            max(value.nbytes, 1),
            initialised=is_filled and not is_out,
            data=_data_of(value.dtype),
            is_output=is_out,
        )

    def load(self, process: Process, memory: npt.NDArray[np.uint8]) -> None:
        """Fill the memory of a kernel's program, and tell it what its arguments are."""
        self._poison(memory)
        control = process.control
        control.scratch, control.tables = self.scratch, -1
        if self._tables is not None:
            tables, content = self._tables
            control.tables = tables.address
            memory[tables.address : tables.address + len(content)] = content
        control.argument_count, control.tensor_count = len(self._given), len(self.gm.tensors)
        control.relocation_count = len(self._relocations)
        control.relocations[: len(self._relocations)] = self._relocations
        for i, tensor in enumerate(self.gm.tensors):
            control.tensors[i].address, control.tensors[i].size = tensor.address, tensor.byte_count
        for number, value in enumerate(self._given):
            argument = control.arguments[number]
            place = self._tensors.get(number)
            if place is not None:
                data = self._bytes.get(number)
                is_list = number in self._lists and not isinstance(value, PointerStruct)
                kind = ArgumentKind.LIST if is_list else ArgumentKind.BYTES
                argument.kind = ArgumentKind.TENSOR if data is None else kind
                argument.word = place.address + self._offsets[number]
                argument.size = value.nbytes if data is None else len(data)
                held = memory[place.address : place.address + argument.size]
                if data is not None:
                    held[:] = np.frombuffer(data, np.uint8)
                elif not place.is_output and number not in self._workspace:
                    held.view(value.dtype).reshape(value.shape)[...] = value
            elif value is None:
                argument.kind, argument.word = ArgumentKind.TENSOR, -1
            else:
                argument.kind, argument.word = _number(value)
        for array, place in (one for group in self._lists.values() for one in group):
            if not place.is_output:
                memory[place.address : place.address + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array

    def _poison(self, memory: npt.NDArray[np.uint8]) -> None:
        """Fill all that no content of an argument is written over."""
        end = 0
        for place in self.gm.tensors:
            if place.initialised:
                memory[end : place.address + 1] = POISON_BYTE  # an empty array has a byte too
                end = place.address + place.byte_count
        memory[end:] = POISON_BYTE

    def store(self, memory: npt.NDArray[np.uint8], may_have_changed: Callable[[GmTensor], bool]) -> None:
        """Write what the kernel changed to the caller's arrays.

        Parameters
        ----------
        memory : uint8 array
        may_have_changed : callable
            Whether it may have changed a tensor; of others nothing is looked at.

        Raises
        ------
        ShapeError
            It changed one that cannot be written.
        """
        left = self._bytes.keys() | self._workspace
        own = [(self._given[number], place) for number, place in self._tensors.items() if number not in left]
        for value, place in [*own, *(one for group in self._lists.values() for one in group)]:
            data = memory[place.address : place.address + value.nbytes]
            if not place.is_output and not may_have_changed(place):
                continue
            if not place.is_output and _are_equal(data, np.ascontiguousarray(value).reshape(-1).view(np.uint8)):
                continue
            if not value.flags.writeable:
                raise ShapeError(
                    f"{place.name} of {self._kernel}, which it wrote, must be an array that can be written"
                )
            value[...] = data.view(value.dtype).reshape(value.shape)

    def types(self) -> tuple[str | None, ...]:
        """Return what definitions of operators call the type of each array, None for the other arguments."""
        arrays: dict[int, np.ndarray] = {number: group[0][0] for number, group in self._lists.items()}
        arrays |= {number: self._given[number] for number in self._tensors if number not in self._bytes}
        return tuple(
            type_name(arrays[number].dtype) if number in arrays else None for number in range(len(self._given))
        )

    def words(self) -> str:
        """Return shapes and types, and the other arguments, for reports."""
        parts = []
        for number, value in enumerate(self._given):
            if isinstance(value, PointerStruct):
                words = f"{len(value.data)} bytes with {len(value.pointers)} pointers"
            elif number in self._lists:
                words = f"{len(value)} tensors"
            elif number in self._bytes:
                words = f"{len(self._bytes[number])} bytes"
            elif isinstance(value, np.ndarray) and value.ndim:
                words = f"{_type_name(value.dtype)} {'x'.join(map(str, value.shape))}"
            else:
                words = shown(value)
            parts.append(f"{self._names[number]} {words}")
        return ", ".join(parts)


def _are_equal(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> bool:
    """Return whether as many bytes are the same, eight at a time."""
    whole = len(one) // 8 * 8
    words, others = one[:whole].view(np.uint64), other[:whole].view(np.uint64)
    return np.array_equal(words, others) and np.array_equal(one[whole:], other[whole:])


def _number(value: Any) -> tuple[ArgumentKind, int]:
    """Return kind and word of a number."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if not isinstance(plain, int | float):
        raise DTypeError(f"numbers of a kernel must be whole or real, not {shown(value)}")
    if isinstance(plain, bool | int):
        if not -(2**63) <= plain < 2**64:
            raise ShapeError(f"whole numbers of a kernel must fit 64 bits, not be {shown(plain)}")
        return ArgumentKind.INTEGER, plain if plain < 2**63 else plain - 2**64
    return ArgumentKind.FLOAT, struct.unpack("<q", struct.pack("<d", float(plain)))[0]


def _data_of(dtype: np.dtype) -> Data:
    try:
        return get_dtype(dtype).data
    except NpuSimError:
        return Data.NONE  # only a name for reports


def _type_name(dtype: np.dtype) -> str:
    try:
        return get_dtype(dtype).name
    except NpuSimError:
        return str(dtype)
