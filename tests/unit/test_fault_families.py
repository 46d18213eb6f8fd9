"""Faults that have an effect without the checkers' word for it, and faults that have none."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.op import Data, Op, Pipe, Space
from npu_sim.isa.row import INSTR
from tests.cases.fault_subjects import subjects
from tests.cases.program_faults import ProgramFault
from tests.long.fault_families import family_of, is_filled


def _family(kernel, kind, change):
    """Return the family of what ``change`` makes of the rows of core 0."""
    (subject,) = (one for one in subjects() if one.name == kernel)
    programs = subject.programs()
    fault = ProgramFault(kind, 0, 0, 0, [change(programs[0].copy()), *programs[1:]])
    return family_of(fault, subject, subject.with_programs(fault.programs))


def _without(places):
    return lambda rows: np.delete(rows, np.flatnonzero(places(rows))[0])


def _unchanged(rows):
    return rows


def _longer(rows):
    load = np.flatnonzero((rows["op"] == Op.DATA_COPY) & (rows["dst_space"] == Space.UB))[-1]
    rows["block_len"][load] = 4096
    return rows


_FAULTS = [
    ("vector_add", "load dropped", _without(lambda rows: rows["src0_space"] == Space.GM), "tiles left stale"),
    ("softmax", "barrier dropped", _without(lambda rows: _is_barrier(rows, Pipe.V)), "barrier gone"),
    ("vector_add", "store dropped", _without(lambda rows: rows["dst_space"] == Space.GM), "holes in outputs"),
    ("split_k", "atomic off dropped in every tile", lambda rows: rows[~_is_off(rows)], "additions left on"),
    ("vector_add", "load too long", _longer, "buffers overrun"),
]


def _is_barrier(rows, pipe):
    return (rows["op"] == Op.PIPE_BARRIER) & (rows["pipe"] == pipe)


def _is_off(rows):
    return (rows["op"] == Op.SET_ATOMIC) & (rows["dtype"] == 0)


@pytest.mark.parametrize(("kernel", "kind", "change", "family"), _FAULTS)
def test_a_fault_is_of_a_family_by_its_effect(kernel, kind, change, family):
    assert (_family(kernel, kind, change) or "none").startswith(family)
    assert _family(kernel, kind, _unchanged) is None
    assert _family(kernel, "wait dropped", change) is None


def _tile(*rows):
    """Return rows of one tile in UB: ``(op, source space, source, destination space, destination)``, 64 bytes each."""
    made = np.zeros(len(rows), INSTR)
    for row, (op, source, at, target, to) in zip(made, rows, strict=True):
        row["op"], row["src0_space"], row["src0"], row["dst_space"], row["dst"] = op, source, at, target, to
        row["pipe"] = Pipe.MTE3 if target == Space.GM else Pipe.MTE2
        row["block_count"], row["block_len"], row["dtype"] = 1, 2, Data.FP16
    return made


def test_a_tile_is_filled_where_its_own_rows_wrote_what_the_load_writes_and_nothing_read_it():
    load = Op.DATA_COPY, Space.GM, 0, Space.UB, 64
    fill = Op.DATA_COPY, Space.GM, 64, Space.UB, 64
    half = Op.DATA_COPY, Space.GM, 64, Space.UB, 96
    read = Op.DATA_COPY, Space.UB, 64, Space.GM, 0
    assert is_filled(_tile(fill, load), 1)
    assert not is_filled(_tile(fill, read, load), 2)
    assert is_filled(_tile(fill, read, fill, load), 3)
    assert not is_filled(_tile(half, load), 1)
    assert not is_filled(_tile(fill, half, read, load), 3)
    assert not is_filled(_tile(load), 0)
