"""The arguments of a call as the C++ libraries hand them over, read into what `ops.aclnn` takes.

``sources/executor.h`` says how they are written: one list of int64.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ops import aclnn

NULL, TENSOR, INTS, NUMBER, BOOLS = range(5)

_REMEMBERED = 512
"""Objects that are not made anew when a program passes the same again, as it does in a loop."""


class RefusedError(Exception):
    """An object of a call cannot be made; a message for aclGetRecentErrMsg says why."""


class Words:
    """Reads arguments one by one.

    Parameters
    ----------
    words : sequence of int
        All of a call.
    """

    __slots__ = ("_at", "_words")

    def __init__(self, words: Sequence[int]) -> None:
        self._words, self._at = words, 0

    def arguments(self) -> Iterator[Any]:
        """Yield every argument.

        Raises
        ------
        RefusedError
            A tensor cannot be made.
        """
        while self._at < len(self._words):
            kind = self._take()
            if kind == NULL:
                yield None
            elif kind == TENSOR:
                yield _tensor(
                    self._take(), self._take(), self._take(), self._values(), self._values(), self._values(),
                    self._take(), self._take(),
                )  # fmt: skip
            elif kind == INTS:
                yield _ints(self._values())
            elif kind == NUMBER:
                yield self._take()
            else:
                yield aclnn.aclCreateBoolArray([value != 0 for value in self._values() or ()])

    def _take(self) -> int:
        self._at += 1
        return self._words[self._at - 1]

    def _values(self) -> tuple[int, ...] | None:
        count = self._take()
        if count < 0:
            return None
        self._at += count
        return tuple(self._words[self._at - count : self._at])


_ints = lru_cache(_REMEMBERED)(aclnn.aclCreateIntArray)


@lru_cache(_REMEMBERED)
def _tensor(
    data_type: int,
    storage_format: int,
    offset: int,
    view: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
    storage: tuple[int, ...] | None,
    address: int,
    byte_count: int,
) -> aclnn.aclTensor:
    """Return a tensor over memory of the library, which sees to it that a run finds that memory there."""
    data = memory_at(address, byte_count) if address else None
    made = aclnn.aclCreateTensor(view, data_type, strides, offset, storage_format, storage, data)
    if made is None:
        raise RefusedError
    return made


_VIEW = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)
_WRITEABLE = 0x200
"""PyBUF_WRITE of the C API."""


def memory_at(address: int, byte_count: int) -> np.ndarray:
    """Return bytes of the library's memory as they are there."""
    return np.frombuffer(_VIEW(address, byte_count, _WRITEABLE), np.uint8) if byte_count else np.empty(0, np.uint8)
