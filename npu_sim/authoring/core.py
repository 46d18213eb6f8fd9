"""The core that a kernel is written for: instructions by name, buffers, flags and phases."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from npu_sim.authoring.allocator import Allocator, Window
from npu_sim.authoring.methods import Shape, method_of, scalar_bits, shape_of
from npu_sim.authoring.recorder import Recorder, Sites, line_of
from npu_sim.authoring.tensors import Buffer, GlobalTensor, LocalTensor, stored_dtype
from npu_sim.errors import DTypeError, NpuSimError, ProgramError, Refusal, ShapeError, StateError, shown
from npu_sim.isa.codes import Data, Pipe, Space
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.names import pipe_name, space_name
from npu_sim.isa.op import MMADS, OPS, SPEC_OF_OP, Op
from npu_sim.memory.gm import spare_words
from npu_sim.products import Product
from npu_sim.program.launch import CoreKind
from npu_sim.program.operands import FIELDS, checked_operands
from npu_sim.program.positions import TPosition, position_of, space_of
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import BLOCK_BYTES

if TYPE_CHECKING:
    from npu_sim.authoring.peek import Follower

_WORD = re.compile(r"\w+")
_COPY = shape_of(SPEC_OF_OP[Op.DATA_COPY])


class Closing(Protocol):
    """What a kernel's end closes: its TPipe."""

    def close(self, frame: FrameType) -> None:
        """Destroy it, at the line of ``frame``."""


class Core:
    """One core of a launch; a kernel's first argument.

    Every instruction of the machine is a method (`npu_sim.authoring.methods`): ``core.add(z, x, y, count)``. It
    appends one row and returns the row's number. Operands that no row can hold, tensors that are freed, of mixed types
    or too short are refused at the line of the call.

    Attributes
    ----------
    product : Product
    kind : "cube" or "vector"
        Which of the cores of a product with separate ones it is.
    block_idx, block_num : int
        Number of the core, and of the cores of its kind (GetBlockIdx, GetBlockNum).
    """

    def __init__(
        self, product: Product, kind: CoreKind, block_idx: int, block_num: int, sites: Sites, names: dict[int, str]
    ) -> None:
        self.product, self.kind, self.block_idx, self.block_num = product, kind, block_idx, block_num
        self.recorder = Recorder(sites)
        self.allocator = Allocator(product)
        self.failing: Violation | None = None
        self.machine: Follower | None = None
        self.pipe: Closing | None = None
        self._names = names
        self._last: FrameType | None = None
        self._owned: set[int] = set()

    @property
    def is_cube(self) -> bool:
        """Whether the core has a Cube (ASCEND_IS_AIC; on products without separate cores all have)."""
        return self.kind == "cube" or not self.product.core.is_split

    @property
    def is_vector(self) -> bool:
        """Whether the core has a vector unit (ASCEND_IS_AIV; on products without separate cores all have)."""
        return self.kind == "vector" or not self.product.core.is_split

    @property
    def phase(self) -> int:
        """How many times SyncAll has been called."""
        return len(self.recorder.phases) - 1

    def tiles(self, count: int) -> Iterator[int]:
        """Count from 0 to ``count`` - 1, and label the instructions of each turn with its number, for reports."""
        for tile in range(count):
            self.recorder.tile = tile
            yield tile
        self.recorder.tile = -1

    # Buffers ---------------------------------------------------------------------------------------------------------

    def alloc(self, position: TPosition, dtype: object, count: int, name: str | None = None) -> LocalTensor:
        """Return ``count`` elements in the buffer of ``position``, with no content and no flags (LocalMemAllocator).

        Parameters
        ----------
        position : TPosition
        dtype : dtype-like
            ``"fp16"``, ``"half"``, ``np.float16``, ...
        count : int
            Elements.
        name : str or None
            For messages; None: a number.
        """
        frame = sys._getframe(1)
        kind = stored_dtype(dtype)
        buffer = self.place(frame, position, self.whole(frame, "count", count, 1) * kind.item_bytes, name)
        self.mark(frame, Op.ALLOC_TENSOR, buffer)
        return LocalTensor(self, buffer, int(kind.data), buffer.address, buffer.address + buffer.byte_count)

    def free(self, tensor: LocalTensor) -> None:
        """Give the buffer of a tensor from `alloc` back: what it holds is lost."""
        frame = sys._getframe(1)
        if not isinstance(tensor, LocalTensor):
            self.refuse(frame, DTypeError, f"tensor must be a LocalTensor, not {shown(tensor)}")
        self.check_alive(frame, tensor)
        if tensor.buffer.number in self._owned:
            self.refuse(
                frame,
                StateError,
                f"tensor must be one of alloc, not {tensor.buffer.name} of a queue or TBuf",
                Kind.BUFFER_OTHER_QUEUE,
            )
        self.mark(frame, Op.FREE_TENSOR, tensor.buffer)
        self.allocator.give_back(tensor.buffer.space, tensor.buffer.address)

    def place(
        self,
        frame: FrameType,
        position: TPosition,
        byte_count: int,
        name: str | None,
        *,
        owned: bool = False,
        memory: Window | None = None,
    ) -> Buffer:
        """Return a new buffer, not yet alive; ``owned``: it belongs to a queue or TBuf; ``memory``: of that pool."""
        try:
            position = position_of(position)
            space = space_of(position, self.product)
        except NpuSimError as error:
            self.refuse(frame, ShapeError, str(error).removesuffix(f" ({self.product.name})"))
        source = self.allocator if memory is None else memory
        address = source.take(space, byte_count)
        if address is None:
            free = source.largest_gap(space)
            capacity = source.capacities.get(space, 0)
            what = name or position.name
            where = space.name if memory is None else f"its pool in {space.name}"
            rule = f"size of {what} must fit in {where}, of whose {capacity} bytes {free} are free in one piece"
            self.refuse(frame, ShapeError, f"{rule}, not be {shown(byte_count)}", Kind.CAPACITY)
        number = len(self._names)
        self._names[number] = name or f"{position.name}#{number}"
        if owned:
            self._owned.add(number)
        return Buffer(number, self._names[number], position, space, address, byte_count)

    def mark(self, frame: FrameType, op: int, buffer: Buffer) -> None:
        """Append the row that says that a buffer begins or ends to live."""
        buffer.is_alive = op == Op.ALLOC_TENSOR
        buffer.generation += buffer.is_alive
        if not buffer.is_alive:
            buffer.freed_at = frame.f_code, frame.f_lineno
        operands = (int(buffer.space), buffer.address, buffer.byte_count, buffer.number)
        self._append(SPEC_OF_OP[op], frame, operands, (), {})

    # Synchronisation -------------------------------------------------------------------------------------------------

    def set_flag(self, src_pipe: Pipe, dst_pipe: Pipe, event: int) -> int:
        """SetFlag<src_dst>(event): set when the earlier instructions of ``src_pipe`` are complete."""
        return self.flag(sys._getframe(1), Op.SET_FLAG, src_pipe, dst_pipe, event)

    def wait_flag(self, src_pipe: Pipe, dst_pipe: Pipe, event: int) -> int:
        """WaitFlag<src_dst>(event): later instructions of ``dst_pipe`` wait for the flag, which is then not set."""
        return self.flag(sys._getframe(1), Op.WAIT_FLAG, src_pipe, dst_pipe, event)

    def flag(self, frame: FrameType, op: int, src_pipe: int, dst_pipe: int, event: int) -> int:
        """Append a SetFlag or WaitFlag."""
        return self._append(SPEC_OF_OP[op], frame, (src_pipe, dst_pipe, event), (), {})

    def free_event(
        self, frame: FrameType, src_pipe: int, dst_pipe: int, taken: Mapping[tuple[int, int], set[int]]
    ) -> int:
        """Return the lowest event id of two pipes that nobody holds."""
        used = taken.get((src_pipe, dst_pipe), set())
        for event in range(self.product.core.event_count):
            if event not in used:
                return event
        pipes = f"{pipe_name(src_pipe)}_{pipe_name(dst_pipe)}"
        rule = f"events of {pipes} must be at most {self.product.core.event_count} at a time"
        self.refuse(frame, StateError, f"{rule}, not {len(used) + 1}")

    def barrier(self, frame: FrameType, pipe: Pipe) -> None:
        """Append a PipeBarrier at the line of ``frame``."""
        self._append(SPEC_OF_OP[Op.PIPE_BARRIER], frame, (pipe,), (), {})

    def end(self) -> None:
        """Do what the end of a kernel does: its TPipe is destroyed, at the line of the last instruction."""
        if self.pipe is not None:
            self.pipe.close(self._last or sys._getframe(0))

    def release(self) -> None:
        """Let go of what refers back to the core, so that its rows go with it and not when garbage is collected."""
        self.machine = self.pipe = self._last = None

    def sync_all(self) -> None:
        """SyncAll: a new phase begins when every core of the launch has ended this one, of a mixed kernel both kinds.

        Flags that are set stay set, and buffers keep what they hold.
        """
        frame = sys._getframe(1)
        self.recorder.phases.append(self.recorder.count)
        self.recorder.syncs.append(line_of(frame.f_code, frame.f_lineno))

    # Instructions ----------------------------------------------------------------------------------------------------

    def data_copy(
        self,
        dst: LocalTensor | GlobalTensor,
        src: LocalTensor | GlobalTensor,
        count: int | None = None,
        *,
        block_count: int = 1,
        block_len: int | None = None,
        src_gap: int = 0,
        dst_gap: int = 0,
    ) -> int:
        """DataCopy: ``count`` elements, or ``block_count`` blocks of ``block_len`` x 32 bytes.

        Parameters
        ----------
        dst, src : tensor
        count : int or None
            Elements: whole blocks of 32 bytes, at most 65535 of them. None: the parameters that follow say how much.
        block_count : int
            Up to 4095 blocks.
        block_len, src_gap, dst_gap : int
            In 32 bytes; gaps are from the end of a block to the start of the next.
        """
        frame = sys._getframe(1)
        self._use(_COPY, frame, (dst, src))
        if (count is None) == (block_len is None):
            self.refuse(frame, ShapeError, "DataCopy must be given one of count and block_len")
        if count is not None:
            byte_count = self.whole(frame, "count", count) * src.dtype.item_bytes
            if byte_count % BLOCK_BYTES:
                rule = f"count of DataCopy must be whole blocks of {BLOCK_BYTES} bytes, not {count} {src.dtype.name}"
                pads = self.product.arch in SPEC_OF_OP[Op.DATA_COPY_PAD].archs
                self.refuse(frame, ShapeError, f"{rule}; data_copy_pad takes any bytes" if pads else rule)
            block_len = byte_count // BLOCK_BYTES
        operands = (dst.space, dst.address, src.space, src.address, block_count, block_len, src_gap, dst_gap, src.data)
        return self._append(_COPY.instruction, frame, (*operands, max(dst.tensor, src.tensor)), (dst, src), {})

    def _use(self, shape: Shape, frame: FrameType, tensors: Sequence[Any]) -> None:
        """Refuse tensors that an instruction cannot take."""
        api = shape.instruction.api
        others = [t.data for t in tensors if isinstance(t, LocalTensor | GlobalTensor) and t.space != Space.L0C]
        for name, tensor in zip(shape.tensors, tensors, strict=True):
            if isinstance(tensor, LocalTensor):
                self.check_alive(frame, tensor)
                if tensor.space == Space.L0C and tensor.data not in (sums := _sums_beside(shape.instruction, others)):
                    words = " or ".join(data.name.lower() for data in sums)
                    self.refuse(frame, DTypeError, f"{api} {name} in L0C must be {words}, not {tensor.dtype.name}")
            elif not isinstance(tensor, GlobalTensor):
                self.refuse(
                    frame, DTypeError, f"{api} {name} must be a LocalTensor or GlobalTensor, not {shown(tensor)}"
                )
            elif name == "dst" and tensor.is_read_only:
                self.refuse(frame, StateError, f"{api} must write an Out or InOut argument, not {tensor.name}, an In")
            space = shape.instruction.spaces.get(FIELDS.get(name, name))
            if space is not None and tensor.space != space:
                self.refuse(frame, ShapeError, f"{api} {name} must be in {space.name}, not {tensor.space.name}")
        if len(tensors) == 2:
            self._check_route(shape.instruction, frame, *tensors)
        alike = [t for name, t in zip(shape.tensors, tensors, strict=True) if name in shape.alike]
        for tensor in alike[1:]:
            if tensor.data != alike[0].data:
                given = " and ".join(t.dtype.name for t in alike)
                self.refuse(frame, DTypeError, f"{', '.join(shape.alike)} of {api} must be of one type, not {given}")

    def _check_route(self, instruction: Instruction, frame: FrameType, dst: Any, src: Any) -> None:
        """Refuse a move between buffers that the instruction does not connect."""
        if (dst.space, src.space) not in instruction.routes:
            known = ", ".join(f"{source.name} to {target.name}" for target, source in instruction.routes)
            given = f"{src.space.name} to {dst.space.name}"
            self.refuse(frame, ShapeError, f"{instruction.api} must go from {known}, not {given}")

    def _append(
        self,
        instruction: Instruction,
        frame: FrameType,
        operands: Sequence[object],
        tensors: Sequence[LocalTensor | GlobalTensor],
        prepared: Mapping[str, Any],
    ) -> int:
        """Append a row; return its number."""
        steps = []
        for name, value in prepared.items():
            if isinstance(value, list | tuple):
                value = [t.address if isinstance(t, LocalTensor) else t for t in value]
            made = instruction.prepare[name](value)
            if isinstance(made, str):
                self.refuse(frame, ShapeError, f"{instruction.api} {made}")
            for function, values in made:
                numbers, refusal = checked_operands(function, values)
                if refusal is not None:
                    self.refuse(frame, ShapeError, f"{instruction.api} {refusal}")
                steps.append((function, numbers))
        recorder, self._last = self.recorder, frame
        labels = recorder.sites.number(frame), recorder.tile
        numbers, refusal = checked_operands(instruction.emit, (*operands, *labels))
        if refusal is not None:
            self.refuse(frame, ShapeError, f"{instruction.api} {refusal}")
        row = recorder.append(instruction.emit, numbers, steps)
        if self.failing is not None and row == self.failing.row:
            illegal = ProgramError([self.failing])
            illegal.refusal = Refusal(*line_of(frame.f_code, frame.f_lineno), self.block_idx, self.failing.kind)
            raise illegal
        if tensors:
            run = recorder.outside(row, [(int(t.space), t.address, t.end) for t in tensors])
            if run is not None:
                recorder.drop_last()
                self._refuse_outside(instruction, frame, run, tensors)
        return row

    def _refuse_outside(
        self,
        instruction: Instruction,
        frame: FrameType,
        run: Sequence[int],
        tensors: Sequence[LocalTensor | GlobalTensor],
    ) -> NoReturn:
        space, access, start, length, repeats, step = run
        end = start + (repeats - 1) * step + length
        named = [t for t in tensors if t.space == space]
        nearest = max(named, key=lambda t: t.address if t.address <= start else -1)
        name = nearest.buffer.name if isinstance(nearest, LocalTensor) else nearest.name
        verb = "write" if access else "read"
        data_end = nearest.data_end if isinstance(nearest, GlobalTensor) else nearest.end
        extent = f"{name}, {space_name(space)}[{nearest.address}:{data_end}]{spare_words(data_end, nearest.end)}"
        beyond = Kind.WRITE_OUT_OF_BOUNDS if access else Kind.READ_OUT_OF_BOUNDS
        self.refuse(frame, ShapeError, f"{instruction.api} must {verb} inside {extent}, not [{start}:{end}]", beyond)

    # Refusals --------------------------------------------------------------------------------------------------------

    def _bits(self, frame: FrameType, scalar: object, data: int) -> int:
        try:
            return scalar_bits(scalar, data)
        except DTypeError as error:
            self.refuse(frame, DTypeError, str(error))

    def whole(self, frame: FrameType, name: str, value: object, low: int = 0) -> int:
        """Return a whole number of ``low`` or more."""
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < low:
            self.refuse(frame, ShapeError, f"{name} must be a whole number of {low} or more, not {shown(value)}")
        return int(value)

    def check_alive(self, frame: FrameType, tensor: LocalTensor) -> None:
        """Refuse a tensor whose buffer was given back."""
        if not tensor.is_alive:
            freed = tensor.buffer.freed_at
            where = "" if freed is None else f" at {':'.join(map(str, line_of(*freed)[:2]))}"
            text = f"tensor must live, not be {tensor.buffer.name}, which was freed{where}"
            self.refuse(frame, StateError, text, Kind.BUFFER_STATE)

    def refuse(
        self, frame: FrameType, kind: type[NpuSimError], text: str, finding: Kind = Kind.FIELD_RANGE
    ) -> NoReturn:
        """Raise an error that names product, core and line, and says which finding it is."""
        where = line_of(frame.f_code, frame.f_lineno)
        error = kind(f"{text} ({self.product.name}, {self.kind} core {self.block_idx}, {where})")
        error.refusal = Refusal(*where, self.block_idx, finding)
        raise error

    def contents(self, tensor: LocalTensor) -> np.ndarray:
        """Return what a tensor holds when all rows so far have run (`LocalTensor.numpy`)."""
        if self.machine is None:
            raise StateError(f"Contents of {tensor.buffer.name} must be asked for while its kernel runs, not later")
        try:
            return self.machine.contents(self.recorder, tensor)
        except ProgramError as error:
            raise ProgramError([self.recorder.located(found) for found in error.violations]) from None

    def __getattr__(self, name: str) -> Any:  # the methods of the instructions are set below
        near = _methods_like(name)
        may_be = f"; it may be {' or '.join(near)}" if near else ""
        listed = "help(npu_sim.authoring.Core) or examples/kernels/README.md lists"
        raise AttributeError(f"A method of Core must be one that {listed}, not {name}{may_be}")


BUFFER_MARKS = (Op.ALLOC_TENSOR, Op.FREE_TENSOR)
"""Instructions that `Core.alloc`, `Core.free`, queues and TBufs append, never a kernel itself."""

for _instruction in OPS:
    if _instruction.op not in BUFFER_MARKS and not hasattr(Core, _instruction.name.lower()):
        setattr(Core, _instruction.name.lower(), method_of(_instruction))


def _sums_beside(instruction: Instruction, others: Collection[int]) -> tuple[Data, ...]:
    """Return what L0C may hold for an instruction, by the types of its other tensors."""
    if instruction.scalar_type is not None or Space.FB in instruction.spaces.values():
        # Fixpipe that scales: the row is held to what becomes of what
        return Data.FP32, Data.INT32
    of_integers = Data.INT8 in others if instruction.op in MMADS else Data.INT32 in others
    return (Data.INT32,) if of_integers else (Data.FP32,)


def _methods_like(name: str) -> list[str]:
    """Return the methods that a name of Ascend C, or one that is not spelled right, can mean."""
    methods = [method for method in vars(Core) if not method.startswith("_")]
    plain = name.replace("_", "").lower()
    found = [method for method in methods if method.replace("_", "") == plain]
    found = found or [spec.name.lower() for spec in OPS if spec.api.lower().split("(")[0] == plain]
    # what one instruction of the machine does for several names of Ascend C, as WholeReduceSum
    found = found or [one for one in methods if plain in _WORD.findall((vars(Core)[one].__doc__ or "").lower())]
    return found or get_close_matches(name.lower(), methods, n=3)
