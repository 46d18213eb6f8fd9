"""Parameter sets moved by what their sources leave open: all in favour of a shorter time, or all against it.

A number moves by the spread of its confidence: rates up or down, times and factors the other way. All move at once,
which overstates what independent errors do to a sum, so the spreads are those of a careful reading of one source, not
of the worst that was ever published. Counts that make the form of a rule (repeats, banks, queues, core limits) do not
move, nor does what a user gives. A share that is one of two states nobody knows (``unknown_*``) moves to these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import exp
from typing import Any

from npu_sim.products.cost import NUMBERS, CostParams
from npu_sim.products.source import Confidence

SPREADS: Mapping[Confidence, float] = {"H": 0.03, "M": 0.10, "L": 0.25, "": 0.0}
"""Standard deviation of the logarithm of a number by the confidence of its source. H: the scatter of published tables
about the laws read off them (tests/golden). ASSUMED: M, as far as two sources of one number lie apart in the median of
those that have two; L, as 310P's rates in its configuration from those that were measured on A2."""

_FORM = frozenset(
    {
        "queue_depth_rows",
        "vector_repeat_bytes",
        "ub_bank_groups",
        "ub_bank_bytes",
        "fix_narrow_row_bytes",
        "launch_few_cores",
        "mmad_odd_conflict_fractals",
    }
)
_STATES = "unknown_"
_RATES = ("_per_cycle", "_per_microsecond")


def moves(name: str) -> bool:
    """Return whether a parameter is one that moves: it is a time, a factor on one, or a rate."""
    return name not in _FORM and not name.endswith("_model_error_permille")


def _moved(params: CostParams, sign: int) -> CostParams:
    """Return the parameters with every time longer (``sign`` 1) or shorter (-1)."""
    values: dict[str, Any] = {}
    for name in NUMBERS:
        value = getattr(params, name)
        spread = SPREADS[params.sources[name].confidence]
        if moves(name) and value and spread:
            up = -sign if name.endswith(_RATES) else sign
            values[name] = max(round(value * exp(up * spread)), 1)
            if name.startswith(_STATES):
                values[name] = 1000 if sign > 0 else 1
    return replace(params, **values)


@cache
def optimistic(params: CostParams) -> CostParams:
    """Return the parameters with every rate higher and every time shorter by its spread."""
    return _moved(params, -1)


@cache
def pessimistic(params: CostParams) -> CostParams:
    """Return the parameters with every rate lower and every time longer by its spread."""
    return _moved(params, 1)
