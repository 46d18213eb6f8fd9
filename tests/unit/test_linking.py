"""What calls between jitted functions compile: one simplified copy of a callee, machine code only for entries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest

from npu_sim import _jit, _linking

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not _jit.JIT_ENABLED, reason="compiles")


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path, monkeypatch):
    """Let every test compile: code that was kept has no callees."""
    monkeypatch.setattr(_jit, "_CACHE_PARENT", str(tmp_path / "cache"))


if _jit.JIT_ENABLED:

    @_jit.jit
    def _scaled(values, factor):
        total = np.int64(0)
        for value in values:
            total += value * factor
        return total

    @_jit.jit
    def _twice(values, width):
        return _scaled(values, 2) + _scaled(values, width)

    @_jit.jit
    def _refuse(value):
        if value > 3:
            raise ValueError("too much", value)
        return value

    @_jit.jit
    def _guarded(value):
        return _refuse(value) + 1

    @_jit.jit
    def _multiples(params, count):
        p = params[0]
        for i in range(count):
            yield i * p["f99"] + p["f0"]

    @_jit.jit
    def _never_views(word):
        nothing = np.uint32(word & np.uint32(0))
        if nothing > 0:
            return nothing.view(np.float32)
        return np.float32(1)

    @_jit.jit
    def _views(word):
        return np.uint32(word).view(np.float32)

    @_jit.jit
    def _views_late(word):
        return _never_views(word) + _views(word)

    @_jit.jit
    def _half(value):
        return value // 2


VALUES = np.arange(5, dtype=np.int64)


def callees_of(dispatcher) -> _linking.Callees:
    return dispatcher.get_overload.__self__


def test_call_of_a_jitted_function_gives_what_python_gives():
    assert _twice(VALUES, 7) == 10 * 9 == _twice.py_func(VALUES, 7)


def test_code_that_an_earlier_callee_links_but_does_not_call_is_there_for_a_later_one():
    assert _views_late(np.uint32(0x3FC00000)) == 2.5


def test_generator_keeps_a_record_across_its_yields_without_storing_byte_after_byte():
    params = np.zeros(1, np.dtype([(f"f{i}", np.int64) for i in range(100)]))
    params["f99"], params["f0"] = 3, 1
    assert list(_multiples(params, 4)) == [1, 4, 7, 10]
    (code,) = _multiples.inspect_llvm().values()
    # the generator's wrapper returns the record by value, once; a yield does not
    assert code.count("store i8") <= params.nbytes


def test_generators_are_optimised_briefly_and_other_entries_as_numba_does(monkeypatch):
    from numba.core.registry import cpu_target

    generator = cpu_target.target_context.codegen()
    asked = []

    def module_pass_manager(**options):
        asked.append(options)
        return type(generator)._module_pass_manager(generator, **options)

    monkeypatch.setattr(generator, "_module_pass_manager", module_pass_manager)
    params = np.ones(1, np.dtype([("f0", np.int64), ("f99", np.int64)]))
    assert list(_multiples(params, 2)) == [1, 2]
    briefly = asked.copy()
    asked.clear()
    assert _half(8) == 4
    assert {"opt": 1} in briefly
    assert asked
    assert not any(asked)


def test_function_that_was_a_callee_runs_when_python_calls_it():
    _twice(VALUES, 1)
    assert _scaled(VALUES, 3) == 30


def test_literal_and_variable_argument_share_one_callee():
    _twice(VALUES, 1)
    assert len(callees_of(_scaled).signatures) == 1


def called_from_another():
    """Return a function that a compiled one has called, and what it was compiled to."""

    @_jit.jit
    def inner(value):
        return value + 1

    @_jit.jit
    def outer(value):
        return inner(value) * 2

    assert outer(4) == 10
    (compiled,) = callees_of(inner)._compiled.values()
    return inner, compiled


def test_callee_alone_makes_no_machine_code_and_no_entry():
    inner, compiled = called_from_another()
    engine = compiled.library.codegen._engine
    name = compiled.fndesc.llvm_func_name
    assert not inner.signatures
    assert name in [function.name for function in compiled.library._final_module.functions]
    assert compiled.library._get_module_for_linking().get_function(name).linkage.name == "linkonce_odr"
    assert not engine.is_symbol_defined(compiled.fndesc.llvm_cpython_wrapper_name)


def test_error_of_a_callee_reaches_python_with_its_values():
    assert _guarded(3) == 4
    with pytest.raises(ValueError, match=r"^\('too much', 4\)$"):
        _guarded(4)


@pytest.mark.parametrize(("limit", "inlined"), [(0, False), (400, True)])
def test_callee_is_marked_for_inlining_up_to_the_limit(monkeypatch, limit, inlined):
    monkeypatch.setattr(_linking, "INLINED_LINES", limit)
    _, compiled = called_from_another()
    assert ("alwaysinline" in str(compiled.library._final_module)) == inlined


def test_size_of_a_callee_counts_what_is_inlined_into_it():
    _twice(VALUES, 1)

    @_jit.jit
    def outer(values):
        return _twice(values, 5)

    assert outer(VALUES) == 70
    (inner,), (middle,) = (callees_of(function)._compiled.values() for function in (_scaled, _twice))
    sizes = [c.library.inlined_lines[c.fndesc.llvm_func_name] for c in (inner, middle)]
    assert sizes[1] > 2 * sizes[0]


def test_second_process_finds_the_entry_in_the_cache(tmp_path):
    (tmp_path / "kernels.py").write_text(
        "from npu_sim._jit import jit\n\n\n"
        "@jit\ndef inner(x):\n    return x + 1\n\n\n"
        "@jit\ndef outer(x):\n    return inner(x) * 2\n\n\n"
        "print(outer(4), sum(outer.stats.cache_hits.values()), len(inner.signatures))\n"
    )
    root = Path(_jit.__file__).resolve().parent.parent
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(root)}
    runs = [
        subprocess.run(
            [sys.executable, str(tmp_path / "kernels.py")], capture_output=True, text=True, check=True, env=environment
        ).stdout
        for _ in range(2)
    ]
    assert runs == ["10 0 0\n", "10 1 0\n"]


def test_functions_of_one_name_from_different_processes_keep_their_code(tmp_path):
    """Symbols of one name would be one function in the process that loads both from the cache."""
    steps = "\n".join(f"        x = x * 1.{i:04d} + k if x > {i} else x + k * {i}" for i in range(90))
    (tmp_path / "kernel.py").write_text(
        "import sys\nfrom npu_sim._jit import jit\n\n\ndef make(k):\n    @jit\n    def inner(x):\n"
        f"{steps}\n        return x\n\n    @jit\n    def entry(x):\n        return inner(x) + inner(x + 1.0)\n\n"
        "    return entry\n\n\nfirst, second = make(1), make(2)\n"
        "print([round({'1': first, '2': second}[name](3.0)) for name in sys.argv[1]])\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}

    def run(names):
        command = [sys.executable, str(tmp_path / "kernel.py"), names]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [int(number) for number in child.stdout.strip("[]\n").split(",")]

    alone = run("1") + run("2")
    assert alone[0] != alone[1]
    assert run("12") == alone


def test_a_dispatcher_is_made_when_it_is_first_asked_for():
    """Not where a function is only written down; one for all threads."""

    @_jit.jit
    def nine():
        return 9

    @_jit.jit
    def eighteen():
        return 2 * nine()

    assert nine.py_func() == 9
    assert nine.__name__ == "nine"
    assert "_dispatcher" not in vars(nine)
    barrier, made = Barrier(8), []

    def ask():
        barrier.wait()
        made.append(nine.get_call_template)

    threads = [Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert len(made) == 8
    assert eighteen() == 18
