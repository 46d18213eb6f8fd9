"""The page of kernels in C++: its Python block prints what it says, and it names the examples there are."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.ascendc.compiler import require_compiler

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "examples" / "ascendc" / "README.md"


def test_the_page_names_every_example_and_no_other():
    named = re.findall(r"^\| `(\w+\.cpp)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in PAGE.parent.glob("*.cpp"))


@pytest.mark.usefixtures("_in_root")
def test_each_block_prints_what_the_page_says():
    require_compiler()
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    for code, text in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(PAGE), "exec"), {})
        assert said.getvalue() == text


@pytest.fixture
def _in_root(monkeypatch):
    monkeypatch.chdir(ROOT)
