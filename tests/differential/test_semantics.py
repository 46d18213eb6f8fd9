"""Every instruction against its twin on architectural bytes: random legal instances, all memories, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa.op import Op
from tests.oracles import semantics
from tests.oracles.instances import GENERATORS, Emulated, candidates, differences, random_memories

COUNTS = {Op.MMAD: 60, Op.LOAD_3D: 300, Op.LOAD_3D_V1: 200} if JIT_ENABLED else {}
DEFAULT_COUNT = 250 if JIT_ENABLED else 12
MODELS = (
    ((16, "exact", "rne"), (16, 0, 0)),
    ((4, "exact", "rne"), (4, 0, 0)),
    ((1, "serial", "rne"), (1, 2, 0)),
    ((8, "tree", "rne"), (8, 1, 0)),
    ((8, "exact", "rz"), (8, 0, 1)),
)
HF32 = (((12, "even"), (12, 0)), ((12, "away"), (12, 1)), ((13, "toward_zero"), (13, 2)))


def _run_both(instance, rng, *, saturate=False, model=MODELS[0], hf32=HF32[0], finite=False):
    """Return (emulated, machine) after the last row of ``instance``, or None where the twin calls it undefined."""
    contents = random_memories(rng, instance.memory, l0=instance.l0, finite=finite)
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


@pytest.mark.parametrize("op", list(GENERATORS), ids=lambda op: op.name)
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
        assert found == [], (number, saturate, model[0], {name: int(row[name]) for name in row.dtype.names})
    assert ran >= count // 2
    assert changed >= count // 3
