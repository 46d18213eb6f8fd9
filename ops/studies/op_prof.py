"""Launches as a folder of msOpProf: one folder a launch, by the name of its kernel and its number among those."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.report.op_prof import op_prof_files
from ops.studies.launch_trace import TracedLaunch, require_traceable


def folder_name(now: datetime) -> str:
    """Return the name that msOpProf gives a folder: a time, and letters that tell apart those of one second."""
    return f"OPPROF_{now:%Y%m%d%H%M%S}_NPUSIM{now:%f}"


def op_prof_folder(launches: Sequence[TracedLaunch], cores: tuple[int, ...] | None = None) -> dict[str, bytes]:
    """Return the files of launches by their paths, see `npu_sim.report.op_prof`.

    Parameters
    ----------
    launches : sequence of TracedLaunch
        At least one.
    cores : tuple of int or None
        Cores that get files and lines; None: all.

    Raises
    ------
    OperatorError
        As `ops.studies.launch_trace.trace_launches`.
    """
    require_traceable(launches, cores)
    seen: Counter[str] = Counter()
    files: dict[str, bytes] = {}
    for one in launches:
        options = TimelineOptions(span_cores=cores, inputs_in_l2=one.inputs_in_l2)
        timed = run_timeline(one.launch, one.product, spans=True, options=options)
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", one.launch.name)
        place, seen[name] = f"{name}/{seen[name]}", seen[name] + 1
        if timed.spans:
            own = op_prof_files(timed, one.launch, is_split=one.product.core.is_split)
            files |= {f"{place}/{path}": content for path, content in own.items()}
    return files
