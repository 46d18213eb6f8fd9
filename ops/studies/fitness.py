"""Whether the gradients of a product and mode are fit for use, in one sentence for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from npu_sim.report.record import counted
from ops.studies.precision_results import GOLDENS, Fit, Fitness, Golden, PrecisionRow

_NAMES_SHOWN = 4
_BY_BOTH: Mapping[Fit, str] = {
    "fit": "fit by both goldens",
    "not fit": "not fit by either golden",
    "not judged": "not judged",
}
FITNESS_LEGEND = (
    "fit: no gradient fails. The rounded golden tells whether the kernel computes what CANN accepts; the original "
    "one whether the mode keeps the gradients of these tensors, casts included, which is what a training needs. Void "
    "gradients are judged by neither. Each error is for the dy of the file, taken as exact: what the layers behind it "
    "would add is not in it (ops.torch.emulate runs the whole backward pass)."
)
"""What is needed to read the sentences."""


def fitness_of(rows: Iterable[PrecisionRow], deciding: Golden) -> tuple[Fitness, ...]:
    """Return what the rows of each product and mode come to, those with the same as one, refused ones last.

    Parameters
    ----------
    rows : iterable of PrecisionRow
        Of a report.
    deciding : {"original", "rounded"}
        Golden that decides; the sentences name it first unless only the other one says "not fit".
    """
    by_mode: dict[tuple[str, str], list[PrecisionRow]] = {}
    for row in rows:
        by_mode.setdefault((row.place, row.mode), []).append(row)
    modes: dict[tuple[str, Fitness], list[str]] = {}
    for (place, mode), own in by_mode.items():
        modes.setdefault((place, _fitness(own, deciding)), []).append(mode)
    places: dict[tuple[tuple[str, ...], Fitness], list[str]] = {}
    for (place, found), numbers in modes.items():
        places.setdefault((tuple(numbers), found), []).append(place)
    every = (replace(found, places=tuple(names), modes=numbers) for (numbers, found), names in places.items())
    worded = [replace(one, words=_words(one, deciding)) for one in every]
    return tuple(sorted(worded, key=lambda one: len(one.refused) == one.gradients))


def _fitness(rows: Sequence[PrecisionRow], deciding: Golden) -> Fitness:
    """Return what the rows of one product and mode come to, without their names and the sentence."""
    results = {row.title: row.result for row in rows if row.result is not None}

    def titles(golden: Golden, outcome: str) -> tuple[str, ...]:
        return tuple(title for title, result in results.items() if result.against(golden).outcome == outcome)

    failing: dict[Golden, tuple[str, ...]] = {golden: titles(golden, "fail") for golden in GOLDENS}
    fits: dict[Golden, Fit] = {
        golden: "not fit" if failing[golden] else "fit" if titles(golden, "pass") else "not judged"
        for golden in GOLDENS
    }
    return Fitness(
        places=(),
        modes=(),
        compute_dtypes=tuple(dict.fromkeys(result.compute_dtype for result in results.values())),
        gradients=len(rows),
        refused=tuple(row.title for row in rows if row.result is None),
        original=fits["original"],
        rounded=fits["rounded"],
        failing_original=failing["original"],
        failing_rounded=failing["rounded"],
        void=titles(deciding, "void"),
        words="",
    )


def _words(one: Fitness, deciding: Golden) -> str:
    """Return "910b mode 2 (fp16): not fit by the original golden: 2 FAIL (a dw, b dw); fit by the rounded..."."""
    modes = f" mode {' '.join(one.modes)}" if one.modes != ("-",) else ""
    where = f"{' '.join(one.places)}{modes}"
    if len(one.refused) == one.gradients:
        return f"{where}: refused"
    where += f" ({' '.join(one.compute_dtypes)})"
    other: Golden = "original" if deciding == "rounded" else "rounded"
    fits: dict[Golden, Fit] = {"original": one.original, "rounded": one.rounded}
    failing: dict[Golden, tuple[str, ...]] = {"original": one.failing_original, "rounded": one.failing_rounded}
    listed = {golden: f": {len(names)} FAIL ({_listed(names)})" if names else "" for golden, names in failing.items()}
    if fits[deciding] == fits[other] and failing[deciding] == failing[other]:
        judged = f"{_BY_BOTH[fits[deciding]]}{listed[deciding]}"
    else:
        # who reads no further than the first words reads the worse of the two
        order = sorted((deciding, other), key=lambda golden: fits[golden] != "not fit")
        judged = "; ".join(f"{fits[golden]} by the {golden} golden{listed[golden]}" for golden in order)
    others = (("void, not judged", one.void), ("refused", one.refused))
    rest = [f"{len(names)} {what} ({_listed(names)})" for what, names in others if names]
    gradients = counted(one.gradients, "gradient")
    return f"{where}: {judged}; {f'of {gradients} ' if rest else gradients}{', '.join(rest)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
