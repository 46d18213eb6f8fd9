"""TPipe, TQue, TBuf and TBufPool: buffers with the flags that hand them from one pipe to another.

A block of a queue is filled by one pipe and emptied by another. EnQue takes the lowest free event from the first to the
second, DeQue waits for it; FreeTensor takes one back, which the next AllocTensor of the block waits for. At its end a
core waits for all of those.

A pool is a piece of UB or L1 that buffers are given places in; pools that share their bytes are used one after the
other, each until its Reset, which waits as the end of a core does (ASSUMED: and orders nothing else).

Source: asc-devkit ``docs/zh/api/SIMD-API``, TPipe, TQue, TQueBind, TBuf, TBufPool. Depths of 0 (in place) are not
modelled.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from npu_sim.arguments import whole
from npu_sim.authoring.allocator import Window
from npu_sim.authoring.core import Core
from npu_sim.authoring.recorder import line_of
from npu_sim.authoring.tensors import Buffer, LocalTensor, stored_dtype
from npu_sim.errors import ProductError, Refusal, ShapeError, StateError, shown
from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.op import Op
from npu_sim.program.positions import TPosition, position_of, queue_pipes, space_of
from npu_sim.program.violation import Kind
from npu_sim.units import BLOCK_BYTES, align_up

MAX_BUFFERS = 64
"""Blocks of queues and TBufs of one TPipe, together."""
CUBE_EVENTS = 3
"""Events of M_MTE1 that TPipe sets on a cube core of a split product, for kernels that double-buffer L0 by hand."""
Owner = TypeVar("Owner", bound="TQue | TBuf")
_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::[^=]+)?=[^=]")


def _assigned_name(frame: FrameType) -> str | None:
    """Return the variable that the line a frame is at assigns to."""
    found = _ASSIGNED.match(linecache.getline(frame.f_code.co_filename, frame.f_lineno))
    return found[1] if found else None


def _without_memory(frame: FrameType, text: str, kind: Kind = Kind.BUFFER_NOT_GIVEN) -> StateError:
    """Return the error of a queue, TBuf or TBufPool that no TPipe knows, so no core either."""
    where = line_of(frame.f_code, frame.f_lineno)
    error = StateError(f"{text} ({where})")
    error.refusal = Refusal(*where, -1, kind)
    return error


@dataclass(slots=True, eq=False)
class _Block:
    buffer: Buffer
    free_event: int | None = None
    """The event that FreeTensor has set and nobody has waited for."""
    enque_event: int | None = None
    is_queued: bool = False


class TQue:
    """Blocks at a position, handed from the pipe that fills them to the one that empties them.

    Parameters
    ----------
    position : TPosition
        VECIN, VECOUT, A1, B1, A2, B2, CO1 (CO2 on 310P and 910).
    depth : int
        How many tensors may be queued at a time, at least 1.
    """

    _src: TPosition | None = None

    def __init__(self, position: TPosition, depth: int = 1) -> None:
        self.position, self.depth = position_of(position), whole("depth", depth)
        self.name = self.position.name
        self._pipe: TPipe | None = None
        self._ends: tuple[int, int] | None = None
        self._blocks: list[_Block] = []
        self._queued: deque[_Block] = deque()
        self._cursor = 0

    def alloc_tensor(self, dtype: object) -> LocalTensor:
        """AllocTensor: return a free block as elements of ``dtype``; the filling pipe waits until it is empty."""
        frame = sys._getframe(1)
        pipe, count = self._owner(frame), len(self._blocks)
        for at in range(self._cursor, self._cursor + count):
            if not self._blocks[at % count].buffer.is_alive:
                break
        else:
            rule = f"AllocTensor of {self.name} must find a free one of its {count} blocks"
            pipe.core.refuse(frame, StateError, f"{rule}, not wait for ever", Kind.BUFFER_STATE)
        at %= count
        self._cursor = (at + 1) % count
        block = self._blocks[at]
        kind = stored_dtype(dtype)
        pipe.core.mark(frame, Op.ALLOC_TENSOR, block.buffer)
        self._await_free(frame, pipe, block)
        buffer = block.buffer
        return LocalTensor(pipe.core, buffer, int(kind.data), buffer.address, buffer.address + buffer.byte_count)

    def enque(self, tensor: LocalTensor) -> None:
        """EnQue: the filling pipe says that it has filled the tensor."""
        frame = sys._getframe(1)
        pipe = self._owner(frame)
        block = self._block_of(frame, pipe, tensor)
        if block.is_queued:
            pipe.core.refuse(
                frame,
                StateError,
                f"EnQue must come once for a tensor, {self.name} has {self._queue()}",
                Kind.BUFFER_STATE,
            )
        if len(self._queued) >= self.depth:
            rule = f"EnQue of {self.name} must leave at most {self.depth} tensors queued"
            pipe.core.refuse(frame, StateError, f"{rule}, not {len(self._queued) + 1}", Kind.BUFFER_STATE)
        block.enque_event = pipe.take_event(frame, *self._pipes(pipe))
        block.is_queued = True
        pipe.core.flag(frame, Op.SET_FLAG, *self._pipes(pipe), block.enque_event)
        self._queued.append(block)

    def deque(self, dtype: object) -> LocalTensor:
        """DeQue: the emptying pipe waits for the tensor that was queued first, and returns it."""
        frame = sys._getframe(1)
        pipe = self._owner(frame)
        if not self._queued:
            pipe.core.refuse(
                frame,
                StateError,
                f"DeQue of {self.name} must come behind an EnQue, not find nothing",
                Kind.BUFFER_STATE,
            )
        block = self._queued.popleft()
        event = block.enque_event
        assert event is not None
        pipe.core.flag(frame, Op.WAIT_FLAG, *self._pipes(pipe), event)
        pipe.give_event(*self._pipes(pipe), event)
        block.enque_event, block.is_queued = None, False
        buffer, data = block.buffer, int(stored_dtype(dtype).data)
        return LocalTensor(pipe.core, buffer, data, buffer.address, buffer.address + buffer.byte_count)

    def free_tensor(self, tensor: LocalTensor) -> None:
        """FreeTensor: the emptying pipe gives the block back; what it holds is lost."""
        frame = sys._getframe(1)
        pipe = self._owner(frame)
        block = self._block_of(frame, pipe, tensor)
        if block.is_queued:
            rule = f"FreeTensor of {self.name} must come behind DeQue"
            pipe.core.refuse(frame, StateError, f"{rule}, not while the tensor is queued", Kind.BUFFER_STATE)
        producer, consumer = self._pipes(pipe)
        block.free_event = pipe.take_event(frame, consumer, producer)
        pipe.core.flag(frame, Op.SET_FLAG, consumer, producer, block.free_event)
        pipe.core.mark(frame, Op.FREE_TENSOR, block.buffer)

    def _queue(self) -> str:
        return f"{len(self._queued)} queued"

    def _pipes(self, pipe: TPipe) -> tuple[int, int]:
        if self._ends is None:
            producer, consumer = queue_pipes(self._src, self.position, pipe.core.product)
            self._ends = int(producer), int(consumer)
        return self._ends

    def _owner(self, frame: FrameType) -> TPipe:
        if self._pipe is None:
            raise _without_memory(frame, f"{self.name} must get its blocks from TPipe.init_buffer first")
        return self._pipe

    def _block_of(self, frame: FrameType, pipe: TPipe, tensor: LocalTensor) -> _Block:
        if not isinstance(tensor, LocalTensor):
            pipe.core.refuse(frame, StateError, f"tensor must be a LocalTensor of {self.name}, not {shown(tensor)}")
        pipe.core.check_alive(frame, tensor)
        for block in self._blocks:
            if block.buffer is tensor.buffer:
                return block
        pipe.core.refuse(
            frame,
            StateError,
            f"tensor must be one of {self.name}, not of {tensor.buffer.name}",
            Kind.BUFFER_OTHER_QUEUE,
        )

    def _await_free(self, frame: FrameType, pipe: TPipe, block: _Block) -> None:
        if block.free_event is not None:
            producer, consumer = self._pipes(pipe)
            pipe.core.flag(frame, Op.WAIT_FLAG, consumer, producer, block.free_event)
            pipe.give_event(consumer, producer, block.free_event)
            block.free_event = None

    def _place(self, frame: FrameType, pipe: TPipe, num: int, byte_count: int, memory: Window | None) -> None:
        self._pipe = pipe
        self._pipes(pipe)
        for i in range(num):
            name = f"{self.name}[{i}]" if num > 1 else self.name
            buffer = pipe.core.place(frame, self.position, byte_count, name, owned=True, memory=memory)
            self._blocks.append(_Block(buffer))

    def _close(self, frame: FrameType, pipe: TPipe) -> None:
        for block in self._blocks:
            self._await_free(frame, pipe, block)

    def _reset(self, frame: FrameType, pipe: TPipe) -> None:
        for block in self._blocks:
            if block.buffer.is_alive:
                rule = f"Reset must come when every tensor of {self.name} is freed"
                pipe.core.refuse(frame, StateError, f"{rule}, not {block.buffer.name} alive", Kind.BUFFER_STATE)
        self._close(frame, pipe)


class TQueBind(TQue):
    """A queue whose blocks one mover fills and another empties: VECIN to VECOUT, from GM through UB to GM.

    Parameters
    ----------
    src, dst : TPosition
    depth : int
    """

    def __init__(self, src: TPosition, dst: TPosition, depth: int = 1) -> None:
        super().__init__(dst, depth)
        self._src = position_of(src)


class TBuf:
    """A buffer without flags, for intermediate results.

    Parameters
    ----------
    position : TPosition
        VECCALC, A1, A2, B1, B2, CO1, ...
    """

    def __init__(self, position: TPosition = TPosition.VECCALC) -> None:
        self.position = position_of(position)
        self.name = self.position.name
        self._buffer: Buffer | None = None
        self._core: Core | None = None

    def get(self, dtype: object, count: int | None = None) -> LocalTensor:
        """Get: the buffer as elements of ``dtype``, all or the first ``count`` of them."""
        if self._buffer is None or self._core is None:
            raise _without_memory(sys._getframe(1), f"{self.name} must get its memory from TPipe.init_buffer first")
        buffer, data = self._buffer, int(stored_dtype(dtype).data)
        if not buffer.is_alive:  # its pool was reset and is used again
            self._core.mark(sys._getframe(1), Op.ALLOC_TENSOR, buffer)
        tensor = LocalTensor(self._core, buffer, data, buffer.address, buffer.address + buffer.byte_count)
        return tensor if count is None else tensor[:count]


class TBufPool:
    """A piece of UB or L1 for queues and TBufs that `TPipe.init_buf_pool` or `init_buf_pool` of another pool gives.

    Parameters
    ----------
    position : TPosition
        VECIN, VECOUT or VECCALC (UB), A1 or B1 (L1).
    num : int
        How many blocks of queues and TBufs it may hold, at most 16.
    """

    def __init__(self, position: TPosition, num: int = 4) -> None:
        self.position, self.num = position_of(position), whole("num", num)
        self.name = self.position.name
        self._pipe: TPipe | None = None
        self._window: Window | None = None
        self._owners: list[TQue | TBuf] = []
        self._count = 0

    def init_buffer(self, owner: Owner, *size: int) -> Owner:
        """InitBuffer: as `TPipe.init_buffer`, with a place in the pool."""
        frame = sys._getframe(1)
        pipe, window = self._given(frame)
        core = pipe.core
        if isinstance(owner, TQue | TBuf) and space_of(owner.position, core.product) != window.space:
            rule = f"position of {owner.name} must be in {window.space.name}, as {self.name} is"
            core.refuse(frame, ShapeError, f"{rule}, not be {owner.position.name}")
        before = pipe.block_count
        pipe.give(frame, owner, size, window)
        self._count += pipe.block_count - before
        if self._count > self.num:
            rule = f"blocks of {self.name} must be at most {self.num}, which TBufPool is told"
            core.refuse(frame, ShapeError, f"{rule}, not {self._count}")
        self._owners.append(owner)
        return owner

    def init_buf_pool(self, pool: TBufPool, length: int, share: TBufPool | None = None) -> TBufPool:
        """InitBufPool: give a pool a piece of this one, as `TPipe.init_buf_pool`."""
        frame = sys._getframe(1)
        pipe, window = self._given(frame)
        return pipe.give_pool(frame, pool, length, share, window)

    def reset(self) -> None:
        """Reset: wait until what was freed is empty; what the buffers of the pool hold is lost."""
        frame = sys._getframe(1)
        pipe, _ = self._given(frame)
        for owner in self._owners:
            if isinstance(owner, TQue):
                owner._reset(frame, pipe)
            elif owner._buffer is not None and owner._buffer.is_alive:
                pipe.core.mark(frame, Op.FREE_TENSOR, owner._buffer)

    def _given(self, frame: FrameType) -> tuple[TPipe, Window]:
        """Return the pipe and the piece of memory.

        Raises
        ------
        StateError
            Nothing has given it any.
        """
        if self._pipe is None or self._window is None:
            rule = f"TBufPool of {self.name} must get its memory from InitBufPool first"
            raise _without_memory(frame, rule, Kind.BUFFER_POOL_NOT_GIVEN)
        return self._pipe, self._window


class TPipe:
    """The buffers of a core: InitBuffer gives queues and TBufs their places, and events go through it.

    On a cube core of A2 and A3 it sets events 0 to 2 of M_MTE1, as the library's does; `destroy`, which the end of the
    kernel calls, waits for these and for every block that was freed, and ends with a barrier of all pipes.
    """

    def __init__(self, core: Core) -> None:
        if core.pipe is not None:
            core.refuse(sys._getframe(1), StateError, "a core must have one TPipe at a time, not two")
        core.pipe = self
        self.core = core
        self._taken: dict[tuple[int, int], set[int]] = {}
        self._queues: list[TQue] = []
        self._buffers: list[Buffer] = []
        self.block_count = 0
        self._has_preset = core.kind == "cube" and core.product.core.is_split
        for _ in range(CUBE_EVENTS if self._has_preset else 0):
            frame = sys._getframe(1)
            core.flag(frame, Op.SET_FLAG, Pipe.M, Pipe.MTE1, self.take_event(frame, Pipe.M, Pipe.MTE1))

    def init_buffer(self, owner: Owner, *size: int) -> Owner:
        """InitBuffer: give a queue ``num`` blocks of ``length`` bytes, or a TBuf ``length`` bytes; return it.

        Parameters
        ----------
        owner : TQue, TQueBind or TBuf
            It is called like the variable that the line assigns to, in messages.
        *size : int
            ``num, length`` for a queue, ``length`` for a TBuf. Lengths are rounded up to 32 bytes.
        """
        self.give(sys._getframe(1), owner, size)
        return owner

    def init_buf_pool(self, pool: TBufPool, length: int, share: TBufPool | None = None) -> TBufPool:
        """InitBufPool: give a pool ``length`` bytes, or as many of those that the pool ``share`` has; return it.

        Parameters
        ----------
        pool : TBufPool
            It is called like the variable that the line assigns to, in messages.
        length : int
            Bytes, rounded up to 32.
        share : TBufPool or None
            Of the same memory and at least as long: the pools are used one after the other.
        """
        return self.give_pool(sys._getframe(1), pool, length, share)

    def give_pool(
        self, frame: FrameType, pool: TBufPool, length: int, share: TBufPool | None, memory: Window | None = None
    ) -> TBufPool:
        """Give a pool a piece of a memory, None: of the core."""
        core = self.core
        if not isinstance(pool, TBufPool) or not isinstance(share, TBufPool | None):
            core.refuse(frame, ShapeError, "InitBufPool must be given a TBufPool with length, and perhaps another one")
        if pool._window is not None:
            core.refuse(frame, StateError, f"{pool.name} must get its memory once")
        pool.name = _assigned_name(frame) or pool.name
        byte_count = align_up(core.whole(frame, "length", length, 1), BLOCK_BYTES)
        space = space_of(pool.position, core.product)
        if space not in (Space.UB, Space.L1):
            core.refuse(frame, ShapeError, f"position of {pool.name} must be in UB or L1, not {pool.position.name}")
        if share is None:
            buffer = core.place(frame, pool.position, byte_count, pool.name, owned=True, memory=memory)
            pool._window = Window(space, buffer.address, buffer.address + byte_count)
        else:
            _, other = share._given(frame)
            if other.space != space or other.end - other.start < byte_count:
                rule = f"{pool.name} must share at most the {other.end - other.start} bytes of {share.name}"
                core.refuse(frame, ShapeError, f"{rule} in {other.space.name}, not {byte_count} in {space.name}")
            pool._window = Window(space, other.start, other.start + byte_count)
        pool._pipe = self
        return pool

    def give(self, frame: FrameType, owner: TQue | TBuf, size: Sequence[int], memory: Window | None = None) -> None:
        """Give a queue or TBuf its bytes in a memory, None: of the core."""
        core = self.core
        is_queue = isinstance(owner, TQue)
        words = "num and length" if is_queue else "length"
        if not isinstance(owner, TQue | TBuf) or len(size) != 1 + is_queue:
            core.refuse(frame, ShapeError, "InitBuffer must be given a TQue with num and length or a TBuf with length")
        numbers = [core.whole(frame, words, number, 1) for number in size]
        length = align_up(numbers[-1], BLOCK_BYTES)
        blocks = numbers[0] if is_queue else 1
        if self.block_count + blocks > MAX_BUFFERS:
            rule = f"blocks of a TPipe must be at most {MAX_BUFFERS}"
            core.refuse(frame, ShapeError, f"{rule}, not {shown(self.block_count + blocks)}")
        self.block_count += blocks
        owner.name = _assigned_name(frame) or owner.name
        if isinstance(owner, TQue):
            if owner.depth < 1 or owner._pipe is not None:
                core.refuse(frame, StateError, f"{owner.name} must be of depth 1 or more and get its blocks once")
            try:
                owner._place(frame, self, blocks, length, memory)
            except ProductError as error:
                core.refuse(frame, ProductError, str(error).removesuffix(f" ({core.product.name})"))
            self._queues.append(owner)
        else:
            owner._core = core
            owner._buffer = core.place(frame, owner.position, length, owner.name, owned=True, memory=memory)
            if memory is None:  # in a pool it lives from its first use to the pool's Reset
                core.mark(frame, Op.ALLOC_TENSOR, owner._buffer)
            self._buffers.append(owner._buffer)

    def alloc_event_id(self, src_pipe: Pipe, dst_pipe: Pipe) -> int:
        """AllocEventID: the lowest event that no queue and no earlier call holds."""
        return self.take_event(sys._getframe(1), src_pipe, dst_pipe)

    def release_event_id(self, src_pipe: Pipe, dst_pipe: Pipe, event: int) -> None:
        """ReleaseEventID: others may take the event."""
        self.give_event(src_pipe, dst_pipe, event)

    def take_event(self, frame: FrameType, src_pipe: int, dst_pipe: int) -> int:
        """Return the lowest free event of two pipes and hold it."""
        event = self.core.free_event(frame, src_pipe, dst_pipe, self._taken)
        self._taken.setdefault((src_pipe, dst_pipe), set()).add(event)
        return event

    def give_event(self, src_pipe: int, dst_pipe: int, event: int) -> None:
        """Free an event."""
        self._taken.get((src_pipe, dst_pipe), set()).discard(event)

    def destroy(self) -> None:
        """Destroy: wait for what was freed and for the events that the constructor set, then for every pipe."""
        self.close(sys._getframe(1))

    def close(self, frame: FrameType) -> None:
        """Do what `destroy` does, at the line of ``frame``."""
        core = self.core
        if core.pipe is not self:
            core.refuse(frame, StateError, "a TPipe must be destroyed once, not twice")
        for queue in self._queues:
            queue._close(frame, self)
        self._queues.clear()
        for event in range(CUBE_EVENTS if self._has_preset else 0):
            core.flag(frame, Op.WAIT_FLAG, Pipe.M, Pipe.MTE1, event)
        for buffer in self._buffers:
            if buffer.is_alive:
                core.mark(frame, Op.FREE_TENSOR, buffer)
        core.barrier(frame, Pipe.ALL)
        core.pipe = None
