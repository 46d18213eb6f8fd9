"""What one emulated core works with, kept from launch to launch: making and filling it takes as long as a small one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from npu_sim.isa.cube import scratch_floats
from npu_sim.isa.footprint import empty_runs
from npu_sim.isa.row import empty_rows
from npu_sim.memory.core import CoreMemory, aligned, memory_bytes
from npu_sim.products import CoreSpec

KindT = TypeVar("KindT")
BufferT = TypeVar("BufferT")


def kit_bytes(core: CoreSpec) -> int:
    """Return what a `Kit` takes on the host."""
    return memory_bytes(core) + 8 * scratch_floats(core) + 4 * _staging_floats(core)


def _staging_floats(core: CoreSpec) -> int:
    return max(core.l0c_bytes // 4, 8192)


@dataclass(slots=True)
class Kit:
    """Buffers of one core and the workspaces of `isa.dispatch.run_rows`."""

    memory: CoreMemory
    scratch: np.ndarray
    staging: npt.NDArray[np.float32]

    @classmethod
    def for_core(cls, core: CoreSpec) -> Kit:
        """Make a kit, with undefined contents."""
        return cls(
            memory=CoreMemory.undefined(core),
            scratch=aligned(scratch_floats(core), np.float64),
            staging=aligned(_staging_floats(core), np.float32),
        )


class Spare(Generic[KindT, BufferT]):
    """Buffers that nobody uses, by kind."""

    def __init__(self, make: Callable[[KindT], BufferT], limit: int = 8) -> None:
        self._make, self.limit = make, limit
        self._lock = threading.Lock()
        self._spare: list[tuple[KindT, BufferT]] = []

    def take(self, kind: KindT) -> BufferT:
        """Return a buffer of ``kind``, as it is made or as another left it."""
        with self._lock:
            for i in reversed(range(len(self._spare))):  # the last is the one that the host's caches have
                spare, buffer = self._spare[i]
                if spare is kind or spare == kind:
                    del self._spare[i]
                    return buffer
        return self._make(kind)

    def give_back(self, kind: KindT, buffer: BufferT) -> None:
        """Keep ``buffer`` for a later launch, and drop the oldest if there are too many."""
        with self._lock:
            self._spare.append((kind, buffer))
            del self._spare[: -self.limit]


KITS = Spare(Kit.for_core, limit=48)
"""As many as the cores of one kind of a product, all of which are open at a SyncAll: what a kit has and no core has
touched takes no memory."""
ROWS = Spare(empty_rows)
RUNS = Spare(empty_runs)
