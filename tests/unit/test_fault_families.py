"""Faults that have an effect without the checkers' word for it, and faults that have none."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.op import Op, Pipe, Space
from tests.cases.fault_subjects import subjects
from tests.cases.program_faults import ProgramFault
from tests.long.fault_families import family_of


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
