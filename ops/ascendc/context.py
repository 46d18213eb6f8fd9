"""What callers see of the object's context."""

from __future__ import annotations

import numpy as np


class Context:
    """The part of the C++ object's ``ctx`` that callers use.

    Attributes
    ----------
    isFirstIter_ : bool
        The next `Iterate` starts a walk; to be set before the next single shape.
    """

    __slots__ = ("_walk", "isFirstIter_")  # a misspelt name is an error, as it is in C++

    def __init__(self, walk: np.void) -> None:
        self._walk = walk
        self.isFirstIter_ = True

    @property
    def curML0Idx_(self) -> int:
        """Current base block along M."""
        return int(self._walk["m"])

    @property
    def curNL0Idx_(self) -> int:
        """Current base block along N."""
        return int(self._walk["n"])

    @property
    def mIter_(self) -> int:
        """Base blocks along M."""
        return int(self._walk["m_blocks"])

    @property
    def nIter_(self) -> int:
        """Base blocks along N."""
        return int(self._walk["n_blocks"])

    @property
    def kIter_(self) -> int:
        """K steps of a base block."""
        return int(self._walk["k_steps"])
