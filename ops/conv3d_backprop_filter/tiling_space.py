"""All tilings of the published weight-gradient kernel on A2 and A3 that this module can write and the kernel can run.

A point names the parts into which the cores cut M, N and K, a base block, and how many base blocks of each operand L1
may hold; what follows from these is what the published search makes of them (`tiling_search`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npu_sim.products import Product
from npu_sim.units import align_up, ceil_div
from ops.common.geometry import CUBE_ROWS, ConvGeometry
from ops.conv3d_backprop_filter.tiling import choose_tiling, overflows, unencodable
from ops.conv3d_backprop_filter.tiling_data import DwTiling, Split
from ops.conv3d_backprop_filter.tiling_public import assemble, matrix_problem
from ops.conv3d_backprop_filter.tiling_search import BlockSearch, Problem, SearchRules

ORIGIN_TUNED = "tuned"
_SIDES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Sides of base blocks in fractals; larger ones than the last fit no buffer."""
_DEPTHS = (1, 2, 4, 8, 16)
"""Base blocks of an operand that L1 may hold; the published search begins at the last."""
_ROUNDS = 4
"""Grids of more blocks a core than this are balanced, however they are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGradientTilingSpace:
    """The tilings of one weight gradient.

    Attributes
    ----------
    geometry : ConvGeometry
        The convolution.
    product : Product
        Where it runs; its cores are split.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies.
    """

    geometry: ConvGeometry
    product: Product
    compute_dtype: str

    @property
    def axes(self) -> Mapping[str, tuple[int, ...]]:
        """Values of each coordinate of a point."""
        p = self._problem
        most = max(_ROUNDS * p.cores // p.items, 1)
        extents = (ceil_div(p.m, CUBE_ROWS), ceil_div(p.n, CUBE_ROWS), ceil_div(p.k, CUBE_ROWS))
        sides = (tuple(CUBE_ROWS * side for side in _SIDES if side <= extent) for extent in extents)
        cuts = (ceil_div(p.m, CUBE_ROWS), p.n // (p.khw * p.c0), p.ho)
        parts = (tuple(range(1, min(most, cut) + 1)) for cut in cuts)
        return {
            **dict(zip(("m_parts", "n_parts", "k_parts"), parts, strict=True)),
            **dict(zip(("base_m", "base_n", "base_k"), sides, strict=True)),
            "depth_a": _DEPTHS,
            "depth_b": _DEPTHS,
            "buffers_c": (1, 2),
        }

    @property
    def default(self) -> DwTiling:
        """What the kernel runs with."""
        return choose_tiling(self.geometry, self.product, self.compute_dtype)

    @property
    def start(self) -> dict[str, int]:
        """A point near `default`."""
        t, axes = self.default, self.axes
        wanted = {
            "m_parts": t.m_count, "n_parts": t.n_count, "k_parts": t.k_count, "base_m": t.base_m, "base_n": t.base_n,
            "base_k": t.base_k, "depth_a": t.al1_pbuffer * t.step_ka * t.step_m,
            "depth_b": t.bl1_pbuffer * t.step_kb * t.step_n, "buffers_c": t.cl0_pbuffer,
        }  # fmt: skip
        return {name: min(axes[name], key=lambda value, name=name: abs(value - wanted[name])) for name in axes}  # type: ignore[misc]

    @property
    def _problem(self) -> Problem:
        return _problem_of(self.geometry, self.compute_dtype, self.product)

    def tiling(self, point: Mapping[str, int]) -> DwTiling | None:
        """Return the tiling at a point, None where the kernel cannot run it or another point is the same."""
        p = self._problem
        window = p.khw * p.c0
        single_m = align_up(ceil_div(p.m, point["m_parts"]), CUBE_ROWS)
        single_n = ceil_div(p.n // window, point["n_parts"]) * window
        rows = ceil_div(p.ho, point["k_parts"])
        counts = (ceil_div(p.m, single_m), ceil_div(p.n, single_n), ceil_div(p.ho, rows))
        # at most two of the three axes are cut: the kernel's keys know no more
        if counts != (point["m_parts"], point["n_parts"], point["k_parts"]) or min(counts) > 1:
            return None
        if point["base_m"] > align_up(single_m, CUBE_ROWS) or point["base_n"] > align_up(single_n, CUBE_ROWS):
            return None
        search = BlockSearch(p, SearchRules(k_step=p.c0, bound_c0=p.c0, checks_l0=True, exact_loads=True))
        search.base_m, search.base_n, search.base_k = point["base_m"], point["base_n"], point["base_k"]
        search.buffers_c = point["buffers_c"]
        search.split = Split.MK if single_n >= p.n else Split.NK if single_m >= p.m else Split.MN
        search.update_steps(point["depth_a"], point["depth_b"])
        search.single_m, search.single_n, search.single_k = single_m, single_n, rows * p.wo
        search.step_m = min(search.step_m, ceil_div(single_m, search.base_m))
        search.step_n = min(search.step_n, ceil_div(single_n, search.base_n))
        search.total = p.items * counts[0] * counts[1] * counts[2]
        search.used = min(p.cores, search.total)
        tiling = assemble(search, replace(self.geometry, dilation=self.geometry.single_tap_dilation),
                          self.compute_dtype, ORIGIN_TUNED)  # fmt: skip
        return None if overflows(tiling, self.product.core) or unencodable(tiling) else tiling

    @property
    def cuts_of_k(self) -> tuple[DwTiling, ...]:
        """A tiling for each way in which any tiling of the space cuts the sums.

        A sum over K ends where a core's rows of dY end, and is added to memory there; base blocks begin at whole slices
        of the Cube, and cuts of M and N share out the sums without changing any. So the number of parts of K says which
        partial sums there are, and its tilings differ at most in which core adds first.
        """
        found = []
        for parts in self.axes["k_parts"]:
            others = (self.start, self.start | {"n_parts": 1}, self.start | {"m_parts": 1}, self._smallest)
            tilings = (self.tiling({**point, "k_parts": parts}) for point in others)
            found.append(next((tiling for tiling in tilings if tiling is not None), None))
        return tuple(tiling for tiling in found if tiling is not None)

    @property
    def _smallest(self) -> dict[str, int]:
        """The point whose blocks are the smallest."""
        return {name: values[0] for name, values in self.axes.items()}

    def members(self, tiling: DwTiling) -> Mapping[str, int]:
        """Return a tiling under CANN's names (`DwTiling.vendor_members`), all three parts together."""
        return {name: value for part in tiling.vendor_members().values() for name, value in part.items()}


def _problem_of(geometry: ConvGeometry, compute_dtype: str, product: Product) -> Problem:
    reduced = replace(geometry, dilation=geometry.single_tap_dilation)
    return matrix_problem(reduced, compute_dtype, product.cube_core_count, product.core)
