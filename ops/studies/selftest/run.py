"""The self-test of a file of results."""

from __future__ import annotations

from collections.abc import Callable

from npu_sim.fenv import default_fenv
from ops.studies.selftest.fit import fit, read_only
from ops.studies.selftest.report import SelfTestReport, TensorsReport
from ops.studies.selftest.vectors import TENSORS, Results


@default_fenv
def self_test(results: Results, *, progress: Callable[[int, int, str], None] | None = None) -> SelfTestReport:
    """Find the models that fit a device's results.

    Parameters
    ----------
    results : Results
        From `vectors.load_results`.
    progress : callable or None
        Called with (types done, types in all, what comes next).
    """
    found: list[TensorsReport] = []
    wanted = [name for name in TENSORS if name in results.products or name in results.errors]

    def say(text: str) -> None:
        if progress:
            progress(len(found), len(wanted), text)

    for tensors in wanted:
        if tensors in results.products:
            found.append(fit(tensors, results.products[tensors], say))
        else:
            found.append(read_only(tensors, results.errors[tensors]))
    say("done")
    return SelfTestReport(source=results.source, device=results.device, software=results.software, tensors=tuple(found))
