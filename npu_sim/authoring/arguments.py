"""The arguments of a kernel: arrays become tensors of the launch's memory, everything else reaches it as it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.authoring.tensors import GlobalTensor, In, InOut, Out
from npu_sim.budget import reserve
from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import DTypeError, ShapeError, shown
from npu_sim.memory.core import POISON_BYTE
from npu_sim.memory.gm import GlobalMemory, GmTensor

_ROLES: dict[str, type[GlobalTensor]] = {role.__name__: role for role in (In, Out, InOut)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Argument:
    array: np.ndarray
    place: GmTensor
    tensor: GlobalTensor


def roles_of(function: Callable[..., Any]) -> dict[str, type[GlobalTensor]]:
    """Return the arguments behind the first that are annotated as tensors."""
    found: dict[str, type[GlobalTensor]] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        annotation = parameter.annotation
        word = annotation.rsplit(".", 1)[-1] if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        if word in _ROLES:
            found[name] = _ROLES[word]
    return found


class Arguments:
    """What a kernel was called with.

    Parameters
    ----------
    name : str
        Of the kernel, for messages.
    signature : inspect.Signature
        Of its function.
    roles : mapping of str to type
        See `roles_of`.
    args, keywords
        Behind the core.

    Raises
    ------
    TypeError
        They do not fit the signature.
    DTypeError, ShapeError
        An annotated argument is no array of a type that tensors have, an array is not annotated, or a result cannot be
        written.
    """

    def __init__(
        self,
        name: str,
        signature: inspect.Signature,
        roles: Mapping[str, type[GlobalTensor]],
        args: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> None:
        bound = signature.bind(None, *args, **keywords)
        bound.apply_defaults()
        self._bound, self._tensors = bound, dict[str, _Argument]()
        self.gm = GlobalMemory()
        for what, value in bound.arguments.items():
            if what in roles:
                self._tensors[what] = self._placed(f"{what} of {name}", what, value, roles[what])
            elif isinstance(value, np.ndarray) and value.ndim:
                raise DTypeError(f"{what} of {name} must be annotated as In, Out or InOut, not be a plain array")

    def _placed(self, words: str, what: str, value: Any, role: type[GlobalTensor]) -> _Argument:
        if not isinstance(value, np.ndarray):
            raise DTypeError(f"{words} must be a NumPy array, not {shown(value)}")
        if role is not In and not value.flags.writeable:
            raise ShapeError(f"{words} must be an array that can be written ({role.__name__})")
        try:
            kind = get_dtype(value.dtype)
        except DTypeError as error:
            raise DTypeError(f"{words}: {error}") from None
        is_out = role is Out
        place = self.gm.add(what, value.nbytes, initialised=not is_out, data=kind.data, is_output=is_out)
        return _Argument(array=value, place=place, tensor=role(what, place, value.shape, int(kind.data)))

    def of_kernel(self, core: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the function is called with on a core."""
        first = next(iter(self._bound.signature.parameters))
        given = {**self._bound.arguments, **{name: one.tensor for name, one in self._tensors.items()}, first: core}
        bound = inspect.BoundArguments(self._bound.signature, given)
        return bound.args, bound.kwargs

    def copies(self) -> dict[str, np.ndarray]:
        """Return the bytes of every tensor as the kernel finds them: results are poison."""
        # of an input twice for a moment
        reserve("Copies of the tensors of a kernel", 2 * sum(one.array.nbytes for one in self._tensors.values()))
        return {
            name: np.full(one.array.nbytes, POISON_BYTE, np.uint8)
            if isinstance(one.tensor, Out)
            else np.frombuffer(one.array.tobytes(), np.uint8).copy()
            for name, one in self._tensors.items()
        }

    def load(self) -> None:
        """Fill the memory of the launch."""
        for name, data in self.copies().items():
            self.gm.view(self._tensors[name].place, np.uint8, data.shape)[:] = data

    def store(self) -> None:
        """Write the results to the caller's arrays."""
        for one in self._tensors.values():
            if not isinstance(one.tensor, In):
                one.array[...] = self.gm.view(one.place, one.array.dtype, one.array.shape)

    def results(self) -> dict[str, np.ndarray]:
        """Return copies of the arrays that the kernel may write."""
        return {name: one.array.copy() for name, one in self._tensors.items() if not isinstance(one.tensor, In)}

    def words(self) -> str:
        """Return shapes and types, and the other arguments, for reports."""
        parts = []
        for name, value in list(self._bound.arguments.items())[1:]:
            one = self._tensors.get(name)
            size = "" if one is None else "x".join(map(str, one.array.shape))
            parts.append(f"{name} {shown(value)}" if one is None else f"{name} {one.tensor.dtype.name} {size}")
        return ", ".join(parts)
