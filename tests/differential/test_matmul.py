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
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.errors import OperatorError, ShapeError
from npu_sim.isa.op import Op
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.matmul.plan import matmul_launches
from ops.matmul.tiling import MatmulShape, MatmulTiling, buffers_of
from ops.matmul.tiling_search import reuse_bytes, search_tiling
from ops.matmul.tuning_record import bank_tiling, listed_fields
from tests.oracles.sync_removal import conflicts, lost_by_removal

CHIP = get_product("910b")
NUMPY = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "hf32": np.float32}
OPTIONS = ExecuteOptions(accumulation=SERIAL)


def elems(rows, columns, is_nz):
    """Return the elements of a stored matrix."""
    return -(-rows // 16) * 16 * -(-columns // 16) * 16 if is_nz else rows * columns


def planned(shape, compute="fp16", out="fp32", product=CHIP, **given):
    """Return the plan, its memory and the three tensors."""
    gm = GlobalMemory()
    item, out_item = np.dtype(NUMPY[compute]).itemsize, np.dtype(NUMPY[out]).itemsize
    a = gm.add("a", shape.batch * elems(shape.m, shape.k, shape.a_nz) * item, initialised=True)
    count = shape.batch if shape.b_batched else 1
    b = gm.add("b", count * elems(shape.k, shape.n, shape.b_nz) * item, initialised=True)
    c = gm.add("c", shape.batch * elems(shape.m, shape.n, shape.c_nz) * out_item, initialised=False)
    return matmul_launches(shape, product, compute, out, gm, a, b, c, **given), gm, a, b, c


def in_fractals(matrices):
    """Return matrices as FRACTAL_NZ: [column of 16][row][16], padded with zeros."""
    rows, columns = matrices.shape[-2:]
    pads = [(0, 0)] * (matrices.ndim - 2) + [(0, -rows % 16), (0, -columns % 16)]
    padded = np.pad(matrices, pads)
    return padded.reshape(*padded.shape[:-1], -1, 16).swapaxes(-2, -3)


def out_of_fractals(stored, shape):
    """Return C[batch][m][n] of FRACTAL_NZ in a flat array."""
    columns, rows = -(-shape.n // 16), -(-shape.m // 16) * 16
    whole = stored.reshape(shape.batch, columns, rows, 16).swapaxes(1, 2)
    return whole.reshape(shape.batch, rows, columns * 16)[:, : shape.m, : shape.n]


def multiply(shape, left, right, compute, out, options=OPTIONS, product=CHIP, **given):
    """Return C as the emulator computes it; ``left`` is [batch][m][k], ``right`` [k][n] or [batch][k][n]."""
    plan, gm, a, b, c = planned(shape, compute, out, product, **given)
    left = left.swapaxes(1, 2) if shape.a_transposed else left
    right = right.swapaxes(-1, -2) if shape.b_transposed else right
    gm.arena[:] = 0xFF
    for tensor, matrices, is_nz in ((a, left, shape.a_nz), (b, right, shape.b_nz)):
        stored = in_fractals(matrices) if is_nz else matrices
        gm.view(tensor, NUMPY[compute], stored.shape)[...] = stored
    for launch in plan.launches:
        execute(launch, product, options)
    if shape.c_nz:
        return out_of_fractals(gm.view(c, NUMPY[out], (-1,)), shape).copy()
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
    tiling = MatmulTiling(base_m=128, base_n=32, base_k=64, k_a=128, k_b=64)
    plan, gm, *_ = planned(shape, tiling=tiling)
    rows = emit_rows(plan.launches[0], 0, 0)
    pairs = conflicts(rows)
    broken = 0
    for i in np.flatnonzero(np.isin(rows["op"], (Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER))):
        lost = lost_by_removal(rows, pairs, int(i))
        if lost:
            broken += 1
            assert run_hazards_rows(np.delete(rows, i), CHIP, gm.table())
    assert broken > 20


UNIFIED_SHAPES = [
    MatmulShape(m=1, n=16, k=16),
    MatmulShape(m=17, n=32, k=48),
    MatmulShape(m=3, n=208, k=80, batch=2),
    MatmulShape(m=130, n=144, k=1040),
]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", ["910", "310p"])
@pytest.mark.parametrize("shape", UNIFIED_SHAPES, ids=lambda s: f"{s.batch}x{s.m}x{s.n}x{s.k}")
def test_product_on_unified_cores_is_exact_and_ordered(shape, name, stored):
    chip = get_product(name)
    rng = np.random.default_rng([shape.m, shape.n])
    shape = replace(shape, **stored)
    if shape.a_transposed:
        # stored rows begin at whole blocks
        shape = replace(shape, m=-(-shape.m // 16) * 16)
    left = rng.integers(-4, 5, (shape.batch, shape.m, shape.k)).astype(np.float16)
    own = (shape.batch,) if shape.b_batched else ()
    right = rng.integers(-4, 5, (*own, shape.k, shape.n)).astype(np.float16)
    plan, *_ = planned(shape, product=chip)
    assert run_hazards(plan.launches, chip) == []
    assert verify(emit_rows(plan.launches[0], 0, 0), chip) == []
    assert run_timeline(plan.launches[0], chip).total_cycles > 0
    got = multiply(shape, left, right, "fp16", "fp32", product=chip)
    np.testing.assert_array_equal(got, left.astype(np.int64) @ right.astype(np.int64))


def test_rows_too_far_apart_for_a_copy_come_one_by_one_on_unified_cores():
    # rows of 65,537 blocks, and twice as many of C in fp32
    rng = np.random.default_rng(7)
    shape = MatmulShape(m=16, n=16 * 65_537, k=16)
    left, right = rng.integers(-4, 5, (1, 16, 16)), rng.integers(-4, 5, (16, shape.n))
    got = multiply(shape, left.astype(np.float16), right.astype(np.float16), "fp16", "fp32", product=get_product("910"))
    np.testing.assert_array_equal(got[0], left[0] @ right)


def test_type_that_the_cube_cannot_multiply_is_refused():
    message = r"^MatMul must run on cores that multiply bf16, not on Ascend910A \(Atlas training series\)$"
    with pytest.raises(OperatorError, match=message) as caught:
        planned(MatmulShape(m=1, n=1, k=1), "bf16", product=get_product("910"))
    assert caught.value.status == 561103


def test_cores_are_used_while_there_are_blocks():
    assert CHIP.cube_core_count == 24
    for shape, least in ((MatmulShape(m=16, n=16, k=9), 1), (MatmulShape(m=512, n=512, k=64, batch=7), 20)):
        plan, *_ = planned(shape)
        assert least <= plan.tiling.cores == plan.launches[0].core_count <= 24
    plan, *_ = planned(MatmulShape(m=512, n=512, k=64), block_dim=5)
    assert plan.tiling.cores <= 5


TILINGS = {
    "chunks of their own": MatmulTiling(base_m=32, base_n=48, base_k=32, k_a=64, k_b=160, cores_m=2),
    "A stays": MatmulTiling(base_m=32, base_n=16, base_k=48, k_a=304, k_b=96, blocks_a=2, cores_n=3),
    "B stays": MatmulTiling(base_m=16, base_n=32, base_k=304, k_a=80, k_b=304, blocks_b=3, cores_batch=2),
    "B stays in L0B": MatmulTiling(base_m=48, base_n=64, base_k=64, k_a=304, k_b=112, keeps_b=True, cores_n=2),
    "one L0C": MatmulTiling(base_m=160, base_n=144, base_k=16, k_a=16, k_b=304),
}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize("compute", ["fp16", "fp32"])
def test_every_tiling_gives_the_same_bits(name, compute, stored):
    rng = np.random.default_rng(9)
    shape = MatmulShape(m=117, n=133, k=300, batch=2, **stored)
    tiling = TILINGS[name]
    if compute == "fp32":
        tiling = replace(tiling, base_k=16, base_n=min(tiling.base_n, 48))
    left = rng.standard_normal((2, shape.m, shape.k)).astype(NUMPY[compute])
    own = (2,) if shape.b_batched else ()
    right = rng.standard_normal((*own, shape.k, shape.n)).astype(NUMPY[compute])
    expected = multiply(shape, left, right, compute, "fp32")
    plan, *_ = planned(shape, compute, tiling=tiling)
    assert run_hazards(plan.launches, CHIP) == []
    got = multiply(shape, left, right, compute, "fp32", tiling=tiling)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("stored", STORED)
def test_operands_and_result_in_fractals_give_the_same_bits(stored):
    rng = np.random.default_rng(10)
    shape = MatmulShape(m=70, n=37, k=90, batch=2, **stored)
    left = rng.standard_normal((2, shape.m, shape.k)).astype(np.float16)
    own = (2,) if shape.b_batched else ()
    right = rng.standard_normal((*own, shape.k, shape.n)).astype(np.float16)
    expected = multiply(shape, left, right, "fp16", "fp16")
    for which in ("a_nz", "b_nz", "c_nz"):
        plan, *_ = planned(replace(shape, **{which: True}), out="fp16")
        assert run_hazards(plan.launches, CHIP) == []
        got = multiply(replace(shape, **{which: True}), left, right, "fp16", "fp16")
        np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))


def test_tuning_record_is_replayed():
    shape = MatmulShape(m=1280, n=128, k=20480, a_transposed=True, a_nz=True, b_nz=True, c_nz=True)
    record = {
        "block_dim": [1, 2, 10, 1, 0],
        "al1": [640, 1],
        "bl1": [160, 1],
        "al0": [8, 5],
        "bl0": [5, 4],
        "cl0": [4, 8],
    }
    tiling = bank_tiling(shape, **record)
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.k_a, tiling.k_b) == (128, 64, 80, 640, 160)
    plan, *_ = planned(shape, tiling=tiling)
    options = TimelineOptions(inputs_in_l2=True)  # what is run again and again to be tuned
    result = run_timeline(plan.launches[0], get_product("Ascend910B1"), options=options)
    # 49.76 us on a device: a record of CANN 8.1.RC1's unified bank
    assert 40e-6 < result.seconds() < 62e-6


def listed(**changed):
    """A record as a list, in which every number is of its own: where it stands is what it means."""
    return [changed.get(f"_{place}", 1000 + place) for place in range(51)]


def test_tuning_record_that_is_a_list_has_its_fields_at_their_places():
    fields = listed_fields(listed())
    assert fields == {
        "block_dim": (1002, 1016, 1003),
        "al1": (1005, 1006),
        "bl1": (1017, 1018),
        "al0": (1027, 1028),
        "bl0": (1032, 1033),
        "cl0": (1038, 1037),
        "buffers": (1000, 1014, 1026, 1031, 1036),
    }
    assert listed_fields(listed(_5=[], _32=[])) == fields | {"al1": (), "bl0": ()}
    with pytest.raises(ShapeError, match="a list of 51 numbers, not of 50"):
        listed_fields(listed()[:50])
    with pytest.raises(ShapeError, match="cl0 entry must be"):
        listed_fields(listed(_38=None))
    for damaged in ({"_0": []}, {"_5": [9]}, {"_2": []}, {"_27": []}):
        with pytest.raises(ShapeError, match="entry must be"):
            listed_fields(listed(**damaged))


def test_tuning_record_says_how_many_buffers_there_are():
    shape = MatmulShape(m=512, n=512, k=2048, a_nz=True, b_nz=True, c_nz=True)
    record = {"block_dim": [1, 2, 2], "al1": [128, 1], "bl1": [64, 1], "al0": [4, 4], "bl0": [4, 4], "cl0": [4, 4]}
    unsaid = buffers_of(bank_tiling(shape, **record), shape, 2, CHIP.core)
    assert (unsaid.a1, unsaid.b1, unsaid.l0, unsaid.l0c) == (2, 2, 2, 2)
    times = []
    for place, name in enumerate(("a1", "b1", "l0", "l0", "l0c")):
        counts = [1 if place == other else 2 for other in range(5)]
        tiling = bank_tiling(shape, **record, buffers=counts)
        found = buffers_of(tiling, shape, 2, CHIP.core)
        assert found == replace(unsaid, **{name: 1})
        times.append(run_timeline(planned(shape, tiling=tiling)[0].launches[0], CHIP).seconds())
    of_two = run_timeline(planned(shape, tiling=bank_tiling(shape, **record))[0].launches[0], CHIP).seconds()
    assert min(times[:4]) > 1.05 * of_two
    assert times[4] > 0.99 * of_two
    # two of A and one of B fill L1; two of both do not fit
    shape = MatmulShape(m=2048, n=2048, k=2048, a_nz=True, b_nz=True, c_nz=True)
    record = {"block_dim": [1, 4, 4], "al1": [384, 2], "bl1": [512, 1], "al0": [8, 4], "bl0": [4, 8], "cl0": [8, 8]}
    for counts, there in (([2, 1], (2, 1)), ([1, 2], (1, 2)), ([2, 2], (1, 2)), ([1, 1], (1, 1))):
        found = buffers_of(bank_tiling(shape, **record, buffers=[*counts, 2, 2, 2]), shape, 2, CHIP.core)
        assert (found.a1, found.b1) == there
    # B that stays in L0B is there once: what alternates is A
    shape = MatmulShape(m=512, n=512, k=256, a_nz=True, b_nz=True, c_nz=True)
    record |= {"block_dim": [1, 2, 2], "al1": [128, 1], "al0": [4, 4], "bl0": [], "cl0": [4, 4]}
    kept = bank_tiling(shape, **record, buffers=[2, 2, 2, 1, 2])
    assert buffers_of(kept, shape, 2, CHIP.core).l0 == 2
    for wrong in ([2, 2, 2, 2], [1, 1, 1, 1, 3], [0, 1, 1, 1, 1]):
        with pytest.raises(ShapeError, match="buffers must be five numbers, 1 or 2 each"):
            bank_tiling(shape, **record, buffers=wrong)


@pytest.mark.parametrize("buffers", [(1, 1, 1, 1, 1), (1, 2, 2, 2, 1), (2, 1, 1, 2, 2)])
def test_number_of_buffers_changes_no_bit(buffers):
    rng = np.random.default_rng(21)
    shape = MatmulShape(m=117, n=133, k=300)
    record = {"block_dim": [1, 2, 2], "al1": [128, 1], "bl1": [64, 2], "al0": [2, 4], "bl0": [4, 2], "cl0": [2, 2]}
    left = rng.standard_normal((1, shape.m, shape.k)).astype(np.float16)
    right = rng.standard_normal((shape.k, shape.n)).astype(np.float16)
    expected = multiply(shape, left, right, "fp16", "fp32")
    tiling = bank_tiling(shape, **record, buffers=buffers)
    plan, *_ = planned(shape, tiling=tiling)
    assert run_hazards(plan.launches, CHIP) == []
    got = multiply(shape, left, right, "fp16", "fp32", tiling=tiling)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


def test_operand_that_stays_in_l1_is_read_once():
    shape = MatmulShape(m=512, n=1024, k=256, a_nz=True, b_nz=True, c_nz=True)
    tiling = MatmulTiling(base_m=128, base_n=128, base_k=64, k_a=256, k_b=64)
    moved = run_timeline(planned(shape, tiling=tiling)[0].launches[0], CHIP).bytes_by_path["GM->L1"]
    assert moved == 512 * 256 * 2 + 4 * 1024 * 256 * 2
    tiling = replace(tiling, k_a=64)
    moved = run_timeline(planned(shape, tiling=tiling)[0].launches[0], CHIP).bytes_by_path["GM->L1"]
    assert moved == 8 * 512 * 256 * 2 + 4 * 1024 * 256 * 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"base_m": 24}, ShapeError, "base_m must be a multiple of 16, not 24"),
        ({"cores_n": 3}, ShapeError, r"cores_n must be in \[1, 1\], not 3"),
        ({"blocks_a": 0}, ShapeError, "blocks_a and blocks_b must be at least 1"),
        ({"base_k": 1024}, OperatorError, "Blocks of a tiling must fit the buffers"),
    ],
)
def test_tiling_that_cannot_run_is_refused(change, error, message):
    tiling = MatmulTiling(base_m=64, base_n=64, base_k=64, k_a=64, k_b=64)
    with pytest.raises(error, match=message):
        planned(MatmulShape(m=64, n=64, k=2048), tiling=replace(tiling, **change))


def test_tuning_record_that_divides_k_is_refused():
    with pytest.raises(ShapeError, match="block_dim must not divide K"):
        bank_tiling(MatmulShape(m=16, n=16, k=64), block_dim=[1, 1, 1, 2], al0=[1, 1], cl0=[1, 1])


def test_next_chunk_is_fetched_before_this_one_is_multiplied():
    tiling = MatmulTiling(base_m=64, base_n=64, base_k=64, k_a=128, k_b=64)
    plan, *_ = planned(MatmulShape(m=64, n=64, k=512), tiling=tiling)
    ops = emit_rows(plan.launches[0], 0, 0)["op"].tolist()
    first = ops.index(Op.MMAD)
    # two chunks of A and two of B before the first product
    assert ops[:first].count(Op.ND2NZ) == 4


def test_operand_that_fits_l2_is_read_from_there_whatever_else_goes_by():
    # A and C do not fit 192 MB of L2, but all that is read again, B, does
    plan, *_ = planned(MatmulShape(m=65536, n=1024, k=1024), out="fp16")
    (launch,) = plan.launches
    assert launch.reuse_bytes < CHIP.l2_bytes
    result = run_timeline(launch, CHIP)
    assert result.l2_hit_permille == 1000
    other = run_timeline(replace(launch, reuse_bytes=None), CHIP)
    assert other.l2_hit_permille < 1000
    assert other.total_cycles > result.total_cycles


@pytest.mark.parametrize(
    "shape", [(7504, 512, 512), (4016, 256, 80), (1280, 1024, 21136), (1008, 960, 176), (16, 16, 16)]
)
def test_static_tiling_has_no_remainder(shape):
    m, n, k = shape
    found = search_tiling(MatmulShape(m=m, n=n, k=k, a_nz=True, b_nz=True), CHIP, "fp16", 24, is_static=True)
    blocks = ((m, found.base_m, found.cores_m), (n, found.base_n, found.cores_n))
    assert [(extent % base, extent // base % cores) for extent, base, cores in blocks] == [(0, 0), (0, 0)]
    assert [k % found.k_a, k % found.k_b, found.k_a % found.base_k, found.k_b % found.base_k] == [0] * 4


def test_static_tiling_of_a_prime_extent_takes_it_whole():
    # 1808 are 16 * 113 columns; 56.27 us on an Ascend910B2 (CANN 8.1.RC1's repository of matrix products): in narrow
    # blocks every row read would be one of 32 bytes
    shape = MatmulShape(m=32, n=1801, k=2048)
    found = search_tiling(shape, CHIP, "fp16", 24, is_static=True)
    buffers = buffers_of(found, shape, 2, CHIP.core)
    assert found.base_n == 1808
    assert buffers is not None
    assert buffers.l0 == 1
    launch = planned(shape, out="fp16", tiling=found)[0].launches[0]
    # this one needs no allowance for being better than the record's
    assert 45e-6 < run_timeline(replace(launch, stands_for_record=False), CHIP).seconds() < 70e-6
    rng = np.random.default_rng(9)
    left, right = rng.integers(-4, 5, (1, 32, 2048)), rng.integers(-4, 5, (2048, 1801))
    got = multiply(shape, left.astype(np.float16), right.astype(np.float16), "fp16", "fp32", tiling=found)
    np.testing.assert_array_equal(got[0], left[0] @ right)
    assert run_hazards([launch], CHIP) == []


def test_only_static_blocks_leave_no_room_for_a_second_one_in_l0():
    shape = MatmulShape(m=32, n=1801, k=2048)
    buffers = buffers_of(search_tiling(shape, CHIP, "fp16", 24), shape, 2, CHIP.core)
    assert buffers is not None
    assert buffers.l0 == 2


def test_an_operand_beyond_l2_is_read_once():
    chip = get_product("Ascend910B4")
    found = search_tiling(MatmulShape(m=4096, n=151936, k=1024, b_transposed=True), chip, "bf16", 20)
    # B has 311 MB: read anew for every block of M it would come from memory 20 times and more
    assert found.k_b >= 1024
    few = search_tiling(MatmulShape(m=4096, n=4096, k=1024, b_transposed=True), chip, "bf16", 20)
    assert reuse_bytes(few, MatmulShape(m=4096, n=4096, k=1024, b_transposed=True), 2) < chip.l2_bytes


def test_static_tiling_of_an_extent_with_large_prime_factors_takes_longer():
    # 7504 are 16 * 7 * 67 rows; 91.56 us on an Ascend910B2 (CANN 8.1.RC1's repository of matrix products)
    shape = MatmulShape(m=7504, n=512, k=512)
    found = {is_static: search_tiling(shape, CHIP, "fp16", 24, is_static=is_static) for is_static in (False, True)}
    launches = {is_static: planned(shape, tiling=tiling)[0].launches[0] for is_static, tiling in found.items()}
    times = {is_static: run_timeline(launch, CHIP).seconds() for is_static, launch in launches.items()}
    assert 2 * times[False] < times[True] < 115e-6
    # the record's own tiling, on 8 cores, which the search does not think of
    record = {"block_dim": [1, 8, 1], "al1": [256, 1], "al0": [7, 16], "bl0": [16, 4], "cl0": [4, 7]}
    tiling = bank_tiling(shape, **record, buffers=[2, 1, 1, 1, 1])
    seconds = run_timeline(planned(shape, out="fp16", tiling=tiling)[0].launches[0], CHIP).seconds()
    assert 70e-6 < seconds < 115e-6
    assert {is_static: launch.error_kind for is_static, launch in launches.items()} == {
        False: "matmul",
        True: "static_matmul",
    }
    assert [launches[is_static].stands_for_record for is_static in (False, True)] == [False, True]


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_a_product_says_what_makes_its_time_less_certain(dtype):
    """Short K by the extent, ragged rows by the bytes of a row of each matrix as NumPy stores it."""
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(200):
        m, k, n = (int(extent) for extent in rng.choice([9, 16, 48, 64, 72, 100, 128], 3))
        a_turned, b_turned, c_nz = (bool(flag) for flag in rng.integers(2, size=3))
        nz = dtype == "fp16" and bool(rng.integers(2))
        shape = MatmulShape(
            m=m, n=n, k=k, a_transposed=a_turned, b_transposed=b_turned, a_nz=nz, b_nz=nz, c_nz=c_nz and nz
        )
        (launch,) = planned(shape, compute=dtype, out=dtype)[0].launches
        item = {"fp16": np.float16, "fp32": np.float32}[dtype]
        stored = [] if nz else [np.empty((k, m) if a_turned else (m, k), item)]
        stored += [] if nz else [np.empty((n, k) if b_turned else (k, n), item)]
        stored += [] if shape.c_nz else [np.empty((m, n), item)]
        wanted = {"short_k"} if k <= 64 else set()
        wanted |= {"ragged_rows"} if any(matrix.strides[0] % 32 for matrix in stored) else set()
        assert set(launch.doubts) == wanted
        assert (launch.error_kind, launch.fixed_cost) == (
            ("float_matmul", "float_matmul") if dtype == "fp32" else ("matmul", "kernel")
        )
        seen.add(launch.doubts)
    assert len(seen) == 4
