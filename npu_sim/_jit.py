"""The only place that imports ``numba.njit``: one decorator, one cache policy.

Numba's own cache does not notice a change in a callee of another file or in an imported constant, so a plain
``cache=True`` can return results of code that no longer exists. Our cache directory is therefore named by a hash
of all our sources and of the versions that compile them.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba import njit, types
from numba.core import config as _numba_config

# Numba fills this module's attributes at run time, which no type checker sees.
config: Any = _numba_config

JIT_ENABLED = not bool(config.DISABLE_JIT)
"""False under ``NUMBA_DISABLE_JIT=1``: jitted functions then run as plain Python."""


def _source_digest() -> str:
    """Hash every Python source of the packages that hold jitted code, and the compiler's version."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent
    for package in ("npu_sim", "ops"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    digest.update(f"{numba.__version__} {llvmlite.__version__} {sys.version}".encode())
    return digest.hexdigest()[:20]


def cache_directory() -> str:
    """Return the directory of compiled code: per user, per source state.

    A ``NUMBA_CACHE_DIR`` set by the user is the parent, otherwise ``$XDG_CACHE_HOME/npu-sim`` or ``~/.cache/npu-sim``.
    """
    parent = config.CACHE_DIR or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "npu-sim"
    )
    return os.path.join(parent, _source_digest())


def _is_writable(directory: str) -> bool:
    """Return whether compiled code can be kept in ``directory``, which is made if need be."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


_CACHE_DIRECTORY = cache_directory()
# Without a place of ours Numba would fall back on the source tree, where nothing names the state of the sources.
_CACHED = _is_writable(_CACHE_DIRECTORY)


def jit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` in nopython mode with our cache directory; no fastmath, no object mode, no ``parallel``.

    Nothing is kept if the directory cannot be written.

    The directory is set only while this decorator runs, so the jitted functions of other packages keep their own.
    """
    previous = config.CACHE_DIR
    config.CACHE_DIR = _CACHE_DIRECTORY
    try:
        compiled = njit(cache=_CACHED, nogil=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = previous
    if JIT_ENABLED:
        _widen_arguments(compiled)
    return compiled


def _widen_arguments(compiled: Any) -> None:
    """Make calls from other jitted functions share one specialisation of ``compiled``.

    Numba compiles a callee anew for every literal, every enumeration and every width of integer at a call site: a dozen
    copies of each emitter, which LLVM then inlines anyway. Literals, `IntEnum` members and the byte-sized fields of a
    row become int64 here, so one copy serves them all.
    """
    template_for = compiled.get_call_template

    def get_call_template(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return template_for(tuple(map(_widened, arguments)), {k: _widened(v) for k, v in keywords.items()})

    compiled.get_call_template = get_call_template


def _widened(argument: Any) -> Any:
    """Return the type that stands for ``argument`` at a call."""
    if isinstance(argument, types.IntegerLiteral | types.IntEnumMember) or argument is types.uint8:
        return types.int64
    return argument
