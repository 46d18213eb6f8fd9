"""Which launches the execute engine shortens, and what the shortcut gets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import ShapeError
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.vector.memset import memset_launch

OPTIONS = ExecuteOptions(accumulation=SERIAL)


def clearing(calls, *, trusted=True):
    """Return a launch whose rows write zeros and whose shortcut writes sevens, to tell which ran."""
    gm = GlobalMemory()
    tensor = gm.add("y", 4096, initialised=False)

    def shortcut(memory, saturate, threads):
        calls.append((saturate, threads))
        memory.bytes_of(tensor)[:] = 7

    launch = memset_launch(gm, tensor, get_product("910"))
    return replace(launch, shortcut=shortcut, trusted=trusted)


@pytest.mark.parametrize(("soc", "saturate"), [("910", True), ("310p", True), ("910b", False)])
def test_trusted_launch_takes_its_shortcut_with_mode_and_threads(soc, saturate):
    calls: list[tuple[bool, int]] = []
    launch = clearing(calls)
    execute(launch, get_product(soc), replace(OPTIONS, threads=3))
    assert calls == [(saturate, 3)]
    assert (launch.gm.arena[:4096] == 7).all()


def test_overflow_mode_of_the_options_reaches_the_shortcut():
    calls: list[tuple[bool, int]] = []
    execute(clearing(calls), get_product("910b"), replace(OPTIONS, overflow="saturate"))
    assert calls == [(True, 1)]


@pytest.mark.parametrize(
    "change", [{"shortcuts": False}, {"poison": True}, {"order": "late"}, {"order": 5}], ids=lambda c: next(iter(c))
)
def test_rows_run_when_the_options_ask_for_them(change):
    calls: list[tuple[bool, int]] = []
    launch = clearing(calls)
    execute(launch, get_product("910"), replace(OPTIONS, **change))
    assert not calls
    assert (launch.gm.arena[:4096] == 0).all()


def test_rows_of_a_launch_that_is_not_trusted_run():
    calls: list[tuple[bool, int]] = []
    launch = clearing(calls, trusted=False)
    execute(launch, get_product("910"), OPTIONS)
    assert not calls
    assert (launch.gm.arena[:4096] == 0).all()


def test_tensor_with_an_address_shares_memory_and_the_arena_holds_the_furthest():
    gm = GlobalMemory()
    first = gm.add("a", 1000, initialised=True)
    shared = gm.add("b", 3000, initialised=False, address=first.address)
    behind = gm.add("c", 10, initialised=False)
    assert (first.address, shared.address, behind.address) == (0, 0, 3072)
    gm.view(shared, np.uint8, (3000,))[:] = 5
    assert (gm.view(first, np.uint8, (1000,)) == 5).all()
    assert gm.arena.size == 3072 + 512


def test_address_that_is_not_aligned_is_refused():
    with pytest.raises(ShapeError, match=r"^Address of a must be a multiple of 512, not 100$"):
        GlobalMemory().add("a", 8, initialised=True, address=100)


def test_released_arena_serves_the_next_memory_that_fits_and_only_one():
    first, small, large = GlobalMemory(), GlobalMemory(), GlobalMemory()
    place = first.add("a", 100_000, initialised=True)
    first.view(place, np.uint8, (100_000,))[:] = 3
    kept = first.arena
    first.release()
    small.add("b", 50_000, initialised=True)
    large.add("c", 100_001, initialised=True)
    other = GlobalMemory()
    other.add("d", 50_000, initialised=True)
    assert np.shares_memory(small.arena, kept)
    assert not np.shares_memory(other.arena, kept)
    assert small.arena.size == small.total_bytes
    small.release()
    assert not np.shares_memory(large.arena, kept) or large.total_bytes <= kept.size
    # the memory that gave its arena up gets another
    first.view(place, np.uint8, (100_000,))[:] = 5
    assert (first.view(place, np.uint8, (100_000,)) == 5).all()


def test_large_arena_is_not_kept():
    gm, following = GlobalMemory(), GlobalMemory()
    gm.add("a", 60 << 20, initialised=True)
    arena = gm.arena
    gm.release()
    following.add("b", 1 << 20, initialised=True)
    assert not np.shares_memory(following.arena, arena)
