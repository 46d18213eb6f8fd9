"""SARIF files of the commands, held to the structure that the standard asks for."""

from __future__ import annotations

import copy
import json

import pytest

from npu_sim.program.violation import Kind
from npu_sim.report.sarif import SarifPlace, SarifResult, sarif_text
from ops.cli.main import main
from ops.studies.findings import sarif_rules
from tests.cases.json_documents import KERNEL
from tests.oracles.sarif import sarif_faults


def _log(*places: SarifPlace) -> dict:
    results = [SarifResult(code=kind.value, message="a", places=places, count=2) for kind in Kind]
    return json.loads(sarif_text(sarif_rules(), results, "0.1.0"))


@pytest.mark.parametrize("command", ["check", "judge"])
@pytest.mark.parametrize(("how", "least"), [("right", 0), ("races", 1), ("refused", 1)])
@pytest.mark.parametrize("name", ["kernel.py", "a b%20.py", "gr\u00f6\u00dfe#1?.py", "c:d.py"])
def test_sarif_of_files_of_any_name_has_the_structure_of_the_standard(command, how, least, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(KERNEL)
    for script, sarif in ((name, "relative.sarif"), (str(tmp_path / name), "absolute.sarif")):
        assert main([command, script, "--sarif", sarif, how]) == min(least, 1)
        log = json.loads((tmp_path / sarif).read_text(encoding="utf-8"))
        assert sarif_faults(log) == []
        assert len(log["runs"][0]["results"]) >= least


def test_sarif_of_every_code_has_the_structure_of_the_standard():
    line, nowhere = SarifPlace(logical="k", message="Add", file="/a b/c.py", line=3), SarifPlace(logical="k")
    for places in ((), (line,), (nowhere,), (line, nowhere, line)):
        assert sarif_faults(_log(*places)) == []


def test_the_structure_of_sarif_is_missed_where_it_is_broken():
    """Every value taken away, replaced or given a neighbour that no object of the standard has."""
    log = _log(SarifPlace(logical="k", message="Add", file="a.py", line=3), SarifPlace(logical="k"))
    del log["runs"][0]["results"][1:]
    required = {"version", "runs", "tool", "results", "driver", "id", "text", "message", "artifactLocation", "uri"}
    seen = set()

    def broken(change):
        made = copy.deepcopy(log)
        change(made)
        return sarif_faults(made)

    def walk(value, path):
        if isinstance(value, dict):
            assert broken(lambda made: at(made, path).update(mine=1)), path
        for key in value if isinstance(value, dict) else range(len(value)):
            assert broken(lambda made, key=key: at(made, path).__setitem__(key, -1)), (path, key)
            if key in required and not (key == "message" and "text" not in value.get(key, {})):
                seen.add(key)
                if not (key in ("id", "message") and path[-2:-1] in (["locations"], ["relatedLocations"])):
                    assert broken(lambda made, key=key: at(made, path).pop(key)), (path, key)
            if isinstance(value[key], dict | list):
                walk(value[key], [*path, key])

    def at(made, path):
        for key in path:
            made = made[key]
        return made

    walk(log, [])
    assert seen == required
