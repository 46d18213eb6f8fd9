"""Every operator on shapes of ours, in every type: what a study runs where there is no file.

The shapes are small and of every kind that the operators treat apart: one to three axes, groups, strides, transposed
convolutions; poolings by each of the library's routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ops.studies.generate import DISTRIBUTIONS, TENSORS, drawn_layer, placeholder
from ops.studies.layers import RESULT_NAMES, AnyLayer, Capture, Layer, PoolingLayer
from ops.studies.output_sizes import convolution_output, pooling_output
from ops.studies.rounding import STORAGE

_CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "conv1d": ((4, 32, 256), (32, 32, 3), {}),
    "conv2d": ((4, 32, 28, 28), (32, 32, 3, 3), {}),
    "grouped": ((4, 32, 28, 28), (32, 8, 3, 3), {"stride": 2, "groups": 4}),
    "conv3d": ((2, 16, 8, 14, 14), (16, 16, 3, 3, 3), {}),
    "transposed": ((4, 32, 14, 14), (32, 32, 3, 3), {"stride": 2, "transposed": True}),
}
"""Shapes of x and weight; one place of padding on each side."""
_POOLINGS: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "pooling": ((3, 2, 1), {}),
    "pooling, padding not counted": ((3, 2, 1), {"count_include_pad": False}),
    "global pooling": ((28, 28, 0), {}),
}
"""Kernel, stride and padding on each axis."""
_POOLED = (4, 32, 28, 28)


def default_shapes(distribution: str = "uniform", seed: int = 0) -> Capture:
    """Return a layer of each shape in each type, with all its results.

    Parameters
    ----------
    distribution : str
        Of the tensors, one of `ops.studies.generate.DISTRIBUTIONS`.
    seed : int
        0 or more.
    """
    draws = dict.fromkeys(TENSORS, DISTRIBUTIONS[distribution])
    layers = tuple(drawn_layer(layer, seed, draws) for dtype in STORAGE for layer in _layers(dtype))
    about = {"distribution": distribution, "seed": seed}
    return Capture(source="default shapes", layers=layers, metadata=about)


def _layers(dtype: str) -> Iterator[AnyLayer]:
    storage = STORAGE[dtype]
    for name, (x_shape, weight_shape, given) in _CONVOLUTIONS.items():
        yield _convolution(f"{name} {dtype}", x_shape, weight_shape, storage, **given)
    for name, (numbers, given) in _POOLINGS.items():
        yield _pooling(f"{name} {dtype}", *numbers, storage, **given)


def _convolution(
    name: str,
    x_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    storage: npt.DTypeLike,
    *,
    stride: int = 1,
    groups: int = 1,
    transposed: bool = False,
) -> Layer:
    axes = len(x_shape) - 2
    strides, ones = (stride,) * axes, (1,) * axes
    extents = convolution_output(x_shape[2:], weight_shape[2:], strides, ones, ones, transposed=transposed)
    channels = weight_shape[1] * groups if transposed else weight_shape[0]
    shapes = {"x": x_shape, "dy": (x_shape[0], channels, *extents), "weight": weight_shape}
    tensors: dict[str, np.ndarray] = {key: placeholder(shape, storage) for key, shape in shapes.items()}
    return Layer(
        name=name, weight_shape=weight_shape, stride=strides, padding=ones, dilation=ones, groups=groups,
        transposed=transposed, gradients=RESULT_NAMES, **tensors,  # type: ignore[arg-type]  # the three tensors
    )  # fmt: skip


def _pooling(
    name: str, kernel: int, stride: int, pad: int, storage: npt.DTypeLike, *, count_include_pad: bool = True
) -> PoolingLayer:
    pairs = ((kernel, kernel), (stride, stride), (pad, pad))
    windows = pooling_output(_POOLED[2:], *pairs, ceil_mode=False)
    return PoolingLayer(
        name=name, x_shape=_POOLED, x=placeholder(_POOLED, storage), dy=placeholder((*_POOLED[:2], *windows), storage),
        kernel_size=pairs[0], stride=pairs[1], padding=pairs[2], count_include_pad=count_include_pad,
        gradients=("dx", "y"),
    )  # fmt: skip
