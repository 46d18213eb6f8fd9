"""Tiling and launch of a matrix product on dav-c220. The library's own tiling is closed; this one is ours."""

from __future__ import annotations

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Doubt, ErrorKind
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.kernel_parts import MAX_BLOCK_COUNT, MAX_FIELD
from ops.common.pipeline import Kernel
from ops.common.records import kernel_launch, record, tensor_fields
from ops.common.status import NO_KERNEL
from ops.matmul import kernel_matmul
from ops.matmul.kernel_matmul_operands import SITES
from ops.matmul.tiling import ORIGIN_GIVEN, ORIGIN_OURS, ORIGIN_STATIC, MatmulShape, MatmulTiling, check_tiling
from ops.matmul.tiling_search import reuse_bytes, rows_outside, search_tiling

_FIELDS = (
    "m", "n", "k", "batch", "a_transposed", "b_transposed", "b_batched", "a_nz", "b_nz", "c_nz", "item", "data",
    "c_item", "c_data", "a", "b", "c", "a_tensor", "b_tensor", "c_tensor", "base_m", "base_n", "base_k", "k_a", "k_b",
    "blocks_a", "blocks_b", "keeps_b", "m_outer", "cores_n", "cores_m", "cores_batch", "a1", "a1_bytes", "a1_buffers",
    "b1", "b1_bytes", "b1_buffers", "l0_buffers", "l0a_half", "l0b_half", "l0c_buffers", "l0c_half", "hf32", "unified",
    "ub_half", "cores", "step_rows",
)  # fmt: skip
MATMUL_PARAMS = np.dtype([(name, "i8") for name in _FIELDS])
"""What `kernel_matmul.matmul` reads: extents in elements, addresses and sizes in bytes."""
_ERROR_KINDS: dict[str, ErrorKind] = {
    ORIGIN_OURS: "matmul", ORIGIN_STATIC: "static_matmul", ORIGIN_GIVEN: "tiled_matmul"
}  # fmt: skip
_SHORT_K = 64
"""Longest K of few steps: of the tuning records that are not longer, four of five are predicted within 1.8, of others
within 1.35."""


def matmul_launches(
    shape: MatmulShape,
    product: Product,
    compute_dtype: str,
    out_dtype: str,
    gm: GlobalMemory,
    a: GmTensor,
    b: GmTensor,
    c: GmTensor,
    tiling: MatmulTiling | None = None,
    block_dim: int | None = None,
) -> Kernel:
    """Plan C = A B in one float32 accumulation, k ascending; touches no tensor data.

    Parameters
    ----------
    shape : MatmulShape
        Extents.
    product : Product
        On unified cores the rows of operands and result begin at multiples of 16 elements.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies; A and B lie in memory in the type of that width.
    out_dtype : {"fp16", "bf16", "fp32"}
        Type of C: the sum is rounded to it once, to nearest even.
    gm : GlobalMemory
        Where the tensors lie.
    a, b, c : GmTensor
        Operands and result.
    tiling : MatmulTiling or None
        How it is cut; None: the cheapest of a search (`tiling_search`). The bits of the result do not depend on it.
    block_dim : int or None
        Cores the search may use; None: all of the product.

    Raises
    ------
    ShapeError
        ``tiling`` or ``block_dim`` is out of range.
    OperatorError
        561103 if the product has no such kernel or Cube type, or the buffers are too small for ``tiling``.
    """
    if compute_dtype not in product.cube_dtypes:
        raise OperatorError(
            f"MatMul must run on cores that multiply {compute_dtype}, not on {product.name} ({product.series_name})",
            NO_KERNEL,
        )
    operand, out = DTYPES[compute_dtype], DTYPES[out_dtype]
    item = operand.item_bytes
    if tiling is None:
        cores = product.cube_core_count if block_dim is None else block_dim
        tiling = search_tiling(shape, product, compute_dtype, cores)
    buffers = check_tiling(tiling, shape, compute_dtype, product)
    core = product.core
    values = {
        "m": shape.m, "n": shape.n, "k": shape.k, "batch": shape.batch, "a_transposed": int(shape.a_transposed),
        "b_transposed": int(shape.b_transposed), "b_batched": int(shape.b_batched), "a_nz": int(shape.a_nz),
        "b_nz": int(shape.b_nz), "c_nz": int(shape.c_nz), "item": item, "data": int(operand.data),
        "c_item": out.item_bytes, "c_data": int(out.data), **tensor_fields(a=a, b=b, c=c), "base_m": tiling.base_m,
        "base_n": tiling.base_n, "base_k": tiling.base_k, "k_a": tiling.k_a, "k_b": tiling.k_b,
        "blocks_a": tiling.blocks_a, "blocks_b": tiling.blocks_b, "keeps_b": int(tiling.keeps_b),
        "m_outer": int(rows_outside(tiling, shape)), "cores_n": tiling.cores_n, "cores_m": tiling.cores_m,
        "cores_batch": tiling.cores_batch, "a1": 0, "a1_bytes": buffers.a1_bytes, "a1_buffers": buffers.a1,
        "b1": buffers.a1 * buffers.a1_bytes, "b1_bytes": buffers.b1_bytes, "b1_buffers": buffers.b1,
        "l0_buffers": buffers.l0, "l0a_half": core.l0a_bytes // 2, "l0b_half": core.l0b_bytes // 2,
        "l0c_buffers": buffers.l0c, "l0c_half": core.l0c_bytes // 2,
        "hf32": int(compute_dtype == "hf32"),
        "unified": int(not core.is_split), "ub_half": core.ub_bytes // 2 // 512 * 512,
        "cores": tiling.cores, "step_rows": _step_rows(tiling, shape, out.item_bytes, not core.is_split),
    }  # fmt: skip
    params = record(MATMUL_PARAMS, values)
    is_float = item == 4 and tiling.origin == ORIGIN_OURS
    facts = {
        "error_kind": "float_matmul" if is_float else _ERROR_KINDS.get(tiling.origin),
        "fixed_cost": "float_matmul" if is_float else "kernel",
        "doubts": _doubts(shape, item, out.item_bytes),
        "stands_for_record": tiling.origin == ORIGIN_STATIC,
        "reuse_bytes": reuse_bytes(tiling, shape, item),
    }
    launch = kernel_launch("MatMulV2", kernel_matmul.matmul, params, gm, SITES, **facts)
    # ASSUMED: the library reserves for this kernel what it reserves for the others
    return Kernel(launches=(launch,), private_bytes=SYSTEM_WORKSPACE_BYTES, tiling=tiling)


def _doubts(shape: MatmulShape, item: int, out_item: int) -> tuple[Doubt, ...]:
    """Return what makes the time of a product less certain than that of others."""
    s = shape
    row_bytes = [
        bytes_of for bytes_of, is_nz in (
            ((s.m if s.a_transposed else s.k) * item, s.a_nz),
            ((s.k if s.b_transposed else s.n) * item, s.b_nz),
            (s.n * out_item, s.c_nz),
        ) if not is_nz
    ]  # fmt: skip
    found: list[Doubt] = ["short_k"] if s.k <= _SHORT_K else []
    if any(count % BLOCK_BYTES for count in row_bytes):
        found.append("ragged_rows")
    return tuple(found)


def _step_rows(tiling: MatmulTiling, shape: MatmulShape, c_item: int, is_unified: bool) -> int:
    """Return the most rows between two looks at the buffer: two chunks of both operands come, and a block of C goes."""
    t, s = tiling, shape
    lines_a, lines_b = t.blocks_a * t.base_m, t.blocks_b * t.base_n
    stored_a = (s.k, s.m, t.k_a, lines_a) if s.a_transposed else (s.m, s.k, lines_a, t.k_a)
    stored_b = (s.n, s.k, lines_b, t.k_b) if s.b_transposed else (s.k, s.n, t.k_b, lines_b)
    rows_a, rows_b = _fetch_rows(*stored_a, s.a_nz, is_unified), _fetch_rows(*stored_b, s.b_nz, is_unified)
    loads = t.base_m + t.base_n + t.base_k
    # four flags beside each slice of strips
    store = _fetch_rows(s.m, s.n * c_item // 2, t.base_m, t.base_n, s.c_nz, is_unified) + t.base_n // 4
    if t.keeps_b:
        return ceil_div(s.k, t.k_b) * (rows_b + t.base_n + t.k_b + 16) + 2 * rows_a + loads + store + 256
    return 2 * (rows_a + rows_b) + loads + store + 256


def _fetch_rows(rows: int, columns: int, height: int, width: int, is_nz: bool, is_unified: bool) -> int:
    """Return the most rows that copy ``height`` x ``width`` of a matrix of ``rows`` x ``columns`` of 2 bytes."""
    strips = ceil_div(width, 16)
    if is_nz:
        # of 8 columns where they are of 32 bits
        return 2 * strips if rows > MAX_FIELD else ceil_div(2 * strips, MAX_BLOCK_COUNT)
    if not is_unified:
        return height
    if columns > 16 * MAX_FIELD:
        return strips * align_up(height, 16)
    # rows again for the rest of a fractal, 15 times if there is one
    return strips * (ceil_div(height, MAX_BLOCK_COUNT) + 15)
