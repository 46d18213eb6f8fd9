"""What the results of operator calls have, whatever the operator."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from npu_sim.accumulation import Accumulation
from npu_sim.products import Product
from npu_sim.report.notebook import html_table


class CallResult:
    """Arrays of a call, what was multiplied, and the plan; two results are equal only if they are the same object."""

    __slots__ = ()

    ARRAYS: ClassVar[tuple[str, ...]] = ("output",)
    """Fields that are arrays, or None where masked off."""
    compute_dtype: str
    plan: Any

    def __repr__(self) -> str:
        outputs = ", ".join(
            f"{name}={'None' if value is None else f'{value.dtype}{list(value.shape)}'}"
            for name, value in self._arrays.items()
        )
        return f"{type(self).__name__}({outputs}, {self._words})"

    def _repr_html_(self) -> str:
        rows = [
            (name, "masked off" if value is None else str(value.dtype), "" if value is None else _times(value.shape))
            for name, value in self._arrays.items()
        ]
        title = f"{type(self).__name__}, multiplied in {self.compute_dtype}"
        return html_table(title, ("result", "type", "shape"), rows) + str(self.plan.calls.to_html("Steps"))

    @property
    def _arrays(self) -> dict[str, np.ndarray | None]:
        return {name: getattr(self, name) for name in self.ARRAYS}

    @property
    def _words(self) -> str:
        """What is said behind the arrays."""
        raise NotImplementedError

    @property
    def product(self) -> Product:
        """The product it ran on."""
        product: Product = self.plan.calls.product
        return product

    @property
    def workspace_bytes(self) -> int:
        """What phase 1 of the two-phase call asks for."""
        return int(self.plan.workspace_bytes)


class MultipliedResult(CallResult):
    """A result of the Cube, by a model of its additions."""

    __slots__ = ()

    accumulation: Accumulation

    @property
    def _words(self) -> str:
        computed = f"compute_dtype={self.compute_dtype!r}, accumulation={self.accumulation.name!r}"
        return f"{computed}, product={self.product.name!r}"


class PooledResult(CallResult):
    """A result of pooling, by one of the library's routes."""

    __slots__ = ()

    path: str

    @property
    def _words(self) -> str:
        active = f", quirks={list(self.plan.route.active)}" if self.plan.route.active else ""
        return f"path={self.path!r}, compute_dtype={self.compute_dtype!r}, product={self.product.name!r}{active}"


def _times(extents: tuple[int, ...]) -> str:
    return "x".join(map(str, extents)) or "scalar"
