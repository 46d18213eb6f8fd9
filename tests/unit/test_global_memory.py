"""Global memory that nobody has written is poison, whatever ran before."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import ShapeError
from npu_sim.isa.op import Pipe, Space
from npu_sim.memory import gm as memory
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from ops.common import run
from ops.common.tensor_desc import described
from ops.conv_backward.api import plan_convolution_backward

A2 = get_product("910b")


def _leave_bytes_behind(value=7):
    gm = GlobalMemory()
    gm.add("before", 1 << 20, initialised=True)
    gm.arena[:] = value
    gm.release()


def _tensors():
    gm = GlobalMemory()
    x = gm.add("x", 600, initialised=True)
    y = gm.add("y", 64, initialised=False)
    z = gm.add("z", 600, initialised=True)
    gm.add("workspace", 1000, initialised=False, address=2048)
    return gm, x, y, z


def test_all_but_the_initialised_tensors_starts_as_poison():
    _leave_bytes_behind()
    gm, x, _, z = _tensors()
    ours = np.zeros(gm.total_bytes, np.bool_)
    for tensor in (x, z):
        ours[tensor.address : tensor.address + tensor.byte_count] = True
    assert (gm.arena[~ours] == 0xFF).all()
    assert (gm.arena[ours] == 7).all()  # not written twice


def test_store_a_kernel_forgets_shows_whatever_ran_before():
    data = np.arange(64, dtype=np.float32)
    for blocks in (8, 7):
        gm = GlobalMemory()
        x, y = (gm.add(name, 256, initialised=name == "x") for name in "xy")
        gm.view(x, np.float32, [64])[:] = data
        builder = ProgramBuilder(A2)
        builder.data_copy(dst_space=Space.UB, dst=0, src_space=Space.GM, src=0, block_len=8, tensor=0)
        builder.join(Pipe.MTE2, Pipe.MTE3)
        for block in range(blocks):
            at = 32 * block
            builder.data_copy(dst_space=Space.GM, dst=y.address + at, src_space=Space.UB, src=at, block_len=1, tensor=1)
        execute(builder.launch(gm), A2, ExecuteOptions(accumulation=SERIAL))
        result = gm.view(y, np.float32, [64]).copy()
        gm.release()
        np.testing.assert_array_equal(result[: 8 * blocks], data[: 8 * blocks])
    assert np.isnan(result[56:]).all()


def test_allocate_poisons_what_is_given_only():
    _leave_bytes_behind()
    gm, _, y, _ = _tensors()
    gm.allocate([y])
    poisoned = np.flatnonzero(gm.arena == 0xFF)
    assert (poisoned[0], len(poisoned)) == (y.address, 64)
    gm.arena[:] = 3
    gm.allocate([y])
    assert (gm.arena == 3).all()


def test_call_that_computes_nothing_hands_out_poison(monkeypatch):
    monkeypatch.setattr(run, "run_steps", lambda calls, options, gm: None)
    monkeypatch.setattr(memory, "_SPARE", memory._Spare())
    _leave_bytes_behind()
    shapes = ((1, 16, 8, 8), (1, 16, 8, 8), (16, 16, 1, 1))
    plan = plan_convolution_backward(
        *(described(shape, "fp16") for shape in shapes), stride=1, padding=0, dilation=1, product="910b",
        output_mask=(True, True, False),
    )  # fmt: skip
    names = ("grad_output", "input", "weight")
    tensors = {name: np.ones(shape, np.float16).reshape(-1) for name, shape in zip(names, shapes, strict=True)}
    outputs = {f"grad_{name}": np.zeros_like(tensors[name]) for name in ("input", "weight")}
    plan.run(tensors | outputs, ExecuteOptions(accumulation=SERIAL))
    for output in outputs.values():
        assert np.isnan(output).all()


@pytest.mark.parametrize(("size", "address"), [(-1, None), (64, -512)])
def test_tensor_outside_the_arena_is_refused(size, address):
    gm = GlobalMemory()
    text = rf"^Size and address of x must be at least 0, not {size} and {address}$"
    with pytest.raises(ShapeError, match=text):
        gm.add("x", size, initialised=True, address=address)
