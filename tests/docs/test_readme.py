"""The README's Python blocks run, one after the other, and print what the README says."""

from __future__ import annotations

import contextlib
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from ops.aclnn import aclGetRecentErrMsg
from ops.cli.main import main

README = Path(__file__).parents[2] / "README.md"
SHAPE = ("--x", "8,64,56,56", "--weight", "64,64,3,3", "--padding", "1", "--product", "910b")
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
    assert checked == 4


def test_readme_block_for_pytorch_prints_the_record_behind_it() -> None:
    pytest.importorskip("torch")
    ((code, text),) = re.findall(r"```py\n(.*?)```\n\n```text\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(README), "exec"), {})

    def words(lines: str) -> list[str]:
        # the figures hang on PyTorch's own float32 results, whose last bits are its build's and the processor's
        return [word for word in lines.split() if not re.fullmatch(r"\d\.\d+(%|e[+-]\d\d\.?)", word)]

    assert words(output.getvalue()) == words(text)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return a function that runs a command in a directory of its own and returns what it prints; once each."""
    known: dict[tuple[str, ...], str] = {}

    def output(*arguments: str) -> str:
        if arguments not in known:
            with contextlib.chdir(tmp_path_factory.mktemp("readme")), contextlib.redirect_stdout(io.StringIO()) as out:
                assert main(arguments) == 0
            known[arguments] = out.getvalue()
        return known[arguments]

    return output


@pytest.mark.parametrize(
    ("first_line", "arguments"),
    [
        ("96 combinations", ("precision",)),
        ("down dw  x 32x16x8x8", ("precision", "--details")),
        ("Each layer: the whole call", ("perf", *SHAPE)),
    ],
)
def test_readme_excerpts_are_what_the_commands_print(printed, first_line, arguments) -> None:
    blocks = [text for _, text in _BLOCK.findall(README.read_text(encoding="utf-8")) if text.startswith(first_line)]
    assert len(blocks) == 1
    lines = iter([line.rstrip() for line in printed(*arguments).splitlines()])
    for line in blocks[0].rstrip("\n").splitlines():
        # lines may be left out, but the order is that of the output
        assert line in lines, line


def test_readme_answers_its_three_questions_with_what_the_commands_find(printed) -> None:
    text = README.read_text(encoding="utf-8")
    results = [row["result"] for row in json.loads(printed("precision", "--json", "-"))["rows"] if row["result"]]
    passed = sum(result["rounded"]["outcome"] == "pass" for result in results)
    worst = max(results, key=lambda result: result["original"]["error"]["relative_l2"])
    error = worst["original"]["error"]["relative_l2"]
    assert (
        f"{passed} of {len(results)} weight gradients pass CANN's tolerance; relative L2 error up to {error:.1e}, in"
        in text
    )
    timed = [row["result"] for row in json.loads(printed("perf", "--product", "910b", "--json", "-"))["rows"]]
    names = ("task_seconds", "low_task_seconds", "high_task_seconds", "kernel_task_seconds")
    call, low, high, kernel = (sum(result[name] for result in timed) * 1e6 for name in names)
    calls = f"{call:.0f} us for the six calls on an Ascend910B2 ({low:.0f} to {high:.0f})"
    assert f"{calls}, {kernel:.0f} us of it in their kernels" in text
    checked = printed("check").splitlines()[-1].partition("; ")[2]
    assert checked.replace("checked", "on A2 and A3") in text


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
