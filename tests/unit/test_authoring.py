"""Kernels in Python: what they record, refuse and show, and at which line."""

from __future__ import annotations

import gc
import inspect
import linecache
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_sim.authoring import Core, In, InOut, Out, Pipe, TBuf, TPipe, TPosition, TQue, TQueBind, kernel
from npu_sim.authoring.core import BUFFER_MARKS
from npu_sim.authoring.methods import emitter_operands, parameters_of, shape_of
from npu_sim.authoring.reference import methods_table
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import BudgetError, NpuSimError, ShapeError, StateError
from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.isa.op import OPS, Op
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind
from npu_sim.report.explain import recording
from npu_sim.report.trace import chrome_trace
from ops.cli.main import main

LENGTH = 64


@kernel
def scaled(core, x: In, y: Out, wrong=""):
    """y = 2.5 x + 1; ``wrong`` names what is wrong."""
    pipe = TPipe(core)
    q = pipe.init_buffer(TQue(TPosition.VECIN), 2, 256)
    o = pipe.init_buffer(TQue(TPosition.VECOUT), 1, 256)
    tmp = pipe.init_buffer(TBuf(), 256)
    a = q.alloc_tensor("fp32")
    core.data_copy(a, x, LENGTH)
    if wrong == "no flag":
        b = a
    else:
        q.enque(a)
        b = q.deque("fp32")
    t = tmp.get("fp32")
    core.muls(t, b, 2.5, LENGTH)
    if wrong == "overrun":
        core.muls(t[32:], a, 2.5, LENGTH)  # overrun
    if wrong == "too wide":
        core.muls(t, a, 2.5, 2**40)  # too wide
    if wrong == "fraction":
        core.muls(t, a, 2.5, 64.5)  # fraction
    if wrong == "types":
        core.add(t, a, a.reinterpret_cast("half"), LENGTH)  # types
    if wrong == "alignment":
        core.muls(t[1:], a, 2.5, 8)  # alignment
    if wrong == "no such pipe":
        core.set_flag(Pipe.M, Pipe.MTE1, 0)  # no such pipe
    if wrong == "writes input":
        core.data_copy(x, a, LENGTH)  # writes input
    if wrong == "enque twice":
        q.enque(a)
        q.enque(a)  # enque twice
    if wrong == "no block":
        q.alloc_tensor("fp32")
        q.alloc_tensor("fp32")  # no block
    if wrong == "deque":
        q.deque("fp32")  # deque
    if wrong == "beyond tensor":
        core.data_copy(a, x[8], LENGTH)  # beyond tensor
    if wrong == "count":
        core.data_copy(a, x, 3)  # count
    if wrong == "other queue":
        o.free_tensor(a)  # other queue
    if wrong == "capacity":
        pipe.init_buffer(TBuf(), 200_000)  # capacity
    if wrong == "position":
        pipe.init_buffer(TQue(TPosition.VECCALC), 2, 256)  # position
    if wrong == "event":
        core.set_flag(Pipe.V, Pipe.MTE3, 9)  # event
    if wrong == "scalar":
        core.muls(t, t, "a", LENGTH)  # scalar
    if wrong == "no tensor":
        core.muls(t, x, 2, LENGTH)  # no tensor
    if wrong == "index":
        core.muls(t[65:], t, 2, 1)  # index
    if wrong != "no flag":
        q.free_tensor(b)
    if wrong == "freed":
        core.adds(t, b, 1, LENGTH)  # freed
    core.pipe_barrier(Pipe.V)
    c = o.alloc_tensor("fp32")
    core.adds(c, t, 1, LENGTH)
    o.enque(c)
    core.data_copy(y, o.deque("fp32"), LENGTH)
    o.free_tensor(c)


LINES, START = inspect.getsourcelines(scaled.__wrapped__)
MISTAKES = [line.partition("  # ")[2].strip() for line in LINES if "  # " in line]


def _x():
    return np.arange(LENGTH, dtype=np.float32)


def _line_of(word):
    return next(START + at for at, line in enumerate(LINES) if line.rstrip().endswith(word))


@pytest.mark.parametrize("product", ["910b", "310p", "910"])
def test_kernel_computes_on_every_series(product):
    y = np.empty(LENGTH, np.float32)
    run = scaled(_x(), y, blocks=1, product=product)
    np.testing.assert_array_equal(y, _x() * 2.5 + 1)
    assert run.findings == ()
    assert run.seconds > 0
    assert run.product == get_product(product)
    assert f"{get_product(product).name}" in repr(run)


@pytest.mark.parametrize("wrong", MISTAKES)
def test_mistake_raises_at_its_line_with_rule_value_and_product(wrong):
    y = np.ones(LENGTH, np.float32)
    with pytest.raises(NpuSimError, match="must") as caught:
        scaled(_x(), y, wrong, blocks=1)
    line = _line_of(f"# {wrong}")
    assert caught.traceback[-1].path != Path(__file__)
    assert [entry.lineno + 1 for entry in caught.traceback if entry.path == Path(__file__)][-1] == line
    if wrong != "index":
        text = str(caught.value)
        assert f"test_authoring.py:{line})" in text
        assert "Ascend910B2" in text
        assert "must" in text
    assert (y == 1).all()


def test_finding_names_the_line_of_both_instructions():
    y = np.empty(LENGTH, np.float32)
    run = scaled(_x(), y, "no flag", blocks=1)
    leak, finding = run.findings
    assert leak.kind is Kind.BUFFER_LEAK
    assert finding.kind is Kind.SYNC_READ_HAZARD
    line = run.launches[0].lines[finding.site]
    assert line.line == _line_of("core.muls(t, b, 2.5, LENGTH)")
    assert line.function.endswith("scaled")
    first = run.launches[0].lines[int(run.rows()[finding.other_row]["site"])]
    assert first.line == _line_of("core.data_copy(a, x, LENGTH)")


def test_buffers_are_marked_where_they_live_and_have_names():
    run = scaled.record(_x(), _x(), blocks=1)
    rows, names = run.rows(), run.launches[0].buffers
    marks = rows[np.isin(rows["op"], (Op.ALLOC_TENSOR, Op.FREE_TENSOR))]
    said = [(Op(mark["op"]).name[:5], names[int(mark["value"])]) for mark in marks]
    assert said == [
        ("ALLOC", "tmp"), ("ALLOC", "q[0]"), ("FREE_", "q[0]"), ("ALLOC", "o"), ("FREE_", "o"), ("FREE_", "tmp"),
    ]  # fmt: skip
    assert set(names.values()) == {"q[0]", "q[1]", "o", "tmp"}


def test_contents_are_shown_as_the_source_runs(capsys, monkeypatch):
    seen = []

    @kernel
    def looked_into(core, x: In, y: Out):
        pipe = TPipe(core)
        q = pipe.init_buffer(TQueBind(TPosition.VECIN, TPosition.VECOUT), 1, 256)
        a = q.alloc_tensor("fp32")
        seen.append(a.numpy())
        core.data_copy(a, x, LENGTH)
        breakpoint()
        print(a)
        q.enque(a)
        core.data_copy(y, q.deque("fp32"), LENGTH)
        q.free_tensor(a)
        seen.append(a)

    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_locals["a"].numpy()))
    y = np.empty(LENGTH, np.float32)
    looked_into(_x(), y, blocks=1)
    assert np.isnan(seen[0]).all()
    assert "q UB[0:256] fp32" in capsys.readouterr().out
    np.testing.assert_array_equal(stops[0], _x())
    np.testing.assert_array_equal(y, _x())
    assert "freed" in repr(seen[1])
    with pytest.raises(StateError, match="while its kernel runs"):
        seen[1].numpy()


def test_sync_all_orders_cores_and_carries_flags():
    @kernel
    def neighbour(core, x: In, w: InOut, y: Out):
        """Each core copies its 64 elements to w, and then those of the next core from w to y."""
        t = core.alloc(TPosition.VECCALC, "fp32", LENGTH, "t")
        own, other = core.block_idx * LENGTH, (core.block_idx + 1) % core.block_num * LENGTH
        core.set_flag(Pipe.V, Pipe.MTE2, 3)
        for source, target, first in ((x, w, own), (w, y, other)):
            core.data_copy(t, source[first], LENGTH)
            core.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
            core.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
            core.data_copy(target[own], t, LENGTH)
            if core.phase == 0:
                core.sync_all()
        core.wait_flag(Pipe.V, Pipe.MTE2, 3)
        core.free(t)

    x = np.arange(4 * LENGTH, dtype=np.float32)
    w, y = np.zeros_like(x), np.empty_like(x)
    run = neighbour(x, w, y, blocks=4)
    np.testing.assert_array_equal(y, np.roll(x, -LENGTH))
    assert run.launches[0].phase_count == 2
    assert run.findings == ()


def test_mixed_kernel_runs_on_both_kinds_of_core():
    @kernel(kind="mix", vectors=2)
    def both(core, x: In, y: Out):
        if core.is_cube:
            t = core.alloc(TPosition.A1, "fp16", 128)
            core.data_copy(t, x[core.block_idx * 128], 128)
            core.free(t)
        core.sync_all()
        if core.is_vector:
            share = 64 if core.product.core.is_split else 128
            t = core.alloc(TPosition.VECCALC, "fp16", share)
            core.duplicate(t, core.block_idx, share)
            core.set_flag(Pipe.V, Pipe.MTE3, 0)
            core.wait_flag(Pipe.V, Pipe.MTE3, 0)
            core.data_copy(y[core.block_idx * share], t, share)
            core.free(t)

    for product, share in (("910b", 64), ("310p", 128)):
        y = np.empty(256, np.float16)
        run = both(np.ones(256, np.float16), y, blocks=2, product=product)
        np.testing.assert_array_equal(y, np.repeat(np.arange(256 // share), share))
        assert run.findings == ()
    [launch] = both.record(y, y.copy(), blocks=2, product="910b").launches
    assert [launch.kind_of(core) for core in range(6)] == ["cube"] * 2 + ["vector"] * 4
    assert both.record(y, y.copy(), blocks=2, product="310p").launches[0].vectors == 0


def fractals_to_l0(core, l1a, l1b, l0a, l0b):
    """Load one fractal of each operand between what MTE2 has left and what the Cube waits for."""
    core.set_flag(Pipe.MTE2, Pipe.MTE1, 0)
    core.wait_flag(Pipe.MTE2, Pipe.MTE1, 0)
    core.load_2d(l0a, l1a, 0, 1, 1, 0)
    core.load_2d(l0b, l1b, 0, 1, 1, 0)
    core.set_flag(Pipe.MTE1, Pipe.M, 0)
    core.wait_flag(Pipe.MTE1, Pipe.M, 0)


@pytest.mark.parametrize(("out", "scale", "offset"), [("int32", 0, 0), ("fp16", 2**-7, 0), ("int8", -(2**-8), 3)])
def test_cube_kernel_multiplies_int8_and_scales_what_leaves(out, scale, offset):
    seen = []

    @kernel(kind="cube")
    def product(core, a: In, b: In, c: Out):
        """A product of 16 x 32 x 16, both operands as fractals."""
        l1a, l1b = core.alloc(TPosition.A1, "int8", 512), core.alloc(TPosition.B1, "int8", 512)
        l0a, l0b = core.alloc(TPosition.A2, "int8", 512), core.alloc(TPosition.B2, "int8", 512)
        l0c = core.alloc(TPosition.CO1, "int32", 256)
        core.data_copy(l1a, a, 512)
        core.data_copy(l1b, b, 512)
        fractals_to_l0(core, l1a, l1b, l0a, l0b)
        core.mmad(l0c, l0a, l0b, 16, 16, 32, init=True)
        core.set_flag(Pipe.M, Pipe.FIX, 0)
        core.wait_flag(Pipe.M, Pipe.FIX, 0)
        seen.extend((l0a.numpy(), l0b.numpy(), l0c.numpy()))
        core.fixpipe_quant(c, l0c, 16, 16, 16, 16, offset=offset, nz2nd=True, scalar=scale)
        for tensor in (l1a, l1b, l0a, l0b, l0c):
            core.free(tensor)

    rng = np.random.default_rng(2)
    a, b = (rng.integers(-128, 128, (16, 32), np.int8) for _ in range(2))
    c = np.zeros((16, 16), {"int32": np.int32, "fp16": np.float16, "int8": np.int8}[out])
    assert product(a, b, c, blocks=1, product="910b").findings == ()
    sums = a.astype(np.int64) @ b.T.astype(np.int64)
    scaled = {"int32": sums, "fp16": sums * scale, "int8": np.clip(np.rint(sums * scale + offset), -128, 127)}[out]
    assert np.array_equal(c, scaled.astype(c.dtype))
    for held, expected in zip(seen, (a[None], b[None], sums[None].astype(np.int32)), strict=True):
        assert held.dtype == expected.dtype
        assert np.array_equal(held, expected)


def test_cube_kernel_begins_with_a_bias_and_scales_each_column():
    seen = []

    @kernel(kind="cube")
    def product(core, a: In, b: In, bias: In, words: In, c: Out):
        """A product of 16 x 32 x 16 and a row, columns of it scaled apart."""
        l1a, l1b = core.alloc(TPosition.A1, "int8", 512), core.alloc(TPosition.B1, "int8", 512)
        row, scales = core.alloc(TPosition.C1, "int32", 16), core.alloc(TPosition.C1, "int64", 16)
        l0a, l0b = core.alloc(TPosition.A2, "int8", 512), core.alloc(TPosition.B2, "int8", 512)
        l0c, table = core.alloc(TPosition.CO1, "int32", 256), core.alloc(TPosition.C2, "int32", 16)
        buffer = core.alloc(TPosition.C2PIPE2GM, "int64", 16)
        for to, what, count in ((l1a, a, 512), (l1b, b, 512), (row, bias, 16), (scales, words, 16)):
            core.data_copy(to, what, count)
        core.set_flag(Pipe.MTE2, Pipe.MTE1, 0)
        core.wait_flag(Pipe.MTE2, Pipe.MTE1, 0)
        core.load_2d(l0a, l1a, 0, 1, 1, 0)
        core.load_2d(l0b, l1b, 0, 1, 1, 0)
        core.load_bias(table, row, 1)
        core.set_flag(Pipe.MTE1, Pipe.M, 0)
        core.wait_flag(Pipe.MTE1, Pipe.M, 0)
        core.mmad_bias(l0c, l0a, l0b, table, 16, 16, 32)
        core.set_flag(Pipe.MTE2, Pipe.FIX, 0)
        core.wait_flag(Pipe.MTE2, Pipe.FIX, 0)
        core.load_scales(buffer, scales, 1)
        core.set_flag(Pipe.M, Pipe.FIX, 0)
        core.wait_flag(Pipe.M, Pipe.FIX, 0)
        core.fixpipe_scales(c, l0c, buffer, 16, 16, 16, 16, nz2nd=True)
        seen.extend((table.numpy(), buffer.numpy()))
        for tensor in (l1a, l1b, row, scales, l0a, l0b, l0c, table, buffer):
            core.free(tensor)

    rng = np.random.default_rng(2)
    a, b = (rng.integers(-128, 128, (16, 32), np.int8) for _ in range(2))
    bias = rng.integers(-10000, 10000, 16).astype(np.int32)
    words = np.float32(2.0 ** -np.arange(16)).view(np.uint32).astype(np.int64)
    c = np.zeros((16, 16), np.float16)
    assert product(a, b, bias, words, c, blocks=1, product="910b").findings == ()
    exact = (a.astype(np.int64) @ b.T.astype(np.int64) + bias) * 2.0 ** -np.arange(16)
    with np.errstate(over="ignore"):
        assert np.array_equal(c, exact.astype(np.float16))
    assert np.array_equal(seen[0], bias)
    assert np.array_equal(seen[1], words)
    with pytest.raises(ShapeError, match="position must be one of"):
        product(a, b, bias, words, c, blocks=1, product="310p")


def test_mixed_kernel_hands_blocks_on_by_flags_between_cores():
    @kernel(kind="mix", vectors=2)
    def product(core, a: In, b: In, c: InOut, y: Out, forget):
        """The Cube core multiplies two fractals, the vector cores of its block add 1 to a half each."""
        if core.is_cube:
            l1a, l1b = core.alloc(TPosition.A1, "fp16", 256), core.alloc(TPosition.B1, "fp16", 256)
            l0a, l0b = core.alloc(TPosition.A2, "fp16", 256), core.alloc(TPosition.B2, "fp16", 256)
            l0c = core.alloc(TPosition.CO1, "fp32", 256)
            core.data_copy(l1a, a[core.block_idx * 256], 256)
            core.data_copy(l1b, b, 256)
            fractals_to_l0(core, l1a, l1b, l0a, l0b)
            core.mmad(l0c, l0a, l0b, 16, 16, 16, init=True)
            core.set_flag(Pipe.M, Pipe.FIX, 0)
            core.wait_flag(Pipe.M, Pipe.FIX, 0)
            core.fixpipe(c[core.block_idx * 256], l0c, m_size=16, n_size=16, src_stride=16, dst_stride=16, nz2nd=True)
            core.cross_core_set_flag(2, Pipe.FIX, 5)
            for tensor in (l1a, l1b, l0a, l0b, l0c):
                core.free(tensor)
        else:
            own = core.block_idx * 128
            t = core.alloc(TPosition.VECCALC, "fp32", 128)
            if not forget or core.block_idx:
                core.cross_core_wait_flag(5)
            core.data_copy(t, c[own], 128)
            core.set_flag(Pipe.MTE2, Pipe.V, 0)
            core.wait_flag(Pipe.MTE2, Pipe.V, 0)
            core.adds(t, t, 1, 128)
            core.set_flag(Pipe.V, Pipe.MTE3, 0)
            core.wait_flag(Pipe.V, Pipe.MTE3, 0)
            core.data_copy(y[own], t, 128)
            core.free(t)

    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((2, 16, 16), (16, 16)))
    c, y = np.zeros((2, 16, 16), np.float32), np.empty((2, 16, 16), np.float32)
    # fractals of L0B have n in their rows
    run = product(a, np.ascontiguousarray(b.T), c, y, False, blocks=2)
    np.testing.assert_array_equal(y, a.astype(np.float32) @ b.astype(np.float32) + 1)
    assert run.findings == ()
    assert run.times[0].stall_cycles["S"]["cross_core"] > 0
    machine = product.machine(a, np.ascontiguousarray(b.T), np.zeros_like(c), np.empty_like(y), False, blocks=2)
    machine.run()
    np.testing.assert_array_equal(machine.tensor("y").reshape(y.shape), y)
    found = product.record(a, b, c, y, True, blocks=2).findings
    assert {(v.kind, v.core) for v in found} == {(Kind.SYNC_READ_HAZARD, 2), (Kind.SYNC_UNPAIRED, 0)}


@pytest.mark.parametrize("calls", [(1, 0, 0), (1, 1, 2), (0, 1, 1), (2, 2, 2), (0, 0, 0)])
def test_sync_all_that_some_cores_do_not_call_is_refused_at_its_line(calls):
    @kernel
    def meets(core):
        for _ in range(calls[core.block_idx]):
            core.sync_all()

    if len(set(calls)) == 1:
        meets(blocks=3)
        return
    core = calls.index(max(calls))
    text = f"vector core {core} calls it {max(calls)} times, vector core {calls.index(min(calls))} {min(calls)} times"
    with pytest.raises(StateError, match=text) as caught:
        meets(blocks=3)
    assert caught.value.refusal.kind is Kind.SYNC_ALL_UNPAIRED
    assert linecache.getline(caught.value.refusal.file, caught.value.refusal.line).strip() == "core.sync_all()"


def test_both_kinds_of_cores_of_a_mixed_kernel_meet_at_sync_all():
    @kernel(kind="mix")
    def meets(core, both):
        if core.is_vector or both:
            core.sync_all()

    meets(True, blocks=1)
    with pytest.raises(StateError, match="vector core 0 calls it 1 times, cube core 0 0 times"):
        meets(False, blocks=1)


def test_call_is_recorded_for_the_command_line():
    with recording() as recorder:
        scaled(_x(), np.empty(LENGTH, np.float32), blocks=1)
    [made] = recorder.explanations()
    assert made.title == "scaled"
    assert made.call == "x fp32 64, y fp32 64, wrong ''"
    assert made.launches[0].core_count == 1


def test_arguments_are_refused():
    y = np.empty(LENGTH, np.float32)
    with pytest.raises(NpuSimError, match="x of scaled must be a NumPy array"):
        scaled([1, 2], y)
    with pytest.raises(ShapeError, match=r"blocks must be in \[1, 48\], not 0"):
        scaled(_x(), y, blocks=0)
    with pytest.raises(NpuSimError, match=r"x of scaled: dtype must be one of .*, not float64"):
        scaled(_x().astype(np.float64), y)

    @kernel
    def sliced(core, x: In):
        x[1:3]

    with pytest.raises(ShapeError, match=r"must be the first element, x\[i\]: instructions say how many they take"):
        sliced(_x(), blocks=1)
    y.flags.writeable = False
    with pytest.raises(ShapeError, match="must be an array that can be written"):
        scaled(_x(), y, blocks=1)
    with pytest.raises(TypeError):
        scaled(_x())
    with pytest.raises(ShapeError, match="kind must be one of vector, cube, mix, not 'gpu'"):
        kernel(kind="gpu")


@pytest.mark.parametrize("instruction", OPS, ids=lambda instruction: instruction.name)
def test_help_says_how_a_method_has_what_the_row_has(instruction):
    method = getattr(Core, instruction.name.lower(), None)
    if instruction.op in BUFFER_MARKS or not instruction.routes:
        pytest.skip("is no method, or has the operands of its row")
    text, _, _ = inspect.getdoc(method).partition("\n\nParameters")
    named = set(re.findall(r"``(\w+)``", text)) & set(emitter_operands(instruction))
    for operand in named - set(inspect.signature(method).parameters):
        if operand == "mode":
            assert all(f"`Mode.{bit.name}` in ``mode`` is ``{bit.name.lower()}=True``." in text for bit in Mode
                       if bit.name.lower() in inspect.signature(method).parameters), text  # fmt: skip
        elif operand == "value_bits":
            assert (
                text.endswith("The value (``value_bits``) is ``scalar``, a number.")
                or "is ``scalar``, a number. " in text
            )
        else:
            assert re.search(rf"``{operand}`` is (that of )?``\w+``\.", text), text


@pytest.mark.parametrize("instruction", OPS, ids=lambda instruction: instruction.name)
def test_every_instruction_is_a_method(instruction):
    if instruction.op in BUFFER_MARKS:
        pytest.skip("what alloc, free, queues and TBufs append")
    method = getattr(Core, instruction.name.lower())
    assert method.__doc__
    front, keywords = parameters_of(shape_of(instruction))
    given = list(inspect.signature(method).parameters)[1:]
    if instruction.op not in (Op.DATA_COPY, Op.SET_FLAG, Op.WAIT_FLAG):
        assert given == [text.partition("=")[0] for text in (*front, *keywords)]


def test_rows_are_those_of_the_builder():
    """The same operands give the same rows, by an independent way."""

    @kernel(kind="cube")
    def few(core, x: In, y: Out):
        a = core.alloc(TPosition.A1, "fp16", 256)
        b, c = core.alloc(TPosition.B2, "fp16", 256), core.alloc(TPosition.CO1, "fp32", 256)
        a2 = core.alloc(TPosition.A2, "fp16", 256)
        core.nd2nz(a, x, n_value=16, d_value=16, src_d_value=16, dst_c0_stride=16)
        core.load_2d(a2, a, repeat=1, transpose=True)
        core.fill(b, 1.5, block_num=1)
        core.mmad(c, a2, b, 16, 16, 16)
        core.fixpipe(y, c, 16, 16, 16, 16, nz2nd=True)

    x = np.ones((16, 16), np.float16)
    run = few.record(x, np.empty((16, 16), np.float32), blocks=1)
    rows = run.rows()
    rows = rows[~np.isin(rows["op"], (Op.ALLOC_TENSOR,))]
    builder = ProgramBuilder(get_product("910b"))
    y_at = run.launches[0].gm.tensors[1].address
    builder.nd2nz(dst=0, src=0, dtype=Data.FP16, n_value=16, d_value=16, src_d_value=16, dst_c0_stride=16, tensor=0)
    builder.load_2d(dst_space=Space.L0A, dst=0, src=0, dtype=Data.FP16, mode=Mode.TRANSPOSE)
    builder.fill(dst_space=Space.L0B, dst=0, dtype=Data.FP16, value_bits=0x3E00)
    builder.mmad(dst=0, src_a=0, src_b=0, dtype=Data.FP16, m=16, n=16, k=16)
    builder.fixpipe(
        dst=y_at,
        src=0,
        dst_dtype=Data.FP32,
        m_size=16,
        n_size=16,
        src_stride=16,
        dst_stride=16,
        mode=Mode.NZ2ND,
        tensor=1,
    )
    for row, wanted in zip(rows, builder.rows, strict=True):
        row["site"], row["tile"] = wanted["site"], wanted["tile"]
        assert row.tobytes() == wanted.tobytes()


def test_guide_has_the_table_of_methods_and_its_example_runs(tmp_path):
    guide = (Path(__file__).parents[2] / "examples/kernels/README.md").read_text(encoding="utf-8")
    assert methods_table() in guide, "python -m npu_sim.authoring.reference prints it anew"
    [source] = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    path = tmp_path / "my_kernel.py"
    path.write_text(source, encoding="utf-8")
    assert runpy.run_path(str(path))["run"].findings == ()


def test_padded_copy_takes_what_is_left_over():
    @kernel
    def padded(core, x: In, y: Out):
        pipe = TPipe(core)
        q = pipe.init_buffer(TQueBind(TPosition.VECIN, TPosition.VECOUT), 1, 64)
        t = q.alloc_tensor(x.dtype)
        core.data_copy_pad(t, x, block_len=2 * len(x), right_padding=16 - len(x) % 16, pad=True, scalar=-2.5)
        q.enque(t)
        core.data_copy(y, q.deque(y.dtype), len(y))
        q.free_tensor(t)

    y = np.empty(16, np.float16)
    assert padded(np.arange(11, dtype=np.float16), y, blocks=1).findings == ()
    np.testing.assert_array_equal(y, [*range(11), *[-2.5] * 5])


def test_findings_have_leaks_and_holes():
    @kernel
    def careless(core, x: In, y: Out):
        t = core.alloc(TPosition.VECCALC, "fp32", LENGTH, "t")
        core.data_copy(t, x, LENGTH)
        core.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
        core.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
        core.data_copy(y, t, LENGTH // 2)

    run = careless(_x(), np.empty(LENGTH, np.float32), blocks=1)
    assert [found.kind for found in run.findings] == [Kind.BUFFER_LEAK, Kind.OUTPUT_HOLE]


def test_findings_of_a_run_are_shown_once_for_each_line():
    y = np.empty(LENGTH, np.float32)
    assert repr(scaled(_x(), y, blocks=1).findings) == "()"
    head, leak, race, _ = repr(scaled(_x(), y, "no flag", blocks=3).findings).splitlines()
    assert head.endswith(" findings:")
    first, second = _line_of('a = q.alloc_tensor("fp32")'), _line_of("core.muls(t, b, 2.5, LENGTH)")
    assert f"test_authoring.py:{first}: ErrorLeak core 0 row " in leak
    assert f"test_authoring.py:{second}: ErrorSync2 core 0 row " in race
    assert leak.endswith(" (3 times)")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("freed", rf"q\[0\], which was freed at \S*test_authoring.py:{_line_of('q.free_tensor(b)')} "),
        ("count", r"whole blocks of 32 bytes, not 3 fp32; data_copy_pad takes any bytes \("),
    ],
)
def test_mistakes_say_what_would_be_right(wrong, words):
    with pytest.raises(NpuSimError, match=words):
        scaled(_x(), np.empty(LENGTH, np.float32), wrong, blocks=1)
    if wrong == "count":  # there is no such instruction
        with pytest.raises(NpuSimError, match=r"not 3 fp32 \("):
            scaled(_x(), np.empty(LENGTH, np.float32), wrong, blocks=1, product="310p")


def test_run_command_says_what_was_launched(tmp_path, capsys):
    path = Path(__file__).parents[2] / "examples/kernels/vector_add.py"
    assert main(["run", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "equal to NumPy: True" in said
    assert "launched: add (Ascend910B2): x fp16 1000000, y fp16 1000000, z fp16 1000000" in said


def test_trace_has_lines_and_no_marks_of_buffers():
    run = scaled.record(_x(), np.empty(LENGTH, np.float32), blocks=1)
    [launch] = run.launches
    events = chrome_trace(run_timeline(launch, run.product, spans=True), launch.sites)["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == len(run.rows()) - 6
    assert {event["name"] for event in drawn}.isdisjoint({"ALLOC_TENSOR", "FREE_TENSOR"})
    [muls] = [event for event in drawn if event["name"] == "MULS"]
    assert muls["args"]["site"].endswith(f"test_authoring.py:{_line_of('core.muls(t, b, 2.5, LENGTH)')}")


def test_looking_at_a_buffer_behind_an_illegal_row_names_the_row_s_line():
    @kernel
    def looks(core, x: In, y: Out):
        t = core.alloc(TPosition.VECCALC, "fp32", LENGTH, "t")
        core.muls(t[1:], t, 2, 8)  # not a whole block
        t.numpy()

    with pytest.raises(NpuSimError) as caught:
        looks(_x(), np.empty(LENGTH, np.float32), blocks=1)
    lines, start = inspect.getsourcelines(looks.__wrapped__)
    line = start + next(at for at, text in enumerate(lines) if "not a whole block" in text)
    assert f"test_authoring.py:{line})" in str(caught.value)


def test_copies_of_tensors_are_in_the_budget():
    # one element, seen as 2^43 bytes
    x = np.broadcast_to(np.float32(1), 1 << 41)
    with pytest.raises(BudgetError, match=r"^Copies of the tensors of a kernel must be at most"):
        scaled.machine(x, np.empty(LENGTH, np.float32), blocks=1)


def test_recording_leaves_nothing_for_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        scaled.record(_x(), np.empty(LENGTH, np.float32), blocks=2)
        # by type: isinstance asks objects for their class, and what other libraries left may answer with a warning
        assert not [thing for thing in gc.get_objects() if issubclass(type(thing), Core | TPipe)]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        ("DataCopy", "; it may be data_copy"),
        ("LoadData", "; it may be load_2d or load_3d or load_3d_v1"),
        ("load_data_2d", "; it may be load_2d"),
        ("SyncAll", "; it may be sync_all"),
        ("whole_reduce_sum", "; it may be reduce_repeat_masked"),
        ("qqq", ""),
    ],
)
def test_a_method_that_does_not_exist_names_those_that_it_may_be(name, may_be):
    @kernel
    def wrong(core):
        getattr(core, name)()

    listed = "help(npu_sim.authoring.Core) or examples/kernels/README.md lists"
    rule = f"A method of Core must be one that {listed}, not {name}{may_be}"
    with pytest.raises(AttributeError, match=f"^{re.escape(rule)}$"):
        wrong.record(blocks=1, product="910b")
