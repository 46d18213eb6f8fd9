"""Requests of aclnnMm, aclnnAddmm and aclnnBatchMatMul."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from npu_sim.products import Product
from npu_sim.units import ceil_div
from ops.common.tensor_desc import TensorDesc
from ops.matmul.tiling import CUBE, MatmulShape, MatmulTiling
from ops.matmul.tiling_search import search_tiling
from ops.mm.plan import compute_dtype_of, plan_matrix_product
from ops.studies.calls.planned import PlannedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProductRequest:
    """A call of a matrix product.

    Attributes
    ----------
    shape : MatmulShape
        Extents, and how the factors are stored.
    dtype : {"fp16", "bf16", "fp32"}
        Of all tensors.
    out_dtype : {"", "fp16", "bf16", "fp32"}
        Of the result, if it has another one.
    has_bias : bool
        With a bias of N elements.
    cube_math_type : int
        0..3.
    tiling : MatmulTiling or None
        How the kernel is cut; None: the cheapest of a search.
    block_dim : int or None
        Cores that the search may use; None: all.
    is_static : bool
        It is one of CANN's tuning records: the search keeps to what TBE's static schedule can write
        (`ops.matmul.tiling_search`), and extents may be padded (`recorded_shape`).
    inputs_in_l2 : bool
        As of `PlannedCall`: the product is run again and again, as it is to be tuned.
    """

    shape: MatmulShape
    dtype: str = "fp16"
    out_dtype: str = ""
    has_bias: bool = False
    cube_math_type: int = 0
    tiling: MatmulTiling | None = None
    block_dim: int | None = None
    is_static: bool = False
    inputs_in_l2: bool = False
    kernel_words: ClassVar[str] = "the kernel of the product"

    @property
    def name(self) -> str:
        """Name in reports: batch, M, K and N."""
        shape = self.shape
        return f"{shape.m}x{shape.k}x{shape.n}" if shape.batch == 1 else f"{shape.batch}*{shape.m}x{shape.k}x{shape.n}"

    @property
    def words(self) -> str:
        """What is called."""
        kind = "aclnnBatchMatMul" if self.shape.b_batched else "aclnnAddmm" if self.has_bias else "aclnnMm"
        return f"call of {kind}"

    @property
    def batch(self) -> int:
        """Products."""
        return self.shape.batch

    def with_batch(self, batch: int) -> MatrixProductRequest:
        """Return the request for another batch."""
        return replace(self, shape=replace(self.shape, batch=batch))

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        shape = self.shape
        return {
            "cube_math_type": self.cube_math_type,
            "input_dtype": self.dtype,
            "m": shape.m,
            "k": shape.k,
            "n": shape.n,
            "batch": shape.batch,
            "a_transposed": shape.a_transposed,
            "b_transposed": shape.b_transposed,
            "has_bias": self.has_bias,
        }

    def plan(self, product: Product) -> PlannedCall:
        """Plan the call; an `NpuSimError` says why it is refused."""
        s = recorded_shape(self.shape) if self.is_static else self.shape
        lead = (s.batch,) if s.b_batched or s.batch > 1 else ()
        b_lead = lead if s.b_batched else ()
        shapes = {
            "a": (*lead, *_stored((s.k, s.m) if s.a_transposed else (s.m, s.k), s.a_nz)),
            "b": (*b_lead, *_stored((s.n, s.k) if s.b_transposed else (s.k, s.n), s.b_nz)),
            "output": (*lead, *_stored((s.m, s.n), s.c_nz)),
        } | ({"bias": (s.n,)} if self.has_bias else {})
        dtypes = dict.fromkeys(shapes, self.dtype) | {"output": self.out_dtype or self.dtype}
        descs = {name: TensorDesc(shape=shape, dtype=dtypes[name], format="ND") for name, shape in shapes.items()}
        tiling = self._static_tiling(s, product) if self.is_static and self.tiling is None else self.tiling
        plan = plan_matrix_product(s, descs, self.cube_math_type, product, tiling=tiling, block_dim=self.block_dim)
        return PlannedCall(
            calls=plan.calls,
            kernels=tuple(planned for planned in plan.calls.steps if planned.kernel.tiling is not None),
            compute_dtype=plan.compute_dtype,
            macs=s.batch * s.m * s.n * s.k,
            inputs_in_l2=self.inputs_in_l2,
        )

    def _static_tiling(self, s: MatmulShape, product: Product) -> MatmulTiling | None:
        """Return what the static schedule would do, None where there is nothing to multiply."""
        if min(s.m, s.n, s.k, s.batch) < 1:
            return None
        compute = compute_dtype_of(self.dtype, self.cube_math_type, product)
        cores = product.cube_core_count if self.block_dim is None else self.block_dim
        return search_tiling(s, product, compute, cores, is_static=True)


_PADDING = 7
"""What a padded extent of a tuning record is taken to be shorter: half of a fractal, and odd."""


def recorded_shape(shape: MatmulShape) -> MatmulShape:
    """Return the extents that a tuning record was made with.

    Records hold extents that are padded to 16, and do not say which are. It shows where operands are row-major: their
    rows then begin anywhere. ASSUMED: those with an odd number of fractals are (100 and 197 are common, 112 and 208 are
    not), and by `_PADDING`. Of 208 x 64 x 64 and the like the records are three to five times as slow an element as of
    128 x 128 x 64, and these as fast as in FRACTAL_NZ.
    """
    if shape.a_nz and shape.b_nz and shape.c_nz:
        return shape
    extents = {name: getattr(shape, name) for name in "mnk"}
    padded = {name: extent - _PADDING for name, extent in extents.items() if extent % (2 * CUBE) == CUBE}
    return replace(shape, **padded)


def _stored(extents: tuple[int, int], is_nz: bool) -> tuple[int, ...]:
    """Return the shape a matrix is stored in: itself, or FRACTAL_NZ."""
    rows, columns = extents
    return (ceil_div(columns, CUBE), ceil_div(rows, CUBE), CUBE, CUBE) if is_nz else extents
