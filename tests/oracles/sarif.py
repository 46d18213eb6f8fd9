"""What SARIF 2.1.0 asks of the objects that the reports have, in our own words.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, chapter 3: which properties an object
must have, what stands in them, and that no others do. Optional properties that no report has are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

_LEVELS = ("none", "note", "warning", "error")
_KINDS = (
    "function", "member", "module", "namespace", "parameter", "resource", "returnType", "type", "variable", "object",
    "array", "property", "value", "element", "text", "attribute", "comment", "declaration", "dtd",
    "processingInstruction",
)  # fmt: skip
_URI = re.compile(r"(file://[^/]*/|(?![^/]*:))([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
"""RFC 3986: an absolute path of a file, or a reference whose first segment has no colon."""


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _is_from(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


_OBJECTS: dict[str, tuple[frozenset[str], dict[str, Any]]] = {
    "log": (
        frozenset({"version", "runs"}),
        {"$schema": _text, "version": lambda value: value == "2.1.0", "runs": ["run"]},
    ),
    "run": (frozenset({"tool", "results"}), {"tool": "tool", "results": ["result"]}),  # results: the check has run
    "tool": (frozenset({"driver"}), {"driver": "component"}),
    "component": (frozenset({"name"}), {"name": _text, "semanticVersion": _text, "rules": ["rule"]}),
    "rule": (
        frozenset({"id"}),
        {
            "id": _text,
            "name": _text,
            "shortDescription": "message",
            "help": "message",
            "defaultConfiguration": "configuration",
        },
    ),
    "configuration": (frozenset(), {"level": _LEVELS.__contains__}),
    "message": (frozenset({"text"}), {"text": _text}),
    "result": (
        frozenset({"message"}),
        {
            "ruleId": _text,
            "ruleIndex": _is_from(0),
            "level": _LEVELS.__contains__,
            "message": "message",
            "occurrenceCount": _is_from(1),
            "locations": ["location"],
            "relatedLocations": ["location"],
        },
    ),
    "location": (
        frozenset(),
        {
            "id": _is_from(0),
            "message": "message",
            "logicalLocations": ["logical location"],
            "physicalLocation": "physical location",
        },
    ),
    "logical location": (frozenset(), {"fullyQualifiedName": _text, "kind": _KINDS.__contains__}),
    "physical location": (
        frozenset({"artifactLocation"}),
        {"artifactLocation": "artifact", "region": "region"},
    ),
    "artifact": (frozenset({"uri"}), {"uri": lambda value: _text(value) and _URI.fullmatch(value) is not None}),
    "region": (frozenset({"startLine"}), {"startLine": _is_from(1)}),
}


def sarif_faults(log: Any) -> list[str]:
    """Return what is wrong with a parsed log, with where it is."""
    found = list(_faults(log, "log", "log"))
    if not found:
        for number, run in enumerate(log["runs"]):
            rules = [rule["id"] for rule in run["tool"]["driver"].get("rules", [])]
            if len(set(rules)) < len(rules):
                found.append(f"log.runs[{number}]: rules of one id")
            found += [
                f"log.runs[{number}].results[{at}]: ruleIndex of another rule"
                for at, result in enumerate(run["results"])
                if rules[result["ruleIndex"] : result["ruleIndex"] + 1] != [result["ruleId"]]
            ]
    return found


def _faults(value: Any, kind: Any, where: str) -> Iterator[str]:
    if isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{where}: no array"
            return
        for number, one in enumerate(value):
            yield from _faults(one, kind[0], f"{where}[{number}]")
    elif callable(kind):
        if not kind(value):
            yield f"{where}: {value!r}"
    elif not isinstance(value, dict):
        yield f"{where}: no object"
    else:
        required, known = _OBJECTS[kind]
        yield from (f"{where}: no {name}" for name in sorted(required - set(value)))
        for name, one in value.items():
            if name in known:
                yield from _faults(one, known[name], f"{where}.{name}")
            else:
                yield f"{where}: {name}"
