"""Records as plain data and as JSON text, and counts in words."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from typing import Any


def to_plain(value: Any) -> Any:
    """Return ``value`` built from dict, list, str, int, float, bool and None only.

    Dataclasses become dicts in field order, tuples lists. A float that JSON has no number for becomes the string
    ``"nan"``, ``"inf"`` or ``"-inf"``, which ``float()`` reads back.

    Parameters
    ----------
    value : object
        A record, mapping, sequence or scalar.

    Returns
    -------
    object
        The plain form.

    Raises
    ------
    TypeError
        For a type that has no plain form; nothing is turned into a string silently.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"A record field must be plain data, not {type(value).__name__}")


def to_json_text(value: Any) -> str:
    """Return ``value`` as indented JSON text that any strict parser reads."""
    return json.dumps(to_plain(value), indent=2, allow_nan=False, ensure_ascii=False)


def count_of(severities: Collection[str]) -> str:
    """Return "3 findings" for the severities of three, with how many of them are no more than advice."""
    words, advice = counted(len(severities), "finding"), sum(one == "advice" for one in severities)
    if not advice:
        return words
    return f"{words}, {'all' if advice == len(severities) > 1 else advice} advice"


def counted(count: int, noun: str) -> str:
    """Return "1 finding", "2 findings", "3 launches"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith(('s', 'ch', 'x')) else 's'}"
