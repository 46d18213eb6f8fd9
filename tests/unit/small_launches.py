"""Small launches for the timeline's tests: programs as tuples of row writers."""

from __future__ import annotations

import dataclasses

import numpy as np

from npu_sim.isa import emit
from npu_sim.isa.op import Data, Mode, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.launch import Launch

GHZ = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Product:
    """What the engine reads of a product."""

    name: str = "TestChip"
    timing_clock_hz: int = GHZ
    l2_bytes: int = 1 << 27
    cost: object = dataclasses.field(default_factory=lambda: get_product("910b").cost)


def launch_of(program, *, cores=1, phases=1, gm_bytes=4096, name="kernel"):
    """Return a launch of ``program(core, phase) -> list of row writers``, one writer for each part of the rows."""

    def kernel(rows, params, core, phase):
        for writer in program(core, phase):
            yield writer(rows, 0)

    gm = GlobalMemory()
    gm.add("x", gm_bytes, initialised=True)
    return Launch(name=name, kernel=kernel, params=np.zeros(1), core_count=cores, phase_count=phases, gm=gm)


def set_flag(source, destination, event=0):
    return lambda r, n: emit.emit_set_flag(r, n, source, destination, event, 0, 0)


def wait_flag(source, destination, event=0):
    return lambda r, n: emit.emit_wait_flag(r, n, source, destination, event, 0, 0)


def barrier(pipe):
    return lambda r, n: emit.emit_pipe_barrier(r, n, pipe, 0, 0)


def copy_in(byte_count=1024):
    return lambda r, n: emit.emit_data_copy(r, n, Space.L1, 0, Space.GM, 0, 1, byte_count // 32, 0, 0, 1, 0, 1, 0)


def load(fractals=32, target=Space.L0A):
    return lambda r, n: emit.emit_load_2d(r, n, target, 0, Space.L1, 0, Data.FP16, 0, fractals, 1, 0, 0, -1, 2, 0)


def mmad(steps, mode=Mode.INIT, tile=0):
    return lambda r, n: emit.emit_mmad(r, n, 0, 0, 0, Data.FP16, 16, 16, 16 * steps, mode, 3, tile)


def muls(repeats):
    return lambda r, n: emit.emit_muls(r, n, 0, 0, Data.FP16, 128 * repeats, 0, 4, 0)


CHAIN = (
    copy_in(1024),
    set_flag(Pipe.MTE2, Pipe.MTE1),
    wait_flag(Pipe.MTE2, Pipe.MTE1),
    load(32),
    set_flag(Pipe.MTE1, Pipe.M),
    wait_flag(Pipe.MTE1, Pipe.M),
    mmad(512),
)


def chain(core, phase):
    return CHAIN
