"""A call that a number chooses: one ``switch`` of LLVM over jitted functions that were collected elsewhere.

A chain of comparisons would have to name all functions in one place, and takes longer the further down one stands.
"""

# mypy: ignore-errors

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from npu_sim._jit import JIT_ENABLED, as_written


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters; `inspect.signature` takes thirty times as long, for each of 500."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def switch(
    parameters: tuple[str, ...], functions: Mapping[int, Callable[..., Any]], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function of a number and ``parameters`` that calls the one of ``functions`` the number stands for.

    Parameters
    ----------
    parameters : tuple of str
        Names of what is handed over besides the number.
    functions : mapping of int to jitted function
        Each takes those of ``parameters`` that it names, in any order; all return the same type.
    otherwise : jitted function
        What other numbers call.

    Returns
    -------
    callable
        For jitted code, by position; without the JIT for Python.
    """
    wanted = {
        function: tuple(parameters.index(name) for name in _names(as_written(function)))
        for function in (*functions.values(), otherwise)
    }

    if not JIT_ENABLED:

        def call(number, *arguments):
            function = functions.get(int(number), otherwise)
            return function(*(arguments[i] for i in wanted[function]))

        return call

    def choose(typing_context, number, *arguments):
        signatures = {}
        for function, places in wanted.items():
            kinds = tuple(arguments[i] for i in places)
            signatures[function] = typing_context.resolve_value_type(function).get_call_type(typing_context, kinds, {})
        result = typing_context.unify_types(*(signature.return_type for signature in signatures.values()))
        if result is None:
            return None

        def codegen(context, builder, signature, values):
            number, *values = values
            end = builder.append_basic_block("chosen")
            blocks = {function: builder.append_basic_block(as_written(function).__name__) for function in wanted}
            choice = builder.switch(number, blocks[otherwise])
            for code, function in functions.items():
                choice.add_case(number.type(code), blocks[function])
            results = []
            for function, places in wanted.items():
                builder.position_at_end(blocks[function])
                own = signatures[function]
                call = context.get_function(typing_context.resolve_value_type(function), own)
                context.add_linking_libs(getattr(call, "libs", ()))
                given = [
                    context.cast(builder, values[i], arguments[i], kind)
                    for i, kind in zip(places, own.args, strict=True)
                ]
                value = context.cast(builder, call(builder, given), own.return_type, result)
                results.append((value, builder.block))
                builder.branch(end)
            builder.position_at_end(end)
            chosen = builder.phi(context.get_value_type(result))
            for value, block in results:
                chosen.add_incoming(value, block)
            return chosen

        return result(types.int64, *arguments), codegen

    choose.__signature__ = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in ("context", "number", *parameters)
        ]
    )
    return intrinsic(choose)
