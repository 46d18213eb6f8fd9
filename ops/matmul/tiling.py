"""Tilings of a matrix product: what one is, those of CANN's tuning records, and what fits a core."""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError, ShapeError
from npu_sim.products import CoreSpec, Product
from npu_sim.units import align_up, ceil_div
from ops.common.status import NO_KERNEL

CUBE = 16
"""Rows and columns of a fractal."""
ORIGIN_OURS = "not CANN's tiling (ours)"
ORIGIN_STATIC = "not CANN's tiling (ours, of those of a static schedule)"
ORIGIN_GIVEN = "given by the caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulShape:
    """C[batch][m][n] = A[batch] B or A[batch] B[batch].

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
    a_nz, b_nz, c_nz : bool
        The stored matrix lies in fractals (FRACTAL_NZ, 16-bit operands), each padded to 16 rows and columns; else it is
        row-major.
    """

    m: int
    n: int
    k: int
    a_transposed: bool = False
    b_transposed: bool = False
    batch: int = 1
    b_batched: bool = False
    a_nz: bool = False
    b_nz: bool = False
    c_nz: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulTiling:
    """Base blocks, what L1 holds, and cores.

    Attributes
    ----------
    base_m, base_n, base_k : int
        One Mmad, multiples of 16.
    k_a, k_b : int
        K of A and of B that L1 holds at a time, multiples of 16.
    blocks_a, blocks_b : int
        Base blocks along M of A and along N of B that L1 holds together.
    keeps_b : bool
        All of K of a base block of B stays in L0B.
    cores_batch, cores_n, cores_m : int
        Cores along each axis.
    most_a1, most_b1, most_l0, most_l0c : int
        Buffers that there may be of A and of B in L1, of both in L0, and of the result: 1, or 2 where they fit.
    origin : str
        Whose tiling it is.
    """

    base_m: int
    base_n: int
    base_k: int
    k_a: int
    k_b: int
    blocks_a: int = 1
    blocks_b: int = 1
    keeps_b: bool = False
    cores_batch: int = 1
    cores_n: int = 1
    cores_m: int = 1
    most_a1: int = 2
    most_b1: int = 2
    most_l0: int = 2
    most_l0c: int = 2
    origin: str = ORIGIN_OURS

    @property
    def cores(self) -> int:
        """Cores used."""
        return self.cores_batch * self.cores_n * self.cores_m


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulBuffers:
    """How often each buffer of a tiling exists (two: it is filled while the other is used), and bytes of one in L1."""

    a1: int
    b1: int
    l0: int
    l0c: int
    a1_bytes: int
    b1_bytes: int


def buffers_of(tiling: MatmulTiling, shape: MatmulShape, item: int, core: CoreSpec) -> MatmulBuffers | None:
    """Return the buffers of ``tiling`` for operands of ``item`` bytes: two where they fit, None if one does not.

    What is read once needs one. ASSUMED of tuning records that do not say where there are two.
    """
    t = tiling
    a1_bytes = align_up(t.blocks_a * t.base_m, CUBE) * align_up(min(t.k_a, shape.k), CUBE) * item
    b1_bytes = align_up(t.blocks_b * t.base_n, CUBE) * align_up(min(t.k_b, shape.k), CUBE) * item
    batches = ceil_div(shape.batch, t.cores_batch)
    m_groups = ceil_div(ceil_div(ceil_div(shape.m, t.base_m), t.cores_m), t.blocks_a)
    n_groups = ceil_div(ceil_div(ceil_div(shape.n, t.base_n), t.cores_n), t.blocks_b)
    a_once = t.k_a >= shape.k and batches * m_groups == 1
    b_once = t.k_b >= shape.k and n_groups * (batches if shape.b_batched else 1) == 1
    most_a, most_b = 1 if a_once else t.most_a1, 1 if b_once else t.most_b1
    wanted = ((most_a, most_b), (1, most_b), (most_a, 1), (1, 1))
    fitting = [(a, b) for a, b in wanted if a * a1_bytes + b * b1_bytes <= core.l1_bytes]
    l0a_bytes = t.base_m * align_up(t.base_k, CUBE) * item
    l0b_bytes = t.base_n * align_up(shape.k if t.keeps_b else t.base_k, CUBE) * item
    l0b_times = 1 if t.keeps_b else 2
    l0c_bytes = t.base_m * t.base_n * 4
    if not fitting or l0a_bytes > core.l0a_bytes or l0b_bytes > core.l0b_bytes or l0c_bytes > core.l0c_bytes:
        return None
    return MatmulBuffers(
        a1=fitting[0][0],
        b1=fitting[0][1],
        l0=min(2 if 2 * l0a_bytes <= core.l0a_bytes and l0b_times * l0b_bytes <= core.l0b_bytes else 1, t.most_l0),
        l0c=min(2 if 2 * l0c_bytes <= core.l0c_bytes else 1, t.most_l0c),
        a1_bytes=a1_bytes,
        b1_bytes=b1_bytes,
    )


def check_tiling(tiling: MatmulTiling, shape: MatmulShape, compute_dtype: str, product: Product) -> MatmulBuffers:
    """Return the buffers of a tiling that the kernel can run.

    It may have more cores than the product: CANN's tuning records of the Ascend910B1 are of dies with 25.

    Raises
    ------
    ShapeError
        A block is no multiple of 16, or there are more cores along an axis than blocks.
    OperatorError
        561103: a buffer is too small.
    """
    t = tiling
    for name in ("base_m", "base_n", "base_k", "k_a", "k_b"):
        if getattr(t, name) < CUBE or getattr(t, name) % CUBE:
            raise ShapeError(f"{name} must be a multiple of {CUBE}, not {getattr(t, name)} ({product.name})")
    counts = {
        "cores_m": ceil_div(shape.m, t.base_m),
        "cores_n": ceil_div(shape.n, t.base_n),
        "cores_batch": shape.batch,
    }
    for name, most in counts.items():
        if not 1 <= getattr(t, name) <= most:
            raise ShapeError(f"{name} must be in [1, {most}], not {getattr(t, name)} ({product.name})")
    if t.blocks_a < 1 or t.blocks_b < 1:
        raise ShapeError(f"blocks_a and blocks_b must be at least 1, not {t.blocks_a}, {t.blocks_b} ({product.name})")
    found = buffers_of(t, shape, DTYPES[compute_dtype].item_bytes, product.core)
    if found is None:
        raise OperatorError(f"Blocks of a tiling must fit the buffers, not {t} ({product.name})", NO_KERNEL)
    return found
