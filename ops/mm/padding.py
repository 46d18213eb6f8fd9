"""Rows that begin at whole blocks, as the kernel of unified cores needs them: operands widened, results cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npu_sim.dtypes.formats import DTYPES
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.units import align_up
from ops.common.pipeline import Buffer, Kernel, Step
from ops.common.view import View
from ops.matmul.tiling import CUBE
from ops.vector.copy import copy_launch
from ops.vector.memset import memset_launch
from ops.vector.steps import StepList


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """The steps that widen and cut rows; there are none where rows are whole blocks or cores take any.

    Attributes
    ----------
    steps : StepList
        Where the steps go.
    """

    steps: StepList

    @property
    def _product(self) -> Product:
        return self.steps.product

    def needs(self, buffer: Buffer) -> bool:
        """Return whether the rows of ``buffer`` must be wider."""
        return not self._product.core.is_split and buffer.shape[-1] % CUBE != 0

    def wide(self, buffer: Buffer, name: str) -> Buffer:
        """Return a buffer like ``buffer`` with rows of whole blocks."""
        shape = (*buffer.shape[:-1], align_up(buffer.shape[-1], CUBE))
        return Buffer(name=name, shape=shape, dtype=buffer.dtype, format="ND")

    def widened(self, buffer: Buffer) -> Buffer:
        """Return ``buffer`` with zeros behind its rows, by a step, or itself."""
        if not self.needs(buffer):
            return buffer
        target = self.wide(buffer, f"{buffer.name}.Pad")
        views = View.contiguous(buffer.shape), _rows_of(target, buffer.shape)
        self._copy("Pad", buffer, target, views, clears=True)
        return target

    def cut(self, source: Buffer, target: Buffer) -> None:
        """Add the step that copies the rows of ``source`` that ``target`` has."""
        views = _rows_of(source, target.shape), View.contiguous(target.shape)
        self._copy("Slice", source, target, views, clears=False)

    def _copy(self, name: str, source: Buffer, target: Buffer, views: tuple[View, View], *, clears: bool) -> None:
        product, item = self._product, DTYPES[source.dtype].item_bytes

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            copy = copy_launch(gm, at(source), views[0], at(target), views[1], item, product)
            return Kernel(launches=(memset_launch(gm, at(target), product), copy) if clears else (copy,))

        self.steps.add(Step(name=name, reads=(source,), writes=(target,), build=build))


def _rows_of(wide: Buffer, shape: tuple[int, ...]) -> View:
    """Return where an array of ``shape`` lies in ``wide``."""
    return View(shape=shape, strides=View.contiguous(wide.shape).strides)
