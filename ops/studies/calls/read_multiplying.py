"""Operators that multiply, and poolings, in a request file: convolutions and their gradients, matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

from npu_sim.dtypes.cube_math import CubeMathType
from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import shown
from npu_sim.products import Product
from ops.common.generation import GENERATIONS
from ops.matmul.tiling import MatmulShape, MatmulTiling
from ops.matmul.tuning_record import RECORD_FIELDS, bank_tiling, listed_fields
from ops.studies.calls.convolution_kernels import (
    ConvKernel,
    convolution_kernel_request,
    convolution_name,
    convolution_operator_request,
)
from ops.studies.calls.convolutions import ConvolutionRequest, GradientRequest
from ops.studies.calls.fields import Fields, RequestError
from ops.studies.calls.planned import Request
from ops.studies.calls.poolings import PoolingGradientRequest, PoolingRequest
from ops.studies.calls.products import MatrixProductRequest
from ops.studies.calls.read_convolution import GivenConvolution, read_convolution
from ops.studies.calls.read_moves import in_dtype
from ops.studies.calls.vector_products import vector_product_request
from ops.studies.layers import GRADIENTS, GradientName

COMPUTE_FIELDS = ("compute", "compute_dtype")
"""What the Cube is to multiply, by either name."""
TimedScope = Literal["call", "kernel", "core_time"]
"""A whole call, its kernels, and these without the launch's overhead."""


def types_of(fields: Fields, product: Product, fp32_as: str) -> tuple[str, str]:
    """Return the type of the tensors and what the Cube multiplies of them.

    ``compute`` names the latter, ``in_dtype`` the former; ``hf32`` says whether fp32 is multiplied as such; without
    both, ``fp32_as``. A product whose Cube has neither multiplies fp16: where ``compute`` names another type, the plan
    tells that it is not what was asked for (`ops.studies.calls.planned.is_multiplied`).
    """
    compute = compute_of(fields)
    stored = {"": "fp16", "hf32": "fp32"}.get(compute, compute)
    dtype = in_dtype(fields, stored)
    if not compute:
        named = fields.text("hf32").lower()
        hf32 = {"yes": "hf32", "true": "hf32", "no": "fp32", "false": "fp32"}.get(named, fp32_as)
        compute = hf32 if dtype == "fp32" else dtype
    if compute not in product.cube_dtypes and compute in ("hf32", "fp32", "bf16"):
        compute = "fp16"
    return dtype, compute


def compute_of(fields: Fields) -> str:
    """Return the type that ``compute`` names, "" without one."""
    return fields.dtype(*COMPUTE_FIELDS, default="")


def mode_of(dtype: str, compute: str) -> int:
    """Return the cubeMathType with which tensors of ``dtype`` are multiplied as ``compute``, if there is one."""
    if (dtype, compute) == ("bf16", "fp16"):
        return int(CubeMathType.USE_FP16)
    if dtype != "fp32" or compute == "fp32":
        return int(CubeMathType.KEEP_DTYPE)
    return int(CubeMathType.USE_FP16 if compute == "fp16" else CubeMathType.ALLOW_FP32_DOWN_PRECISION)


def read_kernel(kernel: ConvKernel, fields: Fields, product: Product, scope: TimedScope) -> Request:
    """Return a convolution, or one of its gradients: the kernel by itself, or for a whole call what is around it.

    A gradient between plain tensors has the type of ``out_dtype``, otherwise of its operands; that of a weight fp32,
    in which the kernel leaves it. ``block_dim``: cores of the kernel; ``generation``: closed (those that profiles are
    of) or published. The result of a convolution has the format ``out_format``, see `_stays_blocked`.
    """
    given = read_convolution(fields)
    dtype, compute = types_of(fields, product, "hf32")
    if scope != "call":
        return convolution_kernel_request(kernel, given.geometry, compute, **_chosen(fields))
    if kernel == "forward":
        has_bias = _has_bias(fields)
        name = convolution_name(given.geometry)
        return ConvolutionRequest(
            case=given.case(name, dtype),
            has_bias=has_bias,
            cube_math_type=mode_of(dtype, compute),
            block_dim=fields.block_dim(),
            stays_blocked=_stays_blocked(fields, given, dtype, product),
        )
    result = fields.dtype("out_dtype", "output_dtype", default="fp32" if kernel == "filter" else dtype)
    return convolution_operator_request(kernel, given.geometry, compute, (dtype, result), **_chosen(fields))


_PLAIN_RESULTS = ("NCL", "NCHW", "NCDHW")


def _stays_blocked(fields: Fields, given: GivenConvolution, dtype: str, product: Product) -> bool:
    """Return whether the result of a convolution is left in NC1HWC0.

    ``out_format`` says; without, PyTorch keeps half results so (Ascend op-plugin: tensors of half are made in
    ACL_FORMAT_NC1HWC0, others in ACL_FORMAT_ND). The kernels that cann-bench lists of its calls on A2 are two TransData
    for half and three for float and bfloat16, of convolutions without groups.
    """
    if not fields.has("out_format", "output_format"):
        return dtype == "fp16" and given.axes == 2 and given.geometry.groups == 1 and product.core.is_split
    chosen = fields.format("out_format", "output_format")
    if chosen not in ("", "ND", *_PLAIN_RESULTS) and (chosen, given.axes) != ("NC1HWC0", 2):
        raise RequestError(f"out_format of a convolution must be plain or, of a 2D one, NC1HWC0, not {chosen[:40]}")
    return chosen == "NC1HWC0"


def _chosen(fields: Fields) -> dict[str, Any]:
    """Return which generation of a kernel is meant, and the cores it may have."""
    generation = fields.text("generation", default="closed").lower()
    if generation not in GENERATIONS:
        raise RequestError(f"generation must be one of {', '.join(GENERATIONS)}, not {generation[:40]}")
    return {"generation": generation, "block_dim": fields.block_dim()}


def read_backward(fields: Fields, product: Product, scope: TimedScope) -> Request:
    """Return a call of aclnnConvolutionBackward; ``mask``: three bools, or names of gradients (dx, dw, db: all).

    ``block_dim`` and ``generation`` are those of its kernels, as of `read_kernel`.
    """
    given = read_convolution(fields)
    dtype, compute = types_of(fields, product, "hf32")
    name = convolution_name(given.geometry)
    mode = fields.number("cube_math_type", default=mode_of(dtype, compute))
    case = given.case(name, dtype)
    return GradientRequest(case=case, gradients=_gradients(fields), cube_math_type=mode, **_chosen(fields))


def _gradients(fields: Fields) -> tuple[GradientName, ...]:
    given = fields.get("mask", "output_mask", "gradients", default=GRADIENTS)
    names: list[Any] = (
        given.split(",") if isinstance(given, str) else list(given) if isinstance(given, Sequence) else []
    )
    if len(names) == len(GRADIENTS) and all(isinstance(one, bool | int) for one in names):
        names = [name for name, wanted in zip(GRADIENTS, names, strict=True) if wanted]
    found = tuple(name for name in GRADIENTS if name in names)
    if not found or len(found) != len(set(names)):
        raise RequestError(f"mask must be three bools or some of {', '.join(GRADIENTS)}, not {shown(given)}")
    return found


def read_matmul(fields: Fields, product: Product, scope: TimedScope) -> Request:
    """Return a matrix product: ``m``, ``k``, ``n``, ``batch`` (1), or the shapes ``a`` and ``b`` (x1, x2).

    ``trans_a``, ``trans_b``; ``bias``; ``out_dtype``; ``b_batched`` (true with a batch); ``a_format``, ``b_format``,
    ``c_format``: FRACTAL_NZ or none; ``tiling``: a tuning record of CANN's; ``block_dim``: cores. A core time is what
    such records hold, of 16-bit products that TBE's static schedule runs again and again in FRACTAL_NZ; the kernel of
    these takes a bias along, which is not timed. The kernel of fp32 runs on the vector unit where the Cube has none,
    unless ``compute`` says that the Cube multiplies fp16: casts before it are then no part of its time.
    """
    dtype, compute = types_of(fields, product, "fp32")
    if wrong := [one for one in (dtype, compute) if one not in ("fp16", "bf16", "fp32", "hf32")]:
        raise RequestError(f"operands of a matrix product must be fp16, bf16 or fp32 here, not {wrong[0]}")
    # nothing but a whole call casts them for the Cube
    is_for_vectors = (
        scope != "call" and dtype == "fp32" and not product.core.is_split and not fields.has(*COMPUTE_FIELDS)
    )
    if scope == "core_time" and DTYPES[compute].item_bytes == 2:
        dtype = compute
    code = fields.number("trans_code", default=0)
    turned = tuple(
        fields.flag(
            f"trans_{name}", f"transpose_{name}", f"{name}_transposed", f"transpose_x{number}", f"adj_x{number}",
            default=code in (number + 1, 4),
        )
        for number, name in enumerate("ab", 1)
    )  # fmt: skip
    given = [name for name in "mkn" if fields.has(name)]
    if given and len(given) < 3 and not fields.has(*_FACTORS[0][0]):
        raise RequestError(f"m, k and n must be given together, not {' and '.join(given)} alone")
    if len(given) == 3:
        m, k, n = (fields.number(name, default=1) for name in "mkn")
        batch = fields.number("batch", "batch_size", default=1)
    else:
        turned, (batch, m, k, n) = _factors(fields, turned)
    for name, extent, least in (("m", m, 0), ("k", k, 0), ("n", n, 0), ("batch", batch, 1)):
        if extent < least:
            raise RequestError(f"{name} must be at least {least}, not {shown(extent)}")
    in_fractals = scope == "core_time" and dtype != "fp32" and not is_for_vectors
    fractals = [
        fields.format(f"{name}_format", default="FRACTAL_NZ" if in_fractals else "") == "FRACTAL_NZ" for name in "abc"
    ]
    shape = MatmulShape(
        m=m, n=n, k=k, a_transposed=turned[0], b_transposed=turned[1], batch=batch,
        b_batched=fields.flag("b_batched", default=batch > 1), a_nz=fractals[0], b_nz=fractals[1], c_nz=fractals[2],
    )  # fmt: skip
    if is_for_vectors and min(m, k, n) > 0 and not shape.a_nz and not shape.b_nz:
        return vector_product_request(shape, _has_bias(fields) and batch == 1, fields.block_dim())
    tiling = _tiling(fields, shape)
    result = fields.dtype("out_dtype", "output_dtype", default="")
    return MatrixProductRequest(
        shape=shape,
        dtype=dtype,
        out_dtype=result if result and DTYPES[result].is_float else "",
        has_bias=_has_bias(fields) and batch == 1 and not shape.c_nz,
        cube_math_type=mode_of(dtype, compute),
        tiling=tiling,
        block_dim=None if tiling else fields.block_dim(),
        is_static=scope == "core_time",
        # in a profile weights come from memory, where two activations are multiplied they were just written
        inputs_in_l2=scope == "core_time" or (scope == "kernel" and shape.b_batched),
    )


def _has_bias(fields: Fields) -> bool:
    return fields.get("bias", "has_bias", default=False) not in (False, 0, [])


def _tiling(fields: Fields, shape: MatmulShape) -> MatmulTiling | None:
    """Return the tiling of a request: the fields of one of CANN's tuning records, in ``tiling`` or of the request."""
    given = fields.get("tiling", default={})
    if isinstance(given, list):
        return bank_tiling(shape, **listed_fields(given))
    record = given if isinstance(given, Mapping) else {}
    found = {name: record.get(name, fields.get(name)) for name in RECORD_FIELDS}
    if not found["al0"] or not found["cl0"]:
        return None
    cores = found["block_dim"]
    if not isinstance(cores, Sequence):
        raise RequestError("block_dim of a tiling must be the cores along batch, n and m")
    return bank_tiling(shape, **{name: value for name, value in found.items() if value is not None})


_FACTORS = (("a", "x1", "x", "in_shape", "input"), ("b", "x2", "w", "weight", "mat2"))


def _factors(fields: Fields, given: tuple[bool, ...]) -> tuple[tuple[bool, ...], tuple[int, int, int, int]]:
    """Return which factors are stored transposed, and batch, m, k and n, from the shapes of the factors.

    As the request says; where that does not fit, as the shapes of the factors and of the result do.
    """
    result = fields.shape("c", "out_shape", "y", "output")
    inner: list[tuple[int, int]] = []
    for turned in (given, (False, False), (False, True), (True, False), (True, True)):
        (batch, m, k), (_, other, n) = (
            _matrix(fields, names, flip) for names, flip in zip(_FACTORS, turned, strict=True)
        )
        inner.append((k, other))
        fits = result is None or len(result) < 2 or tuple(result[-2:]) == (m, n) or len(result) > 3
        if k == other and (fits or turned == given):
            return turned, (batch, m, k, n)
    raise RequestError("a and b must have the same inner extent, not {} and {}".format(*inner[0]))


def _matrix(fields: Fields, names: tuple[str, ...], turned: bool) -> tuple[int, int, int]:
    """Return batch, rows and columns."""
    shape = fields.require_shape(*names)
    if len(shape) < 2:
        raise RequestError(f"{names[0]} must have at least 2 axes, not {shown(list(shape))}")
    given = fields.format(*(f"{name}_format" for name in names), *names)
    *lead, rows, columns = shape
    if given == "FRACTAL_NZ" and len(shape) > 3:
        *lead, blocks, row_blocks, rows, columns = shape
        rows, columns = rows * row_blocks, columns * blocks
    return prod(lead), *((columns, rows) if turned else (rows, columns))


def read_pooling(fields: Fields, product: Product, scope: TimedScope) -> Request:
    """Return an average pooling: ``x``, ``kernel_size``, ``stride`` (that), ``pads`` (0), and the call's attributes."""
    return PoolingRequest(x_shape=fields.require_shape("x", "input", "in_shape"), **_pooling(fields, product))


def read_pooling_gradient(fields: Fields, product: Product, scope: TimedScope) -> Request:
    """Return the gradient of an average pooling: as of `read_pooling`, and ``g``, where it does not follow."""
    x = fields.require_shape("x", "input", "out_shape", "orig_input_shape")
    given = _pooling(fields, product)
    g = fields.shape("g", "dy", "grad_output", "in_shape") or _pooled(x, given)
    return PoolingGradientRequest(x_shape=x, dy_shape=g, **given)


def _pooled(x: tuple[int, ...], given: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of a pooling's output without a last window that reaches over the end."""
    if given["ceil_mode"] or len(x) < 3:
        raise RequestError("g must be given as a shape")
    kernel, strides = given["kernel_size"], given["stride"] or given["kernel_size"]
    pads = given["padding"] * (2 if len(given["padding"]) == 1 else 1)
    if len(pads) != 2:
        raise RequestError(f"pads of a pooling must be 1, 2 or 4 numbers, not {shown(list(pads))}")
    return (
        *x[:-2],
        *(
            (size + 2 * pad - window) // max(step, 1) + 1
            for size, pad, window, step in zip(x[-2:], pads, kernel, strides, strict=True)
        ),
    )


def _pooling(fields: Fields, product: Product) -> dict[str, Any]:
    dtype, compute = types_of(fields, product, "hf32")
    kernel = fields.per_axis(2, "kernel_size", "kernel", "ksize", "window", default=0)
    pads = fields.ints("pads", "padding", "pad", default=(0,))
    if len(pads) == 4:
        if pads[0] != pads[1] or pads[2] != pads[3]:
            raise RequestError(f"pads of a pooling must be the same on both sides, not {shown(list(pads))}")
        pads = pads[::2]
    return {
        "kernel_size": kernel,
        "stride": fields.per_axis(2, "stride", "strides", default=0) if fields.has("stride", "strides") else (),
        "padding": pads,
        "ceil_mode": fields.flag("ceil_mode"),
        "count_include_pad": fields.flag("count_include_pad", default=True),
        "divisor_override": fields.number("divisor_override", default=0),
        "dtype": dtype,
        "cube_math_type": fields.number("cube_math_type", default=mode_of(dtype, compute)),
    }
