"""Captured layers: what a training step gave its convolutions and average poolings, read from an .npz file.

Keys of the file, for every layer (the part before the last dot is its name, and the first key of a layer decides its
place in reports):

==========================  =========================================  ===============================================
key                         array                                      meaning
==========================  =========================================  ===============================================
``<layer>.x``               float32, float16 or bfloat16, rank 3..5    input of the forward pass, NCL, NCHW or NCDHW
``<layer>.dy``              dtype and rank of x                        gradient at the output
``<layer>.weight_shape``    integers [rank]                            (Cout, Cin / groups, kernel...), transposed
                                                                       (Cin, Cout / groups, kernel...)
``<layer>.stride``          integer or integers [rank - 2]
``<layer>.padding``         integer or integers [rank - 2]             2D also [4]: up, down, left, right
``<layer>.dilation``        integer or integers [rank - 2]
``<layer>.groups``          integer
``<layer>.weight``          dtype of x, weight_shape (optional)        for dx and y; it may stand for weight_shape
``<layer>.bias``            dtype of x [Cout] (optional)               added to y
``<layer>.transposed``      0 or 1 (optional)                          1: a transposed convolution
``<layer>.output_padding``  integers [rank - 2] (optional)             of a transposed convolution
``<layer>.gradients``       text [1..4] (optional)                     which of dx, dw, db, y are computed (y: output);
                                                                       without it dw, and dx if there is a weight
``<layer>.grad_input``      same dtypes, shape of x (optional)         the framework's own gradients, for comparison
``<layer>.grad_weight``     same dtypes, weight_shape (optional)
``<layer>.grad_bias``       same dtypes [Cout] (optional)
``metadata``                JSON object as a text scalar (optional)    where the arrays come from
==========================  =========================================  ===============================================

A layer with a key ``kernel_size`` is a 2D average pooling:

===============================  ====================================  ===============================================
key                              array                                 meaning
===============================  ====================================  ===============================================
``<layer>.x_shape``              integers [3 or 4]                     (N, C, H, W) or (C, H, W) of the input
``<layer>.dy``                   float32, float16 or bfloat16          gradient at the output
``<layer>.x``                    dtype of dy, x_shape (optional)       needed for y; it may stand for x_shape
``<layer>.kernel_size``          integer or integers [2]
``<layer>.stride``               integer or integers [2] (optional)    the kernel size without it
``<layer>.padding``              integer or integers [2] (optional)    0 without it
``<layer>.ceil_mode``            0 or 1 (optional)                     0 without it
``<layer>.count_include_pad``    0 or 1 (optional)                     1 without it
``<layer>.divisor_override``     integer (optional)                    0 is none
``<layer>.gradients``            text [1..2] (optional)                which of dx and y; dx without it
``<layer>.grad_input``           same dtypes, x_shape (optional)       the framework's own gradient
===============================  ====================================  ===============================================

Where the metadata has ``not_measured``, names of modules by their class, reports say that the step trained these too.
NumPy writes a bfloat16 array as raw 2-byte elements; they are read back as bfloat16. Nothing in the file is unpickled.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from ops.studies.captured_layers import CONVOLUTION_KEYS, POOLING_KEYS, EmptyTensorError, layer_of
from ops.studies.layers import LEFT_OUT, NOT_MEASURED, AnyLayer, Capture
from ops.studies.npz import open_file, path_text, read_arrays, refuse

EXAMPLE = "digits_cnn_step.npz"


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
    metadata.pop(LEFT_OUT, None)
    known = tuple(dict.fromkeys((*CONVOLUTION_KEYS, *POOLING_KEYS)))
    by_layer: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        name, dot, role = key.rpartition(".")
        if not dot or not name or role not in known:
            refuse(source, f"Key {key!r} must be 'metadata' or a layer's name, a dot and one of {', '.join(known)}")
        by_layer.setdefault(name, {})[role] = array
    if not by_layer:
        refuse(source, "The file must hold at least one layer, not none")
    layers: list[AnyLayer] = []
    empty: list[EmptyTensorError] = []
    for name, roles in by_layer.items():
        try:
            layers.append(layer_of(name, roles, source))
        except EmptyTensorError as error:
            empty.append(error)
    if not layers:
        raise empty[0]
    reasons = {LEFT_OUT: [str(error).removeprefix(f"{source}: ") for error in empty]} if empty else {}
    return Capture(source=source, layers=tuple(layers), metadata={**metadata, **reasons})


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
    modules = value.get(NOT_MEASURED, {})
    if not isinstance(modules, dict) or not all(map(_is_names, modules.values())):
        refuse(source, f"'metadata' must name modules that are not measured as lists of names by class, not {modules}")
    return value


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
