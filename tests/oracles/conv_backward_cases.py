"""Calls of aclnnConvolutionBackward for the tests of its check: legal ones, and for each rule one that breaks it."""

from __future__ import annotations

import dataclasses
from typing import Any

from npu_sim import get_product
from ops.common.tensor_desc import TensorDesc
from ops.conv_backward.call import ConvBackwardCall

FORMATS = {1: "ND", 3: "NCL", 4: "NCHW", 5: "NCDHW"}
TENSOR_FIELDS = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")


def desc(shape: tuple[int, ...], dtype: str = "fp16", fmt: str | None = None) -> TensorDesc:
    return TensorDesc(shape=shape, dtype=dtype, format=FORMATS.get(len(shape), "ND") if fmt is None else fmt)


def make_call(
    *,
    x: tuple[int, ...] = (2, 4, 6, 6),
    w: tuple[int, ...] = (6, 4, 3, 3),
    y: tuple[int, ...] = (2, 6, 4, 4),
    dtype: str = "fp16",
    product: str = "910b",
    transposed: bool = False,
    **changes: Any,
) -> ConvBackwardCall:
    """Return a call; x, w and y are those of the convolution, so that `transposed` swaps input and gradOutput."""
    rank = len(x)
    given, grad = (y, x) if transposed else (x, y)
    fields: dict[str, Any] = {
        "product": get_product(product),
        "grad_output": desc(grad, dtype),
        "input": desc(given, dtype),
        "weight": desc(w, dtype),
        "bias_sizes": (grad[1],),
        "stride": (1,) * (rank - 2),
        "padding": (0,) * (rank - 2),
        "dilation": (1,) * (rank - 2),
        "transposed": transposed,
        "output_padding": (0,) * (rank - 2),
        "groups": 1,
        "output_mask": (True, True, True),
        "cube_math_type": 1,
        "grad_input": desc(given, dtype),
        "grad_weight": desc(w, dtype),
        "grad_bias": desc((grad[1],), dtype),
    }
    for name, value in changes.items():
        if name.endswith("_dtype") and name.removesuffix("_dtype") in TENSOR_FIELDS:
            name = name.removesuffix("_dtype")
            value = dataclasses.replace(fields[name], dtype=value)
        elif name.endswith("_format"):
            name = name.removesuffix("_format")
            value = dataclasses.replace(fields[name], format=value)
        elif name in TENSOR_FIELDS and isinstance(value, tuple):
            value = desc(value, dtype)
        fields[name] = value
    return ConvBackwardCall(**fields)


VOLUME = {"x": (1, 4, 5, 6, 6), "w": (6, 4, 3, 3, 3), "y": (1, 6, 3, 4, 4)}
LINE = {"x": (2, 4, 8), "w": (6, 4, 3), "y": (2, 6, 6)}
BIG = 2**31 - 1
WEIGHT_ONLY = {"output_mask": (False, True, False)}
EMPTY = {"x": (0, 4, 6, 6), "w": (6, 4, 3, 3), "y": (0, 6, 4, 4)}

BREAKS: dict[str, dict[str, Any]] = {
    "product": {"product": "310"},
    "grad-output-null": {"grad_output": None},
    "input-null": {"input": None},
    "weight-null": {"weight": None},
    "stride-null": {"stride": None},
    "padding-null": {"padding": None},
    "dilation-null": {"dilation": None},
    "output-padding-null": {"output_padding": None},
    "output-mask-null": {"output_mask": None},
    "output-mask-length": {"output_mask": (True, True)},
    "grad-input-null-but-wanted": {"grad_input": None},
    "grad-weight-null-but-wanted": {"grad_weight": None},
    "grad-bias-null-but-wanted": {"grad_bias": None},
    "grad-output-dtype": {"grad_output_dtype": "double"},
    "input-dtype": {"input_dtype": "int8"},
    "weight-dtype": {"weight_dtype": "hifloat8"},
    "grad-input-dtype": {"grad_input_dtype": "double", "output_mask": (False, True, True)},
    "grad-weight-dtype": {"grad_weight_dtype": "bf16", "product": "310p", "output_mask": (True, False, True)},
    "grad-bias-dtype": {"grad_bias_dtype": "bf16", "product": "910"},
    "grad-input-dtype-strict": {"strict_output_dtype": True, "grad_input_dtype": "fp32"},
    "grad-weight-dtype-strict": {"strict_output_dtype": True, "grad_output_dtype": "bf16", "grad_input_dtype": "fp32",
                                 "grad_bias_dtype": "bf16"},
    "grad-bias-dtype-strict": {"strict_output_dtype": True, "grad_bias_dtype": "fp32"},
    "grad-output-format": {"grad_output_format": "NHWC"},
    "input-format": {"input_format": "ND"},
    "weight-format": {"weight_format": "FRACTAL_Z"},
    "grad-input-format": {"grad_input_format": "NC1HWC0", "output_mask": (False, True, True)},
    "grad-weight-format": {**VOLUME, "grad_weight_format": "NDHWC"},
    "grad-bias-format": {"grad_bias_format": "NCHW", "output_mask": (True, True, False)},
    "stride-low": {"stride": (1, 0)},
    "padding-low": {"padding": (0, -1), "grad_output": (2, 6, 4, 2)},
    "dilation-low": {"dilation": (0, 1)},
    "output-padding-not-zero": {"output_padding": (0, 1)},
    "output-padding-low": {"transposed": True, "output_padding": (-1, 0)},
    "output-padding-high": {**VOLUME, "transposed": True, "output_padding": (0, 1, 0), "profile": "library"},
    "groups-low": {"groups": 0},
    "cube-math-type-unknown": {"cube_math_type": 4},
    "cube-math-type-product": {"cube_math_type": 3, "dtype": "fp32", "product": "910"},
    "grad-output-rank": {"grad_output": (2, 6, 4)},
    "weight-rank": {"weight": (6, 4, 3), "grad_weight": (6, 4, 3)},
    "grad-output-empty": {**WEIGHT_ONLY, "grad_output": (2, 6, 0, 4)},
    "weight-empty": {**WEIGHT_ONLY, "weight": (6, 4, 0, 3), "grad_weight": (6, 4, 0, 3), "product": "310p"},
    "grad-input-shape": {"grad_input": (2, 4, 6, 5), "output_mask": (False, True, True)},
    "grad-weight-shape": {"grad_weight": (4, 6, 3, 3)},
    "grad-bias-rank": {"grad_bias": desc((6, 1), fmt="ND"), "output_mask": (True, True, False)},
    "grad-bias-length": {"grad_bias": (7,)},
    "stride-length": {"stride": (1,)},
    "dilation-length": {"dilation": (1, 1, 1)},
    "padding-length": {"padding": (0, 0, 0)},
    "output-padding-length": {"output_padding": (0,)},
    "weight-rows": {"weight": (7, 4, 3, 3), "grad_weight": (7, 4, 3, 3)},
    "weight-columns": {"weight": (6, 3, 3, 3), "grad_weight": (6, 3, 3, 3)},
    "groups-channels": {"groups": 2},
    "depthwise-channels": {"w": (6, 1, 3, 3), "groups": 4},
    "window-3d": {**VOLUME, "w": (6, 4, 6, 3, 3)},
    "extents-3d": {**VOLUME, "y": (1, 6, 3, 5, 4)},
    "deterministic-groups": {**VOLUME, "w": (6, 2, 3, 3, 3), "groups": 2, "deterministic": True,
                             "quirks": frozenset({"Q3"})},
    "empty-bias-sizes-null": {**EMPTY, "bias_sizes": None},
    "empty-bias-sizes-length": {**EMPTY, "bias_sizes": (6, 6)},
    "empty-bias-sizes-value": {**EMPTY, "bias_sizes": (5,)},
    "empty-input-extents": {"x": (2, 4, 0, 6), "w": (6, 4, 1, 3), "padding": (1, 0), "y": (2, 6, 2, 4)},
    "empty-stride-length": {**EMPTY, "stride": (1,)},
    "empty-dilation-length": {**EMPTY, "dilation": (1, 1, 1)},
    "empty-padding-length": {**EMPTY, "padding": (0,)},
    "empty-output-padding-length": {**EMPTY, "output_padding": ()},
    "empty-group-rows": {**EMPTY, "w": (6, 1, 3, 3), "groups": 4},
    "empty-channels": {**EMPTY, "groups": 2},
    "empty-weight-rows": {**EMPTY, "transposed": True, "weight": (5, 4, 3, 3), "grad_weight": (5, 4, 3, 3)},
    "empty-window": {**EMPTY, "dilation": (1, 3)},
    "no-conv3d": {**VOLUME, "product": "310p"},
    "grouped-fp32-weight-3d": {**VOLUME, "w": (6, 2, 3, 3, 3), "groups": 2, "grad_weight_dtype": "fp32"},
    "grad-output-extent-range": {"x": (1, 1, BIG - 1), "w": (1, 1, 2), "y": (1, 1, BIG), "padding": (1,)},
    "input-extent-range": {"x": (1, 1, 1, BIG), "w": (1, 1, 1, 1), "y": (1, 1, 1, 2**30), "stride": (1, 2)},
    "weight-extent-range": {"x": (1,) * 5, "w": (1, 1, BIG, 1, 1), "y": (1, 1, 3, 1, 1), "padding": (2**30, 0, 0)},
    "kernel-range": {**LINE, "x": (1, 4, 256), "w": (6, 4, 256), "y": (1, 6, 1)},
    "stride-range": {"stride": (BIG, 1), "y": (2, 6, 1, 4)},
    "stride-range-3d": {**VOLUME, "stride": (1, 1, 64), "y": (1, 6, 3, 4, 1)},
    "padding-range": {"padding": (0, 0, 256, 0), "y": (2, 6, 4, 260)},
    "padding-range-3d": {**VOLUME, "padding": (0, 256, 0), "y": (1, 6, 3, 516, 4)},
    "dilation-range": {"w": (6, 4, 1, 3), "y": (2, 6, 6, 4), "dilation": (256, 1)},
    "dilation-range-library": {"x": (1, 4, 6, 600), "dilation": (1, 256), "y": (1, 6, 4, 88), "profile": "library"},
    "groups-range": {"x": (1, 65536, 3), "w": (65536, 1, 3), "y": (1, 65536, 1), "groups": 65536},
    "batch": {"grad_output": (3, 6, 4, 4)},
    "group-rows": {"x": (1, 6, 6, 6), "w": (3, 3, 3, 3), "y": (1, 3, 4, 4), "groups": 2},
    "window": {"padding": (0, 1, 0, 0), "dilation": (4, 1)},
    "extents": {"product": "910", "y": (2, 6, 4, 3)},
}  # fmt: skip
"""What to change in a legal call so that it breaks this rule and no other."""

LEGAL: tuple[dict[str, Any], ...] = (
    {},
    VOLUME,
    LINE,
    {"product": "310p"},
    {"product": "910", "dtype": "fp32"},
    {"product": "910_93", "dtype": "bf16"},
    {"transposed": True},
    {**VOLUME, "transposed": True},
    {**VOLUME, "w": (6, 2, 3, 3, 3), "groups": 2, "deterministic": True},
    EMPTY,
    {**EMPTY, "transposed": True},
    {"padding": (1, 0, 2, 1), "y": (2, 6, 5, 7)},
    {**LINE, "input_format": "ND", "grad_output_format": "ND"},
    {"bias_sizes": None},
    {"bias_sizes": (99, -1)},
    {"output_mask": (False, False, False), "grad_input": None, "grad_weight": None, "grad_bias": None},
    {"grad_input_dtype": "fp32", "grad_weight_dtype": "bf16", "grad_bias_dtype": "fp32"},
    {"transposed": True, "grad_bias_format": "NCHW"},
    {"product": "910", "grad_bias_format": "NCHW"},
    {"output_mask": (False, False, True), "grad_output": (3, 6, 9, 9)},
    {"x": (1, 4, 6, 600), "w": (6, 4, 3, 1), "dilation": (1, 256), "y": (1, 6, 4, 600), "profile": "library"},
    # with no batch item a transposed call's columns may be any, and only biasSizes is held to them
    {**EMPTY, "transposed": True, "weight": (6, 5, 3, 3), "grad_weight": (6, 5, 3, 3), "bias_sizes": (5,)},
    # what a grouped 3D weight gradient may not be does not matter where none is wanted
    {**VOLUME, "w": (6, 2, 3, 3, 3), "groups": 2, "grad_weight_dtype": "fp32", "output_mask": (True, False, True)},
    # the largest values of the documented ranges
    {"padding": (0, 0, 255, 0), "y": (2, 6, 4, 259)},
    {"padding": (0, 0, 0, 255), "y": (2, 6, 4, 259)},
    {**VOLUME, "padding": (0, 255, 0), "y": (1, 6, 3, 514, 4)},
    {**VOLUME, "stride": (1, 1, 63), "y": (1, 6, 3, 4, 1)},
    {**LINE, "stride": (BIG - 1,), "y": (2, 6, 1)},
    {**LINE, "x": (1, 4, 255), "w": (6, 4, 255), "y": (1, 6, 1)},
    {**LINE, "x": (1, 4, 600), "dilation": (255,), "y": (1, 6, 90)},
    {"w": (6, 4, 1, 3), "y": (2, 6, 6, 4), "dilation": (255, 1)},
    {"x": (1, 65535, 3), "w": (65535, 1, 3), "y": (1, 65535, 1), "groups": 65535},
    {**VOLUME, "transposed": True, "stride": (1, 2, 1), "output_padding": (0, 1, 0), "y": (1, 6, 3, 2, 4)},
)
"""Changes that keep the call legal."""
