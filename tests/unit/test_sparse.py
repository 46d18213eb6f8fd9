"""Sparse weights from Python: a kernel of the two instructions, what a debugger shows, and what checkers find."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.authoring import In, Out, kernel
from npu_sim.engines.hazards import run_hazards
from npu_sim.isa.op import Data, Mode, Op, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.positions import TPosition
from npu_sim.program.violation import Kind
from tests.oracles.sparse import compressed, fractals_of, index_bytes_of

CHIP = get_product("910b")


@kernel(kind="cube")
def product(core, a: In, b: In, idx: In, c: Out):
    """A product of 16 x 96 x 16: A of three fractals along k, B of two with a half of its elements."""
    l1a, l1b = core.alloc(TPosition.A1, "int8", 1536), core.alloc(TPosition.B1, "int8", 1024)
    l1i = core.alloc(TPosition.B1, "uint8", 256)
    l0a, l0b = core.alloc(TPosition.A2, "int8", 1536), core.alloc(TPosition.B2, "int8", 1024)
    l0c = core.alloc(TPosition.CO1, "int32", 256)
    for to, what, count in ((l1a, a, 1536), (l1b, b, 1024), (l1i, idx, 256)):
        core.data_copy(to, what, count)
    core.set_flag(Pipe.MTE2, Pipe.MTE1, 0)
    core.wait_flag(Pipe.MTE2, Pipe.MTE1, 0)
    core.load_2d(l0a, l1a, 0, 3, 1, 0)
    core.load_sparse(l0b, l1b, l1i, 0, 2)
    core.set_flag(Pipe.MTE1, Pipe.M, 0)
    core.wait_flag(Pipe.MTE1, Pipe.M, 0)
    core.mmad_sparse(l0c, l0a, l0b, 16, 16, 96)
    core.set_flag(Pipe.M, Pipe.FIX, 0)
    core.wait_flag(Pipe.M, Pipe.FIX, 0)
    core.fixpipe(c, l0c, 16, 16, 16, 16, nz2nd=True)
    for tensor in (l1a, l1b, l1i, l0a, l0b, l0c):
        core.free(tensor)


@pytest.fixture
def operands():
    rng = np.random.default_rng(4)
    a, b = rng.integers(-128, 128, (16, 96), np.int8), rng.integers(-128, 128, (96, 16), np.int8)
    b.reshape(24, 4, 16)[:, 1:3] = 0
    stored, indices = compressed(b)
    fractals = np.ascontiguousarray(a.reshape(16, 3, 32).transpose(1, 0, 2))
    return a, b, (fractals, fractals_of(stored).view(np.int8), index_bytes_of(indices)), stored, indices


def test_kernel_in_python_multiplies_what_was_compressed(operands):
    a, b, given, _, _ = operands
    c = np.zeros((16, 16), np.int32)
    assert product(*given, c, blocks=1, product="910b").findings == ()
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64))


def test_debugger_shows_the_stored_weights_and_their_indices(operands):
    a, _, given, stored, indices = operands
    machine = product.machine(*given, np.zeros((16, 16), np.int32), blocks=1, product="910b")
    while int(machine.row["op"]) != Op.MMAD_SPARSE:
        machine.step()
    shown = {one.role: one.values for one in machine.operands()}
    assert sorted(shown) == ["reads IDX", "reads L0A", "reads L0B"]
    assert np.array_equal(shown["reads L0A"], a)
    assert np.array_equal(shown["reads L0B"], stored)
    assert np.array_equal(shown["reads IDX"], indices)


def _findings(*, k=64, index_bytes=128, weight_blocks=16, waits=True, again=False, plain=False):
    """Return what is found of a product over ``k`` from L1, of which so much is filled."""
    builder, gm = ProgramBuilder(CHIP), GlobalMemory()
    gm.add("x", 8192, initialised=True)
    copy = {"src_space": Space.GM, "dst_space": Space.L1, "src": 0, "dtype": Data.INT8, "tensor": 0, "block_count": 1}
    for to, blocks in ((0, 32), (4096, weight_blocks), (8192, index_bytes // 32)):
        if blocks:
            builder.data_copy(dst=to, block_len=blocks, src_gap=0, dst_gap=0, **copy)
    builder.join(Pipe.MTE2, Pipe.MTE1, 0)
    builder.load_2d(dst_space=Space.L0A, dst=0, src_space=Space.L1, src=0, dtype=Data.INT8, repeat=2)
    load = {"src": 4096, "index": 8192, "dtype": Data.INT8, "start_index": 0, "repeat": 1}
    if plain:
        builder.load_2d(dst_space=Space.L0B, dst=0, src_space=Space.L1, src=4096, dtype=Data.INT8, repeat=1)
    else:
        builder.load_sparse(dst=0, **load)
    if waits:
        builder.join(Pipe.MTE1, Pipe.M, 0)
    builder.mmad_sparse(dst=0, src_a=0, src_b=0, dtype=Data.INT8, m=16, n=16, k=k, mode=Mode.INIT)
    if again:
        builder.load_sparse(dst=0, **load)
    return {(found.kind, found.space) for found in run_hazards(builder.launch(gm), CHIP)}


def test_checkers_know_the_buffer_of_indices():
    assert _findings() == set()
    assert (Kind.READ_UNINITIALISED, Space.L1) in _findings(index_bytes=96)
    assert (Kind.READ_UNINITIALISED, Space.IDX) in _findings(plain=True)
    assert {space for _, space in _findings(waits=False)} >= {Space.L0B, Space.IDX}
    assert {space for _, space in _findings(again=True)} == {Space.L0B, Space.IDX}
