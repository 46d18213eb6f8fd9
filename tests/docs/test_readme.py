"""The README's Python blocks run, one after the other, and print what the README says."""

from __future__ import annotations

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

from ops.aclnn import aclGetRecentErrMsg

README = Path(__file__).parents[2] / "README.md"
_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def test_readme_python_blocks_print_the_text_behind_them() -> None:
    blocks = _BLOCK.findall(README.read_text(encoding="utf-8"))
    # what other tests left unread would come before what the README's call has to say
    aclGetRecentErrMsg()
    scope: dict[str, object] = {}
    checked = 0
    for (kind, code), (next_kind, text) in pairwise(blocks):
        if kind != "python":
            continue
        assert next_kind == "text", "each Python block is followed by its output"
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(README), "exec"), scope)
        assert output.getvalue().strip() == text.strip()
        checked += 1
    assert checked == 3


def test_readme_names_files_that_exist() -> None:
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (README.parent / target).exists(), target


def test_examples_page_has_one_title_and_names_every_example_and_no_other() -> None:
    examples = README.parent / "examples"
    page = (examples / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    assert re.findall(r"^# .*", prose, re.MULTILINE) == ["# Examples"]
    table = re.findall(r"^\| `(\w+\.py)` \|", page, re.MULTILINE)
    assert sorted(table) == sorted(path.name for path in examples.glob("*.py"))


def test_readme_writes_its_trace_where_git_does_not_look() -> None:
    trace = re.findall(r"--trace (\S+)", README.read_text(encoding="utf-8"))
    ignored = (README.parent / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert trace
    assert {f"/{name}" for name in trace} <= set(ignored)
