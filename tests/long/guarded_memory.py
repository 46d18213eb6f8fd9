"""Arrays between pages that cannot be touched: an access beside them ends the process instead of going unseen."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_GUARD_BYTES = 1 << 30
"""Address space in front of an array and behind it; it costs no memory."""
_PROT_NONE = 0


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    ]  # fmt: skip
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def guarded(size: int) -> npt.NDArray[np.uint8]:
    """Return uint8[size] that ends where a page begins that nobody may touch, as is the one in front of its first page.

    An array of whole pages is flush with both. The memory is never given back.
    """
    libc = _libc()
    page = mmap.PAGESIZE
    length = -(-max(size, 1) // page) * page
    start = libc.mmap(None, length + 2 * _GUARD_BYTES, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    first = int(start) + _GUARD_BYTES
    if start == ctypes.c_void_p(-1).value or libc.mprotect(first, length, mmap.PROT_READ | mmap.PROT_WRITE):
        raise MemoryError(f"no address space for {size} guarded bytes")
    pages = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(first))
    return pages[length - size :]
