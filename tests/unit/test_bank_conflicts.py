"""Operands that meet in banks of UB are advice, with what they cost; moved apart they cost nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim.authoring import Core, Out, Pipe, TPosition, kernel
from npu_sim.engines.timeline import run_timeline
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches
from tests.cases.python_kernels import CALLS

COUNT, TURNS = 2048, 40
REPEATS = COUNT * 4 // 256


@kernel
def _sums(core: Core, z: Out, apart: int, stride: int) -> None:
    """Sums of two vectors, the second ``apart`` bytes behind the first, and one with blocks ``stride`` apart."""
    one = core.alloc(TPosition.VECCALC, "fp32", COUNT, "one")
    between = core.alloc(TPosition.VECCALC, "int8", apart, "between") if apart else None
    other = core.alloc(TPosition.VECCALC, "fp32", COUNT, "other")
    core.duplicate(one, 1, COUNT)
    core.duplicate(other, 2, COUNT)
    core.pipe_barrier(Pipe.V)
    for _ in range(TURNS):
        core.add(one, one, other, COUNT)
        core.pipe_barrier(Pipe.V)
    core.adds_masked(one, one, 1, 1, dst_blk_stride=stride, src_blk_stride=stride)
    core.set_flag(Pipe.V, Pipe.MTE3, 0)
    core.wait_flag(Pipe.V, Pipe.MTE3, 0)
    core.data_copy(z, one, COUNT)
    for tensor in (one, between, other):
        if tensor is not None:
            core.free(tensor)


def judged(apart, stride=1, product="910b"):
    run = _sums.record(np.empty(COUNT, np.float32), apart, stride, blocks=1, product=product)
    cycles = run_timeline(run.launches[0], run.product).total_cycles
    return cycles, list(check_launches(run.launches, run.product)[1])


@pytest.mark.parametrize("product", ["910b", "310p"])
def test_sources_in_one_bank_group_are_advice_with_the_cycles_that_moving_one_saves(product):
    cycles, found = judged(0, product=product)
    (finding,) = found
    assert (finding.violation.kind, finding.code.severity) == (Kind.BANK_CONFLICT, "advice")
    assert finding.instruction.api == "Add"
    lost, own, without, taken = map(int, re.findall(r"(\d+) ", finding.violation.detail + " "))
    assert (without, taken) == (judged(256, product=product)[0], cycles)
    # a cycle of every repeat, of two in all
    assert lost == TURNS * REPEATS
    assert own > 2 * lost
    assert judged(256, product=product)[1] == []
    assert judged(512, product=product)[1] != []


def test_blocks_of_one_repeat_in_one_bank_group_are_the_same_advice():
    """Eight blocks 16 apart are read one by one; of so few repeats alone nothing is said."""
    assert judged(256, stride=16)[1] == []
    _, found = judged(0, stride=16)
    lost = {finding.instruction.api: finding.violation.detail for finding in found}
    assert list(lost) == ["Add", "Adds"]
    assert " 5 of its 8 " in lost["Adds"]  # an instruction takes 3 cycles at least


def test_kernels_with_errors_get_no_such_advice():
    found = check_launches(*_with_a_race())[1]
    assert Kind.BANK_CONFLICT not in {finding.violation.kind for finding in found}


def _with_a_race():
    @kernel
    def race(core: Core, z: Out) -> None:
        one = core.alloc(TPosition.VECCALC, "fp32", COUNT, "one")
        core.duplicate(one, 1, COUNT)
        for _ in range(TURNS):
            core.add(one, one, one, COUNT)
        core.data_copy(z, one, COUNT)

    run = race.record(np.empty(COUNT, np.float32), blocks=1)
    return run.launches, run.product


@pytest.mark.parametrize("name", CALLS)
def test_the_examples_lose_little_to_them(name):
    execution = CALLS[name]().execution()
    found = check_launches(execution.launches, execution.product)[1]
    assert Kind.BANK_CONFLICT not in {finding.violation.kind for finding in found}
