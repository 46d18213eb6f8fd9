"""One missing order is one finding, whatever it shows as; two are two."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.codes import Pipe
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches
from tests.cases.python_kernels import CALLS


def findings_without(call, gone):
    """Return what is found when rows of the first core are left out."""
    run = call.record()
    programs = [run.rows(core) for core in range(run.launches[0].core_count)]
    ends = [0, *(at + 1 for at in sorted(gone))]
    pieces = [programs[0][a:b] for a, b in zip(ends, [*sorted(gone), len(programs[0])], strict=True)]
    execution = call.execution([join_rows(pieces), *programs[1:]])
    return check_launches(execution.launches, run.product)[1]


def flags(rows, op, source, target):
    pipe, peer = (source, target) if op == Op.SET_FLAG else (target, source)
    return np.flatnonzero((rows["op"] == op) & (rows["pipe"] == pipe) & (rows["peer"] == peer)).tolist()


@pytest.mark.parametrize("name", CALLS)
def test_a_dropped_wait_or_set_is_one_finding(name):
    call = CALLS[name]()
    rows = call.record().rows(0)
    assert findings_without(call, []) == ()
    rng = np.random.default_rng(7)
    for op in (Op.WAIT_FLAG, Op.SET_FLAG):
        for at in rng.choice(np.flatnonzero(rows["op"] == op), 5, replace=False).tolist():
            found = findings_without(call, [at])
            assert len(found) == 1, (at, [str(finding.violation) for finding in found])


def test_two_dropped_waits_are_two_findings_and_say_what_else_they_show_as():
    call = CALLS["weighted_sums"]()
    rows = call.record().rows(0)
    loaded = flags(rows, Op.WAIT_FLAG, Pipe.MTE2, Pipe.V)[3]
    summed = flags(rows, Op.WAIT_FLAG, Pipe.V, Pipe.MTE3)[5]
    one, other = findings_without(call, [loaded, summed])
    assert {one.violation.kind, other.violation.kind} == {Kind.SYNC_READ_HAZARD}
    assert {one.instruction.api, other.instruction.api} == {"Max", "DataCopy"}
    for finding in (one, other):
        assert any("ErrorSync3" in text or "ErrorSync4" in text for text in finding.also)
        assert finding.document()["also"] == finding.also
        assert sum("it shows as" in line for line in finding.lines()) == len(finding.also)


def test_a_flag_without_anything_behind_it_stays_a_finding():
    call = CALLS["vector_add"]()
    rows = call.record().rows(0)
    last = flags(rows, Op.WAIT_FLAG, Pipe.V, Pipe.MTE2)[-1]
    (found,) = findings_without(call, [last])
    assert found.violation.kind in (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE)
    assert found.also == ()
