"""The matrix product kernel: exact on integers, bit for bit on a chain of float32 additions, without hazards."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as every

import ml_dtypes
import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows, run_hazards, run_hazards_rows
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import OperatorError
from npu_sim.isa.op import Op
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.matmul.plan import MatmulShape, matmul_launches
from tests.oracles.sync_removal import conflicts, lost_by_removal

CHIP = get_product("910b")
NUMPY = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "hf32": np.float32}
OPTIONS = ExecuteOptions(accumulation=SERIAL)


def planned(shape, compute="fp16", out="fp32", product=CHIP):
    """Return the plan, its memory and the three tensors."""
    gm = GlobalMemory()
    item, out_item = np.dtype(NUMPY[compute]).itemsize, np.dtype(NUMPY[out]).itemsize
    a = gm.add("a", shape.batch * shape.m * shape.k * item, initialised=True)
    b = gm.add("b", (shape.batch if shape.b_batched else 1) * shape.k * shape.n * item, initialised=True)
    c = gm.add("c", shape.batch * shape.m * shape.n * out_item, initialised=False)
    return matmul_launches(shape, product, compute, out, gm, a, b, c), gm, a, b, c


def multiply(shape, left, right, compute, out, options=OPTIONS):
    """Return C as the emulator computes it; ``left`` is [batch][m][k], ``right`` [k][n] or [batch][k][n]."""
    plan, gm, a, b, c = planned(shape, compute, out)
    stored = left.swapaxes(1, 2) if shape.a_transposed else left
    gm.arena[:] = 0xFF
    gm.view(a, NUMPY[compute], stored.shape)[...] = stored
    right = right.swapaxes(-1, -2) if shape.b_transposed else right
    gm.view(b, NUMPY[compute], right.shape)[...] = right
    for launch in plan.launches:
        execute(launch, CHIP, options)
    return gm.view(c, NUMPY[out], (shape.batch, shape.m, shape.n)).copy()


SHAPES = [
    MatmulShape(m=1, n=1, k=1),
    MatmulShape(m=17, n=33, k=9),
    MatmulShape(m=3, n=200, k=70, batch=2),
    MatmulShape(m=130, n=129, k=40),
    MatmulShape(m=5, n=16, k=300),
    MatmulShape(m=129, n=7, k=523, batch=3),
    MatmulShape(m=16, n=24, k=8),
]


STORED = [
    pytest.param({"a_transposed": a, "b_transposed": b, "b_batched": batched}, id=" ".join(name))
    for a, b, batched in every((False, True), repeat=3)
    for name in [("at" if a else "a", "bt" if b else "b", "own" if batched else "shared")]
]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("compute", ["fp16", "bf16", "fp32", "hf32"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.batch}x{s.m}x{s.n}x{s.k}")
def test_product_of_integers_is_exact(shape, compute, stored):
    rng = np.random.default_rng([shape.m, shape.n, shape.k])
    shape = replace(shape, **stored)
    left = rng.integers(-4, 5, (shape.batch, shape.m, shape.k)).astype(NUMPY[compute])
    own = (shape.batch,) if shape.b_batched else ()
    right = rng.integers(-4, 5, (*own, shape.k, shape.n)).astype(NUMPY[compute])
    expected = left.astype(np.int64) @ right.astype(np.int64)
    np.testing.assert_array_equal(multiply(shape, left, right, compute, "fp32"), expected)


def test_rows_of_a_transposed_right_matrix_too_far_apart_come_one_by_one():
    rng = np.random.default_rng(6)
    shape = MatmulShape(m=3, n=130, k=65540, b_transposed=True)
    left, right = rng.integers(-1, 2, (1, 3, shape.k)), rng.integers(-1, 2, (shape.k, shape.n))
    got = multiply(shape, left.astype(np.float16), right.astype(np.float16), "fp16", "fp32")
    np.testing.assert_array_equal(got[0], left[0] @ right)


@pytest.mark.parametrize("transposed", [False, True], ids=["a", "at"])
def test_rows_too_far_apart_for_a_field_come_one_by_one(transposed):
    rng = np.random.default_rng(5)
    shape = MatmulShape(m=65537 if transposed else 2, n=17 if transposed else 65540, k=3, a_transposed=transposed)
    left, right = rng.integers(-4, 5, (1, shape.m, 3)), rng.integers(-4, 5, (3, shape.n))
    got = multiply(shape, left.astype(np.float16), right.astype(np.float16), "fp16", "fp32")
    np.testing.assert_array_equal(got[0], left[0] @ right)


@pytest.mark.parametrize("transposed", [False, True], ids=["b", "bt"])
@pytest.mark.parametrize("out", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("compute", ["fp16", "bf16", "fp32"])
def test_bits_are_those_of_one_chain_rounded_once(compute, out, transposed):
    rng = np.random.default_rng(11)
    shape = MatmulShape(m=19, n=21, k=150, a_transposed=True, b_transposed=transposed)
    left = rng.standard_normal((1, shape.m, shape.k)).astype(NUMPY[compute])
    right = rng.standard_normal((shape.k, shape.n)).astype(NUMPY[compute])
    total = np.zeros((shape.m, shape.n), np.float32)
    for k in range(shape.k):
        # exact products; for these values the sum in float64 rounds as a fused step does (no double rounding occurs)
        exact = left[0, :, k, None].astype(np.float64) * right[None, k].astype(np.float64) + total.astype(np.float64)
        total = exact.astype(np.float32)
    got = multiply(shape, left, right, compute, out)[0]
    word = np.uint32 if out == "fp32" else np.uint16
    np.testing.assert_array_equal(got.view(word), total.astype(NUMPY[out]).view(word))


def test_many_cores_orders_and_poison_give_the_same_bits():
    rng = np.random.default_rng(3)
    shape = MatmulShape(m=300, n=140, k=600, batch=2)
    left = rng.standard_normal((2, 300, 600)).astype(np.float16)
    right = rng.standard_normal((600, 140)).astype(np.float16)
    reference = multiply(shape, left, right, "fp16", "fp16")
    for change in ({"threads": 3}, {"order": "late"}, {"order": 4}, {"poison": True}, {"chunk_rows": 1}):
        got = multiply(shape, left, right, "fp16", "fp16", replace(OPTIONS, **change))
        np.testing.assert_array_equal(got.view(np.uint16), reference.view(np.uint16))


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("compute", ["fp16", "fp32", "hf32"])
def test_rows_are_legal_ordered_and_timed(compute, stored):
    for shape in SHAPES:
        plan, *_ = planned(replace(shape, **stored), compute)
        assert run_hazards(plan.launches, CHIP) == []
        assert verify(emit_rows(plan.launches[0], 0, 0), CHIP) == []
        assert run_timeline(plan.launches[0], CHIP).total_cycles > 0


@pytest.mark.parametrize("compute", ["fp32", "hf32"])
def test_core_leaves_the_hf32_mode_as_it_found_it(compute):
    # the mode is state of the core: a float32 kernel that runs next would round its operands
    plan, *_ = planned(MatmulShape(m=130, n=20, k=9), compute)
    for core in range(plan.tiling.cores):
        rows = emit_rows(plan.launches[0], core, 0)
        switched = [bool(row["value"]) for row in rows if row["op"] == Op.SET_HF32]
        assert switched == ([True, False] if compute == "hf32" else [])


@pytest.mark.parametrize("transposed", [False, True], ids=["a b", "at bt"])
def test_every_ordering_lost_by_removing_a_row_is_reported(transposed):
    shape = MatmulShape(m=140, n=20, k=300, a_transposed=transposed, b_transposed=transposed)
    plan, gm, *_ = planned(shape)
    launch = replace(plan.launches[0], core_count=1)
    launch.params["cores"] = 1
    rows = emit_rows(launch, 0, 0)
    pairs = conflicts(rows)
    broken = 0
    for i in np.flatnonzero(np.isin(rows["op"], (Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER))):
        lost = lost_by_removal(rows, pairs, int(i))
        if lost:
            broken += 1
            assert run_hazards_rows(np.delete(rows, i), CHIP, gm.table())
    assert broken > 20


def test_product_without_split_cores_is_refused():
    message = r"^MatMul must run on split cores that multiply fp16, not on Ascend910A \(Atlas training series\)$"
    with pytest.raises(OperatorError, match=message) as caught:
        planned(MatmulShape(m=1, n=1, k=1), product=get_product("910"))
    assert caught.value.status == 561103


@pytest.mark.parametrize(
    ("shape", "cores"),
    [
        (MatmulShape(m=128, n=128, k=9), 1),
        (MatmulShape(m=129, n=128, k=9), 2),
        (MatmulShape(m=3, n=200, k=9, batch=2), 4),
        (MatmulShape(m=129, n=129, k=9, batch=7), 24),
    ],
)
def test_every_block_of_every_batch_item_gets_a_core_while_there_are_any(shape, cores):
    plan, *_ = planned(shape)
    assert CHIP.cube_core_count == 24
    assert plan.tiling.cores == plan.launches[0].core_count == cores
