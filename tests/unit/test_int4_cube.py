"""Products of int4 from Python: a kernel, what a debugger shows of it, and what checkers find."""

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

CHIP = get_product("910b")


@kernel(kind="cube")
def product(core, a: In, b: In, c: Out, turned):
    """A product of 16 x 128 x 64, A of two fractals along k; B as squares of [k, n], or as fractals of L0B."""
    l1a, l1b = core.alloc(TPosition.A1, "int8", 1024), core.alloc(TPosition.B1, "int8", 4096)
    l0a, l0b = core.alloc(TPosition.A2, "int8", 1024), core.alloc(TPosition.B2, "int8", 4096)
    l0c = core.alloc(TPosition.CO1, "int32", 1024)
    core.data_copy(l1a, a, 1024)
    core.data_copy(l1b, b, 4096)
    core.set_flag(Pipe.MTE2, Pipe.MTE1, 0)
    core.wait_flag(Pipe.MTE2, Pipe.MTE1, 0)
    core.load_2d(l0a, l1a, 0, 2, 1, 0)
    if turned:
        core.load_transpose_int4(l0b, l1b, 0, 2, 1, 3, 0)
    else:
        core.load_2d(l0b, l1b, 0, 8, 1, 0)
    core.set_flag(Pipe.MTE1, Pipe.M, 0)
    core.wait_flag(Pipe.MTE1, Pipe.M, 0)
    core.mmad_int4(l0c, l0a, l0b, 16, 64, 128)
    core.set_flag(Pipe.M, Pipe.FIX, 0)
    core.wait_flag(Pipe.M, Pipe.FIX, 0)
    core.fixpipe(c, l0c, 16, 64, 16, 64, nz2nd=True)
    for tensor in (l1a, l1b, l0a, l0b, l0c):
        core.free(tensor)


def _packed(matrix):
    return ((matrix[..., ::2] & 15) | (matrix[..., 1::2] & 15) << 4).astype(np.uint8).view(np.int8)


def _operands(turned):
    rng = np.random.default_rng(6)
    a, b = rng.integers(-8, 8, (16, 128)), rng.integers(-8, 8, (128, 64))
    fractals = _packed(a).reshape(16, 2, 32).transpose(1, 0, 2)
    lines = _packed(b) if turned else _packed(b.T).reshape(64, 2, 32).transpose(1, 0, 2)
    return a, b, (np.ascontiguousarray(fractals), np.ascontiguousarray(lines))


@pytest.mark.parametrize("turned", [0, 1])
def test_kernel_in_python_multiplies_both_ways(turned):
    a, b, given = _operands(turned)
    c = np.zeros((16, 64), np.int32)
    assert product(*given, c, turned, blocks=1, product="910b").findings == ()
    assert np.array_equal(c, a @ b)


def test_debugger_shows_elements_and_not_the_bytes_they_lie_in():
    a, b, given = _operands(1)
    machine = product.machine(*given, np.zeros((16, 64), np.int32), 1, blocks=1, product="910b")
    while int(machine.row["op"]) != Op.MMAD_INT4:
        machine.step()
    left, right = machine.operands()
    assert (left.role, right.role) == ("reads L0A", "reads L0B")
    assert np.array_equal(left.values, a)
    assert np.array_equal(right.values, b)
    assert np.array_equal(left.fractals, a.reshape(16, 2, 64).transpose(1, 0, 2))
    assert np.array_equal(right.fractals, b.T.reshape(4, 16, 2, 64).transpose(2, 0, 1, 3).reshape(8, 16, 64))


@pytest.mark.parametrize(("k", "kind"), [(64, Kind.READ_UNUSED), (66, Kind.READ_UNINITIALISED)])
def test_what_a_load_takes_behind_the_last_k_is_a_note(k, kind):
    builder, gm = ProgramBuilder(CHIP), GlobalMemory()
    gm.add("x", 4096, initialised=True)
    copy = {"src_space": Space.GM, "dst_space": Space.L1, "src": 0, "dtype": Data.INT8, "tensor": 0, "block_count": 1}
    builder.data_copy(dst=0, block_len=16, src_gap=0, dst_gap=0, **copy)
    builder.data_copy(dst=2048, block_len=32, src_gap=0, dst_gap=0, **copy)
    builder.join(Pipe.MTE2, Pipe.MTE1, 0)
    for space, at in ((Space.L0A, 0), (Space.L0B, 2048)):
        builder.load_2d(dst_space=space, dst=0, src_space=Space.L1, src=at, dtype=Data.INT8, repeat=2)
    builder.join(Pipe.MTE1, Pipe.M, 0)
    builder.mmad_int4(dst=0, src_a=0, src_b=0, dtype=Data.INT8, m=16, n=16, k=k, mode=Mode.INIT)
    [found] = run_hazards(builder.launch(gm), CHIP)
    assert (found.kind, found.space, found.start) == (kind, Space.L1, 512)
