"""What a study asks of an operator's result: how it is called, its float64 golden, what the hardware multiplied.

A `Kind` is one result of one operator: a gradient, or the output of the forward call. It has one `Call` for each
interface that computes it. Studies, tables and files know kinds by their fields alone; `ops.studies.registry` lists
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ops.studies.layers import AnyLayer, Operator, ResultName

Entry = Literal["aclnn", "tbe", "ascendc"]
ENTRIES: tuple[Entry, ...] = ("aclnn", "tbe", "ascendc")
"""The two-phase operators of the library, the TBE DSL, the Ascend C class."""
Tensors = Mapping[str, np.ndarray]
"""Tensors of a layer by their names: "x", "dy", "weight", and what a kind makes of them."""
Golden = npt.NDArray[np.float64]
VECTOR = "vector"
"""Stands for the model of additions where vector cores add, in float32."""


class _Gradient(Protocol):
    """What is read of the result of `ops.convolution_backward`."""

    @property
    def compute_dtype(self) -> str: ...
    @property
    def accumulation(self) -> Any: ...
    @property
    def plan(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What a study asks of the emulator; tests put their own in.

    Attributes
    ----------
    convolution_backward : callable
        ``ops.convolution_backward``.
    golden : callable
        ``ops.common.definition_by_matrices.weight_gradient``.
    get_product : callable
        ``npu_sim.products.registry.get_product``.
    """

    convolution_backward: Callable[..., _Gradient]
    golden: Callable[..., Golden]
    get_product: Callable[[str], Any]


def emulator() -> Backend:
    """Return the real backend; its modules are imported here, not with this one."""
    from npu_sim.products.registry import get_product
    from ops.common.definition_by_matrices import weight_gradient as golden
    from ops.conv_backward.api import convolution_backward

    return Backend(convolution_backward=convolution_backward, golden=golden, get_product=get_product)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a gradient is to be computed.

    Attributes
    ----------
    product : str
        As it was asked for.
    chip : Product
        What that name stands for.
    cube_math_type : int or None
        0..3; None where the interface has none.
    accumulation : str or None
        Model of the Cube's additions; None: the product's.
    threads : int or None
        Host threads.
    backend : Backend
        What computes.
    """

    product: str
    chip: Any
    cube_math_type: int | None
    accumulation: str | None
    threads: int | None
    backend: Backend


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What a call gave.

    Attributes
    ----------
    gradient : array
        The result, in the shape of its tensor.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What was multiplied, or added where nothing is.
    accumulation : str
        Model of the Cube's additions, or `VECTOR`.
    tiling : str
        How the work was cut.
    route : str
        Which of the operator's ways was taken, where that decides what is multiplied.
    """

    gradient: np.ndarray
    compute_dtype: str
    accumulation: str
    tiling: str
    route: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One interface that computes a result.

    Attributes
    ----------
    words : str
        What is called, for reports.
    has_modes : bool
        Whether it has a cubeMathType.
    run : callable
        (layer, its tensors in the asked format, `Asked`) to `Run`. It raises what the interface refuses with.
    """

    words: str
    has_modes: bool
    run: Callable[[Any, Tensors, Asked], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One result of one operator.

    Attributes
    ----------
    operator : str
        Layers it is of.
    gradient : {"dx", "dw", "db", "y"}
        Which.
    calls : mapping of entry to Call
        The interfaces that compute it.
    operands : tuple of str
        Tensors of the layer that are multiplied or added.
    optional : tuple of str
        Those besides that are added where the layer has them.
    golden : callable
        (layer, tensors, `Backend`) to the float64 result of tensors as they are.
    peer : callable
        (layer, tensors) to their result as float32 sums, one product and one addition at a time: what a CPU makes
        without the operator.
    multiplied : callable
        (layer, tensors, `Run`, product) to the tensors as the hardware multiplied them: the operands, and what the
        route makes of constants.
    k_depth : callable
        Products or summands in one element, at most.
    macs : callable
        Multiply-adds, or additions.
    reference : callable
        The framework's own result, or None.
    """

    operator: Operator
    gradient: ResultName
    calls: Mapping[Entry, Call]
    operands: tuple[str, ...]
    golden: Callable[[Any, Tensors, Backend], Golden]
    peer: Callable[[Any, Tensors], npt.NDArray[np.float32]]
    multiplied: Callable[[Any, Tensors, Run, Any], Tensors]
    k_depth: Callable[[Any], int]
    macs: Callable[[Any], int]
    reference: Callable[[Any], np.ndarray | None]
    optional: tuple[str, ...] = ()

    def shape(self, layer: Any) -> tuple[int, ...]:
        """Return the shape of the result."""
        if self.gradient == "dx":
            return tuple(layer.x_shape)
        if self.gradient == "dw":
            return tuple(layer.weight_shape)
        return tuple(layer.dy.shape[1:2] if self.gradient == "db" else layer.dy.shape)

    def tensors(self, layer: AnyLayer) -> dict[str, np.ndarray] | None:
        """Return the operands as the layer has them; None if it lacks one."""
        found = {name: getattr(layer, name) for name in self.operands}
        if any(tensor is None for tensor in found.values()):
            return None
        more = {name: getattr(layer, name) for name in self.optional}
        return found | {name: tensor for name, tensor in more.items() if tensor is not None}
