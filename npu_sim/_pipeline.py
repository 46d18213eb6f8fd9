"""Numba's compiler without what no jitted function of ours needs: the same machine code in less time.

Most of the time is Numba's own, not LLVM's; where it goes was sampled. Several inner names of Numba and llvmlite
used here have a leading underscore; `tests/unit/test_pipeline.py` and `test_linking.py` hold what they do.
"""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any

from llvmlite import ir as _llvm
from llvmlite.binding import ffi as _ffi
from numba.core import bytecode as _bytecode
from numba.core import callconv as _callconv
from numba.core import cgutils as _cgutils
from numba.core import codegen as _codegen
from numba.core import compiler as _compiler
from numba.core import compiler_machinery as _machinery
from numba.core import debuginfo as _debuginfo
from numba.core import errors as _errors
from numba.core import interpreter as _interpreter
from numba.core import ir as _ir
from numba.core import lowering as _lowering
from numba.core import postproc as _postproc
from numba.core import transforms as _transforms
from numba.core import typed_passes as _typed_passes
from numba.core import typeinfer as _typeinfer
from numba.core import types as _types
from numba.core import untyped_passes as _untyped_passes
from numba.core import utils as _utils

from npu_sim._dependencies import digest

# Numba's inner parts are not typed, or not as they are used.
llvm: Any = _llvm
ffi: Any = _ffi
bytecode: Any = _bytecode
callconv: Any = _callconv
cgutils: Any = _cgutils
codegen: Any = _codegen
compiler: Any = _compiler
machinery: Any = _machinery
debuginfo: Any = _debuginfo
errors: Any = _errors
interpreter: Any = _interpreter
ir: Any = _ir
lowering: Any = _lowering
postproc: Any = _postproc
transforms: Any = _transforms
typed_passes: Any = _typed_passes
typeinfer: Any = _typeinfer
types: Any = _types
untyped_passes: Any = _untyped_passes
utils: Any = _utils


# ---------------------------------------------------------------------------------------------------------------------
# What holds while an entry is compiled.


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep the garbage collector from walking over millions of objects again and again: 14 % of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """Let an object have another attribute."""
    own = name in vars(holder)
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        if own:
            setattr(holder, name, before)
        else:
            delattr(holder, name)


_NUMBAS_OWN = frozenset({types.Function, types.NumberClass})


def _is_scalar(kind: Any) -> bool:
    return isinstance(kind, types.Number | types.Boolean)


def _remembering(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``resolve_function_type`` that asks only once what Numba's own functions give for scalars.

    Numba tries a dozen templates anew each time: a quarter of what it takes without LLVM.
    """
    known: dict[Any, Any] = {}

    def resolve_function_type(function: Any, arguments: Any, keywords: Any) -> Any:
        if keywords or type(function) not in _NUMBAS_OWN or not all(map(_is_scalar, arguments)):
            return resolve(function, arguments, keywords)
        key = function, tuple(arguments)
        if key not in known:
            known[key] = resolve(function, arguments, keywords)
        return known[key]

    return resolve_function_type


def _refreshing_what_grew(refresh: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a ``refresh`` of contexts that looks for what registries hold where one has grown.

    Numba looks whenever something is not found at once, and there hardly ever is anything: most of what it knows is
    not found at once.
    """
    known: list[int] = []

    def sizes(context: Any) -> list[int]:
        return [
            len(getattr(registry, name))
            for one in (context, getattr(context, "typing_context", context))
            for registry, loader in one._registries.items()
            for name in loader.registry_items
        ]

    def refresh_what_grew(context: Any) -> None:
        if known != sizes(context):
            refresh(context)
            known[:] = sizes(context)

    return refresh_what_grew


def _sizing_once(size_of: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
    """Return a ``get_abi_sizeof`` that has LLVM read a module for a type only once, not for each variable."""
    known: dict[Any, int] = {}

    def get_abi_sizeof(context: Any, kind: Any) -> int:
        if kind not in known:
            known[kind] = size_of(context, kind)
        return known[kind]

    return get_abi_sizeof


def _copying_records(pack: Callable[..., None]) -> Callable[..., None]:
    """Return a ``pack_value`` that keeps a record across a generator's yields by copying the memory.

    Numba stores byte after byte: two thirds of the LLVM code of the kernels, which keep a record of some 900 bytes.
    """

    def pack_value(context: Any, builder: Any, kind: Any, value: Any, pointer: Any, align: Any = None) -> None:
        if not isinstance(kind, types.Record):
            pack(context, builder, kind, value, pointer, align=align)
            return
        target, source = (builder.bitcast(place, cgutils.voidptr_t) for place in (pointer, value))
        cgutils.raw_memcpy(builder, target, source, context.get_constant(types.intp, kind.size), 1)

    return pack_value


def _call_function(
    convention: Any, builder: Any, callee: Any, result: Any, kinds: Any, values: Any, attrs: Any = None
) -> tuple[Any, Any]:
    """Do what ``CPUCallConv.call_function`` does, without zeros where the results will be.

    Numba stores them at the call and once more where the caller begins, for every call it may come to: a third of what
    the timeline takes, whose costs of instructions are calls that an opcode chooses.
    """
    with builder.goto_entry_block():
        place = builder.alloca(convention._get_return_argument(callee.function_type).pointee)
        error = builder.alloca(llvm.PointerType(callconv.excinfo_t), name="excinfo")
    given = convention._get_arg_packer(kinds).as_arguments(builder, values)
    code = builder.call(callee, [place, error, *given], attrs=tuple(attrs or ()))
    status = convention._get_return_status(builder, code, builder.load(error))
    return status, convention.context.get_returned_value(builder, result, builder.load(place))


_list_variables = ir.Inst._rec_list_vars
_WITHOUT_VARIABLES = frozenset({str, int, bool, type(None), ir.Loc, ir.Scope})


def _variables(statement: Any, value: Any) -> list[Any]:
    """Return what ``ir.Inst._rec_list_vars`` does; the values of a statement are most often a variable or a text."""
    if type(value) is dict:
        items = value.values()
    elif type(value) in (list, tuple):
        items = value
    else:
        return _list_variables(statement, value)
    found: list[Any] = []
    for item in items:
        kind = type(item)
        if kind is ir.Var:
            found.append(item)
        elif kind not in _WITHOUT_VARIABLES:
            found += statement._rec_list_vars(item)
    return found


_post_process = postproc.PostProcessor.run


def _post_process_once(processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Do what ``PostProcessor.run`` does where somebody uses it.

    Five passes run it, and each time it follows every variable from block to block: for generators, and for the last
    pass, which asks for the ends of lifetimes.
    """
    function = processor.func_ir
    if function.is_generator:
        _post_process(processor, emit_dels, extend_lifetimes)
        return
    function.blocks = transforms.canonicalize_cfg(function.blocks)
    function.variable_lifetime = postproc.VariableLifetime(function.blocks)
    if emit_dels:
        processor._insert_var_dels(extend_lifetimes=extend_lifetimes)


def _unchanged(code: Any) -> Any:
    return code


class _ErrorContext:
    """What ``errors.new_error_context`` is, without a generator for each statement: it matters where one fails."""

    __slots__ = ("_format", "_places", "_values")

    def __init__(self, format_: str, *places: Any, **values: Any) -> None:
        self._format, self._places, self._values = format_, places, values

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            with errors.new_error_context(self._format, *self._places, **self._values):
                raise error


_AS_THEY_COME = nullcontext()


def _let_pass(*_: Any, **__: Any) -> Any:
    return _AS_THEY_COME


def _plain(text: str, *_: Any, **__: Any) -> str:
    return text


def _plain_errors() -> Iterator[tuple[Any, str, Any]]:
    """Yield what keeps the thousands of errors that Numba raises for itself from asking the terminal for colours.

    Without the package colorama, and where the user asked for none, Numba has no colours to begin with.
    """
    scheme = errors.termcolor()
    if hasattr(scheme, "_markup"):
        yield scheme, "_markup", _plain


@contextmanager
def thrifty(typing_context: Any, target: Any) -> Iterator[None]:
    """Compile for less; the compiler's lock is held, so no two threads are here at once."""
    with ExitStack() as stack:
        stack.enter_context(_without_collection())
        for holder, name, value in (
            (typing_context, "resolve_function_type", _remembering(typing_context.resolve_function_type)),
            (type(typing_context), "refresh", _refreshing_what_grew(type(typing_context).refresh)),
            # each function has a copy of the target of its own
            (type(target), "refresh", _refreshing_what_grew(type(target).refresh)),
            (type(target), "get_abi_sizeof", _sizing_once(type(target).get_abi_sizeof)),
            (type(target), "pack_value", _copying_records(type(target).pack_value)),
            (callconv.CPUCallConv, "call_function", _call_function),
            (ir.Inst, "_rec_list_vars", _variables),
            (postproc.PostProcessor, "run", _post_process_once),
            # looks twice at every variable for what ``with`` leaves, which no jitted function of ours has
            (interpreter, "peep_hole_delete_with_exit", _unchanged),
            (typeinfer, "TypeInferer", _TypeInferer),
            (typeinfer, "new_error_context", _ErrorContext),
            (lowering, "new_error_context", _ErrorContext),
            (errors.WarningsFixer, "catch_warnings", _let_pass),
            (debuginfo, "suspend_emission", _let_pass),
            (types.Record, "__repr__", cache(types.Record.__repr__)),
            (utils, "pysignature", cache(utils.pysignature)),
            # by items: a function's type that outlives the function is found in its table no more
            (target.data_model_manager, "_cache", dict(target.data_model_manager._cache.items())),
            *_plain_errors(),
            # two events for each call of LLVM, to which nobody listens
            (ffi.lib._lock, "_cblist", []),
        ):
            stack.enter_context(_replaced(holder, name, value))
        yield


# ---------------------------------------------------------------------------------------------------------------------
# Translation of one function.


class SimplifiedLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """LLVM code whose functions are simplified before they are linked."""

    def _optimize_functions(self, module: Any) -> None:
        # Numba sets up LLVM's passes once more for each function, and for those only declared. The pipeline of -O1
        # gives code of the same size as that of -O3 in two thirds of the time; both run again where it ends up.
        module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager(opt=1)
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)

    def add_ir_module(self, module: Any) -> None:
        """Take over LLVM code, and take the objects that stood for it apart.

        They refer to each other: half a million that only the garbage collector would find, in a second.
        """
        super().add_ir_module(module)
        for function in module.functions:
            for block in function.blocks:
                block.instructions.clear()
                block.terminator = None
            function.blocks.clear()
            function.args = function.return_value = None
        module.globals.clear()


class _TypeInferer(typeinfer.TypeInferer):  # type: ignore[misc]
    """Numba's type inference, which leaves nothing behind: inner functions of `unify` that know each other hold it."""

    def unify(self, raise_errors: bool = True) -> Any:
        """Return the types of variables, of the result and of calls, for good."""
        result = super().unify(raise_errors)
        self.__dict__.clear()
        return result


class Flags(compiler.Flags):  # type: ignore[misc]
    """Numba's flags, compared at once: type inference does so for every operator, and Numba option by option."""

    __slots__ = ()
    _HASH = hash(compiler.Flags())

    def __hash__(self) -> int:
        return self._HASH

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Flags) and self._values == other._values) or super().__eq__(other)


def is_called_by_address(function: Callable[..., Any]) -> bool:
    """Return whether jitted code calls a Python function by its address, and nobody else calls it (`_by_address`)."""
    return getattr(function, "is_called_by_address", False)


class _Lower(lowering.Lower):  # type: ignore[misc]
    """Numba's translation to LLVM, which for operators of numbers asks type inference first.

    What holds no reference, which is most variables, is not looked through for references, and not cleared at the end
    of its life.
    """

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Create what Python calls: of a function that is only called by address nothing but the name."""
        if not is_called_by_address(self.func_ir.func_id.func):
            super().create_cpython_wrapper(release_gil)
            return
        module = self.context.create_module("wrapper")
        kind = llvm.FunctionType(cgutils.voidptr_t, [cgutils.voidptr_t] * 3)
        wrapper = llvm.Function(module, kind, self.fndesc.llvm_cpython_wrapper_name)
        # no result without an exception is an error of Python's
        llvm.IRBuilder(wrapper.append_basic_block()).ret(cgutils.voidptr_t(None))
        self.library.add_ir_module(module)

    def _holds_references(self, kind: Any) -> bool:
        known = self.__dict__.setdefault("_known_kinds", {})
        if kind not in known:
            known[kind] = self.context.data_model_manager[kind].contains_nrt_meminfo()
        return bool(known[kind])

    def incref(self, typ: Any, val: Any) -> None:
        """Count one more reference to each object in ``val``."""
        if self._holds_references(typ):
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        """Count one reference less to each object in ``val``."""
        if self._holds_references(typ):
            super().decref(typ, val)

    def delvar(self, name: str) -> None:
        """End the life of a variable."""
        if self._holds_references(self.typeof(name)):
            super().delvar(name)
        elif name not in self._blk_local_varmap:
            # it lives again in another block
            self._singly_assigned_vars.discard(name)
            self._alloca_var(name, self.typeof(name))

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Return the value of a binary operator; Numba looks for one with constant operands thrice before.

        Powers have one, and there is one for two constants, which inference has folded.
        """
        signature = self.fndesc.calltypes[expr]
        if op in (operator.pow, operator.ipow) or not all(map(_is_scalar, signature.args)):
            return super().lower_binop(resty, expr, op)
        context, builder = self.context, self.builder
        names = (expr.lhs.name, expr.rhs.name)
        values = [self.loadvar(name) for name in names]
        operands = [
            context.cast(builder, value, self.typeof(name), kind)
            for name, value, kind in zip(names, values, signature.args, strict=True)
        ]
        function = context.typing_context.resolve_value_type(op)
        resolved = context.typing_context.resolve_function_type(function, signature.args, {})
        result = context.get_function(function, resolved)(builder, operands)
        return context.cast(builder, result, signature.return_type, resty)


@machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _NativeLowering(typed_passes.BaseNativeLowering):  # type: ignore[misc]
    """Translation of a function to LLVM."""

    _name = "npu_sim_native_lowering"
    lowering_class = _Lower


_UNUSED_PASSES = frozenset(
    {
        untyped_passes.WithLifting,
        untyped_passes.InlineClosureLikes,
        untyped_passes.MakeFunctionToJitFunction,
        untyped_passes.InlineInlinables,
        untyped_passes.FindLiterallyCalls,
        untyped_passes.LiteralUnroll,
        untyped_passes.LiteralPropagationSubPipelinePass,
        typed_passes.InlineOverloads,
        typed_passes.NopythonRewrites,
        typed_passes.DumpParforDiagnostics,
        typed_passes.AnnotateTypes,
    }
)
"""Passes for what no jitted function of ours has: ``with``, closures and comprehensions, ``literally`` and
``literal_unroll``, what is inlined before it is typed, expressions of whole arrays. Each walks over every function."""


class _Passes(machinery.PassManager):  # type: ignore[misc]
    """Passes in their order; Numba also times them, tells listeners and writes all types out for these."""

    def _runPass(self, index: int, one: Any, state: Any) -> None:  # noqa: N802
        one.analysis = self._analysis
        for part in (one.run_initialization, one.run_pass, one.run_finalizer):
            part(state)


class Compiler(compiler.CompilerBase):  # type: ignore[misc]
    """Numba's pipeline for nopython mode, without the passes that have nothing to do."""

    def define_pipelines(self) -> list[Any]:
        """Return the one pipeline."""
        whole = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline = _Passes(whole.pipeline_name)
        pruned = False
        for pass_class, description in whole.passes:
            # one pruning of branches: the others follow passes that are left out
            if pass_class in _UNUSED_PASSES or (pass_class is untyped_passes.DeadBranchPrune and pruned):
                continue
            pruned |= pass_class is untyped_passes.DeadBranchPrune
            pipeline.add_pass(_NativeLowering if pass_class is typed_passes.NativeLowering else pass_class, description)
        pipeline.finalize()
        return [pipeline]

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile ``function``, as Numba does, under a name that no other code of ours can have.

        Numba numbers functions in the order of their compilation. Code from the cache was numbered by other processes,
        and of two symbols with one name the machine code that is loaded first serves both. That does not matter where
        qualified names differ, but functions that a function makes share theirs: they are numbered by what they do.
        """
        state = self.state
        state.func_id = bytecode.FunctionIdentity.from_function(function)
        if function.__closure__ or "<locals>" in function.__qualname__:
            state.func_id.unique_id = digest(function)
            state.func_id.unique_name = f"{function.__qualname__}${state.func_id.unique_id}"
        untyped_passes.ExtractByteCode().run_pass(state)
        state.lifted, state.lifted_from = (), None
        result = self._compile_bytecode()
        # it knows the compiler, which knows it
        state.clear()
        return result
