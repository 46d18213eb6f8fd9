"""The costs in ``intrinsics.toml`` beside this module, each with its source."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from npu_sim.products.source import EVIDENCE, Confidence, Evidence, Source

_FILE = Path(__file__).with_name("intrinsics.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsic:
    """What one vector intrinsic costs.

    Attributes
    ----------
    name : str
        As compilers know it, lower case, without the width of its type.
    source : Source
        Where the numbers come from.
    start : mapping of str to int
        Cycles beside its steps until an isolated one is complete, of "float" and "int".
    step : mapping of int to int
        Cycles of a repeat by bits of an element.
    least : mapping of str to int
        Least cycles in a stream by type, where it is not that of the unit.
    fixed : int
        Cycles beside the steps in a stream.
    conflicts : bool
        It reads two vectors, whose bank groups count.
    mixed_step : int
        Cycles of a repeat with a wider result; 0: as any other.
    mask_block : int
        Cycles more where the bits that it writes do not fill a block; 0: it writes elements.
    eighths : int
        Cycles more for each further 8 repeats.
    """

    name: str
    source: Source
    start: Mapping[str, int]
    step: Mapping[int, int]
    least: Mapping[str, int]
    fixed: int
    conflicts: bool
    mixed_step: int
    mask_block: int
    eighths: int


def _source(entry: Mapping[str, Any]) -> Source:
    evidence = next(name for name in EVIDENCE if name in entry)
    return Source(entry[evidence], cast(Evidence, evidence), confidence=cast(Confidence, entry["confidence"]))


def _intrinsic(name: str, group: Mapping[str, Any]) -> Intrinsic:
    step = group["step"]
    return Intrinsic(
        name=name,
        source=_source(group),
        start=group["start"],
        step={int(bits): cycles for bits, cycles in step.items()} if isinstance(step, dict) else {0: step},
        least=group.get("least", {}),
        fixed=group.get("fixed", 0),
        conflicts=group.get("conflicts", False),
        mixed_step=group.get("mixed_step", 0),
        mask_block=group.get("mask_block", 0),
        eighths=group.get("eighths", 0),
    )


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def intrinsics() -> Mapping[str, Intrinsic]:
    """Return the vector intrinsics by name."""
    return {name: _intrinsic(name, group) for group in _document()["group"] for name in group["names"]}


@cache
def sequence_costs() -> Mapping[str, int]:
    """Return what is beside the instructions in sequences, by name."""
    return {name: entry["value"] for name, entry in _document()["sequence"].items()}


@cache
def published_chips() -> Mapping[str, str]:
    """Return the product that publishers mean by a chip, where it is not what the registry calls so."""
    return dict(_document()["chips"])


@cache
def sources() -> Mapping[str, Source]:
    """Return the source of each intrinsic and of each cost of sequences, by name."""
    found = {name: one.source for name, one in intrinsics().items()}
    return found | {name: _source(entry) for name, entry in _document()["sequence"].items()}
