"""Cube and vector cores of split products: which rows each has, and who says so."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import ProgramError
from npu_sim.isa.op import C220, OPS, SPEC_OF_OP, Data, Op, Pipe, Space
from npu_sim.isa.row import join_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.core_kind import foreign_rows, kind_of
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind
from tests.oracles.instances import GENERATORS, candidates

SPLIT, UNIFIED = get_product("910b"), get_product("310p")

# What the two cores have, transcribed from the description of the split architecture.
BUFFERS = {
    "cube": {Space.L1, Space.L0A, Space.L0B, Space.L0C, Space.BT, Space.FB, Space.IDX},
    "vector": {Space.UB},
}
PIPES = {
    "cube": {Pipe.S, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3, Pipe.FIX},
    "vector": {Pipe.S, Pipe.V, Pipe.MTE2, Pipe.MTE3},
}


def _buffers_of(row):
    """On-chip buffers an instruction moves or computes with, by its definition."""
    op = Op(row["op"])
    fixed = {
        Op.MMAD: {Space.L0A, Space.L0B, Space.L0C},
        Op.MMAD_BIAS: {Space.L0A, Space.L0B, Space.L0C, Space.BT},
        Op.LOAD_BIAS: {Space.L1, Space.BT},
        Op.MMAD_INT4: {Space.L0A, Space.L0B, Space.L0C},
        Op.LOAD_SPARSE: {Space.L1, Space.L0B, Space.IDX},
        Op.MMAD_SPARSE: {Space.L0A, Space.L0B, Space.L0C, Space.IDX},
        Op.LOAD_SCALES: {Space.L1, Space.FB},
        Op.L0C_TO_UB: {Space.L0C, Space.UB},
    }
    if op in fixed:
        return fixed[op]
    if op in (Op.FIXPIPE, Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES):
        return {Space.L0C, Space(row["dst_space"])} - {Space.GM}
    if op in (Op.FILL, Op.SCALAR_STORE):
        return {Space(row["dst_space"])} - {Space.GM}
    if op in (Op.SCALAR_LOAD, Op.SCALAR_LOOK):
        return {Space(row["src0_space"])} - {Space.GM}
    if row["pipe"] == Pipe.V:
        return {Space.UB}
    return {Space(row["dst_space"]), Space(row["src0_space"])} - {Space.GM}


@pytest.mark.parametrize("kind", ["cube", "vector"])
@pytest.mark.parametrize("op", list(GENERATORS), ids=lambda op: Op(op).name)
def test_rows_of_every_opcode_belong_to_the_cores_with_their_buffers_and_pipe(op, kind):
    legal = [row for row in (instance.rows[-1:] for instance in candidates(op, 17, 30)) if verify(row, SPLIT) == []]
    for row in legal:
        has = _buffers_of(row[0]) <= BUFFERS[kind] and Pipe(row[0]["pipe"]) in PIPES[kind]
        assert bool(foreign_rows(row, SPLIT, kind)[0]) == (not has)
        assert not foreign_rows(row, UNIFIED, kind)[0]
    assert bool(legal) == (C220 in SPEC_OF_OP[op].archs)


def test_flags_and_barriers_of_missing_pipes_are_foreign():
    builder = ProgramBuilder(SPLIT)
    builder.set_flag(Pipe.V, Pipe.MTE3, 0)
    builder.wait_flag(Pipe.V, Pipe.MTE3, 0)
    builder.set_flag(Pipe.MTE1, Pipe.M, 0)
    builder.pipe_barrier(Pipe.FIX)
    builder.pipe_barrier(Pipe.ALL)
    builder.set_flag(Pipe.MTE2, Pipe.S, 0)
    builder.set_atomic(Data.FP32)
    assert foreign_rows(builder.rows, SPLIT, "cube").tolist() == [True, True, False, False, False, False, False]
    assert foreign_rows(builder.rows, SPLIT, "vector").tolist() == [False, False, True, True, False, False, False]


def _program(product, *kinds):
    builder = ProgramBuilder(product)
    if "vector" in kinds:
        builder.duplicate(dst=0, dtype=Data.FP32, count=8)
    if "cube" in kinds:
        builder.fill(dst_space=Space.L1, dst=0, dtype=Data.FP16)
    return builder


def test_verify_reports_rows_of_the_other_kind_of_core():
    rows = _program(SPLIT, "vector", "cube").rows
    assert verify(rows, SPLIT) == []
    [cube] = verify(rows, SPLIT, core_kind="cube")
    assert (cube.kind, cube.row) == (Kind.UNSUPPORTED, 0)
    assert cube.detail == "Duplicate must run on a vector core, not on a cube core (Ascend910B2)"
    [vector] = verify(rows, SPLIT, core_kind="vector")
    assert (vector.kind, vector.row) == (Kind.UNSUPPORTED, 1)
    assert vector.detail == "InitConstValue must run on a cube core, not on a vector core (Ascend910B2)"
    assert verify(_program(UNIFIED, "vector", "cube").rows, UNIFIED, core_kind="vector") == []


def test_hazards_report_rows_of_the_other_kind_of_core_with_their_place():
    gm = GlobalMemory()
    for kind, other in (("cube", "vector"), ("vector", "cube")):
        launch = _program(SPLIT, kind).launch(gm, core_kind=kind)
        assert run_hazards(launch, SPLIT) == []
        wrong = _program(SPLIT, kind).launch(gm, core_kind=other, check=False)
        [violation] = run_hazards([launch, wrong], SPLIT)
        assert (violation.kind, violation.row) == (Kind.UNSUPPORTED, 0)
        assert violation.detail.endswith(" must run on the other kind of core (Ascend910B2) (program)")
    mixed = _program(UNIFIED, "vector", "cube")
    assert run_hazards(mixed.launch(gm), UNIFIED) == []


def test_launch_of_a_builder_takes_the_kind_of_its_rows_and_refuses_both():
    gm = GlobalMemory()
    assert _program(SPLIT, "vector").launch(gm).core_kind == "vector"
    assert _program(SPLIT, "cube").launch(gm).core_kind == "cube"
    assert kind_of(join_rows([]), SPLIT) == "cube"
    with pytest.raises(ProgramError, match=r"InitConstValue must run on a cube core, not on a vector core"):
        _program(SPLIT, "vector", "cube").launch(gm)


def test_execute_refuses_unchecked_rows_of_the_other_kind_of_core():
    gm = GlobalMemory()
    gm.add("t", 64, initialised=True)
    gm.arena[:] = 0
    launch = _program(SPLIT, "vector").launch(gm)
    execute(launch, SPLIT, ExecuteOptions(accumulation=SERIAL))
    object.__setattr__(launch, "core_kind", "cube")
    with pytest.raises(ProgramError, match=r"Duplicate must run on a vector core, not on a cube core"):
        execute(launch, SPLIT, ExecuteOptions(accumulation=SERIAL))
    assert np.all(gm.arena == 0)


def test_every_opcode_with_a_pipe_of_one_kind_is_covered():
    # an opcode whose pipes both kinds have must be told apart by its buffers: the table above has them all
    assert {spec.op for spec in OPS} - set(GENERATORS) == {
        Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER, Op.SET_ATOMIC, Op.SET_HF32, Op.ALLOC_TENSOR, Op.FREE_TENSOR,
        Op.SET_VECTOR_MASK, Op.RESET_MASK, Op.SET_MASK_COUNT, Op.SET_MASK_NORM,
        Op.CROSS_CORE_SET_FLAG, Op.CROSS_CORE_WAIT_FLAG, Op.SET_ATOMIC_MAX, Op.SET_ATOMIC_MIN,
        Op.SET_SIGNAL, Op.WAIT_SIGNAL,
    }  # fmt: skip
