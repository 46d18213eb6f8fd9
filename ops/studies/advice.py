"""What to change about some calls, each change found by timing it, with what it gains.

A change is tried on all calls it can be made to and compared by the time of an image. What the operator refuses, and
what a change does not concern, stays as it is; a change that is each call's own (cores, channels) is made where it
gains and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_sim.errors import InternalError, NpuSimError
from npu_sim.products import Product
from npu_sim.report.record import to_plain
from ops.studies.calls.planned import Request, time_call
from ops.studies.scope import Scope

SHOWN = 3
_LEAST_GAIN = 0.01
"""A gain below this part of the time is none: it is smaller than what the model leaves open."""
_BLOCK = 16
"""Channels of a block of NC1HWC0, in 16-bit types."""
_PARTS = (0.75, 0.5, 0.25)
"""Of the product's Cube cores, tried as block_dim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCall:
    """A call that a change is made to.

    Attributes
    ----------
    name, words : str
        Which, and what is called, as of `Request`.
    count : int
        How often it is made.
    block_dim : int or None
        Cores that the change gives it; None of a change of something else.
    task_seconds, changed_task_seconds : float
        Of one such call, before and after.
    """

    name: str
    words: str
    count: int
    block_dim: int | None
    task_seconds: float
    changed_task_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to some calls.

    Attributes
    ----------
    words : str
        What to do.
    costs : str
        What it costs beside; "" for nothing.
    of : {"image", "call"}
        What the times are of; a call where there are no images.
    seconds, changed_seconds : float
        Task time before and after.
    call_count : int
        Calls that are changed, equal ones counted each.
    calls : tuple of ChangedCall
        Those, equal ones once.
    is_own : bool
        It is made to the calls that gain by it and to no others.
    """

    words: str
    costs: str
    of: str
    seconds: float
    changed_seconds: float
    call_count: int
    calls: tuple[ChangedCall, ...]
    is_own: bool

    @property
    def gain(self) -> float:
        """Part of the time that it saves; negative if it takes longer."""
        return 1 - self.changed_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedCall:
    """A call to find changes for.

    Attributes
    ----------
    request : Request
        The call.
    count : int
        How often it is made.
    seconds : float
        Task time of one, as it is.
    """

    request: Request
    count: int
    seconds: float


Variants = Callable[[Any, Product], Sequence[Any]]
"""``variants(request, product)``: requests that are the call with the change; the fastest is taken, () for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    words: str
    variants: Variants
    costs: str = ""
    images: int = 1
    is_own: bool = False


def _with_mode(mode: int) -> Variants:
    def variants(request: Any, product: Product) -> Sequence[Any]:
        is_wide = _dtype_of(request) == "fp32" and request.cube_math_type == 0
        return (replace(request, cube_math_type=mode),) if is_wide else ()

    return variants


def _with_dtype(dtype: str) -> Variants:
    def variants(request: Any, product: Product) -> Sequence[Any]:
        if _dtype_of(request) != "fp32":
            return ()
        if hasattr(request, "case"):
            return (replace(request, case=replace(request.case, dtype=dtype), cube_math_type=0),)
        return (replace(request, dtype=dtype, cube_math_type=0),)

    return variants


def _dtype_of(request: Any) -> str:
    return str(getattr(getattr(request, "case", request), "dtype", ""))


def _has_images(request: Any) -> bool:
    return any(hasattr(request, name) for name in ("case", "kernel_size", "in_features"))


def _larger(request: Any, product: Product) -> Sequence[Any]:
    return (request.with_batch(2 * request.batch),) if _has_images(request) and request.batch else ()


def _fewer_cores(request: Any, product: Product) -> Sequence[Any]:
    if getattr(request, "block_dim", 0) is not None:
        return ()
    cores = {max(int(part * product.cube_core_count), 1) for part in _PARTS} - {product.cube_core_count}
    return tuple(replace(request, block_dim=count) for count in sorted(cores))


def _whole_blocks(request: Any, product: Product) -> Sequence[Any]:
    case = getattr(request, "case", None)
    if case is None or case.groups != 1 or case.transposed:
        return ()
    inputs, outputs = (-(-extent // _BLOCK) * _BLOCK for extent in (case.x_shape[1], case.dy_shape[1]))
    if (inputs, outputs) == (case.x_shape[1], case.dy_shape[1]):
        return ()
    wider = replace(
        case,
        x_shape=(case.x_shape[0], inputs, *case.x_shape[2:]),
        dy_shape=(case.dy_shape[0], outputs, *case.dy_shape[2:]),
        weight_shape=(outputs, inputs, *case.weight_shape[2:]),
    )
    return (replace(request, case=wider),)


_CANDIDATES = (
    _Candidate(
        words="multiply with cubeMathType 1 (ALLOW_FP32_DOWN_PRECISION)", variants=_with_mode(1),
        costs="shorter operands: see npu-sim precision",
    ),
    _Candidate(
        words="multiply with cubeMathType 2 (USE_FP16)", variants=_with_mode(2),
        costs="shorter operands: see npu-sim precision",
    ),
    _Candidate(
        words="keep tensors in fp16 instead of fp32", variants=_with_dtype("fp16"),
        costs="shorter tensors: see npu-sim precision",
    ),
    _Candidate(
        words="keep tensors in bf16 instead of fp32", variants=_with_dtype("bf16"),
        costs="shorter tensors: see npu-sim precision",
    ),
    _Candidate(words="take twice the batch", variants=_larger, costs="twice the memory", images=2),
    _Candidate(words="give calls fewer cores (block_dim)", variants=_fewer_cores, is_own=True),
    _Candidate(
        words="fill channels up to multiples of 16", variants=_whole_blocks, costs="channels of zeros", is_own=True
    ),
)  # fmt: skip


def advise(calls: Sequence[AdvisedCall], product: Product, scope: Scope) -> tuple[Change, ...]:
    """Return every change that can be made to some calls, the one that gains most first; some may gain nothing.

    Parameters
    ----------
    calls : sequence of AdvisedCall
        What is done for one batch.
    product : Product
        Where.
    scope : {"call", "kernel"}
        What the seconds are of.
    """
    found = [change for one in _CANDIDATES if (change := _tried(one, calls, product, scope)) is not None]
    return tuple(sorted(found, key=lambda change: -change.gain))


def worth_it(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes worth most that are worth something."""
    return tuple(change for change in changes if change.gain >= _LEAST_GAIN)[:SHOWN]


def documents(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Return changes as plain data, with what they gain."""
    return [to_plain(change) | {"gain": change.gain} for change in changes]


def _tried(candidate: _Candidate, calls: Sequence[AdvisedCall], product: Product, scope: Scope) -> Change | None:
    before = after = 0.0
    made: list[ChangedCall] = []
    for call in calls:
        images = max(call.request.batch, 1) if _has_images(call.request) else 1
        own = call.seconds
        timed = _timed(candidate.variants(call.request, product), product, scope)
        changed, request = min(timed, key=lambda one: one[0], default=(own, None))
        if request is not None and (not candidate.is_own or changed < own):
            made.append(
                ChangedCall(
                    name=call.request.name, words=call.request.words, count=call.count,
                    block_dim=_given_cores(call.request, request), task_seconds=call.seconds,
                    changed_task_seconds=changed,
                )
            )  # fmt: skip
            own = changed / candidate.images
        before += call.count * call.seconds / images
        after += call.count * own / images
    if not made:
        return None
    has_images = all(_has_images(call.request) for call in calls)
    return Change(
        words=candidate.words,
        costs=candidate.costs,
        of="image" if has_images else "call",
        seconds=before,
        changed_seconds=after,
        call_count=sum(one.count for one in made),
        calls=tuple(made),
        is_own=candidate.is_own,
    )


def _given_cores(before: Any, after: Any) -> int | None:
    own, changed = (getattr(request, "block_dim", None) for request in (before, after))
    return changed if changed != own else None


def _timed(requests: Sequence[Request], product: Product, scope: Scope) -> list[tuple[float, Request]]:
    """Return the task times of some calls with them, without those that the operator refuses."""
    found = []
    for request in requests:
        try:
            found.append((time_call(request, product, scope).task_seconds, request))
        except InternalError:
            raise
        except NpuSimError:
            continue
    return found
