"""The checkers over calls of weight gradients: every instruction by itself, then their order and bounds.

All launches of a call are checked, in stream order on their one memory: the kernel reads what the conversions wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from npu_sim.engines.buffers import run_buffers
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.spare_bytes import spare_bytes
from npu_sim.errors import InternalError, NpuSimError, ShapeError
from npu_sim.products import Product
from npu_sim.program.finding_codes import CODES
from npu_sim.program.launch import Launch
from npu_sim.program.legality import programs_of, verify_launches
from npu_sim.program.violation import Kind, Violation
from npu_sim.report.beginnings import is_open
from npu_sim.report.record import to_json_text, to_plain
from npu_sim.units import MIB
from ops.common.explain import launch_works
from ops.studies.bank_conflicts import bank_conflicts
from ops.studies.cases import CaseSet, ConvCase, StudyRow, combinations, plan_case, program_name
from ops.studies.convolution_kinds import WEIGHT_GRADIENT_CALL
from ops.studies.findings import EVERYTHING, Finding, Wanted
from ops.studies.grouping import Programs, grouped
from ops.studies.scope import Progress, Refusal
from ops.studies.unneeded import unneeded_barriers

SCHEMA_VERSION = 3
GM_LIMIT_BYTES = 4096 * MIB
MEMORY_PER_GM_BYTE = 2
"""What the order checker remembers about, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLaunch:
    """What was checked: a kernel, the tensors it works on in a call, its cores, phases and instructions."""

    name: str
    works_on: str = ""
    core_count: int
    phase_count: int
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow(StudyRow):
    """What was checked of one layer on one product in one mode, if it is not refused.

    Attributes
    ----------
    launches : tuple of CheckedLaunch
        Empty if refused.
    findings : tuple of Finding
        In the order of the launches; of the static rules first.
    """

    launches: tuple[CheckedLaunch, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The outcome of a check.

    Attributes
    ----------
    source : str
        Where the shapes come from.
    rows : tuple of CheckRow
        Product by product, mode by mode, layer by layer.
    """

    source: str
    rows: tuple[CheckRow, ...]

    @property
    def finding_count(self) -> int:
        """Findings in all rows, advice too."""
        return sum(len(row.findings) for row in self.rows)

    @property
    def checked(self) -> tuple[CheckRow, ...]:
        """Rows that were not refused."""
        return tuple(row for row in self.rows if row.refusal is None)

    @property
    def passed(self) -> bool:
        """Whether something was checked and nothing but advice found; refusals alone prove nothing."""
        worse = (finding.code.severity != "advice" for row in self.rows for finding in row.findings)
        return bool(self.checked) and not any(worse)

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return to_json_text(
            {
                "schema_version": SCHEMA_VERSION,
                "program": program_name(),
                "source": self.source,
                "checked": f"every launch of the {WEIGHT_GRADIENT_CALL}",
                "finding_count": self.finding_count,
                "rows": [
                    _case_document(row)
                    | {"launches": row.launches, "findings": [finding.document() for finding in row.findings]}
                    for row in self.rows
                ],
            }
        )


def _case_document(row: CheckRow) -> dict[str, Any]:
    """Return what identifies a row as plain data."""
    case = row.case
    return {
        "layer": case.name,
        "product": row.product,
        "soc": row.chip.name,
        "cube_math_type": row.cube_math_type,
        **case.facts(),
        "refusal": to_plain(row.refusal),
    }


def run_check(
    cases: CaseSet,
    products: tuple[str, ...],
    cube_math_types: tuple[int, ...],
    *,
    wanted: Wanted = EVERYTHING,
    progress: Progress | None = None,
) -> CheckReport:
    """Check every launch of every case on every product in every mode.

    Parameters
    ----------
    cases : CaseSet
        Shapes.
    products : tuple of str
        SoC versions or series aliases.
    cube_math_types : tuple of int
        0..3.
    wanted : Wanted
        Which findings to keep.
    progress : callable or None
        Called with (combinations done, combinations in all, what comes next).

    Raises
    ------
    ProductError
        If a product is unknown.
    ShapeError
        If the tensors of a case are too large for the checker.

    Notes
    -----
    A refused combination is a row of the report, not an error. Layers that differ in their names only are checked once,
    and calls in which nothing is found once for products that differ in their names and clock only.
    """
    rows: list[CheckRow] = []
    known: dict[tuple[str, int, ConvCase], CheckRow] = {}
    clean: _Clean = {}
    for name, chip, mode, case in combinations(cases, products, cube_math_types, progress):
        key = name, mode, replace(case, name="")
        if key not in known:
            known[key] = _check(case, name, chip, mode, wanted, clean)
        rows.append(replace(known[key], case=case))
    return CheckReport(source=cases.source, rows=tuple(rows))


_Clean = dict[tuple[Any, ...], list[tuple[list[Any], tuple[CheckedLaunch, ...]]]]
"""By what a call launches, for machines on which nothing was found in it: the machine, and what was checked."""
_NAMES = {"name", "series", "series_name", "short_soc_version", "clock_hz", "on_operator_pages", "sources"}
_OF_PLANS = {"dilates_strided_gradients"}


def _machine(chip: Product) -> list[Any]:
    """Return all that the checks of a planned call can depend on of a product."""
    return [getattr(chip, fact.name) for fact in fields(chip) if fact.name not in _NAMES | _OF_PLANS]


def _signature(launches: Sequence[Launch]) -> tuple[Any, ...]:
    """Return what the rows of a call and the memory they work on depend on."""
    what = [
        (launch.name, launch.kernel, launch.params.dtype, launch.params.tobytes(), launch.core_count,
         launch.phase_count, launch.auto_sync, launch.trusted, launch.core_kind, launch.vectors, launch.crosses,
         len(launch.buffers), launch.known)
        for launch in launches
    ]  # fmt: skip
    gm = launches[0].gm if launches else None
    return (*what, gm and (gm.table().tobytes(), *((tensor.name, tensor.is_output) for tensor in gm.tensors)))


def _check(case: ConvCase, product: str, chip: Product, mode: int, wanted: Wanted, clean: _Clean) -> CheckRow:
    try:
        plan = plan_case(case, chip, mode)
    except InternalError:
        raise
    except NpuSimError as error:
        return CheckRow(case=case, product=product, chip=chip, cube_math_type=mode, refusal=Refusal.of(error))
    require_size(case, plan.calls.gm.total_bytes)
    row = CheckRow(case=case, product=product, chip=chip, cube_math_type=mode)
    machine, alike = _machine(chip), clean.setdefault(_signature(plan.calls.launches), [])
    for other, launches in alike:
        if other == machine:
            return replace(row, launches=launches)
    checked, findings = check_launches(plan.calls.launches, chip, wanted)
    works = launch_works(plan.calls.steps)
    launches = tuple(replace(launch, works_on=words) for launch, words in zip(checked, works, strict=True))
    if not findings:
        alike.append((machine, launches))
    return replace(row, launches=launches, findings=findings)


def require_size(case: ConvCase, gm_bytes: int) -> None:
    """Refuse tensors that are too large for the checker.

    Raises
    ------
    ShapeError
        If they are.
    """
    if gm_bytes > GM_LIMIT_BYTES:
        raise ShapeError(
            f"Tensors of {case.name} must take at most {GM_LIMIT_BYTES // MIB} MiB for the checker, "
            f"not {gm_bytes // MIB} MiB"
        )


def check_launches(
    launches: Sequence[Launch], chip: Product, wanted: Wanted = EVERYTHING
) -> tuple[tuple[CheckedLaunch, ...], tuple[Finding, ...]]:
    """Check launches that share their global memory, in stream order.

    Parameters
    ----------
    launches : sequence of Launch
        The kernels.
    chip : Product
        Instruction set and capacities.
    wanted : Wanted
        Which findings to keep.

    Returns
    -------
    (checked launches, findings)
        The findings of `program.verify` (each instruction by itself) and `engines.buffers` first, then those of
        `engines.hazards` that are not the same kind at the same instruction; one for each fault, worst first. Where
        there are none, barriers of a user's own kernels that may go (`ops.studies.unneeded`) and operands that meet in
        banks of UB (`ops.studies.bank_conflicts`). In any case what such a kernel touches behind the end of a tensor
        (`npu_sim.engines.spare_bytes`).
        `Violation.launch` is the number of the launch.
    """
    checked: list[CheckedLaunch] = []
    found: list[Violation] = []
    programs = [programs_of(launch) for launch in launches]
    broken = verify_launches(launches, chip, programs=programs)
    for number, launch in enumerate(launches):
        found += [violation for violation in broken if violation.launch == number]
        found += [replace(violation, launch=number) for violation in run_buffers(launch, chip)]
        checked.append(
            CheckedLaunch(
                name=launch.name,
                core_count=launch.core_count,
                phase_count=launch.phase_count,
                row_count=int(programs[number].row_counts.sum()),
            )
        )
    known = {_place(violation) for violation in found}
    outputs = [tensor.name for tensor in launches[0].gm.tensors if tensor.is_output] if launches else []
    together = run_hazards(launches, chip, outputs=outputs, programs=programs)
    found += [violation for violation in together if violation.left_out or _place(violation) not in known]
    if all(CODES[violation.kind].severity == "advice" for violation in found):
        row_counts = [launch.row_count for launch in checked]
        found += unneeded_barriers(launches, chip, row_counts=row_counts)
        found += bank_conflicts(launches, chip, row_counts=row_counts)
    found += spare_bytes(launches, chip)
    return tuple(checked), grouped(wanted.chosen(found), launches)


def _place(violation: Violation) -> tuple[int, int, int, Kind]:
    return violation.launch, violation.core, violation.row, violation.kind


def known_of_beginnings(launches: Sequence[Launch], findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings that hold whatever follows, for programs of which only the first rows are known."""
    programs = Programs()

    def rows_of(launch: int, core: int) -> np.ndarray:
        return programs.rows(launches[launch], core)

    return tuple(finding for finding in findings if not is_open(finding.violation, rows_of))
