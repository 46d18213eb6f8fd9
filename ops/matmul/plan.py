"""Tiling and launch of a matrix product on dav-c220. The library's own tiling is closed; this one is ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.units import KIB, ceil_div
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.pipeline import Kernel
from ops.common.records import kernel_launch, record, tensor_fields
from ops.common.status import NO_KERNEL
from ops.matmul import kernel_matmul

_BASE_MN = 128
_BASE_K_BYTES = 128
_CHUNK_BLOCKS = 4
_L1_PART_BYTES = 64 * KIB

_FIELDS = (
    "m", "n", "k", "batch", "a_transposed", "b_transposed", "b_batched", "item", "data", "c_item", "c_data", "a", "b",
    "c", "a_tensor", "b_tensor", "c_tensor", "base_m", "base_n", "base_k", "chunk_k", "a1", "a1_bytes", "b1",
    "b1_bytes", "l1_bytes", "l0a_half", "l0b_half", "l0c_half", "hf32", "cores", "step_rows",
)  # fmt: skip
MATMUL_PARAMS = np.dtype([(name, "i8") for name in _FIELDS])
"""What `kernel_matmul.matmul` reads: extents in elements, addresses and sizes in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulShape:
    """C[batch][m][n] = A[batch] B or A[batch] B[batch], row-major.

    Attributes
    ----------
    m, n, k : int
        Extents, at least 1.
    a_transposed : bool
        A is stored as [batch][k][m], else as [batch][m][k].
    b_transposed : bool
        B is stored as [n][k], else as [k][n].
    batch : int
        Products.
    b_batched : bool
        Each product has a B of its own, stored one after the other; else all have the same.
    """

    m: int
    n: int
    k: int
    a_transposed: bool = False
    b_transposed: bool = False
    batch: int = 1
    b_batched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulTiling:
    """Base blocks and cores.

    Attributes
    ----------
    base_m, base_n, base_k : int
        One Mmad.
    chunk_k : int
        K that L1 holds at a time.
    cores : int
        Cores used.
    """

    base_m: int
    base_n: int
    base_k: int
    chunk_k: int
    cores: int
    origin: str = "not CANN's tiling (ours)"


def matmul_launches(
    shape: MatmulShape,
    product: Product,
    compute_dtype: str,
    out_dtype: str,
    gm: GlobalMemory,
    a: GmTensor,
    b: GmTensor,
    c: GmTensor,
) -> Kernel:
    """Plan C = A B in one float32 accumulation, k ascending; touches no tensor data.

    Parameters
    ----------
    shape : MatmulShape
        Extents.
    product : Product
        One with split cores.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies; A and B lie in memory in the type of that width.
    out_dtype : {"fp16", "bf16", "fp32"}
        Type of C: the sum is rounded to it once, to nearest even.
    gm : GlobalMemory
        Where the tensors lie.
    a, b, c : GmTensor
        Operands and result.

    Raises
    ------
    OperatorError
        561103 if the product has no such kernel or Cube type.
    """
    if not product.core.is_split or compute_dtype not in product.cube_dtypes:
        raise OperatorError(
            f"MatMul must run on split cores that multiply {compute_dtype}, not on {product.name} "
            f"({product.series_name})",
            NO_KERNEL,
        )
    operand, out = DTYPES[compute_dtype], DTYPES[out_dtype]
    item = operand.item_bytes
    blocks = ceil_div(shape.m, _BASE_MN) * ceil_div(shape.n, _BASE_MN) * shape.batch
    tiling = MatmulTiling(
        base_m=_BASE_MN,
        base_n=_BASE_MN,
        base_k=_BASE_K_BYTES // item,
        chunk_k=_CHUNK_BLOCKS * _BASE_K_BYTES // item,
        cores=min(product.cube_core_count, blocks),
    )
    values = {
        "m": shape.m, "n": shape.n, "k": shape.k, "batch": shape.batch, "a_transposed": int(shape.a_transposed),
        "b_transposed": int(shape.b_transposed), "b_batched": int(shape.b_batched),
        "item": item, "data": int(operand.data), "c_item": out.item_bytes, "c_data": int(out.data),
        **tensor_fields(a=a, b=b, c=c), "base_m": tiling.base_m, "base_n": tiling.base_n,
        "base_k": tiling.base_k, "chunk_k": tiling.chunk_k, "a1": 0, "a1_bytes": _L1_PART_BYTES,
        "b1": 2 * _L1_PART_BYTES, "b1_bytes": _L1_PART_BYTES, "l1_bytes": 4 * _L1_PART_BYTES,
        "l0a_half": product.core.l0a_bytes // 2, "l0b_half": product.core.l0b_bytes // 2,
        "l0c_half": product.core.l0c_bytes // 2, "hf32": int(compute_dtype == "hf32"), "cores": tiling.cores,
        # every row of both operands may need an instruction of its own
        "step_rows": 2 * tiling.chunk_k + tiling.base_m + 256,
    }  # fmt: skip
    params = record(MATMUL_PARAMS, values)
    launch = kernel_launch("MatMulV2", kernel_matmul.matmul, params, gm, kernel_matmul.SITES)
    # ASSUMED: the library reserves for this kernel what it reserves for the others
    return Kernel(launches=(launch,), private_bytes=SYSTEM_WORKSPACE_BYTES, tiling=tiling)
