"""All tilings of a matrix product that the kernel can run, as points of axes, and CANN's names of what one says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npu_sim.dtypes.formats import DTYPES
from npu_sim.products import Product
from npu_sim.units import align_up, ceil_div
from ops.matmul.tiling import CUBE, MatmulShape, MatmulTiling, buffers_of
from ops.matmul.tiling_search import search_tiling

ORIGIN_TUNED = "tuned"
_SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)
"""Sides of base blocks in fractals; larger ones than the last fit no buffer."""
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
"""Base blocks of K that L1 may hold beside all of them, and base blocks along M or N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulTilingSpace:
    """The tilings of one product.

    Attributes
    ----------
    shape : MatmulShape
        Extents, and how the operands are stored.
    product : Product
        Where it runs.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies.
    """

    shape: MatmulShape
    product: Product
    compute_dtype: str

    @property
    def axes(self) -> Mapping[str, tuple[int, ...]]:
        """Values of each coordinate of a point: fields of `MatmulTiling`; 0 of ``k_a`` and ``k_b``: all of K."""
        s, cores = self.shape, self.product.cube_core_count
        m, n, k = (ceil_div(extent, CUBE) for extent in (s.m, s.n, s.k))
        steps = tuple(step for step in _STEPS if step < k)
        return {
            "base_m": _sides(m),
            "base_n": _sides(n),
            "base_k": _sides(k),
            "k_a": (0, *steps),
            "k_b": (0, *steps),
            "blocks_a": tuple(step for step in _STEPS[:4] if step <= m),
            "blocks_b": tuple(step for step in _STEPS[:4] if step <= n),
            "keeps_b": (0, 1),
            "cores_m": tuple(range(1, min(m, cores) + 1)),
            "cores_n": tuple(range(1, min(n, cores) + 1)),
        }

    @property
    def default(self) -> MatmulTiling:
        """What runs without a choice."""
        return search_tiling(self.shape, self.product, self.compute_dtype, self.product.cube_core_count)

    @property
    def start(self) -> Mapping[str, int]:
        """The point of `default`."""
        t, whole = self.default, align_up(self.shape.k, CUBE)
        return {
            **{name: getattr(t, name) for name in self.axes},
            "keeps_b": int(t.keeps_b),
            "k_a": 0 if t.k_a >= whole else t.k_a // t.base_k,
            "k_b": 0 if t.k_b >= whole else t.k_b // t.base_k,
        }

    def tiling(self, point: Mapping[str, int]) -> MatmulTiling | None:
        """Return the tiling at a point, None where the kernel cannot run it or another point is the same."""
        s, whole = self.shape, align_up(self.shape.k, CUBE)
        base_k = point["base_k"]
        chunks = {name: point[name] * base_k for name in ("k_a", "k_b")}
        m_blocks, n_blocks = ceil_div(s.m, point["base_m"]), ceil_div(s.n, point["base_n"])
        cores_batch = min(s.batch, self.product.cube_core_count)
        if cores_batch * point["cores_m"] * point["cores_n"] > self.product.cube_core_count:
            return None
        shares = ((point["cores_m"], m_blocks, point["blocks_a"]), (point["cores_n"], n_blocks, point["blocks_b"]))
        if any(cores > blocks or held > ceil_div(blocks, cores) for cores, blocks, held in shares):
            return None
        if max(chunks.values()) >= whole:
            return None
        tiling = MatmulTiling(
            base_m=point["base_m"],
            base_n=point["base_n"],
            base_k=base_k,
            k_a=chunks["k_a"] or whole,
            k_b=chunks["k_b"] or whole,
            blocks_a=point["blocks_a"],
            blocks_b=point["blocks_b"],
            keeps_b=bool(point["keeps_b"]),
            cores_batch=cores_batch,
            cores_n=point["cores_n"],
            cores_m=point["cores_m"],
            origin=ORIGIN_TUNED,
        )
        return tiling if buffers_of(tiling, s, self._item, self.product.core) is not None else None

    @property
    def _item(self) -> int:
        return DTYPES[self.compute_dtype].item_bytes

    def members(self, tiling: MatmulTiling) -> Mapping[str, int]:
        """Return a tiling under the names of CANN's TCubeTiling (asc-devkit, ``adv_api/matmul``).

        ``depth`` counts base blocks in L1, both buffers together; ``step`` those of one of them.
        """
        s, t = self.shape, tiling
        found = buffers_of(t, s, self._item, self.product.core)
        assert found is not None
        step_ka, step_kb = ceil_div(t.k_a, t.base_k), ceil_div(t.k_b, t.base_k)
        return {
            "usedCoreNum": t.cores,
            "M": s.m,
            "N": s.n,
            "Ka": s.k,
            "Kb": s.k,
            "singleCoreM": ceil_div(ceil_div(s.m, t.base_m), t.cores_m) * t.base_m,
            "singleCoreN": ceil_div(ceil_div(s.n, t.base_n), t.cores_n) * t.base_n,
            "singleCoreK": s.k,
            "baseM": t.base_m,
            "baseN": t.base_n,
            "baseK": t.base_k,
            "depthA1": found.a1 * step_ka * t.blocks_a,
            "depthB1": found.b1 * step_kb * t.blocks_b,
            "stepM": t.blocks_a,
            "stepN": t.blocks_b,
            "stepKa": step_ka,
            "stepKb": step_kb,
            "dbL0A": found.l0,
            "dbL0B": 1 if t.keeps_b else found.l0,
            "dbL0C": found.l0c,
        }


def _sides(fractals: int) -> tuple[int, ...]:
    """Return sides of blocks up to an extent, in elements, and the extent itself if a block of it may fit."""
    sides = [side for side in _SIDES if side < fractals]
    return tuple(CUBE * side for side in (*sides, *((fractals,) if fractals <= _SIDES[-1] else ())))
