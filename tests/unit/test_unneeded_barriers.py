"""A barrier that orders nothing is advice, with the cycles that it costs; one that is needed never is."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim.authoring import Core, In, Out, Pipe, TBuf, TPipe, TPosition, TQue, kernel
from npu_sim.engines.timeline import run_timeline
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches
from tests.cases.python_kernels import CALLS


@kernel
def _steps(core: Core, x: In, y: Out, between: Pipe | None, again: Pipe | None, behind: Pipe | None) -> None:
    """y = (x * 2 + 1): one dependency inside the vector pipe, and barriers where the caller wants them."""
    pipe, n = TPipe(core), 512
    source = pipe.init_buffer(TQue(TPosition.VECIN), 2, n * 4)
    result = pipe.init_buffer(TQue(TPosition.VECOUT), 2, n * 4)
    twice = pipe.init_buffer(TBuf(TPosition.VECCALC), n * 4).get("fp32")
    for tile in core.tiles(len(x) // n):
        a = source.alloc_tensor("fp32")
        core.data_copy(a, x[tile * n], n)
        source.enque(a)
        a, b = source.deque("fp32"), result.alloc_tensor("fp32")
        core.muls(twice, a, 2.0, n)
        if between is not None:
            core.pipe_barrier(between)
        if again is not None:
            core.pipe_barrier(again)
        core.adds(b, twice, 1.0, n)
        result.enque(b)
        source.free_tensor(a)
        core.data_copy(y[tile * n], result.deque("fp32"), n)
        if behind is not None:
            core.pipe_barrier(behind)
        result.free_tensor(b)


def judged(*barriers):
    """Return the launch and what the checks say of it."""
    x = np.arange(8 * 512, dtype=np.float32)
    run = _steps.record(x, np.empty_like(x), *barriers, blocks=1)
    return run.launches[0], run.product, check_launches(run.launches, run.product)[1]


def cycles_of(*barriers):
    launch, product, _ = judged(*barriers)
    return run_timeline(launch, product).total_cycles


def test_what_is_needed_is_no_advice():
    assert judged(Pipe.V, None, None)[2] == ()
    (found,) = judged(None, None, None)[2]
    assert found.violation.kind is Kind.BARRIER_READ


def test_a_barrier_that_nothing_needs_costs_what_the_advice_says():
    launch, product, findings = judged(Pipe.V, None, Pipe.ALL)
    (found,) = findings
    assert (found.violation.kind, found.code.severity) == (Kind.BARRIER_UNNEEDED, "advice")
    assert (found.instruction.api, found.instruction.tile) == ("PipeBarrier", 0)
    without, with_it = map(int, re.findall(r"takes (\d+) cycles instead of (\d+)", found.violation.detail)[0])
    assert with_it == run_timeline(launch, product).total_cycles == cycles_of(Pipe.V, None, Pipe.ALL)
    assert without == cycles_of(Pipe.V, None, None) < with_it


def test_of_two_barriers_that_do_the_same_one_may_go():
    _, _, findings = judged(Pipe.V, Pipe.V, None)
    lines = {found.instruction.line for found in findings}
    assert [found.violation.kind for found in findings] == [Kind.BARRIER_UNNEEDED]
    assert len(lines) == 1


def test_a_kernel_with_an_error_gets_no_such_advice():
    found = judged(None, None, Pipe.V)[2]
    assert Kind.BARRIER_READ in {finding.violation.kind for finding in found}
    assert Kind.BARRIER_UNNEEDED not in {finding.violation.kind for finding in found}


@pytest.mark.parametrize("name", CALLS)
def test_the_examples_have_none(name):
    execution = CALLS[name]().execution()
    assert check_launches(execution.launches, execution.product)[1] == ()
