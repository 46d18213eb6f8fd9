"""The search for block sizes that the public tiling class and the operator's basic-block tiling share.

Sources, restated: asc-devkit ``impl/adv_api/tiling/conv_backprop/conv3d_bp_filter_tiling.cpp`` and ops-nn
``conv/conv3d_backprop_filter_v2/op_host/op_tiling/arch22/conv3d_backprop_filter_v2_basic_block_tiling.cpp``. The two
differ only in what `SearchRules` names. Extents are elements, divisions round down unless written otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.units import align_up, ceil_div
from ops.conv3d_backprop_filter.tiling_data import Split

CUBE = 16
"""Fractal edge along M and N."""
_SPLIT_K_DEPTH = 8
_SPLIT_MN_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """Where the two published searches differ.

    Attributes
    ----------
    k_step : int
        Granularity of baseK: C0 in the public class, 16 in the operator.
    bound_c0 : int
        Channel block that the B1 capacity counts in: 16 in the public class, C0 in the operator.
    checks_l0 : bool
        Whether a block that overflows L0A or L0B counts as invalid (public class only).
    exact_loads : bool
        Whether the B1 capacity is what the kernel's load really brings in. The published searches count a channel
        block too many when a window is a multiple of the block, and rows and channels x does not have; our own tilings
        do not.
    """

    k_step: int
    bound_c0: int
    checks_l0: bool
    exact_loads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be cut.

    Attributes
    ----------
    m, n, k : int
        Extents of the matrix product; k is the pixels of one plane rounded up to C0.
    items : int
        Matrix products: batch items, and merged groups and depth taps where they are separate.
    ho, wo, hi, wi : int
        Rows and columns of y and of x, or of the widest part of them.
    least_wo : int
        Columns of the narrowest part of y.
    kh, kw, stride_h, stride_w, dilation_h : int
        As in the geometry.
    element_bytes, c0 : int
        Bytes of an operand element, and elements in 32 bytes.
    cores : int
        Cores to occupy.
    l1_bytes, l0a_bytes, l0b_bytes, l0c_bytes : int
        Capacities.
    """

    m: int
    n: int
    k: int
    items: int
    ho: int
    wo: int
    hi: int
    wi: int
    least_wo: int
    kh: int
    kw: int
    stride_h: int
    stride_w: int
    dilation_h: int
    element_bytes: int
    c0: int
    cores: int
    l1_bytes: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int

    @property
    def khw(self) -> int:
        """Taps of one depth plane."""
        return self.kh * self.kw


def channel_copies(blocks: int, khw: int) -> int:
    """Return how many channel blocks of x a run of ``blocks`` N blocks can touch, as both searches count them."""
    copies = ceil_div(blocks, khw)
    if (khw > blocks and khw % blocks) or (2 * blocks) % khw:
        copies += 1
    return copies


class BlockSearch:
    """State of one search: the block sizes under construction.

    `split_k` and `split_mn` are the two strategies; afterwards the attributes hold the result: the base block, the
    steps and buffers of L1, the block of one core (``single_*``), the number of such blocks over all items (`total`),
    the cores to use (`used`), and for `split_mn` the base blocks L1 may hold of each operand (`depth`).

    Parameters
    ----------
    problem : Problem
        What is to be cut.
    rules : SearchRules
        Which of the two searches this is.
    """

    def __init__(self, problem: Problem, rules: SearchRules) -> None:
        self.problem = problem
        self.rules = rules
        self.split = Split.MK
        self.base_m = self.base_n = self.base_k = 0
        self.step_m = self.step_n = self.step_ka = self.step_kb = 1
        self.buffers_a = self.buffers_b = 2
        self.buffers_c = 1
        self.single_m = self.single_n = self.single_k = 0
        self.depth = _SPLIT_MN_DEPTH
        self.total = 0
        self.used = problem.cores

    def prefers_mn(self) -> bool:
        """Return whether M and N are split: strided windows whose taps divide, or are divided by, a fractal."""
        problem = self.problem
        divides = problem.khw % CUBE == 0 or CUBE % problem.khw == 0
        return problem.stride_h * problem.stride_w > 1 and divides

    def run(self) -> None:
        """Split M and N where that is preferred and occupies the cores, else split K."""
        if self.prefers_mn():
            self.split_mn()
            if self.total >= self.used:
                return
        self.split_k()

    def split_k(self) -> None:
        """Split K and the longer of M and N; the other operand stays in L1."""
        problem = self.problem
        self.split = Split.NK if problem.m > problem.n else Split.MK
        self._start_blocks()
        depth_a = depth_b = _SPLIT_K_DEPTH
        while True:
            self.step_m = self.step_n = 1
            self.update_steps(depth_a, depth_b)
            self.update_single()
            if (self.total >= self.used and not self.is_invalid()) or depth_a + depth_b == 2:
                break
            if depth_a > depth_b or (depth_a == depth_b and self.split == Split.NK):
                depth_a //= 2
            else:
                depth_b //= 2
        if self.is_invalid():
            self._shrink(depth_a, depth_b)
            self.update_single()

    def split_mn(self, split: Split = Split.MN) -> None:
        """Split M and N; every core walks all of K."""
        self.split = split
        self._start_blocks()
        depth = _SPLIT_MN_DEPTH
        while True:
            self.step_m = self.step_n = 1
            self.update_steps(depth, depth)
            if not self.is_invalid() or depth == 1:
                break
            depth = depth - 2 if depth > 2 else depth - 1
        self.depth = depth
        if self.is_invalid():
            self._shrink(depth, depth)
        self.update_single()

    def bl1_bound(self) -> int:
        """Return the elements of x one B1 buffer must hold."""
        problem = self.problem
        blocks = ceil_div(self.step_n * self.base_n, self.rules.bound_c0)
        copies = channel_copies(blocks, problem.khw)
        if self.rules.exact_loads:
            if problem.khw % blocks == 0:
                copies = 1
            copies = min(copies, ceil_div(problem.n, problem.khw * self.rules.bound_c0))
        return self._input_rows() * problem.wi * copies * self.rules.bound_c0

    def is_invalid(self) -> bool:
        """Return whether the blocks overflow L1, or L0A or L0B where the rules look at them."""
        problem = self.problem
        if self.rules.checks_l0:
            padded_k = align_up(self.base_k, CUBE)
            if padded_k * self.base_m * problem.element_bytes * 2 > problem.l0a_bytes:
                return True
            if padded_k * self.base_n * problem.element_bytes * 2 > problem.l0b_bytes:
                return True
        return self._l1_room() < 0

    def make_fit(self) -> None:
        """Cut the block further where the search stops too early: it does not look at L0C, nor at very small blocks."""
        self._fit_l0()
        if self.is_invalid():
            self._start_smallest()
            self._fit_l0()

    def update_steps(self, depth_a: int, depth_b: int) -> None:
        """Set the steps for L1 that may hold ``depth_a`` blocks of dy and ``depth_b`` blocks of x."""
        if depth_a < 2:
            self.buffers_a = 1
        if depth_b < 2:
            self.buffers_b = 1
        most_a, most_b = depth_a // self.buffers_a, depth_b // self.buffers_b
        k_blocks = ceil_div(self.problem.k, self.base_k)
        self._k_steps(most_a, most_b, k_blocks)
        if self.split == Split.MK:
            self.step_m = _clamp(most_a // self.step_ka, ceil_div(self.problem.m, self.base_m))
        elif self.split == Split.NK:
            self.step_n = _clamp(most_b // self.step_kb, ceil_div(self.problem.n, self.base_n))
        self._k_steps(most_a, most_b, k_blocks)
        if self.split == Split.MK or (self.split >= Split.MN and self.step_ka > self.step_kb):
            self.step_ka = max(self.step_ka // self.step_kb, 1) * self.step_kb
        elif self.split == Split.NK or self.step_kb > self.step_ka:
            self.step_kb = max(self.step_kb // self.step_ka, 1) * self.step_ka

    def update_single(self) -> None:
        """Set the block of one core and the number of blocks."""
        problem = self.problem
        channel_n = problem.khw * problem.c0
        self.single_m = self.step_m * self.base_m
        self.single_k = max(max(self.step_ka, self.step_kb) * self.base_k // problem.wo, 1) * problem.wo
        self.single_n = max(self.step_n * self.base_n // channel_n, 1) * channel_n
        if self.split == Split.MK:
            self.single_n = problem.n
        elif self.split == Split.NK:
            self.single_m = problem.m
        else:
            self.single_k = problem.k
        m_count, k_count = ceil_div(problem.m, self.single_m), ceil_div(problem.k, self.single_k)
        self.total = problem.items * m_count * k_count * ceil_div(problem.n, self.single_n)

    def _fit_l0(self) -> None:
        """Cut M, and drop the second L0C buffer, until L0A and L0C hold the block."""
        problem = self.problem
        if 4 * self.base_m * self.base_n * self.buffers_c > problem.l0c_bytes:
            self.buffers_c = 1
        most_a = problem.l0a_bytes // problem.element_bytes // 2 // align_up(self.base_k, CUBE)
        most_c = problem.l0c_bytes // 4 // self.base_n // self.buffers_c
        most = max(min(most_a, most_c) // CUBE, 1) * CUBE
        if self.base_m > most:
            self.base_m = most
            self.update_single()

    def _start_smallest(self) -> None:
        """Set the smallest block there is, with as much K as L1 holds."""
        k_step = self.rules.k_step
        self.base_m = self.base_n = CUBE
        self.base_k = k_step
        self.step_m = self.step_n = self.step_ka = self.step_kb = 1
        self.buffers_a = self.buffers_b = 1
        padded_k = align_up(self.problem.k, k_step)
        while self.base_k < padded_k and not self.is_invalid():
            self.base_k += k_step
        while self.base_k > k_step and self.is_invalid():
            self.base_k -= k_step
        self.update_single()

    def _start_blocks(self) -> None:
        """Set the nominal blocks, cut to the problem; a shorter M or N lets K grow."""
        problem, k_step = self.problem, self.rules.k_step
        if self.split >= Split.MN:
            self.base_m, self.base_n = (256, 128) if problem.m > 128 else (128, 256)
            base_k, self.buffers_c = 64, 1
        else:
            self.base_m = self.base_n = base_k = 128
            self.buffers_c = 2
        base_k = base_k * 2 // problem.element_bytes
        room_a, room_b = base_k * self.base_m, base_k * self.base_n
        self.base_m = min(self.base_m, align_up(problem.m, CUBE))
        self.base_n = min(self.base_n, align_up(problem.n, CUBE))
        self.buffers_a = self.buffers_b = 2
        padded_k = align_up(problem.k, k_step)
        if padded_k < base_k:
            self.base_k = padded_k
            return
        grown_a = max(room_a // self.base_m // k_step, 1) * k_step
        grown_b = max(room_b // self.base_n // CUBE, 1) * CUBE
        self.base_k = min(grown_a, grown_b, padded_k)
        self._whole_rows()

    def _whole_rows(self) -> None:
        if self.problem.wo < self.base_k and self.problem.wo % self.rules.k_step == 0:
            self.base_k = self.base_k // self.problem.wo * self.problem.wo

    def _k_steps(self, most_a: int, most_b: int, k_blocks: int) -> None:
        self.step_ka = _clamp(most_a // self.step_m, k_blocks)
        self.step_kb = _clamp(most_b // self.step_n, k_blocks)

    def _input_rows(self) -> int:
        """Return the rows of x that the pixels of one B1 buffer read."""
        pixels, wo = self.base_k * self.step_kb, self.problem.least_wo
        if (pixels % wo == 0 or wo % pixels == 0) and wo == self.problem.wo:
            rows = ceil_div(pixels, wo)
        else:
            rows = pixels // wo + 2
        read = (rows - 1) * self.problem.stride_h + (self.problem.kh - 1) * self.problem.dilation_h + 1
        return min(read, self.problem.hi) if self.rules.exact_loads else read

    def _l1_room(self) -> int:
        """Return the bytes of L1 that are left; negative when the blocks do not fit."""
        bytes_a = self.step_ka * self.base_k * self.step_m * self.base_m * self.problem.element_bytes * self.buffers_a
        bytes_b = self.bl1_bound() * self.problem.element_bytes * self.buffers_b
        return self.problem.l1_bytes - bytes_a - bytes_b

    def _l1_excess(self) -> int:
        """Return by how many bytes one block of dy and one of x overflow L1."""
        bytes_ = (self.base_k * self.base_m + self.bl1_bound()) * self.problem.element_bytes
        return max(bytes_ - self.problem.l1_bytes, 0)

    def _copies(self, base_n: int) -> int:
        return channel_copies(ceil_div(base_n, self.problem.c0), self.problem.khw)

    def _shrink(self, depth_a: int, depth_b: int) -> None:
        """Cut the base block until L1 holds it, then use the room that is left."""
        if not self._shrink_k():
            self._shrink_mn()
            self._regrow()
        self.update_steps(depth_a, depth_b)

    def _shrink_k(self) -> bool:
        """Cut K by a linear estimate, then step by step; return whether that was enough."""
        problem, k_step = self.problem, self.rules.k_step
        per_a = self.base_m * k_step * problem.element_bytes
        bytes_row = self._copies(self.base_n) * problem.c0 * problem.wi * problem.element_bytes
        per_b = ceil_div(bytes_row * problem.stride_h * k_step, problem.wo)
        reduced = self.base_k - ceil_div(self._l1_excess(), per_a + per_b) * k_step
        if reduced < k_step:
            self.base_k = k_step
            return False
        self.base_k = reduced
        while self.base_k > k_step and self.is_invalid():
            self.base_k -= k_step
            # Below one row a K block that does not divide the row costs one more row of x, so less K helps no more.
            if self.base_k <= problem.wo and (problem.wo % self.base_k == 0 or problem.wo % k_step):
                break
        return not self.is_invalid()

    def _shrink_mn(self) -> None:
        """Cut the longer of M and N to the other's length, then both together."""
        problem = self.problem
        while self.base_m > CUBE and self.base_m > self.base_n and self.is_invalid():
            self.base_m -= CUBE
        while self.base_n > CUBE and self.base_n > self.base_m and self.is_invalid():
            self.base_n -= CUBE
        if not self.is_invalid():
            return
        per_a = self.base_k * CUBE * problem.element_bytes
        per_b = ceil_div(self._input_rows() * problem.wi * CUBE * problem.element_bytes, problem.khw)
        steps = ceil_div(self._l1_excess(), per_a + per_b)
        if self.base_m < (steps + 1) * CUBE:
            self.base_m = self.base_n = CUBE
            return
        self.base_m -= steps * CUBE
        self.base_n = self.base_m
        copies = self._copies(self.base_n)
        while self.base_m > CUBE and self.is_invalid():
            fewer = self._copies(self.base_m)
            if fewer < copies:
                self.base_n, copies = self.base_m, fewer
            else:
                self.base_m -= CUBE

    def _regrow(self) -> None:
        """Use the room that is left in L1: first M, then K, within L0."""
        problem, k_step = self.problem, self.rules.k_step
        # The published code subtracts unsigned numbers, so blocks that still do not fit see an endless room; they are
        # refused in the end either way.
        room = max(self._l1_room(), 0)
        most_m = max(problem.l0c_bytes // problem.element_bytes // 2 // self.base_m // CUBE, 1) * CUBE
        grown_m = self.base_m + room // (self.base_k * CUBE * problem.element_bytes) * CUBE
        self.base_m = min(grown_m, align_up(problem.m, CUBE), most_m)
        valid_k = self.base_k
        while not self.is_invalid():
            valid_k = self.base_k
            self.base_k += k_step
        self.base_k = valid_k
        padded_k = align_up(problem.k, k_step)
        if padded_k < self.base_k:
            self.base_k = padded_k
            return
        half_a = problem.l0a_bytes // problem.element_bytes // 2
        half_b = problem.l0b_bytes // problem.element_bytes // 2
        most_a = max(half_a // self.base_m // CUBE, 1) * CUBE
        most_b = max(half_b // self.base_n // CUBE, 1) * CUBE
        self.base_k = min(self.base_k, most_a, most_b, padded_k)
        self._whole_rows()


def _clamp(value: int, high: int) -> int:
    return max(min(value, high), 1)
