"""The Cast launch: a tensor in another float format.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (Cast and its table of conversions). ASSUMED, because the library's own
schedule is closed: tiles as large as UB holds twice; what a core gets is measured (`frame.even_share`).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from npu_sim.crew import run_parts
from npu_sim.dtypes import bulk_jit
from npu_sim.dtypes.convert import CAST_MODES, check_cast
from npu_sim.dtypes.formats import DTYPES, RoundMode
from npu_sim.errors import DTypeError, ShapeError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES
from ops.common.records import int_fields, record, tensor_fields
from ops.vector import kernel_cast
from ops.vector.frame import even_share, has_byte_copies, usable_ub_bytes, vector_launch

FLOATS = ("fp32", "fp16", "bf16")
_TILE_ELEMS = 256
_BULK_ELEMS = 1 << 16
"""Elements the shortcut converts at a time when it goes through float32; 256 KB of them."""

CAST_PARAMS = int_fields(
    "src", "dst", "src_tensor", "dst_tensor", "src_data", "dst_data", "src_item", "dst_item", "count", "tile", "unit",
    "cores", "pads", "middle", "target", "through_fp32", "widen_mode", "round_mode",
)  # fmt: skip
"""What `kernel_cast.cast` reads: addresses in bytes, ``count``, ``tile`` and ``unit`` in elements."""


def conversions(src: str, dst: str, product: Product) -> tuple[tuple[str, str, RoundMode], ...]:
    """Return the Cast instructions from one float format to another: (from, to, mode), two if neither is fp32.

    Of two 16-bit formats neither holds the other's values, so the way leads through fp32: exact, then one rounding.

    Raises
    ------
    DTypeError
        A name that is none of the three, or twice the same.
    ProductError
        The product's Cast does not have the conversion.
    """
    for name, value in (("src_dtype", src), ("dst_dtype", dst)):
        if value not in FLOATS:
            raise DTypeError(f"{name} must be one of {', '.join(FLOATS)}, not {value!r} (Cast, {product.name})")
    if src == dst:
        raise DTypeError(f"dst_dtype must be another type than src_dtype, not {dst!r} twice (Cast, {product.name})")
    steps = ((src, dst),) if "fp32" in (src, dst) else ((src, "fp32"), ("fp32", dst))
    out = []
    for a, b in steps:
        modes = CAST_MODES[product.arch].get((a, b), frozenset())
        mode = RoundMode.RINT if RoundMode.RINT in modes else RoundMode.NONE
        check_cast(a, b, mode, product.arch)
        out.append((a, b, mode))
    return tuple(out)


def _check_room(tensor: GmTensor, name: str, byte_count: int, pads: bool, product: Product) -> None:
    """Refuse a tensor that is too short, or one that the surplus of the last block would reach into."""
    if byte_count > tensor.byte_count:
        rule = f"at most the {tensor.byte_count} bytes of {tensor.name}"
        raise ShapeError(f"count must be {rule}, not {byte_count} bytes (Cast, {name}, {product.name})")
    if name == "dst" and not pads and byte_count % BLOCK_BYTES and byte_count < tensor.byte_count:
        rule = f"all of {tensor.name} or a multiple of {BLOCK_BYTES} bytes"
        raise ShapeError(f"count must be {rule}, not {byte_count} bytes (Cast, {name}, {product.name})")


def cast_launch(
    gm: GlobalMemory, src: GmTensor, dst: GmTensor, count: int, src_dtype: str, dst_dtype: str, product: Product
) -> Launch:
    """Return the launch that converts the first ``count`` elements of ``src`` into ``dst``.

    Parameters
    ----------
    src, dst : GmTensor
        Storage of ``src_dtype`` resp. ``dst_dtype``.
    count : int
        Elements. On products without DataCopyPad all of ``dst`` or whole blocks of 32 bytes.
    src_dtype, dst_dtype : {"fp32", "fp16", "bf16"}
        Two different formats.
    product : Product
        Rounds to nearest, ties to even; overflow as its mode says.

    Raises
    ------
    DTypeError, ProductError
        See `conversions`.
    ShapeError
        ``count`` does not fit the tensors.
    """
    steps = conversions(src_dtype, dst_dtype, product)
    src_item, dst_item = DTYPES[src_dtype].item_bytes, DTYPES[dst_dtype].item_bytes
    pads = has_byte_copies(product)
    if count < 0:
        raise ShapeError(f"count must be at least 0, not {count} (Cast, {product.name})")
    _check_room(src, "src", count * src_item, pads, product)
    _check_room(dst, "dst", count * dst_item, pads, product)
    middle_item = 4 if len(steps) == 2 else 0
    tile = usable_ub_bytes(product) // (2 * (src_item + middle_item + dst_item)) // _TILE_ELEMS * _TILE_ELEMS
    unit, cores = even_share(product, count)
    values = {
        **tensor_fields(src=src, dst=dst),
        "src_data": int(DTYPES[src_dtype].data), "dst_data": int(DTYPES[dst_dtype].data), "src_item": src_item,
        "dst_item": dst_item, "count": count, "tile": tile, "unit": unit, "cores": cores, "pads": int(pads),
        "middle": 2 * tile * src_item, "target": 2 * tile * (src_item + middle_item),
        "through_fp32": int(len(steps) == 2), "widen_mode": int(steps[0][2]), "round_mode": int(steps[-1][2]),
    }  # fmt: skip
    return vector_launch(
        "Cast", kernel_cast.cast, record(CAST_PARAMS, values), gm, kernel_cast.SITES, error_kind="cast",
        shortcut=partial(_convert_all, src, dst, count, src_dtype, dst_dtype),
    )  # fmt: skip


def _codes(memory: GlobalMemory, tensor: GmTensor, count: int, dtype: str) -> np.ndarray:
    """Return the first elements of a tensor as unsigned patterns (no copy)."""
    code = DTYPES[dtype].code
    return memory.bytes_of(tensor)[: count * code.itemsize].view(code)


def _convert_all(
    src: GmTensor,
    dst: GmTensor,
    count: int,
    src_dtype: str,
    dst_dtype: str,
    memory: GlobalMemory,
    saturate: bool,
    threads: int,
) -> None:
    """Convert all elements in bulk, cut into one stretch for each thread."""
    source, target = _codes(memory, src, count, src_dtype), _codes(memory, dst, count, dst_dtype)
    parts = max(min(threads, count // _BULK_ELEMS), 1)
    bounds = [count * part // parts for part in range(parts + 1)]

    def convert(part: int) -> None:
        first, last = bounds[part], bounds[part + 1]
        _convert(source[first:last], target[first:last], src_dtype, dst_dtype, saturate)

    run_parts(convert, parts)


def _convert(source: np.ndarray, target: np.ndarray, src_dtype: str, dst_dtype: str, saturate: bool) -> None:
    """Convert patterns; 16-bit formats go through float32 words a piece at a time."""
    decode = bulk_jit.decode_fp16 if src_dtype == "fp16" else bulk_jit.decode_bf16
    nearest = bulk_jit.nearest_fp16 if dst_dtype == "fp16" else bulk_jit.nearest_bf16
    if dst_dtype == "fp32":
        decode(source, target)
    elif src_dtype == "fp32":
        nearest(source, target, int(saturate))
    else:
        words = np.empty(min(len(source), _BULK_ELEMS), np.uint32)
        for at in range(0, len(source), _BULK_ELEMS):
            piece = source[at : at + _BULK_ELEMS]
            decode(piece, words[: len(piece)])
            nearest(words[: len(piece)], target[at : at + _BULK_ELEMS], int(saturate))
