"""The public calls of tests/data/aclnn_convolution_backward, and calls as arguments of the vendor-style front."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npu_sim import get_product
from ops import aclnn
from ops.aclnn.enums import dtype_name, format_name
from ops.common.tensor_desc import TensorDesc
from ops.conv_backward.call import ConvBackwardCall

PATH = Path(__file__).parents[1] / "data" / "aclnn_convolution_backward" / "cases.jsonl"

DATA_TYPE = {dtype_name(member): member for member in aclnn.aclDataType}
FORMAT = {format_name(member): member for member in aclnn.aclFormat}


def load_cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def _desc(text: str | None) -> TensorDesc | None:
    if text is None:
        return None
    storage_format, dtype, shape = text.split()
    return TensorDesc(shape=tuple(map(int, shape.split("x"))), dtype=dtype, format=storage_format)


def call_of(case: dict[str, Any], product: str) -> ConvBackwardCall:
    g, x, w = (_desc(case[name]) for name in ("g", "x", "w"))
    dx = x if case["dx"] == "=" else _desc(case["dx"])
    dw = w if case["dw"] == "=" else _desc(case["dw"])
    db = TensorDesc(shape=(g.shape[1],), dtype=g.dtype, format="ND") if case["db"] == "=" else _desc(case["db"])
    arrays = {name: None if case[name] is None else tuple(case[name]) for name in ("stride", "padding", "dilation")}
    return ConvBackwardCall(
        product=get_product(product),
        grad_output=g,
        input=x,
        weight=w,
        bias_sizes=None if case["bias"] is None else tuple(case["bias"]),
        **arrays,
        transposed=case.get("transposed", False),
        output_padding=None if case["output_padding"] is None else tuple(case["output_padding"]),
        groups=case.get("groups", 1),
        output_mask=tuple(letter == "T" for letter in case["mask"]),
        cube_math_type=case["type"],
        grad_input=dx,
        grad_weight=dw,
        grad_bias=db,
    )


def tensor_of(desc: TensorDesc | None, data: Any = None) -> Any:
    """Return the descriptor as a tensor of the front, by default without memory."""
    if desc is None:
        return None
    made = aclnn.aclCreateTensor(
        desc.shape,
        DATA_TYPE[desc.dtype],
        desc.strides,
        desc.offset,
        FORMAT[desc.format],
        (desc.storage_elems,),
        data,
    )
    assert made is not None, aclnn.aclGetRecentErrMsg()
    return made


def arguments_of(call: ConvBackwardCall, tensors: dict[str, Any] | None = None) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments of phase 1."""

    def array(values: tuple[int, ...] | None) -> Any:
        return None if values is None else aclnn.aclCreateIntArray(values)

    names = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")
    made = {name: tensor_of(getattr(call, name), (tensors or {}).get(name)) for name in names}
    mask = None if call.output_mask is None else aclnn.aclCreateBoolArray(call.output_mask)
    arrays = (call.bias_sizes, call.stride, call.padding, call.dilation)
    positional = [
        *(made[name] for name in names[:3]),
        *map(array, arrays),
        call.transposed,
        array(call.output_padding),
        call.groups,
        mask,
        call.cube_math_type,
        *(made[name] for name in names[3:]),
    ]
    keywords = {
        "profile": call.profile,
        "quirks": call.quirks,
        "deterministic": call.deterministic,
        "strict_output_dtype": call.strict_output_dtype,
    }
    return positional, keywords
