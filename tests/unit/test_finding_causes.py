"""One missing order is one finding, whatever it shows as; two are two."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches
from tests.cases.fault_subjects import subjects
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


def changed_rows(kind, rows, at):
    """Return rows with one fault."""
    gone = join_rows([rows[:at], rows[at + 1 :]])
    if kind == "gone":
        return gone
    if kind == "late":
        return join_rows([gone[: at + 3], rows[at : at + 1], gone[at + 3 :]])
    changed = rows.copy()
    changed["event"][at] ^= 1
    return changed


def causes_of(call, core, rows):
    """Return the findings of a call in which a core has other rows."""
    run = call.record()
    programs = [rows if other == core else run.rows(other) for other in range(run.launches[0].core_count)]
    execution = call.execution(programs)
    return check_launches(execution.launches, run.product)[1]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["gone", "event"])
def test_a_flag_that_is_gone_or_another_is_named(name, kind):
    call = CALLS[name]()
    run = call.record()
    rows, sites = run.rows(1), run.launches[0].sites
    flags_of = np.flatnonzero((rows["op"] == Op.WAIT_FLAG) | ((rows["op"] == Op.SET_FLAG) & (kind == "gone")))
    named = 0
    for at in np.random.default_rng(11).choice(flags_of, 8, replace=False).tolist():
        (found,) = causes_of(call, 1, changed_rows(kind, rows, at))
        assert found.cause is not None
        named += found.blamed.site == sites[int(rows["site"][at])] and abs(found.blamed.row - at) <= 3
        assert found.document()["likely_cause"].instruction == found.blamed
        assert any(f"likely because {found.blamed.file}" in line for line in found.lines())
        assert found.sarif().places[0].line == found.blamed.line
    assert named >= 7


def test_a_load_store_or_barrier_that_is_gone_is_named():
    call = CALLS["matmul"]()
    rows = call.record().rows(1)
    named = 0
    for op, api in ((Op.PIPE_BARRIER, "PipeBarrier"), (Op.ND2NZ, "DataCopy(Nd2NzParams)"), (Op.FIXPIPE, "Fixpipe")):
        for at in np.flatnonzero(rows["op"] == op).tolist():
            found = causes_of(call, 1, changed_rows("gone", rows, at))
            if not found:  # nothing adds to the sums behind the last barrier of a tile
                assert op == Op.PIPE_BARRIER
                continue
            assert (found[0].blamed.row, found[0].blamed.api) == (at, api)
            assert f" is missing in front of core 1 row {at}, as in core " in found[0].cause.words
            named += 1
    assert named >= 15


def test_what_shows_between_two_rows_names_the_one_that_was_moved_across_them():
    call = CALLS["softmax"]()
    rows = call.record().rows(1)
    at = flags(rows, Op.WAIT_FLAG, Pipe.MTE2, Pipe.V)[0]
    (found,) = causes_of(call, 1, changed_rows("late", rows, at))
    assert "does not stand as in core" in found.cause.words
    assert found.blamed.row == at + 3


def test_what_is_wrong_in_every_tile_and_core_names_no_other():
    call = CALLS["vector_add"]()
    run = call.record()
    programs = [run.rows(core) for core in range(run.launches[0].core_count)]
    line = int(programs[0]["site"][flags(programs[0], Op.WAIT_FLAG, Pipe.V, Pipe.MTE3)[0]])
    kept = [rows[(rows["op"] != Op.WAIT_FLAG) | (rows["site"] != line)] for rows in programs]
    execution = call.execution(kept)
    found = check_launches(execution.launches, run.product)[1]
    assert found
    assert all(finding.cause is None and finding.blamed == finding.instruction for finding in found)


def test_a_store_that_is_too_short_is_named_with_what_is_less():
    call = CALLS["weighted_sums"]()
    rows = call.record().rows(1)
    at = np.flatnonzero((rows["op"] == Op.DATA_COPY) & (rows["dst_space"] == Space.GM))[2]
    changed = rows.copy()
    changed["block_len"][at] = 40
    (found,) = causes_of(call, 1, changed)
    assert (found.violation.kind, found.blamed.core, found.blamed.row) == (Kind.OUTPUT_HOLE, 1, at)
    assert "has block_len 40, not 64 as in core" in found.cause.words


def test_what_an_earlier_launch_did_not_write_is_blamed_on_it():
    subject = next(one for one in subjects() if one.name == "gradients: 1 TransData")
    programs = subject.programs()
    (at,) = np.flatnonzero(programs[1]["dst_space"] == Space.GM)[-1:]
    programs[1] = changed_rows("gone", programs[1], at)
    execution = subject.with_programs(programs)
    found = check_launches(execution.launches, execution.product)[1]
    causes = [one.cause for one in found if one.violation.kind is Kind.READ_UNINITIALISED]
    assert [(cause.launch, cause.instruction.core) for cause in causes if cause is not None] == [(1, 1)]
    assert causes[0].words.endswith("(launch 1 TransData)")
