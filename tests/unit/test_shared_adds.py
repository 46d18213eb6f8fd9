"""Cores wait for those alone that add to the same bytes, and the sums are those of cores one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines import execute as engine
from npu_sim.engines import execute_again, execute_core
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.execute_turns import Log, Turns, core_sequence
from npu_sim.engines.shared_adds import earlier_sharers
from npu_sim.isa import emit
from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.products import get_product
from tests.unit.small_launches import launch_of

CHIP = get_product("910b")
BLOCK, STRIPE = 32, 512
GM_BYTES = 1 << 15


@dataclass(frozen=True)
class Store:
    """Blocks of one value, ``gap`` blocks apart, that are added to GM or overwrite it."""

    address: int
    blocks: int
    gap: int
    value: float
    adds: bool

    @property
    def places(self):
        """Where the blocks begin."""
        return [self.address + i * BLOCK * (1 + self.gap) for i in range(self.blocks)]

    def write(self, rows, n):
        word = int(np.float16(self.value).view(np.uint16))
        n = emit.emit_duplicate(rows, n, 0, Data.FP16, 16 * self.blocks, word, 0, 0)
        n = emit.emit_set_atomic(rows, n, Data.FP16 if self.adds else Data.NONE, 0, 0)
        return emit.emit_data_copy(
            rows, n, Space.GM, self.address, Space.UB, 0, self.blocks, 1, 0, self.gap, Data.FP16, 0, 0, 0
        )


def random_stores(rng, cores, most, values, adds_only=False):
    """Stores of each core, some of which meet."""
    made = []
    for _ in range(cores):
        own = []
        for _ in range(rng.integers(0, most + 1)):
            blocks, gap = int(rng.integers(1, 5)), int(rng.integers(0, 40))
            room = (GM_BYTES - BLOCK * (1 + gap) * blocks) // BLOCK
            address = BLOCK * int(rng.integers(room))
            own.append(Store(address, blocks, gap, float(rng.choice(values)), adds_only or rng.random() < 0.7))
        made.append(own)
    return made


def launch_with(stores):
    launch = launch_of(
        lambda core, phase: [store.write for store in stores[core]], cores=len(stores), phases=1, gm_bytes=GM_BYTES
    )
    return replace(launch, trusted=True, core_kind="vector")


def ran_with_kept_rows(launch):
    for _ in range(2):
        launch.gm.arena[:] = 0
        execute(launch, CHIP, ExecuteOptions(accumulation=SERIAL))
    assert launch.kept.rows is not None
    return launch


def test_sharers_are_the_cores_whose_additions_meet():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        stores = random_stores(rng, 7, 3, [1.0])
        launch = ran_with_kept_rows(launch_with(stores))
        places = [{place for store in own if store.adds for place in store.places} for own in stores]
        low = min((place for own in places for place in own), default=0)
        stripes = [{(place - low) // STRIPE for place in own} for own in places]
        sequence = core_sequence(7, 0, int(rng.integers(9)))
        want = [
            [before for before in range(place) if stripes[core] & stripes[sequence[before]]]
            for place, core in enumerate(sequence)
        ]
        assert earlier_sharers(launch, 0, sequence) == want
        seen.update(map(len, want))
    assert seen >= {0, 1, 2}, "cores that all meet, or never do, prove nothing"


def test_all_cores_share_where_no_rows_are_kept():
    launch = launch_with(random_stores(np.random.default_rng(0), 3, 1, [1.0]))
    assert [list(before) for before in earlier_sharers(launch, 0, [2, 0, 1])] == [[], [0], [0, 1]]


def test_a_row_without_a_footprint_shares_with_all():
    launch = ran_with_kept_rows(launch_with([[Store(i * 4096, 1, 0, 1.0, True)] for i in range(3)]))
    assert earlier_sharers(launch, 0, range(3)) == [[], [], []]
    launch.kept.sharers.clear()
    copy = np.flatnonzero(launch.kept.rows["mode"] & Mode.ATOMIC)[-1]
    launch.kept.rows["dst"][copy] = 1 << 62
    assert earlier_sharers(launch, 0, range(3)) == [[], [0], [0, 1]]


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_sums_are_those_of_cores_one_after_the_other(monkeypatch, threads):
    monkeypatch.setattr(engine, "_SMALL_PHASE_ROWS", 0)
    monkeypatch.setattr(execute_again, "SHARED_ROWS", 0)
    monkeypatch.setattr(execute_core, "TURN_ROWS", 2)
    rng = np.random.default_rng(threads)
    logged = 0
    for _ in range(12):
        # 2048 + 1 is 2048 in half: the sum tells the order
        stores = random_stores(rng, 9, 12, [1.0, 2048.0, -2048.0, 3.0], adds_only=True)
        launch = ran_with_kept_rows(launch_with(stores))
        for core_order in (None, 1, 2):
            want = np.zeros(GM_BYTES // 2, np.float16)
            for core in core_sequence(9, 0, core_order):
                for store in stores[core]:
                    for place in store.places:
                        want[place // 2 : place // 2 + 16] += np.float16(store.value)
            options = ExecuteOptions(accumulation=SERIAL, threads=threads, core_order=core_order)
            for _ in range(3):
                launch.gm.arena[:] = 0
                execute(launch, CHIP, options)
                np.testing.assert_array_equal(launch.gm.arena[:GM_BYTES].view(np.float16), want)
        logged += any(earlier_sharers(launch, 0, range(9)))
    assert logged


def logged(value):
    """Return the log of a core that adds a half to the first of GM."""
    log = Log(0)
    log.sink[0] = 1
    log.reserve(1, 16)
    log.runs[0] = 0, 0, 1, Data.FP16
    log.data[:2] = np.array([value], np.float16).view(np.uint8)
    log.sink[1:3] = 1, 16
    return log


def test_turns_come_when_the_sharers_before_are_finished():
    gm = np.zeros(64, np.uint8)
    turns = Turns(gm, [(), (0,), (), (0, 1)], alone=False)
    assert [turns.is_turn(place) for place in range(4)] == [True, False, True, False]
    # 2048 + 1 + 1 is 2048 in half, 1 + 1 + 2048 is 2050
    assert turns.finish(3, logged(2048)) is None
    assert turns.finish(1, logged(1)) is None
    assert turns.held_bytes > 0
    assert gm.view(np.float16)[0] == 0
    done = Log(0)
    assert turns.finish(2, done) is done
    assert not turns.is_turn(3)
    turns.finish(0, logged(1))
    assert gm.view(np.float16)[0] == 2050
    assert turns.held_bytes == 0
    assert all(turns.is_turn(place) for place in range(4))
