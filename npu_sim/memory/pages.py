"""Pages of the host's memory that are given back before the array that has them is."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import numpy.typing as npt


def give_back_pages(values: npt.NDArray[np.uint8]) -> None:
    """Let the host take the whole pages of ``values``, which then are undefined until they are written.

    Without an effect where the operating system has no such call.
    """
    advice = getattr(mmap, "MADV_DONTNEED", None)
    first = -(-values.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (values.ctypes.data + values.size) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if advice is not None and length > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), ctypes.c_int(advice))
