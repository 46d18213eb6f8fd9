"""A slice of the seeded faults: no effect of order is missed, nothing right is reported, and causes are named."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.op import Op, Pipe
from npu_sim.program.violation import Kind, Violation
from ops.studies.findings import Finding, Instruction
from tests.cases.fault_subjects import subjects
from tests.cases.program_faults import CLASSES, EVERYWHERE, program_fault
from tests.long.fault_harness import run, stands_beside


def test_a_slice_of_the_seeded_faults_is_reported():
    every = subjects()
    chosen = (*every[:2], next(one for one in every if "310P" in one.name and "TransData" in one.name))
    found = run(3, 3 * 24, chosen)
    assert found["missed_effects_of_order"] == found["false_alarms"] == []
    assert set(found["by_class"]) == set(CLASSES)
    assert found["reported"] >= 35
    assert found["first_finding_within_16_rows"]["in one row"] >= 0.9
    assert found["first_finding_names_the_line"]["in one row"] >= 0.7


@pytest.mark.parametrize(
    "kind", ["wait dropped", "wait late", "set twice", "barrier of another pipe", "load too short"]
)
@pytest.mark.parametrize("where", ["", EVERYWHERE])
def test_a_fault_is_in_one_row_or_in_all_that_its_line_makes(kind, where):
    (subject,) = (one for one in subjects() if one.name == "convolution")
    programs = subject.programs()
    fault = program_fault(kind + where, programs, np.random.default_rng(1))
    changed = [core for core, rows in enumerate(programs) if rows.tobytes() != fault.programs[core].tobytes()]
    assert changed == (list(range(len(programs))) if where else [fault.core])
    assert programs[fault.core]["site"][fault.row] == fault.site
    if kind == "wait dropped":
        gone = [len(rows) - len(fault.programs[core]) for core, rows in enumerate(programs)]
        waits = [int(((rows["op"] == Op.WAIT_FLAG) & (rows["site"] == fault.site)).sum()) for rows in programs]
        assert gone == (waits if where else [int(core == fault.core) for core in range(len(programs))])


@pytest.mark.parametrize(("beside", "named"), [(-2, False), (-1, True), (1, True), (2, False)])
def test_a_line_that_is_in_no_tile_is_named_by_those_beside_it(beside, named):
    (subject,) = (one for one in subjects() if one.name == "vector_add")
    programs = subject.programs()
    fault = program_fault("store dropped in every tile", programs, np.random.default_rng(1))
    kept = [at for at in range(len(programs[fault.core])) if programs[fault.core]["pipe"][at] != Pipe.S]
    row = kept[kept.index(fault.row) + beside]
    violation = Violation(kind=Kind.OUTPUT_HOLE, row=-1)
    site = subject.launch.sites[int(programs[fault.core]["site"][row])]
    at = Instruction(core=fault.core, row=row, tile=0, site=site, api="", pipe="")
    assert stands_beside(fault, Finding(launch="", violation=violation, instruction=at), subject, programs) is named


def test_launches_of_operators_and_kernels_of_users_have_faults_put_in():
    names = [subject.name for subject in subjects()]
    assert len(set(names)) == len(names) >= 20
    assert sum(": " in name for name in names) >= 14
