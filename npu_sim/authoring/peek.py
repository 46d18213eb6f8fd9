"""What the buffers of a core hold while its kernel's source runs, for debuggers and prints.

The rows so far run in program order, on copies of the tensors, when somebody looks for the first time, and then from
look to look: a kernel that nobody looks into is recorded only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npu_sim.authoring.recorder import Recorder
from npu_sim.authoring.tensors import LocalTensor
from npu_sim.debug.views import lanes_of
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.session import Session
from npu_sim.errors import StateError
from npu_sim.isa.codes import Data, Space
from npu_sim.memory.host import HostMemory, HostSpan
from npu_sim.products import Product

_FRACTAL_SIDE = 16


class Follower:
    """One core that follows its recorder.

    Parameters
    ----------
    product : Product
    options : callable
        Returns how the rows run.
    core : int
        Number, for messages.
    is_alone : bool
        Whether no other core writes what this one reads behind SyncAll.
    tensors : callable
        Returns the arrays of the launch in the order of its tensors, uint8, copied.
    """

    def __init__(
        self,
        product: Product,
        options: Callable[[], ExecuteOptions],
        core: int,
        is_alone: bool,
        tensors: Callable[[], dict[str, np.ndarray]],
    ) -> None:
        self._product, self._options, self._core, self._is_alone = product, options, core, is_alone
        self._tensors = tensors
        self._session: Session | None = None
        self._spans: list[HostSpan] = []
        self._done = 0

    def contents(self, recorder: Recorder, tensor: LocalTensor) -> np.ndarray:
        """Run the rows that have not run yet, and return the elements of a tensor."""
        if len(recorder.phases) > 1 and not self._is_alone:
            name = tensor.buffer.name
            raise StateError(f"Contents of {name} must be looked at before SyncAll, or on one core alone, not here")
        if self._session is None:
            memory = HostMemory()
            self._spans = [memory.place(name, array) for name, array in self._tensors().items()]
            self._session = Session(self._product, self._options(), memory, core=self._core)
        rows = recorder.rows[self._done :]
        if len(rows):
            self._session.run(rows.copy(), self._spans, "looked at while recorded")
        self._done = recorder.count
        return _elements(self._session, tensor)

    def close(self) -> None:
        """Give the buffers back."""
        if self._session is not None:
            self._session.close()


def _elements(session: Session, tensor: LocalTensor) -> np.ndarray:
    memory = session.memory
    first, end, kind = tensor.address, tensor.end, tensor.dtype
    if tensor.space in (Space.L0A, Space.L0B):
        carriers = (memory.l0a if tensor.space == Space.L0A else memory.l0b)[first // 2 : end // 2]
        return lanes_of(carriers[: len(carriers) // 256 * 256].reshape(-1, _FRACTAL_SIDE, _FRACTAL_SIDE), kind)
    if tensor.space == Space.L0C:
        # sums are float32 or int32, whatever a kernel calls them
        whole = memory.l0c[first // 4 : end // 4].view(np.int32 if kind.data == Data.INT32 else np.float32)
        return whole[: len(whole) // 256 * 256].reshape(-1, _FRACTAL_SIDE, _FRACTAL_SIDE).copy()
    held = getattr(memory, tensor.space.name.lower())
    return held[first : end - (end - first) % kind.item_bytes].copy().view(kind.storage)
