"""Cases of ATK: a JSON list of calls, each with a list of named inputs.

An input is an object, or for an array a list of objects with one value each: ``name``; ``type`` "tensor", "attr" or
"attrs"; ``dtype``; ``shape``; and ``range_values``, of an attribute its value, of a tensor [low, high] for uniform
values, ``{"name": "nd", "mean": [a, b], "std": [c, d]}`` for normal ones, or a list of one special value. ASSUMED: an
attribute with a range has its first value; inputs of the forward calls, of which no file is published, are called as
those of the backward ones. ``standard`` has the standard of the accuracy, ``acc``: "mixed_tolerance_bm", "single_bm" or
the ratios of a level of the double benchmark judge a case besides those of the study; others are left to it, "default"
among them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ops.studies.case import OTHER_KINDS, Case, CaseError, wanted
from ops.studies.generate import Constant, Draw, Normal, Uniform
from ops.studies.npz import refuse

_STANDARDS = {"mixed_tolerance_bm": "mixed-tolerance", "single_bm": "single-benchmark"}
_DOUBLE_BENCHMARK = "cv_fused_double_benchmark"
_RATIOS = ("max_re_ratio", "avg_re_ratio", "root_mean_squared_ratio")
_LEVELS: dict[Any, str] = {
    (10, 2, 2): "double-benchmark-l0",
    (5, 1.5, 1.5): "double-benchmark-l1",
    (2, 1.2, 1.2): "double-benchmark-l2",
}
_CALLS = ("ConvolutionBackward", "AvgPool2dBackward", "Convolution", "AvgPool2d")


def atk_cases(text: str, source: str) -> Iterator[Case | CaseError]:
    """Yield the cases of a file, or why one is none.

    Raises
    ------
    InputFileError
        The text is no list of objects in JSON.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        refuse(source, f"The file must be JSON ({error})", error)
    if not isinstance(document, list):
        refuse(source, f"The file must hold a JSON list of cases, not {type(document).__name__}")
    for number, case in enumerate(document):
        try:
            yield _case(case, number)
        except CaseError as error:
            yield error
        except OTHER_KINDS as error:
            yield CaseError(f"a case lacks an input or has one of another kind ({type(error).__name__}: {error})")


def _case(case: Any, number: int) -> Case:
    call = str(case.get("aclnn_name", "")).removeprefix("aclnn")
    if call not in _CALLS:
        raise CaseError(f"aclnn_name must be one of {', '.join(_CALLS)}, not {call[:60]}")
    inputs = dict(map(_named, case["inputs"]))
    name = f"{call} {case.get('id', number)}"
    of_call = _pooling if call.startswith("AvgPool2d") else _convolution
    made = of_call(name, inputs, is_backward=call.endswith("Backward"))
    return replace(made, standards=_standards(case.get("standard")))


def _standards(given: Any) -> tuple[str, ...]:
    """Return the standards of a case by our names; the tool's default is that of the study."""
    accuracy = given.get("acc") if isinstance(given, dict) else None
    if isinstance(accuracy, str):
        return (_STANDARDS[accuracy],) if accuracy in _STANDARDS else ()
    ratios = accuracy.get(_DOUBLE_BENCHMARK) if isinstance(accuracy, dict) else None
    if not isinstance(ratios, dict):
        return ()
    level = _LEVELS.get(tuple(ratios.get(key) for key in _RATIOS))
    if level is None:
        raise CaseError(f"the ratios of {_DOUBLE_BENCHMARK} must be those of a level, not {ratios}")
    return (level,)


def _named(entry: Any) -> tuple[str, Any]:
    """Return the name of an input with its value; of a tensor the object itself."""
    if isinstance(entry, list):
        return entry[0]["name"], [item["range_values"] for item in entry]
    if entry["type"] == "tensor":
        return entry["name"], entry
    value = entry["range_values"]
    return entry["name"], value[0] if isinstance(value, list) else value


def _convolution(name: str, inputs: Mapping[str, Any], *, is_backward: bool) -> Case:
    tensors = {"x": inputs["input"], "weight": inputs["weight"]}
    if is_backward:
        tensors["dy"] = inputs["gradOutput"]
    elif isinstance(inputs.get("bias"), dict) and inputs["bias"]["shape"] is not None:
        tensors["bias"] = inputs["bias"]
    if str(inputs.get("format", "NC")).upper() not in ("NC", "ND", "NCL", "NCHW", "NCDHW"):
        raise CaseError(f"format must be NCL, NCHW or NCDHW, not {inputs['format']}")
    attributes: dict[str, Any] = {key: inputs[key] for key in ("stride", "padding", "dilation", "groups")}
    attributes["transposed"] = int(inputs["transposed"])
    if is_backward:
        attributes["gradients"] = wanted(inputs["outputMask"])
    if inputs["transposed"]:
        attributes["output_padding"] = inputs["outputPadding"]
    return _of(name, tensors, attributes, inputs["cubeMathType"])


def _pooling(name: str, inputs: Mapping[str, Any], *, is_backward: bool) -> Case:
    tensors = {"dy": inputs["gradOutput"]} if is_backward else {"x": inputs["self"]}
    attributes: dict[str, Any] = {"x_shape": inputs["self"]["shape"], "kernel_size": inputs["kernel_size"]}
    attributes |= {"stride": inputs["stride"] or inputs["kernel_size"], "padding": inputs["padding"]}
    attributes |= {key: int(inputs[key] or 0) for key in ("ceil_mode", "count_include_pad", "divisor_override")}
    return _of(name, tensors, attributes, inputs["cube_math_type"])


def _of(name: str, tensors: Mapping[str, Any], attributes: Mapping[str, Any], mode: int) -> Case:
    dtypes = {str(tensor["dtype"]) for tensor in tensors.values()}
    if len(dtypes) > 1:
        raise CaseError(f"tensors must be of one dtype, not {' and '.join(sorted(dtypes))}")
    return Case(
        name=name,
        shapes={key: tuple(int(extent) for extent in tensor["shape"]) for key, tensor in tensors.items()},
        dtype=dtypes.pop(),
        attributes=attributes,
        draws={key: _draw(tensor["range_values"]) for key, tensor in tensors.items()},
        cube_math_type=int(mode),
    )


def _draw(values: Any) -> Draw:
    if isinstance(values, dict):
        if values.get("name") != "nd":
            raise CaseError(f"range_values must be named nd, not {values.get('name')}")
        (low, high), (least, most) = values["mean"], values["std"]
        deviation = _range(least, most)
        if deviation[0] < 0:
            raise CaseError(f"a std must be at least 0, not {deviation[0]}")
        return Normal(_range(low, high), deviation)
    if not isinstance(values, list):
        return Constant(float(values))
    if len(values) == 1:
        return Constant(float(values[0]))
    low, high = values
    return Uniform(*_range(low, high))


def _range(low: Any, high: Any) -> tuple[float, float]:
    # a zero below nothing would be in no order with the other
    one, other = float(low) + 0.0, float(high) + 0.0
    if not math.isfinite(one) or not math.isfinite(other) or one > other:
        raise CaseError(f"a range must have finite ends in order, not [{one}, {other}]")
    return one, other
