"""What the shortened compilation gives: what Numba's own gives, and a compiler left as it was found."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite import ir as llvm_ir
from numba.core import (
    callconv,
    compiler,
    debuginfo,
    errors,
    interpreter,
    ir,
    lowering,
    postproc,
    typeinfer,
    types,
    utils,
)
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python, rtsys

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


def _functions(a, b):
    """Functions of scalars, with equal and with mixed types, each more than once."""
    kinds = np.int64(a), np.uint32(b), np.float32(a), float(b), bool(a), abs(a), np.int64(b), bool(b)
    extremes = min(a, b), max(a, b), min(a, 3), max(2.5, b), min(b, a), min(a, b, 3), max(a, b)
    return kinds, extremes, len(range(b)), divmod(7, np.int64(3)), round(float(a))


_INTEGERS = (np.int64(5), np.int32(-7), np.uint32(4), np.uint64(9), np.int16(3), True)
_NUMBERS = (*_INTEGERS, np.float32(2.5), np.float64(-1.75))


def _bits(value):
    if isinstance(value, tuple):
        return [_bits(one) for one in value]
    return type(value).__name__, np.asarray(value).tobytes()


@pytest.mark.parametrize("second", _INTEGERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("function", "numbers"), [(_operators, _NUMBERS), (_bitwise, _INTEGERS), (_functions, _NUMBERS)]
)
def test_operators_give_what_numba_gives(function, numbers, second):
    whole = numba.njit(error_model="numpy")(function)
    ours = _jit.jit(function)
    for first in numbers[:: 2 if second is True else 3]:
        assert _bits(ours(first, abs(second))) == _bits(whole(first, abs(second)))


@pytest.mark.parametrize("fails", [False, True])
def test_compiler_is_left_as_it_was(fails):
    holders = cpu_target.typing_context, cpu_target.target_context, errors.termcolor()
    replaced = ("resolve_function_type", "_markup")
    methods = ir.Inst._rec_list_vars, postproc.PostProcessor.run
    contexts = type(cpu_target.typing_context), type(cpu_target.target_context)
    helpers = (
        *((context, "refresh") for context in contexts),
        (contexts[1], "get_abi_sizeof"),
        (contexts[1], "pack_value"),
        (callconv.CPUCallConv, "call_function"),
        (interpreter, "peep_hole_delete_with_exit"),
        (typeinfer, "TypeInferer"),
        (typeinfer, "new_error_context"),
        (lowering, "new_error_context"),
        (errors.WarningsFixer, "catch_warnings"),
        (debuginfo, "suspend_emission"),
        (types.Record, "__repr__"),
        (utils, "pysignature"),
        (cpu_target.target_context.data_model_manager, "_cache"),
    )
    before = [getattr(holder, name) for holder, name in helpers]
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
    assert all(getattr(holder, name) is value for (holder, name), value in zip(helpers, before, strict=True))
    assert listeners == _pipeline.ffi.lib._lock._cblist != []
    assert gc.isenabled()


def test_compilation_leaves_nothing_that_only_a_collection_would_find():
    @_jit.jit
    def inner(values, factor):
        total = np.int64(0)
        for value in values:
            total += value * factor if value > 2 else factor
        return total

    @_jit.jit
    def outer(values):
        return inner(values, 3)

    kinds = llvm_ir.Instruction, typeinfer.TypeVar, ir.Assign
    gc.collect()
    before = sum(issubclass(type(one), kinds) for one in gc.get_objects())
    gc.disable()
    try:
        assert outer(np.arange(5)) == 30
        after = sum(issubclass(type(one), kinds) for one in gc.get_objects())
    finally:
        gc.enable()
    assert after - before < 100


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


def _arrays(values, count):
    """Arrays that are made, cut, kept in tuples, replaced in a loop, returned and dropped."""
    last = values[1:]
    pair = (values, values[2:])
    for index in range(count):
        made = np.empty(index + 2, values.dtype)
        made[:] = index
        if index % 2:
            last = made[1:]
            pair = (made, made[2:])
    return last, pair[0][0] + len(pair[1]) + len(pair[0])


def _lines(values, count):
    made = np.empty(count, values.dtype)
    for index in range(count):
        made[index] = values[index]
        yield made[: index + 1]


@pytest.fixture
def _counted():
    rtsys.initialize(cpu_target.target_context)
    _nrt_python.memsys_enable_stats()
    yield
    _nrt_python.memsys_disable_stats()


@pytest.mark.usefixtures("_counted")
@pytest.mark.parametrize(
    ("function", "take"), [(_arrays, lambda found: [*found]), (_lines, lambda found: [line.copy() for line in found])]
)
def test_arrays_live_as_long_as_something_refers_to_them(function, take):
    ours, values = _jit.jit(function), np.arange(7.0)
    take(ours(values, 5))
    held, before = sys.getrefcount(values), rtsys.get_allocation_stats()
    for _ in range(3):
        found, expected = take(ours(values, 5)), take(function(values, 5))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        del found, one
    after = rtsys.get_allocation_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free > 0
    assert sys.getrefcount(values) == held


def _wrong_type(x):
    y = x + 1
    return y.nothing


def _wrong_call(x):
    return len(x)


@pytest.mark.parametrize("function", [_wrong_type, _wrong_call])
def test_errors_name_the_statement(function):
    texts = []
    for compiled in (numba.njit(function), _jit.jit(function)):
        with pytest.raises(errors.TypingError) as caught:
            compiled(1)
        texts.append(re.findall(r"During: (typing of [^\x1b\n]*)", str(caught.value)))
    assert texts[0] == texts[1] != []


@pytest.fixture
def translated(monkeypatch):
    """What each function is translated to, before LLVM has seen it."""
    texts: list[str] = []
    add = _pipeline.SimplifiedLibrary.add_ir_module

    def keep(library, module):
        texts.append(str(module))
        add(library, module)

    monkeypatch.setattr(_pipeline.SimplifiedLibrary, "add_ir_module", keep)
    return texts


def test_places_of_results_are_not_cleared_before_a_call(translated, monkeypatch, tmp_path):
    @_jit.jit
    def parts(value):
        if value > 5:
            raise ValueError("too much", value)
        return value, np.float64(value)

    def chosen(number):
        return parts(number + 1) if number > 2 else parts(number)

    def clears():
        texts = [text for text in translated if "chosen" in text]
        translated.clear()
        assert texts
        return sum(len(re.findall(r"store {i64, double} ", text)) for text in texts)

    ours = _jit.jit(chosen)
    assert ours(2) == (2, 2.0)
    assert ours(3) == (4, 4.0)
    with pytest.raises(ValueError, match=r"^\('too much', 6\)$"):
        ours(5)
    few = clears()
    monkeypatch.setattr(_jit, "_CACHE_PARENT", str(tmp_path / "other"))
    monkeypatch.setattr(_pipeline, "_call_function", callconv.CPUCallConv.call_function)
    assert _jit.jit(chosen)(3) == (4, 4.0)
    # for each of the two calls one where it is and one where the function begins
    assert clears() - few >= 4


def test_collection_that_was_off_stays_off():
    gc.disable()
    try:
        assert _jit.jit(lambda x: x + 1)(1) == 2
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_code_is_compiled_after_a_function_whose_type_is_still_known_has_gone():
    gone = _jit.jit(lambda x: x + 1)
    kind = numba.typeof(gone)
    models = cpu_target.target_context.data_model_manager
    assert models[kind]
    del gone
    gc.collect()
    with pytest.raises(ReferenceError):
        _ = kind.dispatcher
    assert kind not in models._cache
    assert any(each is kind for each in models._cache)
    assert _jit.jit(lambda x: x + 2)(1) == 3
