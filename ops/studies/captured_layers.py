"""One layer of a file of captured layers: its arrays checked, whatever they hold, and put together.

`ops.studies.capture` has the keys and their meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import ml_dtypes
import numpy as np

from npu_sim.errors import InputFileError
from ops.studies.layers import RESULT_NAMES, AnyLayer, Layer, PoolingLayer, ResultName
from ops.studies.npz import one_line, refuse
from ops.studies.output_sizes import convolution_output, pooling_output

_CONVOLUTION = ("x", "dy", "weight_shape", "stride", "padding", "dilation", "groups")
_POOLING = ("x_shape", "dy", "kernel_size")
CONVOLUTION_KEYS = (
    *_CONVOLUTION, "grad_weight", "weight", "bias", "transposed", "output_padding", "gradients", "grad_input",
    "grad_bias",
)  # fmt: skip
"""Keys of a convolution, behind its name."""
POOLING_KEYS = (
    *_POOLING, "x", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override", "gradients", "grad_input"
)  # fmt: skip
"""Keys of an average pooling."""
_TENSOR_DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

Arrays = Mapping[str, np.ndarray]


class EmptyTensorError(InputFileError):
    """A tensor of a layer has no element, so that there is nothing to compute."""


def layer_of(name: str, arrays: Arrays, source: str) -> AnyLayer:
    """Return the layer that the arrays of a file make.

    Parameters
    ----------
    name : str
        Of the layer.
    arrays : mapping of str to array
        By their keys without the name; each is one of `CONVOLUTION_KEYS` or `POOLING_KEYS`.
    source : str
        Name of the file, for messages.

    Raises
    ------
    InputFileError
        A key is missing or one too many, or arrays do not fit together; `EmptyTensorError`: a tensor has no element.
    """
    if not name.isprintable() or len(name) > 100:
        refuse(source, "A layer's name must be printable and have at most 100 characters")
    is_pooling = "kernel_size" in arrays
    required, allowed = (_POOLING, POOLING_KEYS) if is_pooling else (_CONVOLUTION, CONVOLUTION_KEYS)
    for role in required:
        if role not in arrays and role.removesuffix("_shape") not in arrays:
            refuse(source, f"Layer {name} must have the key {name + '.' + role!r}")
    for role in arrays:
        if role not in allowed:
            kind = "an average pooling" if is_pooling else "a convolution"
            refuse(source, f"Layer {name}, {kind}, must not have the key {name + '.' + role!r}")
    return _pooling(name, arrays, source) if is_pooling else _convolution(name, arrays, source)


def _pooling(name: str, arrays: Arrays, source: str) -> PoolingLayer:
    dy = _tensor(f"{name}.dy", arrays["dy"], source, ranks=(3, 4))
    x = _tensor(f"{name}.x", arrays["x"], source, ranks=(3, 4)) if "x" in arrays else None
    if x is not None and x.dtype != dy.dtype:
        refuse(source, f"{name}.x must have the dtype of dy ({dy.dtype}), not {x.dtype}")
    shape = arrays["x_shape"] if x is None or "x_shape" in arrays else np.array(x.shape)
    x_shape = _integers(f"{name}.x_shape", shape, (dy.ndim,), 1, source, scalar=False)
    if x is not None and x.shape != x_shape:
        refuse(source, f"{name}.x must have the shape {x_shape}, not {x.shape}")
    if dy.shape[:-2] != x_shape[:-2]:
        rule = f"{name}.dy must have the batch and channels of x_shape {x_shape[:-2]}"
        refuse(source, f"{rule}, not {dy.shape[:-2]}")

    def pair(role: str, default: tuple[int, ...], least: int) -> tuple[int, int]:
        given = _integers(f"{name}.{role}", arrays[role], (2,), least, source) if role in arrays else default
        return given[0], given[1]

    kernel = pair("kernel_size", (), 1)
    layer = PoolingLayer(
        name=name,
        x_shape=x_shape,
        dy=dy,
        kernel_size=kernel,
        stride=pair("stride", kernel, 1),
        padding=pair("padding", (0, 0), 0),
        ceil_mode=_flag(f"{name}.ceil_mode", arrays.get("ceil_mode"), False, source),
        count_include_pad=_flag(f"{name}.count_include_pad", arrays.get("count_include_pad"), True, source),
        divisor_override=_integers(
            f"{name}.divisor_override", arrays.get("divisor_override", np.array(0)), (1,), -(2**31), source
        )[0],
        x=x,
        gradients=_pooling_results(f"{name}.gradients", arrays.get("gradients"), x is not None, source),
        grad_input=_reference(f"{name}.grad_input", arrays.get("grad_input"), x_shape, source),
    )
    expected = pooling_output(
        x_shape[-2:], layer.kernel_size, layer.stride, layer.padding, ceil_mode=layer.ceil_mode
    )  # fmt: skip
    if dy.shape[-2:] != expected:
        refuse(source, f"{name}.dy must have the output size {expected} of the pooling, not {dy.shape[-2:]}")
    return layer


def _convolution(name: str, arrays: Arrays, source: str) -> Layer:
    x = _tensor(f"{name}.x", arrays["x"], source)
    dy = _tensor(f"{name}.dy", arrays["dy"], source)
    if dy.dtype != x.dtype:
        refuse(source, f"{name}.dy must have the dtype of x ({x.dtype}), not {dy.dtype}")
    if dy.ndim != x.ndim:
        refuse(source, f"{name}.dy must have the rank of x ({x.ndim}), not {dy.ndim}")
    axes = x.ndim - 2
    weight = None
    if "weight" in arrays:
        weight = _tensor(f"{name}.weight", arrays["weight"], source)
        if weight.dtype != x.dtype:
            refuse(source, f"{name}.weight must have the dtype of x ({x.dtype}), not {weight.dtype}")
    bias = None
    if "bias" in arrays:
        bias = _reference(f"{name}.bias", arrays["bias"], dy.shape[1:2], source)
        if bias is not None and bias.dtype != x.dtype:
            refuse(source, f"{name}.bias must have the dtype of x ({x.dtype}), not {bias.dtype}")
    shape = arrays["weight_shape"] if weight is None or "weight_shape" in arrays else np.array(weight.shape)
    weight_shape = _integers(f"{name}.weight_shape", shape, (x.ndim,), 1, source, scalar=False)
    if weight is not None and weight.shape != weight_shape:
        refuse(source, f"{name}.weight must have the shape {weight_shape}, not {weight.shape}")
    transposed = _flag(f"{name}.transposed", arrays.get("transposed"), False, source)
    output_padding: tuple[int, ...] = ()
    if "output_padding" in arrays:
        output_padding = _integers(f"{name}.output_padding", arrays["output_padding"], (axes,), 0, source)
        if any(output_padding) and not transposed:
            refuse(source, f"{name}.output_padding must be 0 of a convolution, not {list(output_padding)}")
    layer = Layer(
        name=name,
        x=x,
        dy=dy,
        weight_shape=weight_shape,
        stride=_integers(f"{name}.stride", arrays["stride"], (axes,), 1, source),
        padding=_integers(f"{name}.padding", arrays["padding"], (axes, 4) if axes == 2 else (axes,), 0, source),
        dilation=_integers(f"{name}.dilation", arrays["dilation"], (axes,), 1, source),
        groups=_integers(f"{name}.groups", arrays["groups"], (1,), 1, source)[0],
        transposed=transposed,
        output_padding=output_padding,
        weight=weight,
        bias=bias,
        gradients=_gradients(f"{name}.gradients", arrays.get("gradients"), weight is not None, source),
        grad_input=_reference(f"{name}.grad_input", arrays.get("grad_input"), x.shape, source),
        grad_weight=_reference(f"{name}.grad_weight", arrays.get("grad_weight"), weight_shape, source),
        grad_bias=_reference(f"{name}.grad_bias", arrays.get("grad_bias"), dy.shape[1:2], source),
    )
    _check_fit(layer, source)
    return layer


def _gradients(label: str, array: np.ndarray | None, has_weight: bool, source: str) -> tuple[ResultName, ...]:
    if array is None:
        return ("dx", "dw") if has_weight else ("dw",)
    found = _results(label, array, RESULT_NAMES, source)
    for name in ("dx", "y"):
        if name in found and not has_weight:
            refuse(source, f"{label} must not hold {name} of a layer without the key weight")
    return found


def _pooling_results(label: str, array: np.ndarray | None, has_x: bool, source: str) -> tuple[ResultName, ...]:
    if array is None:
        return ("dx",)
    found = _results(label, array, ("dx", "y"), source)
    if "y" in found and not has_x:
        refuse(source, f"{label} must not hold y of a pooling without the key x")
    return found


def _results(label: str, array: np.ndarray, known: tuple[ResultName, ...], source: str) -> tuple[ResultName, ...]:
    found = array.reshape(-1).tolist()
    if array.dtype.kind != "U" or not found or len(found) > len(known) or not set(found) <= set(known):
        rule = f"{label} must hold some of the texts {', '.join(known)}"
        refuse(source, f"{rule}, not {array.dtype} of shape {array.shape}")
    return cast("tuple[ResultName, ...]", tuple(found))


def _flag(label: str, array: np.ndarray | None, default: bool, source: str) -> bool:
    if array is None:
        return default
    if array.dtype.kind not in "iub" or array.size != 1 or int(array.reshape(-1)[0]) not in (0, 1):
        refuse(source, f"{label} must be 0 or 1, not {array.dtype} of shape {array.shape}")
    return bool(array.reshape(-1)[0])


def _tensor(label: str, array: np.ndarray, source: str, ranks: tuple[int, ...] = (3, 4, 5)) -> np.ndarray:
    """Check the dtype and rank of a tensor."""
    if array.dtype == np.dtype("V2"):
        array = array.view(ml_dtypes.bfloat16)
    if array.dtype.newbyteorder("=") not in _TENSOR_DTYPES:
        refuse(source, f"{label} must be float32, float16 or bfloat16, not {array.dtype}")
    if array.ndim not in ranks:
        rule = "3 (NCL), 4 (NCHW) or 5 (NCDHW)" if len(ranks) == 3 else " or ".join(map(str, ranks))
        refuse(source, f"{label} must have rank {rule}, not {array.ndim}")
    if array.size == 0:
        raise EmptyTensorError(one_line(f"{source}: {label} must not be empty, but its shape is {array.shape}"))
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


def _reference(label: str, array: np.ndarray | None, shape: tuple[int, ...], source: str) -> np.ndarray | None:
    """Check the optional reference gradient."""
    if array is None:
        return None
    if array.dtype == np.dtype("V2"):
        array = array.view(ml_dtypes.bfloat16)
    if array.dtype.newbyteorder("=") not in _TENSOR_DTYPES:
        refuse(source, f"{label} must be float32, float16 or bfloat16, not {array.dtype}")
    if array.shape != shape:
        refuse(source, f"{label} must have the shape {shape}, not {array.shape}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_fit(layer: Layer, source: str) -> None:
    """Refuse shapes that no convolution connects, whatever the product."""
    # of a transposed convolution x and dy change places, and so do their channels
    name, wide, narrow = layer.name, layer.wide, layer.narrow
    wide_name, narrow_name = ("dy", "x") if layer.transposed else ("x", "dy")
    rows, columns, *kernel = layer.weight_shape
    if layer.dy.shape[0] != layer.x.shape[0]:
        refuse(source, f"{name}.dy must have the batch of x ({layer.x.shape[0]}), not {layer.dy.shape[0]}")
    if narrow.shape[1] != rows:
        refuse(source, f"{name}.{narrow_name} must have weight_shape[0] = {rows} channels, not {narrow.shape[1]}")
    if columns * layer.groups != wide.shape[1]:
        refuse(
            source,
            f"{name}.{wide_name} must have weight_shape[1] * groups = {columns * layer.groups} channels, "
            f"not {wide.shape[1]}",
        )
    if rows % layer.groups:
        refuse(source, f"{name}.groups must divide weight_shape[0] = {rows}, not be {layer.groups}")
    expected = convolution_output(
        layer.x.shape[2:], kernel, layer.stride, layer.padding, layer.dilation, transposed=layer.transposed,
        output_padding=layer.output_padding,
    )  # fmt: skip
    if expected != layer.dy.shape[2:]:
        refuse(
            source,
            f"{name}.dy must have the output size {expected} that x, kernel, stride, padding and dilation give, "
            f"not {layer.dy.shape[2:]}",
        )
