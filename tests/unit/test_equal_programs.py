"""What equal cores do in their buffers is checked once: the findings are those of checking every core."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import ops
from npu_sim.engines import hazards_book as kept
from npu_sim.engines import hazards_jit as jitted
from npu_sim.engines.hazards import run_hazards
from npu_sim.isa import emit
from npu_sim.isa.codes import Data, Pipe, Space
from npu_sim.isa.footprint import empty_runs, footprint_at
from npu_sim.isa.row import join_rows
from npu_sim.products import get_product
from npu_sim.program.legality import programs_of, verify_launch, verify_launches
from npu_sim.program.row_digest import LANES, MASKS, Programs
from npu_sim.program.verify import verify
from tests.oracles.instances import GENERATORS, candidates
from tests.unit.small_launches import barrier, launch_of, set_flag, wait_flag

CHIP = get_product("910b")


def _alone(launch):
    """Return programs that all differ, as if no two cores were equal."""
    found = programs_of(launch)
    digests = [[bytes([phase, core]) for core in range(launch.core_count)] for phase in range(launch.phase_count)]
    return Programs(tuple(map(tuple, digests)), found.row_counts)


def _load(address, block_len=4):
    return lambda r, n: emit.emit_data_copy(
        r, n, Space.UB, 0, Space.GM, address, 1, block_len, 0, 0, Data.FP16, 0, 0, 0
    )


def _store(address, block_len=4):
    return lambda r, n: emit.emit_data_copy(
        r, n, Space.GM, address, Space.UB, 0, 1, block_len, 0, 0, Data.FP16, 0, 0, 0
    )


def _exchange(load, store, waits=True):
    """Return a program that loads and stores, with or without a wait between both."""
    order = [set_flag(Pipe.MTE2, Pipe.MTE3), wait_flag(Pipe.MTE2, Pipe.MTE3)] if waits else []
    return [_load(load), *order, _store(store)]


PROGRAMS = {
    "clean": lambda core, phase: _exchange(128 * core, 128 * core + 2048),
    "race in a buffer": lambda core, phase: _exchange(128 * core, 128 * core + 2048, waits=False),
    "two cores store to the same bytes": lambda core, phase: _exchange(128 * core, 128 * (core // 2) + 2048),
    "one core reads what another writes": lambda core, phase: _exchange(128 * core, 128 * ((core + 1) % 4)),
    "one core out of bounds": lambda core, phase: _exchange(128 * core, 2048 if core < 3 else 4096 - 32),
    "one core where no memory is": lambda core, phase: _exchange(128 * core, 2048 if core < 3 else 1 << 55),
    "one core below all memory": lambda core, phase: _exchange(128 * core if core < 3 else -64, 128 * core + 2048),
    "another core races": lambda core, phase: _exchange(128 * core, 128 * core + 2048, waits=core != 2),
    "flags left set": lambda core, phase: [*_exchange(128 * core, 128 * core + 2048), set_flag(Pipe.V, Pipe.S)],
    "a wait before its set": lambda core, phase: [
        wait_flag(Pipe.MTE2, Pipe.MTE3), _store(128 * core + 2048), _load(128 * core), set_flag(Pipe.MTE2, Pipe.MTE3)
    ],
    "no order between phases needed": lambda core, phase: _exchange(128 * core, 128 * core + 2048)[: 3 + phase],
    "barriers": lambda core, phase: [*_exchange(128 * core, 128 * core + 2048), barrier(Pipe.ALL), _load(128 * core)],
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("phases", "trusted"), [(1, False), (2, True), (2, False)])
def test_findings_are_those_of_checking_every_core(name, phases, trusted):
    launch = dataclasses.replace(launch_of(PROGRAMS[name], cores=4, phases=phases), trusted=trusted, core_kind="vector")
    launches = [launch, launch]
    expected = run_hazards(launches, CHIP, programs=[_alone(launch)] * 2)
    assert run_hazards(launches, CHIP) == expected
    assert run_hazards(launches, CHIP, programs=[programs_of(launch)] * 2) == expected
    if name in ("clean", "barriers"):
        assert expected == []
    elif phases == 1 and name != "a wait before its set":
        assert expected or "phases" in name


@pytest.mark.parametrize("product", ["910b", "310p", "910"])
def test_buffers_of_equal_cores_are_looked_at_once(product, monkeypatch):
    shapes = (2, 40, 9, 9), (2, 24, 9, 9), (40, 24, 3, 3)
    arrays = [np.ones(shape, np.float16) for shape in shapes]
    chip = get_product(product)
    launches = ops.convolution_backward(
        *arrays, stride=1, padding=1, dilation=1, product=chip
    ).plan.calls.launches  # fmt: skip
    whole = partial = 0
    check_rows = jitted.check_rows

    def counting(shadow, rows, first, end):
        nonlocal whole, partial
        if shadow.book[kept.GM_ONLY]:
            partial += end - first
        else:
            whole += end - first
        return check_rows(shadow, rows, first, end)

    monkeypatch.setattr(jitted, "check_rows", counting)
    assert run_hazards(launches, chip) == []
    assert whole > 0
    assert partial > 0.3 * whole


def test_nothing_but_the_place_in_gm_is_left_out_of_what_checks_read():
    """Noise in bits that count in no digest leaves runs in buffers, findings of the rules and lengths in GM alone."""
    rng = np.random.default_rng(11)
    rows = join_rows([instance.rows for op in sorted(GENERATORS) for instance in candidates(op, 3, 40)])
    noisy = rows.copy()
    words = noisy.view(np.uint8).view(np.uint64).reshape(-1, LANES)
    masks = MASKS[rows["op"]]
    words[:] = (words & masks) | (rng.integers(0, 1 << 64, words.shape, dtype=np.uint64) & ~masks)
    moved, runs = 0, empty_runs()
    for at in range(len(rows)):
        before = runs[: max(0, int(footprint_at(rows, at, runs)))].tolist()
        spaces = {run[0] for run in before}
        for field, write in (("dst", True), ("src0", False)):
            touched = [run for run in before if run[0] == Space.GM and (run[1] != 0) == write]
            if touched and len(spaces) > 1:
                noisy[field][at] += 32 * int(rng.integers(1, 1 << 20))
                moved += 1
        after = runs[: max(0, int(footprint_at(noisy, at, runs)))].tolist()
        assert [run for run in after if run[0] != Space.GM] == [run for run in before if run[0] != Space.GM]
        assert [run[3:] for run in after if run[0] == Space.GM] == [run[3:] for run in before if run[0] == Space.GM]
    assert moved > 100
    for chip in map(get_product, ("910b", "310p", "910")):
        kinds = [{(one.row, one.kind) for one in verify(some, chip)} for some in (rows, noisy)]
        assert kinds[0] == kinds[1]


def test_rules_are_applied_to_one_of_equal_programs_and_to_all_if_it_breaks_one():
    bad = dataclasses.replace(launch_of(lambda core, phase: [_load(128 * core, 70000)], cores=4), core_kind="vector")
    assert {one.core for one in verify_launch(bad, CHIP)} == {0, 1, 2, 3}
    assert verify_launch(bad, CHIP, programs=programs_of(bad)) == verify_launch(bad, CHIP)


def test_alignment_of_an_address_in_gm_tells_programs_apart():
    launch = launch_of(lambda core, phase: [_store(64 * core + 16 * (core == 3))], cores=4)
    digests = programs_of(launch).digests[0]
    assert len({*digests[:3]}) == 1
    assert digests[3] != digests[0]


def test_kinds_of_cores_tell_programs_apart():
    launch = dataclasses.replace(launch_of(lambda core, phase: [_load(0)], cores=3), vectors=2)
    cube, *vector = programs_of(launch).digests[0]
    assert vector[0] == vector[1] != cube


def test_counts_are_those_of_the_rows():
    launch = launch_of(lambda core, phase: [_load(0)] * (1 + core + phase), cores=3, phases=2)
    assert programs_of(launch).row_counts.tolist() == [[1, 2, 3], [2, 3, 4]]


def _late():
    """Return a launch whose third core breaks a rule in its second phase."""

    def program(core, phase):
        return [_load(0), _load(0, 70000 if (core, phase) == (2, 1) else 4)]

    return dataclasses.replace(launch_of(program, cores=3, phases=2), trusted=True, core_kind="vector")


def test_row_numbers_run_on_behind_programs_that_are_passed_over():
    found = verify_launch(_late(), CHIP, programs=programs_of(_late()))
    assert {(one.core, one.row) for one in found} == {(2, 3)}
    assert found == verify_launch(_late(), CHIP)


@pytest.mark.parametrize("kind", ["cube", "vector"])
def test_launches_are_judged_together_as_each_alone(kind):
    right = launch_of(lambda core, phase: [_load(0)], cores=2)
    bad = launch_of(lambda core, phase: [_load(128 * core, 70000)] * 2, cores=2)
    launches = [dataclasses.replace(right, core_kind="vector"), _late(), dataclasses.replace(bad, core_kind=kind)]
    alone = [dataclasses.replace(one, launch=at) for at, own in enumerate(launches) for one in verify_launch(own, CHIP)]
    assert {one.launch for one in alone} == {1, 2}
    for programs in (None, [programs_of(launch) for launch in launches]):
        assert verify_launches(launches, CHIP, programs=programs) == alone
