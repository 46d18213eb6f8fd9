"""The ladder of blocks that L1 holds, for kernels that stream whole channel blocks through L1, or parts of one.

From large to small: first less of K in L1, then one buffer instead of two, then a smaller base block, at last a shorter
base K.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from npu_sim.products import CoreSpec
from npu_sim.units import ceil_div

EDGE = 16
"""Rows and columns of a fractal."""
MOST_BASE, LEAST_BASE = 256, 128


def first_base(m: int, n: int) -> tuple[int, int]:
    """Return the largest base block for an ``m`` x ``n`` product, both multiples of `EDGE`."""
    if m >= n:
        return min(MOST_BASE, m), min(LEAST_BASE, n)
    return min(LEAST_BASE, m), min(MOST_BASE, n)


@dataclass(slots=True)
class Ladder(ABC):
    """Blocks under construction: a base block, and ``ka`` and ``kb``, the steps of K in L1 counted in L0 steps."""

    base_m: int
    base_n: int
    base_k: int = EDGE
    ka: int = 1
    kb: int = 1
    al1: int = 2
    bl1: int = 2

    @property
    @abstractmethod
    def k_planes(self) -> int:
        """Channel blocks along K."""

    @property
    @abstractmethod
    def plane_k(self) -> int:
        """K of one channel block, elements."""

    @property
    @abstractmethod
    def a1_bytes(self) -> int:
        """One L1 buffer of windows."""

    @property
    @abstractmethod
    def b1_bytes(self) -> int:
        """One L1 buffer of weights."""

    @property
    @abstractmethod
    def most_ka(self) -> int:
        """Most L0 steps of whole channel blocks whose columns a load can name, at least one channel block."""

    @property
    @abstractmethod
    def most_cut_ka(self) -> int:
        """The same with parts of channel blocks."""

    @abstractmethod
    def base_ks(self, core: CoreSpec) -> list[int]:
        """Return the base K that divide a channel block's or are multiples of it and fit L0, smallest first."""

    @property
    def l1_bytes(self) -> int:
        """All L1 buffers."""
        return self.al1 * self.a1_bytes + self.bl1 * self.b1_bytes

    @property
    def steps_per_plane(self) -> int:
        """L0 steps that one channel block takes; 1 where one takes several."""
        return max(self.plane_k // self.base_k, 1)

    @property
    def planes_per_step(self) -> int:
        """Channel blocks that one L0 step takes, at least 1."""
        return max(self.base_k // self.plane_k, 1)

    def most_bl1(self, core: CoreSpec) -> int:
        """Return how many buffers of weights there may be."""
        return 2

    def fit(self, core: CoreSpec, *, cut: bool) -> bool:
        """Climb down until L1 holds the blocks; return whether it holds the smallest.

        ``cut``: an L1 step may be a part of a channel block.
        """
        skipped = 0
        while True:
            candidates = self.base_ks(core)
            self.base_k = candidates[max(len(candidates) - 1 - skipped, 0)]
            if self._fit_steps(core, cut):
                return True
            if self.base_m > EDGE and self.base_m >= self.base_n:
                self.base_m -= EDGE
            elif self.base_n > EDGE:
                self.base_n -= EDGE
            elif self.base_m > EDGE:
                self.base_m -= EDGE
            elif skipped < len(candidates) - 1:
                skipped += 1
            else:
                return False

    def _fit_steps(self, core: CoreSpec, cut: bool) -> bool:
        """Choose the L1 steps and buffers for the base block; return whether L1 holds them."""
        plane = self.steps_per_plane
        least = 1 if cut else plane
        self.kb = ceil_div(self.k_planes, self.planes_per_step) * plane
        self.ka = min(self.kb, self.most_cut_ka if cut else self.most_ka)
        self.al1, self.bl1 = 2, self.most_bl1(core)

        def halved(steps: int) -> int:
            return max(steps // 2 // plane * plane, plane) if steps > plane else max(steps // 2, least)

        while self.l1_bytes > core.l1_bytes:
            a, b = self.al1 * self.a1_bytes, self.bl1 * self.b1_bytes
            if a >= b and self.ka > least:
                self.ka = halved(self.ka)
            elif self.kb > least:
                self.kb = halved(self.kb)
            elif self.bl1 > 1:
                self.bl1 = 1
            elif self.al1 > 1:
                self.al1 = 1
            elif self.ka > least:
                self.ka = halved(self.ka)
            else:
                return False
        if min(self.ka, self.kb) < plane:
            return True
        if self.ka > self.kb:
            self.ka = self.ka // self.kb * self.kb
        else:
            self.kb = self.kb // self.ka * self.ka
        return True
