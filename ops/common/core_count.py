"""How many cores a caller lets a kernel have."""

from __future__ import annotations

from dataclasses import replace

from npu_sim.arguments import whole
from npu_sim.errors import ShapeError
from npu_sim.products import Product


def with_cores(product: Product, block_dim: int | None) -> Product:
    """Return ``product`` with ``block_dim`` Cube cores and vector cores to match; as it is for None.

    There may be more than the product has: profiles list such launches, and tuning records of dies with more cores.

    Raises
    ------
    ShapeError
        ``block_dim`` is no number from 1 on.
    """
    if block_dim is None or whole("block_dim", block_dim) == product.cube_core_count:
        return product
    if block_dim < 1:
        raise ShapeError(f"block_dim must be at least 1, not {block_dim} ({product.name})")
    vector_cores = max(product.vector_core_count * block_dim // product.cube_core_count, 1)
    return replace(product, cube_core_count=block_dim, vector_core_count=vector_cores)


def with_vector_cores(product: Product, block_dim: int | None) -> Product:
    """Return ``product`` with ``block_dim`` vector cores; as it is for None.

    Raises
    ------
    ShapeError
        ``block_dim`` is no number from 1 on.
    """
    if block_dim is None:
        return product
    if whole("block_dim", block_dim) < 1:
        raise ShapeError(f"block_dim must be at least 1, not {block_dim} ({product.name})")
    return replace(product, vector_core_count=block_dim)
