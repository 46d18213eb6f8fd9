"""Captured convolution layers: what a training step gave each weight gradient, read from an .npz file.

Keys of the file, for every layer (the part before the last dot is its name, and the first key of a layer decides its
place in reports):

==========================  =========================================  ===============================================
key                         array                                      meaning
==========================  =========================================  ===============================================
``<layer>.x``               float32, float16 or bfloat16, rank 3..5    input of the forward pass, NCL, NCHW or NCDHW
``<layer>.dy``              dtype and rank of x                        gradient at the output
``<layer>.weight_shape``    integers [rank]                            (Cout, Cin / groups, kernel...)
``<layer>.stride``          integer or integers [rank - 2]
``<layer>.padding``         integer or integers [rank - 2]             2D also [4]: up, down, left, right
``<layer>.dilation``        integer or integers [rank - 2]
``<layer>.groups``          integer
``<layer>.grad_weight``     same dtypes (optional)                     the framework's own gradient, for comparison
``metadata``                JSON object as a text scalar (optional)    where the arrays come from
==========================  =========================================  ===============================================

NumPy writes a bfloat16 array as raw 2-byte elements; they are read back as bfloat16. Nothing in the file is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from math import prod
from pathlib import Path
from typing import IO, Any, NoReturn

import ml_dtypes
import numpy as np

from ops.studies.npz import open_file, path_text, read_arrays, refuse

EXAMPLE = "digits_cnn_step.npz"
_REQUIRED = ("x", "dy", "weight_shape", "stride", "padding", "dilation", "groups")
_OPTIONAL = ("grad_weight",)
_TENSOR_DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


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
        Gradient at the output.
    weight_shape : tuple of int
        (Cout, Cin / groups, kernel...).
    stride, padding, dilation : tuple of int
        One entry per spatial axis; a padding of 4 entries is up, down, left, right.
    groups : int
        Channel groups.
    grad_weight : float array of ``weight_shape`` or None
        The framework's own gradient.
    """

    name: str
    x: np.ndarray
    dy: np.ndarray
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    grad_weight: np.ndarray | None = None

    @property
    def k_depth(self) -> int:
        """Products summed into one element of the gradient: batch times output positions."""
        return prod((self.dy.shape[0], *self.dy.shape[2:]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Capture:
    """The layers of one file.

    Attributes
    ----------
    source : str
        File name, for the report.
    layers : tuple of Layer
        In the order of the file.
    metadata : mapping of str to object
        What the file says about itself.
    """

    source: str
    layers: tuple[Layer, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)


def load_example() -> Capture:
    """Return the step that ships with the package (a CNN on handwritten digits, see ``examples/``)."""
    with resources.files("ops.studies").joinpath("data").joinpath(EXAMPLE).open("rb") as file:
        return _parse(file, EXAMPLE)


def load_capture(path: str | Path) -> Capture:
    """Read a user's file.

    Parameters
    ----------
    path : str or Path
        An .npz file with the keys listed at the top of this module.

    Returns
    -------
    Capture

    Raises
    ------
    InputFileError
        The file cannot be read, is damaged, holds pickled objects, lacks a key or has one too many, or a layer's arrays
        do not fit together. Its text is one line.
    BudgetError
        Its arrays are larger than the memory budget (`npu_sim.budget`).
    """
    name = path_text(path)
    with open_file(name) as file:
        return _parse(file, name)


def _parse(file: IO[bytes], source: str) -> Capture:
    """Read all arrays of an .npz file and build the layers."""
    arrays = read_arrays(file, source)
    metadata = _metadata(arrays.pop("metadata", None), source)
    by_layer: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        name, dot, role = key.rpartition(".")
        if not dot or not name or role not in _REQUIRED + _OPTIONAL:
            roles = ", ".join(_REQUIRED + _OPTIONAL)
            refuse(source, f"Key {key!r} must be 'metadata' or a layer's name, a dot and one of {roles}")
        by_layer.setdefault(name, {})[role] = array
    if not by_layer:
        refuse(source, "The file must hold at least one layer, not none")
    layers = tuple(_layer(name, roles, source) for name, roles in by_layer.items())
    return Capture(source=source, layers=layers, metadata=metadata)


def _metadata(array: np.ndarray | None, source: str) -> dict[str, Any]:
    """Return the metadata object of a file."""
    if array is None:
        return {}
    if array.dtype.kind != "U" or array.shape != ():
        refuse(source, f"'metadata' must be a text scalar, not {array.dtype} {array.shape}")
    try:
        value = json.loads(str(array[()]), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        refuse(source, f"'metadata' must be JSON ({error})", error)
    if not isinstance(value, dict):
        refuse(source, f"'metadata' must be a JSON object, not {type(value).__name__}")
    return value


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _layer(name: str, roles: Mapping[str, np.ndarray], source: str) -> Layer:
    """Check one layer's arrays and build it."""
    if not name.isprintable() or len(name) > 100:
        refuse(source, "A layer's name must be printable and have at most 100 characters")
    for role in _REQUIRED:
        if role not in roles:
            refuse(source, f"Layer {name} must have the key {name + '.' + role!r}")
    x = _tensor(f"{name}.x", roles["x"], source)
    dy = _tensor(f"{name}.dy", roles["dy"], source)
    if dy.dtype != x.dtype:
        refuse(source, f"{name}.dy must have the dtype of x ({x.dtype}), not {dy.dtype}")
    if dy.ndim != x.ndim:
        refuse(source, f"{name}.dy must have the rank of x ({x.ndim}), not {dy.ndim}")
    axes = x.ndim - 2
    weight_shape = _integers(f"{name}.weight_shape", roles["weight_shape"], (x.ndim,), 1, source, scalar=False)
    stride = _integers(f"{name}.stride", roles["stride"], (axes,), 1, source)
    padding = _integers(f"{name}.padding", roles["padding"], (axes, 4) if axes == 2 else (axes,), 0, source)
    dilation = _integers(f"{name}.dilation", roles["dilation"], (axes,), 1, source)
    groups = _integers(f"{name}.groups", roles["groups"], (1,), 1, source)[0]
    layer = Layer(
        name=name,
        x=x,
        dy=dy,
        weight_shape=weight_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        grad_weight=_reference(f"{name}.grad_weight", roles.get("grad_weight"), weight_shape, source),
    )
    _check_fit(layer, source)
    return layer


def _tensor(label: str, array: np.ndarray, source: str) -> np.ndarray:
    """Check the dtype and rank of x or dy."""
    if array.dtype == np.dtype("V2"):
        array = array.view(ml_dtypes.bfloat16)
    if array.dtype.newbyteorder("=") not in _TENSOR_DTYPES:
        refuse(source, f"{label} must be float32, float16 or bfloat16, not {array.dtype}")
    if not 3 <= array.ndim <= 5:
        refuse(source, f"{label} must have rank 3 (NCL), 4 (NCHW) or 5 (NCDHW), not {array.ndim}")
    if array.size == 0:
        refuse(source, f"{label} must not be empty, but its shape is {array.shape}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _integers(
    label: str, array: np.ndarray, lengths: tuple[int, ...], least: int, source: str, *, scalar: bool = True
) -> tuple[int, ...]:
    """Return integer parameters; a scalar stands for one value per axis if ``scalar``."""
    if array.dtype.kind not in "iu":
        # an array of no elements may have any number of rows
        shown = str(array.tolist()) if array.ndim < 2 and array.size <= 8 else f"of shape {array.shape}"
        refuse(source, f"{label} must hold integers, not {array.dtype} {shown}")
    if array.ndim == 0 and scalar:
        array = np.repeat(array, lengths[0])
    if array.ndim != 1 or array.size not in lengths:
        rule = " or ".join(str(length) for length in lengths)
        refuse(source, f"{label} must have {rule} entries, not shape {array.shape}")
    values = tuple(int(value) for value in array)
    if min(values) < least or max(values) >= 2**31:
        refuse(source, f"{label} must be in [{least}, 2147483647], not {list(values)}")
    return values


def _reference(label: str, array: np.ndarray | None, weight_shape: tuple[int, ...], source: str) -> np.ndarray | None:
    """Check the optional reference gradient."""
    if array is None:
        return None
    if array.dtype == np.dtype("V2"):
        array = array.view(ml_dtypes.bfloat16)
    if array.dtype.newbyteorder("=") not in _TENSOR_DTYPES:
        refuse(source, f"{label} must be float32, float16 or bfloat16, not {array.dtype}")
    if array.shape != weight_shape:
        refuse(source, f"{label} must have the shape {weight_shape}, not {array.shape}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_fit(layer: Layer, source: str) -> None:
    """Refuse shapes that no convolution connects, whatever the product."""
    cout, cin_per_group, *kernel = layer.weight_shape
    name = layer.name
    if layer.dy.shape[0] != layer.x.shape[0]:
        refuse(source, f"{name}.dy must have the batch of x ({layer.x.shape[0]}), not {layer.dy.shape[0]}")
    if layer.dy.shape[1] != cout:
        refuse(source, f"{name}.dy must have weight_shape[0] = {cout} channels, not {layer.dy.shape[1]}")
    if cin_per_group * layer.groups != layer.x.shape[1]:
        refuse(
            source,
            f"{name}.x must have weight_shape[1] * groups = {cin_per_group * layer.groups} channels, "
            f"not {layer.x.shape[1]}",
        )
    if cout % layer.groups:
        refuse(source, f"{name}.groups must divide weight_shape[0] = {cout}, not be {layer.groups}")
    pads = layer.padding
    before_after = list(zip(pads[::2], pads[1::2], strict=True)) if len(pads) == 4 else [(pad, pad) for pad in pads]
    expected = []
    for axis, (before, after) in enumerate(before_after):
        room = layer.x.shape[2 + axis] + before + after - layer.dilation[axis] * (kernel[axis] - 1) - 1
        expected.append(room // layer.stride[axis] + 1 if room >= 0 else 0)
    if tuple(expected) != layer.dy.shape[2:]:
        refuse(
            source,
            f"{name}.dy must have the output size {tuple(expected)} that x, kernel, stride, padding and dilation give, "
            f"not {layer.dy.shape[2:]}",
        )
