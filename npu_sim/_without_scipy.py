"""Numba's implementations of NumPy's functions, loaded when something is compiled, and then without `scipy.linalg`.

Numba loads them all before the first function is compiled or read from the cache. To run what was read needs none of
them, but only Numba's counting of references: a fifth of a second of every command. One of their modules imports
`scipy.linalg` to see whether there is a BLAS: a quarter of a second more where SciPy is installed, for `np.dot` and its
like, which no code here calls. Those of a user's kernel look for themselves, when they are compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def _find_blas() -> None:
    """Stand in for Numba's check while its modules are loaded: as that, without the import."""
    if find_spec("scipy") is None:
        raise ImportError("scipy must be installed for linear algebra, not missing")


@contextmanager
def without_scipy() -> Iterator[None]:
    """Let Numba load its implementations; the compiler's lock is held."""
    linalg: Any = import_module("numba.np.linalg")
    check, linalg.ensure_blas = linalg.ensure_blas, _find_blas
    try:
        yield
    finally:
        linalg.ensure_blas = check
