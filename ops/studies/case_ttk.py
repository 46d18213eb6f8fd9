"""Cases of TTK: a CSV file with a heading line, whose cells hold Python literals.

Rows of two kinds are known. Calls have ``api_name`` "aclnnConvolutionBackward", ``tensor_view_shapes`` and
``tensor_dtypes`` of gradOutput, input, weight and the three results, or "aclnnConvolution" with input, weight, bias and
output. Kernels have ``op_name`` "conv3d_backprop_filter_v2" (x, a shape, dy), "conv3d_backprop_input_v2" (a shape,
filter, dy), "conv2dv2" or "conv3dv2" (x, filter, bias), attributes with an entry for each axis and pads with two for
each spatial one; they are computed by the call that leads to the kernel, of backward kernels with one bit of its
outputMask. ``input_data_ranges`` has (low, high) for each tensor, or one for all; None is -2 or 2, as in
docs of hicann/ops-test-kit at 3fec561a72. ``precision_tolerances`` and ``absolute_precision``, where a row has one,
judge it besides (`npu_sim.report.standards.case_tolerance`), those of its first output.
"""

from __future__ import annotations

import ast
import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npu_sim.dtypes.cube_math import CubeMathType
from npu_sim.report.standards.case_tolerance import CaseTolerance
from ops.studies.case import OTHER_KINDS, Case, CaseError, wanted
from ops.studies.generate import Draw, Uniform
from ops.studies.layers import OwnStandard
from ops.studies.npz import refuse

_CALLS = ("aclnnConvolutionBackward", "aclnnConvolution")
_KERNELS = {"conv3d_backprop_filter_v2": ("dw", (0, 2)), "conv3d_backprop_input_v2": ("dx", (1, 2))}
"""Gradient, and which of the inputs are x or filter, and dy."""
_FORWARD_KERNELS = ("conv2dv2", "conv3dv2")
_LOW, _HIGH = -2.0, 2.0
"""What ends of ranges are that a row leaves to the tool."""
_FORMATS = ("NCL", "NCHW", "NCDHW", "ND")


def ttk_cases(text: str, source: str) -> Iterator[Case | CaseError]:
    """Yield the cases of a file, or why one is none.

    Raises
    ------
    InputFileError
        The text has no heading line with ``testcase_name``.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        headings = reader.fieldnames
        if not headings or "testcase_name" not in headings:
            refuse(source, "The first line must hold testcase_name, as in CSV files of TTK")
        for number, row in enumerate(reader):
            try:
                yield _case(row, number)
            except CaseError as error:
                yield error
            except (*OTHER_KINDS, SyntaxError, RecursionError, MemoryError) as error:
                # the parser of literals says MemoryError of brackets in brackets
                yield CaseError(f"a row lacks a cell or has one of another kind ({type(error).__name__}: {error})")
    except csv.Error as error:
        refuse(source, f"The file must be CSV ({error})", error)


def _case(row: Mapping[str, Any], number: int) -> Case:
    name = row["testcase_name"] or f"row {number}"
    if (row.get("is_enabled") or "True").strip().lower() == "false":
        raise CaseError("is_enabled is False")
    if row.get("api_name"):
        return _of_call(name, row)
    return _of_kernel(name, row)


def _literal(row: Mapping[str, Any], key: str) -> Any:
    return ast.literal_eval(row[key].strip() or "None")


def _of_call(name: str, row: Mapping[str, Any]) -> Case:
    if row["api_name"] not in _CALLS:
        raise CaseError(f"api_name must be {' or '.join(_CALLS)}, not {row['api_name'][:60]}")
    shapes, given = _literal(row, "tensor_view_shapes"), _literal(row, "attributes")
    _check_formats(_literal(row, "tensor_formats")[:3])
    attributes: dict[str, Any] = {key: list(given[key]) for key in ("stride", "padding", "dilation")}
    attributes |= {"groups": given["groups"], "transposed": int(given["transposed"])}
    names = ("x", "weight", "bias")
    if row["api_name"] == _CALLS[0]:
        names = ("dy", "x", "weight")
        attributes["gradients"] = wanted(given["outputMask"])
    if given["transposed"]:
        attributes["output_padding"] = list(given["outputPadding"])
    return _of_tensors(
        name, row, names, shapes[:3], _literal(row, "tensor_dtypes")[:3], attributes, int(given["cubeMathType"])
    )


def _of_tensors(
    name: str, row: Mapping[str, Any], names: Sequence[str], shapes: Sequence[Any], dtypes: Sequence[str],
    attributes: Mapping[str, Any], mode: int,
) -> Case:  # fmt: skip
    """Return a case of the tensors that are there; an optional one may be None."""
    draws = dict(zip(names, _draws(_literal(row, "input_data_ranges"), len(names)), strict=True))
    found = {key: tuple(shape) for key, shape in zip(names, shapes, strict=True) if shape is not None}
    return Case(
        name=name,
        shapes=found,
        dtype=_one_dtype([dtype for key, dtype in zip(names, dtypes, strict=True) if key in found]),
        attributes=attributes,
        draws={key: draws[key] for key in found},
        cube_math_type=mode,
        standards=_standards(row),
    )


def _of_kernel(name: str, row: Mapping[str, Any]) -> Case:
    operator = row["op_name"]
    if operator in _FORWARD_KERNELS:
        return _of_forward_kernel(name, row)
    if operator not in _KERNELS:
        raise CaseError(f"op_name must be {' or '.join((*_KERNELS, *_FORWARD_KERNELS))}, not {operator[:60]}")
    gradient, places = _KERNELS[operator]
    shapes, given = _literal(row, "input_shapes"), _literal(row, "attributes")
    dtypes, formats = (_literal(row, key) for key in ("input_dtypes", "input_formats"))
    _check_formats([formats[place] for place in places])
    first, dy = (tuple(shapes[place]) for place in places)
    weight = tuple(given["filter_size"]) if gradient == "dw" else first
    tensors = {"x": first if gradient == "dw" else tuple(given["input_size"]), "dy": dy, "weight": weight}
    draws = _draws(_literal(row, "input_data_ranges"), 3)
    found = {"x": draws[places[0]], "weight": draws[places[0]], "dy": draws[places[1]]}
    attributes, tensors = _without_flat_depth(
        tensors, list(given["strides"][2:]), list(given["pads"]), list(given["dilations"][2:])
    )
    return Case(
        name=name,
        shapes=tensors,
        dtype=_one_dtype([dtypes[place] for place in places]),
        attributes={**attributes, "groups": given["groups"], "gradients": [gradient]},
        draws=found,
        cube_math_type=_mode_of_kernel(given),
        standards=_standards(row),
    )


def _of_forward_kernel(name: str, row: Mapping[str, Any]) -> Case:
    given = _literal(row, "attributes")
    shapes, dtypes, formats = (_literal(row, f"input_{key}")[:3] for key in ("shapes", "dtypes", "formats"))
    _check_formats(formats)
    stride, pads, dilation = list(given["strides"][2:]), list(given["pads"]), list(given["dilations"][2:])
    tensors = {key: tuple(shape) for key, shape in zip(("x", "weight"), shapes, strict=False)}
    if len(stride) == 3:
        attributes, tensors = _without_flat_depth(tensors, stride, pads, dilation)
    else:
        attributes = {"stride": stride, "padding": pads, "dilation": dilation}
    attributes["groups"] = given["groups"]
    return _of_tensors(
        name, row, ("x", "weight", "bias"), (tensors["x"], tensors["weight"], shapes[2]), dtypes, attributes,
        _mode_of_kernel(given),
    )  # fmt: skip


def _standards(row: Mapping[str, Any]) -> tuple[OwnStandard, ...]:
    """Return the tolerance of a row, nothing where it has none."""
    pairs: Any = _literal(row, "precision_tolerances") if row.get("precision_tolerances") else None
    atol: Any = _literal(row, "absolute_precision") if row.get("absolute_precision") else None
    if not pairs and atol is None:
        return ()
    rtol, ptol = pairs[0] if pairs else (None, None)
    numbers = [rtol, ptol, atol[0] if isinstance(atol, list | tuple) and atol else atol]
    for number in numbers:
        if number is not None and not 0 <= number < math.inf:
            raise CaseError(f"a tolerance must be a finite number of 0 or more, not {number}")
    return (CaseTolerance(rtol=numbers[0], ptol=numbers[1], atol=numbers[2]),)


def _mode_of_kernel(given: Mapping[str, Any]) -> int:
    return int(CubeMathType.USE_HF32 if given.get("enable_hf32") else CubeMathType.KEEP_DTYPE)


def _without_flat_depth(
    tensors: Mapping[str, tuple[int, ...]], stride: list[int], pads: list[int], dilation: list[int]
) -> tuple[dict[str, list[int]], dict[str, tuple[int, ...]]]:
    """Return attributes of a call and shapes; a depth of 1 goes, for only 2D calls have paddings of both sides."""
    if len(pads) != 6 or len(stride) != 3:
        raise CaseError("strides and dilations must have 5 entries, pads 6")
    if all(one == other for one, other in zip(pads[::2], pads[1::2], strict=True)):
        return {"stride": stride, "padding": pads[::2], "dilation": dilation}, dict(tensors)
    if any(shape[2] != 1 for shape in tensors.values()) or any(pads[:2]):
        raise CaseError("3D calls have no paddings that differ on the sides of an axis")
    flat = {name: (*shape[:2], *shape[3:]) for name, shape in tensors.items()}
    return {"stride": stride[1:], "padding": pads[2:], "dilation": dilation[1:]}, flat


def _check_formats(formats: Sequence[str | None]) -> None:
    for name in formats:
        if name not in (*_FORMATS, None):
            raise CaseError(f"formats must be {', '.join(_FORMATS)}, not {name}")


def _one_dtype(dtypes: Sequence[str]) -> str:
    if len(set(dtypes)) > 1:
        raise CaseError(f"tensors must be of one dtype, not {' and '.join(sorted(set(dtypes)))}")
    return dtypes[0]


def _draws(ranges: Any, count: int) -> list[Draw]:
    """Return one distribution for each tensor; the last range stands for those behind it."""
    given = list(ranges or ((None, None),))
    found: list[Draw] = []
    for low, high in (given + given[-1:] * count)[:count]:
        low, high = _LOW if low is None else low, _HIGH if high is None else high
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise CaseError(f"a range must have finite ends in order, not ({low}, {high})")
        found.append(Uniform(float(low) + 0.0, float(high) + 0.0))
    return found
