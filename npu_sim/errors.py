"""The exception tree. Grammar of every message: "<Thing> must be <rule>, not <value>", then the context."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_sim.program.violation import Kind, Violation


class NpuSimError(Exception):
    """Base of every error this project raises on purpose.

    Attributes
    ----------
    status : int
        The aclnn status code a vendor-style call would return for this refusal; 561000 (inner error)
        where no documented code applies.
    refusal : Refusal or None
        Where a kernel of the user was refused, if one was.
    """

    status: int = 561000
    refusal: Refusal | None = None


class Refusal(NamedTuple):
    """A line of a kernel's source that the machine would not take: file, line, function, core and kind of finding."""

    file: str
    line: int
    function: str
    core: int
    kind: Kind


class ShapeError(NpuSimError, ValueError):
    """A shape, rank or extent breaks a rule."""

    status = 161002


class DTypeError(NpuSimError, TypeError):
    """A dtype is not allowed here."""

    status = 161002


class LayoutError(NpuSimError, ValueError):
    """A format, or a conversion between two formats, is not supported."""

    status = 161002


class ProductError(NpuSimError, ValueError):
    """The product is unknown, or the feature or range is not available on it."""

    status = 161002


class OperatorError(NpuSimError, ValueError):
    """An operator refuses the call.

    Parameters
    ----------
    message : str
        Rule, value and product.
    status : int
        aclnn status code (161001, 161002, 561103, ...).
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class InputFileError(NpuSimError, ValueError):
    """A file given by the user cannot be read or does not hold what it must."""

    status = 161002


class BudgetError(NpuSimError, MemoryError):
    """A request needs more memory than the budget allows (`npu_sim.budget`); nothing was allocated."""

    status = 561101


class ProgramError(NpuSimError, RuntimeError):
    """A checker or an engine found violations in a program.

    Parameters
    ----------
    violations : sequence of Violation
        Every finding, in program order.
    lines : sequence of str
        What is said of them, where many say the same; none: each by itself.
    """

    status = 561103

    def __init__(self, violations: Sequence[Violation], lines: Sequence[str] = ()) -> None:
        self.violations = tuple(violations)
        super().__init__("\n".join(lines or map(str, self.violations)))


class StateError(NpuSimError, RuntimeError):
    """A call of a vendor object comes at a time at which the object does not allow it."""


class MissingExtraError(NpuSimError, ImportError):
    """What was asked for needs a package that is not installed; the message says which, and which extra brings it."""


class UndefinedOnHardware(UserWarning):
    """A call whose result a device leaves undefined; the emulator gave the mathematically right one."""


class InternalError(NpuSimError, RuntimeError):
    """A broken invariant of this project; please report it."""


_SHOWN_LENGTH = 80
_BOUNDED = reprlib.Repr()
_BOUNDED.maxlist = _BOUNDED.maxtuple = _BOUNDED.maxset = _BOUNDED.maxfrozenset = _BOUNDED.maxdict = 40
_BOUNDED.maxdeque = _BOUNDED.maxarray = 40
_BOUNDED.maxstring = _BOUNDED.maxother = _BOUNDED.maxlong = _SHOWN_LENGTH


def shown(value: object) -> str:
    """Return ``value`` for a message: short, on one line, and whatever its size and its ``__repr__`` are."""
    try:
        text = _BOUNDED.repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
