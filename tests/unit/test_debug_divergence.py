"""Where a wrong result begins: seeded faults, holes, systematic errors, and a good program beside a bad one."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.debug.distance import default_budget, distances
from npu_sim.debug.divergence import diverge_from_golden
from npu_sim.debug.good import diverge_from_good
from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Mode, Space
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from tests.cases.python_kernels import CALLS
from tests.long.value_faults import run


def programs_of(call):
    made = call.record()
    return [made.rows(core) for core in range(made.launches[0].core_count)]


def find(rows, op, tile, nth=0):
    return int(np.flatnonzero((rows["op"] == op) & (rows["tile"] == tile))[nth])


@pytest.mark.parametrize("name", CALLS)
def test_right_kernels_do_not_diverge(name):
    call = CALLS[name]()
    execution = call.execution()
    found = diverge_from_golden(execution, {call.result: call.golden})
    assert found.place is None
    assert found.tensors[0].wrong_count == 0
    assert 0 < found.tensors[0].max_ulp < found.tensors[0].budget
    assert diverge_from_good(execution, call.execution()) is None


def test_a_slice_of_the_long_run_ends_at_row_or_tile():
    found = run(1, 18)
    assert found["faults"] == 18
    assert found["row_or_tile"] >= 0.9
    assert found["most_executions"] <= 30
    assert found["beside_a_good_program"].get("nowhere", 0) == 0


def test_mmad_of_too_little_k_is_named_with_its_matrices():
    call = CALLS["matmul"]()
    programs = programs_of(call)
    at = find(programs[1], Op.MMAD, 1, 2)
    programs[1]["k"][at] -= 16
    found = diverge_from_golden(call.execution(programs), {call.result: call.golden})
    assert (found.suspect.core, found.suspect.row) == (1, at)
    assert found.suspect.source.file.endswith("matmul.py")
    assert found.store.tile == 1
    assert found.chain[-1] == found.store
    roles = {operand.role: operand for operand in found.operands}
    row = programs[1][at]
    assert roles["reads L0A"].values.shape == (row["m"], row["k"])
    assert roles["reads L0B"].values.shape == (row["k"], row["n"])
    partial = roles["reads L0C"].values
    product = roles["reads L0A"].values.astype(np.float64) @ roles["reads L0B"].values.astype(np.float64)
    (written,) = found.results
    assert np.allclose(written.values, partial + product, rtol=1e-5, atol=1e-4)
    assert written.fractals.shape[1:] == (16, 16)
    golden = call.golden
    tensor = found.tensors[0]
    assert tensor.golden == golden[tensor.index]
    assert tensor.error_ulps > tensor.budget


def test_a_fault_of_every_tile_ends_at_the_first_tile():
    call = CALLS["weighted_sums"]()
    programs = programs_of(call)
    for rows in programs:
        rows["op"][rows["op"] == Op.SUB] = int(Op.ADD)
    found = diverge_from_golden(call.execution(programs), {call.result: call.golden})
    assert found.suspect is None
    assert (found.store.core, found.store.tile) == (0, 0)
    assert "no store of its line leaves right elements only" in found.reason
    assert any("Add" in place.text for place in found.chain)


def test_a_store_that_is_not_there_ends_at_its_tile():
    call = CALLS["vector_add"]()
    programs = programs_of(call)
    rows = programs[1]
    at = int(np.flatnonzero((rows["dst_space"] == Space.GM) & (rows["tile"] == 2))[0])
    programs[1] = join_rows([rows[:at], rows[at + 1 :]])
    found = diverge_from_golden(call.execution(programs), {call.result: call.golden})
    assert (found.place.core, found.place.tile) == (1, 2)
    assert found.reason.startswith("nobody writes the wrong elements")
    assert np.isnan(found.tensors[0].actual)


def test_a_good_program_beside_names_the_row_and_survives_other_addresses_and_flags():
    call = CALLS["matmul"]()
    good, programs = call.execution(), programs_of(call)
    at = find(programs[0], Op.MMAD, 1, 1)
    programs[0]["mode"][at] ^= Mode.INIT
    found = diverge_from_good(call.execution(programs), good)
    assert (found.suspect.core, found.suspect.row) == (0, at)
    assert found.store == found.suspect
    gone = find(programs_of(call)[0], Op.LOAD_2D, 1, 3)
    programs = programs_of(call)
    programs[0] = join_rows([programs[0][:gone], programs[0][gone + 1 :]])
    found = diverge_from_good(call.execution(programs), good)
    assert found.suspect.row == gone
    programs = programs_of(call)
    for rows in programs:  # everything of L1 elsewhere
        for field, space in (("dst", "dst_space"), ("src0", "src0_space")):
            rows[field][rows[space] == Space.L1] += 512
    programs[1] = join_rows([rows for rows in (programs[1][:1], programs[1])])
    assert diverge_from_good(call.execution(programs), good) is None


def test_goldens_of_other_sizes_and_programs_of_other_cores_are_refused():
    call = CALLS["vector_add"]()
    with pytest.raises(ShapeError, match="golden of z must have 40000 elements, not 3"):
        diverge_from_golden(call.execution(), {"z": np.zeros(3)})
    with pytest.raises(ShapeError, match="tensor must be one of"):
        diverge_from_golden(call.execution(), {"zz": np.zeros(3)})
    fewer = call.execution(programs_of(call)[:2])
    with pytest.raises(ShapeError, match="the launches, cores and phases"):
        diverge_from_good(call.execution(), fewer)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_distances_are_in_units_of_the_last_place(name):
    kind = get_dtype(name)
    golden = np.array([1.0, -3.0, 0.0, 100.0, kind.max_finite, 2.0**-140], np.float64)
    unit = np.array([2.0**-kind.mantissa_bits * scale for scale in (1, 2)])
    actual = golden.astype(kind.storage).astype(np.float64)
    actual[:2] += 3 * unit
    assert distances(actual.astype(kind.storage), golden, kind)[:2].tolist() == [3, 3]
    odd = np.array([np.nan, np.inf, np.nan, 1.0, np.inf], kind.storage)
    against = np.array([np.nan, np.inf, 1.0, np.nan, 1e300])
    assert distances(odd, against, kind).tolist() == [0, 0, np.inf, np.inf, 0]
    assert distances(np.array([0.5], kind.storage), np.array([0.0]), kind, 1.0).tolist() == [0.5 / unit[0]]
    assert default_budget(kind) == (64 if name == "fp32" else 2)


def test_distances_of_integers_are_their_differences():
    kind = get_dtype("int32")
    assert distances(np.array([5, -3], np.int32), np.array([5, 4]), kind).tolist() == [0, 7]
    assert default_budget(kind) == 0
