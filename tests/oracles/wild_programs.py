"""Programs that nobody verified: wild rows, and legal programs with rows changed, dropped, doubled and exchanged.

`read_by_all` hands one to everything that looks at rows without running them.
"""

from __future__ import annotations

import time

import numpy as np

from npu_sim.engines.hazards import missing_order, run_hazards
from npu_sim.engines.reorder import legal_order
from npu_sim.engines.session import recorded_launch
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ProgramError
from npu_sim.isa.row import LIST_FIELDS, ROW_BYTES, join_rows
from npu_sim.products import get_product
from npu_sim.program.disassemble import listing
from npu_sim.report.trace import chrome_trace
from tests.oracles.programs import double_buffered_product, random_program
from tests.oracles.series import SERIES
from tests.oracles.wild_rows import WildRows, wild_memory
from tests.properties.random_rows import random_rows

__all__ = ["KINDS", "MOST_ROWS", "SERIES", "WildPrograms", "read_by_all"]

KINDS = ("rows", "mixed", "changed", "dropped", "doubled", "exchanged")
MOST_ROWS = 39


class WildPrograms:
    """A source of programs of at most `MOST_ROWS` rows for one product.

    Parameters
    ----------
    seed : int or sequence of int
    series : str
        Product.
    """

    def __init__(self, seed, series):
        self.rng = np.random.default_rng(seed)
        self.product = get_product(series)
        self.gm = wild_memory()
        self._rows = WildRows(self.rng.integers(1 << 32), self.product, self.gm)
        self._pool = self._rows.rows(2048)[0]

    def program(self):
        """Return (kind, INSTR[n])."""
        kind = str(self.rng.choice(KINDS))
        if kind == "rows":
            return kind, self._wild(int(self.rng.integers(1, MOST_ROWS + 1)))
        rows = self._legal()
        if kind == "mixed":
            at, more = self._place(rows), self._wild(int(self.rng.integers(1, 6)))
            return kind, join_rows([rows[:at], more, rows[at:]])[:MOST_ROWS]
        for _ in range(int(self.rng.integers(1, 4))):
            rows = getattr(self, f"_{kind}")(rows)
        return kind, rows

    def _wild(self, count):
        """Return rows of the pool, which is renewed now and then: a wild row takes longer to make than to read."""
        if self.rng.random() < 0.002:
            self._pool = self._rows.rows(2048)[0]
        return self._take(self._pool, self.rng.integers(0, len(self._pool), count))

    def _legal(self):
        """Return a stretch of a legal program."""
        choice = int(self.rng.integers(3))
        if choice == 0:
            return random_program(self.rng, int(self.rng.integers(3, MOST_ROWS - 4)))
        rows = (
            random_rows(int(self.rng.integers(1 << 32)), MOST_ROWS - 4)
            if choice == 1
            else double_buffered_product(1 + int(self.rng.integers(2)), 1 + int(self.rng.integers(3)))
        )
        first = int(self.rng.integers(max(1, len(rows) - MOST_ROWS + 4)))
        return rows[first : first + MOST_ROWS - 4].copy()

    def _take(self, rows, index):
        """Return ``rows[index]``; NumPy would copy the overlapping fields one after the other."""
        return join_rows([np.ascontiguousarray(rows).view(np.uint8).reshape(-1, ROW_BYTES)[index].reshape(-1)])

    def _place(self, rows):
        return int(self.rng.integers(len(rows)))

    def _changed(self, rows):
        """Write a few words or a field of a row anew."""
        at = self._place(rows)
        if self.rng.random() < 0.5:
            raw = rows[at : at + 1].view(np.uint32)
            raw[self.rng.integers(0, ROW_BYTES // 4, int(self.rng.integers(1, 4)))] = self.rng.integers(1 << 32)
        else:
            name = str(self.rng.choice([name for name in rows.dtype.names if name not in LIST_FIELDS]))
            width = np.iinfo(rows.dtype[name])
            numbers = (width.min, width.max, 0, 1, -1, 7, 8, 255, 65535, int(self.rng.integers(1 << 31)))
            rows[name][at] = self.rng.choice([one for one in numbers if width.min <= one <= width.max])
        return rows

    def _dropped(self, rows):
        at = self._place(rows)
        return self._take(rows, np.delete(np.arange(len(rows)), at)) if len(rows) > 1 else rows

    def _doubled(self, rows):
        at = self._place(rows)
        return self._take(rows, np.insert(np.arange(len(rows)), self._place(rows), at))

    def _exchanged(self, rows):
        order = np.arange(len(rows))
        a, b = self._place(rows), self._place(rows)
        order[a], order[b] = b, a
        return self._take(rows, order)


def read_by_all(rows, product, gm, seed):
    """Return ({reader: CPU seconds}, findings of the hazards engine, [reader that refused the program]).

    A reader may refuse with `ProgramError`, which names the rows that cannot be read; anything else is raised.
    """
    launch = recorded_launch("wild", [rows], gm)
    seconds, refusals = {}, []

    def read(name, work):
        start = time.process_time()
        try:
            return work()
        except ProgramError as error:
            refusals.append(name)
            return [str(violation) for violation in error.violations]
        finally:
            seconds[name] = time.process_time() - start

    def hazards():
        found = run_hazards(launch, product)
        for violation in found:
            str(violation)
            missing_order(rows, violation)
        return found

    read("timeline", lambda: chrome_trace(run_timeline(launch, product, spans=True)))
    found = read("hazards", hazards)
    read("late order", lambda: legal_order(rows, "late"))
    read("random order", lambda: legal_order(rows, seed))
    read("listing", lambda: listing(rows))
    return seconds, len(found), refusals
