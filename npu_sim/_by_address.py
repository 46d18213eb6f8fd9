"""Calls of compiled functions by their address: what the caller's machine code does not hold and never waits for.

The address is an argument, not a constant, so that code kept on disk holds none. The function is an entry of its own
(`npu_sim._linking`): compiled when somebody asks for its address, and kept like every other.
"""

# mypy: ignore-errors

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from npu_sim._jit import jit


def addressed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Jit a function that is called by its address alone; Python cannot call it."""
    function.is_called_by_address = True
    return jit(function)


def address_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """Return the address of an `addressed` function for arguments of these Numba types; compile it if need be.

    It holds as long as the process does.
    """
    function.compile(arguments)
    compiled = function.overloads[arguments]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def caller(arguments: tuple[Any, ...], result: Any = types.boolean) -> Callable[..., Any]:
    """Return ``call(address, *arguments)`` for jitted code: the result of the function that `address_of` told of.

    Parameters
    ----------
    arguments : tuple of numba types
        Those that `address_of` was asked with. Calls with others do not compile: the machine code would misread them.
    result : numba type
        What the function returns.
    """

    def call(typing_context, address, *given):
        if given != arguments:
            return None

        def codegen(context, builder, signature, values):
            at, *values = values
            kind = context.call_conv.get_function_type(result, arguments)
            # LLVM's own name for what Numba calls by name elsewhere
            function = builder.inttoptr(at, ir.PointerType(kind))
            _, value = context.call_conv.call_function(builder, function, result, arguments, values)
            return value

        return result(types.int64, *arguments), codegen

    return _of_positions(call, "address", *(f"given{i}" for i in range(len(arguments))))


def table_maker(kinds: tuple[Any, ...]) -> Callable[..., Any]:
    """Return ``table(*arrays)`` for jitted code: where the arrays stand in the caller's memory, an int64.

    A dozen arrays are a hundred words, which each call would hand over anew; a table hands over one. It holds as long
    as the function that made it has not returned, and does not keep the arrays: the caller uses them after the last
    call that is given the table.

    Parameters
    ----------
    kinds : tuple of numba Array
        Types of the arrays. Calls with others do not compile.
    """
    whole = types.Tuple(kinds)

    def make(typing_context, *given):
        if given != kinds:
            return None

        def codegen(context, builder, signature, values):
            entries = []
            for kind, value in zip(kinds, values, strict=True):
                array = context.make_array(kind)(context, builder, value)
                # without an owner nobody counts references to it
                array.meminfo = cgutils.get_null_value(array.meminfo.type)
                array.parent = cgutils.get_null_value(array.parent.type)
                entries.append(array._getvalue())
            table = cgutils.alloca_once_value(builder, context.make_tuple(builder, whole, entries))
            return builder.ptrtoint(table, context.get_value_type(types.int64))

        return types.int64(*kinds), codegen

    return _of_positions(make, *(f"array{i}" for i in range(len(kinds))))


def table_reader(kinds: tuple[Any, ...]) -> Callable[..., Any]:
    """Return ``arrays(table)`` for jitted code: what a function of `table_maker` with the same ``kinds`` put there."""
    whole = types.Tuple(kinds)

    def read(typing_context, table):
        if table != types.int64:
            return None

        def codegen(context, builder, signature, values):
            kind = context.get_value_type(whole)
            return builder.load(builder.inttoptr(values[0], kind.as_pointer()))

        return whole(types.int64), codegen

    return _of_positions(read, "table")


def _of_positions(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Return an intrinsic of parameters of these names; Numba asks for one name each."""
    function.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("context", *names)]
    )
    return intrinsic(function)
