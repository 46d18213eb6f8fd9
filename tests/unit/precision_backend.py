"""A small stand-in for the emulator: what the study and the command line need of it, in plain NumPy.

The compute type follows the table of cubeMathType written down here a second time; sums are float32 per tap, float64
inside, so its errors are of the right size. The golden is the same loop in float64.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

# These take the emulator when they are first imported, which must not be while a test has the stand-in in its place.
import ops.studies.attribution
import ops.studies.attribution_chain
import ops.studies.comparison
import ops.studies.parallel  # noqa: F401
from npu_sim.errors import OperatorError
from npu_sim.products.registry import get_product
from ops.studies.kinds import Backend
from tests.oracles.series import UNIFIED

COMPUTE = {
    "old": {"fp16": ("fp16",) * 4, "fp32": (None, "fp16", "fp16", None), "bf16": (None,) * 4},
    "new": {
        "fp16": ("fp16",) * 4,
        "fp32": ("fp32", "hf32", "fp16", "hf32"),
        "bf16": ("bf16", "bf16", "fp16", "bf16"),
    },
}
NAMES = {"float16": "fp16", "float32": "fp32", "bfloat16": "bf16"}


def gradient(x, dy, weight_shape, *, stride, padding, dilation, groups):
    """float64 weight gradient, one einsum per kernel tap."""
    x, dy = np.asarray(x, np.float64), np.asarray(dy, np.float64)
    axes = x.ndim - 2
    pads = (
        list(zip(padding[::2], padding[1::2], strict=True)) if len(padding) == 2 * axes else [(p, p) for p in padding]
    )
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    cout, cin_group, *kernel = weight_shape
    result = np.zeros(weight_shape)
    for tap in np.ndindex(*kernel):
        window = tuple(
            slice(k * d, k * d + s * (extent - 1) + 1, s)
            for k, d, s, extent in zip(tap, dilation, stride, dy.shape[2:], strict=True)
        )
        part = x[(slice(None), slice(None), *window)]
        for group in range(groups):
            out = slice(group * cout // groups, (group + 1) * cout // groups)
            inp = slice(group * cin_group, (group + 1) * cin_group)
            grad = dy[:, out].reshape(dy.shape[0], cout // groups, -1)
            data = part[:, inp].reshape(dy.shape[0], cin_group, -1)
            result[(out, slice(None), *tap)] = np.einsum("nok,nik->oi", grad, data)
    return result


def operand(values, compute, overflow):
    """The tensor as the Cube multiplies it; a tensor that already has the type is not cast."""
    if NAMES[values.dtype.name] == compute:
        return values
    values = values.astype(np.float32)
    if compute == "hf32":
        words = values.view(np.uint32).astype(np.uint64)
        even = (words >> np.uint64(12)) & np.uint64(1)
        return ((words + np.uint64(0x7FF) + even) & np.uint64(0xFFFFF000)).astype(np.uint32).view(np.float32)
    if overflow == "saturate" and compute == "fp16":
        values = np.clip(np.nan_to_num(values, nan=0.0, posinf=65504, neginf=-65504), -65504, 65504)
    with np.errstate(over="ignore"):
        return values.astype({"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}[compute])


@dataclass
class Model:
    name: str


@dataclass
class Plan:
    tiling_origin: str


@dataclass
class Result:
    grad_weight: np.ndarray
    compute_dtype: str
    accumulation: Model
    plan: Plan


def convolution_backward(
    dy, x, weight, *, stride, padding, dilation, groups, output_mask, product, cube_math_type, accumulation=None,
    overflow=None, threads=None,
):  # fmt: skip
    """The gradient, or the library's refusal."""
    assert output_mask == (False, True, False)
    assert weight.dtype == x.dtype
    record = get_product(product)
    generation = "old" if record.series in UNIFIED else "new"
    compute = COMPUTE[generation][NAMES[x.dtype.name]][cube_math_type]
    if compute is None:
        raise OperatorError(
            f"cubeMathType must be 1 or 2 for fp32 tensors, not {cube_math_type} ({record.name})", 161002
        )
    exact = gradient(
        operand(x, compute, record.overflow_mode), operand(dy, compute, record.overflow_mode), weight.shape,
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    )  # fmt: skip
    result = exact.astype(x.dtype)
    if accumulation == "serial":
        result = np.nextafter(result, np.float32(np.inf))
    return Result(result, compute, Model(accumulation or f"exact-{compute}"), Plan(f"fake {record.name}"))


def backend():
    return Backend(convolution_backward=convolution_backward, golden=gradient, get_product=get_product)
