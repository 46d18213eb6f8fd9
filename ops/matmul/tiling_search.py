"""The tiling of a matrix product that nobody gave: the cheapest of those a library would consider.

CANN's own choice is closed; its tuning records show what good ones look like: a base block that fills L0C, as much of K
in L0 as two buffers allow, and an operand that stays in L1 where it fits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError, ShapeError
from npu_sim.products import Product
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.status import NO_KERNEL
from ops.matmul.tiling import CUBE, ORIGIN_OURS, ORIGIN_STATIC, MatmulShape, MatmulTiling, buffers_of

_SIDES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Sides of base blocks that are tried, in fractals."""
_LONGEST_SIDE = 128
"""The longest that a static one may have: 16 columns of 16-bit operands fill L0A or L0B."""
_OVERLAP_PERCENT = 15
"""Part of the time of the pipes that are not the longest that a good pipeline does not hide (FIT on tuning records)."""
_CHUNK_ELEMS = 1024
"""Most K of a chunk: longer ones only make the first load longer."""
_TRIED = 4
"""Tilings of each kind that are looked at, in case the rough sums of bytes forget some."""


def rows_outside(tiling: MatmulTiling, shape: MatmulShape) -> bool:
    """Return whether the blocks along M are the outer loop of a core: the order that reads less."""
    a_stays, b_stays = tiling.k_a >= shape.k, tiling.k_b >= shape.k
    if a_stays != b_stays:
        return a_stays
    m_groups, n_groups = _groups(tiling, shape)
    a_bytes, b_bytes = shape.m / tiling.cores_m, shape.n / tiling.cores_n
    by_rows = a_bytes + b_bytes * (m_groups if n_groups > 1 else 1)
    by_columns = b_bytes + a_bytes * (n_groups if m_groups > 1 else 1)
    return by_rows <= by_columns


def reuse_bytes(tiling: MatmulTiling, shape: MatmulShape, item: int) -> int:
    """Return what all cores read between two uses of the operand that is read again.

    While the outer loop takes one part of its operand, all of the other one goes by; what several cores read of an
    operand they read at about the same time.
    """
    t, k = tiling, align_up(shape.k, CUBE)
    copies = t.cores_batch if shape.b_batched else 1
    if rows_outside(tiling, shape):
        outer, inner = t.cores_m * t.blocks_a * t.base_m * t.cores_batch, shape.n * copies
    else:
        outer, inner = t.cores_n * t.blocks_b * t.base_n * copies, shape.m * t.cores_batch
    return (outer + inner) * k * item


def _groups(tiling: MatmulTiling, shape: MatmulShape) -> tuple[int, int]:
    """Return how many parts of L1 a core's share has along M and N."""
    m_blocks = ceil_div(ceil_div(shape.m, tiling.base_m), tiling.cores_m)
    n_blocks = ceil_div(ceil_div(shape.n, tiling.base_n), tiling.cores_n)
    return ceil_div(m_blocks, tiling.blocks_a), ceil_div(n_blocks, tiling.blocks_b)


@lru_cache(maxsize=1024)
def search_tiling(
    shape: MatmulShape, product: Product, compute_dtype: str, cores: int, *, is_static: bool = False
) -> MatmulTiling:
    """Return the cheapest tiling on at most ``cores`` cores.

    With ``is_static`` of those that TBE's static schedule can write: loops without a remainder, so that base blocks
    divide the extents in fractals. All 70 tunings of CANN 8.1.RC1 for the Ascend910B1 do, and 61 and 69 of them divide
    the blocks along M and N among the cores without a remainder, too. A static block may be so long that L0 has no room
    for a second one: L0A has not in four of them, L0B in six, where B stays.

    Raises
    ------
    ShapeError
        ``cores`` is below 1.
    OperatorError
        561103: no block fits the buffers.
    """
    if cores < 1:
        raise ShapeError(f"block_dim must be at least 1, not {cores} ({product.name})")
    grid = _Grid(shape, product, compute_dtype, cores, is_static)
    for keeps_a, keeps_b, index in grid.cheapest():
        tiling = grid.tiling(keeps_a, keeps_b, index)
        if buffers_of(tiling, shape, grid.item, product.core) is not None:
            return tiling
    raise OperatorError(f"A block of a matrix product must fit the buffers ({product.name})", NO_KERNEL)


def _sides(extent: int, is_static: bool) -> list[int]:
    """Return sides of base blocks up to ``extent``, in elements; static ones divide it."""
    whole = ceil_div(extent, CUBE)
    if is_static:
        return [CUBE * side for side in range(1, min(whole, _LONGEST_SIDE) + 1) if whole % side == 0]
    shorter = [CUBE * side for side in _SIDES if side < whole]
    return [*shorter, CUBE * whole] if whole <= _SIDES[-1] else shorter


def _largest_divisors(values: npt.NDArray[np.int64], most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return of each value the largest divisor that is at most ``most``, 0 where that is below 1."""
    found = np.zeros(np.broadcast_shapes(values.shape, most.shape), np.int64)
    for divisor in range(1, int(most.max(initial=0)) + 1):
        found = np.where((values % divisor == 0) & (divisor <= most), divisor, found)
    return found


class _Grid:
    """All base blocks with all divisions of the cores, as arrays, and what each costs.

    Times are rough: bytes and steps by the product's rates, for the fullest core.
    """

    def __init__(self, shape: MatmulShape, product: Product, compute_dtype: str, cores: int, is_static: bool) -> None:
        self.shape, self.core, self.costs = shape, product.core, product.cost
        self.item = DTYPES[compute_dtype].item_bytes
        self.k = align_up(shape.k, CUBE)
        self.cores_batch = min(shape.batch, cores)
        self.batches = ceil_div(shape.batch, self.cores_batch)
        per_item = cores // self.cores_batch
        sides = np.array([(m, n) for m in _sides(shape.m, is_static) for n in _sides(shape.n, is_static)], np.int64)
        base_m, base_n, cores_m = sides[:, :1], sides[:, 1:], np.arange(1, per_item + 1)[None]
        m_blocks, n_blocks = -(-shape.m // base_m), -(-shape.n // base_n)
        cores_n = np.minimum(per_item // cores_m, n_blocks)
        fits = (base_m * base_n * 4 <= self.core.l0c_bytes) & (cores_m <= m_blocks)
        if is_static:
            cores_n = _largest_divisors(n_blocks, cores_n)
            fits &= m_blocks % cores_m == 0
        l0_bytes = CUBE * self.item * np.maximum(base_m, base_n) * (1 if is_static else 2)
        fits &= l0_bytes <= min(self.core.l0a_bytes, self.core.l0b_bytes)
        pick = np.nonzero(fits)
        spread = np.broadcast_arrays(base_m, base_n, cores_m, cores_n, m_blocks, n_blocks)
        self.base_m, self.base_n, self.cores_m, self.cores_n, m_blocks, n_blocks = (array[pick] for array in spread)
        self.m_count, self.n_count = -(-m_blocks // self.cores_m), -(-n_blocks // self.cores_n)
        deepest = np.minimum(
            self.core.l0a_bytes // (2 * self.base_m * self.item), self.core.l0b_bytes // (2 * self.base_n * self.item)
        )
        self.alternates = deepest < CUBE
        steps = np.clip(deepest // CUBE, 1, self.k // CUBE)
        self.base_k = CUBE * (_largest_divisors(np.full_like(steps, self.k // CUBE), steps) if is_static else steps)
        self.is_static = is_static
        self.product = product
        self._compute(compute_dtype)

    def _compute(self, compute_dtype: str) -> None:
        """Find the times of the pipes that do not depend on what stays in L1."""
        c, k, item = self.costs, self.k, self.item
        blocks = self.m_count * self.n_count
        steps = blocks * -(-k // self.base_k)
        fractals = (self.base_m // CUBE) * (self.base_n // CUBE) * -(-k * item // 32)
        self.cube = blocks * fractals * getattr(c, f"mmad_{compute_dtype}_step_cycles")
        self.cube += steps * c.mmad_accumulate_overhead_cycles
        to_l0 = self.base_m / c.l1_to_l0a_millibytes_per_cycle + self.base_n / c.l1_to_l0b_millibytes_per_cycle
        self.mte1 = blocks * to_l0 * k * item * 1000 + steps * 2 * c.mte1_start_cycles
        tile = self._store(self.base_m * self.base_n)
        self.fix = blocks * tile
        self.alone = np.where(2 * self.base_m * self.base_n * 4 > self.core.l0c_bytes, self.fix, tile)

    def _store(self, elems: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the time of storing a block of C."""
        c = self.costs
        if not self.core.is_split:
            return c.l0c_to_ub_start_cycles + elems * 4000 // c.l0c_to_ub_millibytes_per_cycle
        tile = np.maximum(c.fix_minimum_cycles, elems * 1000 // c.fix_to_gm_millielements_per_cycle)
        if self.shape.c_nz:
            return tile
        width = self.base_n * self.item
        floor = c.fix_row_floor_cycles if self.item == 4 else c.fix_half_row_floor_cycles
        if self.shape.n * self.item % BLOCK_BYTES:
            blocks = -(-np.minimum(width, c.fix_narrow_row_bytes) // BLOCK_BYTES)
            row_cycles = np.maximum(floor, blocks * c.fix_misaligned_block_cycles)
        else:
            has_floor = (self.base_n < self.shape.n) & (width < c.fix_narrow_row_bytes)
            row_cycles = np.where(has_floor, floor, 0)
        return np.maximum(tile, self.base_m * row_cycles)

    def _read_rate(self, keeps_a: bool, keeps_b: bool) -> npt.NDArray[np.float64]:
        """Return the bytes a core reads in a cycle: its share of L2, less where what is read again is out of it.

        See `reuse_bytes`.
        """
        shape, product = self.shape, self.product
        copies = self.cores_batch if shape.b_batched else 1
        by_rows = self.cores_m * self.base_m * self.cores_batch + shape.n * copies
        by_columns = self.cores_n * self.base_n * copies + shape.m * self.cores_batch
        if keeps_a != keeps_b:
            rows_outside = np.full(by_rows.shape, keeps_a)
        else:
            a_side, b_side = shape.m / self.cores_m, shape.n / self.cores_n
            again = a_side * np.where(self.m_count > 1, self.n_count, 1)
            rows_outside = a_side + b_side * np.where(self.n_count > 1, self.m_count, 1) <= b_side + again
        reuse = np.where(rows_outside, by_rows, by_columns) * self.k * self.item
        hits = np.minimum(product.l2_bytes / reuse, 1.0)
        l2, memory = (total * 1e6 / product.timing_clock_hz for total in (
            self.costs.l2_total_bytes_per_microsecond, self.costs.hbm_total_bytes_per_microsecond
        ))  # fmt: skip
        total = 1 / (hits / l2 + (1 - hits) / memory)
        busy = self.cores_m * self.cores_n * self.cores_batch
        return np.minimum(self.costs.gm_to_l1_millibytes_per_cycle / 1000, total / busy)

    def _read(
        self,
        read_rate: npt.NDArray[np.float64],
        times: npt.NDArray[np.int64],
        side: npt.NDArray[np.int64],
        chunk: npt.NDArray[np.int64] | int,
        *,
        is_b: bool,
    ) -> npt.NDArray[np.float64]:
        """Return the time of reading ``times`` blocks of ``side`` x K in chunks of K."""
        shape, c = self.shape, self.costs
        chunks = -(-self.k // np.maximum(chunk, 1))
        is_nz = shape.b_nz if is_b else shape.a_nz
        turns = not shape.b_transposed if is_b else shape.a_transposed
        rows, length = (self.k, side) if turns else (side * chunks, np.minimum(chunk, self.k))
        row_cycles = length * self.item / read_rate
        if not is_nz:
            whole = (shape.n if is_b else shape.m) if turns else shape.k
            if self.core.is_split and whole * self.item % BLOCK_BYTES:
                row_cycles = row_cycles * c.gm_row_misaligned_permille / 1000
                row_cycles = np.maximum(row_cycles, c.gm_row_misaligned_floor_millicycles / 1000)
            else:
                floor = np.where(length < whole, c.gm_row_floor_millicycles / 1000, 0)
                row_cycles = np.maximum(row_cycles, floor)
        return times * (rows * row_cycles + chunks * c.gm_to_l1_command_cycles)

    def _chunk(self, keeps_a: bool, keeps_b: bool) -> npt.NDArray[np.int64]:
        """Return K that a chunk of what does not stay can have; 0 where the rest does not fit."""
        whole_a = self.base_m * self.k * np.where(self.m_count > 1, 2, 1)
        whole_b = self.base_n * self.k * np.where(self.n_count > 1, 2, 1)
        free = np.full(self.base_m.shape, self.core.l1_bytes // self.item)
        streamed = np.zeros_like(self.base_m)
        for keeps, whole, side in ((keeps_a, whole_a, self.base_m), (keeps_b, whole_b, self.base_n)):
            if keeps:
                free = free - whole
            else:
                streamed = streamed + 2 * side
        if keeps_a and keeps_b:
            return np.where(free >= 0, self.k, 0)
        steps = np.maximum(free, 0) // streamed // self.base_k
        most = np.maximum(_CHUNK_ELEMS // self.base_k, 1)
        steps = np.minimum(steps, most)
        if self.is_static:
            steps = _largest_divisors(self.k // self.base_k, steps)
        return np.minimum(steps * self.base_k, self.k)

    def _cycles(self, keeps_a: bool, keeps_b: bool) -> npt.NDArray[np.float64]:
        """Return the time of every tiling with those operands in L1 as a whole."""
        chunk = self._chunk(keeps_a, keeps_b)
        reads_a = np.where(keeps_a or (self.n_count == 1), 1, self.n_count)
        reads_b = np.where(keeps_b or (self.m_count == 1), 1, self.m_count)
        if keeps_a and keeps_b:
            # one of them goes round while the other stays
            reads_a, reads_b = np.where(self.n_count > 1, 1, reads_a), np.where(self.n_count > 1, self.m_count, 1)
        rate = self._read_rate(keeps_a, keeps_b)
        mte2 = self._read(rate, reads_a * self.m_count, self.base_m, chunk if not keeps_a else self.k, is_b=False)
        mte2 = mte2 + self._read(rate, reads_b * self.n_count, self.base_n, chunk if not keeps_b else self.k, is_b=True)
        pipes = np.stack((self.cube, self.mte1, mte2, self.fix))
        # with one buffer in L0 a pipe waits for the other
        longest = np.maximum(pipes.max(0), np.where(self.alternates, self.cube + self.mte1, 0))
        first = (self.base_m + self.base_n) * np.minimum(chunk, self.k) * self.item / rate
        cycles = longest + _OVERLAP_PERCENT / 100 * (pipes.sum(0) - longest) + first + self.alone
        return np.where(chunk > 0, cycles * self.batches, np.inf)

    def cheapest(self) -> list[tuple[bool, bool, int]]:
        """Return (A stays, B stays, index) of tilings, the cheapest first; at most some of each kind."""
        found = []
        for keeps_a in (False, True):
            for keeps_b in (False, True):
                cycles = self._cycles(keeps_a, keeps_b)
                best = np.argsort(cycles, kind="stable")[:_TRIED]
                found += [(float(cycles[index]), keeps_a, keeps_b, int(index)) for index in best]
        return [(keeps_a, keeps_b, index) for cycles, keeps_a, keeps_b, index in sorted(found) if cycles < np.inf]

    def tiling(self, keeps_a: bool, keeps_b: bool, index: int) -> MatmulTiling:
        """Return one of them."""
        chunk = int(self._chunk(keeps_a, keeps_b)[index])
        return MatmulTiling(
            base_m=int(self.base_m[index]),
            base_n=int(self.base_n[index]),
            base_k=int(self.base_k[index]),
            k_a=self.k if keeps_a else chunk,
            k_b=self.k if keeps_b else chunk,
            cores_batch=self.cores_batch,
            cores_n=int(self.cores_n[index]),
            cores_m=int(self.cores_m[index]),
            origin=ORIGIN_STATIC if self.is_static else ORIGIN_OURS,
        )
