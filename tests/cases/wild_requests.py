"""Wild requests: items of request files, operators by argument, on the command line too. Values are those of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ops.studies.calls.answers import answer
from ops.studies.calls.request_items import READERS, SCOPES, read_call
from tests.cases.wild_arguments import EDGES, WORDS
from tests.cases.wild_commands import run_line
from tests.oracles.series import SERIES

_CONVOLUTION: dict[str, Any] = {
    "x": [2, 16, 8, 8], "w": [16, 16, 3, 3], "g": [2, 16, 6, 6], "stride": [1, 1], "pads": [0, 0, 0, 0],
    "dilation": [1, 1], "groups": 1, "compute": "fp16", "in_dtype": "fp16",
}  # fmt: skip
_POOLING: dict[str, Any] = {"x": [2, 16, 8, 8], "kernel_size": [2, 2], "stride": 2, "pads": 0, "in_dtype": "fp16"}
_MATMUL: dict[str, Any] = {"m": 64, "k": 128, "n": 96, "batch": 2, "compute": "fp16", "trans_a": False}
_MOVED: dict[str, Any] = {"in_shape": [4, 32, 7, 7], "in_dtype": "fp16"}
_GOOD: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "conv": (_CONVOLUTION,),
    "conv_backprop_filter": (_CONVOLUTION, _CONVOLUTION | {"generation": "published", "out_dtype": "fp32"}),
    "conv_backprop_input": (_CONVOLUTION, _CONVOLUTION | {"block_dim": 4}),
    "conv_backward": (_CONVOLUTION | {"mask": [True, True, False]}, _CONVOLUTION | {"cube_math_type": 1}),
    "avg_pool": (_POOLING,),
    "avg_pool_grad": (_POOLING, _POOLING | {"g": [2, 16, 4, 4], "ceil_mode": True}),
    "matmul": (
        _MATMUL,
        {"a": [64, 128], "b": [128, 96], "c": [64, 96], "bias": True},
        _MATMUL | {"batch": 1, "block_dim": [1, 2, 2], "al1": 2, "bl1": 2, "al0": [4, 4], "bl0": [4, 4], "cl0": [4, 4]},
    ),
    "transdata": (
        _MOVED | {"in_format": "NCHW", "out_format": "NC1HWC0"},
        _MOVED | {"in_format": "NCHW", "out_format": "FRACTAL_Z", "groups": 2},
        {"in_shape": [64, 48], "in_format": "ND", "out_format": "FRACTAL_NZ", "in_dtype": "fp32"},
    ),
    "cast": (_MOVED | {"out_dtype": "fp32"},),
    "transpose": (_MOVED | {"perm": [0, 2, 3, 1]}, _MOVED | {"out_shape": [4, 7, 7, 32]}),
    "reduce_sum": (_MOVED | {"axes": [0, 2, 3]}, _MOVED | {"out_shape": [32]}),
    "fill": (_MOVED,),
    "tensor_move": (_MOVED | {"out_shape": [4, 16, 7, 7]},),
}
_INSTRUCTION: dict[str, Any] = {
    "op": "instruction", "product": "910b", "mode": "streamed", "dtype": "float16",
    "ascend_instructions": [{"op": "vadd", "count": 1, "repeat": 4}],
}  # fmt: skip
_INSTRUCTIONS = (
    "vadd", "vadds", "vmuls", "vexp", "vcadd", "vconv", "mad", "copy_gm_to_ubuf", "copy_ubuf_to_gm", "copy_gm_to_cbuf",
    "copy_ubuf_to_ubuf", "load_cbuf_to_ca", "load_cbuf_to_cb", "copy_matrix_cc_to_gm", "pipe_barrier", "scalar_add",
    "set_vector_mask", "nothing",
)  # fmt: skip
_NAMES = (
    "bias", "axes", "perm", "out_shape", "in_shape", "out_format", "in_format", "tiling", "block_dim", "al0", "cl0",
    "scope", "product", "attrs", "mask", "generation", "other_shape", "x", "w", "g", "m", "n", "k", "batch", "pads",
    "padding", "stride", "dilation", "groups", "hf32", "compute", "dtype", "kernel_size", "divisor_override", "op",
    "has_bias", "core_num", "cube_math_type", "id", "nonsense",
)  # fmt: skip
_TEXTS = (
    "true", "no", "dx,dw", "dx,dx", "NC1HWC0", "FRACTAL_Z:4", "FRACTAL_NZ", "NDHWC", "ND", "int64", "DT_BF16",
    "core_time", "kernel", "call", "closed", "published", "valid", *WORDS[:-2],
)  # fmt: skip


def json_value(rng: np.random.Generator, depth: int = 0) -> Any:
    """Return any value that a JSON file can hold: whole numbers of any size, fractions, texts, lists, objects."""
    kind = int(rng.integers(9 if depth < 2 else 6))
    if kind == 0:
        return int(rng.integers(-2, 40))
    if kind == 1:
        return EDGES[int(rng.integers(len(EDGES) - 1))]
    if kind == 2:
        return float(rng.choice((0.5, 2.0, -1.0, 1e300, np.nan, np.inf)))
    if kind == 3:
        return (None, True, False)[int(rng.integers(3))]
    if kind in (4, 5):
        return _TEXTS[int(rng.integers(len(_TEXTS)))]
    if kind == 8:
        names = rng.choice((*_NAMES, "shape", "format"), int(rng.integers(4)))
        return {str(name): json_value(rng, depth + 1) for name in names}
    return [json_value(rng, depth + 1) for _ in range(int(rng.choice((0, 1, 2, 2, 3, 4, 5, 70))))]


def _near(rng: np.random.Generator, value: Any) -> Any:
    """Return a value like the given one with one number of it changed, or any."""
    if isinstance(value, list) and value and rng.random() < 0.8:
        changed = list(value)
        changed[int(rng.integers(len(changed)))] = (
            int(rng.choice((0, 1, 2, 5, 16, 17, 100, 255, 4096, -1))) if rng.random() < 0.6 else json_value(rng)
        )
        if rng.random() < 0.2:
            changed = changed[1:] if rng.random() < 0.5 else [*changed, int(rng.integers(1, 9))]
        return changed
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.7:
        return int(rng.choice((0, 1, 2, 3, 16, 17, 1000, 4096, -1, 2**31, 2**40)))
    return json_value(rng)


def _changed(rng: np.random.Generator, good: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item with up to three fields changed, dropped or added."""
    item = dict(good)
    for _ in range(int(rng.choice((0, 1, 1, 1, 2, 3)))):
        name = str(rng.choice(list(good) if rng.random() < 0.7 else _NAMES))
        if rng.random() < 0.15:
            item.pop(name, None)
        else:
            item[name] = _near(rng, item[name]) if name in item else json_value(rng)
    return item


def _operator(rng: np.random.Generator) -> tuple[str, Mapping[str, Any]]:
    name = str(rng.choice(list(READERS)))
    goods = _GOOD.get(name, (_MOVED, _MOVED | {"other_shape": [32, 7, 7]}))
    return name, goods[int(rng.integers(len(goods)))]


def request(rng: np.random.Generator) -> object:
    """Answer an item of a request file: it is timed or says on one line why not."""
    if rng.random() < 0.2:
        steps = [{"op": str(rng.choice(_INSTRUCTIONS)), "repeat": 2, "bytes": 512} for _ in range(int(rng.integers(3)))]
        good = _INSTRUCTION | ({"ascend_instructions": steps} if rng.random() < 0.7 else {})
        item: Any = _changed(rng, good)
        if isinstance(item.get("ascend_instructions"), list) and rng.random() < 0.5:
            item["ascend_instructions"] = [
                _changed(rng, one) if isinstance(one, dict) and one else one for one in item["ascend_instructions"]
            ]
    else:
        name, fields = _operator(rng)
        some = {"op": name, "product": str(rng.choice(SERIES)), "scope": str(rng.choice(SCOPES))}
        item = _changed(rng, some | dict(fields)) if rng.random() < 0.98 else json_value(rng)
    found = answer(3, item)
    if len(found.error) > 1000 or "\n" in found.error or ((found.duration_us is None) != bool(found.error)):
        raise AssertionError(f"{found.error[:300]!r}")
    return int(bool(found.error))


def operator(rng: np.random.Generator) -> object:
    """Read an operator given by its arguments."""
    name, good = _operator(rng)
    scope = SCOPES[int(rng.integers(len(SCOPES)))]
    word = str(rng.choice(WORDS)) if rng.random() < 0.02 else name
    product = str(rng.choice(WORDS)) if rng.random() < 0.02 else str(rng.choice(SERIES))
    return repr(read_call(word, _changed(rng, good), product, scope))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def operator_line(rng: np.random.Generator) -> object:
    """Run ``npu-sim perf OPERATOR`` with wild arguments: refusals are one line and code 2."""
    name, good = _operator(rng)
    arguments = ["perf", name.replace("_", "-")]
    for field, value in _changed(rng, good).items():
        arguments += [f"--{field.replace('_', '-')}", _text(value)]
    if rng.random() < 0.3:
        arguments += ["--product", str(rng.choice(SERIES))]
    return run_line(arguments)
