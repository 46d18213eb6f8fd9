"""Small mixed launches: rows of Cube and vector cores that hand blocks of GM to each other."""

from __future__ import annotations

import dataclasses

import numpy as np

from npu_sim.isa import emit
from npu_sim.isa.op import Data, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.launch import Launch, SourceLine

BLOCK_BYTES = 32


def sets(mode, flag, pipe=Pipe.MTE3, site=0):
    return lambda r, n: emit.emit_cross_core_set_flag(r, n, mode, pipe, flag, site, 0)


def waits(flag, site=0):
    return lambda r, n: emit.emit_cross_core_wait_flag(r, n, flag, site, 0)


def posts(word, pipe=Pipe.MTE3, site=0):
    return lambda r, n: emit.emit_set_signal(r, n, pipe, word, site, 0)


def sees(word, count=1, site=0):
    return lambda r, n: emit.emit_wait_signal(r, n, word, count, site, 0)


def fill(value, at=0, site=0):
    """Fill 32 bytes of UB."""
    bits = int(np.float32(value).view(np.int32))
    return lambda r, n: emit.emit_duplicate(r, n, at, Data.FP32, 8, bits, site, 0)


def store(block, at=0, site=0):
    """Copy 32 bytes of UB to a block of GM."""
    return lambda r, n: emit.emit_data_copy(r, n, Space.GM, 32 * block, Space.UB, at, 1, 1, 0, 0, Data.FP32, 0, site, 0)


def load(block, at=0, site=0):
    """Copy a block of GM to 32 bytes of UB."""
    return lambda r, n: emit.emit_data_copy(r, n, Space.UB, at, Space.GM, 32 * block, 1, 1, 0, 0, Data.FP32, 0, site, 0)


def load_l1(block, at=0, site=0):
    """Copy a block of GM to 32 bytes of L1."""
    return lambda r, n: emit.emit_data_copy(r, n, Space.L1, at, Space.GM, 32 * block, 1, 1, 0, 0, Data.FP32, 0, site, 0)


def store_l1(block, at=0, site=0):
    """Copy 32 bytes of L1 to a block of GM."""
    return lambda r, n: emit.emit_data_copy(r, n, Space.GM, 32 * block, Space.L1, at, 1, 1, 0, 0, Data.FP32, 0, site, 0)


def hand(source, destination, event=0):
    def write(r, n):
        n = emit.emit_set_flag(r, n, source, destination, event, 0, 0)
        return emit.emit_wait_flag(r, n, source, destination, event, 0, 0)

    return write


def barrier(pipe):
    return lambda r, n: emit.emit_pipe_barrier(r, n, pipe, 0, 0)


def add(dst, src0, src1):
    return lambda r, n: emit.emit_add(r, n, dst, src0, src1, Data.FP32, 8, 0, 0)


def mixed(program, *, blocks=2, vectors=2, phases=1, gm_blocks=64, initialised=True, chunk=1, **others):
    """Return a mixed launch of ``program(core, phase) -> list of row writers``; ``chunk`` writers at a time."""

    def kernel(rows, params, core, phase):
        writers = program(core, phase)
        for first in range(0, len(writers), chunk):
            n = 0
            for writer in writers[first : first + chunk]:
                n = writer(rows, n)
            yield n

    gm = GlobalMemory()
    gm.add("x", BLOCK_BYTES * gm_blocks, initialised=initialised)
    lines = {site: SourceLine("mix.py", site, "mix") for site in range(1, 100)}
    return Launch(
        name="mix", kernel=kernel, params=np.zeros(1), core_count=blocks * (1 + vectors), phase_count=phases, gm=gm,
        vectors=vectors, lines=lines, **others,
    )  # fmt: skip


def relay(rounds, blocks=2, vectors=2):
    """Return a program in which vector cores and their Cube core hand blocks back and forth, ``rounds`` times.

    Each vector core of a block adds 1 to what it finds and stores it, the Cube core moves all of it on through L1, and
    so on: at the end block ``i`` of a vector core holds what it held before, plus ``rounds``.
    """

    def program(core, phase):
        rows = []
        if core < blocks:
            for _ in range(rounds):
                rows.append(waits(1))
                for i in range(vectors):
                    own = core * vectors + i
                    rows += [load_l1(16 + own, at=64 * i), hand(Pipe.MTE2, Pipe.MTE3), store_l1(own, at=64 * i)]
                    rows.append(hand(Pipe.MTE3, Pipe.MTE2))
                rows.append(sets(2, 2))
            return rows
        own = core - blocks
        rows = [fill(1, 64), barrier(Pipe.V)]
        for number in range(rounds):
            rows += [waits(2)] * (number > 0)
            rows += [load(own), hand(Pipe.MTE2, Pipe.V), add(128, 0, 64), hand(Pipe.V, Pipe.MTE3)]
            rows += [store(16 + own, 128), hand(Pipe.MTE3, Pipe.V), hand(Pipe.V, Pipe.MTE2), sets(2, 1)]
        return [*rows, waits(2)]

    return program


def replay(programs, **others):
    """Return the mixed launch of issued rows by core."""

    def kernel(rows, params, core, phase):
        for at in range(len(programs[core])):
            rows[:1] = programs[core][at : at + 1]
            yield 1

    blocks = len(programs) // (1 + others.get("vectors", 2))
    return dataclasses.replace(mixed(lambda core, phase: [], blocks=blocks, **others), kernel=kernel)
