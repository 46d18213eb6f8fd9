"""Global memory made of the caller's own NumPy arrays, where they lie.

Vendor-style kernel objects are given views of tensors, run piece by piece, and the caller looks at his arrays in
between; copying them into an arena and back each time would cost more than the kernels. Every array keeps a place in a
`GlobalMemory` whose arena is never made: addresses of that layout are what rows hold, so the engines that look at rows
only need nothing else, and the engine that executes reads and writes the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Data
from npu_sim.memory.gm import GlobalMemory, GmTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpan:
    """The part of a tensor that one view shows.

    Attributes
    ----------
    name : str
        What the view is called, for messages.
    tensor : GmTensor
        The storage it belongs to.
    start, end : int
        GM addresses of its first byte and of the byte behind its last one.
    """

    name: str
    tensor: GmTensor
    start: int
    end: int


class HostMemory:
    """Tensors that are NumPy arrays of the caller.

    Attributes
    ----------
    gm : GlobalMemory
        Where the tensors lie for rows. Its arena is not used.
    arena : uint8 array or None
        One array that holds all tensors where rows have them; None: each is an array of its own, see `storage`.
    """

    def __init__(self) -> None:
        self.gm = GlobalMemory()
        self.arena: npt.NDArray[np.uint8] | None = None
        self._storages: list[npt.NDArray[np.uint8]] = []
        self._owners: list[np.ndarray] = []
        self._bounds: list[tuple[int, int]] = []
        # of the last two lots of spans: loads and stores take turns
        self._tables: list[tuple[Sequence[HostSpan], npt.NDArray[np.int64]]] = []

    def place(self, name: str, view: np.ndarray, data: Data = Data.NONE) -> HostSpan:
        """Return where ``view`` lies; its storage becomes a tensor when it is seen for the first time.

        Parameters
        ----------
        name : str
            For messages.
        view : ndarray
            1-D and C-contiguous. All views of one array belong to one tensor. An array that cannot be written is
            copied when it is first seen.
        data : Data
            Element type of the tensor, for reports.

        Raises
        ------
        ShapeError
            If ``view`` is not 1-D and contiguous.
        """
        if view.ndim != 1 or not view.flags.c_contiguous:
            raise ShapeError(f"{name} must be a 1-D C-contiguous array, not one of shape {view.shape}")
        low = _address(view)
        index = self._find(low, low + view.nbytes)
        if index is None:
            index = self._add(name, view, data)
        start = self.gm.tensors[index].address + low - self._bounds[index][0]
        return HostSpan(name=name, tensor=self.gm.tensors[index], start=start, end=start + view.nbytes)

    def storage(self, index: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of tensor ``index``."""
        return self._storages[index]

    def table(self, spans: Sequence[HostSpan]) -> npt.NDArray[np.int64]:
        """Return what rows may touch of each tensor; of one that two spans show, everything between them too.

        Parameters
        ----------
        spans : sequence of HostSpan
            Not to be changed: the next call may give the same object.

        Returns
        -------
        int64[tensors, 3]
            Address of the tensor, first address a row may touch, address behind the last one; zeros where none may.
        """
        known = next((table for others, table in self._tables if others is spans), None)
        if known is not None:
            return known
        table = np.zeros((len(self.gm.tensors), 3), np.int64)
        for span in spans:
            line = table[span.tensor.index]
            if line[2] == 0:
                line[:] = span.tensor.address, span.start, span.end
            else:
                line[1:] = min(line[1], span.start), max(line[2], span.end)
        self._tables = [*self._tables[-1:], (spans, table)]
        return table

    def _find(self, low: int, high: int) -> int | None:
        for index, (first, end) in enumerate(self._bounds):
            if first <= low and high <= end:
                return index
        return None

    def _add(self, name: str, view: np.ndarray, data: Data) -> int:
        owner = view
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if owner.flags.c_contiguous:
            flat = owner.reshape(-1)
        elif owner.flags.f_contiguous:
            flat = owner.T.reshape(-1)
        else:
            flat = view
        # Engines are compiled for arrays that can be written; a second copy of them for others is not worth it.
        storage = np.asarray(flat).view(np.uint8) if flat.flags.writeable else flat.copy().view(np.uint8)
        self.gm.add(name, storage.nbytes, initialised=True, data=data)
        self._storages.append(storage)
        self._owners.append(flat)
        self._bounds.append((_address(flat), _address(flat) + flat.nbytes))
        return len(self._storages) - 1


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
