"""What callers see of the object's context."""

from __future__ import annotations

import numpy as np

from ops.conv3d_backprop_filter import walk_split as walk


class Context:
    """The part of the C++ object's ``ctx`` that callers use.

    Attributes
    ----------
    isFirstIter_ : bool
        The next `Iterate` starts a walk; to be set before the next single shape.
    """

    __slots__ = ("_state", "isFirstIter_")  # a misspelt name is an error, as it is in C++

    def __init__(self, state: np.ndarray) -> None:
        self._state = state
        self.isFirstIter_ = True

    @property
    def curML0Idx_(self) -> int:
        """Current base block along M."""
        return int(self._state[walk.CUR_M])

    @property
    def curNL0Idx_(self) -> int:
        """Current base block along N."""
        return int(self._state[walk.CUR_N])

    @property
    def mIter_(self) -> int:
        """Base blocks along M."""
        return int(self._state[walk.M_ITER])

    @property
    def nIter_(self) -> int:
        """Base blocks along N."""
        return int(self._state[walk.N_ITER])

    @property
    def kIter_(self) -> int:
        """K steps of a base block."""
        return int(self._state[walk.K_ITER])
