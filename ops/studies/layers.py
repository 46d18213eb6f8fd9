"""Layers whose gradients and outputs a study computes, as they came from a training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, Protocol

import numpy as np

from npu_sim.report.standards.case_tolerance import CaseTolerance

GradientName = Literal["dx", "dw", "db"]
GRADIENTS: tuple[GradientName, ...] = ("dx", "dw", "db")
"""Gradients of the input, of the weight and of the bias, in the order of the operator's outputMask."""
ResultName = Literal["dx", "dw", "db", "y"]
RESULT_NAMES: tuple[ResultName, ...] = (*GRADIENTS, "y")
"""What a study computes of a layer: a gradient, or the output of the forward call."""
Operator = Literal["convolution", "transposed convolution", "average pooling"]
NOT_MEASURED = "not_measured"
"""Key of a file's metadata: names of modules by their class whose gradients a step made and the file has not."""
LEFT_OUT = "left_out"
"""Key of a capture's metadata: why layers of the file are not in it, a text each; never the file's own."""

OwnStandard = str | CaseTolerance
"""The name of a standard, or what a case file says."""


class Source(Protocol):
    """Makes the tensors of a layer when they are needed, always the same."""

    def tensors(self, layer: Any) -> dict[str, Any]:
        """Return them by their names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One convolution of one training step.

    Attributes
    ----------
    name : str
        Name in reports.
    x : float32, float16 or bfloat16 [N, Cin, ...]
        Input of the forward pass, 1 to 3 spatial axes.
    dy : dtype of x [N, Cout, ...]
        Gradient at the output; where nothing but the output is wanted its shape and type count alone.
    weight_shape : tuple of int
        (Cout, Cin / groups, kernel...), of a transposed convolution (Cin, Cout / groups, kernel...).
    stride, padding, dilation : tuple of int
        One entry per spatial axis; a padding of 4 entries is up, down, left, right.
    groups : int
        Channel groups.
    transposed : bool
        It is a transposed convolution.
    output_padding : tuple of int
        One entry per spatial axis; () is none.
    weight : dtype of x, of ``weight_shape``, or None
        Needed for the gradient of the input and for the output.
    bias : dtype of x [Cout], or None
        Added to the output.
    gradients : tuple of str
        What is computed unless others are asked for: those that the step's own call wanted.
    grad_input, grad_weight, grad_bias : float array or None
        The framework's own gradients.
    cube_math_types : tuple of int or None
        Modes the layer is for; None: all.
    standards : tuple of str or CaseTolerance
        Standards of its own, by which it is judged besides.
    drawn : object or None
        Makes the tensors, which are placeholders until then; see `filled`.
    """

    name: str
    x: np.ndarray
    dy: np.ndarray
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None
    gradients: tuple[ResultName, ...] = ("dw",)
    grad_input: np.ndarray | None = None
    grad_weight: np.ndarray | None = None
    grad_bias: np.ndarray | None = None
    cube_math_types: tuple[int, ...] | None = None
    standards: tuple[OwnStandard, ...] = ()
    drawn: Source | None = None

    def filled(self) -> Layer:
        """Return the layer with its tensors, drawn if they are."""
        return self if self.drawn is None else replace(self, **self.drawn.tensors(self), drawn=None)

    @property
    def operator(self) -> Operator:
        """What the layer is."""
        return "transposed convolution" if self.transposed else "convolution"

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of the input."""
        return self.x.shape

    @property
    def wide(self) -> np.ndarray:
        """The larger side of the windows: the x of the convolution y = conv(x, w) of which this is one."""
        return self.dy if self.transposed else self.x

    @property
    def narrow(self) -> np.ndarray:
        """The other side, with one element for each window."""
        return self.x if self.transposed else self.dy

    @property
    def k_depth(self) -> int:
        """Products summed into one element of the weight gradient: batch times windows."""
        return prod((self.narrow.shape[0], *self.narrow.shape[2:]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolingLayer:
    """One 2D average pooling of one training step.

    Attributes
    ----------
    name : str
        Name in reports.
    x_shape : tuple of int
        (N, C, H, W) or (C, H, W), of the input.
    dy : float32, float16 or bfloat16 [N, C, Ho, Wo] or [C, Ho, Wo]
        Gradient at the output; as of `Layer`.
    kernel_size, stride, padding : tuple of int
        (h, w).
    ceil_mode, count_include_pad : bool
        As of `ops.avg_pool2d_backward`.
    divisor_override : int
        Likewise; 0 is none.
    x : dtype of dy, of ``x_shape``, or None
        Input, needed for the output.
    grad_input : float array of ``x_shape`` or None
        The framework's own gradient.
    gradients, cube_math_types, standards, drawn
        As of `Layer`.
    """

    name: str
    x_shape: tuple[int, ...]
    dy: np.ndarray
    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int = 0
    x: np.ndarray | None = None
    grad_input: np.ndarray | None = None
    gradients: tuple[ResultName, ...] = ("dx",)
    cube_math_types: tuple[int, ...] | None = None
    standards: tuple[OwnStandard, ...] = ()
    drawn: Source | None = None

    def filled(self) -> PoolingLayer:
        """Return the layer with its tensor, drawn if it is."""
        return self if self.drawn is None else replace(self, **self.drawn.tensors(self), drawn=None)

    @property
    def operator(self) -> Operator:
        """What the layer is."""
        return "average pooling"


AnyLayer = Layer | PoolingLayer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Capture:
    """The layers of one file.

    Attributes
    ----------
    source : str
        File name, for the report.
    layers : tuple of Layer or PoolingLayer
        In the order of the file.
    metadata : mapping of str to object
        What the file says about itself.
    """

    source: str
    layers: tuple[AnyLayer, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
