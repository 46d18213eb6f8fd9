"""The floating-point environment that results need: rounding to nearest even, subnormals kept, no traps.

Rounding mode, flush-to-zero and denormals-are-zero are a register of the thread, and any library in the process may set
them (``torch.set_flush_denormal``, a shared object linked with ``-ffast-math``, ``fesetround``). New threads start with
those of the thread that makes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Without argument types a ctypes array goes in as a pointer in half the time. PyDLL: the GIL is not given up.
_C = ctypes.PyDLL(None)
_get, _set = _C.fegetenv, _C.fesetenv
_get.restype = _set.restype = None
_Environment = ctypes.c_uint64 * 8
"""Room for an ``fenv_t``: 32 bytes on x86-64, 8 on aarch64 (glibc, musl)."""
_DEFAULT = ctypes.c_void_p(-1)
"""``FE_DFL_ENV`` of glibc and musl; it resets flush-to-zero and denormals-are-zero too."""


def default_fenv(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` in the default environment; the caller's is restored however it ends.

    For every function that computes and that callers outside reach, and for every part handed to another thread; costs
    less than a microsecond a call.
    """

    @wraps(function)
    def in_default_environment(*args: P.args, **kwargs: P.kwargs) -> R:
        saved = _Environment()
        _get(saved)
        try:
            _set(_DEFAULT)
            return function(*args, **kwargs)
        finally:
            _set(saved)

    return in_default_environment
