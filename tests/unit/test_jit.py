"""The names of the cache directories: whatever compiled code depends on must change them, nothing else should."""

from __future__ import annotations

import pytest

from npu_sim import _jit


@pytest.fixture(autouse=True)
def _no_memory():
    """Let every test see the sources anew."""
    for cached in (_jit._source, _jit._imported, _jit._source_digest):
        cached.cache_clear()
    yield
    for cached in (_jit._source, _jit._imported, _jit._source_digest):
        cached.cache_clear()


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Write a small package in which a imports b imports c, in four ways of writing it."""
    package = tmp_path / "npu_sim"
    package.mkdir()
    sources = {
        "__init__": "",
        "a": "from npu_sim.b import (\n    first,\n    second,\n)\n",
        "b": "import numpy\n\ndef f():\n    from npu_sim import c, constants\n",
        "c": "import npu_sim.d\n",
        "d": "x = 1\n",
        "constants": "N = 3\n",
        "apart": "from npu_sim.d import x\n",
    }
    for name, text in sources.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(_jit, "_ROOT", tmp_path)
    return package


def digest_after_change(tree, changed: str, of: str) -> bool:
    before = _jit._source_digest(of)
    (tree / f"{changed}.py").write_text((tree / f"{changed}.py").read_text() + "# changed\n")
    for cached in (_jit._source, _jit._imported, _jit._source_digest):
        cached.cache_clear()
    return before != _jit._source_digest(of)


@pytest.mark.parametrize("changed", ["a", "b", "c", "d", "constants", "__init__"])
def test_digest_changes_with_every_source_in_reach(tree, changed):
    assert digest_after_change(tree, changed, "npu_sim.a")


@pytest.mark.parametrize("changed", ["a", "b", "c", "constants", "apart"])
def test_digest_stays_when_a_source_out_of_reach_changes(tree, changed):
    assert not digest_after_change(tree, changed, "npu_sim.d")


@pytest.mark.parametrize("changed", ["a", "d", "apart", "__init__"])
def test_digest_of_foreign_code_changes_with_every_source(tree, changed):
    assert digest_after_change(tree, changed, "my_kernel")


def test_closure_of_the_dispatcher_holds_the_semantics_but_no_operator():
    closure = _jit._closure("npu_sim.isa.dispatch")
    assert {"npu_sim.isa.mte", "npu_sim.isa.op", "npu_sim.isa.microkernel_ir", "npu_sim.dtypes.convert_jit"} <= set(
        closure
    )
    assert not [name for name in closure if name.startswith("ops")]
