"""Files of test cases as CANN's operator tests have them, read unchanged: ATK JSON and TTK CSV.

A case names shapes, types, attributes and ranges of values; its tensors are drawn from a seed when its turn comes
(`ops.studies.generate`). Sources of the formats: the files of hicann/ops-nn at e5c3fa932 under
``conv/convolution_backward/tests/st``, ``conv/conv3d_backprop_filter_v2/tests/st``,
``conv/conv3d_backprop_input_v2/tests/st`` and ``pooling/avg_pool3_d_grad/tests/st``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.budget import reserve
from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import NpuSimError
from ops.studies.captured_layers import layer_of
from ops.studies.case import OTHER_KINDS, Case, CaseError
from ops.studies.case_atk import atk_cases
from ops.studies.case_ttk import ttk_cases
from ops.studies.generate import DISTRIBUTIONS, drawn_layer, placeholder
from ops.studies.layers import AnyLayer, Capture
from ops.studies.npz import one_line, open_file, path_text, refuse
from ops.studies.output_sizes import convolution_output, per_axis, pooling_output
from ops.studies.rounding import STORAGE

SUFFIXES = (".json", ".csv")
_BYTES_PER_BYTE = 30
"""What Python keeps of a byte of text, roughly, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFile:
    """The cases of a file.

    Attributes
    ----------
    capture : Capture
        Those that can be computed, as layers.
    left_out : mapping of str to int
        Why others cannot, and how many.
    """

    capture: Capture
    left_out: Mapping[str, int]


def load_cases(path: str | os.PathLike[str], *, seed: int = 0, distribution: str | None = None) -> CaseFile:
    """Read a file of cases.

    Parameters
    ----------
    path : str or path
        An ATK ``.json`` or a TTK ``.csv``.
    seed : int
        0 or more; decides the tensors together with the name of a case.
    distribution : str or None
        One of `ops.studies.generate.DISTRIBUTIONS` for all tensors; None: the ranges of the file.

    Returns
    -------
    CaseFile

    Raises
    ------
    InputFileError
        The file cannot be read, is none of the formats, or no case of it can be computed. Its text is one line.
    BudgetError
        The file is larger than the memory budget.
    """
    name = path_text(path)
    with open_file(name) as file:
        size = os.fstat(file.fileno()).st_size
        reserve(one_line(f"Cases of {name}"), size * _BYTES_PER_BYTE)
        data = file.read(size)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(name, f"The file must be UTF-8 text ({error})", error)
    rows: Iterator[Case | CaseError] = (ttk_cases if name.endswith(".csv") else atk_cases)(text, name)
    layers: dict[str, AnyLayer] = {}
    left_out: dict[str, int] = {}
    for row in rows:
        try:
            if isinstance(row, CaseError):
                raise row
            layer = _layer(row, name, seed, distribution, taken=layers)
            layers[layer.name] = layer
        except (NpuSimError, *OTHER_KINDS) as error:
            reason = str(error).removeprefix(f"{name}: ")
            if not isinstance(error, NpuSimError):
                reason = f"a shape or attribute is of another kind ({type(error).__name__}: {error})"
            reason = one_line(reason)
            left_out[reason] = left_out.get(reason, 0) + 1
    if not layers:
        first = next(iter(left_out), "it has no rows")
        refuse(name, f"The file must hold a case that can be computed, but {first}")
    about = {"seed": seed, "distribution": distribution or "the ranges of the file"}
    return CaseFile(capture=Capture(source=name, layers=tuple(layers.values()), metadata=about), left_out=left_out)


def _layer(case: Case, source: str, seed: int, distribution: str | None, taken: Mapping[str, AnyLayer]) -> AnyLayer:
    dtype = get_dtype(case.dtype)
    if dtype.name not in STORAGE:
        raise CaseError(f"dtype must be fp16, bf16 or fp32, not {dtype.name}")
    if any(extent < 1 for shape in case.shapes.values() for extent in shape):
        raise CaseError("a tensor is empty")
    shapes, attributes = dict(case.shapes), dict(case.attributes)
    if "dy" not in shapes:
        shapes["dy"] = _output_shape(shapes, attributes)
        attributes["gradients"] = ["y"]
        if any(extent < 1 for extent in shapes["dy"]):
            raise CaseError("there is no output")
    arrays: dict[str, np.ndarray] = {name: placeholder(shape, STORAGE[dtype.name]) for name, shape in shapes.items()}
    arrays |= {key: np.array(value) for key, value in attributes.items()}
    name, number = case.name[:90], 1
    while name in taken:
        number += 1
        name = f"{case.name[:90]}#{number}"
    layer = layer_of(name, arrays, source)
    draws = case.draws if distribution is None else dict.fromkeys(case.draws, DISTRIBUTIONS[distribution])
    modes = None if case.cube_math_type is None else (case.cube_math_type,)
    return drawn_layer(layer, seed, draws, cube_math_types=modes, standards=case.standards)


def _output_shape(shapes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of the output of a convolution, or of a pooling, that has no tensor at the output."""
    x = shapes["x"]
    axes = 2 if "kernel_size" in attributes else len(x) - 2
    if any(step < 1 for step in per_axis(attributes["stride"], axes)):
        raise CaseError(f"stride must be at least 1, not {attributes['stride']}")
    if "kernel_size" in attributes:
        pairs = (per_axis(attributes[key], 2) for key in ("kernel_size", "stride", "padding"))
        return (*x[:-2], *pooling_output(x[-2:], *pairs, ceil_mode=bool(attributes["ceil_mode"])))
    weight, transposed = shapes["weight"], bool(attributes.get("transposed"))
    channels = weight[1] * int(attributes["groups"]) if transposed else weight[0]
    numbers = (per_axis(attributes[key], axes) for key in ("stride", "padding", "dilation"))
    extents = convolution_output(
        x[2:], weight[2:], *numbers, transposed=transposed,
        output_padding=per_axis(attributes.get("output_padding", 0), axes),
    )  # fmt: skip
    return (x[0], channels, *extents)
