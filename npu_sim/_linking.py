"""How jitted functions that call each other become machine code: each is translated once, optimised where it ends up.

Numba makes a complete unit of every jitted function: it links the functions called into it, optimises all that, wraps
it for Python and for C, generates machine code and writes it to the cache; a caller then links and optimises the result
once more. Here a function called from jitted code (a *callee*) is only translated and simplified on its own. A function
called from Python (an *entry*) links all callees below it and is optimised once, as link-time optimisation does.

Several names of Numba's compiler used here have a leading underscore; `tests/unit/test_linking.py` holds what they do.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from numba.core import compiler as _compiler
from numba.core import event as _event
from numba.core import sigutils as _sigutils
from numba.core import typing as _typing
from numba.core.compiler_lock import global_compiler_lock

from npu_sim._pipeline import Compiler, Flags, SimplifiedLibrary, is_called_by_address, thrifty
from npu_sim._without_scipy import without_scipy

# Numba's inner parts are not typed, or not as they are used.
compiler: Any = _compiler
event: Any = _event
sigutils: Any = _sigutils
typing: Any = _typing

INLINED_LINES = 400
"""Lines of LLVM code, with what is inlined into them, up to which a callee is always inlined. LLVM's own limit is for
code that was not simplified before, and leaves calls in the inner loops of the engines: measured, `timeline` takes 30 %
less time at 400 than at 100, and nothing compiles longer."""


def _callers_first(libraries: Iterable[Any]) -> list[Any]:
    """Return ``libraries`` and those they link, each once and before what it calls, in a fixed order.

    LLVM takes from a library what was called before, so one that is linked before a caller lacks what that calls.
    """
    found: dict[Any, None] = {}

    def visit(library: Any) -> None:
        if library not in found:
            # what Numba finished itself holds all it calls
            for called in reversed(library._linking_libraries) if isinstance(library, _CalleeLibrary) else ():
                visit(called)
            found[library] = None

    for library in reversed(list(libraries)):
        visit(library)
    return list(reversed(found))


class _EntryLibrary(SimplifiedLibrary):
    """Code of an entry with all its callees: optimised once, as these were simplified before."""

    options: ClassVar[dict[str, int]] = {}
    """Of LLVM's pipeline, where they are not Numba's."""

    def finalize(self) -> None:
        """Link the callees and make machine code."""
        libraries: list[Any] = self._linking_libraries
        libraries[:] = _callers_first(libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        # Numba runs a second pipeline before, to bring what counts references into one function
        manager, builder = self._codegen._module_pass_manager(**self.options)
        manager.run(self._final_module, builder)


class _KernelLibrary(_EntryLibrary):
    """Code of a generator, as kernels are: they write field after field, without a loop that -O3 makes faster.

    Measured over ResNet-50's kernels, -O1 emits rows as fast and takes half the time.
    """

    options: ClassVar[dict[str, int]] = {"opt": 1}


class _AddressedLibrary(_EntryLibrary):
    """Code of an entry that is called by address, as instructions are.

    Measured, -O2 makes instructions as fast as -O3, and compiles in a tenth less.
    """

    options: ClassVar[dict[str, int]] = {"opt": 2}


@contextmanager
def _optimising_once(context: Any, function: Callable[..., Any]) -> Iterator[None]:
    """Let the code generator make entries; the compiler's lock is held."""
    generator = context.codegen()
    library = (
        _KernelLibrary
        if inspect.isgeneratorfunction(function)
        else _AddressedLibrary
        if is_called_by_address(function)
        else _EntryLibrary
    )
    before, generator._library_class = generator._library_class, library
    try:
        yield
    finally:
        generator._library_class = before


_CALLED = re.compile(r"\bcall\b[^\n@]*@([^\s(]+)\(")


class _CalleeLibrary(SimplifiedLibrary):
    """Simplified code of one callee alone: nothing linked into it, no machine code."""

    def finalize(self) -> None:
        """Accept no more code; small functions are marked for inlining."""
        self._raise_if_finalized()
        self.inlined_lines: dict[str, int] = {}
        below: dict[str, int] = {}
        for library in self.parts()[1:]:
            if isinstance(library, _CalleeLibrary):
                below.update(library.inlined_lines)
        for function in self._final_module.functions:
            if function.is_declaration or any(b"noinline" in attributes for attributes in function.attributes):
                continue
            text = str(function)
            lines = text.count("\n") + sum(below.get(name, 0) for name in _CALLED.findall(text))
            if lines <= INLINED_LINES:
                function.add_function_attribute("alwaysinline")
                self.inlined_lines[function.name] = lines
        self._finalized = True

    def parts(self) -> list[Any]:
        """Return this library and all that code calling it must link, each once, in a fixed order."""
        return _callers_first([self])


class EntryCompiler(Compiler):
    """The compiler of a function that Python calls."""

    def __init__(self, typing_context: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, locals: Any):
        with without_scipy():
            super().__init__(typing_context, target, library, args, result, Flags(flags), locals)

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile ``function`` and give its callees their environments, as code loaded from the cache has them."""
        state = self.state
        context = state.targetctx
        with thrifty(state.typingctx, context), _optimising_once(context, function):
            result = super().compile_extra(function)
        for environment in result._find_referenced_environments():
            result.codegen.set_env(environment.env_name, environment)
        return result


class Callees:
    """The specialisations of one jitted function for calls from jitted code, compiled when first asked for.

    Parameters
    ----------
    dispatcher : numba Dispatcher
        The jitted function.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._keys: dict[tuple[Any, ...], object] = {}

    @property
    def signatures(self) -> list[Any]:
        """The signatures compiled so far."""
        return [compiled.signature for compiled in self._compiled.values()]

    def call_template(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Return what Numba's `Dispatcher.get_call_template` returns: (template, signature, arguments, keywords)."""
        python_signature, folded = self._dispatcher.fold_argument_types(arguments, keywords)
        with global_compiler_lock:
            if tuple(folded) not in self._compiled:
                self._compile(tuple(folded))
        name = self._dispatcher.py_func.__name__
        template = typing.make_concrete_template(f"CallTemplate({name})", key=name, signatures=self.signatures)
        return template, python_signature, folded, {}

    def key(self, signature: Any) -> object:
        """Return what Numba knows the code for ``signature`` by, as its `Dispatcher.get_overload` does."""
        arguments, _ = sigutils.normalize_signature(signature)
        return self._keys[tuple(arguments)]

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Translate the function for ``arguments`` and make it known to Numba with all that a caller must link."""
        target = self._dispatcher.targetdescr
        context = target.target_context
        flags = Flags()
        target.options.parse_as_flags(flags, self._dispatcher.targetoptions)
        flags.no_compile = True
        flags.no_cpython_wrapper = True
        flags.no_cfunc_wrapper = True
        function = self._dispatcher.py_func
        library: Any = _CalleeLibrary(context.codegen(), function.__qualname__)
        told = {"dispatcher": self._dispatcher, "args": arguments, "return_type": None}
        with event.trigger_event("numba:compile", data=told):
            compiled = compiler.compile_extra(
                target.typing_context,
                context,
                function,
                args=arguments,
                return_type=None,
                flags=flags,
                locals={},
                library=library,
                pipeline_class=Compiler,
            )
        library.finalize()
        key = object()
        context.insert_user_function(key, compiled.fndesc, library.parts())
        self._compiled[arguments], self._keys[arguments] = compiled, key
