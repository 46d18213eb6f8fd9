"""What is wrong in every tile alike is led back to a row by the bytes that rows touch."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.codes import Space
from npu_sim.isa.op import Op, Pipe
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches
from tests.cases.fault_subjects import subjects
from tests.cases.program_faults import program_fault
from tests.long.fault_harness import stands_beside

SUBJECTS = {subject.name: subject for subject in subjects()}


class Chosen:
    """Draws a core and the first row that fits."""

    def __init__(self, core, wanted):
        self.core, self.wanted = core, wanted

    def integers(self, end):
        return self.core

    def choice(self, places):
        return next(at for at in places.tolist() if self.wanted(at))


def first_of(name, kind, wanted=lambda rows, at: True, core=0):
    """Return the rows, the row of a fault, and the first finding of a kernel with it."""
    subject = SUBJECTS[name]
    programs = subject.programs()
    fault = program_fault(kind, programs, Chosen(core, lambda at: wanted(programs[core], at)))
    execution = subject.with_programs(fault.programs)
    found = check_launches(execution.launches, execution.product)[1]
    return fault.programs, fault, found[0]


def at_line(subject, fault):
    return SUBJECTS[subject].launch.sites[fault.site]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("matmul", "load too short in every tile", "DataCopy(Nd2NzParams), core {core} row {row}, writes up to L1["),
        ("matmul", "computation too short in every tile", "Mmad, core {core} row {row}, writes up to L0C["),
        ("vector_add", "store too short in every tile", "DataCopy, core {core} row {row}, writes up to GM["),
        (
            "vector_add",
            "load late in every tile",
            "SetFlag, core {core} row {before}, stands in front of row {row} DataCopy",
        ),
        (
            "vector_add",
            "release early in every tile",
            "FreeTensor, core {core} row {row}, stands in front of the last use",
        ),
    ],
)
def test_a_row_that_is_wrong_in_every_tile_is_named(name, kind, words):
    _, fault, found = first_of(name, kind)
    at = found.blamed
    assert found.cause is not None
    assert at.site == at_line(name, fault)
    assert found.cause.words.startswith(words.format(core=at.core, row=at.row, before=at.row - 1))


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        # the one reads more than the other wrote: which of them is wrong, their neighbours say
        ("gradients: 9 Cast", "load too short", "DataCopy, core {core} row {row}, writes up to UB["),
        ("gradients: 9 Cast", "computation too long", "Cast, core {core} row {row}, reads beyond UB["),
        ("gradients: 9 Cast", "computation too short", "Cast, core {core} row {row}, writes up to UB["),
        ("gradients: 9 Cast", "store too long", "DataCopy, core {core} row {row}, reads beyond UB["),
        ("gradients: 1 TransData", "load too short", "DataCopyPad, core {core} row {row}, writes up to UB["),
        ("gradients: 1 TransData", "computation too long", "TransDataTo5HD, core {core} row {row}, reads beyond UB["),
        ("gradients: 1 TransData", "store too long", "DataCopy, core {core} row {row}, reads beyond UB["),
        ("gradients: 0 ReduceSum", "store too long", "DataCopyPad, core {core} row {row}, reads beyond UB["),
    ],
)
def test_of_a_writer_and_a_reader_that_do_not_fit_the_one_that_fits_no_neighbour_is_named(name, kind, words):
    _, fault, found = first_of(name, f"{kind} in every tile")
    at = found.blamed
    assert at.site == at_line(name, fault)
    assert found.cause.words.startswith(words.format(core=at.core, row=at.row))


def test_a_store_that_is_in_no_tile_is_led_back_to_the_result_that_nothing_reads():
    _, fault, found = first_of("vector_add", "store dropped in every tile")
    at = found.blamed
    assert (at.core, at.row, at.api) == (0, fault.row - 1, "WaitFlag")
    assert found.cause.words == (
        f"nothing reads what Add, core 0 row 9, writes: MTE3 waits at core 0 row {at.row} and does nothing behind it"
    )


def test_a_store_that_is_in_no_tile_of_an_earlier_launch_is_blamed_on_that_launch():
    _, fault, found = first_of("gradients: 1 TransData", "store dropped in every tile")
    at = found.blamed
    assert (found.cause.launch, at.row, at.api) == (1, fault.row - 1, "WaitFlag")
    assert found.cause.words.startswith("nothing reads what TransDataTo5HD, core 0 row ")
    assert "(launch 1 TransData)" in found.cause.words


def _second(rows, at):
    """Whether a row is the second of its opcode and its place."""
    same = np.flatnonzero((rows["op"] == rows["op"][at]) & (rows["dst_space"] == rows["dst_space"][at]))
    return len(same) > 1 and at == same[1] and rows["site"][same[0]] != rows["site"][at]


@pytest.mark.parametrize(
    ("name", "kind", "wanted", "words"),
    [
        # named buffers: filled in the order of AllocTensor
        ("vector_add", "load", lambda rows, at: True, "missing in front of"),
        ("vector_add", "load", _second, "missing behind"),
        ("matmul", "load", _second, "missing behind"),
        ("matmul", "copy on the chip", lambda rows, at: True, "missing in front of"),
        ("weighted_sums", "load", lambda rows, at: True, "missing in front of"),
        # others: in the order of the operands of who reads them
        ("gradients: 4 Conv3DBackpropInputV2", "copy on the chip", lambda rows, at: True, "missing in front of"),
        (
            "gradients: 4 Conv3DBackpropInputV2", "copy on the chip",
            lambda rows, at: rows["dst_space"][at] == Space.L0B, "missing behind",
        ),
    ],
)  # fmt: skip
def test_a_row_that_is_in_no_tile_is_missing_beside_its_neighbour(name, kind, wanted, words):
    before = SUBJECTS[name].programs()
    _, fault, found = first_of(name, f"{kind} dropped in every tile", wanted)
    assert found.violation.kind is Kind.READ_UNINITIALISED
    assert stands_beside(fault, found, SUBJECTS[name], before)
    assert words in found.cause.words


def _is_any(rows, at):
    return True


def _of_pipe(pipe):
    """Whether a row is a flag of this pipe in front of FreeTensor, or that FreeTensor."""

    def is_it(rows, at):
        flag = at if rows["op"][at] == Op.SET_FLAG else at - 1
        return rows["pipe"][flag] == pipe and rows["op"][flag] == Op.SET_FLAG and rows["op"][flag + 1] == Op.FREE_TENSOR

    return is_it


@pytest.mark.parametrize(
    ("name", "kind", "wanted", "words"),
    [
        ("gradients: 2 MemSet", "computation", _is_any, "V writes nothing of it in front of core 0 row 0"),
        ("softmax", "copy on the chip", _is_any, "V does nothing between PipeBarrier, row "),
        ("gradients: 4 Conv3DBackpropInputV2", "store", _is_any, ": FIX waits at core 0 row "),
        ("vector_add", "release", _of_pipe(Pipe.V), ", SetFlag behind the last use, row "),
        ("vector_add", "release", _of_pipe(Pipe.MTE3), ", SetFlag behind the last use, row "),
        ("vector_add", "set", _of_pipe(Pipe.V), ", which gives the buffer back"),
        ("vector_add", "set", _of_pipe(Pipe.MTE3), ", which gives the buffer back"),
    ],
)
def test_a_line_that_is_in_no_tile_is_missing_beside_what_it_was_for(name, kind, wanted, words):
    before = SUBJECTS[name].programs()
    _, fault, found = first_of(name, f"{kind} dropped in every tile", wanted)
    # another row of its line is still there, or its neighbours are
    assert found.blamed.site == at_line(name, fault) or stands_beside(fault, found, SUBJECTS[name], before)
    assert words in found.cause.words


def test_what_fills_a_buffer_without_flags_is_not_looked_for_on_other_pipes():
    _, _, found = first_of(
        "softmax", "computation dropped in every tile", lambda rows, at: rows["op"][at + 2] == Op.BRCB
    )
    assert found.violation.kind is Kind.READ_UNINITIALISED
    assert found.cause is None or "fills nothing of it" not in found.cause.words


def test_a_load_that_is_in_no_tile_is_missing_where_its_pipe_waits_and_does_nothing():
    """The reader did other work behind its wait."""
    name = "gradients: 5 TransData"
    _, fault, found = first_of(name, "load dropped in every tile")
    assert stands_beside(fault, found, SUBJECTS[name], SUBJECTS[name].programs())
    assert " does nothing up to row " in found.cause.words


def test_a_release_that_is_in_no_tile_is_due_behind_the_last_use():
    _, fault, found = first_of("softmax", "release dropped in every tile", lambda rows, at: rows["value"][at] == 0)
    at = found.blamed
    assert found.cause.words == f"FreeTensor is missing behind core {at.core} row {at.row}, the last use"
    assert at.api != "AllocTensor"
    assert found.instruction.row < at.row < fault.row


def test_a_flag_without_its_other_end_names_where_that_belongs():
    programs, fault, found = first_of("gradients: 8 TransData", "set dropped in every tile", in_tile(Op.SET_FLAG))
    at = found.blamed
    pipe = int(SUBJECTS["gradients: 8 TransData"].programs()[0]["pipe"][fault.row])
    assert "SetFlag<" in found.cause.words
    assert f"is missing behind core 0 row {at.row}" in found.cause.words
    assert int(programs[0]["pipe"][at.row]) == pipe
    assert abs(fault.row - at.row) <= 4


def test_a_set_that_nothing_needs_is_waited_for_at_the_end():
    _, fault, found = first_of(
        "gradients: 8 TransData", "wait dropped in every tile", lambda rows, at: rows["tile"][at] < 0
    )
    assert "is missing at the end of core 0" in found.cause.words
    assert abs(fault.row - found.blamed.row) <= 4


def test_a_wait_for_a_buffer_that_was_free_from_the_begin_belongs_before_the_row_that_fills_it():
    _, _, found = first_of("gradients: 3 TransData", "wait dropped in every tile", lambda rows, at: at == 26)
    at = found.blamed
    assert found.violation.kind is Kind.SYNC_DUPLICATE
    assert found.cause.words == f"V WaitFlag<MTE3_V>(0) is missing in front of core 0 row {at.row}"
    assert (at.row, at.site) == (26, "GATHER")


@pytest.mark.parametrize(("kind", "row"), [("set of another pipe", 1), ("wait of another pipe", 26)])
def test_a_flag_on_another_pipe_is_named_itself(kind, row):
    name = "gradients on 310P: 1 TransData"
    programs, fault, found = first_of(name, f"{kind} in every tile", lambda rows, at: at == row)
    blamed = programs[found.blamed.core][found.blamed.row]
    assert found.blamed.site == at_line(name, fault)
    assert [blamed[name] for name in ("op", "pipe")] == [programs[0][name][fault.row] for name in ("op", "pipe")]


def test_a_state_that_is_left_on_names_the_last_row_that_it_is_for():
    _, fault, found = first_of("split_k", "atomic off dropped in every tile")
    assert found.cause.words.endswith("is the last one that it is for")
    assert 0 < fault.row - found.blamed.row < 8


@pytest.mark.parametrize(
    ("name", "kind", "row", "words"),
    [
        ("gradients on 310P: 5 MemSet", "set with another event", 1, "SetFlag, {at}, has event 1, WaitFlag, row 2"),
        ("pooling: 0 TransData", "set with another event", 19, "SetFlag, {at}, has event 1, WaitFlag, row 20, event 0"),
        ("weighted_sums", "set with another event", 7, "SetFlag, {at}, has event 1, WaitFlag, row 8, event 0"),
        ("gradients on 310P: 0 TransData", "wait with another event", 54, "core 0 row 54 does it on MTE2 with event 1"),
        ("gradients: 0 ReduceSum", "set of another pipe", 8, "SetFlag, {at}, is not on MTE2"),
        ("gradients on 310P: 3 TransData", "wait of another pipe", 10, "WaitFlag, {at}, is not on MTE3"),
        ("softmax", "set early", 5, "SetFlag, {at}, stands in front of row 5 DataCopy"),
        ("softmax", "load late", 4, "SetFlag, core 0 row 4, stands in front of row 7 DataCopy"),
        ("matmul", "wait late", 10, "WaitFlag, {at}, stands behind row 12 LoadData(LoadData2DParams)"),
        ("gradients on 310P: 1 TransData", "load late", 6, "DataCopy, {at}, stands behind row 8, which waited for its"),
        ("gradients on 310P: 1 TransData", "barrier of another pipe", 25, "PipeBarrier, {at}, is on M"),
        ("weighted_sums", "barrier late", 12, "PipeBarrier, {at}, stands behind row 12 Sub"),
        ("weighted_sums", "barrier early", 12, "PipeBarrier, {at}, stands in front of row 12 Mul"),
        ("softmax", "barrier late", 11, "PipeBarrier, {at}, stands behind row 11 Brcb"),
        (
            "gradients: 0 ReduceSum",
            "load late",
            7,
            "DataCopyPad, {at}, stands behind row 9, which needs what it writes",
        ),
        ("softmax", "computation late", 10, "WholeReduceMax, {at}, stands behind row 11, which needs what it writes"),
        ("convolution", "computation late", 20, "Mmad, {at}, stands behind the flag and FreeTensor for its buffer"),
    ],
)
def test_what_stands_on_the_wrong_side_or_has_another_event_is_named_itself(name, kind, row, words):
    _, fault, found = first_of(name, f"{kind} in every tile", lambda rows, at: at == row)
    at = found.blamed
    assert (at.site, abs(at.row - row) <= 3) == (at_line(name, fault), True)
    assert found.cause.words.startswith(words.format(at=f"core 0 row {at.row}"))


@pytest.mark.parametrize(
    ("name", "kind", "row", "wait"),
    [
        ("gradients: 1 TransData", "load dropped", 3, 2),
        ("gradients: 8 TransData", "load dropped", 4, 3),
        ("matmul", "computation dropped", 30, 29),
    ],
)
def test_a_pipe_that_waits_and_does_nothing_is_named_where_it_waits(name, kind, row, wait):
    _, _, found = first_of(name, f"{kind} in every tile", lambda rows, at: at == row)
    programs = SUBJECTS[name].programs()
    assert found.blamed.site == SUBJECTS[name].launch.sites[int(programs[0]["site"][wait])]
    assert f"waits at core 0 row {found.blamed.row} and does nothing up to row " in found.cause.words


def test_what_is_right_about_other_bytes_is_not_blamed():
    _, _, found = first_of("matmul", "load dropped in every tile")
    assert found.cause is None or not found.cause.words.startswith("DataCopy")


def in_tile(op):
    def wanted(rows, at):
        return bool(rows["tile"][at] >= 0) and rows["op"][at] == op and at > np.argmax(rows["tile"] >= 0) + 2

    return wanted
