"""Element-wise launches on one tensor, or two of the same shape: Add, Mul, Relu and so on.

ASSUMED, because the library's schedules are closed: cores and tiles as of Cast; a type that the vector unit does not
compute with is widened to float32, as the library's kernels do with bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.dtypes.convert import cast
from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import DTypeError, ShapeError
from npu_sim.isa.op import SPEC_OF_OP, Op
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from ops.common.records import int_fields, record, tensor_fields
from ops.vector import kernel_stream
from ops.vector.cast import FLOATS, conversions
from ops.vector.frame import even_share, has_byte_copies, usable_ub_bytes, vector_launch

_TILE_ELEMS = 256

UNARY: Mapping[str, tuple[int, Op]] = {
    "Abs": (kernel_stream.ABS, Op.ABS),
    "Relu": (kernel_stream.RELU, Op.RELU),
    "Sqrt": (kernel_stream.SQRT, Op.SQRT),
}
SCALAR: Mapping[str, tuple[int, Op]] = {
    "Adds": (kernel_stream.ADDS, Op.ADDS),
    "Muls": (kernel_stream.MULS, Op.MULS),
}
"""With a number."""
BINARY: Mapping[str, tuple[int, Op]] = {
    "Add": (kernel_stream.ADD, Op.ADD),
    "Sub": (kernel_stream.SUB, Op.SUB),
    "Mul": (kernel_stream.MUL, Op.MUL),
    "Div": (kernel_stream.DIV, Op.DIV),
    "Maximum": (kernel_stream.MAX, Op.MAX),
    "Minimum": (kernel_stream.MIN, Op.MIN),
}

STREAM_PARAMS = int_fields(
    "src0", "src1", "dst", "src0_tensor", "src1_tensor", "dst_tensor", "operation", "data", "work", "item", "count",
    "tile", "unit", "cores", "pads", "second", "wide", "target", "has_second", "through_fp32", "widen_mode",
    "round_mode", "value_bits",
)  # fmt: skip
"""What `kernel_stream.stream` reads: addresses in bytes, ``count``, ``tile`` and ``unit`` in elements."""


def stream_launch(
    gm: GlobalMemory,
    operation: str,
    sources: tuple[GmTensor, ...],
    dst: GmTensor,
    dtype: str,
    product: Product,
    value: float = 0.0,
) -> Launch:
    """Return the launch that computes every element of ``dst``.

    Parameters
    ----------
    operation : str
        One of `UNARY`, `SCALAR` or `BINARY`.
    sources : tuple of GmTensor
        One, of `BINARY` two, as large as ``dst``.
    dst : GmTensor
        The result.
    dtype : {"fp32", "fp16", "bf16"}
        Type of all tensors.
    value : float
        The number of `SCALAR`.

    Raises
    ------
    DTypeError, ProductError
        The vector unit has neither the operation on the type nor the conversions to float32.
    ShapeError
        There are more or fewer sources, or they have another size.
    """
    known = {**UNARY, **SCALAR, **BINARY}
    if operation not in known:
        raise ShapeError(f"operation must be one of {', '.join(known)}, not {operation} ({product.name})")
    if dtype not in FLOATS:
        raise DTypeError(f"dtype must be one of {', '.join(FLOATS)}, not {dtype} ({operation}, {product.name})")
    code, op = known[operation]
    count = 2 if operation in BINARY else 1
    if len(sources) != count or any(source.byte_count != dst.byte_count for source in sources):
        rule = f"{count} of {dst.byte_count} bytes"
        found = ", ".join(str(source.byte_count) for source in sources)
        raise ShapeError(f"sources must be {rule}, not {found} ({operation}, {product.name})")
    item = DTYPES[dtype].item_bytes
    has_op = DTYPES[dtype].data in SPEC_OF_OP[op].dtypes[product.arch]
    if operation == "Relu" and not has_op and DTYPES[dtype].data in SPEC_OF_OP[Op.MAX].dtypes[product.arch]:
        code, has_op = kernel_stream.RELU_BY_MAX, True
    through = not has_op
    if through and dtype == "fp32":
        raise DTypeError(f"dtype must be one that {operation} has, not fp32 ({product.name})")
    (_, _, widen), (_, _, rounding) = (
        (conversions(dtype, "fp32", product)[0], conversions("fp32", dtype, product)[0]) if through else _NO_MODES
    )
    work = "fp32" if through else dtype
    elems = dst.byte_count // item
    row_bytes = item * (count + 1) + (4 * count if through else 0)
    # with room for a tile of zeros
    tile = usable_ub_bytes(product) // (2 * row_bytes + item) // _TILE_ELEMS * _TILE_ELEMS
    unit, cores = even_share(product, elems)
    values = {
        **tensor_fields(src0=sources[0], src1=sources[-1], dst=dst), "operation": code,
        "data": int(DTYPES[dtype].data), "work": int(DTYPES[work].data), "item": item, "count": elems, "tile": tile,
        "unit": unit, "cores": cores, "pads": int(has_byte_copies(product)), "second": 2 * tile * item,
        "target": 2 * tile * item * count, "wide": 2 * tile * item * (count + 1), "has_second": count - 1,
        "through_fp32": int(through), "widen_mode": int(widen), "round_mode": int(rounding),
        "value_bits": _bits(value, work),
    }  # fmt: skip
    params = record(STREAM_PARAMS, values)
    # what ran before is not known, so neither is whether the operands are still in L2
    return vector_launch(operation, kernel_stream.stream, params, gm, kernel_stream.SITES, inputs="unknown")


_NO_MODES = (("", "", 0), ("", "", 0))
"""Where nothing is converted."""


def _bits(value: float, dtype: str) -> int:
    """Return the pattern of a number, rounded to the type."""
    return int(cast(np.array([value], np.float32), dtype).view(DTYPES[dtype].code)[0])
