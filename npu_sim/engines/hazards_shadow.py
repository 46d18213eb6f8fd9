"""How the memory of a hazards run is laid out for a product and its tensors, and how it grows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.engines import hazards_book as kept
from npu_sim.isa.codes import SPACES, Space
from npu_sim.isa.footprint import empty_runs
from npu_sim.products import Product
from npu_sim.program.limits import ADDRESS_ALIGNMENT_BYTES
from npu_sim.program.verify import space_capacities
from npu_sim.units import BLOCK_BYTES, ceil_div

FINDING_LIMIT = 1000
"""Findings kept; the last one says how many more there were."""
_FIRST_NODES = 4096


def new_shadow(product: Product, table: npt.NDArray[np.int64]) -> kept.Shadow:
    """Return the memory of a run that has seen no row, on tensors as in `GlobalMemory.table`."""
    spaces = np.zeros((SPACES, 4), np.int64)
    spaces[:, 2:] = 1
    cells = 0
    for space, capacity in space_capacities(product).items():
        spaces[space, :2] = cells, capacity
        cells += ceil_div(capacity, BLOCK_BYTES)
    for space, alignment in ADDRESS_ALIGNMENT_BYTES.items():
        spaces[space, 2] = alignment
    gm_bytes = int((table[:, 0] + table[:, 2]).max()) if len(table) else 0
    spaces[Space.GM, :2] = cells, gm_bytes
    cells += ceil_div(gm_bytes, BLOCK_BYTES)
    book = np.zeros(kept.BOOK_LENGTH, np.int64)
    book[kept.SERIAL] = 1
    book[kept.FREE] = 1
    book[kept.FREE_COUNT] = book[kept.NODE_COUNT] = _FIRST_NODES - 1
    book[kept.EVENTS] = product.core.event_count
    book[kept.SPACE : kept.USED] = spaces.reshape(-1)
    flags = 7 * 7 * product.core.event_count
    reserve("What the checks know of the memory of a launch", kept.SLOTS * cells * 8)
    return kept.Shadow(
        slots=np.zeros((kept.SLOTS + 1, cells), np.int64),
        nodes=_empty_nodes(_FIRST_NODES),
        book=book,
        flags=np.zeros(flags, np.int64),
        flag_clocks=np.zeros((flags, kept.PIPES), np.int64),
        findings=np.zeros((FINDING_LIMIT + kept.CODES, kept.FINDING_FIELDS), np.int64),
        tensors=table,
        runs=empty_runs(),
        lives=np.zeros((kept.LIVES, 4), np.int64),
        turned=np.zeros(flags, np.int64),
        births=np.zeros(len(table), np.int64),
    )


def with_more_nodes(shadow: kept.Shadow, needed: int) -> kept.Shadow:
    """Return the same memory with at least ``needed`` free nodes more, at least twice as many as there were."""
    book, nodes = shadow.book, shadow.nodes
    old = len(nodes)
    grown = _empty_nodes(max(2 * old, old + needed))
    grown[:old] = nodes
    grown[-1, 2] = book[kept.FREE]
    book[kept.FREE] = old
    book[kept.FREE_COUNT] += len(grown) - old
    book[kept.NODE_COUNT] = len(grown) - 1
    return shadow._replace(nodes=grown)


def _empty_nodes(count: int) -> npt.NDArray[np.int64]:
    nodes = np.zeros((count, kept.NODE_FIELDS), np.int64)
    nodes[:-1, 2] = np.arange(1, count)
    return nodes
