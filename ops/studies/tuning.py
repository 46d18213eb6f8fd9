"""The fastest tiling of a kernel by the timeline: a search among all that the kernel can run, by several processes.

A space has axes; a point is a value of each. The search times the kernel's own choice and points drawn from the whole
space, then moves the best of them along one axis, and along two, while that makes them faster. It draws the same points
every time. How near it comes is measured (`python -m tests.long.tuned_tilings`); the times are the model's.
"""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from math import prod
from typing import Any, Protocol

from npu_sim.products import Product
from npu_sim.report.record import to_json_text, to_plain
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_space import WeightGradientTilingSpace
from ops.matmul.tiling import MatmulShape
from ops.matmul.tiling_space import MatmulTilingSpace
from ops.studies.calls.convolution_kernels import convolution_kernel_request
from ops.studies.calls.fields import Fields, RequestError
from ops.studies.calls.planned import Request, require_multiplied, time_call
from ops.studies.calls.products import MatrixProductRequest
from ops.studies.calls.read_convolution import read_convolution
from ops.studies.calls.read_multiplying import compute_of, types_of
from ops.studies.calls.request_items import operator_name, read_call
from ops.studies.cases import program_name
from ops.studies.effort import Effort, rows_of_first_cores

SCHEMA_VERSION = 1
MOST_TIMED = 2000
"""Tilings that are timed at most, unless more are asked for."""
_DRAWN, _KEPT = 128, 3
_MOVES = 400
"""Moves that are tried from a point: first along one axis, and if none is faster along two, drawn from all."""
_TRIES = 1000
"""Points drawn in vain, one after the other, behind which a space counts as drawn from."""
_COUNTED = 16
"""Of the drawn points, how many are counted to tell how long all take."""
_ROWS_PER_SECOND, _SECONDS_PER_TILING = 25e6, 1.3e-3
"""What timing one tiling takes, by its instructions and besides."""
_MOST_ROWS = 4e9
"""Of one tiling: counting ends there. More than anybody may start unasked."""
Progress = Callable[[int, int, str], None]
Point = tuple[int, ...]


class Space(Protocol):
    """The tilings of a kernel."""

    @property
    def product(self) -> Product:
        """Where it runs."""

    @property
    def axes(self) -> Mapping[str, tuple[int, ...]]:
        """Values of each coordinate of a point."""

    @property
    def start(self) -> Mapping[str, int]:
        """A point at or near the default."""

    @property
    def default(self) -> Any:
        """The tiling without a choice."""

    def tiling(self, point: Mapping[str, int]) -> Any:
        """Return the tiling at a point, None where there is none."""

    def members(self, tiling: Any) -> Mapping[str, int]:
        """Return a tiling under CANN's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """A kernel whose tiling can be chosen.

    Attributes
    ----------
    name : str
        In reports: what and its shape.
    space : Space
        Its tilings.
    request : callable
        ``request(tiling)``: the kernel with it.
    """

    name: str
    space: Any
    request: Callable[[Any], Request]


def _product_request(shape: MatmulShape, dtype: str, mode: int, tiling: Any) -> Request:
    return MatrixProductRequest(shape=shape, dtype=dtype, cube_math_type=mode, tiling=tiling, inputs_in_l2=True)


def _gradient_request(geometry: ConvGeometry, compute_dtype: str, tiling: Any) -> Request:
    return convolution_kernel_request("filter", geometry, compute_dtype, generation="published", tiling=tiling)


def tunable_product(request: MatrixProductRequest, product: Product) -> Tunable:
    """Return a matrix product as a kernel to tune."""
    compute = request.plan(product).compute_dtype
    return Tunable(
        name=f"MatMul {request.name} {compute}",
        space=MatmulTilingSpace(shape=request.shape, product=product, compute_dtype=compute),
        request=partial(_product_request, request.shape, request.dtype, request.cube_math_type),
    )


def tunable_weight_gradient(geometry: ConvGeometry, compute_dtype: str, product: Product) -> Tunable:
    """Return the published kernel of a weight gradient as one to tune.

    Raises
    ------
    RequestError
        The product's cores are unified: the kernel is of A2 and A3.
    """
    if not product.core.is_split:
        raise RequestError(f"--tune of a weight gradient must be on A2 or A3, not on {product.name}")
    request = partial(_gradient_request, geometry, compute_dtype)
    return Tunable(
        name=f"{request(None).words} {request(None).name} {compute_dtype}",
        space=WeightGradientTilingSpace(geometry=geometry, product=product, compute_dtype=compute_dtype),
        request=request,
    )


def read_tunable(operator: str, values: Mapping[str, Any], product: Product) -> Tunable:
    """Return the kernel that the fields of a request ask for.

    Raises
    ------
    NpuSimError
        The operator has no tilings to choose from, or the fields are not its own.
    """
    name = operator_name(operator)
    if name not in ("matmul", "conv_backprop_filter"):
        raise RequestError(f"--tune must be with matmul or conv-backprop-filter, not {operator} ({product.name})")
    if "block_dim" in values or "generation" in values:
        raise RequestError(
            "--tune must be without --block-dim and --generation: it chooses cores of the published kernel"
        )
    request = read_call(name, values, product.name, "kernel")
    fields = Fields(values)
    if isinstance(request, MatrixProductRequest):
        found = tunable_product(request, product)
    else:
        compute = types_of(fields, product, "hf32")[1]
        found = tunable_weight_gradient(read_convolution(fields).geometry, compute, product)
    require_multiplied(compute_of(fields), found.request(None).plan(product))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """The outcome of a search.

    Attributes
    ----------
    name, product : str
        What was tuned, where.
    clock_hz : int
        Clock of the cycles.
    default_cycles, best_cycles : int
        Core time of the kernel with its own tiling and with the fastest that was found.
    default, best : mapping of str to int
        The two under CANN's names.
    timed_count : int
        Tilings that were timed.
    """

    name: str
    product: str
    clock_hz: int
    default_cycles: int
    best_cycles: int
    default: Mapping[str, int]
    best: Mapping[str, int]
    timed_count: int

    @property
    def gain(self) -> float:
        """Part of the time that the best one saves."""
        return 1 - self.best_cycles / self.default_cycles


def tuning_json(reports: Sequence[TuneReport]) -> str:
    """Return reports as JSON text."""
    rows = [to_plain(report) | {"gain": report.gain} for report in reports]
    return to_json_text({"schema_version": SCHEMA_VERSION, "program": program_name(), "rows": rows})


def cycles_of(tunable: Tunable, point: Point | None) -> int | None:
    """Return the core time at a point, None where there is no tiling; of None that of the kernel's own."""
    space = tunable.space
    tiling = None if point is None else _tiling_at(space, point)
    if point is not None and tiling is None:
        return None
    return time_call(tunable.request(tiling), space.product, "kernel").total_cycles


def tuning_effort(tunable: Tunable, jobs: int | None = None) -> Effort:
    """Return the effort of a search by so many processes: of what is drawn, and of the moves from there.

    Drawn tilings are any, some of a hundred times as many instructions as the kernel's own, and some of them are
    counted; the moved ones are near the fastest, and count as the kernel's own.
    """
    space, most = tunable.space, min(MOST_TIMED, prod(len(values) for values in tunable.space.axes.values()))
    drawn = [_tiling_at(space, point) for point in _Search(space, lambda points: (), most, None).first(_COUNTED)]
    own, *rows = (_rows_of(tunable, tiling) for tiling in (None, *drawn))
    drawn_count = min(_DRAWN, most)
    every = own * (most - drawn_count) + sum(rows) * drawn_count // max(len(rows), 1)
    seconds = every / _ROWS_PER_SECOND + most * _SECONDS_PER_TILING
    return Effort(instructions=every, seconds=seconds / (jobs or os.cpu_count() or 1))


def _rows_of(tunable: Tunable, tiling: Any) -> int:
    launches = tunable.request(tiling).plan(tunable.space.product).launches("kernel")
    return rows_of_first_cores(launches, _MOST_ROWS)[0]


def _tiling_at(space: Space, point: Point) -> Any:
    return space.tiling(dict(zip(space.axes, point, strict=True)))


def tune(
    tunable: Tunable, *, most: int = MOST_TIMED, jobs: int | None = None, progress: Progress | None = None
) -> TuneReport:
    """Search the fastest tiling.

    Parameters
    ----------
    tunable : Tunable
        The kernel.
    most : int
        Tilings to time at most.
    jobs : int or None
        Processes; None: one for each CPU. The outcome does not depend on it.
    progress : callable or None
        Called with (tilings timed, at most, the best time so far).
    """
    space = tunable.space
    with _timers(tunable, jobs or os.cpu_count() or 1) as times:
        default = cycles_of(tunable, None)
        assert default is not None
        search = _Search(space, times, most, progress)
        search.run()
    found = search.best
    is_better = found is not None and search.known[found] < default
    tiling = _tiling_at(space, found) if is_better and found else space.default
    return TuneReport(
        name=tunable.name,
        product=space.product.name,
        clock_hz=space.product.timing_clock_hz,
        default_cycles=default,
        best_cycles=search.known[found] if is_better and found else default,
        default=space.members(space.default),
        best=space.members(tiling),
        timed_count=len(search.known),
    )


@contextmanager
def _timers(tunable: Tunable, jobs: int) -> Iterator[Callable[[Sequence[Point]], Iterable[int | None]]]:
    """Give what times points, in this process or in several."""
    time = partial(cycles_of, tunable)
    with ExitStack() as stack:
        if jobs == 1:
            yield partial(map, time)
            return
        context = multiprocessing.get_context("spawn")
        pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=context))
        yield lambda points: pool.map(time, points, chunksize=max(len(points) // (4 * jobs), 1))


class _Search:
    """One search: what is known of each point."""

    def __init__(
        self,
        space: Space,
        times: Callable[[Sequence[Point]], Iterable[int | None]],
        most: int,
        progress: Progress | None,
    ) -> None:
        self._space, self._times, self._most, self._progress = space, times, most, progress
        self._axes = tuple(space.axes.values())
        self._draw = random.Random(0)
        self.known: dict[Point, int] = {}

    @property
    def best(self) -> Point | None:
        """The fastest point."""
        return min(self.known, key=self.known.__getitem__, default=None)

    def run(self) -> None:
        """Time points until none near the best ones is faster, or there are enough."""
        self._look(self.first(_DRAWN))
        for point in sorted(self.known, key=self.known.__getitem__)[:_KEPT]:
            while (better := self._improved(point)) is not None:
                point = better

    def _is_legal(self, point: Point) -> bool:
        return _tiling_at(self._space, point) is not None

    def first(self, count: int) -> list[Point]:
        """Draw points, behind the default."""
        found = [tuple(self._space.start.values())]
        found = [point for point in found if self._is_legal(point)]
        misses = 0
        while len(found) < count and misses < _TRIES:
            point = tuple(self._draw.choice(values) for values in self._axes)
            misses += 1
            if point not in found and self._is_legal(point):
                found.append(point)
                misses = 0
        return found

    def _look(self, points: Sequence[Point]) -> None:
        """Time those that are not known yet."""
        new = [point for point in dict.fromkeys(points) if point not in self.known][: self._most - len(self.known)]
        for point, cycles in zip(new, self._times(new), strict=True):
            if cycles is not None:
                self.known[point] = cycles
            if self._progress:
                best = self.known[self.best] if self.best else 0
                self._progress(len(self.known), self._most, f"best {best} cycles")

    def _improved(self, point: Point) -> Point | None:
        """Return the fastest point that differs in one coordinate, or else in two; None if none is faster."""
        for axes in (1, 2):
            moves = [moved for chosen in combinations(range(len(point)), axes) for moved in self._moved(point, chosen)]
            if axes > 1:
                self._draw.shuffle(moves)
            runs = (moved for moved in moves if moved in self.known or self._is_legal(moved))
            legal = list(islice(runs, _MOVES))
            self._look(legal)
            fastest = min((moved for moved in legal if moved in self.known), key=self.known.__getitem__, default=None)
            if fastest is not None and self.known[fastest] < self.known[point]:
                return fastest
        return None

    def _moved(self, point: Point, chosen: tuple[int, ...]) -> Iterator[Point]:
        """Yield the points that differ in these coordinates, in each of them."""
        axis, *rest = chosen
        for value in self._axes[axis]:
            if value == point[axis]:
                continue
            moved = (*point[:axis], value, *point[axis + 1 :])
            if rest:
                yield from self._moved(moved, tuple(rest))
            else:
                yield moved
