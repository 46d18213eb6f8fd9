"""Every instruction against its twin on architectural bytes: random legal instances, all memories, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa.op import SPEC_OF_OP, Data, Mode, Op, Space
from npu_sim.program.builder import ProgramBuilder, window
from tests.oracles import semantics
from tests.oracles.instances import (
    A2,
    GENERATORS,
    TRAINING,
    Emulated,
    Instance,
    candidates,
    differences,
    random_memories,
)

COUNTS = {Op.MMAD: 80, Op.LOAD_3D: 300, Op.FIXPIPE: 160} if JIT_ENABLED else {}
DEFAULT_COUNT = 200 if JIT_ENABLED else 25
MODELS = (
    (((16, "exact", "rne"), {"flush": True}), (16, 0, 0, 1, 0)),
    (((4, "exact", "rne"), {"to_max": True}), (4, 0, 0, 0, 1)),
    (((1, "serial", "rne"), {}), (1, 2, 0, 0, 0)),
    (((8, "tree", "rne"), {"flush": True}), (8, 1, 0, 1, 0)),
    (((8, "exact", "rz"), {"flush": True}), (8, 0, 1, 1, 0)),
)
HF32 = (((12, "even"), (12, 0)), ((12, "away"), (12, 1)), ((13, "toward_zero"), (13, 2)))


def _run_both(instance, rng, *, saturate=False, model=MODELS[0], hf32=HF32[0]):
    """Return (emulated, machine) after the last row of ``instance``, or None where the twin calls it undefined."""
    contents = instance.with_planted(random_memories(rng, instance.memory, l0=instance.l0))
    machine = semantics.Machine(contents)
    row = instance.rows[-1]
    try:
        semantics.run(row, machine, saturate=saturate, model=model[0], hf32=hf32[0])
    except semantics.OutsideMemoryError:
        return None
    if machine.overlaps:
        return None
    emulated = Emulated.of(contents, instance.l0)
    assert emulated.run(instance.rows, saturate=saturate, model=model[1], hf32=hf32[1]) == -1
    return emulated, machine


@pytest.mark.parametrize("op", list(GENERATORS), ids=lambda op: SPEC_OF_OP[op].name)
def test_instruction_on_random_operands_equals_twin(op):
    rng = np.random.default_rng([7, op])
    count = COUNTS.get(op, DEFAULT_COUNT)
    ran = changed = 0
    for number, instance in enumerate(candidates(op, 1, count)):
        saturate = bool(rng.integers(2))
        model = MODELS[int(rng.integers(len(MODELS)))]
        hf32 = HF32[int(rng.integers(len(HF32)))]
        both = _run_both(instance, rng, saturate=saturate, model=model, hf32=hf32)
        if both is None:
            continue
        emulated, machine = both
        ran += 1
        changed += any(wrote.any() for wrote in machine.wrote.values())
        row = instance.rows[-1]
        found = differences(emulated, machine, row, instance.l0)
        assert found == [], (number, saturate, model[0], str(row))
    assert ran >= count // 2
    assert changed >= count // 3 or op in (Op.SCALAR_LOAD, Op.SCALAR_LOOK)  # what that reads no memory shows


@pytest.mark.parametrize("dtype", [Data.FP16, Data.INT8])
@pytest.mark.parametrize("extents", [(0, 16, 32), (16, 0, 32), (16, 16, 0)])
def test_products_without_an_extent_leave_the_sums(extents, dtype):
    builder = ProgramBuilder(A2)
    builder.mmad(dst=0, src_a=0, src_b=0, dtype=dtype, mode=Mode.INIT, **dict(zip("mnk", extents, strict=True)))
    emulated, machine = _run_both(Instance(builder, l0=dtype), np.random.default_rng(0))
    assert not machine.wrote[Space.L0C].any()
    assert differences(emulated, machine, builder.rows[0], dtype) == []


def _without_semantics():
    """Legal on the hardware, not modelled here: the run must stop instead of doing something else."""
    a2, training = ProgramBuilder(A2), ProgramBuilder(TRAINING)
    for dtype in (Data.INT16, Data.UINT8):
        a2.load_2d(dst_space=Space.L0A, dst=0, src=0, dtype=dtype)
        a2.load_transpose(dst_space=Space.L0B, dst=0, src=0, dtype=dtype)
        a2.load_3d(
            dst_space=Space.L0A, dst=0, src=0, dtype=dtype, window=window(l1_h=4, l1_w=4), channel_size=32, k_ext=32,
            m_ext=16,
        )  # fmt: skip
    a2.fill(dst_space=Space.L0B, dst=0, dtype=Data.INT16)
    training.mmad(dst=0, src_a=0, src_b=0, dtype=Data.UINT8, m=1, n=1, k=1)
    for dtype in (Data.INT8, Data.UINT8):
        a2.fixpipe(dst=0, src=0, dst_dtype=dtype, m_size=16, n_size=16, src_stride=16, dst_stride=8)
    training.load_3d_v1(
        dst_space=Space.L0A, dst=0, src=0, dtype=Data.INT8, window=window(l1_h=4, l1_w=4), left_top_w=0, left_top_h=0
    )
    return [(builder, number) for builder in (a2, training) for number in range(len(builder.rows))]


@pytest.mark.parametrize(("builder", "number"), _without_semantics())
def test_types_without_semantics_stop_the_run_and_change_nothing(builder, number):
    contents = random_memories(np.random.default_rng(0), l0=Data.FP16)
    emulated, before = Emulated.of(contents, Data.FP16), Emulated.of(contents, Data.FP16)
    assert emulated.run(builder.rows.copy(), number, number + 1) == number
    assert all(x.tobytes() == y.tobytes() for x, y in zip(emulated.buffers(), before.buffers(), strict=True))
