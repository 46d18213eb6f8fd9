"""Which arithmetics have the bits of a device's results, and which element excludes each other one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ops.studies.selftest.arithmetic import (
    Arithmetic,
    base_models,
    emulate,
    neighbours,
    operand_choices,
    with_every_part,
)
from ops.studies.selftest.readings import Reading, Shown, number, read
from ops.studies.selftest.report import Candidate, Element, Fitting, TensorsReport
from ops.studies.selftest.vectors import Vectors, vectors_of

_FINALISTS = 3
"""Models without parts whose parts are tried."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tried:
    """An arithmetic and which elements of the device's result it has."""

    arithmetic: Arithmetic
    result: npt.NDArray
    equal: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.equal))


def same(measured: npt.NDArray, emulated: npt.NDArray) -> npt.NDArray[np.bool_]:
    """Return where two results agree: any NaN is any other, and a zero has no sign, which no model is about."""
    with np.errstate(invalid="ignore"):  # NaN of any kind come back from a device
        return (measured == emulated) | (np.isnan(measured) & np.isnan(emulated))


def shown_by(vectors: Vectors, measured: npt.NDArray) -> Shown:
    """Return the results of the directed probes by name."""
    diagonal = np.diagonal(measured).astype(np.float64)
    return {probe.name: float(value) for probe, value in zip(vectors.probes, diagonal, strict=False)}


def fit(tensors: str, measured: npt.NDArray, progress: Progress | None = None) -> TensorsReport:
    """Compare a device's matrix product with what every model makes of it.

    Parameters
    ----------
    tensors : str
        One of `vectors.TENSORS`.
    measured : array [M, M]
        The device's result.
    progress : callable or None
        Called with what comes next.

    Notes
    -----
    The probes say what is multiplied and in which overflow mode. Then every base model runs on all vectors, the best
    of them with each combination of parts, and the best of all again with one thing changed, which tells what excludes
    the others.
    """
    vectors = vectors_of(tensors)
    shown = shown_by(vectors, measured)
    readings = read(tensors, shown)
    known: dict[Arithmetic, _Tried] = {}

    def run(arithmetics: Iterable[Arithmetic]) -> list[_Tried]:
        for arithmetic in arithmetics:
            if arithmetic not in known:
                if progress:
                    progress(f"{tensors} {arithmetic.accumulation.name}")
                result = emulate(vectors, arithmetic)
                known[arithmetic] = _Tried(arithmetic=arithmetic, result=result, equal=same(measured, result))
        # stable: of equals the first, which has the parts None means
        return sorted(known.values(), key=lambda tried: -tried.count)

    choices = tuple(operand_choices(tensors, shown))
    ranked = run(replace(choice, accumulation=model) for choice in choices for model in base_models(shown))
    for tried in ranked[:_FINALISTS]:
        arithmetic = tried.arithmetic
        ranked = run(replace(arithmetic, accumulation=model) for model in with_every_part(arithmetic.accumulation))
    best = ranked[0]
    ranked = run(neighbours(best.arithmetic))
    candidates = [_candidate(tried, vectors, measured) for tried in ranked]
    around = {best.arithmetic, *neighbours(best.arithmetic)}
    return TensorsReport(
        tensors=tensors,
        device_error="",
        readings=readings,
        element_count=measured.size,
        fits=tuple(_fitting(tried.arithmetic) for tried in ranked if tried.equal.all()),
        nearest=_candidate(best, vectors, measured),
        excluded=tuple(
            candidate
            for candidate, tried in zip(candidates, ranked, strict=True)
            if candidate.differing_count and tried.arithmetic in around and tried is not best
        ),
    )


def _fitting(arithmetic: Arithmetic) -> Fitting:
    return Fitting(model=arithmetic.accumulation.name, multiplies=arithmetic.multiplies, overflow=arithmetic.overflow)


def _candidate(tried: _Tried, vectors: Vectors, measured: npt.NDArray) -> Candidate:
    own = _fitting(tried.arithmetic)
    return Candidate(
        model=own.model,
        multiplies=own.multiplies,
        overflow=own.overflow,
        differing_count=measured.size - tried.count,
        first_difference=_first_difference(tried, vectors, measured),
    )


def _first_difference(tried: _Tried, vectors: Vectors, measured: npt.NDArray) -> Element | None:
    """Return the first directed probe that differs, or else the first other element."""
    if tried.equal.all():
        return None
    count = len(vectors.probes)
    wrong = np.flatnonzero(~np.diagonal(tried.equal)[:count])
    row, column = (wrong[0], wrong[0]) if wrong.size else np.argwhere(~tried.equal)[0]
    directed = bool(wrong.size)
    asks = vectors.probes[row].asks if directed else ""
    return Element(
        row=vectors.name_of(int(row)),
        column=vectors.name_of(int(column)),
        asks=asks,
        device=number(float(measured[row, column])),
        model=number(float(tried.result[row, column])),
    )


def read_only(tensors: str, message: str) -> TensorsReport:
    """Return the report of tensors that the device refused."""
    none: tuple[Reading, ...] = ()
    return TensorsReport(tensors=tensors, device_error=message, readings=none)
