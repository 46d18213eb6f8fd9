"""The only place that imports ``numba.njit``: one decorator, one cache policy.

Numba's own cache does not notice a change in a callee of another file or in an imported constant, so a plain
``cache=True`` can return results of code that no longer exists. The cache directory of a module is therefore named by a
hash of its source, of those of all modules of ours it imports, directly or not, and of the versions that compile them.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import njit, types
from numba.core import config as _numba_config

from npu_sim import _code_cache
from npu_sim._code_cache import CodeCache
from npu_sim._linking import Callees, EntryCompiler

# Numba fills this module's attributes at run time, which no type checker sees.
config: Any = _numba_config
# Not all options of Numba are in the types it declares.
_njit: Any = njit

JIT_ENABLED = not bool(config.DISABLE_JIT)
"""False under ``NUMBA_DISABLE_JIT=1``: jitted functions then run as plain Python."""


_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("npu_sim", "ops")
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+([\w.]+))", re.MULTILINE)


@cache
def _source(module: str) -> bytes | None:
    """Return the source of a module of ours, None if there is no such module."""
    path = _ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate.read_bytes()
    return None


@cache
def _imported(module: str) -> frozenset[str]:
    """Return the modules of ours that ``module`` names in an import statement, wherever it stands."""
    names: set[str] = set()
    for origin, members, plain in _IMPORT.findall((_source(module) or b"").decode()):
        if plain:
            names.add(plain)
            continue
        names.add(origin)
        names.update(f"{origin}.{member}" for member in re.findall(r"\w+", members))
    return frozenset(name for name in names if name.split(".")[0] in _PACKAGES and _source(name) is not None)


def _closure(module: str) -> list[str]:
    """Return ``module`` and all modules of ours it imports, directly or not; all there are if it is not ours."""
    if module.split(".")[0] not in _PACKAGES or _source(module) is None:
        paths = [path.relative_to(_ROOT) for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")]
        return sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths)
    found, open_ = {module}, [module]
    while open_:
        for name in _imported(open_.pop()) - found:
            found.add(name)
            open_.append(name)
    return sorted(found)


@cache
def _source_digest(module: str) -> str:
    """Hash all that code compiled from ``module`` can depend on: sources of ours and the compiler's version."""
    digest = hashlib.sha256()
    for name in _closure(module):
        digest.update(name.encode())
        digest.update(_source(name) or b"")
    digest.update(f"{numba.__version__} {llvmlite.__version__} {np.__version__} {sys.version}".encode())
    return digest.hexdigest()[:20]


def cache_directory(module: str) -> str:
    """Return the directory of the compiled code of ``module``: per user, per state of the sources it depends on.

    A ``NUMBA_CACHE_DIR`` set by the user is the parent, otherwise ``$XDG_CACHE_HOME/npu-sim`` or ``~/.cache/npu-sim``.
    """
    return os.path.join(_CACHE_PARENT, _source_digest(module))


_CACHE_PARENT = os.path.abspath(
    config.CACHE_DIR
    or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "npu-sim")
)


def cache_parent() -> str:
    """Return the directory that holds all of ours."""
    return _CACHE_PARENT


def why_not_kept() -> str | None:
    """Return why compiled code is not kept, None if it is."""
    return _code_cache.why_not_kept(_CACHE_PARENT)


def jit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` in nopython mode with our cache; no fastmath, no object mode, no ``parallel``."""
    compiled = _njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, pipeline_class=EntryCompiler)(function)
    if JIT_ENABLED:
        if os.path.isfile(function.__code__.co_filename):
            compiled._cache = CodeCache(function, partial(cache_directory, function.__module__))
        _share_callees(compiled)
    return compiled


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
