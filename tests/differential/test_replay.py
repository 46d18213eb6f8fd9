"""Rows of many cores in turns: on buffers of their own, and as steps on those of one."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute_options import ExecuteOptions, configuration
from npu_sim.engines.kit import KITS, Kit
from npu_sim.engines.replay import Replay, Turn
from npu_sim.engines.replay_jit import LEAVE
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.codes import ON_CHIP, Data, Space
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from npu_sim.program.builder import ProgramBuilder
from tests.oracles.instances import A2, GENERATORS, SIZES, drawn, issued

pytestmark = pytest.mark.skipif(not JIT_ENABLED, reason="rows run again as compiled code only")

CONFIG = configuration(A2, ExecuteOptions(accumulation=default_accumulation(A2, "fp16")))
EACH = 6


@pytest.fixture(scope="module")
def instances():
    """Rows of every instruction of A2 that takes no addresses from memory."""
    found = [one for op in GENERATORS for one in drawn(op, 91, EACH) if one.builder.product is A2 and not one.planted]
    return [one.rows for one in found]


def stored(space, gm, size):
    """Return the row that copies the start of UB or L1 to memory."""
    builder = ProgramBuilder(A2)
    builder.data_copy(
        dst_space=Space.GM, dst=gm, src_space=space, src=0, block_len=size // 32, dtype=Data.FP16, tensor=0,
    )  # fmt: skip
    return issued(builder)


def program(rng, instances, *, cores, turns):
    """Return rows and turns; of each core the last ones store what UB and L1 hold."""
    lots = []
    for _ in range(turns):
        chosen = [instances[i] for i in rng.integers(0, len(instances), int(rng.integers(0, 9)))]
        if rng.integers(3) == 0:
            chosen.append(stored(rng.choice([Space.UB, Space.L1]), 0, 1 << int(rng.integers(5, 12))))
        lots.append((int(rng.integers(cores)), chosen))
    lots += [
        (core, [stored(space, SIZES[Space.GM], 1 << 15)]) for core in range(cores) for space in (Space.UB, Space.L1)
    ]
    rows, placed, first = [], [], 0
    for core, chosen in lots:
        last = first + sum(map(len, chosen))
        placed.append(Turn(core, first, last))
        rows += chosen
        first = last
    return join_rows(rows), placed


def run_apart(rows, turns, gm):
    """Run rows on poisoned buffers of each core; return them."""
    kits = {}
    for turn in turns:
        if turn.core not in kits:
            kits[turn.core] = Kit.for_core(A2.core)
            kits[turn.core].memory.poison()
        kit = kits[turn.core]
        no_log = np.zeros(SINK_LENGTH, np.int64), np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)
        work = CONFIG, kit.scratch, kit.staging, *no_log
        assert run_rows(rows, turn.first, turn.last, gm, *kit.memory.buffers, *work) == -1
    return kits


def memory(rng):
    return rng.integers(0, 256, SIZES[Space.GM] + (1 << 15), dtype=np.uint8)


@pytest.mark.parametrize("seed", range(30))
def test_turns_on_the_buffers_of_one_core_are_those_on_buffers_of_their_own(instances, seed):
    rng = np.random.default_rng(seed)
    rows, turns = program(rng, instances, cores=int(rng.integers(1, 6)), turns=int(rng.integers(1, 25)))
    replay = Replay.of(rows, turns)
    assert replay is not None
    for _ in range(2):  # the second finds what the first left in the buffers
        expected = memory(rng)
        gm = expected.copy()
        kits = run_apart(rows, turns, expected)
        assert replay.run(gm, A2.core, CONFIG) < 0
        np.testing.assert_array_equal(gm, expected)
    last = next(turn.core for turn in reversed(turns) if turn.first < turn.last)
    kit = KITS.take(A2.core)  # the one that was given back
    places = dict(zip(ON_CHIP, kit.memory.buffers, strict=True))
    others = dict(zip(ON_CHIP, kits[last].memory.buffers, strict=True))
    hulls = touched_of(replay, turns, last)
    for space in ON_CHIP:
        first, end = hulls.get(space, (0, 0))
        got, want = (held[space].view(np.uint8)[first:end] for held in (places, others))
        np.testing.assert_array_equal(got, want, err_msg=space.name)
    KITS.give_back(A2.core, kit)


def touched_of(replay, turns, core):
    """Return by space the bytes that are poisoned for the last turn of a core."""
    starts = [number for number, step in enumerate(replay.steps.tolist()) if step[0] == 0]
    begin = starts[-2] + 1 if len(starts) > 1 else 0
    steps = replay.steps[begin : starts[-1]].tolist()
    return {Space(space): (first, last) for what, space, first, last, _ in steps if what == 1}


def test_every_kind_of_instruction_took_part(instances):
    names = {Op(int(op)) for rows in instances for op in rows["op"]}
    assert len(names) > 110
    assert {Op.MMAD, Op.LOAD_3D, Op.FIXPIPE, Op.LOAD_SPARSE, Op.MMAD_BIAS, Op.ADDS, Op.DATA_COPY_PAD} <= names


def test_a_core_finds_poison_and_not_what_another_left():
    def copy_in(core):
        builder = ProgramBuilder(A2)
        builder.data_copy(
            dst_space=Space.UB, dst=64 * core, src_space=Space.GM, src=0, block_len=1, dtype=Data.FP16, tensor=0
        )
        return issued(builder)

    parts = [copy_in(0), stored(Space.UB, 256, 128), copy_in(1), stored(Space.UB, 512, 128), stored(Space.UB, 768, 64)]
    turns = [Turn(0, 0, 1), Turn(0, 1, 2), Turn(1, 2, 3), Turn(1, 3, 4), Turn(0, 4, 5)]
    replay = Replay.of(join_rows(parts), turns)
    gm = np.zeros(1024, np.uint8)
    gm[:32] = 7
    assert replay.run(gm, A2.core, CONFIG) < 0
    assert (gm[256:288] == 7).all()
    assert (gm[288:384] == 255).all()
    assert (gm[512:576] == 255).all()
    assert (gm[576:608] == 7).all()
    assert (gm[768:800] == 7).all()
    assert (gm[800:832] == 255).all()
    assert (replay.steps[:, 0] == LEAVE).sum() == 1  # core 1 has no turn behind


def test_cores_that_leave_much_need_buffers_of_their_own():
    whole = stored(Space.L1, 0, 1 << 19)
    parts = [whole] * 34
    turns = [Turn(i % 17, i, i + 1) for i in range(34)]
    assert Replay.of(join_rows(parts), turns) is None
    assert Replay.of(join_rows(parts[:32]), [Turn(i % 16, i, i + 1) for i in range(32)]) is not None


def test_no_rows_do_nothing():
    gm = np.arange(64, dtype=np.uint8)
    replay = Replay.of(join_rows([stored(Space.UB, 0, 32)])[:0], [Turn(0, 0, 0)])
    assert replay.run(gm, A2.core, CONFIG) < 0
    assert gm.tolist() == list(range(64))
