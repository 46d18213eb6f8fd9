"""The only place that imports ``numba.njit``: one decorator, one cache policy.

Numba's own cache does not notice a change in a callee of another file or in an imported constant, so a plain
``cache=True`` can return results of code that no longer exists. The cache directory of a function is therefore named by
a hash of all its compiled code depends on (`npu_sim._dependencies`), and an edit compiles again what it reaches alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, update_wrapper
from threading import RLock
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.core import config as _numba_config

from npu_sim import _code_cache, _dependencies
from npu_sim._code_cache import CodeCache
from npu_sim._linking import Callees, EntryCompiler

# Numba fills this module's attributes at run time, which no type checker sees.
config: Any = _numba_config
# Not all options of Numba are in the types it declares.
_njit: Any = njit

Flag: TypeAlias = bool | np.bool
"""What comparisons in jitted code give."""
Int: TypeAlias = int | np.integer[Any]
"""An integer parameter of jitted code: a Python int, or what a row or an array holds."""
Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = {"nogil": True, "error_model": "numpy"}

JIT_ENABLED = not bool(config.DISABLE_JIT)
"""False under ``NUMBA_DISABLE_JIT=1``: jitted functions then run as plain Python."""


_CACHE_PARENT = os.path.abspath(
    config.CACHE_DIR
    or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "npu-sim")
)


def cache_parent() -> str:
    """Return the directory that holds all of ours."""
    return _CACHE_PARENT


def cache_directory(function: Callable[..., Any]) -> str:
    """Return the directory of the compiled code of a function: per user, per state of all it depends on.

    A ``NUMBA_CACHE_DIR`` set by the user is the parent, otherwise ``$XDG_CACHE_HOME/npu-sim`` or ``~/.cache/npu-sim``.
    """
    return os.path.join(_CACHE_PARENT, _dependencies.digest(function))


def why_not_kept() -> str | None:
    """Return why compiled code is not kept, None if it is."""
    return _code_cache.why_not_kept(_CACHE_PARENT)


class Jitted:
    """A jitted function: Numba's dispatcher, made when it is first asked for anything.

    Of some thousand functions most are only called from others, whose compiled code is read from the cache; to make
    their dispatchers would take as long as a tenth of a command.

    Parameters
    ----------
    function : Python function
        As written.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled code; compile it if there is none."""
        return self._dispatcher(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return what the dispatcher has by that name; called once for the dispatcher itself."""
        if name == "_dispatcher":
            with _MAKING:
                # another thread may have made it
                return self.__dict__.get(name) or self.__dict__.setdefault(name, _made(self.py_func))
        return getattr(self._dispatcher, name)

    @property
    def _numba_type_(self) -> Any:
        return self._dispatcher._numba_type_

    def __reduce__(self) -> tuple[Any, ...]:
        return jit, (self.py_func,)


_MAKING = RLock()


def _made(function: Callable[..., Any]) -> Any:
    """Return Numba's dispatcher of ``function``, with our cache and our callees."""
    compiled: Any = _njit(**_OPTIONS, no_cfunc_wrapper=True, pipeline_class=EntryCompiler)(function)
    compiled._cache = CodeCache(function, partial(cache_directory, function))
    _share_callees(compiled)
    return compiled


def jit(function: Function) -> Function:
    """Compile ``function`` in nopython mode with our cache; no fastmath, no object mode, no ``parallel``."""
    return cast(Function, Jitted(function)) if JIT_ENABLED else function


def as_written(function: Function) -> Function:
    """Return the Python function of a jitted one: for a few numbers a run asks of what is compiled into others."""
    return cast(Function, getattr(function, "py_func", function))


def _share_callees(compiled: Any) -> None:
    """Make calls from other jitted functions share one specialisation of ``compiled``, see `npu_sim._linking`.

    Numba compiles a callee anew for every literal, every enumeration and every width of integer at a call site: a dozen
    copies of each emitter, which LLVM then inlines anyway. Literals, `IntEnum` members and the byte-sized fields of a
    row become int64 here, so one copy serves them all.
    """
    callees = Callees(compiled)

    def get_call_template(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return callees.call_template(tuple(map(_widened, arguments)), {k: _widened(v) for k, v in keywords.items()})

    compiled.get_call_template = get_call_template
    compiled.get_overload = callees.key


def _widened(argument: Any) -> Any:
    """Return the type that stands for ``argument`` at a call."""
    if isinstance(argument, types.IntegerLiteral | types.IntEnumMember) or argument is types.uint8:
        return types.int64
    return argument
