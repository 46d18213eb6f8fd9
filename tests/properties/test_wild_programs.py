"""Programs that nobody verified, through everything that reads rows: findings and refusals, nothing else.

`tests.long.wild_programs` does the same 200,000 times with bounds checks on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from npu_sim.engines.hazards import run_hazards_rows
from npu_sim.engines.timeline_result import CoreSpans
from npu_sim.isa.footprint import empty_runs, footprint_at
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.program.disassemble import disassemble
from npu_sim.report.trace import _core_events, _lanes
from tests.oracles.extent import has_address_outside
from tests.oracles.series import SERIES
from tests.oracles.wild_programs import KINDS, MOST_ROWS, WildPrograms, read_by_all
from tests.oracles.wild_rows import WildRows, capacities_of, tensor_ranges, wild_memory

PROGRAMS = 250
CHECKED_PROGRAMS = 25


def _read(series, count):
    source = WildPrograms([17, SERIES.index(series)], series)
    kinds, findings = Counter(), 0
    for number in range(count):
        kind, rows = source.program()
        assert 0 < len(rows) <= MOST_ROWS
        kinds[kind] += 1
        findings += read_by_all(rows, source.product, source.gm, number)[1]
    return kinds, findings


@pytest.mark.parametrize("series", SERIES)
def test_wild_programs_end_in_findings_and_refusals_only(series):
    kinds, findings = _read(series, PROGRAMS)
    assert set(kinds) == set(KINDS)
    assert findings > PROGRAMS


def test_wild_programs_touch_no_element_behind_an_array(tmp_path):
    """In a process and with compiled code of its own: bounds checks are compiled in or not."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        pytest.skip("JIT is off: every index is checked")
    program = f"from tests.properties.test_wild_programs import checked; checked({CHECKED_PROGRAMS})"
    # what is compiled only for this is not worth the passes that make it quick
    own = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    environment = os.environ | own
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def checked(count):
    """Read ``count`` programs of each series; bounds checks must be on."""
    with pytest.raises(IndexError):
        footprint_at(empty_rows(1), 1, empty_runs(64))
    for series in SERIES:
        _read(series, count)


@pytest.mark.parametrize("series", SERIES)
def test_hazards_reports_every_row_with_an_address_outside_its_space(series):
    product, gm = get_product(series), wild_memory()
    rows, _ = WildRows([23, SERIES.index(series)], product, gm).rows(1500)
    outside = 0
    for at in range(len(rows)):
        # alone each row is a program, which begins with every lane active
        issue(rows[at:], 1, np.zeros(CORE_STATE_LENGTH, np.int64))
        if not has_address_outside(rows[at], capacities_of(product), tensor_ranges(gm)):
            continue
        outside += 1
        found = run_hazards_rows(rows[at : at + 1], product, gm.table())
        assert found, disassemble(rows[at])
    assert outside > 150


def test_readers_print_any_row():
    rng = np.random.default_rng(29)
    rows = empty_rows(400)
    rows.view(np.uint8)[:] = rng.integers(0, 256, rows.nbytes)
    rows["op"][:200] %= 32
    times = np.arange(len(rows))
    spans = CoreSpans(
        core=0, phase=0, phase_start_cycles=0, rows=rows, start_cycles=times, end_cycles=times + 1,
        busy_cycles={}, stall_cycles={}, bytes_by_path={},
    )  # fmt: skip
    assert len(list(_core_events(spans, 10**9, {}))) >= len(rows)
    assert _lanes(spans)
    assert all(disassemble(row) for row in rows)
