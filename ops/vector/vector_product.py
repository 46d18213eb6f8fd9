"""The launch of a float32 matrix product on the vector unit of unified cores.

Source: CANN 8.1.RC1 ``tbe/impl/mat_mul.py`` and ``matmul_vector.py``: where the Cube has no float32, a MatMul of it
goes to the vector unit; how UB is divided and which extents go to several cores. ASSUMED: how its intrinsics are
expanded (sums of a row fold its repeats into one and add its 64 elements); two transposed factors, which the library
turns over first, are multiplied as plain ones on one core, without what turns them over.
"""

from __future__ import annotations

from collections.abc import Callable

from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES, REPEAT_BYTES, align_up, ceil_div
from ops.common.records import int_fields, record, tensor_fields
from ops.common.status import NO_KERNEL
from ops.vector import kernel_vector_product
from ops.vector.frame import has_byte_copies, usable_ub_bytes, vector_launch
from ops.vector.kernel_vector_product import ITEM, STEP_ROWS

VECTOR_PRODUCT_PARAMS = int_fields(
    "a", "b", "bias", "c", "a_tensor", "b_tensor", "bias_tensor", "c_tensor", "m", "n", "k", "batch", "a_transposed",
    "b_transposed", "has_bias", "n_in", "k_in", "cores", "exact", "sums", "product", "kept", "left", "left_bytes",
    "right", "right_bytes", "step_rows",
)  # fmt: skip
"""What `kernel_vector_product` reads: extents in elements, places in bytes."""
_BLOCK = BLOCK_BYTES // ITEM
_MOST_CORES = 32
"""Cores that the library's rule counts with on every chip."""


def _first(extent: int, fits: Callable[[int], bool]) -> int:
    """Return the largest of extent, extent / 2, extent / 3, .., rounded up, that fits; 1 if none does."""
    parts = 1
    while parts < extent and not fits(ceil_div(extent, parts)):
        parts += 1
    return ceil_div(extent, parts)


def _blocks_of(n: int, k: int, *, a_turned: bool, b_turned: bool, room: int) -> tuple[int, int]:
    """Return the columns of C and the K that UB holds at a time; ``room``: elements of one half of it."""

    def wide(extent: int) -> int:
        return align_up(extent, _BLOCK)

    if b_turned:
        least = 8 if n % 8 == 0 else 2

        def pair(columns: int, depth: int) -> bool:
            return 4 * wide(columns) + 3 * wide(depth) < room

        if pair(least, k):
            return _first(n, lambda columns: pair(columns, k)), k
        return min(least, n), _first(k, lambda depth: pair(least, depth))
    if a_turned:
        return _first(n, lambda columns: 1 + 3 * wide(columns) < room), k

    def fits(columns: int, depth: int) -> bool:
        rest, left = n % columns, k % depth
        taken = 3 * wide(columns) + wide(depth)
        taken += max(3 * rest + depth, wide(columns)) if rest else 0
        return taken + (left + wide(columns) if left else 0) < room

    if fits(n, min(2, k)):
        return n, _first(k, lambda depth: fits(n, depth))
    return _first(n, lambda columns: fits(columns, min(2, k))), min(2, k)


def _cores(rows: int, n_in: int, *, a_turned: bool, b_turned: bool, product: Product) -> int:
    """Return the cores that share the rows of C: those that divide them, where what each writes is whole blocks."""
    most = min(product.vector_core_count, _MOST_CORES)
    if rows < _MOST_CORES or (a_turned and b_turned):
        return 1
    cores = max(count for count in range(1, most + 1) if rows % count == 0)
    even = n_in * (rows // cores) % 16 == 0 if a_turned else n_in % 8 == 0
    return cores if even else 1


def vector_product_launch(
    gm: GlobalMemory,
    a: GmTensor,
    b: GmTensor,
    bias: GmTensor | None,
    c: GmTensor,
    extents: tuple[int, int, int, int],
    product: Product,
    *,
    a_turned: bool = False,
    b_turned: bool = False,
) -> Launch:
    """Return the launch of C = A B + bias in float32, to be timed: `kernel_vector_product` says what cannot be run.

    Parameters
    ----------
    a, b, bias, c : GmTensor
        float32: [batch][m][k], [batch][k][n], [n] or None, [batch][m][n].
    extents : tuple of int
        (batch, m, n, k), each at least 1.
    product : Product
        Where it runs: its cores have a Cube and a vector unit.
    a_turned, b_turned : bool
        A is stored as [batch][k][m], B as [batch][n][k].

    Raises
    ------
    OperatorError
        561103: the cores of the product are split, or multiply float32.
    """
    if product.core.is_split:
        raise OperatorError(
            f"MatMul of fp32 must run on vector units of unified cores, not on {product.name} ({product.series_name})",
            NO_KERNEL,
        )
    batch, m, n, k = extents
    both = a_turned and b_turned
    a_side, b_side = a_turned and not both, b_turned and not both
    room = usable_ub_bytes(product) // ITEM // 2
    n_in, k_in = _blocks_of(n, k, a_turned=a_side, b_turned=b_side, room=room)
    cores = _cores(batch * m, n_in, a_turned=a_turned, b_turned=b_turned, product=product)
    row = align_up((k_in if b_side else n_in) * ITEM, BLOCK_BYTES)
    left = BLOCK_BYTES if a_side else align_up(k_in * ITEM, BLOCK_BYTES)
    sums = align_up(n_in * ITEM, BLOCK_BYTES)
    sizes = {
        "sums": sums,
        "product": row,
        "kept": REPEAT_BYTES,
        "left": left if not (a_side or b_side) else 2 * left,
        "right": 2 * max(row, sums),
    }
    places, at = {}, 0
    for name, size in sizes.items():
        places[name] = at
        at += size
    values = {
        **tensor_fields(a=a, b=b, c=c), "bias": bias.address if bias else 0, "bias_tensor": bias.index if bias else -1,
        "m": m, "n": n, "k": k, "batch": batch, "a_transposed": int(a_side), "b_transposed": int(b_side),
        "has_bias": int(bias is not None), "n_in": n_in, "k_in": k_in, "cores": cores,
        "exact": int(has_byte_copies(product)), **places, "left_bytes": left,
        "right_bytes": max(row, sums), "step_rows": STEP_ROWS + ceil_div(k_in, 64 * 255) * 2,
    }  # fmt: skip
    return vector_launch(
        "MatMul", kernel_vector_product.vector_product, record(VECTOR_PRODUCT_PARAMS, values), gm,
        kernel_vector_product.SITES, error_kind="vector_product",
    )  # fmt: skip
