"""What a core finds in its buffers: poison where the options or the launch ask for it, never another core's memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ops
from npu_sim.accumulation import SERIAL
from npu_sim.engines import execute_turns
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.kit import Spare
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Pipe, Space
from npu_sim.memory.core import POISON_BYTE, CoreMemory
from npu_sim.products import get_product
from tests.unit.small_launches import launch_of, set_flag, wait_flag

CHIP = get_product("310p")
OPTIONS = ExecuteOptions(accumulation=SERIAL)


def fill(value):
    """Fill 32 bytes of UB."""
    return lambda rows, n: emit.emit_duplicate(rows, n, 0, Data.FP16, 16, value, 0, 0)


def store(block):
    """Copy these 32 bytes of UB to a block of GM."""
    return lambda rows, n: emit.emit_data_copy(
        rows, n, Space.GM, 32 * block, Space.UB, 0, 1, 1, 0, 0, Data.FP16, 0, 0, 0
    )


def storing(block, *, first=None):
    """Return the rows that store a block, after a fill if ``first`` is a value."""
    written = [] if first is None else [fill(first), set_flag(Pipe.V, Pipe.MTE3), wait_flag(Pipe.V, Pipe.MTE3)]
    return [*written, store(block)]


def stored(launch, options):
    """Return the value of every block of GM after the launch; -1: poison."""
    launch.gm.arena[:] = 0
    execute(launch, CHIP, options)
    blocks = launch.gm.arena[:128].reshape(4, 32)
    assert (blocks == np.tile(blocks[:, :2], 16)).all()
    return [int(block.view(np.int16)[0]) for block in blocks]


@pytest.mark.parametrize("order", ["program", 3])
def test_poison_covers_what_every_other_core_and_phase_left(order):
    # both cores write their UB in phase 0, core 1 behind its store; what is stored in phase 1 nobody wrote there
    def program(core, phase):
        rows = storing(2 * phase + core, first=77 if core == phase == 0 else None)
        if core == 1 and phase == 0:
            rows += [set_flag(Pipe.MTE3, Pipe.V), wait_flag(Pipe.MTE3, Pipe.V), fill(55)]
        return rows

    launch = replace(launch_of(program, cores=2, phases=2, gm_bytes=128), trusted=True)
    assert POISON_BYTE == 0xFF
    assert stored(launch, replace(OPTIONS, poison=True, order=order)) == [77, -1, -1, -1]
    # a core keeps what it has, unless the launch says that it needs nothing of it
    assert stored(replace(launch, trusted=False), replace(OPTIONS, poison=True, order=order)) == [77, -1, 77, 55]


def test_launch_that_is_not_trusted_starts_on_poison_whatever_ran_before():
    execute(launch_of(lambda core, phase: storing(0, first=77), gm_bytes=128), CHIP, OPTIONS)
    assert stored(launch_of(lambda core, phase: storing(1), gm_bytes=128), OPTIONS) == [0, -1, 0, 0]


def test_memory_is_kept_for_cores_of_the_same_kind_only():
    buffers, small, large = Spare(CoreMemory.for_core), get_product("910b").core, get_product("910").core
    memory = buffers.take(small)
    buffers.give_back(small, memory)
    other = buffers.take(large)
    assert other is not memory
    assert (other.l1.size, other.ub.size, other.l0c.size * 4) == (large.l1_bytes, large.ub_bytes, large.l0c_bytes)
    assert buffers.take(small) is memory
    assert buffers.take(small) is not memory
    many = [buffers.take(small) for _ in range(buffers.limit + 3)]
    for one in many:
        buffers.give_back(small, one)
    kept = [buffers.take(small) for _ in range(buffers.limit)]
    assert {id(one) for one in kept} == {id(one) for one in many[3:]}  # the oldest are dropped


def test_log_of_a_core_that_ran_ahead_keeps_the_overflow_mode(monkeypatch):
    # the engine hands a core a new log where none is to spare; Fixpipe reads the mode from the log
    finish = execute_turns.Turns.finish
    monkeypatch.setattr(execute_turns.Turns, "finish", lambda self, core, log: finish(self, core, log) and None)
    one = np.full((8, 16, 8, 8), 300, np.float16)
    result = ops.convolution_backward(
        one, one, np.full((16, 16, 1, 1), 300, np.float16), stride=1, padding=0, dilation=1, product="910b",
        overflow="saturate", output_mask=(True, False, False), threads=1,
    )  # fmt: skip
    assert max(launch.core_count for launch in result.plan.calls.launches) > 1
    assert (result.grad_input == np.float16(65504)).all()
