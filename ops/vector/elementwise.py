"""The launches Mul and Add (planes and one matrix), Div and BroadcastTo (one value a plane, divided and spread).

Half operands multiply, add and divide in half: one rounding an element, ties to even, overflow as the product's mode
says.

ASSUMED, because the library's schedules are closed: a matrix of up to a third of UB stays there, a longer one comes in
pieces; groups of planes are as large as UB holds; a quotient reaches the lanes of one block by scalar moves and the
rest of the plane by copies inside UB that double what is filled. Dividing before spreading gives the bits of dividing
every element.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from npu_sim.dtypes.convert import cast
from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import DTypeError, ShapeError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.records import int_fields, record, tensor_fields
from ops.vector import kernel_elementwise
from ops.vector.frame import (
    block_elems,
    cores_for,
    has_byte_copies,
    smallest_unit,
    usable_ub_bytes,
    vector_launch,
)

FLOATS = ("fp32", "fp16")
_MOST_PLANES = 128
"""Planes of one group, each an instruction of its own."""
_BULK_PLANES_BYTES = 1 << 18
_SLOT_BYTES = BLOCK_BYTES

PLANES_PARAMS = int_fields(
    "src", "matrix", "dst", "src_tensor", "matrix_tensor", "dst_tensor", "data", "item", "adds", "planes", "plane",
    "group", "piece", "pieces", "tasks", "cores", "exact", "resident", "input", "output", "half", "slot", "step_rows",
)  # fmt: skip
"""What `kernel_elementwise.combine` reads: ``plane``, ``piece`` and places in bytes, the matrix at 0."""

DIV_PARAMS = int_fields(
    "src", "dst", "src_tensor", "dst_tensor", "data", "item", "planes", "plane", "unit", "cores", "exact", "divisor",
    "input", "divisors", "quotients", "output", "half", "step_rows",
)  # fmt: skip
"""What `kernel_elementwise.div` reads: ``plane`` and places in bytes, ``divisor`` a pattern."""


def _check(name: str, dtype: str, sizes: tuple[tuple[GmTensor, int], ...], product: Product) -> int:
    """Return the bytes of an element; refuse other types and tensors of another size."""
    if dtype not in FLOATS:
        raise DTypeError(f"dtype must be one of {', '.join(FLOATS)}, not {dtype!r} ({name}, {product.name})")
    item = DTYPES[dtype].item_bytes
    for tensor, count in sizes:
        if count < 0 or tensor.byte_count != count * item:
            rule = f"{count} elements of {dtype}"
            raise ShapeError(f"{tensor.name} must be {rule}, not {tensor.byte_count} bytes ({name}, {product.name})")
    return item


def _blocks(byte_count: int) -> int:
    """Return ``byte_count`` rounded down to whole blocks."""
    return byte_count // BLOCK_BYTES * BLOCK_BYTES


def planes_launch(
    name: str,
    gm: GlobalMemory,
    src: GmTensor,
    matrix: GmTensor,
    dst: GmTensor,
    planes: int,
    plane_elems: int,
    dtype: str,
    product: Product,
) -> Launch:
    """Return the launch that multiplies each of ``planes`` planes of ``src`` by ``matrix``, or adds it, by element.

    Parameters
    ----------
    name : {"Mul", "Add"}
        Which.
    src, dst : GmTensor
        planes * plane_elems elements.
    matrix : GmTensor
        plane_elems elements.
    planes, plane_elems : int
        Extents.
    dtype : {"fp32", "fp16"}
        Type of all three.

    Raises
    ------
    DTypeError
        Another type.
    ShapeError
        The extents do not match the tensors.
    """
    total = planes * plane_elems if min(planes, plane_elems) >= 0 else -1
    item = _check(name, dtype, ((src, total), (matrix, plane_elems), (dst, total)), product)
    plane = plane_elems * item
    usable = usable_ub_bytes(product) - _SLOT_BYTES
    resident = plane <= usable // 3
    room = align_up(plane, BLOCK_BYTES) if resident else _blocks(usable // 5)
    half = _blocks((usable - room) // 4)
    longest = (half if resident else min(half, room)) - BLOCK_BYTES
    piece, pieces = plane, 1
    if plane > longest:
        piece, pieces = longest, max((plane - BLOCK_BYTES) // longest + 1, 1)
    pitch = align_up(plane, BLOCK_BYTES)
    group = 1
    if pieces == 1 and plane:
        group = max(min(planes, half // pitch, _MOST_PLANES), 1)
        least = smallest_unit(plane_elems, item)
        group = max(min(group, ceil_div(planes, product.vector_core_count)), min(least, half // pitch))
    tasks = ceil_div(planes, group) * pieces if plane else 0
    exact = has_byte_copies(product)
    values = {
        **tensor_fields(src=src, matrix=matrix, dst=dst), "data": int(DTYPES[dtype].data), "item": item,
        "adds": int(name == "Add"), "planes": planes, "plane": plane, "group": group, "piece": piece, "pieces": pieces,
        "tasks": tasks,
        "cores": cores_for(product, tasks), "exact": int(exact), "resident": int(resident), "input": room,
        "output": room + 2 * half, "half": half, "slot": room + 4 * half, "step_rows": 64 + 3 * group,
    }  # fmt: skip
    return vector_launch(
        name, kernel_elementwise.combine, record(PLANES_PARAMS, values), gm, kernel_elementwise.SITES,
        shortcut=partial(_combine_all, name == "Add", src, matrix, dst, plane_elems, dtype),
    )  # fmt: skip


mul_launch, add_launch = partial(planes_launch, "Mul"), partial(planes_launch, "Add")


def divisor_pattern(divisor: float, dtype: str, overflow: str) -> int:
    """Return the bit pattern of ``divisor`` rounded to ``dtype``, as Duplicate gets it."""
    value = cast(np.array([divisor], np.float64), dtype, overflow="saturate" if overflow == "saturate" else "inf_nan")
    return int(value.view(DTYPES[dtype].code)[0])


def div_launch(
    gm: GlobalMemory,
    src: GmTensor,
    dst: GmTensor,
    planes: int,
    plane_elems: int,
    divisor: float,
    dtype: str,
    product: Product,
) -> Launch:
    """Return the launch that fills plane i of ``dst`` with ``src[i] / divisor``.

    Parameters
    ----------
    src, dst : GmTensor
        ``planes`` resp. planes * plane_elems elements.
    divisor : float
        Rounded to ``dtype`` before the division.
    planes, plane_elems, dtype
        As of `planes_launch`, which raises the same errors.
    """
    total = planes * plane_elems if min(planes, plane_elems) >= 0 else -1
    item = _check("Div", dtype, ((src, planes), (dst, total)), product)
    plane, unit = plane_elems * item, block_elems(item)
    half = _blocks((usable_ub_bytes(product) - 3 * BLOCK_BYTES) // 2)
    pattern = divisor_pattern(divisor, dtype, product.overflow_mode)
    cores = cores_for(product, ceil_div(planes, unit))
    values = {
        **tensor_fields(src=src, dst=dst),
        "data": int(DTYPES[dtype].data), "item": item, "planes": planes if plane else 0, "plane": plane, "unit": unit,
        "cores": cores if plane else 1, "exact": int(has_byte_copies(product)),
        "divisor": pattern - (1 << 32) if pattern >= 1 << 31 else pattern, "input": 0, "divisors": BLOCK_BYTES,
        "quotients": 2 * BLOCK_BYTES, "output": 3 * BLOCK_BYTES, "half": half,
        "step_rows": 128 + unit * max(block_elems(item), 1) + ceil_div(plane, half),
    }  # fmt: skip
    return vector_launch(
        "Div", kernel_elementwise.div, record(DIV_PARAMS, values), gm, kernel_elementwise.SITES,
        shortcut=partial(_div_all, src, dst, planes, plane_elems, pattern, dtype),
    )  # fmt: skip


def broadcast_launch(
    gm: GlobalMemory, src: GmTensor, dst: GmTensor, planes: int, plane_elems: int, dtype: str, product: Product
) -> Launch:
    """Return the launch that fills plane i of ``dst`` with ``src[i]``; parameters and errors as of `div_launch`.

    The kernel is that of Div: a quotient by 1 is the value itself.
    """
    return replace(div_launch(gm, src, dst, planes, plane_elems, 1.0, dtype, product), name="BroadcastTo")


def _values(memory: GlobalMemory, tensor: GmTensor, dtype: str) -> np.ndarray:
    return memory.bytes_of(tensor).view(DTYPES[dtype].storage)


def _rounded(values: np.ndarray, dtype: str, saturate: bool) -> np.ndarray:
    """Round float32 results to ``dtype``; float32 stays."""
    return cast(values, dtype, overflow="saturate" if saturate else "inf_nan") if dtype != "fp32" else values


def _combine_all(
    adds: bool,
    src: GmTensor,
    matrix: GmTensor,
    dst: GmTensor,
    plane_elems: int,
    dtype: str,
    memory: GlobalMemory,
    saturate: bool,
    threads: int,
) -> None:
    """Combine some planes at a time; products of halves are exact in float32, sums round as in half (Figueroa 1995)."""
    if not src.byte_count:
        return
    x = _values(memory, src, dtype).reshape(-1, plane_elems)
    y = _values(memory, dst, dtype).reshape(-1, plane_elems)
    factor = cast(_values(memory, matrix, dtype), "fp32")
    step = max(_BULK_PLANES_BYTES // (4 * plane_elems), 1)
    with np.errstate(all="ignore"):
        for at in range(0, len(x), step):
            part = cast(x[at : at + step], "fp32")
            y[at : at + step] = _rounded(part + factor if adds else part * factor, dtype, saturate)


def _div_all(
    src: GmTensor,
    dst: GmTensor,
    planes: int,
    plane_elems: int,
    divisor: int,
    dtype: str,
    memory: GlobalMemory,
    saturate: bool,
    threads: int,
) -> None:
    """Divide one value a plane and spread it; rounding to float32 first does not show in a half (Figueroa 1995)."""
    if not dst.byte_count:
        return
    x = cast(_values(memory, src, dtype), "fp32")
    area = cast(np.array([divisor], DTYPES[dtype].code).view(DTYPES[dtype].storage), "fp32")
    with np.errstate(all="ignore"):
        quotients = _rounded(x / area, dtype, saturate)
    _values(memory, dst, dtype).reshape(planes, plane_elems)[...] = quotients[:, None]
