"""The names of the cache directories: whatever compiled code depends on must change them, nothing else should."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from npu_sim import _dependencies
from npu_sim.isa import dispatch
from npu_sim.isa.op import Op

SOURCES = {
    "__init__": "",
    "entry": '''"""A module."""
from functools import partial

import numpy as np
from npu_sim._jit import jit
from thing import codes, middle
from thing.codes import Colour
from thing.holder import Holder
from thing.middle import twice as two_times

TABLE = np.array([1, 2, 3])
NAMES = {"a": (1, [2, 3])}


@jit
def entry(x, y=4):
    """Add things."""
    # a comment
    return two_times(x) + middle.plus(x) + Colour.RED + TABLE[0] + y


@jit
def apart(x):
    return x + codes.OTHER


def by_factory(step, holder):
    @jit
    def stepped(x):
        return x + step + holder.size

    return stepped


def plain(x):
    return NAMES["a"], partial(middle.helper, x)


stepped = by_factory(3, Holder(5))
''',
    "codes": """from enum import IntEnum

class Colour(IntEnum):
    RED = 1
    BLUE = 2

OTHER = 7
""",
    "middle": """from npu_sim._jit import jit
from npu_sim.reinterpret import reinterpret

FACTOR = 2


@jit
def inner(x):
    return [y for y in range(x)][0] * FACTOR


@jit
def twice(x):
    return inner(x)


@jit
def plus(x):
    return x + 1


def helper(x):
    return x
""",
}
SOURCES["holder"] = "class Holder:\n    def __init__(self, size):\n        self.size = size\n"
FUNCTIONS = ("entry", "apart", "stepped", "plain")


@pytest.fixture
def digests(tmp_path, monkeypatch):
    """Return a function that writes the package, with texts replaced, and returns the digests of its functions."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write_and_digest(module="entry", old="", new=""):
        (tmp_path / "thing").mkdir(exist_ok=True)
        for name, text in SOURCES.items():
            if name == module and old:
                assert text.count(old) == 1
                text = text.replace(old, new)
            (tmp_path / "thing" / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.split(".")[0] == "thing"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        _dependencies._of_file.cache_clear()
        entry = importlib.import_module("thing.entry")
        functions = {name: getattr(entry, name) for name in FUNCTIONS}
        return {name: _dependencies.digest(getattr(f, "py_func", f)) for name, f in functions.items()}

    yield write_and_digest
    for name in [name for name in sys.modules if name.split(".")[0] == "thing"]:
        del sys.modules[name]


CHANGES = [
    ("entry", "+ y\n", "- y\n", {"entry"}),
    ("entry", "y=4", "y=5", {"entry"}),
    ("entry", "x, y=4", "x, z=4, y=4", {"entry"}),
    ("entry", "[1, 2, 3]", "[1, 2, 4]", {"entry"}),
    ("entry", "np.array([1, 2, 3])", "np.array([1, 2, 3], np.int32)", {"entry"}),
    ("entry", "x + codes.OTHER", "codes.OTHER + x", {"apart"}),
    ("entry", "by_factory(3, ", "by_factory(4, ", {"stepped"}),
    ("entry", "Holder(5)", "Holder(6)", {"stepped"}),
    ("holder", "self.size = size", "self.size = -size", {"stepped"}),
    ("holder", "class", "# told by the source of its class\nclass", {"stepped"}),
    ("entry", "(1, [2, 3])", "(1, [2, 4])", {"plain"}),
    ("codes", "RED = 1", "RED = 3", {"entry"}),
    ("codes", "BLUE = 2", "GREEN = 2", set()),
    ("codes", "OTHER = 7", "OTHER = 7.0", {"apart"}),
    ("middle", "FACTOR = 2", "FACTOR = 3", {"entry"}),
    ("middle", "return [y for", "return [y + 1 for", {"entry"}),
    ("middle", "return inner(x)", "return inner(x + 1)", {"entry"}),
    ("middle", "return x + 1", "return x + 2", {"entry"}),
    ("middle", "@jit\ndef plus", "def plus", {"entry"}),
    ("middle", "def helper(x):\n    return x", "def helper(x):\n    return -x", {"plain"}),
    ("entry", '"""Add things."""', '"""Add two things."""', set()),
    ("entry", "# a comment", "# another\n", set()),
    ("entry", '"""A module."""', '"""A module.\n\nWith more text.\n"""', set()),
    ("middle", "@jit\ndef inner", "@jit\ndef unused(x):\n    return x\n\n\n@jit\ndef inner", set()),
]


@pytest.mark.parametrize(("module", "old", "new", "reached"), CHANGES)
def test_digest_changes_with_what_is_in_reach_and_with_nothing_else(digests, module, old, new, reached):
    before, after = digests(), digests(module, old, new)
    assert {name for name in FUNCTIONS if before[name] != after[name]} == reached


def _mmad_entry():
    return dispatch._entry_of(dispatch._exact.by_opcode[Op.MMAD]).py_func


def test_digest_is_the_same_in_another_process():
    """An address in it would make it another one."""
    program = (
        "from npu_sim import _dependencies; from npu_sim.isa import dispatch, op; "
        "print(_dependencies.digest(dispatch._entry_of(dispatch._exact.by_opcode[op.Op.MMAD]).py_func))"
    )
    children = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert children == {_dependencies.digest(_mmad_entry())}


def test_digest_changes_with_the_compiler(monkeypatch):
    before = _dependencies.digest(_mmad_entry())
    monkeypatch.setattr(_dependencies, "_of_compiler", lambda: "another")
    assert _dependencies.digest(_mmad_entry()) != before


def test_reach_of_an_instruction_holds_its_semantics_and_the_writers_of_machine_code():
    walk = _dependencies._Walk()
    walk.add(_mmad_entry())
    places = {text for text in walk.texts if text.startswith("npu_sim.")}
    assert {
        "npu_sim.isa.cube_exact._exact_block",
        "npu_sim.isa.microkernel_ir._vector",
        "npu_sim.dtypes.convert_jit.fp32_to_hf32",
        "npu_sim.reinterpret.reinterpret",
    } <= places
    others = ("npu_sim.isa.vector.", "npu_sim.isa.cube_tree.tree", "npu_sim.isa.cube_serial.")
    assert not [place for place in places if place.startswith(others)]
