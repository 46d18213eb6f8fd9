"""Findings as SARIF 2.1.0, which editors and CI systems show beside the source.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from npu_sim.report.record import to_json_text

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "advice": "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SarifRule:
    """A code: ``severity`` is a key of `LEVELS`."""

    code: str
    name: str
    severity: str
    title: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SarifPlace:
    """An instruction: its line in the source if there is one (``line`` 0: none), and its name in the program."""

    logical: str
    message: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SarifResult:
    """A finding: the instruction to blame first, others behind it."""

    code: str
    message: str
    places: Sequence[SarifPlace]
    count: int = 1


def sarif_text(rules: Sequence[SarifRule], results: Sequence[SarifResult], version: str) -> str:
    """Return one run of ``npu-sim check`` as a SARIF log.

    Parameters
    ----------
    rules : sequence of SarifRule
        All codes of ``results``, and others.
    results : sequence of SarifResult
        Worst first.
    version : str
        Of the package.
    """
    index = {rule.code: number for number, rule in enumerate(rules)}
    driver = {"name": "npu-sim", "semanticVersion": version, "rules": [_rule(rule) for rule in rules]}
    found = [_result(result, index[result.code], rules[index[result.code]]) for result in results]
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": found}]}
    return to_json_text(log)


def _rule(rule: SarifRule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": f"{rule.title}."},
        "help": {"text": f"To do: {rule.hint}."},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(result: SarifResult, index: int, rule: SarifRule) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ruleId": result.code,
        "ruleIndex": index,
        "level": LEVELS[rule.severity],
        "message": {"text": result.message},
        "occurrenceCount": result.count,
    }
    locations = [_location(place) for place in result.places]
    if locations:
        made["locations"] = locations[:1]
    if locations[1:]:
        made["relatedLocations"] = [{"id": number, **place} for number, place in enumerate(locations[1:], 1)]
    return made


def _location(place: SarifPlace) -> dict[str, Any]:
    made: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": place.logical, "kind": "function"}]}
    if place.message:
        made["message"] = {"text": place.message}
    if place.line:
        file = PurePath(place.file)
        uri = file.as_uri() if file.is_absolute() else quote(file.as_posix())  # else a:b.py is of a scheme a
        made["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": place.line}}
    return made
