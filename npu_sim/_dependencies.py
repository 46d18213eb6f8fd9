"""What the compiled code of a function depends on: its own code, and all code and constants it reaches from there.

The names a function uses are looked up where it would look them up, and what they stand for is walked in turn: jitted
functions, intrinsics with the functions that write their code, closures, constants, members of enumerations. So an edit
costs what it reaches: text and comments nothing, a function the entries that call it, directly or not, and an unrelated
function of the same module nothing. What cannot be told from its value is told by the source of its class.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from enum import EnumMeta
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np

_NOT_OURS = frozenset({"numpy", "numba", "llvmlite", "ml_dtypes"}) | sys.stdlib_module_names - {"__main__"}
"""Packages whose versions say what their functions do."""
_COMPILER = ("_jit.py", "_linking.py", "_pipeline.py", "_dependencies.py", "_code_cache.py")
"""What all compiled code depends on."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), np.generic, np.dtype, range, slice)


@cache
def _of_file(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@cache
def _of_compiler() -> str:
    files = [_of_file(str(Path(__file__).with_name(name))) for name in _COMPILER]
    return repr((numba.__version__, llvmlite.__version__, np.__version__, sys.version, *files))


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.split(".")[0] not in _NOT_OURS


def _code_text(code: CodeType, documentation: str | None = None) -> object:
    """Return what ``code`` does, without documentation and line numbers."""
    constants = [
        _code_text(constant) if isinstance(constant, CodeType) else f"{type(constant).__name__} {constant!r}"
        for constant in code.co_consts
    ]
    if documentation is not None and code.co_consts and code.co_consts[0] == documentation:
        del constants[0]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_name, code.co_code, constants, names, code.co_argcount, code.co_kwonlyargcount, code.co_flags


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global and attribute names of ``code`` and of what is defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _attributes(value: object) -> list[str]:
    """Return the names of what an object of a class of ours holds."""
    slots = (slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ()))
    return sorted({*getattr(value, "__dict__", ()), *slots})


class _Walk:
    """One look at everything in reach of some values.

    Attributes
    ----------
    texts : list of str
        What was found, in the order of the walk; a value that was met before is its number.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        # the values stay alive, so that no two share an identity
        self._met: dict[int, tuple[int, object]] = {}

    def add(self, value: Any, names: frozenset[str] = frozenset()) -> None:
        """Note a value, of which the attributes ``names`` may be used."""
        if isinstance(value, _PLAIN):
            self.texts.append(f"{type(value).__name__} {value!r}")
        elif isinstance(value, EnumMeta):
            members = sorted(names & value.__members__.keys())
            self.texts.append(f"{value.__name__} {[(name, value[name].value) for name in members]}")
        elif isinstance(value, ModuleType):
            self._module(value, names)
        elif id(value) in self._met:
            self.texts.append(f"number {self._met[id(value)][0]}")
        else:
            self._met[id(value)] = len(self._met), value
            self._composed(value)

    def _module(self, module: ModuleType, names: frozenset[str]) -> None:
        self.texts.append(f"module {module.__name__}")
        if _is_ours(module.__name__):
            for name in sorted(names & vars(module).keys()):
                self.add(vars(module)[name], names)

    def _composed(self, value: Any) -> None:
        if isinstance(value, tuple | list):
            self.texts.append(f"{type(value).__name__} of {len(value)}")
            for item in value:
                self.add(item)
        elif isinstance(value, dict):
            self.texts.append(f"dict of {len(value)}")
            for key, item in value.items():
                self.add(key)
                self.add(item)
        elif isinstance(value, set | frozenset):
            self.texts.append(f"set {sorted(map(repr, value))}")
        elif isinstance(value, np.ndarray):
            self.texts.append(f"array {value.dtype!r} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}")
        elif isinstance(value, partial):
            self.add((value.func, value.args, value.keywords))
        else:
            self._callable_or_other(value)

    def _callable_or_other(self, value: Any) -> None:
        # a jitted function, an intrinsic, something wrapped: the function in it says what it is
        for inner in ("py_func", "_defn", "__wrapped__", "__func__"):
            if isinstance(function := getattr(value, inner, None), FunctionType):
                options = getattr(value, "__dict__", {}).get("targetoptions", "")
                self.texts.append(f"{type(value).__name__} {options}")
                self.add(function)
                return
        kind = value if isinstance(value, type) else type(value)
        place = f"{getattr(value, '__module__', kind.__module__)}.{getattr(value, '__qualname__', kind.__qualname__)}"
        self.texts.append(place)
        if isinstance(value, FunctionType) and _is_ours(value.__module__):
            self._function(value)
        elif isinstance(value, MethodType):
            self.add(value.__self__)
        elif _is_ours(kind.__module__):
            self.texts.append(_of_file(str(sys.modules[kind.__module__].__file__)))
            if not isinstance(value, type):
                self.add([getattr(value, name, None) for name in _attributes(value)])
        elif not isinstance(value, type | BuiltinFunctionType | FunctionType) and " at 0x" not in str(value):
            self.texts.append(str(value))

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        self.texts.append(repr(_code_text(code, function.__doc__)))
        self.add((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            self.add(cell.cell_contents)
        names = frozenset(_names(code))
        for name in sorted(names & function.__globals__.keys()):
            self.texts.append(name)
            self.add(function.__globals__[name], names)


def digest(function: Callable[..., Any]) -> str:
    """Return 20 hexadecimal digits that change with whatever the compiled code of ``function`` depends on.

    Parameters
    ----------
    function : Python function
        As written, before it is jitted.
    """
    walk = _Walk()
    walk.add(function)
    return hashlib.sha256("\n".join([_of_compiler(), *walk.texts]).encode()).hexdigest()[:20]
