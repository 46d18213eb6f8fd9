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
from numba.core import types
from numba.extending import intrinsic


def address_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """Return the address of a jitted function for arguments of the Numba types ``arguments``; compile it if need be.

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

    names = ("context", "address", *(f"given{i}" for i in range(len(arguments))))
    call.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return intrinsic(call)
