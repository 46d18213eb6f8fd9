"""The JSON Schema of request files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ops.studies.calls.read_elementwise import ELEMENTWISE
from ops.studies.calls.request_items import READERS, SCOPES

_INTS: Mapping[str, Any] = {"type": ["array", "integer"], "items": {"type": "integer"}}
_SHAPE: Mapping[str, Any] = {"type": ["array", "object"], "items": {"type": "integer"}}
_SHAPES: Mapping[str, Any] = {
    "type": ["array", "object"],
    "items": {"type": ["integer", "array"], "items": {"type": "integer"}},
}
_RECORD: Mapping[str, Any] = {
    "type": ["object", "array"],
    "items": {"type": ["integer", "boolean", "array", "null"], "items": {"type": "integer"}},
}
_WORDS: Mapping[str, Any] = {"type": ["array", "string"], "items": {"type": ["boolean", "string"]}}
_KERNELS = ("conv", "conv_backprop_filter", "conv_backprop_input")
_CONVOLUTIONS = (*_KERNELS, "conv_backward")
_POOLINGS = ("avg_pool", "avg_pool_grad")
_VECTOR = ("transdata", "cast", "transpose", "reduce_sum", "fill", "tensor_move", *ELEMENTWISE)
_MULTIPLYING = (*_CONVOLUTIONS, *_POOLINGS, "matmul")

FIELDS: Mapping[str, tuple[Mapping[str, Any], str, tuple[str, ...]]] = {
    "x": (_SHAPE, "shape of the input", (*_CONVOLUTIONS, *_POOLINGS)),
    "g": (_SHAPE, "shape of the gradient at the output; of convolutions what follows from the others",
          (*_CONVOLUTIONS, "avg_pool_grad")),
    "w": (_SHAPE, "shape of the weight: (Cout, Cin / groups, kernel), or as w_format says", _CONVOLUTIONS),
    "x_format": ({"type": "string"}, "NCHW, NCDHW, NHWC, NDHWC, NC1HWC0, NDC1HWC0; default: the plain one of its rank",
                 _CONVOLUTIONS),
    "w_format": ({"type": "string"}, "NCHW, NCDHW, HWCN, DHWCN, NHWC, NDHWC", _CONVOLUTIONS),
    "kernel_size": (_INTS, "the window; of convolutions in place of w", (*_CONVOLUTIONS, *_POOLINGS)),
    "cin": ({"type": "integer"}, "channels of a blocked x, where w does not say them", _CONVOLUTIONS),
    "stride": (_INTS, "default 1, of poolings the window", (*_CONVOLUTIONS, *_POOLINGS)),
    "pads": (_INTS, "one for each axis or for each side; default 0", (*_CONVOLUTIONS, *_POOLINGS)),
    "dilation": (_INTS, "default 1", _CONVOLUTIONS),
    "groups": ({"type": "integer"}, "default: channels of x over those of w", _CONVOLUTIONS),
    "mask": (_WORDS, "gradients that are wanted: three bools, or names of dx, dw, db; default all", ("conv_backward",)),
    "bias": ({"type": "boolean"}, "default false", ("conv", "matmul")),
    "compute": ({"type": "string"}, "what the Cube multiplies: fp16, bf16, hf32, fp32; default: the tensors' type, of "
                "fp32 convolutions hf32, and fp16 where the Cube does not have that; what cannot be had is "
                "in ignored, and what is multiplied instead in compute_dtype", _MULTIPLYING),
    "cube_math_type": ({"type": "integer"}, "0..3; default: what leads to compute", ("conv_backward", *_POOLINGS)),
    "ceil_mode": ({"type": "boolean"}, "default false", _POOLINGS),
    "count_include_pad": ({"type": "boolean"}, "default true", _POOLINGS),
    "divisor_override": ({"type": "integer"}, "default 0, none", _POOLINGS),
    "m": ({"type": "integer"}, "rows of the result", ("matmul",)),
    "k": ({"type": "integer"}, "what is summed over", ("matmul",)),
    "n": ({"type": "integer"}, "columns of the result", ("matmul",)),
    "batch": ({"type": "integer"}, "products; default 1", ("matmul",)),
    "b_batched": ({"type": "boolean"}, "each product has a B of its own; default: with a batch", ("matmul",)),
    "trans_a": ({"type": "boolean"}, "A is stored as [k, m]; default false", ("matmul",)),
    "trans_b": ({"type": "boolean"}, "B is stored as [n, k]; default false", ("matmul",)),
    "trans_code": ({"type": "integer"}, "of tuning records, in place of both: 1 none, 2 A, 3 B, 4 both", ("matmul",)),
    "a_format": ({"type": "string"}, "FRACTAL_NZ, or plain, the default; of a core_time FRACTAL_NZ", ("matmul",)),
    "b_format": ({"type": "string"}, "likewise", ("matmul",)),
    "c_format": ({"type": "string"}, "likewise", ("matmul",)),
    "tiling": (_RECORD, "one of CANN's tuning records: block_dim, al1, bl1, al0, bl0, cl0 and "
               "buffers, or the list of its 51 numbers", ("matmul",)),
    "block_dim": (_INTS, "cores of the kernel; default: as many as are of use", ("matmul", *_CONVOLUTIONS)),
    "generation": ({"type": "string"}, "closed, the one of most profiles, or published; default closed",
                   _CONVOLUTIONS),
    "in_shape": (_SHAPES, "shape of what is read", _VECTOR),
    "other_shape": (_SHAPE, "of a second operand, if it is another; of one element: a number", tuple(ELEMENTWISE)),
    "in_dtype": ({"type": "string"}, "type of the tensors: fp16, FLOAT16, DT_BF16, float32, INT64, ...; default fp16, "
                 "of cast fp32", tuple(READERS)),
    "in_format": ({"type": "string"}, "format of what is read; default: plain", ("transdata",)),
    "out_shape": (_SHAPE, "shape of what is written", ("transdata", "transpose", "reduce_sum", "fill", "tensor_move")),
    "out_dtype": ({"type": "string"}, "type of what is written; default: in_dtype, of cast fp16, of a weight gradient "
                  "between plain tensors fp32",
                  ("cast", "fill", "matmul", "conv_backprop_filter", "conv_backprop_input")),
    "out_format": ({"type": "string"}, "format of what is written; default: plain, but of whole 2D convolutions of "
                   "fp16 without groups on A2 and A3 NC1HWC0, as PyTorch keeps it", ("transdata", "conv")),
    "perm": (_INTS, "order of the axes; default: the one that out_shape tells", ("transpose",)),
    "axes": (_INTS, "axes that are summed; default: those that out_shape lacks, or all", ("reduce_sum",)),
}  # fmt: skip
"""Fields of operators: type, meaning, and the operators that have it."""


def request_schema() -> dict[str, Any]:
    """Return the JSON Schema of a request file."""
    properties: dict[str, Any] = {
        "id": {"type": ["string", "integer"], "description": "comes back with the answer; default: its number"},
        "op": {
            "type": "string",
            "description": f"{', '.join(READERS)}; the library's names of their kernels too; or instruction, with the "
            "fields of `npu_sim.points.request.instruction_cycles`",
        },
        "product": {"type": "string", "description": "SoC version or series alias; default 910b"},
        "scope": {
            "enum": list(SCOPES),
            "type": "string",
            "description": "the whole call with casts and layout conversions, which is the default; its kernel with "
            "the launch; or that without",
        },
    }
    for name, (kind, meaning, operators) in FIELDS.items():
        of = "" if len(operators) == len(READERS) else f"{', '.join(operators)}: "
        properties[name] = {**kind, "description": f"{of}{meaning}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "npu-sim perf REQUESTS.json",
        "description": "A list of requests, or an object with one in requests. Names may be in any case; where a list "
        "of numbers is meant, one number will do; a tensor may be an object with shape, dtype and format.",
        "type": "array",
        "items": {"type": "object", "properties": properties, "required": ["op"]},
    }
