"""The basic-block tiling of the input gradient on dav-c220: 16-bit operands, one merged group.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_host/op_tiling/arch22/conv3d_dx_v2_basic_block_tiling.cpp``. The
variant for two exact network shapes that splits the kernel by its stride is left out.
"""

from __future__ import annotations

from npu_sim.units import align_up, ceil_div
from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_BASIC_BLOCK, DxProblem, DxTiling

_L0_HALF_BYTES = 65536 // 2
_L0C_ELEMS = 131072 // 4
_L1_BYTES = 524288
_HALF_L1_BYTES = _L1_BYTES // 2
_L2_BYTES = 150994944
"""Part of the L2 cache that the blocks of all cores may fill."""
_LONGEST_K = 65535
_K_BYTES = 128
_WIDE_ROW = 64


def basic_block_applies(problem: DxProblem) -> bool:
    """Return whether the template is the one the operator uses."""
    return problem.item == 2 and problem.groups == 1


def basic_block_tiling(problem: DxProblem, cores: int) -> DxTiling | None:
    """Return the tiling on ``cores`` Cube cores, None if no block fits."""
    search = _Search(problem)
    if not search.run():
        return None
    single_m = _single_m(search, cores)
    g = problem.geometry
    blocks = ceil_div(problem.m, single_m) * g.n * g.di * ceil_div(g.cin, search.n)
    return DxTiling(
        problem=problem,
        base_m=search.m,
        base_n=search.n,
        base_k=search.k,
        step_ka=search.ka,
        step_kb=search.kb,
        al1_pbuffer=search.al1,
        bl1_pbuffer=search.bl1,
        single_core_m=single_m,
        single_core_cin=search.n,
        core_num=min(blocks, cores),
        is_block_driver=True,
        origin=ORIGIN_BASIC_BLOCK,
    )


class _Search:
    """Base block and L1 steps; the state the published class keeps in its members."""

    def __init__(self, problem: DxProblem) -> None:
        self.p = problem
        self.m_end = align_up(problem.m, problem.c0)
        self.l0 = _L0_HALF_BYTES // problem.item
        self.al1 = self.bl1 = 2
        self.ka = self.kb = 1
        self.m = self.n = self.k = 0

    def run(self) -> bool:
        """Search; return whether a block fits."""
        self._start()
        if self._steps() or self._shrink():
            return True
        for self.al1, self.bl1 in ((2, 2), (2, 1), (1, 2), (1, 1)):
            if self._valid(self.ka, self.kb) or self._shrink():
                return True
        return False

    def _start(self) -> None:
        p, c0 = self.p, self.p.c0
        n_end, widest_k = p.n, _K_BYTES // p.item
        m, n = (256, 128) if self.m_end >= n_end else (128, 256)
        k = min(widest_k, p.k)
        while k > c0 and not self._aligned(k):
            k -= c0
        n, m = min(n, n_end), min(m, self.m_end)
        most = max(self.l0 // k // c0, 1) * c0
        if n < 256 and k < widest_k:
            m = min(most, max(_L0C_ELEMS // n // c0, 1) * c0, self.m_end)
        if m < 256 and k < widest_k:
            n = min(most, max(_L0C_ELEMS // m // c0, 1) * c0, n_end)
        self.m, self.n, self.k = m, n, k
        grown = self._largest_k()
        while grown > c0:
            if self._aligned(grown):
                self.k = grown
                break
            grown -= c0

    def _largest_k(self) -> int:
        c0 = self.p.c0
        return min(max(self.l0 // max(self.m, self.n) // c0, 1) * c0, self.p.k)

    def _aligned(self, k: int) -> bool:
        return k % self.p.window == 0 or self.p.window % k == 0

    @property
    def _k_iterations(self) -> int:
        return ceil_div(self.p.k, self.k)

    def _valid(self, ka: int, kb: int) -> bool:
        p, window = self.p, self.p.window
        if ka * self.k % window or kb * self.k % window:
            return False
        g = p.geometry
        a = p.rows(self.m) * g.wo * g.stride[2] * max(ka * self.k // p.khw, 1) * p.item * self.al1
        loaded = kb * self.k
        if loaded % window == 0 or window % loaded == 0:
            lines = ceil_div(loaded, window)
        else:
            lines = loaded // window + 2 if loaded > window else 2
        return a + self.bl1 * p.item * self.n * window * lines <= _L1_BYTES

    def _steps(self) -> bool:
        """Whole weight in L1 if it fits, else the larger of equal shares of L1 and of the ladder."""
        self.al1, self.bl1 = 2, 1
        iterations = self._k_iterations
        if self.p.geometry.kd == 1 and self._valid(1, iterations):
            self.kb = iterations
            fitting = (ka for ka in range(iterations, 0, -1) if iterations % ka == 0 and self._valid(ka, iterations))
            self.ka = next(fitting, 1)
            if self._valid(self.ka, self.kb):
                return True
        self.bl1 = 2
        equal, ladder = self._equal(), self._ladder()
        self.ka, self.kb = equal if self._valid(*equal) and sum(equal) > sum(ladder) else ladder
        return self._valid(self.ka, self.kb)

    def _equal(self) -> tuple[int, int]:
        p = self.p
        share_a, share_b = _HALF_L1_BYTES // self.al1, _HALF_L1_BYTES // self.bl1
        cb = min(max(1, share_b // (p.window * self.n * p.item)), p.cout1)
        ca = min(max(1, share_a // p.a1_block_bytes(self.m)), p.cout1)
        ca, cb = common_steps(ca, cb)
        return base_steps(p, self.k, ca, cb)

    def _ladder(self) -> tuple[int, int]:
        step = min(self._k_iterations, self.p.khw)
        while step > 1 and not self._valid(step, step):
            step -= 1
        return step, step

    def _try_both(self) -> bool:
        for steps in (self._ladder(), self._equal()):
            self.ka, self.kb = steps
            if self._valid(*steps):
                return True
        return False

    def _shrink(self) -> bool:
        c0, width = self.p.c0, self.p.geometry.wi
        before = (self.m, self.n, self.k)
        while True:
            if self.m > max(width, c0) and self.m > self.n:
                self.m -= c0
            elif self.n > c0:
                self.n -= c0
            else:
                break
            if self._try_both():
                return True
        for k in range(self._largest_k() - c0, 0, -c0):
            if self._aligned(k):
                self.k = k
                if self._try_both():
                    return True
        self.m, self.n, self.k = before
        return False


def common_steps(ca: int, cb: int) -> tuple[int, int]:
    """Lower the smaller of two numbers of channel blocks to the next divisor of the larger one."""
    if ca < cb:
        ca = next(step for step in range(ca, 0, -1) if cb % step == 0)
    elif ca > cb:
        cb = next(step for step in range(cb, 0, -1) if ca % step == 0)
    return ca, cb


def base_steps(problem: DxProblem, k: int, ca: int, cb: int) -> tuple[int, int]:
    """Return channel blocks of the two L1 loads as numbers of base K, one a multiple of the other."""
    ka = max(min(ceil_div(ca * problem.window, k), _LONGEST_K // k), 1)
    kb = max(ceil_div(cb * problem.window, k), 1)
    if ka > kb:
        ka = ka // kb * kb
    else:
        kb = kb // ka * ka
    return ka, kb


def _single_m(search: _Search, cores: int) -> int:
    """Return the pixels of one core block: whole rows, merged where that balances the cores."""
    p, g = search.p, search.p.geometry
    base, width = search.m, g.wi
    batch_depth, n_count = g.n * g.di, ceil_div(g.cin, search.n)
    single = max(base // width, 1) * width
    if width > _WIDE_ROW and base % width and width % base:
        for parts in range(1, ceil_div(p.m, base) + 1):
            size = ceil_div(g.hi, parts) * width
            count = ceil_div(p.m, size) * batch_depth * n_count
            if count % cores and count < cores * cores:
                continue
            if _fits_l2(search, size, cores):
                return size
        return single
    size, taken = single, base
    while size < p.m and batch_depth % cores == 0:
        taken += base
        size = min(max(taken // width, 1) * width, p.m)
        if p.m % size == 0 and _fits_l2(search, size, cores):
            single = size
    return single


def _fits_l2(search: _Search, single_m: int, cores: int) -> bool:
    p, g = search.p, search.p.geometry
    planes = max(g.kd // g.stride[0], 1)
    dy = max(p.rows(single_m) // g.stride[1], 1) * g.wo * planes * p.cout1 * p.c0
    weight = search.n * p.k * planes
    return (dy + weight + single_m * search.n + search.m * search.n) * p.item * cores <= _L2_BYTES
