"""Where the error of a gradient comes from: rounding of the inputs, additions, rounding of the result, saturation.

Each cause is found by runs of the same kernel that differ in it alone:

``input``
    from the golden of the tensors of the file to that of the tensors as they are multiplied;
``sums``
    to what leaves the Cubes, added without rounding;
``atomics``
    to what is in memory when the parts of K are added there, in the order of the cores;
``output``
    to the gradient, rounded to its type;
``input underflow``
    the part of the first step that operands make which are below the least normal number of the type;
``input saturation``, ``output saturation``
    the parts of the first and the last step that saturation makes, where the product saturates;
``input specials``
    what a product that saturates makes of NaN and Inf in the tensors, which are numbers then.

The steps add up to the error. Sums that do not round to the call's own result bit for bit are not taken for its sums:
then "sums and output" are one cause, as they are for average poolings with results of 16 bits, and for outputs whose
bias is added by a launch of its own. Of poolings in float32, the TBE DSL and the Ascend C class, whose results are
float32, "sums" are all additions. Elements that are not finite in a stage are counted, by the cause that made them so
or made numbers of them, and in no other figure: where the product has infinities, that is overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

from npu_sim.budget import use_budget
from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.fenv import default_fenv
from ops.studies.attribution_case import Case
from ops.studies.attribution_report import AttributionRow
from ops.studies.attribution_spread import spread_of
from ops.studies.distributed import run_parts_on
from ops.studies.goldens import Goldens
from ops.studies.kinds import Asked, Backend, emulator
from ops.studies.layers import AnyLayer, Capture, Layer
from ops.studies.parallel import Task, part_of, run_parts
from ops.studies.precision_results import StudyOptions
from ops.studies.results_file import Results
from ops.studies.study_parts import Combination, Part, combinations_of, part_digest, parts_of

Progress = Callable[[int, int, str], None]


def runs_of(spread: int) -> int:
    """Return how many runs of each call `attribute` takes at most: 3 for parts, 3 ways to add, the spread."""
    return 6 + (3 * spread + 4 if spread else 0)


@default_fenv
def attribute(
    capture: Capture,
    options: StudyOptions | None = None,
    *,
    spread: int = 0,
    progress: Progress | None = None,
    results: Results | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
) -> tuple[AttributionRow, ...]:
    """Take the error of each result of a study apart.

    Parameters
    ----------
    capture : Capture
        Layers, from `ops.studies.capture.load_capture` or `load_example`.
    options : StudyOptions or None
        What to run, as of `ops.studies.precision.study`; standards have no meaning here.
    spread : int
        Runs of each `ops.studies.attribution_report.Range`; 0: none.
    progress : callable or None
        Called with (cases done, cases in all, what comes next).
    results : Results or None
        Where what is found is looked up and kept, all calls of a result of a layer together.
    jobs : int
        Processes that work at once, each with its part of the threads.
    scheduler : str or None
        Address of a Dask scheduler whose workers work instead (extra ``dask``).

    Returns
    -------
    tuple of AttributionRow
        In the order of the study, without what is refused.

    Raises
    ------
    ProductError, InputFileError
        As of `ops.studies.precision.study`.
    MissingExtraError, StudyOptionError
        ``scheduler`` is given and distributed is not installed, or there is none.
    """
    options = options or StudyOptions()
    every, backend = combinations_of(capture, options), emulator()
    chips = {name: backend.get_product(name) for name in options.products}
    parts = parts_of(every)
    keys: dict[int, str] = {}
    known: dict[int, tuple[AttributionRow, ...]] = {}
    if results is not None:
        keys = {id(part): part_digest(part, options, chips, "causes", spread) for part in parts}
        found = ((id(part), results.causes(keys[id(part)])) for part in parts)
        known = {key: rows for key, rows in found if rows is not None}
    missing = tuple(part for part in parts if id(part) not in known)
    done = len(every) - sum(len(part.calls) for part in missing)
    for part, rows in _computed(missing, options, spread, jobs, scheduler, backend, progress, done, len(every)):
        known[id(part)] = rows
        if results is not None:
            results.keep_causes(keys[id(part)], rows)
    if progress is not None:
        progress(len(every), len(every), "done")
    return tuple(row for part in parts for row in known[id(part)])


def _computed(
    parts: tuple[Part, ...],
    options: StudyOptions,
    spread: int,
    jobs: int,
    scheduler: str | None,
    backend: Backend,
    progress: Progress | None,
    done: int,
    total: int,
) -> Iterator[tuple[Part, tuple[AttributionRow, ...]]]:
    """Yield parts with what is found of them, as they end."""
    if parts and (scheduler is not None or (jobs > 1 and len(parts) > 1)):
        run = partial(_run_task, spread=spread)
        if scheduler is not None:
            found = run_parts_on(scheduler, parts, options, run)
        else:
            found = run_parts(parts, options, jobs, run)
        for part, rows in found:
            done += len(part.calls)
            if progress is not None:
                progress(done, total, f"{part.layer.name} {part.kind.gradient}")
            yield part, rows
        return
    for part in parts:
        numbers = {id(one): done + number for number, one in enumerate(part.calls)}
        before = None if progress is None else partial(_say, progress, numbers, total)
        yield part, _attribute_part(part, options, spread, backend, before)
        done += len(part.calls)


def _say(progress: Progress, numbers: dict[int, int], total: int, one: Combination) -> None:
    progress(numbers[id(one)], total, str(one))


def _run_task(task: Task, *, spread: int) -> tuple[AttributionRow, ...]:
    """Take a part apart in this process."""
    with nullcontext() if task.budget is None else use_budget(task.budget):
        return _attribute_part(part_of(task), task.options, spread, emulator(), None)


def _attribute_part(
    part: Part, options: StudyOptions, spread: int, backend: Backend, before: Callable[[Combination], None] | None
) -> tuple[AttributionRow, ...]:
    layer = part.layer.filled()
    goldens = Goldens(layer, part.kind, options.dtype, backend)
    rows: list[AttributionRow] = []
    for one in part.calls:
        if before is not None:
            before(one)
        rows.extend(_row(one, layer, goldens, options, backend, spread))
    return tuple(rows)


def _row(
    one: Combination, layer: AnyLayer, goldens: Goldens, options: StudyOptions, backend: Backend, spread: int
) -> Iterator[AttributionRow]:
    """Yield the row of a call, nothing if it is refused."""
    chip = backend.get_product(one.product)
    asked = Asked(
        product=one.product, chip=chip, cube_math_type=one.cube_math_type, accumulation=options.accumulation,
        threads=options.threads, backend=backend,
    )  # fmt: skip
    try:
        case = Case.of(layer, one.kind, one.entry, asked, goldens)
    except InternalError:
        raise
    except NpuSimError:
        return
    yield AttributionRow(
        layer=one.layer.name,
        gradient=one.kind.gradient,
        entry=one.entry,
        product=one.product,
        cube_math_type=one.cube_math_type,
        compute_dtype=case.run.compute_dtype,
        output_dtype=dtype_name(case.run.gradient.dtype),
        error=case.error_parts(),
        additions=case.additions(),
        spread=spread_of(layer, one.kind.gradient, goldens.tensors, asked, case.rounded, spread)
        if spread and case.is_call and isinstance(layer, Layer)
        else None,
    )
