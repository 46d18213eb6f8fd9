"""Answers to request files: how long each item takes, or why that cannot be said. No item stops the others."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from npu_sim.errors import InternalError, NpuSimError
from npu_sim.points.request import instruction_bounds, product_of_request
from ops.studies.calls.fields import RequestError
from ops.studies.calls.planned import BoundedCall, bound_call, is_multiplied
from ops.studies.calls.request_items import DEFAULT_PRODUCT, RequestItem, read_item
from ops.studies.effort import count_rows
from ops.studies.scope import Progress

SCHEMA_VERSION = 1
INSTRUCTION = "instruction"
"""The operator of items that `npu_sim.points.request` answers."""
ITEMS_PER_JOB = 100
"""Fewer are answered sooner than another process starts."""
LARGE_ELEMENTS = 1 << 28
"""A tensor of fewer elements, or a product of fewer, is timed in a moment."""
MOST_ROWS = 100_000_000
"""Instructions of one item; more take half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is said to one item.

    Attributes
    ----------
    id : object
        Of the item, as it is in the file; its number if it has none.
    error : str
        Why there is no answer; "" if there is one.
    status : int
        The vendor's status of a refusal, 0 if there is an answer.
    op, product, scope : str
        What was understood: the kernel or call, the SoC version, whether its whole call or its kernels. Of a point of
        a micro-benchmark "instruction".
    duration_us : float or None
        Expected time: of a call and of kernels with the overhead of their launches, of a core_time without.
    low_us, high_us : float or None
        Where it is expected to lie in four of five cases; None of a point of a micro-benchmark.
    cycles : int or None
        Core time.
    is_calibrated : bool or None
        The model was compared with measured kernels of these kinds; else low and high are a guess. None of a point.
    tiling : str
        Where the tiling of what multiplies comes from; "" where nothing does.
    launches : tuple of (str, str, float)
        Step, kernel, and its time in microseconds, as of ``duration_us``.
    pipe_shares, critical_shares : mapping of str to float
        As of `LaunchTimes`; empty of a point.
    compute_dtype : str
        What is multiplied; "" where nothing is.
    ignored : tuple of str
        Fields of the item that say nothing about its time: misspelt ones are among them, and a wish for a type that
        cannot be multiplied there.
    """

    id: Any
    error: str = ""
    status: int = 0
    op: str = ""
    product: str = ""
    scope: str = ""
    duration_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    cycles: int | None = None
    is_calibrated: bool | None = None
    tiling: str = ""
    launches: tuple[tuple[str, str, float], ...] = ()
    pipe_shares: Mapping[str, float] = field(default_factory=dict)
    critical_shares: Mapping[str, float] = field(default_factory=dict)
    compute_dtype: str = ""
    ignored: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data: the item's ``id`` with its times, or with ``error`` and ``status``."""
        if self.error:
            return {"id": self.id, "error": self.error, "status": self.status}
        return {
            "id": self.id,
            "op": self.op,
            "product": self.product,
            "scope": self.scope,
            "duration_us": self.duration_us,
            "low_us": self.low_us,
            "high_us": self.high_us,
            "cycles": self.cycles,
            "is_calibrated": self.is_calibrated,
            "tiling": self.tiling,
            "by_launch": [
                {"step": step, "launch": launch, "duration_us": time} for step, launch, time in self.launches
            ],
            "pipe_shares": dict(self.pipe_shares),
            "critical_shares": dict(self.critical_shares),
            "compute_dtype": self.compute_dtype,
            "ignored": list(self.ignored),
        }


def time_item(item: RequestItem) -> BoundedCall:
    """Return the times of what an item asks for; an `NpuSimError` says why it is refused."""
    return bound_call(item.request, item.product, "call" if item.scope == "call" else "kernel")


def answer(number: int, values: object) -> Answer:
    """Answer one item of a file.

    Raises
    ------
    InternalError
        If a shipped kernel is not legal.
    """
    identity: Any = number
    try:
        if not isinstance(values, Mapping):
            raise RequestError(f"an item must be an object, not {type(values).__name__}")
        identity = _id(values, number)
        if values.get("op") == INSTRUCTION:
            return _instruction(identity, values)
        item = read_item(values)
        if _most_elements(values) > LARGE_ELEMENTS:
            _require_size(item)
        timed = time_item(item)
        if not timed.launches:
            raise RequestError("nothing is launched")
    except InternalError:
        raise
    except (NpuSimError, OverflowError) as error:
        return Answer(id=identity, error=" ".join(str(error).split()), status=getattr(error, "status", 161002))
    is_core = item.scope == "core_time"
    interval = timed.core if is_core else timed.task
    return Answer(
        id=identity,
        op=item.request.words,
        product=item.product.name,
        scope=item.scope,
        duration_us=interval.seconds * 1e6,
        low_us=interval.low_seconds * 1e6,
        high_us=interval.high_seconds * 1e6,
        cycles=timed.total_cycles,
        is_calibrated=interval.is_calibrated,
        tiling=timed.planned.tiling_origin,
        launches=tuple(
            (step.step.name, launch.launch, 1e6 * (launch.seconds() if is_core else launch.task_seconds()))
            for step, own in timed.by_step
            for launch in own.launches
        ),
        pipe_shares=timed.pipe_shares,
        critical_shares=timed.critical_shares,
        compute_dtype=timed.planned.compute_dtype,
        ignored=item.ignored + (() if is_multiplied(item.compute, timed.planned) else item.compute_fields),
    )


def _instruction(identity: object, values: Mapping[str, Any]) -> Answer:
    """Answer a point of a micro-benchmark: the cycles of an instruction, a transfer or a short sequence."""
    product = product_of_request({"product": DEFAULT_PRODUCT, **values} if "chip" not in values else values)
    low, cycles, high = instruction_bounds(values, product)
    microseconds = 1e6 / product.timing_clock_hz
    return Answer(
        id=identity,
        op=INSTRUCTION,
        product=product.name,
        scope=INSTRUCTION,
        duration_us=cycles * microseconds,
        low_us=low * microseconds,
        high_us=high * microseconds,
        cycles=cycles,
    )


def items_of(document: object, source: str) -> list[Any]:
    """Return the items of a request file: of a list, or of an object with one in ``requests``.

    Raises
    ------
    RequestError
        It has none.
    """
    found = document.get("requests") if isinstance(document, Mapping) else document
    if not isinstance(found, list):
        raise RequestError(f"{source}: The file must hold a JSON list of requests, not {type(found).__name__}")
    return found


def is_request(item: object) -> bool:
    """Return whether an item of a JSON list is a request of ours."""
    return isinstance(item, Mapping) and any(name in item for name in ("op", "op_type", "operator"))


def answer_all(items: Sequence[Any], jobs: int | None = None, progress: Progress | None = None) -> list[Answer]:
    """Answer every item; equal ones are timed once, and many by several processes at once.

    Parameters
    ----------
    items : sequence
        Of a file.
    jobs : int or None
        Processes; None: one for each `ITEMS_PER_JOB` items, at most as many as there are CPUs.
    progress : callable or None
        Called with (items done, items in all, what comes next).

    Raises
    ------
    InternalError
        If a shipped kernel is not legal.
    """
    keys = [_key(item) for item in items]
    first = {key: number for number, key in reversed(list(enumerate(keys)))}
    wanted = sorted(first.values())
    count = jobs or min(os.cpu_count() or 1, len(wanted) // ITEMS_PER_JOB)
    found: dict[int, Answer] = {}
    if count > 1:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
            numbered = pool.map(answer, wanted, (items[number] for number in wanted), chunksize=16)
            for number, one in zip(wanted, numbered, strict=True):
                found[number] = one
                if progress:
                    progress(len(found), len(wanted), "requests")
    else:
        for number in wanted:
            if progress:
                progress(len(found), len(wanted), f"request {number}")
            found[number] = answer(number, items[number])
    return [replace(found[first[key]], id=_id(items[number], number)) for number, key in enumerate(keys)]


def _require_size(item: RequestItem) -> None:
    """Refuse what would keep the rest waiting for minutes."""
    launches = item.request.plan(item.product).launches("call" if item.scope == "call" else "kernel")
    if not count_rows(launches, MOST_ROWS)[1]:
        raise RequestError(f"a request must take at most {MOST_ROWS:,} instructions, not more ({item.product.name})")


def _most_elements(value: object) -> int:
    """Return the largest product of a list of numbers in an item."""
    if isinstance(value, Mapping):
        return max([_extent(value.values()), *map(_most_elements, value.values())])
    if isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        return _extent(value)
    return max(map(_most_elements, value), default=0) if isinstance(value, list) else 0


def _extent(values: Iterable[object]) -> int:
    """Return the product of what may be extents; a flag and a 0 that means the default are none."""
    return prod(one for one in values if isinstance(one, int) and one > 0)


def _key(item: object) -> str:
    """Return what makes an item another one than the others: all but its id."""
    if isinstance(item, Mapping):
        item = {name: value for name, value in item.items() if name != "id"}
    return json.dumps(item, sort_keys=True, default=repr)


def _id(item: object, number: int) -> Any:
    return item.get("id", number) if isinstance(item, Mapping) else number
