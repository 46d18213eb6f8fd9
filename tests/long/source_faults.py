"""Which of the bugs put into C++ kernels are found, and at their lines.

``python -m tests.long.source_faults [--json FILE]``

Each bug of `tests.cases.source_faults` is checked as ``npu-sim check`` does; what leaves only values wrong is followed
from them as ``npu-sim diverge`` does. Exit code 1 if one is not found, or not at its line, or if a kernel without a bug
has a finding.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim import ascendc
from npu_sim.debug.divergence import diverge_from_golden
from npu_sim.report.explain import Recorder, recording
from tests.cases.source_faults import FAULTS, Fault, Kernel, kernels
from tests.long.recording import parser_of, publish

PATIENCE = 30.0


def lines_of(kernel: Kernel, name: str, text: str, folder: Path) -> tuple[str, set[int]]:
    """Return how what is wrong with a source shows ("" for not at all), and the lines that are named."""
    path = folder / f"{name}.cpp"
    path.write_text(text, encoding="utf-8")
    given, written, golden = kernel.call()
    recorder = Recorder(keeps_tensors=True)
    with recording(recorder):
        run = ascendc.compile(path).check(
            *given, blocks=kernel.blocks, tiling=kernel.tiling, product="Ascend910B2", outputs=[written],
            auto_sync=kernel.auto_sync, silence=PATIENCE,
        )  # fmt: skip
    named = {place.line for found in run.findings for place in (found.line, found.other_line) if place is not None}
    if run.stopped_by is not None:
        return "stopped", named | ({run.stopped_by.line.line} if run.stopped_by.line is not None else set())
    if run.findings:
        return "finding", named
    got = given[written]
    assert isinstance(got, np.ndarray)
    if np.allclose(got, golden, rtol=1e-3, atol=1e-5):
        return "", set()
    (explanation,) = recorder.explanations()
    assert explanation.execution is not None
    (tensor,) = [place.name for place in run.launches[0].gm.tensors if place.is_output]
    found = diverge_from_golden(explanation.execution, {tensor: golden}, budget=1e4)
    return "values", {place.source.line for place in found.chain if place.source is not None}


def judge(fault: Fault, given: dict[str, Kernel], folder: Path) -> dict[str, Any]:
    """Return what became of one bug."""
    kernel = given[fault.kernel]
    text, wanted = fault.apply(kernel.text)
    how, named = lines_of(kernel, fault.kernel, text, folder)
    return {
        "kernel": fault.kernel, "kind": fault.kind, "edit": fault.old.strip(), "found_by": how,
        "at_line": bool(named & wanted), "lines": sorted(named), "wanted": sorted(wanted),
    }  # fmt: skip


def main() -> int:
    options = parser_of("tests.long.source_faults", __doc__).parse_args()
    given = kernels()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clean = {one: lines_of(kernel, one, kernel.text, folder)[0] for one, kernel in given.items()}
        results = [judge(fault, given, folder) for fault in FAULTS]
    missed = [result for result in results if not result["found_by"] or not result["at_line"]]
    publish(
        "python -m tests.long.source_faults",
        {
            "bugs": len(results),
            "found": sum(bool(result["found_by"]) for result in results),
            "at_their_lines": sum(result["at_line"] for result in results),
            "by": Counter(result["found_by"] for result in results),
            "findings_without_a_bug": {one: how for one, how in clean.items() if how},
            "missed": missed,
        },
        options.json,
    )
    return int(bool(missed) or any(clean.values()))


if __name__ == "__main__":
    raise SystemExit(main())
