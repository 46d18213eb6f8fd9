"""How a gradient is judged: beside which golden and peer, and again with other tensors where a standard asks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npu_sim.report.precision import element_errors, measure
from npu_sim.report.standards.case_tolerance import tolerance_standard
from npu_sim.report.standards.double_benchmark import error_ratios
from npu_sim.report.standards.recheck import may_be_rechecked, rechecked
from npu_sim.report.standards.registry import get_standard
from npu_sim.report.standards.standard import Evidence, Peer, Standard
from npu_sim.report.ulps import UlpHistogram, UlpMap
from ops.studies.goldens import Goldens
from ops.studies.kinds import Asked, Call, Kind, Run
from ops.studies.layers import AnyLayer, ResultName
from ops.studies.precision_results import Comparison, Golden, StudyOptions
from ops.studies.rounding import cast

_ROW_AXES: dict[ResultName, int] = {"dx": 2, "dw": 1, "db": 0, "y": 2}
"""Leading axes that are the rows of a map: each image's channels, of a weight its first axis, of a bias none."""
_TENSORS: dict[Golden, str] = {"original": "of the call", "rounded": "as they were multiplied"}


def standards_of(layer: AnyLayer, options: StudyOptions) -> tuple[Standard, ...]:
    """Return the standards that judge a layer: those of the study, and others of its own."""
    own = (get_standard(one) if isinstance(one, str) else tolerance_standard(one) for one in layer.standards)
    chosen = [get_standard(name) for name in options.standards]
    return tuple({standard.name: standard for standard in (*chosen, *own)}.values())


def compare(
    golden: Golden, run: Run, goldens: Goldens, options: StudyOptions, *, layer: AnyLayer, kind: Kind, call: Call,
    asked: Asked,
) -> Comparison:  # fmt: skip
    """Return what all standards of ``options`` say of ``run`` against one golden.

    Parameters
    ----------
    golden : {"original", "rounded"}
        Which.
    run : Run
        What ``call`` gave for ``goldens.tensors``.
    goldens : Goldens
        Of that layer and kind.
    options : StudyOptions
        Standards, and how often a failed case is run again.
    layer, kind, call, asked : Layer or PoolingLayer, Kind, Call, Asked
        What was called, to call it again.
    """
    first = _first_look(golden, run, goldens, standards_of(layer, options), kind, asked.chip)
    again = [may_be_rechecked(verdict) for verdict in first.verdicts]
    if not (options.recheck and any(again)) or goldens.rounded(run, asked.chip).lost_tensors:
        return first
    ratios = _ratios(golden, options, layer, kind, call, asked)
    verdicts = [rechecked(one, ratios) if may else one for one, may in zip(first.verdicts, again, strict=True)]
    return Comparison.of(golden, first.error, tuple(verdicts), ulp_histogram=first.ulp_histogram, ulp_map=first.ulp_map)


def _first_look(
    golden: Golden, run: Run, goldens: Goldens, standards: Sequence[Standard], kind: Kind, chip: Any
) -> Comparison:
    """Return the comparison without a re-check, found once for all products and modes that give the same bits."""
    rounded = goldens.rounded(run, chip)
    wanted = goldens.original if golden == "original" else rounded.golden
    bits = hashlib.sha256(np.ascontiguousarray(run.gradient).view(np.uint8).data).digest()
    # the golden by identity: `goldens` keeps it
    key = (
        golden,
        id(wanted),
        run.gradient.dtype,
        bits,
        chip.overflow_mode,
        run.compute_dtype,
        bool(rounded.lost_tensors),
    )
    known = goldens.comparisons.get(key)
    if known is None:
        evidence = _evidence(golden, run, goldens, chip, with_peer=any(one.needs_peer for one in standards))
        known = goldens.comparisons[key] = Comparison.of(
            golden,
            measure(evidence.errors),
            tuple(standard.judge(evidence) for standard in standards),
            ulp_histogram=UlpHistogram.of(evidence.errors),
            ulp_map=UlpMap.of(evidence.errors, run.gradient.shape, _ROW_AXES[kind.gradient]),
        )
    return known


def _evidence(golden: Golden, run: Run, goldens: Goldens, chip: Any, *, with_peer: bool) -> Evidence:
    """Return the evidence. A result multiplied in HF32 is judged by the HF32 row."""
    rounded = goldens.rounded(run, chip)
    wanted, tensors = goldens.original, goldens.tensors
    if golden == "rounded":
        wanted, tensors = rounded.golden, rounded.operands
    errors = element_errors(run.gradient, wanted, overflow=chip.overflow_mode)
    peer = None
    if with_peer:
        made = cast(goldens.peer(tensors), errors.format.name, overflow=chip.overflow_mode)
        peer = Peer(
            name=f"float32 chain over the tensors {_TENSORS[golden]}, rounded once to {errors.format.name}",
            errors=element_errors(made, wanted, overflow=chip.overflow_mode),
        )
    row = "hf32" if run.compute_dtype == "hf32" and errors.format.name == "fp32" else errors.format.name
    return Evidence(errors=errors, row=row, golden=golden, peer=peer, inputs_lost=bool(rounded.lost_tensors))


def _ratios(
    golden: Golden, options: StudyOptions, layer: AnyLayer, kind: Kind, call: Call, asked: Asked
) -> dict[str, list[float]]:
    """Return the ratios of runs on tensors whose elements are drawn anew, with replacement, from those of the layer."""
    found: dict[str, list[float]] = {}
    for number in range(options.recheck):
        rng = np.random.default_rng(number)
        own: Mapping[str, Any] = kind.tensors(layer) or {}
        anew: dict[str, Any] = {name: rng.choice(one.ravel(), one.shape) for name, one in own.items()}
        drawn = replace(layer, **anew)
        goldens = Goldens(drawn, kind, options.dtype, asked.backend)
        run = call.run(drawn, goldens.tensors, asked)
        for name, ratio in error_ratios(_evidence(golden, run, goldens, asked.chip, with_peer=True)).items():
            found.setdefault(name, []).append(ratio)
    return found
