"""How much work a study is, found out before it begins: instructions, memory, time.

Small programs are emitted and counted. Of a large one a smaller batch is counted and scaled, so that the answer takes a
fraction of a second whatever is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from npu_sim.engines.hazards import CHUNK_ROWS
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.isa.row import empty_rows
from npu_sim.products import Product, get_product
from npu_sim.program.launch import Launch
from npu_sim.report.standards.registry import get_standard
from ops.studies.calls.convolutions import ConvolutionRequest, GradientRequest
from ops.studies.calls.planned import Request
from ops.studies.cases import CaseSet, ConvCase, case_of_layer, combinations
from ops.studies.checking import MEMORY_PER_GM_BYTE, require_size
from ops.studies.layers import Capture, Layer
from ops.studies.precision_results import StudyOptions
from ops.studies.scope import Scope
from ops.studies.study_parts import Combination, Part, combinations_of, parts_of

TIMING_ROWS_PER_SECOND = 10e6
CHECKING_ROWS_PER_SECOND = 0.5e6
MACS_PER_SECOND = 3e9
"""Multiply-adds a second of a computed result."""
GOLDEN_MACS_PER_SECOND = 2e9
PEER_MACS_PER_SECOND = 0.1e9
"""The same of a golden in float64, and of a peer in float32, one product after the other."""
COMPARED_PER_SECOND = 2.5e6
"""Elements of a result beyond the caches that are compared with a golden and judged in a second."""
_MOST_GOLDENS = 4
"""Of the tensors as they are, and as they are multiplied in three types."""
_COMPARED_BYTES = 10 * 8
"""What a comparison keeps of each element."""
GOLDEN_BYTES_PER_ELEMENT = 4 * 8
"""Copies in float64 that a golden needs of each element of x and dy."""

_BUDGET_ROWS = 200_000
_LAST_BUDGET_ROWS = 20_000_000
"""Where no smaller batch is left to count; of more, the rows of first cores are."""
_MOST_SECONDS = 150
"""Of looking at rows: where more are found, counting ends. More than anybody may start unasked."""
_STEP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a study takes on a machine with two cores, roughly.

    Attributes
    ----------
    instructions : int
        Rows of all launches.
    is_bound : bool
        True: there are at least so many; they were not all counted.
    seconds : float
        Time.
    bytes : int
        Memory of the largest part, beside that of the program itself.
    """

    instructions: int = 0
    is_bound: bool = False
    seconds: float = 0.0
    bytes: int = 0

    def __add__(self, other: Effort) -> Effort:
        return Effort(
            instructions=self.instructions + other.instructions,
            is_bound=self.is_bound or other.is_bound,
            seconds=self.seconds + other.seconds,
            bytes=max(self.bytes, other.bytes),
        )

    def times(self, count: int) -> Effort:
        """Return the effort of that many runs, one after the other."""
        return replace(self, instructions=self.instructions * count, seconds=self.seconds * count)


def count_rows(launches: Iterable[Launch], budget: int) -> tuple[int, bool]:
    """Return the rows of ``launches``, and whether these are all: counting ends when there are more than ``budget``."""
    count = 0
    for launch in launches:
        buffer = empty_rows(max(CHUNK_ROWS, launch.step_rows))
        for core in range(launch.core_count):
            for phase in range(launch.phase_count):
                for rows in launch.rows(core, phase, buffer):
                    count += rows
                    if count > budget:
                        return count, False
    return count, True


def rows_of_first_cores(launches: Iterable[Launch], most: float) -> tuple[int, bool]:
    """Return the rows of ``launches`` if all their cores have as many as the first, and whether these are all.

    Counting ends when there are more than ``most``.
    """
    count = 0
    for launch in launches:
        buffer = empty_rows(max(CHUNK_ROWS, launch.step_rows))
        for phase in range(launch.phase_count):
            for rows in launch.rows(0, phase, buffer):
                count += rows * launch.core_count
                if count > most:
                    return count, False
    return count, True


def _count_or_estimate(launches: Sequence[Launch], rows_per_second: float) -> tuple[int, bool]:
    """Return the rows of ``launches``, about if there are many, and whether there may be any number more."""
    rows, is_all = count_rows(launches, _LAST_BUDGET_ROWS)
    if not is_all:
        rows, is_all = rows_of_first_cores(launches, _MOST_SECONDS * rows_per_second)
    return rows, not is_all


def launches_effort(launches: Sequence[Launch], rows_per_second: float, bytes_per_gm_byte: int = 0) -> Effort:
    """Return the effort of looking at the rows of launches that exist."""
    rows, is_bound = _count_or_estimate(launches, rows_per_second)
    largest = max((launch.gm.total_bytes for launch in launches), default=0)
    seconds = rows / rows_per_second
    return Effort(instructions=rows, is_bound=is_bound, seconds=seconds, bytes=bytes_per_gm_byte * largest)


def timing_effort(requests: Sequence[Request], products: Sequence[str], scope: Scope) -> Effort:
    """Return the effort of timing every request on every product; what is refused takes none.

    Raises
    ------
    ProductError
        If a product is unknown.
    """
    chips = [get_product(name) for name in dict.fromkeys(products)]
    return _sum(_rows_effort(request, chip, scope, TIMING_ROWS_PER_SECOND) for chip in chips for request in requests)


def checking_effort(cases: CaseSet, products: Sequence[str], modes: Sequence[int]) -> Effort:
    """Return the effort of checking, as `timing_effort`; layers that differ in their names only are checked once.

    Raises
    ------
    ProductError, ShapeError
        As of `checking.run_check`.
    """
    effort = Effort()
    known: set[tuple[str, int, ConvCase]] = set()
    for name, chip, mode, case in combinations(cases, products, modes, None):
        key = name, mode, replace(case, name="")
        if key in known:
            continue
        known.add(key)
        request = GradientRequest(case=case, gradients=("dw",), cube_math_type=mode, generation="published")
        part = _rows_effort(request, chip, "call", CHECKING_ROWS_PER_SECOND, MEMORY_PER_GM_BYTE)
        require_size(case, part.bytes // MEMORY_PER_GM_BYTE)
        effort += part
    return effort


def precision_effort(capture: Capture, options: StudyOptions, runs: int = 1) -> Effort:
    """Return the effort of computing a study ``runs`` times, as `timing_effort`; a second or less is not counted.

    Raises
    ------
    ProductError, InputFileError
        As `ops.studies.precision.study`.
    """
    chips = {name: get_product(name) for name in options.products}
    every = combinations_of(capture, options)
    if runs * sum(one.kind.macs(one.layer) for one in every) < MACS_PER_SECOND:
        return Effort()
    with_peer = any(get_standard(name).needs_peer for name in options.standards)
    computed = _sum(_computed_effort(one, chips[one.product], options.dtype) for one in every)
    return (computed + _sum(_golden_effort(part, with_peer) for part in parts_of(every))).times(runs)


def _golden_effort(part: Part, with_peer: bool) -> Effort:
    """Return the effort of the goldens of a part, and of the peers where a standard asks for them."""
    macs, goldens = part.kind.macs(part.layer), min(_MOST_GOLDENS, 1 + len(part.calls))
    rates = 1 / GOLDEN_MACS_PER_SECOND + with_peer / PEER_MACS_PER_SECOND
    return Effort(seconds=macs * goldens * rates)


def _sum(parts: Iterable[Effort]) -> Effort:
    return sum(parts, Effort())


def _computed_effort(one: Combination, chip: Product, dtype: str | None) -> Effort:
    layer, macs, counted = one.layer, one.kind.macs(one.layer), Effort()
    if isinstance(layer, Layer) and one.cube_math_type is not None and one.kind.gradient != "db":
        # the conversions around the kernel are computed without their rows
        case, mode, result = case_of_layer(layer, dtype), one.cube_math_type, one.kind.gradient
        request: Request
        if result == "y":
            request = ConvolutionRequest(case=case, has_bias=layer.bias is not None, cube_math_type=mode)
        else:
            request = GradientRequest(case=case, gradients=(result,), cube_math_type=mode, generation="published")
        counted = _rows_effort(request, chip, "kernel", TIMING_ROWS_PER_SECOND, bytes_per_gm_byte=1)
        if not counted.instructions:
            return counted
    operands, results = math.prod(layer.x_shape) + layer.dy.size, math.prod(one.kind.shape(layer))
    return replace(
        counted,
        # with both goldens
        seconds=counted.seconds + macs / MACS_PER_SECOND + 2 * results / COMPARED_PER_SECOND,
        bytes=counted.bytes + GOLDEN_BYTES_PER_ELEMENT * operands + _COMPARED_BYTES * results,
    )


def _rows_effort(
    request: Request,
    chip: Product,
    scope: Scope,
    rows_per_second: float,
    bytes_per_gm_byte: int = 0,
) -> Effort:
    """Return the effort of the rows of one call, of a smaller batch if there are many."""
    try:
        plan = request.plan(chip)
        total_bytes = plan.calls.gm.total_bytes
        batch = part = request.batch
        while True:
            launches = plan.launches(scope)
            if part <= 1:
                rows, is_bound = _count_or_estimate(launches, rows_per_second)
                break
            rows, is_all = count_rows(launches, _BUDGET_ROWS)
            is_bound = False
            if is_all:
                break
            part = max(part // _STEP, 1)
            plan = request.with_batch(part).plan(chip)
    except InternalError:
        raise
    except NpuSimError:
        return Effort()
    rows = rows * batch // max(part, 1)  # an empty batch is filled, not computed
    return Effort(
        instructions=rows,
        is_bound=is_bound,
        seconds=rows / rows_per_second,
        bytes=bytes_per_gm_byte * total_bytes,
    )
