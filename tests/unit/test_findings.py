"""Findings as users see them: grouped, with source, buffer and what to do; as JSON, SARIF and text."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npu_sim.authoring import Core, In, Out, Pipe, TPosition, kernel
from npu_sim.engines.buffers import FINDING_LIMIT
from npu_sim.products import get_product
from npu_sim.program.finding_codes import CODES, SEVERITIES, TOOLS, code_words
from npu_sim.program.violation import Kind
from npu_sim.report.sarif import LEVELS
from ops.cli.main import main
from ops.studies.checking import check_launches
from ops.studies.findings import Wanted

KERNEL = """
import numpy as np
from npu_sim.authoring import Core, In, Out, TPosition, kernel

@kernel
def twice(core: Core, x: In, z: Out) -> None:
    part = core.alloc(TPosition.VECCALC, x.dtype, 512, "part")
    for i in core.tiles(len(x) // 512):
        core.data_copy(part, x[i * 512], 512)
        core.add(part, part, part, 512)
        core.data_copy(z[i * 512], part, 512)
    core.free(part)

x = np.ones(2048, np.float16)
twice(x, np.empty_like(x))
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr("ops.cli.scripts.note_compilation", lambda: None)
    path = tmp_path / "twice.py"
    path.write_text(KERNEL)
    return path


def _check(capsys, *arguments):
    code = main(["check", "--no-progress", *map(str, arguments)])
    return code, capsys.readouterr().out


def test_findings_every_kind_has_a_code_that_is_explained():
    assert set(CODES) == set(Kind)
    assert {code.severity for code in CODES.values()} == set(SEVERITIES) == set(LEVELS)
    assert {code.tool for code in CODES.values()} == set(TOOLS)
    for name in (*(kind.name for kind in Kind), *(kind.value for kind in Kind)):
        assert code_words(name), name
    assert code_words("ErrorSync5") == []


def test_findings_of_a_kernel_say_line_buffer_repeats_and_remedy(capsys, script):
    code, out = _check(capsys, script, "--core", 0, "--max-findings", 1)
    assert code == 1
    lines = [line.strip() for line in out.splitlines()]
    first = next(i for i, line in enumerate(lines) if ":10: ErrorSync2 core 0 tile 0 row 2 UB[0:1024]" in line)
    assert [line.split("twice.py")[-1] for line in lines[first + 1 : first + 4]] == [
        ":9: DataCopy (MTE2), core 0 row 1", "bytes part[0:1024]", "4 times",
    ]  # fmt: skip
    assert "to do: let the earlier pipe set a flag behind its instruction and this one wait for it" in lines
    assert any(line.endswith("more; --json has all of them") for line in lines)


def test_findings_are_the_same_document_in_json_and_valid_places_in_sarif(capsys, script, tmp_path):
    code, out = _check(capsys, script, "--json", "-", "--sarif", tmp_path / "found.sarif")
    (launch,) = json.loads(out)["launches"]
    assert code == 1
    run = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(launch["findings"]) > 3
    for found, result in zip(launch["findings"], run["results"], strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == found["kind"]
        assert result["level"] == LEVELS[found["severity"]]
        assert result["occurrenceCount"] == found["count"] >= 1
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] == found["instruction"]["line"]
        assert place["artifactLocation"]["uri"].endswith("twice.py")
        assert len(result.get("relatedLocations", ())) == (found["other_instruction"] is not None)


@pytest.mark.parametrize("tool", ["memcheck", "initcheck", "racecheck", "synccheck", "npuchk"])
def test_findings_of_one_check_are_those_of_its_tool(capsys, script, tool):
    code, out = _check(capsys, script, "-t", tool, "--json", "-")
    found = {finding["tool"] for launch in json.loads(out)["launches"] for finding in launch["findings"]}
    assert found == ({"racecheck"} if tool in ("racecheck", "npuchk") else set())
    assert code == bool(found)


def test_findings_options_that_name_nothing_are_refused(capsys, script):
    assert main(["check", str(script), "-t", "valgrind"]) == 2
    assert "--tool must be one of memcheck, " in " ".join(capsys.readouterr().err.split())
    assert main(["check", "--explain", "nothing"]) == 2


def test_findings_of_a_code_are_explained(capsys):
    code, out = _check(capsys, "--explain", "ErrorSync2")
    assert code == 0
    assert [line.split(" ")[0] for line in out.splitlines() if not line.startswith(" ")] == [
        "ErrorSync2", "ErrorSync2/barrier",
    ]  # fmt: skip


@kernel
def _unread(core: Core, x: In, z: Out) -> None:
    part = core.alloc(TPosition.VECCALC, x.dtype, 512, "part")
    core.duplicate(part, 0, 512)
    core.duplicate(part, 1, 512)
    core.pipe_barrier(Pipe.ALL)
    core.data_copy(z, part, 512)
    core.free(part)


def test_findings_that_are_advice_come_last_and_hold_for_whom_asks():
    x = np.zeros(512, np.float16)
    run = _unread.record(x, np.empty_like(x), blocks=1)
    _, found = check_launches(run.launches, run.product)
    assert found[-1].violation.kind is Kind.WRITE_UNREAD
    assert found[-1].code.severity == "advice"
    _, found = check_launches(run.launches, get_product("910b"), Wanted(tools=("memcheck",), core=0))
    assert found == ()


@kernel
def _twice_each(core: Core, z: Out, tiles: int) -> None:
    """Fill a buffer twice in every tile, which is advice; ``z`` is written without waiting for the last of them."""
    part = core.alloc(TPosition.VECCALC, z.dtype, 128, "part")
    for _ in range(tiles):
        core.duplicate(part, 0, 128)
        core.pipe_barrier(Pipe.V)
    core.free(part)
    core.data_copy(z, core.alloc(TPosition.VECCALC, z.dtype, 128, "other"), 128)


def test_findings_that_were_not_kept_are_said_and_hide_no_other_kind():
    """`FINDING_LIMIT` are kept and the first of each kind: a long list of advice passes over no error."""
    z = np.zeros(128, np.float16)
    run = _twice_each.record(z, FINDING_LIMIT + 5, blocks=1)
    _, found = check_launches(run.launches, run.product)
    kinds = [Kind.READ_STALE, Kind.SYNC_READ_HAZARD, Kind.BUFFER_LEAK, Kind.WRITE_UNREAD]
    assert [finding.violation.kind for finding in found] == kinds
    assert [(finding.count, finding.left_out) for finding in found] == [(1, 0)] * 3 + [(FINDING_LIMIT, 4)]
    assert "  4 more ErrorWrite3 were found and not kept" in found[-1].lines()
    assert found[-1].document()["left_out"] == 4
    for core, expected in ((0, kinds), (1, kinds[-1:])):  # those that were not kept may be of any core
        _, found = check_launches(run.launches, run.product, Wanted(core=core))
        assert [finding.violation.kind for finding in found] == expected
    _, found = check_launches(run.launches, run.product, Wanted(tools=("racecheck",)))
    assert [(finding.violation.kind, finding.left_out) for finding in found] == [(Kind.SYNC_READ_HAZARD, 0)]


@kernel
def _all_of_it(core: Core, x: In, z: Out) -> None:
    part = core.alloc(TPosition.VECCALC, x.dtype, len(x), "part")
    core.data_copy(part, x, len(x))
    core.pipe_barrier(Pipe.ALL)
    core.data_copy(z, part, len(x))
    core.free(part)


def test_findings_between_cores_say_what_orders_cores():
    x = np.zeros(512, np.float16)
    run = _all_of_it.record(x, np.empty_like(x), blocks=2)
    ((finding),) = check_launches(run.launches, run.product)[1]
    assert finding.violation.kind is Kind.SYNC_WRITE_HAZARD
    assert finding.hint == finding.document()["hint"] != finding.code.hint
    assert "SetAtomicAdd" in finding.hint


def test_findings_of_a_refused_row_name_its_kind_once(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("ops.cli.scripts.note_compilation", lambda: None)
    path = tmp_path / "wrong.py"
    path.write_text(KERNEL.replace("core.add(part, part, part, 512)", "core.add(part[1], part, part, 64)"))
    code, out = _check(capsys, path)
    assert code == 1
    assert ":10: ErrorWrite4 Add UB address must be a multiple of 32, not 2 (" in " ".join(out.split())
