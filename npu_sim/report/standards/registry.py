"""All standards by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from npu_sim.errors import NpuSimError
from npu_sim.report.standards.double_benchmark import DOUBLE_BENCHMARKS
from npu_sim.report.standards.legacy import LEGACY
from npu_sim.report.standards.mixed_tolerance import DRAFT, MIXED_TOLERANCE
from npu_sim.report.standards.msprobe_bounds import ABSOLUTE, ACCUMULATIVE
from npu_sim.report.standards.msprobe_peer import BENCHMARK, ULP
from npu_sim.report.standards.msprobe_shares import DUMP, PRECHECK, THOUSANDTH
from npu_sim.report.standards.single_benchmark import SINGLE_BENCHMARK
from npu_sim.report.standards.standard import Standard

_MSPROBE = (PRECHECK, THOUSANDTH, BENCHMARK, ULP, ABSOLUTE, ACCUMULATIVE, DUMP)
_ALL = (MIXED_TOLERANCE, DRAFT, SINGLE_BENCHMARK, *DOUBLE_BENCHMARKS, *_MSPROBE, *LEGACY)
STANDARDS: Mapping[str, Standard] = MappingProxyType({standard.name: standard for standard in _ALL})
"""The current standard first."""
DEFAULT = MIXED_TOLERANCE.name


class StandardNameError(NpuSimError, ValueError):
    """There is no standard of that name."""

    status = 161002


def get_standard(name: str) -> Standard:
    """Return the standard of that name.

    Raises
    ------
    StandardNameError
        There is none.
    """
    if name not in STANDARDS:
        raise StandardNameError(f"Standard must be one of {', '.join(STANDARDS)}, not {name}")
    return STANDARDS[name]
