"""What the shortened compilation gives: what Numba's own gives, and a compiler left as it was found."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import compiler, errors, ir, postproc
from numba.core.registry import cpu_target

from npu_sim import _jit, _pipeline

pytestmark = pytest.mark.skipif(not _jit.JIT_ENABLED, reason="compiles")


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "_CACHE_PARENT", str(tmp_path / "cache"))


def _operators(a, b):
    """Every binary operator with a constant on either side, on both and on none."""
    both = a + b, a - b, a * b, a / b, a // b, a % b, a**b, a < b, a <= b, a == b, a != b, a >= b, a > b
    right = a + 3, a - 3, a * 3, a / 3, a // 3, a % 3, a**3, a < 3, a <= 3, a == 3, a != 3, a >= 3, a > 3
    left = 3 + b, 3 - b, 3 * b, 3 / b, 3 // b, 3 % b, 3**b
    places = a
    places += b
    places *= 2
    places -= 1
    return both, right, left, places, 7 // 2, 2**5


def _bitwise(a, b):
    taken = a
    taken ^= 5
    taken <<= 2
    taken |= b
    return a & b, a | b, a ^ b, a << b, a >> b, a & 6, a | 6, 6 ^ b, a << 2, 99 >> b, taken


_INTEGERS = (np.int64(5), np.int32(-7), np.uint32(4), np.uint64(9), np.int16(3), True)
_NUMBERS = (*_INTEGERS, np.float32(2.5), np.float64(-1.75))


def _bits(value):
    if isinstance(value, tuple):
        return [_bits(one) for one in value]
    return type(value).__name__, np.asarray(value).tobytes()


@pytest.mark.parametrize("second", _INTEGERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(("function", "numbers"), [(_operators, _NUMBERS), (_bitwise, _INTEGERS)])
def test_operators_give_what_numba_gives(function, numbers, second):
    whole = numba.njit(error_model="numpy")(function)
    ours = _jit.jit(function)
    for first in numbers[:: 2 if second is True else 3]:
        assert _bits(ours(first, abs(second))) == _bits(whole(first, abs(second)))


@pytest.mark.parametrize("fails", [False, True])
def test_compiler_is_left_as_it_was(fails):
    holders = cpu_target.typing_context, cpu_target.target_context, errors.termcolor()
    replaced = ("resolve_function_type", "get_abi_sizeof", "pack_value", "_markup")
    methods = ir.Inst._rec_list_vars, postproc.PostProcessor.run
    listeners = list(_pipeline.ffi.lib._lock._cblist)

    @_jit.jit
    def function(x):
        return x + "text" if fails else x + 1

    if fails:
        with pytest.raises(errors.TypingError):
            function(1)
    else:
        assert function(1) == 2
    assert not [name for holder in holders for name in replaced if name in vars(holder)]
    assert methods == (ir.Inst._rec_list_vars, postproc.PostProcessor.run)
    assert methods == (_pipeline._list_variables, _pipeline._post_process)
    assert listeners == _pipeline.ffi.lib._lock._cblist != []
    assert gc.isenabled()


def test_code_is_compiled_where_errors_have_no_colours(tmp_path):
    code = (
        "from numba.core import errors; from npu_sim import _jit; "
        f"assert type(errors.termcolor()).__name__ == 'NOPColorScheme'; _jit._CACHE_PARENT = {str(tmp_path)!r}; "
        "assert _jit.jit(lambda x: x + 1)(1) == 2"
    )
    environment = {**os.environ, "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=Path(__file__).parents[2])


def _branches(values, limit):
    total, last = 0, values[0]
    for index, value in enumerate(values):
        if value > limit:
            last = value
            total += values[index] * (last + limit)
        else:
            total -= min(last, (value, limit)[1])
    return total, last


def _steps(values):
    for value in values:
        yield value + len(values)


@pytest.mark.parametrize("function", [_branches, _steps, _operators])
def test_variables_and_their_ends_are_those_that_numba_finds(monkeypatch, function):
    """Without them, values would be freed too early or never."""
    whole, ours = (compiler.run_frontend(function) for _ in range(2))
    statements = [statement for block in whole.blocks.values() for statement in block.body]
    listed = [statement.list_vars() for statement in statements]
    _pipeline._post_process(postproc.PostProcessor(whole), True)
    monkeypatch.setattr(ir.Inst, "_rec_list_vars", _pipeline._variables)
    assert [statement.list_vars() for statement in statements] == listed
    _pipeline._post_process_once(postproc.PostProcessor(ours), True)
    bodies = [[list(map(str, block.body)) for block in found.blocks.values()] for found in (whole, ours)]
    assert bodies[0] == bodies[1]
    assert any(line.startswith("del ") for lines in bodies[0] for line in lines)
    assert (ours.generator_info is None) == (whole.generator_info is None) == (function is not _steps)


def test_collection_that_was_off_stays_off():
    gc.disable()
    try:
        assert _jit.jit(lambda x: x + 1)(1) == 2
        assert not gc.isenabled()
    finally:
        gc.enable()
