"""How much memory one request may take: what a caller's number or file decides is reserved here before it is allocated.

The budget is half of what this process may have: the machine's memory, the limit of its control group or its address
space, whichever is least. `ENVIRONMENT` sets another one, `use_budget` one for a ``with`` block. It bounds each request
(the global memory of a launch, the arrays of a file, a golden), not the sum of what a program keeps.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from npu_sim.errors import BudgetError, ShapeError, shown

ENVIRONMENT = "NPU_SIM_MEMORY"
"""Environment variable with the budget: bytes, or a number followed by KiB, MiB, GiB or TiB."""

SHARE = 2
"""The budget is the memory of this process divided by this: a result is made beside the global memory it comes from."""

_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_TEXT = re.compile(r"([0-9]{1,18})\s*(|[KMGT]iB)", re.IGNORECASE)
_CGROUP = Path("/sys/fs/cgroup")

_current: ContextVar[int | None] = ContextVar("npu_sim_budget", default=None)


def budget_bytes() -> int:
    """Return the bytes one request may take: of the innermost `use_budget`, of `ENVIRONMENT`, or the default.

    Raises
    ------
    ShapeError
        `ENVIRONMENT` holds no number of bytes.
    """
    given = _current.get()
    if given is not None:
        return given
    text = os.environ.get(ENVIRONMENT)
    return _parse(ENVIRONMENT, text) if text else memory_bytes() // SHARE


@contextlib.contextmanager
def use_budget(limit: int | str) -> Iterator[int]:
    """Set the budget inside a ``with`` block, in this thread or task only.

    Parameters
    ----------
    limit : int or str
        Bytes, or a text such as ``"4 GiB"``.

    Yields
    ------
    int
        The budget in bytes.

    Raises
    ------
    ShapeError
        ``limit`` is no number of bytes.
    """
    token = _current.set(_parse("budget", limit))
    try:
        yield budget_bytes()
    finally:
        _current.reset(token)


def reserve(what: str, byte_count: int) -> int:
    """Return ``byte_count`` if the budget has room for it; to be called before the allocation.

    Parameters
    ----------
    what : str
        What is to be allocated, for the message.
    byte_count : int
        All that the request allocates.

    Raises
    ------
    BudgetError
        It is more than the budget.
    """
    limit = budget_bytes()
    if byte_count > limit:
        # a count may have more digits than Python prints
        count = f"{byte_count}" if byte_count < 1 << 128 else "2^128 or more"
        raise BudgetError(f"{what} must be at most {limit} bytes, the memory budget ({ENVIRONMENT}), not {count}")
    return byte_count


def _parse(what: str, value: object) -> int:
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        return int(match[1]) * _UNITS[match[2].upper()]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    raise ShapeError(f"{what} must be a number of bytes such as 4294967296 or 4 GiB, not {shown(value)}")


@cache
def memory_bytes() -> int:
    """Return what this process may have: the least of the machine's, its control group's and its address space."""
    return min(_machine(), *_control_group(), *_address_space())


def _machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def _control_group(membership: Path = Path("/proc/self/cgroup"), root: Path = _CGROUP) -> list[int]:
    """Return the limits of the control group and of those it lies in (version 2, and the memory controller of 1)."""
    found = []
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        place = top / group.lstrip("/")
        while place.is_relative_to(top):
            with contextlib.suppress(OSError, ValueError):  # "max", or a group that is not visible in here
                found.append(int((place / name).read_text()))
            place = place.parent
    return found


def _address_space() -> list[int]:
    try:
        import resource
    except ImportError:
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [limit]
