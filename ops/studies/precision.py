"""The precision study: the error of each layer's gradients, on each product, in each mode.

For every layer x gradient x interface x product x cubeMathType the operator is called, which either refuses, as the
library would, or computes the gradient with all its casts and layout conversions. It is compared with two float64
goldens:

``original``
    from the tensors of the file, untouched: the whole price of the mode, casts included;
``rounded``
    from the tensors the hardware multiplied (after the option ``dtype``, after the cast to the compute type, after HF32
    rounding): what the kernel itself adds.

CANN's own reference for these operators rounds the inputs first (hicann/ops-nn
conv/conv3d_backprop_filter_v2/tests/assets/golden.py), so ``rounded`` is the golden whose verdict decides by default;
``original`` answers the user's question whether the mode is fit for the layer. Both verdicts are always reported.

Standards that compare with a peer get what a CPU makes of the same tensors without the operator: float32 products and
sums one by one, rounded once to the format of the gradient.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from npu_sim.fenv import default_fenv
from ops.studies.fitness import fitness_of
from ops.studies.judging import standards_of
from ops.studies.kinds import Backend, emulator
from ops.studies.layers import Capture
from ops.studies.precision_part import run_part
from ops.studies.precision_report import PrecisionReport
from ops.studies.precision_results import StudyOptionError, StudyOptions
from ops.studies.results_file import Results
from ops.studies.scope import Progress
from ops.studies.study_parts import Combination, Known, combinations_of, parts_of
from ops.studies.ulp_maps import with_chosen_maps


@default_fenv
def study(
    capture: Capture,
    options: StudyOptions | None = None,
    *,
    backend: Backend | None = None,
    progress: Progress | None = None,
    results: Results | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
) -> PrecisionReport:
    """Run a precision study.

    Parameters
    ----------
    capture : Capture
        Layers, from `ops.studies.capture.load_capture` or `load_example`.
    options : StudyOptions or None
        None runs the gradients that every layer names on the series with aclnn calls, in the four modes.
    backend : Backend or None
        None uses the emulator.
    progress : callable or None
        Called with (cases done, cases in all, what comes next).
    results : Results or None
        Where results are looked up and kept, gradient by gradient; what it has is not computed.
    jobs : int
        Processes that compute gradients at once, each with its part of the threads; more than 1 only with the emulator.
    scheduler : str or None
        Address of a Dask scheduler whose workers compute instead (extra ``dask``).

    Returns
    -------
    PrecisionReport

    Raises
    ------
    ProductError
        A product is unknown.
    InputFileError
        A layer is not in the file, or no layer has such a gradient.

    Notes
    -----
    A refused combination is a row of the report, not an error.
    """
    options = options or StudyOptions()
    every = combinations_of(capture, options)
    own = backend or emulator()
    chips = {name: own.get_product(name) for name in options.products}
    known = Known(every, options, chips, results)
    if progress and len(known.rows):
        progress(len(known.rows), len(every), "known")
    missing = tuple(replace(part, calls=known.missing(part.calls)) for part in parts_of(every))
    missing = tuple(part for part in missing if part.calls)
    if missing and (scheduler is not None or (jobs > 1 and len(missing) > 1)):
        if backend is not None:
            raise StudyOptionError("jobs must be 1 with a backend of one's own, not more")
        # imported here: what starts processes, few studies do
        from ops.studies.distributed import run_parts_on
        from ops.studies.parallel import run_parts, run_task

        done = len(known.rows)
        if scheduler is not None:
            found = run_parts_on(scheduler, missing, options, run_task)
        else:
            found = run_parts(missing, options, jobs, run_task)
        for part, (summary, rows) in found:
            known.keep(part, summary, rows)
            done += len(rows)
            if progress:
                progress(done, len(every), f"{part.layer.name} {part.kind.gradient}")
    else:
        numbers = {id(one): number for number, one in enumerate(every)}
        before = None if progress is None else lambda one: progress(numbers[id(one)], len(every), str(one))
        for part in missing:
            known.keep(part, *run_part(part, options, own, before))
    if progress:
        progress(len(every), len(every), "done")
    calls = dict.fromkeys(one.kind.calls[one.entry].words for one in every)
    rows = tuple(known.rows[id(one)] for one in every)
    return PrecisionReport(
        program=f"npu-sim {_own_version()}",
        source=capture.source,
        metadata=capture.metadata,
        options=options,
        standards=_standards(every, options),
        gradient=f"result of a {'; of a '.join(calls)}",
        fitness=fitness_of(rows, options.golden),
        layers=tuple(known.summary(part) for part in parts_of(every)),
        rows=with_chosen_maps(rows, options.golden),
    )


def _standards(every: tuple[Combination, ...], options: StudyOptions) -> tuple[dict[str, str], ...]:
    """Return a summary of each standard behind the verdicts, those of the study first."""
    own = (standard for one in every for standard in standards_of(one.layer, options))
    return tuple({standard.name: standard.summary() for standard in own}.values())


def _own_version() -> str:
    try:
        return version("npu-sim")
    except PackageNotFoundError:
        return "(not installed)"
