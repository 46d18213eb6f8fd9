"""Files that studies read besides captures, and captures whose arrays are wrong rather than their bytes.

Each is a sound file in which some values are others, or some bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np

from ops.studies.layers import Capture, Layer
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions
from ops.studies.results_file import Results
from ops.studies.selftest.vectors import TENSORS, results_file, vectors_of
from tests.cases.damaged_captures import _bytes, _truncated
from tests.cases.wild_arguments import EDGES, WORDS

_DEEPEST = 12
"""Places of a document that are changed lie no deeper."""
_NESTED = json.loads("[" * 900 + "]" * 900)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "dx", "y", "fp16", [], {},
    [[]], [None],
    {"name": "nd"}, [1, 2, 3, 4, 5], "NaN", "Infinity", _NESTED,
)  # fmt: skip
_LITERALS = (
    "", "None", "()", "((),)", "((1, 2),)", "(1, 2, 3)", "{}", "[]", "'a'", "1e999", "-1", "(" * 200 + ")" * 200,
    "1" * 5000,
    "((None, None),)", "((float('nan'), 1),)", "{'groups': 0}", "True", "\0", "lambda: 1", "(1,) * 10**9", "9**9**9",
)  # fmt: skip


def _some_value(rng: np.random.Generator) -> Any:
    """Return a value nobody expects there."""
    kind = rng.random()
    if kind < 0.3:
        return EDGES[int(rng.integers(len(EDGES) - 1))]
    if kind < 0.45:
        return str(WORDS[int(rng.integers(len(WORDS)))])
    # a value of its own: what is changed next may lie in it
    return json.loads(json.dumps(_VALUES[int(rng.integers(len(_VALUES)))]))


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if len(path) > _DEEPEST:
        return found
    if isinstance(node, dict):
        found += [place for key, item in node.items() for place in _places(item, (*path, key))]
    elif isinstance(node, list):
        found += [place for number, item in enumerate(node) for place in _places(item, (*path, number))]
    return found


def changed_document(document: Any, rng: np.random.Generator) -> Any:
    """Return a document in which a value or a key is another, or missing."""
    document = json.loads(json.dumps(document))
    for _ in range(int(rng.choice((1, 1, 2, 4)))):
        places = _places(document)
        path = places[int(rng.integers(len(places)))]
        if not path:
            if rng.random() < 0.1:
                document = _some_value(rng)
            continue
        owner = document
        for step in path[:-1]:
            owner = owner[step]
        if rng.random() < 0.2:
            del owner[path[-1]]
        elif isinstance(owner, dict) and rng.random() < 0.15:
            owner[str(WORDS[int(rng.integers(len(WORDS)))])] = owner.pop(path[-1])
        else:
            owner[path[-1]] = _some_value(rng)
    return document


def _json_bytes(document: Any, rng: np.random.Generator) -> bytes:
    data = json.dumps(changed_document(document, rng), ensure_ascii=True).encode()
    return _spoiled(data, rng)


def _spoiled(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes, some of them others in one file of three."""
    if len(data) < 2 or rng.random() < 0.66:
        return data
    return (_bytes if rng.random() < 0.7 else _truncated)(data, rng)


def _attr(name: str, *values: Any) -> Any:
    entries = [
        {"name": name, "type": "attrs", "dtype": "int", "shape": None, "range_values": value} for value in values
    ]
    return entries if len(values) > 1 else {**entries[0], "type": "attr"}


def _tensor(name: str, shape: list[int], values: Any) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "dtype": "fp16", "shape": shape, "range_values": values}


def _atk(call: str, *inputs: Any) -> dict[str, Any]:
    return {"id": 1, "aclnn_name": call, "standard": {"acc": "single_bm"}, "inputs": list(inputs)}


_SIZES = (_attr("stride", 2, 1), _attr("padding", 1, 1), _attr("dilation", 1, 1), _attr("groups", 2))
_OTHERS = (*_SIZES, _attr("transposed", False), _attr("outputPadding", 0, 0), _attr("cubeMathType", 0))
_POOLED = (
    _attr("kernel_size", 2, 3), _attr("stride", 2, 2), _attr("padding", 0, 0), _attr("ceil_mode", False),
    _attr("count_include_pad", True), _attr("divisor_override", 1), _attr("cube_math_type", 2),
)  # fmt: skip
_ATK = [
    _atk(
        "ConvolutionBackward", _tensor("gradOutput", [2, 6, 3, 4], [-0.5, 0.5]), _tensor("input", [2, 4, 5, 4], [1, 2]),
        _tensor("weight", [6, 2, 3, 3], {"name": "nd", "mean": [3, 4], "std": [0, 1]}), *_OTHERS,
        _attr("outputMask", True, True, False),
    ),
    _atk(
        "Convolution", _tensor("input", [2, 4, 5, 4], [1, 2]), _tensor("weight", [6, 2, 3, 3], ["inf"]),
        _tensor("bias", [6], [0, 1]), *_OTHERS,
    ),
    _atk(
        "AvgPool2dBackward", _tensor("gradOutput", [1, 3, 2, 2], [0, 1]), _tensor("self", [1, 3, 4, 5], [0, 1]),
        *_POOLED,
    ),
    _atk("AvgPool2d", _tensor("self", [1, 3, 4, 5], [0, 1]), *_POOLED),
]  # fmt: skip
_ROW = {"input_data_ranges": "((0, 1), (-1, 0), (None, 2))", "precision_tolerances": "((0.001, 0.001),)",
        "absolute_precision": "1e-8", "is_enabled": "True"}  # fmt: skip
_PLAIN = "'strides': [1, 1, 2, 1], 'pads': [1, 0, 0, 1], 'dilations': [1, 1, 1, 1], 'groups': 2"
_DEEP = "'strides': [1, 1, 1, 1, 1], 'pads': [0, 0, 1, 0, 0, 1], 'dilations': [1, 1, 1, 1, 1], 'groups': 1"
_TTK = [
    _ROW | {
        "testcase_name": "y", "op_name": "conv2dv2", "attributes": f"{{{_PLAIN}, 'enable_hf32': True}}",
        "input_dtypes": "('float32', 'float32', 'float32')", "input_formats": "('NCHW', 'NCHW', 'ND')",
        "input_shapes": "((2, 4, 5, 6), (6, 2, 3, 2), (6,))",
    },
    _ROW | {
        "testcase_name": "dw", "op_name": "conv3d_backprop_filter_v2",
        "attributes": f"{{'filter_size': [6, 4, 1, 3, 2], {_DEEP}}}", "input_dtypes": "('float16', 'int32', 'float16')",
        "input_formats": "('NCDHW', 'ND', 'NCDHW')", "input_shapes": "((2, 4, 1, 5, 6), (5,), (2, 6, 1, 4, 6))",
    },
    _ROW | {
        "testcase_name": "call", "api_name": "aclnnConvolutionBackward",
        "tensor_view_shapes": "((1, 3, 9), (1, 4, 4), (4, 3, 2))", "tensor_formats": "('NCL', 'NCL', 'NCL')",
        "tensor_dtypes": "('float16', 'float16', 'float16')",
        "attributes": "{'stride': [2], 'dilation': [1], 'padding': [0], 'transposed': True, 'outputPadding': [1], "
        "'groups': 1, 'outputMask': [True, True, True], 'cubeMathType': 0}",
    },
]  # fmt: skip


def _case_rows(rng: np.random.Generator) -> bytes:
    rows = [dict(row) for row in _TTK]
    headings = list(dict.fromkeys(key for row in rows for key in row))
    for _ in range(int(rng.choice((1, 1, 2, 4)))):
        row = rows[int(rng.integers(len(rows)))]
        key = str(rng.choice(list(row)))
        cell = row[key]
        if rng.random() < 0.5 and cell:
            # a number or a character of a literal is another
            at = int(rng.integers(len(cell)))
            cell = cell[:at] + str(rng.choice(list("0123456789(),.-'[]{}eN "))) + cell[at + 1 :]
        else:
            cell = str(rng.choice(_LITERALS))
        row[key] = cell
    if rng.random() < 0.1:
        headings.remove(str(rng.choice(headings)))
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, headings, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return _spoiled(stream.getvalue().encode(), rng)


def _small_layer() -> Layer:
    rng = np.random.default_rng(1)
    x, dy, weight = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, 2, 4, 4),) * 2 + ((2, 2, 1, 1),))
    return Layer(
        name="a", x=x, dy=dy, weight=weight, weight_shape=(2, 2, 1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1),
        groups=1,
    )  # fmt: skip


@cache
def _kept() -> Any:
    """Return the document of a file of results."""
    options = StudyOptions(products=("910b", "310p"), gradients=("dw",), cube_math_types=(0, 2))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kept.json"
        study(Capture(source="test", layers=(_small_layer(),)), options, results=Results(path))
        return json.loads(path.read_text(encoding="utf-8"))


@cache
def _device() -> bytes:
    """Return results that a device could have written: sums in float64, rounded."""
    products = {}
    for name in TENSORS:
        own = vectors_of(name)
        with np.errstate(all="ignore"):
            products[name] = (own.a.astype(np.float64) @ own.b.astype(np.float64)).astype(own.a.dtype)
    return results_file(products, device="any", software="none")


_CAPTURES: tuple[dict[str, np.ndarray], ...] = (
    {
        "a.x": np.ones((2, 4, 5, 6), np.float16), "a.dy": np.ones((2, 6, 3, 3), np.float16),
        "a.weight": np.ones((6, 2, 3, 2), np.float16), "a.bias": np.ones(6, np.float16), "a.stride": np.array([2, 2]),
        "a.padding": np.array([1, 0]), "a.dilation": np.array([1, 1]), "a.groups": np.array(2),
        "a.gradients": np.array(["dx", "dw", "db", "y"]), "a.grad_input": np.ones((2, 4, 5, 6), np.float32),
        "a.transposed": np.array(0),
    },
    {
        "p.x": np.ones((2, 3, 6, 6), np.float32), "p.dy": np.ones((2, 3, 3, 3), np.float32),
        "p.kernel_size": np.array([2, 2]), "p.padding": np.array(0), "p.ceil_mode": np.array(0),
        "p.divisor_override": np.array(3), "p.gradients": np.array(["y", "dx"]), "metadata": np.array("{}"),
    },
)  # fmt: skip
_ROLES = ("x", "dy", "weight", "bias", "weight_shape", "x_shape", "stride", "kernel_size", "gradients", "groups")


def _some_array(old: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an array of another type, shape or content."""
    edge = min(max(EDGES[int(rng.integers(len(EDGES) - 1))], -(2**63)), 2**63 - 1)
    types = (np.float64, np.int8, np.uint64, np.bool_, np.complex64, ml_dtypes.bfloat16, "U3", "V2", ">f4", "M8[s]")
    makers: tuple[Callable[[], np.ndarray], ...] = (
        lambda: np.array(edge), lambda: np.full(int(rng.integers(5)), edge), lambda: old[..., None], lambda: old[:0],
        lambda: np.zeros(int(rng.integers(4)) * [int(rng.integers(1, 4))], old.dtype),
        lambda: np.zeros(old.shape, types[int(rng.integers(len(types)))]),
        lambda: np.array(str(WORDS[int(rng.integers(len(WORDS)))])), lambda: old.T, lambda: np.array([["dx"], ["y"]]),
        lambda: np.full(old.shape, np.nan, old.dtype) if old.dtype.kind == "f" else old + old,
    )  # fmt: skip
    return np.asarray(makers[int(rng.integers(len(makers)))]())


def _arrays_bytes(arrays: dict[str, np.ndarray], names: tuple[str, ...], rng: np.random.Generator) -> bytes:
    arrays = dict(arrays)
    for _ in range(int(rng.choice((1, 1, 2, 3)))):
        key = str(rng.choice(list(arrays)))
        kind = rng.random()
        if kind < 0.15 and len(arrays) > 1:
            del arrays[key]
        elif kind < 0.3:
            arrays[str(rng.choice(names))] = arrays[key]
        else:
            try:
                arrays[key] = _some_array(arrays[key], rng)
            except (IndexError, TypeError, ValueError):
                continue  # there is no such array
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]  # names with a dot
    return stream.getvalue()


def _capture(rng: np.random.Generator) -> bytes:
    names = tuple(f"{layer}.{role}" for layer in "ap" for role in _ROLES)
    return _arrays_bytes(_CAPTURES[int(rng.integers(2))], names, rng)


def _device_results(rng: np.random.Generator) -> bytes:
    with np.load(io.BytesIO(_device())) as file:
        arrays = {name: file[name] for name in file.files}
    return _arrays_bytes(arrays, ("fp16.c", "fp32.error", "hf32.d", "device", "c"), rng)


INPUTS: dict[str, tuple[str, Callable[[np.random.Generator], bytes]]] = {
    "capture": (".npz", _capture),
    "ATK cases": (".json", lambda rng: _json_bytes(_ATK, rng)),
    "TTK cases": (".csv", _case_rows),
    "results": (".json", lambda rng: _json_bytes(_kept(), rng)),
    "self-test": (".npz", _device_results),
}
"""By what reads them: the suffix of the file, and what makes one."""
