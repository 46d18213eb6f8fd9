"""The float64 results a computed one is compared with, and what the casts did to the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.dtypes.formats import dtype_name
from npu_sim.report.precision import Overflow
from ops.studies.kinds import Backend, Kind, Run, Tensors
from ops.studies.layers import AnyLayer
from ops.studies.precision_results import Comparison
from ops.studies.rounding import cast, count_overflow, count_underflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """The result of the operands as the hardware multiplied them.

    Attributes
    ----------
    golden : float64 array
        That result.
    operands : mapping of str to array
        The tensors it is of.
    input_underflow : int
        Elements of the operands that are not 0 in the file and 0 where they are multiplied.
    input_overflow : int
        Elements of the operands that are finite in the file and beyond the format where they are multiplied: Inf, or
        the largest number on a product that saturates.
    input_specials_lost : int
        Elements of the operands that are NaN or Inf in the file and a number where they are multiplied: a cast that
        saturates makes 0 and the largest number of them.
    lost_tensors : tuple of str
        Operands that are not all 0 in the file and all 0 where they are multiplied.
    """

    golden: npt.NDArray[np.float64]
    operands: Tensors
    input_underflow: int
    input_overflow: int
    input_specials_lost: int
    lost_tensors: tuple[str, ...]


class Goldens:
    """The float64 goldens of one result of one layer, and what was compared with them, each computed once.

    Parameters
    ----------
    layer : Layer or PoolingLayer
        Tensors of the file.
    kind : Kind
        Which result.
    dtype : str or None
        Format the tensors are cast to before the call.
    backend : Backend
        What computes weight gradients in float64.
    """

    def __init__(self, layer: AnyLayer, kind: Kind, dtype: str | None, backend: Backend) -> None:
        self._layer, self._kind, self._backend = layer, kind, backend
        self._rounded: dict[tuple[object, ...], Rounded] = {}
        self.comparisons: dict[tuple[object, ...], Comparison] = {}
        # by identity: the tensors are kept, here or in what was rounded
        self._peers: dict[int, npt.NDArray[np.float32]] = {}
        own = kind.tensors(layer)
        assert own is not None, "a kind is chosen for layers that have its operands"
        self._own: Tensors = own
        self.tensors: Tensors = {name: cast(tensor, dtype or dtype_name(tensor.dtype)) for name, tensor in own.items()}
        self.original = self._result(own)

    @property
    def dtype(self) -> str:
        """Format of the tensors as given to the call."""
        return dtype_name(next(iter(self.tensors.values())).dtype)

    def rounded(self, run: Run, product: Any) -> Rounded:
        """Return the golden of what ``product`` multiplied in ``run``."""
        overflow: Overflow = product.overflow_mode
        compute_dtype = run.compute_dtype
        facts = (product.hf32_mantissa_bits, product.hf32_ties) if compute_dtype == "hf32" else (overflow,)
        key = (compute_dtype, run.route, *facts)
        if key not in self._rounded:
            operands = self._kind.multiplied(self._layer, self.tensors, run, product)
            pairs = {name: (own, operands[name]) for name, own in self._own.items()}
            self._rounded[key] = Rounded(
                golden=self._result(operands),
                operands=operands,
                input_underflow=sum(count_underflow(own, operand) for own, operand in pairs.values()),
                input_overflow=sum(count_overflow(own, operand, compute_dtype) for own, operand in pairs.values()),
                input_specials_lost=sum(_specials_lost(own, operand) for own, operand in pairs.values()),
                lost_tensors=tuple(name for name, (own, operand) in pairs.items() if own.any() and not operand.any()),
            )
        return self._rounded[key]

    def peer(self, tensors: Tensors) -> npt.NDArray[np.float32]:
        """Return the result of ``tensors`` as float32 sums, computed once for each of `tensors` and `rounded`."""
        key = id(tensors)
        if key not in self._peers:
            with np.errstate(all="ignore"):
                self._peers[key] = self._kind.peer(self._layer, tensors)
        return self._peers[key]

    def _result(self, tensors: Tensors) -> npt.NDArray[np.float64]:
        layer, kind = self._layer, self._kind
        # three float64 copies of the operands while it is computed, and a product of one tap beside the result
        elems = 3 * sum(tensor.size for tensor in tensors.values()) + 2 * prod(kind.shape(layer))
        reserve(f"Golden of {layer.name} in float64", elems * 8)
        with np.errstate(all="ignore"):
            return kind.golden(layer, tensors, self._backend)


def _specials_lost(original: np.ndarray, operand: np.ndarray) -> int:
    return int(np.count_nonzero(~np.isfinite(original) & np.isfinite(operand)))
