"""Orders in which a race that was found changes the result: the later row, or the later core, first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_sim.engines.execute_options import ExecuteOptions
from npu_sim.engines.execute_turns import core_sequence
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.numerics import current_orders
from npu_sim.engines.reorder import Race, new_flags, order_that_bites
from npu_sim.engines.reorder_jit import pass_flags
from npu_sim.products import Product
from npu_sim.program.cross_core import waits_for_cores
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Kind, Violation

_RACES = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)
_SEEDS = 8
"""Seeds tried for each pair of cores: one in as many as there are pairs fits."""


def race_of(violation: Violation, launches: Sequence[Launch]) -> Race | None:
    """Return the race of a finding of `run_hazards` as an order; None if it is none of one core, or no order shows it.

    None shows what is wrong although the two rows start in order (`order_that_bites`): a missing barrier, or a wait of
    the scalar unit behind what it stored itself.
    """
    race, launch = _named(violation, launches), launches[violation.launch]
    return race if race is not None and _can_show(launch, race) else None


def _named(violation: Violation, launches: Sequence[Launch]) -> Race | None:
    if violation.kind not in _RACES or violation.other_row < 0 or violation.other_core >= 0:
        return None
    name = launches[violation.launch].name
    return Race(launch=name, core=violation.core, earlier=violation.other_row, later=violation.row)


def _can_show(launch: Launch, race: Race) -> bool:
    """Return whether `engines.execute` finds an order: of rows between two waits for other cores of one phase."""
    begin, flags = 0, new_flags()
    for phase in range(launch.phase_count):
        rows = emit_rows(launch, race.core, phase)
        first = 0
        for cut in (*waits_for_cores(rows), len(rows)):
            part, at = rows[first:cut], begin + first
            if at <= race.earlier < race.later < at + len(part):
                return order_that_bites(part, race.earlier - at, race.later - at, flags) is not None
            pass_flags(part, flags)
            first = cut + 1
        begin += len(rows)
        if not launch.keeps_cores:
            flags[:] = 0
    return False


def core_order_of(violation: Violation, launches: Sequence[Launch]) -> int | None:
    """Return a seed of `ExecuteOptions.core_order` for a race of two cores: the later runs first, the earlier last.

    So a reader comes before every writer, and of writers another one is the last. It is the first such seed; None if
    the finding is no such race, the cores run by turns (`Launch.by_turns`), in no order of their own, or no seed fits.
    """
    launch = launches[violation.launch]
    if violation.kind not in _RACES or violation.other_core < 0 or launch.by_turns:
        return None
    phase, first = 0, 0
    while violation.row >= (first := first + len(emit_rows(launch, violation.core, phase))):
        phase += 1
    ends = max(violation.core, violation.other_core), min(violation.core, violation.other_core)
    for seed in range(_SEEDS * launch.core_count**2):
        cores = core_sequence(launch.core_count, phase, seed)
        if (cores[0], cores[-1]) == ends:
            return seed
    return None


def with_race(options: ExecuteOptions, launches: Sequence[Launch], product: Product) -> ExecuteOptions:
    """Return ``options`` with the race of `numerics.use_orders` as their order, if the launches have it."""
    orders = current_orders()
    race = orders.order
    if not isinstance(race, Race) or all(launch.name != race.launch for launch in launches):
        return options
    for found in run_hazards(launches, product):
        if _named(found, launches) == race and _can_show(launches[found.launch], race):
            orders.had_race = True
            return replace(options, order=race)
    return options
